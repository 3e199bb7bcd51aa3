//! The metrics of the process: upstream's names where upstream has one, `ccm_` for ours.

mod access;
mod def;
mod process;
mod slis;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use ccm_provider::{ErrorClass, ProviderError};
use prometheus::{GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec, Registry};
use tokio::time::Instant;

use crate::leader::Leadership;
use crate::queue::QueueTimes;
use crate::recent::Recent;

pub use access::{Access, Attempt};
pub use def::{Def, Kind, markdown};
pub use slis::HealthMetrics;

/// Every metric that the runtime and the process export, for the reference page; [`HealthMetrics`] has its own.
pub fn reference() -> Vec<&'static Def> {
    table::ALL.iter().chain(table::PROCESS).chain(table::SLIS).copied().collect()
}

/// What a build says of itself, the labels of `kubernetes_build_info`.
#[derive(Debug, Clone, Copy, Default)]
pub struct BuildInfo<'a> {
    /// `1`
    pub major: &'a str,
    /// `36`
    pub minor: &'a str,
    /// `v1.36.3`
    pub git_version: &'a str,
    /// The commit.
    pub git_commit: &'a str,
    /// `clean` or `dirty`.
    pub git_tree_state: &'a str,
    /// RFC 3339.
    pub build_date: &'a str,
    /// The compiler, `rustc` here.
    pub compiler: &'a str,
    /// `linux/amd64`
    pub platform: &'a str,
}

/// Runs at each scrape, before the metrics are read.
type AtScrape = Box<dyn Fn() + Send>;
/// Asked at each scrape for families of its own, as text.
type Appended = Box<dyn Fn() -> String + Send>;

/// All metrics of a process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    made: Mutex<BTreeMap<&'static str, Box<dyn Any + Send>>>,
    queues: Mutex<Vec<(String, Weak<dyn QueueTimes>)>>,
    at_scrape: Mutex<Vec<AtScrape>>,
    appended: Mutex<Vec<Appended>>,
    plans: Recent,
    failures: Recent,
    observed: Mutex<BTreeMap<&'static str, Instant>>,
    access: Access,
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    oldest: GaugeVec,
    requests: IntCounterVec,
    request_time: HistogramVec,
    request_size: HistogramVec,
    response_size: HistogramVec,
    rate_limited: HistogramVec,
    request_retries: IntCounterVec,
    leader: IntGaugeVec,
    slow_path: IntCounterVec,
    lease: IntGaugeVec,
    running: IntGaugeVec,
    build: IntGaugeVec,
    features: IntGaugeVec,
    webhooks: IntCounterVec,
    webhook_time: HistogramVec,
    steps: IntCounterVec,
    refusals: IntCounterVec,
    gate: IntCounterVec,
    calls: IntCounterVec,
    call_time: HistogramVec,
    throttled: IntCounterVec,
    observation: GaugeVec,
    panics: IntCounterVec,
    events: IntCounterVec,
    sync_errors: IntCounterVec,
}

/// A queue as it is now.
#[derive(Debug, Clone)]
pub struct QueueState {
    /// Its name in the metrics.
    pub name: String,
    /// Keys that are ready.
    pub ready: usize,
    /// Keys that are worked on.
    pub working: usize,
    /// Keys that wait for a delay to pass.
    pub waiting: usize,
    /// For how long the oldest ready key has been ready.
    pub oldest: Duration,
    /// For how long the slowest key has been worked on.
    pub longest: Duration,
}

/// Where one registers its metrics while the others are not yet made.
struct Registrar(Registry);

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

// A metric whose name or labels are malformed is a slip that every test meets at once; a duplicate is not registered
// twice. Neither may stop a controller, hence the fall-back to an unregistered one.
fn register<T: prometheus::core::Collector + Clone + 'static>(registry: &Registry, metric: T) -> T {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric is not exported");
    }
    metric
}

