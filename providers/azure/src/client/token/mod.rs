//! Access tokens: one fetch for all callers, renewed before they expire.

pub(crate) mod certificate;
pub(crate) mod source;

use std::fmt::{self, Debug};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::{Interrupted, Life, Renewed, Stamped};
use futures::FutureExt as _;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};

/// A token is renewed this long before it expires.
const RENEW_BEFORE: Duration = Duration::from_secs(300);

/// A token.
#[derive(Clone)]
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
    fn new(text: &str, lifetime: Duration) -> Result<Self, Failure> {
        let unusable = || refused("the token is empty or holds control characters");
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| unusable())?;
        header.set_sensitive(true);
        let (now, lifetime) = (Timestamp::now(), SignedDuration::try_from(lifetime).unwrap_or_default());
        let end = now.checked_add(lifetime).unwrap_or(Timestamp::MAX);
        if text.is_empty() { Err(unusable()) } else { Ok(Self { header, life: Life::new(now, end, RENEW_BEFORE) }) }
    }

    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }
}

/// A source of tokens.
#[async_trait]
pub(crate) trait Source: Debug + Send + Sync {
    /// A new token.
    async fn fetch(&self) -> Result<Token, Failure>;
}

/// The current token of a source. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Tokens(Arc<Renewed<Token, Failure>>);

impl Tokens {
    pub(crate) fn new(source: impl Source + 'static) -> Self {
        let source: Arc<dyn Source> = Arc::new(source);
        let read = move || {
            let source = source.clone();
            async move { source.fetch().await.map_err(no_token) }.boxed()
        };
        let late = |how: Interrupted| Failure {
            message: format!("no token: {how}"),
            cause: Cause::NoAnswer,
            ..Failure::default()
        };
        Self(Arc::new(Renewed::new(read, late, |token: &Token| token.life)))
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
    let status = failure.status.filter(|status| *status == 429);
    let fix = fix(&failure.message).map(|fix| format!(" ({fix})")).unwrap_or_default();
    let parts = [&*failure.code, &*failure.message].into_iter().filter(|part| !part.is_empty());
    let message = format!("no token: {}{fix}", parts.collect::<Vec<_>>().join(": "));
    Failure { status, code: String::new(), message, cause, ..failure }
}

/// What to do after a refusal of Entra ID, which numbers its errors.
fn fix(message: &str) -> Option<&'static str> {
    [
        ("AADSTS7000222", "the client secret has expired: create a new one and set aadClientSecret"),
        ("AADSTS7000215", "aadClientSecret is wrong: set the value of the secret, not its ID"),
        ("AADSTS700016", "the tenant has no application with this aadClientId"),
        ("AADSTS90002", "there is no such tenant: check tenantId and cloud"),
        ("AADSTS700027", "the certificate is not registered for the application, or has expired"),
        ("AADSTS70021", "the application has no federated credential for this issuer, subject and audience"),
    ]
    .into_iter()
    .find_map(|(code, fix)| message.contains(code).then_some(fix))
}

/// Credentials that cannot work.
fn refused(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), cause: Cause::Credentials, ..Failure::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug)]
    struct Expired;

    #[async_trait]
    impl Source for Expired {
        async fn fetch(&self) -> Result<Token, Failure> {
            let (code, message) = ("invalid_client".to_owned(), "AADSTS7000222: x".to_owned());
            Err(Failure { status: Some(401), code, message, ..Failure::default() })
        }
    }

    #[tokio::test]
    async fn a_refusal_names_what_to_do() {
        let failure = Tokens::new(Expired).get().await.unwrap_err();
        assert_eq!((failure.cause, failure.status), (Cause::Credentials, None));
        assert!(failure.message.contains("the client secret has expired"), "{}", failure.message);
    }

    #[test]
    fn a_token_is_renewed_five_minutes_before_its_end_and_not_shown() {
        let token = Token::new("secret", Duration::from_secs(3600)).unwrap();
        let life = token.life.unwrap();
        assert_eq!(life.end.duration_since(life.renew), SignedDuration::from_secs(300));
        assert!(!format!("{token:?}").contains("secret"));
        assert!(Token::new("", Duration::from_secs(1)).is_err() && Token::new("a\n", Duration::from_secs(1)).is_err());
    }
}
