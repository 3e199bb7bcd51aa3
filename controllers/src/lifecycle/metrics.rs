//! Metrics of the lifecycle controller.

use ccm_runtime::Metrics;
use ccm_runtime::metrics::Def;
use prometheus::IntGauge;

const FOREIGN: Def =
    Def::gauge("ccm_foreign_nodes", &[], "Nodes with the provider ID of another cloud; never touched.");
const DEFERRED: Def = Def::gauge(
    "ccm_nodes_deletion_deferred",
    &[],
    "Nodes whose instance is gone but whose deletion waits for the budget of a later pass.",
);
pub(crate) const DEFS: &[&Def] = &[&FOREIGN, &DEFERRED];

pub(super) struct LifecycleMetrics {
    pub(super) foreign: IntGauge,
    pub(super) deferred: IntGauge,
}

impl LifecycleMetrics {
    pub(super) fn new(registry: &Metrics) -> Self {
        let gauge = |def| registry.gauge(def).with_label_values::<&str>(&[]);
        Self { foreign: gauge(&FOREIGN), deferred: gauge(&DEFERRED) }
    }
}