impl Metrics {
    /// A fresh set.
    pub fn new() -> Self {
        use table as t;
        let to = Registrar(Registry::new());
        Self(Arc::new(Inner {
            made: Mutex::default(),
            queues: Mutex::default(),
            at_scrape: Mutex::default(),
            appended: Mutex::default(),
            plans: Recent::default(),
            failures: Recent::default(),
            observed: Mutex::default(),
            access: Access::new(&to),
            depth: to.gauge(&t::DEPTH),
            adds: to.counter(&t::ADDS),
            retries: to.counter(&t::RETRIES),
            waited: to.histogram(&t::WAITED),
            worked: to.histogram(&t::WORKED),
            unfinished: to.gauge(&t::UNFINISHED),
            longest: to.gauge(&t::LONGEST),
            oldest: to.gauge(&t::OLDEST),
            requests: to.counter(&t::REQUESTS),
            request_time: to.histogram(&t::REQUEST_TIME),
            request_size: to.histogram(&t::REQUEST_SIZE),
            response_size: to.histogram(&t::RESPONSE_SIZE),
            rate_limited: to.histogram(&t::RATE_LIMITED),
            request_retries: to.counter(&t::REQUEST_RETRIES),
            leader: to.gauge(&t::LEADER),
            slow_path: to.counter(&t::SLOW_PATH),
            lease: to.gauge(&t::LEASE),
            running: to.gauge(&t::RUNNING),
            build: to.gauge(&t::BUILD_INFO),
            features: to.gauge(&t::FEATURES),
            webhooks: to.counter(&t::WEBHOOK_REQUESTS),
            webhook_time: to.histogram(&t::WEBHOOK_TIME),
            steps: to.counter(&t::STEPS),
            refusals: to.counter(&t::REFUSALS),
            gate: to.counter(&t::GATE),
            calls: to.counter(&t::CALLS),
            call_time: to.histogram(&t::CALL_TIME),
            throttled: to.counter(&t::THROTTLED),
            observation: to.gauge(&t::OBSERVED),
            panics: to.counter(&t::PANICS),
            events: to.counter(&t::EVENTS),
            sync_errors: to.counter(&t::SYNC_ERRORS),
            registry: to.0,
        }))
    }

    /// The registry, for metrics of a controller or provider.
    pub fn registry(&self) -> &Registry {
        &self.0.registry
    }

