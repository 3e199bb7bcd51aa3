//! Webhooks of the program, on their own port.
//!
//! Checks, texts and codes of `k8s.io/cloud-provider/app/webhooks.go`. Two differences: `application/json` may have
//! parameters such as a charset, and responses with 200 are counted too. All replicas serve, including standbys: the
//! API server cannot know which one leads.

pub mod persistent_volume;
mod review;

use std::collections::BTreeMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{Bytes, BytesMut};
use ccm_provider::CloudProvider;
use ccm_runtime::metrics::{Def, HistogramVec, IntCounterVec};
use ccm_runtime::{Metrics, metrics};
use futures::FutureExt as _;
use http::{HeaderValue, Request, StatusCode, header};
use http_body_util::{BodyExt as _, Limited};
use hyper::body::Incoming;
use parking_lot::RwLock;
use rustls_pki_types::CertificateDer;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::exit::Failure;
use crate::serve::answer::{self, Answer};
use crate::serve::listener::Handler;
use crate::serve::{DELEGATED, Secured, Serving};
pub use review::{
    AdmissionRequest, AdmissionResponse, AdmissionStatus, GroupVersionKind, GroupVersionResource, UserInfo,
};

metrics! {
    /// As `k8s.io/cloud-provider/app/webhook_metrics.go`.
    pub(crate) struct WebhookMetrics {
        requests: IntCounterVec = Def::counter(
            "cloud_provider_webhook_request_total", &["code", "webhook"],
            "[ALPHA] Number of HTTP requests partitioned by status code.",
        );
        time: HistogramVec = Def::histogram(
            "cloud_provider_webhook_request_duration_seconds", &["code", "webhook"], DELEGATED,
            "[ALPHA] Request latency in seconds. Broken down by status code.",
        );
    }
}

/// Maximum size of an AdmissionReview: the API server accepts objects of 3 MiB, and a review may contain an old and a
/// new one.
const BODY: usize = 8 << 20;
/// Total memory for bodies, in MiB.
const BODIES: usize = 32;
/// The part of a body that needs no share of that memory: nearly every review is smaller.
const FREE: usize = 16 << 10;
/// The time limit for receiving a body, including the wait for memory.
const PATIENCE: Duration = Duration::from_secs(10);
/// The time limit for the next MiB of a body that has a share of the memory: the API server waits for a review for 5 s, and
/// the clients before it may all send no more.
const PACE: Duration = Duration::from_secs(1);
/// The time limit for a handler: the API server waits at most 30 s.
const HANDLING: Duration = Duration::from_secs(30);

/// Decides about admission requests.
#[async_trait]
pub trait AdmissionHandler: Send + Sync {
    /// Answers one request; the caller sets the UID of the answer. `None` counts as an error, as in upstream.
    ///
    /// # Errors
    ///
    /// The error; the API server receives it with status 500 and applies the failure policy.
    async fn admit(&self, request: AdmissionRequest) -> Result<Option<AdmissionResponse>, String>;
}

/// Creates the handler of a webhook, after the provider is built.
pub type MakeHandler = Arc<dyn Fn(&Hosting) -> Arc<dyn AdmissionHandler> + Send + Sync>;

/// A webhook that the program can serve.
#[derive(Clone)]
pub struct Webhook {
    /// Name in `--webhooks` and in metrics.
    pub name: &'static str,
    /// Path on the port, with the leading slash.
    pub path: &'static str,
    /// Creates the handler, after the provider is built; also on a standby.
    pub handler: MakeHandler,
}

/// The inputs of a webhook's handler.
#[derive(Clone)]
#[non_exhaustive]
pub struct Hosting {
    /// The provider; possibly before [`CloudProvider::initialize`], which only a leader calls.
    pub provider: Arc<dyn CloudProvider>,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// `--dry-run`: reviewed objects must not be changed or rejected.
    pub dry_run: bool,
}

