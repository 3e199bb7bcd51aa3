//! Gauges of objects that fail, for alerts: retries become rare, so that the rate of errors says little.

use std::collections::BTreeMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::metrics::{Def, GaugeVec, IntGaugeVec, Metrics, Part};

crate::metrics! {
    pub(crate) struct FailingMetrics {
        objects: IntGaugeVec = Def::gauge("ccm_failing_objects", &["controller"], "Objects whose last sync failed and is retried, by controller.");
        oldest: GaugeVec = Def::gauge(
            "ccm_failing_oldest_seconds", &["controller"],
            "How long the syncs of an object have failed, of the one that has failed for the longest time, by controller.",
        );
    }
}

/// The first failure of each object since its last success, by controller.
type First = BTreeMap<&'static str, BTreeMap<String, Instant>>;

/// The objects that fail.
pub(crate) struct Failing(Arc<Mutex<First>>);

impl Failing {
    /// Records a failed sync.
    pub(crate) fn failed(&self, controller: &'static str, subject: String) {
        self.lock().entry(controller).or_default().entry(subject).or_insert_with(Instant::now);
    }

    /// Records a sync that succeeded.
    pub(crate) fn settled(&self, controller: &'static str, subject: impl FnOnce() -> String) {
        let mut first = self.lock();
        if let Some(subjects) = first.get_mut(controller).filter(|subjects| !subjects.is_empty()) {
            subjects.remove(&subject());
        }
    }

    fn lock(&self) -> MutexGuard<'_, First> {
        self.0.lock()
    }
}

impl Part for Failing {
    fn new(registry: &Metrics) -> Self {
        let (first, gauges) = (Arc::<Mutex<First>>::default(), registry.part::<FailingMetrics>());
        let failing = Self(first.clone());
        registry.at_scrape("failing", move || {
            for (controller, subjects) in &*failing.lock() {
                let age = subjects.values().map(Instant::elapsed).max().unwrap_or_default();
                let count = i64::try_from(subjects.len()).unwrap_or(i64::MAX);
                gauges.objects.with_label_values(&[controller]).set(count);
                gauges.oldest.with_label_values(&[controller]).set(age.as_secs_f64());
            }
        });
        Self(first)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn the_age_is_that_of_the_first_failure_since_the_last_success() {
        let metrics = Metrics::new();
        let failing = metrics.part::<Failing>();
        failing.failed("a", "service default/web".into());
        tokio::time::advance(Duration::from_secs(100)).await;
        failing.failed("a", "service default/web".into());
        failing.failed("a", "service default/db".into());
        let scrape = |expected: [&str; 2]| {
            let text = metrics.text();
            for line in expected {
                assert!(text.lines().any(|found| found == line), "{line}\n{text}");
            }
        };
        scrape([r#"ccm_failing_objects{controller="a"} 2"#, r#"ccm_failing_oldest_seconds{controller="a"} 100"#]);
        failing.settled("a", || "service default/web".into());
        scrape([r#"ccm_failing_objects{controller="a"} 1"#, r#"ccm_failing_oldest_seconds{controller="a"} 0"#]);
        failing.settled("a", || "service default/db".into());
        scrape([r#"ccm_failing_objects{controller="a"} 0"#, r#"ccm_failing_oldest_seconds{controller="a"} 0"#]);
    }
}
