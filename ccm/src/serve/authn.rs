//! Authentication, as in `k8s.io/apiserver/pkg/authentication`: the front proxy's headers, a client certificate, a
//! bearer token, else anonymous. Invalid credentials are rejected, never treated as anonymous.

use std::sync::Arc;
use std::time::Duration;

use ccm_runtime::Metrics;
use futures::FutureExt as _;
use http::{HeaderMap, header};
use rustls_pki_types::CertificateDer;
use serde::Deserialize;
use serde_json::json;
use tokio::sync::watch;
use tokio::time::Instant;

use super::AccessMetrics;
use super::cache::{Cache, Hasher};
use super::config::HeaderNames;
use super::identity;
use super::review::Reviewer;
use super::trust::{Proxy, Trust};
use super::user::User;

/// The maximum number of cached tokens.
const REMEMBERED: usize = 4096;

pub(super) struct Authenticator {
    trust: watch::Receiver<Arc<Trust>>,
    tokens: Option<Tokens>,
    metrics: Metrics,
}

pub(super) struct Tokens {
    reviewer: Reviewer,
    cache: Cache<Option<Arc<User>>>,
    hasher: Hasher,
    ttl: Duration,
}

impl Tokens {
    pub(super) fn new(reviewer: Reviewer, ttl: Duration) -> Self {
        Self { reviewer, cache: Cache::new(REMEMBERED), hasher: Hasher::new(), ttl }
    }

    /// The owner of a token; `None` if it is invalid.
    async fn owner(&self, token: &str) -> Result<Option<Arc<User>>, String> {
        let key = self.hasher.key(token.as_bytes());
        let ask = || {
            let (reviewer, ttl) = (self.reviewer.clone(), self.ttl);
            let question = json!({
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenReview",
                "spec": {"token": token},
            });
            async move {
                let access = AccessMetrics::of(reviewer.metrics());
                let _fetching = access.token_fetching();
                let owner = reviewer.ask(&question).await.and_then(reviewed);
                access.token_fetched(owner.is_ok());
                owner.map(|owner| (owner, ttl))
            }
            .boxed()
        };
        let began = Instant::now();
        let mut hit = true;
        let owner = self.cache.get(key, || {
            hit = false;
            ask()
        });
        let owner = owner.await;
        AccessMetrics::of(self.reviewer.metrics()).token_cache(hit, began.elapsed());
        owner
    }
}

#[derive(Deserialize)]
struct TokenReviewStatus {
    #[serde(default)]
    authenticated: bool,
    #[serde(default)]
    error: String,
    user: Option<User>,
}

fn reviewed(status: TokenReviewStatus) -> Result<Option<Arc<User>>, String> {
    match status.user {
        Some(user) if status.authenticated => Ok(Some(Arc::new(user))),
        _ if status.error.is_empty() => Ok(None),
        // As in upstream, which does not cache a response with an error.
        _ => Err(status.error),
    }
}

impl Authenticator {
    pub(super) fn new(trust: watch::Receiver<Arc<Trust>>, tokens: Option<Tokens>, metrics: Metrics) -> Self {
        Self { trust, tokens, metrics }
    }