opaque_debug!(Hosting, this, "provider" = &this.provider.name());

impl Webhook {
    /// A webhook that does not use the provider.
    pub fn new(name: &'static str, path: &'static str, handler: impl AdmissionHandler + 'static) -> Self {
        let handler: Arc<dyn AdmissionHandler> = Arc::new(handler);
        Self { name, path, handler: Arc::new(move |_| handler.clone()) }
    }
}

opaque_debug!(Webhook, this, "name" = &this.name, "path" = &this.path);

/// A bound port for webhooks.
pub struct Listening {
    secured: Secured,
    webhooks: Vec<Webhook>,
    metrics: Metrics,
}

opaque_debug!(Listening, this, "webhooks" = &this.webhooks);

/// Generates or reads certificates and binds the port; `None` if it is 0 or no webhook is enabled.
///
/// # Errors
///
/// Exit code 1: a certificate cannot be used, or the port cannot be bound.
pub fn bind(serving: &Serving, webhooks: Vec<Webhook>, metrics: &Metrics) -> Result<Option<Listening>, Failure> {
    if serving.port == 0 || webhooks.is_empty() {
        return Ok(None);
    }
    for webhook in &webhooks {
        tracing::info!("Webhook enabled: {:?}", webhook.name);
    }
    let secured = Secured::bind(serving).map_err(Failure::error)?;
    Ok(Some(Listening { secured, webhooks, metrics: metrics.clone() }))
}

impl Listening {
    /// Serves until it is dropped, with the current provider. Accepts all clients: the API server sends no credentials.
    pub fn serve(
        self,
        mut providers: watch::Receiver<Arc<dyn CloudProvider>>,
        dry_run: bool,
    ) -> impl Future<Output = ()> + Send + use<> {
        let Self { secured, webhooks, metrics } = self;
        let hooks = Arc::new(Hooks { by_path: RwLock::default(), metrics, memory: Arc::new(Semaphore::new(BODIES)) });
        hooks.host(&webhooks, providers.borrow_and_update().clone(), dry_run);
        let updates = {
            let hooks = hooks.clone();
            async move {
                while providers.changed().await.is_ok() {
                    hooks.host(&webhooks, providers.borrow_and_update().clone(), dry_run);
                }
                std::future::pending::<()>().await;
            }
        };
        async move {
            tokio::select! {
                () = secured.serve_all(hooks) => {}
                () = updates => {}
            }
        }
    }
}

fn late() -> (StatusCode, String) {
    (StatusCode::REQUEST_TIMEOUT, "the admission request took too long to come in".to_owned())
}

struct Hosted {
    name: &'static str,
    handler: Arc<dyn AdmissionHandler>,
}

struct Hooks {
    by_path: RwLock<BTreeMap<&'static str, Arc<Hosted>>>,
    metrics: Metrics,
    memory: Arc<Semaphore>,
}

impl Hooks {
    fn host(&self, webhooks: &[Webhook], provider: Arc<dyn CloudProvider>, dry_run: bool) {
        let hosting = Hosting { provider, metrics: self.metrics.clone(), dry_run };
        let host =
            |Webhook { name, path, handler }: &Webhook| (*path, Arc::new(Hosted { name, handler: handler(&hosting) }));
        *self.by_path.write() = webhooks.iter().map(host).collect();
    }

    fn at(&self, path: &str) -> Option<Arc<Hosted>> {
        self.by_path.read().get(path).cloned()
    }
}

