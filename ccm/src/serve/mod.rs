//! The HTTPS server: certificates, authentication, authorization, endpoints.
//!
//! [`bind`] does everything that can fail, before anything else is started; [`Listening::serve`] serves. The modules:
//!
//! | Module | What it does |
//! |---|---|
//! | [`config`], [`suites`] | flags, validated |
//! | `certs` | certificates of the server: generated or read, reloaded, chosen by name |
//! | `trust`, `identity` | authorities of client certificates: files and the cluster's ConfigMap, watched |
//! | `authn`, `authz`, `review`, `cache` | authentication and authorization |
//! | `listener`, `connections` | TLS and HTTP within limits |
//! | `routes`, `health`, `answer` | the endpoints |
//! | `edge` | the endpoints without TLS, for fuzzing |

pub(crate) mod answer;
mod authn;
mod authz;
mod cache;
mod certs;
pub mod config;
mod connections;
#[doc(hidden)]
pub mod edge;
mod health;
mod identity;
pub(crate) mod listener;
mod metrics;
mod review;
mod routes;
pub mod suites;
#[cfg(test)]
mod tests;
mod trust;
mod uri;
mod user;

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_runtime::client::{ConnectError, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use hyper::body::Incoming;
use rustls::ServerConfig;
use rustls_pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::exit::Failure;
use answer::Answer;
use authn::{Authenticator, Tokens};
use authz::{Access, Authorizer};
use certs::{Certificates, Look, Reader};
pub use config::{Authentication, Authorization, Serving};
pub use health::{Health, Probe};
use identity::{AskLater, Authorities};
use listener::{Configuration, Handler, Limits, Port};
pub(crate) use metrics::{AccessMetrics, DELEGATED};
use review::Reviewer;
use routes::Routes;
pub use routes::State;
use trust::{Source, Trust};

/// How often certificate files are reread.
const LOOK: Duration = Duration::from_secs(10);

/// A port that is bound and not served yet.
pub struct Listening {
    secured: Secured,
    source: Source,
    authenticator: Arc<Authenticator>,
    authorizer: Arc<Authorizer>,
    limits: Limits,
    look: Duration,
}

opaque_debug!(Listening, this, "listener" = &this.secured.listener);

/// Generates or reads certificates, binds the port, and reads the trusted authorities from the cluster; `None` when the
/// port is 0. `user_agent` is that of the clients for TokenReviews and SubjectAccessReviews.
///
/// # Errors
///
/// Exit code 1: a certificate or kubeconfig that cannot be used, a port that cannot be bound, a lookup that failed and
/// is not tolerated.
pub async fn bind(
    serving: &Serving,
    authentication: &Authentication,
    authorization: &Authorization,
    user_agent: &str,
    metrics: &Metrics,
) -> Result<Option<Listening>, Failure> {
    if serving.port == 0 {
        return Ok(None);
    }
    let made = Secured::bind(serving).map_err(Failure::error)?;
    let provider = serving.tls.provider.clone();
    let delegate = async |path: &str, flag, what| delegate(path, flag, what, user_agent, metrics).await;
    let client = delegate(&authentication.kubeconfig, "authentication-kubeconfig", "authentication").await?;
    let source = Source::open(authentication, client.as_ref(), provider).await.map_err(Failure::error)?;
    let tokens = client.map(|client| Tokens::new(Reviewer::tokens(client, metrics), authentication.token_ttl));
    let client = delegate(&authorization.kubeconfig, "authorization-kubeconfig", "authorization").await?;
    if client.is_none() {
        tracing::warn!(
            "No authorization-kubeconfig provided, so SubjectAccessReview of authorization tokens won't work."
        );
    }
    let access = client
        .map(|client| Access::new(Reviewer::access(client, metrics), authorization.allow_ttl, authorization.deny_ttl));
    Ok(Some(Listening {
        secured: made,
        authenticator: Arc::new(Authenticator::new(source.subscribe(), tokens, metrics.clone())),
        authorizer: Arc::new(Authorizer::new(authorization.always_allow.clone(), access)),
        source,
        limits: Limits::DEFAULT,
        look: LOOK,
    }))
}

/// The client of a kubeconfig, else that of the pod; `None` outside of a pod.
async fn delegate(
    kubeconfig: &str,
    flag: &str,
    what: &str,
    user_agent: &str,
    metrics: &Metrics,
) -> Result<Option<Client>, Failure> {
    let options = ConnectOptions {
        kubeconfig: kubeconfig.to_owned(),
        user_agent: user_agent.to_owned(),
        ..ConnectOptions::default()
    };
    match Client::connect(&options, metrics.clone()).await {
        Ok(client) => Ok(Some(client)),
        Err(error) if kubeconfig.is_empty() => {
            if std::env::var_os("KUBERNETES_SERVICE_HOST").is_some() {
                tracing::warn!("failed to read in-cluster kubeconfig for delegated {what}: {error}");
            }
            Ok(None)
        }
        Err(ConnectError::Kubeconfig { path, reason }) => {
            Err(Failure::error(format!("failed to get delegated {what} kubeconfig: --{flag} {path}: {reason}")))
        }
        Err(error) => Err(Failure::error(format!("failed to get delegated {what} kubeconfig: {error}"))),
    }
}

impl Listening {
    /// Serves until it is dropped. A panic of the task that follows the authorities of clients ends it: certificates would
    /// be checked against outdated ones.
    pub async fn serve(self, state: State) {
        let wants = self.source.wants_certificates();
        let trust = self.source.subscribe();
        let follow = self.source.follow(self.look);
        let handler = Arc::new(Routes {
            state,
            authenticator: self.authenticator,
            authorizer: self.authorizer,
            started: SystemTime::now(),
        });
        tokio::select! {
            () = self.secured.serve(handler, wants.then_some(trust), self.limits, self.look) => {}
            () = follow => {}
        }
    }
}

impl Handler for Routes {
    async fn handle(
        &self,
        request: http::Request<Incoming>,
        certificates: &[CertificateDer<'static>],
    ) -> (Answer, bool) {
        Routes::serve(self, request, certificates).await
    }
}

pub(crate) struct Secured {
    serving: Serving,
    listener: TcpListener,
    reader: Reader,
    certificates: Arc<Certificates>,
}

impl Secured {
    /// Generates or reads the certificates and binds the port.
    ///
    /// # Errors
    ///
    /// A certificate that cannot be used, or a port that cannot be bound.
    pub(crate) fn bind(serving: &Serving) -> Result<Self, String> {
        serving.tls.warnings.iter().for_each(|warning| tracing::warn!("{warning}"));
        let (reader, certificates) = Reader::open(serving)?;
        let listener = listener::bind(serving)?;
        Ok(Self { serving: serving.clone(), listener, reader, certificates: Arc::new(certificates) })
    }

    /// Serves all clients, within the default limits, until it is dropped.
    pub(crate) async fn serve_all<H: Handler>(self, handler: Arc<H>) {
        self.serve(handler, None, Limits::DEFAULT, LOOK).await;
    }

    /// Serves until it is dropped. Rereads certificates once per period; with `trust`, requests client certificates.
    async fn serve<H: Handler>(
        self,
        handler: Arc<H>,
        mut trust: Option<watch::Receiver<Arc<Trust>>>,
        limits: Limits,
        period: Duration,
    ) {
        let Self { serving, listener, mut reader, mut certificates } = self;
        let configured = |certificates: &Arc<Certificates>, trust: Option<&Arc<Trust>>| {
            configuration(&serving, certificates, trust.map(Arc::as_ref))
        };
        let first = trust.as_mut().map(|trust| trust.borrow_and_update().clone());
        let tls = match configured(&certificates, first.as_ref()) {
            Ok(tls) => watch::Sender::new(Arc::new(tls)),
            Err(error) => {
                tracing::error!(error, "HTTPS cannot be served");
                return;
            }
        };
        let address = listener.local_addr().map_or_else(|_| "an unknown address".into(), |address| address.to_string());
        tracing::info!("Serving securely on {address}");
        let mut serve = std::pin::pin!(Port::new(listener, tls.subscribe(), &serving, limits).serve(handler));
        let mut ticks = tokio::time::interval(period);
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                () = &mut serve => return,
                () = changed(trust.as_mut()) => {}
                _ = ticks.tick() => match reader.look() {
                    Look::Same => continue,
                    Look::New(new) => {
                        tracing::info!("Loaded new serving certificates");
                        certificates = Arc::new(new);
                    }
                    Look::Refused(error) => {
                        tracing::error!(error, "new serving certificates cannot be used, the old ones stay");
                        continue;
                    }
                },
            }
            let trust = trust.as_mut().map(|trust| trust.borrow_and_update().clone());
            match configured(&certificates, trust.as_ref()) {
                Ok(configured) => drop(tls.send_replace(Arc::new(configured))),
                Err(error) => tracing::error!(error, "TLS stays as it was"),
            }
        }
    }
}

