//! Authorization, as in `k8s.io/apiserver/pkg/authorization`: paths that need no permission, `system:masters`, else a
//! SubjectAccessReview. Without a response the request is rejected.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use serde::Deserialize;
use serde_json::json;

use super::cache::{Cache, Hasher};
use super::config::AllowedPaths;
use super::review::Reviewer;
use super::user::User;

/// Members of this group may do everything, without a review.
const MASTERS: &str = "system:masters";
const REMEMBERED: usize = 4096;

/// Decides whether a user may make a request.
pub(super) struct Authorizer {
    always_allow: AllowedPaths,
    access: Option<Access>,
}

pub(super) struct Access {
    reviewer: Reviewer,
    cache: Cache<Answer>,
    hasher: Hasher,
    allow_ttl: Duration,
    deny_ttl: Duration,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Answer {
    Allowed,
    Denied(Arc<str>),
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// No permission, with the API server's reason, which is often empty.
    Forbidden(String),
    /// The review failed.
    Unknown(String),
}

#[derive(Deserialize)]
struct AccessStatus {
    #[serde(default)]
    allowed: bool,
    #[serde(default)]
    denied: bool,
    #[serde(default)]
    reason: String,
}

impl Access {
    pub(super) fn new(reviewer: Reviewer, allow_ttl: Duration, deny_ttl: Duration) -> Self {
        Self { reviewer, cache: Cache::new(REMEMBERED), hasher: Hasher::new(), allow_ttl, deny_ttl }
    }

    async fn ask(&self, user: &User, verb: &str, path: &str) -> Result<Answer, String> {
        let mut spec = serde_json::to_value(user).map_err(|error| error.to_string())?;
        if let Some(spec) = spec.as_object_mut() {
            spec.insert("nonResourceAttributes".into(), json!({"path": path, "verb": verb}));
        }
        let key = self.hasher.key(spec.to_string().as_bytes());
        let ask = || {
            let (reviewer, allow, deny) = (self.reviewer.clone(), self.allow_ttl, self.deny_ttl);
            async move {
                let question = json!({
                    "apiVersion": "authorization.k8s.io/v1",
                    "kind": "SubjectAccessReview",
                    "spec": spec,
                });
                let status: AccessStatus = reviewer.ask(&question).await?;
                Ok(match status {
                    AccessStatus { allowed: true, denied: false, .. } => (Answer::Allowed, allow),
                    AccessStatus { reason, .. } => (Answer::Denied(reason.into()), deny),
                })
            }
            .boxed()
        };
        self.cache.get(key, ask).await
    }
}

impl Authorizer {
    pub(super) fn new(always_allow: AllowedPaths, access: Option<Access>) -> Self {
        Self { always_allow, access }
    }

    /// Whether this user may make this request. `verb` is the lower-case method, `path` is unescaped.
    ///
    /// # Errors
    ///
    /// The reason for the rejection.
    pub(super) async fn authorize(&self, user: &User, verb: &str, path: &str) -> Result<(), Refusal> {
        if user.is_in(MASTERS) || self.always_allow.contains(path) {
            return Ok(());
        }
        let Some(access) = &self.access else { return Err(Refusal::Forbidden(String::new())) };
        match access.ask(user, verb, path).await {
            Ok(Answer::Allowed) => Ok(()),
            Ok(Answer::Denied(reason)) => Err(Refusal::Forbidden(reason.to_string())),
            Err(error) => Err(Refusal::Unknown(error)),
        }
    }
}