impl Handler for Hooks {
    async fn handle(&self, request: Request<Incoming>, _: &[CertificateDer<'static>]) -> (Answer, bool) {
        let Some(webhook) = self.at(request.uri().path()) else { return (answer::not_found(), false) };
        let (began, method) = (Instant::now(), request.method().clone());
        let answer = match self.answer(&webhook, request).await {
            Ok(body) => answer::answer(StatusCode::OK, HeaderValue::from_static("application/json"), body),
            Err((status, error)) => {
                tracing::error!(webhook = webhook.name, "{error}");
                answer::error(status, error)
            }
        };
        let (counts, code) = (self.metrics.part::<WebhookMetrics>(), answer.status());
        let labels = [code.as_str(), webhook.name];
        counts.requests.with_label_values(&labels).inc();
        counts.time.with_label_values(&labels).observe(began.elapsed().as_secs_f64());
        // The API server sends no credentials and keeps its connection for the next review.
        (answer::for_method(&method, answer), true)
    }
}

impl Hooks {
    async fn answer(&self, webhook: &Hosted, request: Request<Incoming>) -> Result<Bytes, (StatusCode, String)> {
        let bad = |text: String| (StatusCode::BAD_REQUEST, text);
        let kind = request.headers().get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        if !review::is_json(kind) {
            return Err(bad(format!("Content-Type: {kind:?} should be \"application/json\"")));
        }
        let (_memory, body) =
            tokio::time::timeout(PATIENCE, self.read(request)).await.unwrap_or_else(|_| Err(late()))?;
        let review = review::parse(&body).map_err(bad)?;
        let (version, uid) = (review.api_version, review.request.uid.clone());
        // A panic of a handler must not close the connection, which may have other reviews in flight.
        let admitted = AssertUnwindSafe(webhook.handler.admit(review.request)).catch_unwind();
        let handled = tokio::time::timeout(HANDLING, admitted);
        let failed = |text: String| (StatusCode::INTERNAL_SERVER_ERROR, text);
        let response = handled
            .await
            .unwrap_or_else(|_| Ok(Err(format!("no answer within {}s", HANDLING.as_secs()))))
            .unwrap_or_else(|_| Err("the handler panicked".into()))
            .map_err(|error| failed(format!("error generating admission response: {error}")))?
            .ok_or_else(|| failed("admission response cannot be nil".into()))?;
        Ok(review::answer(&version, &uid, response))
    }

    /// The body, and its share of the memory for bodies. Memory is charged as bytes arrive: a client that sends none, or
    /// few, holds up nobody.
    async fn read(
        &self,
        request: Request<Incoming>,
    ) -> Result<(Option<OwnedSemaphorePermit>, Bytes), (StatusCode, String)> {
        let busy = || (StatusCode::SERVICE_UNAVAILABLE, "too many large admission requests at a time".to_owned());
        let mut body = Limited::new(request.into_body(), BODY);
        let (mut read, mut memory) = (BytesMut::new(), None::<OwnedSemaphorePermit>);
        let mut due = Instant::now() + PATIENCE;
        while let Some(frame) = tokio::time::timeout_at(due, body.frame()).await.map_err(|_| late())? {
            let frame = frame
                .map_err(|error| (StatusCode::BAD_REQUEST, format!("could not read the admission request: {error}")))?;
            let Some(data) = frame.data_ref() else { continue };
            let size = read.len() + data.len();
            let needed = if size > FREE { (size >> 20) + 1 } else { 0 };
            let held = memory.as_ref().map_or(0, OwnedSemaphorePermit::num_permits);
            let more = u32::try_from(needed.saturating_sub(held)).unwrap_or(u32::MAX);
            match &mut memory {
                _ if more == 0 => {}
                None => memory = Some(self.memory.clone().acquire_many_owned(more).await.map_err(|_| busy())?),
                // Several that wait with a share in hand could wait for each other. One that stops sending gives its share
                // back within this time.
                Some(memory) => {
                    let rest = tokio::time::timeout(PACE, self.memory.clone().acquire_many_owned(more)).await;
                    memory.merge(rest.map_err(|_| busy())?.map_err(|_| busy())?);
                }
            }
            if more > 0 {
                due = Instant::now() + PACE;
            }
            read.extend_from_slice(data);
        }
        Ok((memory, read.freeze()))
    }
}
