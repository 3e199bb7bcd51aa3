//! Metrics of queues, as in `k8s.io/component-base/metrics/prometheus/workqueue`.

use std::sync::{Arc, Weak};
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

use crate::metrics::{
    Def, GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Metrics, Part,
};

const NAME: &[&str] = &["name"];
/// 1e-8 × 10^0…9 seconds, with the digits of upstream's repeated multiplication: a rule that sums both programs
/// compares them as text.
const SECONDS: &[f64] =
    &[1e-8, 1e-7, 1e-6, 9.999_999_999_999_999e-6, 9.999_999_999_999_999e-5, 1e-3, 1e-2, 1e-1, 1.0, 10.0];

crate::metrics! {
    pub(crate) struct Families {
        depth: IntGaugeVec = Def::gauge("workqueue_depth", NAME, "[BETA] Current depth of workqueue");
        adds: IntCounterVec = Def::counter("workqueue_adds_total", NAME, "[BETA] Total number of adds handled by workqueue");
        retries: IntCounterVec = Def::counter("workqueue_retries_total", NAME, "[BETA] Total number of retries handled by workqueue");
        waited: HistogramVec = Def::histogram(
            "workqueue_queue_duration_seconds", NAME, SECONDS,
            "[BETA] How long in seconds an item stays in workqueue before being requested.",
        );
        worked: HistogramVec = Def::histogram(
            "workqueue_work_duration_seconds", NAME, SECONDS,
            "[BETA] How long in seconds processing an item from workqueue takes.",
        );
        unfinished: GaugeVec = Def::gauge(
            "workqueue_unfinished_work_seconds", NAME,
            "[BETA] How many seconds of work has done that is in progress and hasn't been observed by work_duration. Large values indicate stuck threads. One can deduce the number of stuck threads by observing the rate at which this increases.",
        );
        longest: GaugeVec = Def::gauge(
            "workqueue_longest_running_processor_seconds", NAME,
            "[BETA] How many seconds has the longest running processor for workqueue been running.",
        );
        oldest: GaugeVec = Def::gauge("ccm_queue_oldest_seconds", NAME, "How long the oldest key of a queue has been ready and not taken.");
    }
}

/// The values of a scrape.
pub(super) trait QueueTimes: Send + Sync {
    /// Sum of the running times of the keys in progress, and the longest of them.
    fn running(&self) -> (Duration, Duration);
    /// The time for which the oldest ready key has been ready.
    fn oldest(&self) -> Duration;
    /// Keys ready, in progress, and waiting for a delay to pass.
    fn sizes(&self) -> (usize, usize, usize);
}

/// The current state of a queue.
#[derive(Debug, Clone)]
pub struct QueueState {
    /// Its name in the metrics.
    pub name: String,
    /// Keys that are ready.
    pub ready: usize,
    /// Keys in progress.
    pub working: usize,
    /// Keys that wait for a delay to pass.
    pub waiting: usize,
    /// The time for which the oldest ready key has been ready.
    pub oldest: Duration,
    /// The time for which the slowest key has been in progress.
    pub longest: Duration,
}

/// A queue and its name.
type Reporting = (String, Weak<dyn QueueTimes>);

/// All queues that report to a registry.
#[derive(Default)]
struct Queues(Arc<Mutex<Vec<Reporting>>>);

impl Queues {
    fn lock(&self) -> MutexGuard<'_, Vec<Reporting>> {
        self.0.lock()
    }
}

impl Part for Queues {
    fn new(registry: &Metrics) -> Self {
        let (made, families) = (Self::default(), registry.part::<Families>());
        let queues = Self(made.0.clone());
        registry.at_scrape("queues", move || {
            queues.lock().retain(|(name, queue)| {
                let Some(queue) = queue.upgrade() else { return false };
                let (unfinished, longest) = queue.running();
                families.unfinished.with_label_values(&[name]).set(unfinished.as_secs_f64());
                families.longest.with_label_values(&[name]).set(longest.as_secs_f64());
                families.oldest.with_label_values(&[name]).set(queue.oldest().as_secs_f64());
                true
            });
        });
        made
    }
}

impl Metrics {
    /// The current state of all queues.
    pub fn queues(&self) -> Vec<QueueState> {
        let state = |(name, queue): &Reporting| {
            let queue = queue.upgrade()?;
            let ((ready, working, waiting), oldest) = (queue.sizes(), queue.oldest());
            Some(QueueState { name: name.clone(), ready, working, waiting, oldest, longest: queue.running().1 })
        };
        self.part::<Queues>().lock().iter().filter_map(state).collect()
    }
}

/// The metrics of one queue.
pub(super) struct QueueMetrics {
    pub(super) depth: IntGauge,
    pub(super) adds: IntCounter,
    pub(super) retries: IntCounter,
    pub(super) waited: Histogram,
    pub(super) worked: Histogram,
}

impl QueueMetrics {
    pub(super) fn new(registry: &Metrics, name: &str, queue: Weak<dyn QueueTimes>) -> Self {
        registry.part::<Queues>().lock().push((name.to_owned(), queue));
        let (families, label) = (registry.part::<Families>(), &[name]);
        for gauge in [&families.unfinished, &families.longest, &families.oldest] {
            gauge.with_label_values(label).set(0.0);
        }
        Self {
            depth: families.depth.with_label_values(label),
            adds: families.adds.with_label_values(label),
            retries: families.retries.with_label_values(label),
            waited: families.waited.with_label_values(label),
            worked: families.worked.with_label_values(label),
        }
    }
}
