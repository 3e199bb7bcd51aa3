//! Metrics of the node controller; the histograms are upstream's.

use std::sync::Arc;

use ccm_provider::Node;
use ccm_runtime::metrics::{Def, Histogram, IntGauge};
use ccm_runtime::{Metrics, Store, metrics};

const BUCKETS: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

metrics! {
    pub(crate) struct NodeMetrics {
        pub(super) taint_removal: Histogram = Def::histogram(
            "node_controller_cloud_provider_taint_removal_delay_seconds",
            &[],
            BUCKETS,
            "[ALPHA] Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
        );
        pub(super) initial_sync: Histogram = Def::histogram(
            "node_controller_initial_node_sync_delay_seconds",
            &[],
            BUCKETS,
            "[ALPHA] Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
        );
        awaiting: IntGauge = Def::gauge(
            "ccm_nodes_awaiting_initialization",
            &[],
            "Nodes that still carry the taint node.cloudprovider.kubernetes.io/uninitialized.",
        );
    }
}

impl NodeMetrics {
    /// `awaits` returns whether a node must still be initialized.
    pub(super) fn of(
        registry: &Metrics,
        nodes: &Arc<Store<Node>>,
        awaits: impl Fn(&Node) -> bool + Send + 'static,
    ) -> Self {
        let metrics = Self::new(registry);
        let (nodes, awaiting) = (Arc::downgrade(nodes), metrics.awaiting.clone());
        registry.at_scrape("nodes awaiting initialization", move || {
            let count = nodes.upgrade().map_or(0, |nodes| nodes.list().iter().filter(|node| awaits(node)).count());
            awaiting.set(i64::try_from(count).unwrap_or(i64::MAX));
        });
        metrics
    }
}