async fn changed(trust: Option<&mut watch::Receiver<Arc<Trust>>>) {
    if let Some(trust) = trust
        && trust.changed().await.is_ok()
    {
        return;
    }
    std::future::pending::<()>().await;
}

fn configuration(
    serving: &Serving,
    certificates: &Arc<Certificates>,
    trust: Option<&Trust>,
) -> Result<Configuration, String> {
    let provider = serving.tls.provider.clone();
    let builder = ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(serving.tls.versions)
        .map_err(|error| format!("TLS cannot be set up: {error}"))?;
    let builder = match trust {
        Some(trust) => {
            let proxy = trust.proxy.as_ref().map(|proxy| &proxy.authorities);
            let all: Vec<&Authorities> = trust.client.iter().chain(proxy).collect();
            builder.with_client_cert_verifier(Arc::new(AskLater::new(&all, provider)))
        }
        None => builder.with_no_client_auth(),
    };
    let mut tls = builder.with_cert_resolver(certificates.clone());
    tls.alpn_protocols = match serving.http2_streams {
        Some(_) => vec![b"h2".to_vec(), b"http/1.1".to_vec()],
        None => vec![b"http/1.1".to_vec()],
    };
    Ok(Configuration { tls: Arc::new(tls), certificates: certificates.clone() })
}
