//! Metrics of the lifecycle controller.

use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, IntGauge};

metrics! {
    pub(crate) struct LifecycleMetrics {
        pub(super) foreign: IntGauge = Def::gauge("ccm_foreign_nodes", &[], "Nodes with the provider ID of another cloud; never touched.");
        pub(super) deferred: IntGauge = Def::gauge(
            "ccm_nodes_deletion_deferred",
            &[],
            "Nodes whose instance is gone but whose deletion waits for the budget of a later pass.",
        );
    }
}
