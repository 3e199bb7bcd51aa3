//! HTTP for clouds with a JSON API: one request, and its answer or a [`Failure`] that a [`Caller`](crate::call::Caller)
//! classifies.
//!
//! Proxies come from the environment, trusted certificates from the host or a file. Plain HTTP also uses a proxy
//! tunnel. Redirects are not followed and nothing is retried here. URLs, headers and bodies contain tokens: only the
//! method, host and path of a request are logged, and errors contain nothing of it.

mod answer;
mod environment;
mod query;
#[cfg(test)]
mod silence;
#[cfg(test)]
mod tests;
mod tls;

use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, LengthLimitError, Limited};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::legacy::{Client as Pool, Error};
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::ClientConfig;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tokio::time::{Instant, timeout};

pub use self::answer::{causes, is_web_page, null, requested_delay, retry_after, web_page};
pub use self::environment::{Environment, Route, bundle, proxy_url, route, variable};
pub use self::query::{Query, escaped};
pub use self::tls::{PEM_TEXT, Tls};
use crate::call::{Cause, Failure};

const CONNECT: Duration = Duration::from_secs(5);
/// The timeout of a request with its whole answer, unless the cloud's configuration sets another.
pub const TIMEOUT: Duration = Duration::from_secs(30);
/// Idle connections are closed here before the server closes them: a request on a connection that was just closed
/// fails.
const IDLE: Duration = Duration::from_secs(30);
/// An HTTP/2 connection on which nothing arrives for this long gets a ping. The server or a proxy may have forgotten the
/// connection without closing it.
const READ_IDLE: Duration = Duration::from_secs(30);
/// The connection is closed if the ping is not answered within this time.
const PING_TIMEOUT: Duration = Duration::from_secs(15);
/// The maximum size of an answer, which is one page of a list.
const LARGEST: usize = 64 << 20;
/// The maximum size of an error answer.
const LARGEST_REFUSAL: usize = 64 << 10;

type Direct = HttpsConnector<HttpConnector>;
type Tunneled = HttpsConnector<Tunnel<Direct>>;

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
    direct: Pool<Direct, Full<Bytes>>,
    http: Option<Pool<Tunneled, Full<Bytes>>>,
    https: Option<Pool<Tunneled, Full<Bytes>>>,
    /// Matches the requests that `NO_PROXY` does not exclude.
    proxied: Arc<Matcher>,
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
        let Settings { cloud, environment, tls, timeout, user_agent, request_ids, refusal } = *settings;
        let tls = tls.client_config()?;
        let except = variable(environment, "NO_PROXY").map(|(_, value)| value).unwrap_or_default();
        Ok(Self {
            direct: pool(secured(&tls, tcp())),
            http: tunneled(environment, "HTTP_PROXY", &tls)?,
            https: tunneled(environment, "HTTPS_PROXY", &tls)?,
            proxied: Arc::new(Matcher::builder().all("http://proxy").no(except).build()),
            cloud,
            timeout,
            user_agent: HeaderValue::from_str(user_agent)
                .map_err(|_| "the user agent is no header value".to_owned())?,
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
        let (method, uri, start) = (request.method().clone(), request.uri().clone(), Instant::now());
        let late = || unanswered(format!("none within {}", ccm_provider::duration::format(self.timeout)));
        let answer = timeout(self.timeout, self.exchange(request)).await.unwrap_or_else(|_| Err(late()));
        let status = answer.as_ref().map_or_else(|failure| failure.status, |answer| Some(answer.status));
        let (host, path) = (uri.host().unwrap_or_default(), uri.path());
        tracing::debug!(%method, host, path, status, took = ?start.elapsed(), "request to {}", self.cloud);
        answer
    }

    async fn exchange(&self, request: Request<Bytes>) -> Result<Answer, Failure> {
        let request = request.map(Full::new);
        let proxy = match route(request.uri()) {
            Route::Direct => None,
            Route::Http => self.http.as_ref(),
            Route::Https => self.https.as_ref(),
        };
        let sent = match proxy.filter(|_| self.proxied.intercept(request.uri()).is_some()) {
            Some(proxy) => proxy.request(request),
            None => self.direct.request(request),
        };
        let (head, body) = sent.await.map_err(|error| not_answered(&error))?.into_parts();
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

/// A request without a connection was not sent.
fn not_answered(error: &Error) -> Failure {
    let cause = if error.is_connect() { Cause::NotSent } else { Cause::NoAnswer };
    Failure { cause, ..unanswered(causes(error, None)) }
}

fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT));
    // HTTP/1.1 has no pings: the kernel finds a dead peer within the same time.
    tcp.set_keepalive(Some(READ_IDLE));
    tcp.set_keepalive_interval(Some(PING_TIMEOUT / 3));
    tcp.set_keepalive_retries(Some(3));
    #[cfg(target_os = "linux")]
    tcp.set_tcp_user_timeout(Some(READ_IDLE));
    tcp
}

fn secured<C>(tls: &ClientConfig, connector: C) -> HttpsConnector<C> {
    let builder = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http();
    builder.enable_all_versions().wrap_connector(connector)
}

/// Connections through the proxy of this environment variable.
fn tunneled(
    environment: Environment<'_>,
    name: &str,
    tls: &ClientConfig,
) -> Result<Option<Pool<Tunneled, Full<Bytes>>>, String> {
    let Some((name, value)) = variable(environment, name) else { return Ok(None) };
    let refused = || format!("environment variable {name}: not the URL of a proxy; want http://host:port");
    let proxy = Matcher::builder().all(proxy_url(value)).build();
    let proxy = proxy.intercept(&Uri::from_static("http://cloud.example/")).ok_or_else(refused)?;
    if !matches!(proxy.uri().scheme_str(), Some("http" | "https")) || proxy.uri().host().is_none_or(str::is_empty) {
        return Err(refused());
    }
    // Not HTTP/2: the tunnel is an HTTP/1.1 request.
    let to_proxy = HttpsConnectorBuilder::new().with_tls_config(tls.clone()).https_or_http().enable_http1();
    let tunnel = Tunnel::new(proxy.uri().clone(), to_proxy.wrap_connector(tcp()));
    let tunnel = match proxy.basic_auth() {
        Some(password) => tunnel.with_auth(password.clone()),
        None => tunnel,
    };
    Ok(Some(pool(secured(tls, tunnel))))
}

fn pool<C>(connector: C) -> Pool<C, Full<Bytes>>
where
    C: hyper_util::client::legacy::connect::Connect + Clone,
{
    let mut builder = Pool::builder(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(IDLE)
        .http2_keep_alive_interval(READ_IDLE)
        .http2_keep_alive_timeout(PING_TIMEOUT)
        .http2_keep_alive_while_idle(true);
    builder.build(connector)
}
