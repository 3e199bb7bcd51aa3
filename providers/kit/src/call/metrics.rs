//! Metrics of calls.

use std::fmt::Debug;
use std::time::Duration;

use ccm_provider::metric::{Def, Exported, GaugeVec, HistogramVec, IntCounterVec, Registry, markdown};

use super::Operation;

/// The default buckets of duration histograms, the same as in Go's client.
pub const BUCKETS: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];

/// The metrics of a cloud's calls; see [`call_metrics!`](crate::call_metrics!).
#[derive(Debug)]
pub struct CallDefs {
    #[doc(hidden)]
    pub calls: Def,
    #[doc(hidden)]
    pub held_back: Def,
    #[doc(hidden)]
    pub waited: Def,
    #[doc(hidden)]
    pub backing_off: Def,
    #[doc(hidden)]
    pub pressure: Def,
}

impl CallDefs {
    fn list(&'static self) -> [&'static Def; 5] {
        [&self.calls, &self.held_back, &self.waited, &self.backing_off, &self.pressure]
    }

    /// The reference page of a provider, with its other metrics, in Markdown. `requests`: what the metrics count.
    pub fn page(
        &'static self,
        provider: &str,
        requests: &str,
        others: impl IntoIterator<Item = &'static Def>,
    ) -> String {
        let defs: Vec<&Def> = others.into_iter().chain(self.list()).collect();
        format!(
            "# Metrics of the provider {provider}\n\n\
             `/metrics` shows these beside [those of the program](../../../ccm/docs/metrics.md). {requests}\n\n\
             This page is generated: `cargo xtask reference`.\n\n{}\n",
            markdown(&defs).trim_end()
        )
    }
}

/// Defines the metrics of a cloud's calls from the prefix of their names and the cloud's name:
/// `call_metrics!("ccm_aws_api", "AWS")`.
#[macro_export]
macro_rules! call_metrics {
    ($prefix:literal, $cloud:literal) => {
        $crate::call::CallDefs {
            calls: $crate::call::Def::counter(
                concat!($prefix, "_calls_total"),
                &["service", "operation", "outcome"],
                "Attempts by outcome: ok, refused, throttled, credentials, not-sent, no-answer, malformed.",
            ),
            held_back: $crate::call::Def::counter(
                concat!($prefix, "_held_back_total"),
                &["service", "operation"],
                concat!(
                    "Operations that were given up without being sent, because ",
                    $cloud,
                    " had asked for fewer calls or the pace was used up."
                ),
            ),
            waited: $crate::call::Def::histogram(
                concat!($prefix, "_wait_seconds"),
                &["family"],
                &[0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0],
                concat!("How long a call waited for its turn, by the budget of ", $cloud, " that it belongs to."),
            ),
            backing_off: $crate::call::Def::gauge(
                concat!($prefix, "_backing_off"),
                &["family"],
                concat!("1 while calls of a family are held back because ", $cloud, " asked for fewer."),
            ),
            pressure: $crate::call::Def::gauge(
                concat!($prefix, "_throttled_share"),
                &["family"],
                concat!(
                    "The share of recent calls of a family that ",
                    $cloud,
                    " throttled, from 0 to 1; it slows the pace."
                ),
            ),
        }
    };
}

/// Records the additional metrics of a cloud's Go program, under their names.
pub trait Observer<O>: Debug + Send + Sync {
    /// An operation ended, with all its pages and attempts.
    fn operation(&self, operation: O, succeeded: bool, took: Duration);
    /// An attempt ended: `ok`, or [`CallError::outcome`](super::CallError::outcome).
    fn attempt(&self, operation: O, outcome: &'static str);
}

/// The metrics of a caller. Cheap to clone.
#[derive(Debug, Clone)]
pub struct CallMetrics {
    calls: IntCounterVec,
    held_back: IntCounterVec,
    waited: HistogramVec,
    backing_off: GaugeVec,
    pressure: GaugeVec,
}

impl CallMetrics {
    /// Registers the metrics.
    pub fn new(registry: &Registry, defs: &CallDefs) -> Self {
        Self {
            calls: Exported::export(registry, &defs.calls),
            held_back: Exported::export(registry, &defs.held_back),
            waited: Exported::export(registry, &defs.waited),
            backing_off: Exported::export(registry, &defs.backing_off),
            pressure: Exported::export(registry, &defs.pressure),
        }
    }

    pub(super) fn attempt(&self, operation: impl Operation, outcome: &str) {
        self.calls.with_label_values(&[operation.service(), operation.name(), outcome]).inc();
    }

    pub(super) fn held_back(&self, operation: impl Operation) {
        self.held_back.with_label_values(&[operation.service(), operation.name()]).inc();
    }

    pub(super) fn waited(&self, budget: &str, waited: Duration) {
        self.waited.with_label_values(&[budget]).observe(waited.as_secs_f64());
    }

    /// Sets the state of a budget.
    pub(super) fn budget(&self, budget: &str, backing_off: bool, pressure: f64) {
        self.backing_off.with_label_values(&[budget]).set(f64::from(u8::from(backing_off)));
        self.pressure.with_label_values(&[budget]).set(pressure);
    }
}
