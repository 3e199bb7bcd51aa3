//! Drift: what the cloud has that no change of an object explains.
//!
//! A plan that is not empty for an object that was in order and did not change since: somebody else changed the cloud.

use ccm_runtime::Metrics;
use ccm_runtime::metrics::Def;
use prometheus::{IntCounterVec, IntGaugeVec};

const OBJECTS: Def = Def::gauge(
    "ccm_drift_steps",
    &["controller"],
    "Writes that the last look at the cloud found due although no object had changed: somebody else changed the cloud. Routes are looked at in every reconcile, load balancers every --drift-check-period; not there before the first look.",
);
const TOTAL: Def = Def::counter(
    "ccm_drift_steps_total",
    &["controller"],
    "Writes that looks at the cloud found due although no object had changed, each counted when it was first seen.",
);
pub(crate) const DEFS: &[&Def] = &[&OBJECTS, &TOTAL];

/// The metrics of one controller. They are not there before its first look: 0 means that it looked and found nothing.
#[derive(Clone)]
pub(crate) struct Drift {
    controller: String,
    now: IntGaugeVec,
    total: IntCounterVec,
}

impl Drift {
    pub(crate) fn new(registry: &Metrics, controller: &str) -> Self {
        Self { controller: controller.to_owned(), now: registry.gauge(&OBJECTS), total: registry.counter(&TOTAL) }
    }

    /// What a look found: the writes that are due, and those among them that were not due at the last look.
    pub(crate) fn saw(&self, steps: usize, new: usize) {
        let of = &[&self.controller];
        self.now.with_label_values(of).set(i64::try_from(steps).unwrap_or(i64::MAX));
        self.total.with_label_values(of).inc_by(u64::try_from(new).unwrap_or(u64::MAX));
    }
}