    /// Adds a metric of a controller or provider.
    pub fn register<T: prometheus::core::Collector + Clone + 'static>(&self, metric: T) -> T {
        register(&self.0.registry, metric)
    }

    /// Makes and exports a counter; the same one for whoever asks again.
    pub fn counter(&self, def: &Def) -> IntCounterVec {
        self.shared(def, |to| to.counter(def))
    }

    /// Makes and exports a gauge; the same one for whoever asks again.
    pub fn gauge<P: prometheus::core::Atomic + 'static>(&self, def: &Def) -> prometheus::core::GenericGaugeVec<P> {
        self.shared(def, |to| to.gauge(def))
    }

    /// Makes and exports a histogram; the same one for whoever asks again.
    pub fn histogram(&self, def: &Def) -> HistogramVec {
        self.shared(def, |to| to.histogram(def))
    }

    // A second metric of this name would not be exported: controllers that share one, told apart by a label, all count
    // with the first.
    fn shared<T: Clone + Send + 'static>(&self, def: &Def, make: impl FnOnce(Registrar) -> T) -> T {
        let mut made = lock(&self.0.made);
        if let Some(there) = made.get(def.name).and_then(|there| there.downcast_ref::<T>()) {
            return there.clone();
        }
        let new = make(Registrar(self.0.registry.clone()));
        made.insert(def.name, Box::new(new.clone()));
        new
    }

    /// Has something done before each scrape: for gauges that cost a look at the state. Must be quick.
    pub fn at_scrape(&self, refresh: impl Fn() + Send + 'static) {
        lock(&self.0.at_scrape).push(Box::new(refresh));
    }

    /// Shows families that somebody else counts, a provider for example, in the text format of Prometheus.
    pub fn append(&self, families: impl Fn() -> String + Send + 'static) {
        lock(&self.0.appended).push(Box::new(families));
    }

    /// Everything in the text format of Prometheus.
    pub fn text(&self) -> String {
        let inner = &self.0;
        let now = Instant::now();
        lock(&inner.queues).retain(|(name, queue)| {
            let Some(queue) = queue.upgrade() else { return false };
            let (unfinished, longest) = queue.running();
            inner.unfinished.with_label_values(&[name]).set(unfinished.as_secs_f64());
            inner.longest.with_label_values(&[name]).set(longest.as_secs_f64());
            inner.oldest.with_label_values(&[name]).set(queue.oldest().as_secs_f64());
            true
        });
        for (of, at) in &*lock(&inner.observed) {
            inner.observation.with_label_values(&[of]).set(now.saturating_duration_since(*at).as_secs_f64());
        }
        for refresh in &*lock(&inner.at_scrape) {
            refresh();
        }
        let mut text = text::encode(&inner.registry.gather());
        process::append(&mut text);
        for families in &*lock(&inner.appended) {
            text.push_str(&families());
        }
        text
    }

    /// The value of a counter, gauge or histogram count as printed, for tests and the demo; `None` when it has no such
    /// sample.
    pub fn sample(&self, line_start: &str) -> Option<f64> {
        let text = self.text();
        let line = text.lines().find(|line| line.strip_prefix(line_start).is_some_and(|r| r.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    /// The plans that were shown last.
    pub fn plans(&self) -> &Recent {
        &self.0.plans
    }

    /// The syncs that failed last.
    pub fn failures(&self) -> &Recent {
        &self.0.failures
    }

    /// All queues as they are now.
    pub fn queues(&self) -> Vec<QueueState> {
        let queues = lock(&self.0.queues);
        let state = |(name, queue): &(String, Weak<dyn QueueTimes>)| {
            let queue = queue.upgrade()?;
            let ((ready, working, waiting), oldest) = (queue.sizes(), queue.oldest());
            Some(QueueState { name: name.clone(), ready, working, waiting, oldest, longest: queue.running().1 })
        };
        queues.iter().filter_map(state).collect()
    }

    /// How long ago everything of each kind was last seen in the cloud, without gaps.
    pub fn observations(&self) -> Vec<(&'static str, Duration)> {
        lock(&self.0.observed).iter().map(|(of, at)| (*of, at.elapsed())).collect()
    }

    /// Metrics of authentication and authorization.
    pub fn access(&self) -> &Access {
        &self.0.access
    }

    /// Says which build this is.
    pub fn build_info(&self, build: &BuildInfo<'_>) {
        let BuildInfo { major, minor, git_version, git_commit, git_tree_state, build_date, compiler, platform } = build;
        // In the order of the table; the version of Go is none.
        let values = [major, minor, git_version, git_commit, git_tree_state, build_date, &"", compiler, platform];
        self.0.build.with_label_values(&values.map(|value| &**value)).set(1);
    }

    /// Says whether a feature gate is on; `stage` as upstream spells it: `ALPHA`, `BETA`, `DEPRECATED`, or empty once it is
    /// generally available.
    pub fn feature(&self, name: &str, stage: &str, enabled: bool) {
        self.0.features.with_label_values(&[name, stage]).set(i64::from(enabled));
    }

    /// Shows from now on where the process stands.
    pub fn leadership(&self, leadership: Leadership) {
        let gauge = self.0.lease.clone();
        self.at_scrape(move || {
            let now = leadership.state().word();
            for state in ["standby", "leading", "draining", "lost"] {
                gauge.with_label_values(&[state]).set(i64::from(state == now));
            }
        });
    }

    /// Shows from now on how long ago a store was last fed; `None` is not shown.
    pub(crate) fn store_age(&self, resource: &'static str, age: impl Fn() -> Option<Duration> + Send + 'static) {
        let gauge: GaugeVec = self.gauge(&table::STORE_AGE);
        self.at_scrape(move || match age() {
            Some(age) => gauge.with_label_values(&[resource]).set(age.as_secs_f64()),
            None => drop(gauge.remove_label_values(&[resource])),
        });
    }

    /// A webhook answered with a status code.
    pub fn webhook(&self, code: u16, webhook: &str, took: Duration) {
        let labels = [&code.to_string(), webhook];
        self.0.webhooks.with_label_values(&labels).inc();
        self.0.webhook_time.with_label_values(&labels).observe(took.as_secs_f64());
    }

    /// Everything of one kind was seen in the cloud, without gaps: `instances` or `routes`.
    pub fn observed(&self, of: &'static str) {
        lock(&self.0.observed).insert(of, Instant::now());
    }

    pub(crate) fn queue(&self, name: &str, queue: Weak<dyn QueueTimes>) -> QueueMetrics {
        lock(&self.0.queues).push((name.to_owned(), queue));
        let inner = &self.0;
        let label = &[name];
        for gauge in [&inner.unfinished, &inner.longest, &inner.oldest] {
            gauge.with_label_values(label).set(0.0);
        }
        QueueMetrics {
            depth: inner.depth.with_label_values(label),
            adds: inner.adds.with_label_values(label),
            retries: inner.retries.with_label_values(label),
            waited: inner.waited.with_label_values(label),
            worked: inner.worked.with_label_values(label),
        }
    }

    pub(crate) fn rest_request(&self, verb: &str, code: &str, host: &str, took: Duration) {
        self.0.requests.with_label_values(&[code, verb, host]).inc();
        self.0.request_time.with_label_values(&[verb, host]).observe(took.as_secs_f64());
    }

    /// How long a request waited for the client's own rate, `--kube-api-qps`; without one, zero.
    pub fn rest_rate_limited(&self, verb: &str, host: &str, waited: Duration) {
        self.0.rate_limited.with_label_values(&[verb, host]).observe(waited.as_secs_f64());
    }

    /// A request was sent again because the server had asked for it; `code` is that of the new answer.
    pub fn rest_repeated(&self, code: &str, verb: &str, host: &str) {
        self.0.request_retries.with_label_values(&[code, verb, host]).inc();
    }

    /// Bytes of the body of a request.
    pub fn rest_request_size(&self, verb: &str, host: &str, bytes: usize) {
        self.0.request_size.with_label_values(&[verb, host]).observe(size(bytes));
    }

    /// Bytes of the body of an answer; what is watched has no end and doesn't count.
    pub fn rest_response_size(&self, verb: &str, host: &str, bytes: usize) {
        self.0.response_size.with_label_values(&[verb, host]).observe(size(bytes));
    }

    /// 1 while this process holds the lease.
    pub fn leader(&self, lease: &str, leading: bool) {
        self.0.leader.with_label_values(&[lease]).set(i64::from(leading));
    }

    /// A renewal from the last seen object failed and the lease was read again.
    pub(crate) fn leader_slow_path(&self, lease: &str) {
        self.0.slow_path.with_label_values(&[lease]).inc();
    }

    /// 1 while a controller runs; `name` as in upstream's label.
    pub fn running(&self, name: &str, running: bool) {
        self.0.running.with_label_values(&[name, "cloud-controller-manager"]).set(i64::from(running));
    }

    pub(crate) fn plan_step(&self, verb: &str, kind: &str, dry_run: bool) {
        self.0.steps.with_label_values(&[verb, kind, if dry_run { "true" } else { "false" }]).inc();
    }

    /// A guard refused a step.
    pub fn guard_refused(&self, guard: &str) {
        self.0.refusals.with_label_values(&[guard]).inc();
    }

    pub(crate) fn gate_refused(&self, target: &str, reason: &str) {
        self.0.gate.with_label_values(&[target, reason]).inc();
    }

    /// A call to the provider ended. Of many failures in one answer, any one.
    pub fn provider_call(&self, call: &str, error: Option<&ProviderError>, took: Duration) {
        let outcome = match error.map(ProviderError::class) {
            None => "ok",
            Some(ErrorClass::NotFound) => "not-found",
            Some(ErrorClass::Unknown) => "unknown",
            Some(ErrorClass::Throttled { .. }) => "throttled",
            Some(ErrorClass::Transient { .. }) => "transient",
            Some(ErrorClass::InProgress { .. }) => "in-progress",
            Some(ErrorClass::Conflict) => "conflict",
            Some(ErrorClass::Denied { .. }) => "denied",
            Some(ErrorClass::Invalid { .. }) => "invalid",
            Some(ErrorClass::Unsupported) => "unsupported",
            Some(ErrorClass::Bug) => "bug",
        };
        self.0.calls.with_label_values(&[call, outcome]).inc();
        self.0.call_time.with_label_values(&[call]).observe(took.as_secs_f64());
        let throttled = self.0.throttled.with_label_values(&[call]);
        if outcome == "throttled" {
            throttled.inc();
        }
    }

    /// A panic was caught.
    pub fn panicked(&self, place: &str) {
        self.0.panics.with_label_values(&[place]).inc();
    }

    pub(crate) fn event(&self, outcome: &str) {
        self.0.events.with_label_values(&[outcome]).inc();
    }

    pub(crate) fn sync_error(&self, controller: &str) {
        self.0.sync_errors.with_label_values(&[controller]).inc();
    }
}

/// The metrics of one queue.
pub(crate) struct QueueMetrics {
    pub(crate) depth: prometheus::IntGauge,
    pub(crate) adds: prometheus::IntCounter,
    pub(crate) retries: prometheus::IntCounter,
    pub(crate) waited: prometheus::Histogram,
    pub(crate) worked: prometheus::Histogram,
}

#[allow(clippy::cast_precision_loss)] // buckets are wide
fn size(bytes: usize) -> f64 {
    bytes as f64
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
