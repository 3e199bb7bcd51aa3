//! Metrics of the core's calls to the provider, and of complete reads of the cloud.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::ProviderError;
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

use crate::client::REQUEST;
use crate::metrics::{Def, GaugeVec, HistogramVec, IntCounterVec, Metrics, Part};

crate::metrics! {
    pub(crate) struct ProviderMetrics {
        calls: IntCounterVec = Def::counter(
            "ccm_provider_calls_total", &["call", "outcome"],
            "Calls of the core to the provider, by call and outcome: ok, or the class of the error.",
        );
        time: HistogramVec = Def::histogram(
            "ccm_provider_call_duration_seconds", &["call"], REQUEST, "Duration of the core's calls to the provider.",
        );
        throttled: IntCounterVec = Def::counter(
            "ccm_provider_throttled_total", &["call"], "Calls to the provider that the cloud throttled.",
        );
        observed: GaugeVec = Def::gauge(
            "ccm_observation_age_seconds", &["of"],
            "Time since the last complete read of the cloud, by kind of object; absent before the first one.",
        );
    }
}

/// The time of the last complete read of each kind of object.
#[derive(Debug, Default)]
struct Observed(Arc<Mutex<BTreeMap<&'static str, Instant>>>);

impl Observed {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<&'static str, Instant>> {
        self.0.lock()
    }
}

impl Part for Observed {
    fn new(registry: &Metrics) -> Self {
        let (made, provider) = (Self::default(), registry.part::<ProviderMetrics>());
        let seen = Self(made.0.clone());
        registry.at_scrape("observations", move || {
            for (of, at) in &*seen.lock() {
                provider.observed.with_label_values(&[of]).set(at.elapsed().as_secs_f64());
            }
        });
        made
    }
}

impl Metrics {
    /// Records a call to the provider. If the answer has several errors, `error` is any of them.
    pub fn provider_call(&self, call: &str, error: Option<&ProviderError>, took: Duration) {
        let provider = self.part::<ProviderMetrics>();
        let outcome = error.map_or("ok", |error| error.class().as_str());
        provider.calls.with_label_values(&[call, outcome]).inc();
        provider.time.with_label_values(&[call]).observe(took.as_secs_f64());
        let throttled = provider.throttled.with_label_values(&[call]);
        if outcome == "throttled" {
            throttled.inc();
        }
    }

    /// Records a complete read of one kind of object: `instances` or `routes`.
    pub fn observed(&self, of: &'static str) {
        self.part::<Observed>().lock().insert(of, Instant::now());
    }

    /// Time since the last complete read of each kind.
    pub fn observations(&self) -> Vec<(&'static str, Duration)> {
        self.part::<Observed>().lock().iter().map(|(of, at)| (*of, at.elapsed())).collect()
    }
}

#[cfg(test)]
mod tests {
    use ccm_provider::ErrorClass;

    use super::*;

    #[test]
    fn calls_are_counted_by_the_class_of_their_error() {
        let metrics = Metrics::new();
        let took = Duration::from_millis(10);
        metrics.provider_call("List", None, took);
        metrics.provider_call("List", Some(&ProviderError::bug("x")), took);
        metrics.provider_call(
            "List",
            Some(&ProviderError::new(ErrorClass::Throttled { after: None }, "slow down")),
            took,
        );
        for outcome in ["ok", "bug", "throttled"] {
            assert_eq!(
                metrics.sample(&format!("ccm_provider_calls_total{{call=\"List\",outcome=\"{outcome}\"}}")),
                Some(1.0)
            );
        }
        assert_eq!(metrics.sample("ccm_provider_throttled_total{call=\"List\"}"), Some(1.0));
        assert_eq!(metrics.sample("ccm_provider_call_duration_seconds_count{call=\"List\"}"), Some(3.0));
    }

    #[tokio::test(start_paused = true)]
    async fn the_age_of_an_observation_grows_until_the_next() {
        let metrics = Metrics::new();
        let age = "ccm_observation_age_seconds{of=\"routes\"}";
        assert_eq!(metrics.sample(age), None, "never seen is no age");
        metrics.observed("routes");
        tokio::time::advance(Duration::from_secs(90)).await;
        assert_eq!(metrics.sample(age), Some(90.0));
        metrics.observed("routes");
        assert_eq!(metrics.sample(age), Some(0.0));
    }
}
