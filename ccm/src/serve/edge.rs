//! The HTTP side of the secure port without TLS, for tests and fuzzing.

use std::sync::Arc;
use std::time::SystemTime;

use ccm_runtime::Metrics;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;

use super::authn::Authenticator;
use super::authz::Authorizer;
use super::config::AllowedPaths;
use super::health::Health;
use super::listener;
use super::routes::{Routes, State};
use super::trust::Trust;

/// The endpoints of a process without a cluster: all clients are anonymous.
#[derive(Clone)]
pub struct Edge {
    pub(super) routes: Arc<Routes>,
}

opaque_debug!(Edge, this);

impl Edge {
    /// Anonymous clients may request only these paths.
    pub fn new(allowed: AllowedPaths) -> Self {
        let metrics = Metrics::new();
        let (_, trust) = watch::channel(Arc::new(Trust::default()));
        let state = State {
            metrics: metrics.clone(),
            health: Health::new(),
            configz: serde_json::json!({}),
            debug: Arc::new(|| serde_json::json!({})),
            page: Arc::new(String::new),
            profiling: true,
        };
        let routes = Routes {
            state,
            authenticator: Arc::new(Authenticator::new(trust, None, metrics)),
            authorizer: Arc::new(Authorizer::new(allowed, None)),
            started: SystemTime::UNIX_EPOCH,
        };
        Self { routes: Arc::new(routes) }
    }

    /// Serves one connection until it ends.
    pub async fn speak<S>(&self, stream: S, http2: bool)
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        listener::speak(stream, http2, self.routes.clone()).await;
    }
}
