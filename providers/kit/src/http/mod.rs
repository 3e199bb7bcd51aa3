//! HTTP for clouds with a JSON API: one request, and its answer or a [`Failure`] that a [`Caller`](crate::call::Caller)
//! classifies.
//!
//! Proxies come from the environment, trusted certificates from the host or a file. Redirects are not followed and
//! nothing is retried here. URLs, headers and bodies contain tokens: only the method, host and path of a request are
//! logged, and errors contain nothing of it.

mod answer;
mod connections;
mod environment;
mod proxy;
mod query;
#[cfg(test)]
mod tests;
mod tls;

use std::error::Error;
use std::fmt::Debug;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};

pub use self::answer::{causes, is_web_page, null, requested_delay, retry_after, web_page};
pub use self::connections::{Health, connections};
pub use self::environment::{Environment, bundle, variable};
pub use self::query::{Query, escaped};
pub use self::tls::{PEM_TEXT, Tls};
use crate::call::{Cause, Failure};

/// The timeout of a request with its whole answer, unless the cloud's configuration sets another.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// The maximum size of an answer, which is one page of a list.
const LARGEST: usize = 64 << 20;
/// The maximum size of an error answer.
const LARGEST_REFUSAL: usize = 64 << 10;

/// The connection settings of a cloud, and the format of its errors.
#[allow(missing_debug_implementations)] // The environment may hold passwords.
pub struct Settings<'a> {
    /// The name of the cloud in messages.
    pub cloud: &'static str,
    /// The environment, for `HTTP_PROXY`, `HTTPS_PROXY` and `NO_PROXY`.
    pub environment: Environment<'a>,
    /// The trusted certificates, and the client certificate.
    pub tls: Tls<'a>,
    /// The timeout of a request with its whole answer.
    pub timeout: Duration,
    /// The header `User-Agent`.
    pub user_agent: &'a str,
    /// The headers with the ID of a request; the first one found is used.
    pub request_ids: &'static [&'static str],
    /// Extracts the code and the message from the body of an error answer, if present.
    pub refusal: fn(&Value) -> Option<(String, String)>,
}

/// A pool of connections. Cheap to clone.
#[derive(Clone)]
pub struct Client {
    connections: reqwest::Client,
    cloud: &'static str,
    timeout: Duration,
    user_agent: HeaderValue,
    request_ids: &'static [&'static str],
    refusal: fn(&Value) -> Option<(String, String)>,
}

/// A successful answer.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The status, 200 to 300.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The whole body.
    pub body: Bytes,
}

impl Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("cloud", &self.cloud).finish_non_exhaustive()
    }
}

impl Client {
    /// A client without connections.
    ///
    /// # Errors
    ///
    /// A proxy or the certificate file is invalid; the text names the setting and never quotes a password.
    pub fn new(settings: &Settings<'_>) -> Result<Self, String> {
        Self::with_health(settings, Health::default())
    }

    fn with_health(settings: &Settings<'_>, health: Health) -> Result<Self, String> {
        let Settings { cloud, environment, tls, timeout, user_agent, request_ids, refusal } = *settings;
        Ok(Self {
            connections: connections(environment, tls, health)?,
            cloud,
            timeout,
            user_agent: HeaderValue::from_str(user_agent)
                .map_err(|_| "the user agent is not a header value".to_owned())?,
            request_ids,
            refusal,
        })
    }

    /// A client with the same connections and another timeout of a request with its whole answer.
    #[must_use]
    pub fn patient(&self, timeout: Duration) -> Self {
        Self { timeout, ..self.clone() }
    }

