//! Access tokens: one fetch for all callers, renewed before they expire.

pub(crate) mod certificate;
pub(crate) mod source;

use std::fmt::{self, Debug};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::lock;
use http::HeaderValue;
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

/// A token is renewed this long before it expires.
const RENEW_BEFORE: Duration = Duration::from_secs(300);
/// The pause after a renewal that has failed, while the token is still valid.
const AGAIN: Duration = Duration::from_secs(30);

/// A token.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Token {
    header: HeaderValue,
    expires: Timestamp,
}

impl Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token").field("expires", &self.expires).finish_non_exhaustive()
    }
}

impl Token {
    /// # Errors
    ///
    /// The text cannot be sent.
    fn new(text: &str, lifetime: Duration) -> Result<Self, Failure> {
        let unusable = || refused("the token is empty or holds control characters");
        let mut header = HeaderValue::from_str(&format!("Bearer {text}")).map_err(|_| unusable())?;
        header.set_sensitive(true);
        let lifetime = SignedDuration::try_from(lifetime).unwrap_or_default();
        let expires = Timestamp::now().checked_add(lifetime).unwrap_or(Timestamp::MAX);
        if text.is_empty() { Err(unusable()) } else { Ok(Self { header, expires }) }
    }

    /// The value of the header `Authorization`.
    pub(crate) fn header(&self) -> HeaderValue {
        self.header.clone()
    }

    fn ends_within(&self, time: Duration) -> bool {
        let time = SignedDuration::try_from(time).unwrap_or_default();
        self.expires.duration_since(Timestamp::now()) <= time
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
pub(crate) struct Tokens(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    source: Box<dyn Source>,
    current: Mutex<Option<Arc<Token>>>,
    /// No renewal begins before.
    not_before: Mutex<Option<Instant>>,
    fetching: tokio::sync::Mutex<()>,
}

impl Tokens {
    pub(crate) fn new(source: impl Source + 'static) -> Self {
        let (current, not_before, fetching) = Default::default();
        Self(Arc::new(Shared { source: Box::new(source), current, not_before, fetching }))
    }

    /// A valid token. One that expires soon is renewed meanwhile, so that no request waits for it.
    pub(crate) async fn get(&self) -> Result<Arc<Token>, Failure> {
        match self.current() {
            Some(token) if token.ends_within(Duration::ZERO) => self.after(&token).await,
            Some(token) => {
                if token.ends_within(RENEW_BEFORE) && self.may_renew() {
                    let (tokens, old) = (self.clone(), token.clone());
                    tokio::spawn(async move {
                        if let Err(failure) = tokens.after(&old).await {
                            tracing::warn!(why = failure.message, "the token for Azure is not renewed yet");
                        }
                    });
                }
                Ok(token)
            }
            None => self.fetched(None).await,
        }
    }

    /// A token to replace this one, which has expired or was refused.
    pub(crate) async fn after(&self, old: &Arc<Token>) -> Result<Arc<Token>, Failure> {
        self.fetched(Some(old)).await
    }

    fn current(&self) -> Option<Arc<Token>> {
        lock(&self.0.current).clone()
    }

    /// Whether a renewal may begin now; the next one may then begin after a pause.
    fn may_renew(&self) -> bool {
        let mut not_before = lock(&self.0.not_before);
        let may = not_before.is_none_or(|at| Instant::now() >= at);
        if may {
            *not_before = Some(Instant::now() + AGAIN);
        }
        may
    }

    /// One fetch for all waiting callers. If the token has changed meanwhile, it is returned.
    async fn fetched(&self, old: Option<&Arc<Token>>) -> Result<Arc<Token>, Failure> {
        let _turn = self.0.fetching.lock().await;
        if let Some(current) = self.current()
            && old.is_none_or(|old| !Arc::ptr_eq(old, &current))
        {
            return Ok(current);
        }
        let token = Arc::new(self.0.source.fetch().await.map_err(no_token)?);
        *lock(&self.0.current) = Some(token.clone());
        Ok(token)
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
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Gives a token for a time, and fails while it is down.
    #[derive(Debug, Clone, Default)]
    struct Issuer(Arc<(AtomicUsize, AtomicUsize)>);

    impl Issuer {
        fn lifetime(&self, seconds: usize) {
            self.0.1.store(seconds, Ordering::Relaxed);
        }

        fn asked(&self) -> usize {
            self.0.0.load(Ordering::Relaxed)
        }
    }

    #[async_trait]
    impl Source for Issuer {
        async fn fetch(&self) -> Result<Token, Failure> {
            let number = self.0.0.fetch_add(1, Ordering::Relaxed);
            match self.0.1.load(Ordering::Relaxed) {
                0 => Err(Failure {
                    status: Some(401),
                    code: "invalid_client".to_owned(),
                    message: "AADSTS7000222: x".to_owned(),
                    ..Failure::default()
                }),
                seconds => Token::new(&format!("t{number}"), Duration::from_secs(seconds as u64)),
            }
        }
    }

    async fn settled() {
        for _ in 0..8 {
            tokio::task::yield_now().await;
        }
    }

    #[tokio::test]
    async fn a_token_is_renewed_before_it_expires_and_nobody_waits() {
        let issuer = Issuer::default();
        issuer.lifetime(200);
        let tokens = Tokens::new(issuer.clone());
        let first = tokens.get().await.unwrap();
        assert_eq!(tokens.get().await.unwrap(), first);
        issuer.lifetime(3600);
        settled().await;
        let second = tokens.get().await.unwrap();
        assert!(second != first && issuer.asked() == 2);
        assert_eq!((tokens.get().await.unwrap(), issuer.asked()), (second, 2));
    }

    #[tokio::test(start_paused = true)]
    async fn a_valid_token_is_used_while_the_issuer_fails() {
        let issuer = Issuer::default();
        issuer.lifetime(200);
        let tokens = Tokens::new(issuer.clone());
        let first = tokens.get().await.unwrap();
        issuer.lifetime(0);
        for _ in 0..5 {
            assert_eq!(tokens.get().await.unwrap(), first);
            settled().await;
        }
        assert_eq!(issuer.asked(), 2, "a failed renewal is repeated after a pause");
        tokio::time::advance(AGAIN).await;
        assert_eq!(tokens.get().await.unwrap(), first);
        settled().await;
        assert_eq!(issuer.asked(), 3);
    }

    #[tokio::test]
    async fn a_refusal_names_what_to_do() {
        let failure = Tokens::new(Issuer::default()).get().await.unwrap_err();
        assert_eq!((failure.cause, failure.status), (Cause::Credentials, None));
        assert!(failure.message.contains("the client secret has expired"), "{}", failure.message);
    }
}
