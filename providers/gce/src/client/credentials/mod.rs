//! Access tokens: their sources, and one fetch for all callers.
//!
//! * Without a `token-url`: the default service account of the instance, from the metadata server.
//!   `GOOGLE_APPLICATION_CREDENTIALS` is not read.
//! * `token-url = nil`: Application Default Credentials ([`file`]).
//! * Any other `token-url`: that URL, called with the token of the metadata server ([`alternate`]).
//!
//! A token is renewed in the background before it expires, and when the API answers 401.

pub(crate) mod alternate;
mod exchange;
pub(crate) mod file;
pub(crate) mod metadata;
mod sign;
#[cfg(test)]
mod tests;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::http::{Client, escaped};
use ccm_kit::{Interrupted, Life, Renewed, Stamped};
use futures::FutureExt as _;
use http::{HeaderValue, Request, StatusCode, header};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;

use super::failure::malformed;

/// The scope of all tokens.
pub(crate) const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// A token is renewed this long before it expires, or after half of a shorter lifetime. The metadata server has a new one
/// five minutes before.
const RENEW_BEFORE: Duration = Duration::from_secs(225);

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    header: HeaderValue,
    life: Option<Life>,
}

impl Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("life", &self.life).finish_non_exhaustive()
    }
}

impl Token {
    pub(crate) fn new(text: &str, expires: Option<Timestamp>) -> Result<Self, Failure> {
        let unusable = || refused("the token is empty or holds control characters");
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| unusable())?;
        header.set_sensitive(true);
        let life = expires.and_then(|end| Life::new(Timestamp::now(), end, RENEW_BEFORE));
        if text.is_empty() { Err(unusable()) } else { Ok(Self { header, life }) }
    }

    /// The value of the `Authorization` header.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    #[cfg(test)]
    fn text(&self) -> &str {
        self.header.to_str().unwrap_or_default().trim_start_matches("Bearer ")
    }
}

/// A source of tokens.
#[async_trait]
pub(crate) trait Source: Debug + Send + Sync {
    /// A new token.
    async fn fetch(&self) -> Result<Token, Failure>;
}

/// The current token of a source.
#[derive(Debug)]
pub(crate) struct Tokens(Renewed<Token, Failure>);

impl Tokens {
    pub(crate) fn new(source: Arc<dyn Source>) -> Self {
        let read = move || {
            let source = source.clone();
            async move { source.fetch().await.map_err(no_token) }.boxed()
        };
        let late = |how: Interrupted| Failure {
            message: format!("no token: {how}"),
            cause: Cause::NoAnswer,
            ..Failure::default()
        };
        Self(Renewed::new(read, late, |token: &Token| token.life))
    }

    /// A valid token.
    pub(crate) async fn get(&self) -> Result<Stamped<Token>, Failure> {
        self.0.get().await
    }

    /// A token to replace this one, which was refused.
    pub(crate) async fn after(&self, old: &Stamped<Token>) -> Result<Stamped<Token>, Failure> {
        self.0.after(old.began).await
    }
}

/// The failure of a request whose token could not be fetched: its status is not that of the API.
fn no_token(failure: Failure) -> Failure {
    let cause = match failure.cause {
        Cause::Answered if failure.status.is_some_and(|status| status >= 500) => Cause::NoAnswer,
        Cause::Answered => Cause::Credentials,
        cause => cause,
    };
    let status = failure.status.filter(|status| *status == StatusCode::TOO_MANY_REQUESTS.as_u16());
    let message = match (failure.code.is_empty(), failure.message.is_empty()) {
        (false, false) => format!("no token: {}: {}", failure.code, failure.message),
        (false, true) => format!("no token: {}", failure.code),
        _ => format!("no token: {}", failure.message),
    };
    Failure { status, code: String::new(), message, cause, ..failure }
}

/// Credentials that cannot work.
fn refused(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), cause: Cause::Credentials, ..Failure::default() }
}

/// The response of token endpoints.
#[derive(Deserialize)]
struct Answer {
    access_token: String,
    expires_in: Option<i64>,
}

impl Answer {
    fn token(self) -> Result<Token, Failure> {
        let expires =
            self.expires_in.and_then(|seconds| Timestamp::now().checked_add(SignedDuration::from_secs(seconds)).ok());
        Token::new(&self.access_token, expires)
    }
}

/// The response of the IAM API.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Issued {
    access_token: String,
    expire_time: Timestamp,
}

/// Sends JSON with another token, as for the IAM API. `shown`: the URL in errors.
async fn post_json(http: &Client, url: &str, shown: &str, token: &Token, body: Bytes) -> Result<Token, Failure> {
    let request = Request::post(url).header(header::AUTHORIZATION, token.header());
    let request = request.header(header::CONTENT_TYPE, "application/json").body(body);
    let answer = http.send(request.map_err(|_| malformed(format!("{shown} is not a URL")))?).await?;
    let issued: Issued = answer.json()?;
    Token::new(&issued.access_token, Some(issued.expire_time))
}

/// Sends a form, as in OAuth, with this `Authorization` header of the client.
async fn post_form(
    http: &Client,
    url: &str,
    fields: &[(&str, &str)],
    authorization: Option<&str>,
) -> Result<Token, Failure> {
    let form: Vec<String> = fields.iter().map(|(key, value)| format!("{key}={}", escaped(value))).collect();
    let request = Request::post(url).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    let request = match authorization {
        Some(text) => request.header(header::AUTHORIZATION, text),
        None => request,
    };
    let request = request.header(header::ACCEPT, "application/json").body(Bytes::from(form.join("&")));
    let request = request.map_err(|_| malformed(format!("{url:?} is not a URL")))?;
    http.send(request).await?.json::<Answer>()?.token()
}
