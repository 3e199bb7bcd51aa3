//! The identity of one controller: a service account, with a token that is requested and renewed.
//!
//! Source: `controller-manager/pkg/clientbuilder`, `DynamicControllerClientBuilder`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_provider::Clock;
use futures::future::BoxFuture;
use http::{HeaderValue, Method};
use jiff::Timestamp;
use parking_lot::RwLock;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::Mutex;

use super::{ApiError, Call, Client};

/// Requested lifetime of a token, in seconds.
const LIFETIME: u64 = 3600;
/// Allowed clock skew: a token must not seem expired early.
const SHORTEST: Duration = Duration::from_secs(600);
/// A token is renewed when this share of its lifetime is left.
const LEFT: f64 = 0.2;
/// The number of attempts, except after a refusal, and the first pause, which doubles after each.
const TRIES: u32 = 4;
const PAUSE: Duration = Duration::from_millis(500);
/// The deadline of one request.
const DEADLINE: Duration = Duration::from_secs(10);
/// The pause after a failed renewal, while the old token still works.
const AGAIN: Duration = Duration::from_secs(30);

/// A service account and its token.
pub(super) struct Account {
    /// Client of this process, which requests the tokens.
    base: Client,
    namespace: String,
    name: String,
    clock: Arc<dyn Clock>,
    token: RwLock<Option<Arc<Token>>>,
    /// Held while a token is requested.
    asking: Mutex<()>,
}

pub(super) struct Token {
    pub(super) header: HeaderValue,
    renew_at: Instant,
    ends_at: Instant,
}

#[derive(Deserialize)]
struct TokenRequest {
    status: TokenStatus,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenStatus {
    token: String,
    expiration_timestamp: Timestamp,
}

impl Account {
    pub(super) fn new(base: Client, namespace: &str, name: &str, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        Arc::new(Self { base, namespace, name, clock, token: RwLock::default(), asking: Mutex::default() })
    }

    /// `<namespace>/<name>`
    pub(super) fn label(&self) -> String {
        format!("{}/{}", self.namespace, self.name)
    }

    /// The token for a request. Waits for a new one only if no token is valid any more.
    pub(super) async fn token(self: &Arc<Self>) -> Result<Arc<Token>, ApiError> {
        let now = self.clock.now();
        match self.known() {
            Some(token) if now < token.renew_at => Ok(token),
            Some(token) if now < token.ends_at => {
                let this = Arc::clone(self);
                // One request renews it for all callers; the task ends after a few attempts.
                tokio::spawn(async move { this.renew(false).await });
                Ok(token)
            }
            _ => self.renew(true).await,
        }
    }

    /// Records that the server answered 401 to this token: the next request gets another one.
    pub(super) fn refused(&self, seen: &Arc<Token>) {
        let mut token = self.token.write();
        if token.as_ref().is_some_and(|token| Arc::ptr_eq(token, seen)) {
            *token = None;
        }
    }

    fn known(&self) -> Option<Arc<Token>> {
        self.token.read().clone()
    }

    async fn renew(&self, wait: bool) -> Result<Arc<Token>, ApiError> {
        let asking = if wait { Some(self.asking.lock().await) } else { self.asking.try_lock().ok() };
        let known = self.known();
        if let Some(token) = &known
            && (asking.is_none() || self.clock.now() < token.renew_at)
        {
            return Ok(Arc::clone(token));
        }
        let token = match (self.ask().await, known) {
            (Ok(token), _) => token,
            (Err(error), Some(old)) if self.clock.now() < old.ends_at => {
                tracing::error!(account = self.label(), %error, "Unable to rotate token; the old one still works");
                let renew_at = self.clock.now() + AGAIN;
                Token { header: old.header.clone(), renew_at, ends_at: old.ends_at }
            }
            (Err(error), _) => return Err(error),
        };
        let token = Arc::new(token);
        *self.token.write() = Some(Arc::clone(&token));
        Ok(token)
    }