    /// Sends a request with an absolute URL.
    ///
    /// # Errors
    ///
    /// There was no answer, a status that is neither 2xx nor 300, or a web page.
    pub async fn send(&self, mut request: Request<Bytes>) -> Result<Answer, Failure> {
        request.headers_mut().insert(header::USER_AGENT, self.user_agent.clone());
        // As net/http does, and hyper does not: some servers and proxies answer 411.
        if request.body().is_empty() && [Method::POST, Method::PUT, Method::PATCH].contains(request.method()) {
            request.headers_mut().insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        }
        let (method, uri, start) = (request.method().clone(), request.uri().clone(), Instant::now());
        let late = || unanswered(format!("none within {}", ccm_provider::duration::format(self.timeout)));
        let answer = timeout(self.timeout, self.exchange(request)).await.unwrap_or_else(|_| Err(late()));
        let status = answer.as_ref().map_or_else(|failure| failure.status, |answer| Some(answer.status));
        let (host, path) = (uri.host().unwrap_or_default(), uri.path());
        tracing::debug!(%method, host, path, status, took = ?start.elapsed(), "request to {}", self.cloud);
        answer
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Answer, Failure> {
        let request = reqwest::Request::try_from(request).map_err(|error| not_answered(error, Cause::Malformed))?;
        let answer = self.connections.execute(request).await.map_err(|error| match error.is_connect() {
            true => not_answered(error, Cause::NotSent),
            false => not_answered(error, Cause::NoAnswer),
        })?;
        let (head, body) = http::Response::from(answer).into_parts();
        let (status, headers) = (head.status, head.headers);
        let largest = if status.is_success() { LARGEST } else { LARGEST_REFUSAL };
        let body = match Limited::new(body, largest).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) if error.is::<LengthLimitError>() => {
                return Err(self.unusable(status, &headers, format!("it is larger than {largest} bytes")));
            }
            Err(error) => {
                let why = format!("it breaks off: {}", causes(&*error, None));
                return Err(self.unusable(status, &headers, why));
            }
        };
        // A list of API versions has status 300.
        let succeeded = status.is_success() || status == StatusCode::MULTIPLE_CHOICES;
        if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
            let message = "the proxy wants a user and a password: set HTTP_PROXY = http://user:password@host:port";
            return Err(Failure { cause: Cause::NotSent, ..self.unusable(status, &headers, message.to_owned()) });
        }
        match (is_web_page(&body), succeeded) {
            (true, _) => Err(self.unusable(status, &headers, web_page(self.cloud, Some(status.as_u16())))),
            (false, true) => Ok(Answer { status: status.as_u16(), headers, body }),
            (false, false) => {
                let known = serde_json::from_slice(&body).ok().and_then(|body| (self.refusal)(&body));
                let (code, message) = known.unwrap_or_else(|| {
                    (status.as_str().to_owned(), status.canonical_reason().unwrap_or_default().to_owned())
                });
                Err(Failure { code, cause: Cause::Answered, ..self.unusable(status, &headers, message) })
            }
        }
    }

    /// An answer that cannot be used.
    fn unusable(&self, status: StatusCode, headers: &HeaderMap, message: String) -> Failure {
        let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
        Failure {
            status: Some(status.as_u16()),
            message,
            request_id: self.request_ids.iter().find_map(|name| text(name)).map(str::to_owned),
            after: requested_delay(headers),
            ..unanswered(String::new())
        }
    }
}

impl Answer {
    /// The body as JSON.
    ///
    /// # Errors
    ///
    /// The body is not valid JSON of this type, or is truncated. The text quotes no value.
    pub fn json<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        serde_json::from_slice(&self.body).map_err(|error| {
            let text = error.to_string();
            let why = text.split('"').next().unwrap_or_default();
            let place = format!("line {} column {}", error.line(), error.column());
            Failure { status: Some(self.status), ..unanswered(format!("unreadable JSON at {place}: {why}")) }
        })
    }
}

fn unanswered(message: String) -> Failure {
    Failure { message, cause: Cause::NoAnswer, ..Failure::default() }
}

/// The failure of a request. Its error has the URL, and reqwest's words for it; the causes are below.
fn not_answered(error: reqwest::Error, cause: Cause) -> Failure {
    let error = error.without_url();
    let message = error.source().map_or_else(|| error.to_string(), |below| causes(below, None));
    Failure { cause, ..unanswered(message) }
}
