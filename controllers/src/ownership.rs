//! Counts the nodes of other cloud controller managers that share the cluster (KEP-5778), once each time that a
//! controller leaves one alone.

use std::sync::Arc;

use ccm_provider::Node;
use ccm_runtime::metrics::{Def, IntCounterVec};
use ccm_runtime::{InstanceView, Metrics, metrics};

metrics! {
    pub(crate) struct OwnershipMetrics {
        skipped: IntCounterVec = Def::counter(
            "cloudprovider_node_ownership_skipped_total",
            &["controller", "reason"],
            "[ALPHA] Nodes that were left alone because this program does not own them, with the feature gate \
             CloudProviderNodeOwnership, by controller and reason: scheme_mismatch, not_owned (the cloud says so), \
             no_provider_id (unknown to the cloud), timeout_wait (--node-lifecycle-wait-timeout).",
        );
    }
}

/// The nodes that one controller leaves alone.
pub(crate) struct Skips {
    controller: &'static str,
    view: Arc<InstanceView>,
    metrics: OwnershipMetrics,
}

impl Skips {
    pub(crate) fn new(controller: &'static str, view: Arc<InstanceView>, metrics: &Metrics) -> Self {
        Self { controller, view, metrics: OwnershipMetrics::new(metrics) }
    }

    /// Whether other cloud controller managers share the cluster.
    pub(crate) fn is_hybrid(&self) -> bool {
        self.view.is_hybrid()
    }

    /// A node of another one: by its provider ID, or because the cloud says so.
    pub(crate) fn foreign(&self, node: &Node) {
        let by_scheme = self.view.is_foreign(node.provider_id.as_deref());
        self.note(if by_scheme { "scheme_mismatch" } else { "not_owned" });
    }

    pub(crate) fn note(&self, reason: &str) {
        if self.is_hybrid() {
            self.metrics.skipped.with_label_values(&[self.controller, reason]).inc();
        }
    }
}