    async fn ask(&self) -> Result<Token, ApiError> {
        let mut pause = PAUSE;
        let mut tried = 1;
        loop {
            let error = match self.ask_once().await {
                Ok(token) => return Ok(token),
                Err(error) => error,
            };
            tracing::warn!(account = self.label(), %error, "get token failed");
            if tried == TRIES || error.is_forbidden() {
                return Err(within(&format!("failed to get token for {}", self.label()), error));
            }
            tokio::time::sleep(pause).await;
            (pause, tried) = (pause * 2, tried + 1);
        }
    }

    async fn ask_once(&self) -> Result<Token, ApiError> {
        self.ensure().await?;
        let answer = self.request().await?;
        let TokenRequest { status } = serde_json::from_value(answer)
            .map_err(|_| ApiError::Decode("it is not a TokenRequest with a token".into()))?;
        let mut header = HeaderValue::try_from(format!("Bearer {}", status.token))
            .map_err(|_| ApiError::Decode("the token cannot be sent in a header".into()))?;
        header.set_sensitive(true);
        let (now, wall) = (self.clock.now(), crate::clock::timestamp(self.clock.wall()));
        let lifetime = Duration::try_from(status.expiration_timestamp.duration_since(wall)).unwrap_or_default();
        let lifetime = lifetime.max(SHORTEST);
        Ok(Token { header, renew_at: now + lifetime.mul_f64(1.0 - LEFT), ends_at: now + lifetime })
    }

    async fn request(&self) -> Result<Value, ApiError> {
        let path = format!("/api/v1/namespaces/{}/serviceaccounts/{}/token", self.namespace, self.name);
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"expirationSeconds": LIFETIME},
        });
        self.send(Call::json(Method::POST, path, &body)).await
    }

    /// Gets the first token. An account that may not have one is not made.
    pub(super) async fn begin(self: &Arc<Self>) -> Result<(), ApiError> {
        match self.request().await {
            Err(error) if error.is_forbidden() => Err(error),
            _ => self.token().await.map(drop),
        }
    }

    /// Makes sure that the service account exists. Where it cannot be read, a token shows that.
    pub(super) async fn ensure(&self) -> Result<(), ApiError> {
        let accounts = format!("/api/v1/namespaces/{}/serviceaccounts", self.namespace);
        let is_unread = match self.send(Call::get(format!("{accounts}/{}", self.name))).await {
            Err(error) if error.is_not_found() => false,
            Err(error) if error.is_forbidden() => true,
            answer => return answer.map(drop),
        };
        self.ensure_namespace().await;
        let body = json!({
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": self.name, "namespace": self.namespace},
        });
        match self.send(Call::json(Method::POST, accounts, &body)).await {
            _ if is_unread => self.request().await.map(drop),
            // Another replica created it first.
            Err(error) if error.is_conflict() => Ok(()),
            answer => answer.map(drop),
        }
    }

    /// Creates the namespace if it is missing. An identity that may not read namespaces may still create service
    /// accounts.
    async fn ensure_namespace(&self) {
        let missing = self.send(Call::get(format!("/api/v1/namespaces/{}", self.namespace))).await;
        if !missing.is_err_and(|error| error.is_not_found()) {
            return;
        }
        let body = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": self.namespace}});
        match self.send(Call::json(Method::POST, "/api/v1/namespaces", &body)).await {
            Err(error) if !error.is_conflict() => {
                tracing::warn!(%error, "create non-exist namespace {} failed", self.namespace);
            }
            _ => {}
        }
    }

    /// Boxed because it is recursive: a client with an account sends through one without.
    fn send<'a>(&'a self, call: Call<'a>) -> BoxFuture<'a, Result<Value, ApiError>> {
        Box::pin(async move { self.base.read(&call.within(DEADLINE)).await })
    }
}

/// The same error with a prefix.
fn within(what: &str, error: ApiError) -> ApiError {
    match error {
        ApiError::Status { code, reason, message, retry_after } => {
            ApiError::Status { code, reason, message: format!("{what}: {message}"), retry_after }
        }
        ApiError::Transport(text) => ApiError::Transport(format!("{what}: {text}")),
        other => other,
    }
}
