//! Metrics of the lifecycle controller.

use ccm_provider::{Lookup, ProviderError};
use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, Histogram, IntCounterVec, IntGauge};

/// 0.001 · 2^0 … 2^14 seconds.
const BUCKETS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];

metrics! {
    pub(crate) struct LifecycleMetrics {
        pub(super) duration: Histogram = Def::histogram(
            "cloud_node_lifecycle_controller_monitor_nodes_duration_seconds",
            &[],
            BUCKETS,
            "[ALPHA] Duration of a pass over all nodes.",
        );
        answers: IntCounterVec = Def::counter(
            "cloud_node_lifecycle_controller_cloud_provider_calls_total",
            &["operation", "result"],
            "[ALPHA] Answers of the cloud about nodes that are not Ready, by operation and result. The Go program makes a \
             call for each; here all of a pass come from one lookup, see ccm_provider_calls_total.",
        );
        pub(super) foreign: IntGauge = Def::gauge("ccm_foreign_nodes", &[], "Nodes with the provider ID of another cloud; never touched.");
        pub(super) deferred: IntGauge = Def::gauge(
            "ccm_nodes_deletion_deferred",
            &[],
            "Nodes whose instance is gone but whose deletion waits for the budget of a later pass.",
        );
    }
}

impl LifecycleMetrics {
    /// Counts the answer about one node.
    pub(super) fn answered(&self, answer: &Lookup) {
        let exists = match answer {
            Lookup::Found(_) => "success",
            Lookup::Gone(_) => "instance_not_found",
            Lookup::Foreign => "not_owned",
            Lookup::Unknown(error) => result(error),
        };
        self.answers.with_label_values(&["instance_exists", exists]).inc();
        if let Lookup::Found(instance) = answer {
            let shutdown = instance.shutdown.as_ref().map_or_else(result, |_| "success");
            self.answers.with_label_values(&["instance_shutdown", shutdown]).inc();
        }
    }
}

fn result(error: &ProviderError) -> &'static str {
    match error.root() {
        ProviderError::NotImplemented => "not_implemented",
        ProviderError::InstanceNotFound => "instance_not_found",
        ProviderError::NotOwned => "not_owned",
        _ => "error",
    }
}