    /// The user, from the certificates of the connection and the headers of the request.
    ///
    /// # Errors
    ///
    /// Invalid credentials, with the first reason; contains no secret.
    pub(super) async fn authenticate(
        &self,
        certificates: &[CertificateDer<'static>],
        headers: &HeaderMap,
    ) -> Result<User, String> {
        let trust = self.trust.borrow().clone();
        let mut refused = Vec::new();
        if !certificates.is_empty() {
            if let Some(proxy) = &trust.proxy {
                match behind_proxy(proxy, certificates, headers) {
                    Ok(Some(user)) => return Ok(user.authenticated()),
                    Ok(None) => {}
                    Err(error) => refused.push(error),
                }
            }
            if let Some(authorities) = &trust.client {
                if let Some(left) = certificates.first().and_then(identity::remaining) {
                    AccessMetrics::of(&self.metrics).client_certificate(left);
                }
                match authorities.verify(certificates).and_then(|()| owner(certificates)) {
                    Ok(Some(user)) => return Ok(user.authenticated()),
                    Ok(None) => {}
                    Err(error) => refused.push(error),
                }
            }
        }
        if let (Some(tokens), Some(token)) = (&self.tokens, bearer(headers)) {
            match tokens.owner(token).await {
                Ok(Some(user)) => return Ok(User::clone(&user).authenticated()),
                Ok(None) => refused.push("invalid bearer token".into()),
                Err(error) => refused.push(error),
            }
        }
        if refused.is_empty() { Ok(User::anonymous()) } else { Err(refused.join(", ")) }
    }
}

fn owner(certificates: &[CertificateDer<'_>]) -> Result<Option<User>, String> {
    certificates.first().map_or(Ok(None), identity::user)
}

/// The token of an `Authorization` header.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let text = headers.get(header::AUTHORIZATION)?.to_str().ok()?.trim();
    let mut words = text.splitn(3, ' ');
    let scheme = words.next()?;
    words.next().filter(|token| scheme.eq_ignore_ascii_case("bearer") && !token.is_empty())
}

/// The user in the headers of a front proxy; `None` if there is none.
fn behind_proxy(
    proxy: &Proxy,
    certificates: &[CertificateDer<'_>],
    headers: &HeaderMap,
) -> Result<Option<User>, String> {
    proxy.authorities.verify(certificates)?;
    let allowed = &proxy.headers.allowed;
    let name = certificates.first().map(identity::common_name).unwrap_or_default();
    if !allowed.is_empty() && !allowed.contains(&name) {
        return Err(format!("x509: subject with cn={name} is not in the allowed list"));
    }
    Ok(from_headers(&proxy.headers, headers))
}

fn from_headers(names: &HeaderNames, headers: &HeaderMap) -> Option<User> {
    let text = |value: &http::HeaderValue| String::from_utf8_lossy(value.as_bytes()).into_owned();
    // Only the first value of a header counts, as in Go; an empty one is ignored.
    let first = |names: &[String]| {
        let mut values = names.iter().filter_map(|name| headers.get(name.as_str())).map(text);
        values.find(|value| !value.is_empty())
    };
    let name = first(&names.user)?;
    let groups = names.group.iter().flat_map(|name| headers.get_all(name.as_str())).map(text);
    let mut extra = std::collections::BTreeMap::<String, Vec<String>>::new();
    for prefix in names.extra_prefix.iter().map(|prefix| prefix.to_lowercase()) {
        for (name, value) in headers {
            if let Some(key) = name.as_str().strip_prefix(&prefix) {
                let key = super::uri::decode(key).unwrap_or_else(|| key.to_owned());
                extra.entry(key).or_default().push(text(value));
            }
        }
    }
    Some(User {
        name,
        uid: first(&names.uid).unwrap_or_default(),
        groups: groups.filter(|group| !group.is_empty()).collect(),
        extra,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name: http::HeaderName = name.parse().unwrap();
            map.append(name, value.parse().unwrap());
        }
        map
    }

    #[test]
    fn a_token_follows_bearer() {
        let token = |value: &str| bearer(&headers(&[("authorization", value)])).map(str::to_owned);
        assert_eq!(token("Bearer abc").as_deref(), Some("abc"));
        assert_eq!(token("  bearer abc def ").as_deref(), Some("abc"));
        assert_eq!(token("Bearer  abc"), None);
        assert_eq!(token("Bearer"), None);
        assert_eq!(token("Basic abc"), None);
        assert_eq!(bearer(&HeaderMap::new()), None);
    }

    #[test]
    fn a_front_proxy_names_user_uid_groups_and_extra() {
        let list = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>();
        let names = HeaderNames {
            allowed: vec![],
            user: list(&["X-Remote-User", "X-Other"]),
            uid: list(&["X-Remote-Uid"]),
            group: list(&["X-Remote-Group"]),
            extra_prefix: list(&["X-Remote-Extra-"]),
        };
        let user = from_headers(
            &names,
            &headers(&[
                ("x-remote-user", "jane"),
                ("x-remote-user", "root"),
                ("x-remote-uid", "7"),
                ("x-remote-group", "a"),
                ("x-remote-group", ""),
                ("x-remote-group", "b"),
                ("x-remote-extra-example.com%2fScopes", "x"),
                ("x-remote-extra-example.com%2fScopes", "y"),
            ]),
        )
        .unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("jane", "7"));
        assert_eq!(user.groups, ["a", "b"]);
        assert_eq!(user.extra["example.com/scopes"], ["x", "y"]);
        assert_eq!(from_headers(&names, &headers(&[("x-other", "joe")])).unwrap().name, "joe");
        assert_eq!(from_headers(&names, &headers(&[("x-remote-group", "system:masters")])), None);
    }

    #[test]
    fn a_review_names_the_user_of_the_token_or_that_it_is_invalid() {
        let status = |text: &str| reviewed(serde_json::from_str(text).unwrap());
        let user =
            status(r#"{"authenticated":true,"user":{"username":"u","uid":"1","groups":["g"],"extra":{"k":["v"]}}}"#);
        let user = user.unwrap().unwrap();
        assert_eq!((user.name.as_str(), user.uid.as_str(), user.groups.len()), ("u", "1", 1));
        assert_eq!(user.extra["k"], ["v"]);
        assert_eq!(status(r#"{"user":{}}"#).unwrap(), None);
        assert_eq!(status("{}").unwrap(), None);
        assert!(status(r#"{"error":"broken"}"#).is_err());
        assert_eq!(status(r#"{"authenticated":true}"#).unwrap(), None);
    }
}
