//! The metrics of the process: upstream's names where upstream has one, `ccm_` for ours.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use prometheus::{
    CounterVec, Encoder, Gauge, GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry,
    TextEncoder,
};

use crate::queue::QueueTimes;

/// Buckets of the work queue histograms: 1e-8 × 10^0…9 seconds.
const QUEUE_BUCKETS: [f64; 10] = [1e-8, 1e-7, 1e-6, 1e-5, 1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0];
/// Buckets of request durations.
const REQUEST_BUCKETS: [f64; 12] = [0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];

/// All metrics of a process. Cheap to clone.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    queues: Mutex<Vec<(String, Weak<dyn QueueTimes>)>>,
    depth: IntGaugeVec,
    adds: IntCounterVec,
    retries: IntCounterVec,
    waited: HistogramVec,
    worked: HistogramVec,
    unfinished: GaugeVec,
    longest: GaugeVec,
    requests: IntCounterVec,
    request_time: HistogramVec,
    rate_waits: HistogramVec,
    repeats: IntCounterVec,
    leader: IntGaugeVec,
    slow_path: IntCounterVec,
    running: IntGaugeVec,
    steps: IntCounterVec,
    refusals: IntCounterVec,
    gate: IntCounterVec,
    calls: IntCounterVec,
    call_time: HistogramVec,
    panics: IntCounterVec,
    events: IntCounterVec,
    sync_errors: CounterVec,
}

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
    // The constructors below fail only on malformed constant names, which the test of this module would show.
    #[allow(clippy::expect_used)]
    pub fn new() -> Self {
        let registry = Registry::new();
        let counter = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntCounterVec::new(Opts::new(name, help), labels).expect("constant"))
        };
        let gauge = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, IntGaugeVec::new(Opts::new(name, help), labels).expect("constant"))
        };
        let float = |name: &str, help: &str, labels: &[&str]| {
            register(&registry, GaugeVec::new(Opts::new(name, help), labels).expect("constant"))
        };
        let histogram = |name: &str, help: &str, labels: &[&str], buckets: &[f64]| {
            let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
            register(&registry, HistogramVec::new(opts, labels).expect("constant"))
        };
        let name = &["name"];
        Self(Arc::new(Inner {
            queues: Mutex::default(),
            depth: gauge("workqueue_depth", "Current depth of workqueue", name),
            adds: counter("workqueue_adds_total", "Total number of adds handled by workqueue", name),
            retries: counter("workqueue_retries_total", "Total number of retries handled by workqueue", name),
            waited: histogram(
                "workqueue_queue_duration_seconds",
                "How long in seconds an item stays in workqueue before being requested.",
                name,
                &QUEUE_BUCKETS,
            ),
            worked: histogram(
                "workqueue_work_duration_seconds",
                "How long in seconds processing an item from workqueue takes.",
                name,
                &QUEUE_BUCKETS,
            ),
            unfinished: float(
                "workqueue_unfinished_work_seconds",
                "How many seconds of work has done that is in progress and hasn't been observed by work_duration.",
                name,
            ),
            longest: float(
                "workqueue_longest_running_processor_seconds",
                "How many seconds has the longest running processor for workqueue been running.",
                name,
            ),
            requests: counter(
                "rest_client_requests_total",
                "Number of HTTP requests, partitioned by status code, method, and host.",
                &["code", "method", "host"],
            ),
            request_time: histogram(
                "rest_client_request_duration_seconds",
                "Request latency in seconds. Broken down by verb, and host.",
                &["verb", "host"],
                &REQUEST_BUCKETS,
            ),
            rate_waits: histogram(
                "rest_client_rate_limiter_duration_seconds",
                "Client side rate limiter latency in seconds. Broken down by verb, and host.",
                &["verb", "host"],
                &REQUEST_BUCKETS,
            ),
            repeats: counter(
                "rest_client_request_retries_total",
                "Number of request retries, partitioned by status code, verb, and host.",
                &["code", "verb", "host"],
            ),
            leader: gauge(
                "leader_election_master_status",
                "Gauge of if the reporting system is master of the relevant lease, 0 indicates backup, 1 indicates master. 'name' is the string used to identify the lease. Please make sure to group by name.",
                name,
            ),
            slow_path: counter(
                "leader_election_slowpath_total",
                "Total number of slow path exercised in renewing leader leases. 'name' is the string used to identify the lease. Please make sure to group by name.",
                name,
            ),
            running: gauge(
                "running_managed_controllers",
                "Indicates where instances of a controller are currently running",
                &["name", "manager"],
            ),
            steps: counter(
                "ccm_plan_steps_total",
                "Steps planned, by verb, kind of object, and whether it was a dry run.",
                &["verb", "kind", "dry_run"],
            ),
            refusals: counter("ccm_guard_refusals_total", "Steps that a guard refused, by guard.", &["guard"]),
            gate: counter(
                "ccm_gate_refusals_total",
                "Writes that the gate refused, by target and reason.",
                &["target", "reason"],
            ),
            calls: counter(
                "ccm_provider_calls_total",
                "Calls of the core to the provider, by call and outcome.",
                &["call", "outcome"],
            ),
            call_time: histogram(
                "ccm_provider_call_duration_seconds",
                "Duration of the core's calls to the provider.",
                &["call"],
                &REQUEST_BUCKETS,
            ),
            panics: counter("ccm_panics_total", "Panics that were caught, by place.", &["place"]),
            events: counter("ccm_events_total", "Events by what became of them.", &["outcome"]),
            sync_errors: register(
                &registry,
                CounterVec::new(Opts::new("ccm_sync_errors_total", "Failed syncs, by controller."), &["controller"])
                    .expect("constant"),
            ),
            registry,
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

    /// Everything in the text format of Prometheus.
    pub fn text(&self) -> String {
        let inner = &self.0;
        let mut queues = inner.queues.lock().unwrap_or_else(PoisonError::into_inner);
        queues.retain(|(name, queue)| {
            let Some(queue) = queue.upgrade() else { return false };
            let (unfinished, longest) = queue.running();
            inner.unfinished.with_label_values(&[name]).set(unfinished.as_secs_f64());
            inner.longest.with_label_values(&[name]).set(longest.as_secs_f64());
            true
        });
        drop(queues);
        let mut text = Vec::new();
        if let Err(error) = TextEncoder::new().encode(&inner.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics cannot be printed");
        }
        String::from_utf8_lossy(&text).into_owned()
    }

    /// The value of a counter, gauge or histogram count as printed, for tests and the demo; `None` when it has no such
    /// sample.
    pub fn sample(&self, line_start: &str) -> Option<f64> {
        let text = self.text();
        let line = text.lines().find(|line| line.strip_prefix(line_start).is_some_and(|r| r.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }

    pub(crate) fn queue(&self, name: &str, queue: Weak<dyn QueueTimes>) -> QueueMetrics {
        self.0.queues.lock().unwrap_or_else(PoisonError::into_inner).push((name.to_owned(), queue));
        let inner = &self.0;
        let label = &[name];
        inner.unfinished.with_label_values(label).set(0.0);
        inner.longest.with_label_values(label).set(0.0);
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

    /// A request waited for the client's own rate, `--kube-api-qps`.
    pub fn rest_rate_limited(&self, verb: &str, host: &str, waited: Duration) {
        self.0.rate_waits.with_label_values(&[verb, host]).observe(waited.as_secs_f64());
    }

    /// A request was sent again because the server had asked for it; `code` is that of the new answer.
    pub fn rest_repeated(&self, code: &str, verb: &str, host: &str) {
        self.0.repeats.with_label_values(&[code, verb, host]).inc();
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

    /// A call to the provider ended.
    pub fn provider_call(&self, call: &str, ok: bool, took: Duration) {
        self.0.calls.with_label_values(&[call, if ok { "ok" } else { "error" }]).inc();
        self.0.call_time.with_label_values(&[call]).observe(took.as_secs_f64());
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

/// A gauge without labels, for controllers.
#[allow(clippy::expect_used)] // fails only on a malformed constant name
pub fn gauge(metrics: &Metrics, name: &str, help: &str) -> Gauge {
    metrics.register(Gauge::new(name, help).expect("constant name"))
}

/// A counter without labels, for controllers.
#[allow(clippy::expect_used)] // fails only on a malformed constant name
pub fn counter(metrics: &Metrics, name: &str, help: &str) -> prometheus::IntCounter {
    metrics.register(prometheus::IntCounter::new(name, help).expect("constant name"))
}

/// A histogram without labels, for controllers.
#[allow(clippy::expect_used)] // fails only on a malformed constant name
pub fn histogram(metrics: &Metrics, name: &str, help: &str, buckets: &[f64]) -> prometheus::Histogram {
    let opts = HistogramOpts::new(name, help).buckets(buckets.to_vec());
    metrics.register(prometheus::Histogram::with_opts(opts).expect("constant name"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_metric_is_well_formed_and_printed() {
        let metrics = Metrics::new();
        metrics.leader("cloud-controller-manager", true);
        metrics.running("cloud-node", true);
        let text = metrics.text();
        assert!(text.contains("leader_election_master_status{name=\"cloud-controller-manager\"} 1"), "{text}");
        let line = "running_managed_controllers{manager=\"cloud-controller-manager\",name=\"cloud-node\"}";
        assert_eq!(metrics.sample(line), Some(1.0));
        assert_eq!(metrics.sample("no_such"), None);
    }
}
