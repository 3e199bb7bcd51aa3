//! Drift: differences in the cloud that no change of an object explains.
//!
//! If the plan is not empty for an object that was in sync and did not change since, something else changed the cloud.

use ccm_runtime::metrics::{Def, IntCounterVec, IntGaugeVec};
use ccm_runtime::{Metrics, metrics};

metrics! {
    pub(crate) struct DriftMetrics {
        now: IntGaugeVec = Def::gauge(
            "ccm_drift_steps",
            &["controller"],
            "Writes that the last check of the cloud found due although no object had changed: another client changed \
             the cloud. Routes are checked in every reconcile, load balancers every --drift-check-period; absent \
             before the first check.",
        );
        total: IntCounterVec = Def::counter(
            "ccm_drift_steps_total",
            &["controller"],
            "Writes that checks of the cloud found due although no object had changed, each counted when it was first \
             seen, and with --drift-repair whenever a check finds it.",
        );
    }
}

/// The metrics of one controller. They are absent before its first check: 0 means that it checked and found nothing.
#[derive(Clone)]
pub(crate) struct Drift {
    controller: String,
    metrics: DriftMetrics,
}

impl Drift {
    pub(crate) fn new(registry: &Metrics, controller: &str) -> Self {
        Self { controller: controller.to_owned(), metrics: DriftMetrics::new(registry) }
    }

    /// Records a check: the due writes, and those among them that were not due at the last check.
    pub(crate) fn saw(&self, steps: usize, new: usize) {
        let of = &[&self.controller];
        self.metrics.now.with_label_values(of).set(i64::try_from(steps).unwrap_or(i64::MAX));
        self.metrics.total.with_label_values(of).inc_by(u64::try_from(new).unwrap_or(u64::MAX));
    }
}
