//! Metrics of the node controller; the histograms are upstream's.

use std::sync::Arc;

use ccm_provider::Node;
use ccm_runtime::metrics::Def;
use ccm_runtime::{Metrics, Store};
use prometheus::{Histogram, IntGauge};

const BUCKETS: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

const TAINT_REMOVAL: Def = Def::histogram(
    "node_controller_cloud_provider_taint_removal_delay_seconds",
    &[],
    BUCKETS,
    "[ALPHA] Number of seconds after node creation when NodeController removed the cloud-provider taint of a single node.",
);
const INITIAL_SYNC: Def = Def::histogram(
    "node_controller_initial_node_sync_delay_seconds",
    &[],
    BUCKETS,
    "[ALPHA] Number of seconds after node creation when NodeController finished the initial synchronization of a single node.",
);
const AWAITING: Def = Def::gauge(
    "ccm_nodes_awaiting_initialization",
    &[],
    "Nodes that still carry the taint node.cloudprovider.kubernetes.io/uninitialized.",
);
pub(crate) const DEFS: &[&Def] = &[&TAINT_REMOVAL, &INITIAL_SYNC, &AWAITING];

pub(super) struct NodeMetrics {
    pub(super) taint_removal: Histogram,
    pub(super) initial_sync: Histogram,
}

impl NodeMetrics {
    /// `awaits` says whether a node is still to be initialized.
    pub(super) fn new(registry: &Metrics, nodes: &Arc<Store<Node>>, awaits: fn(&Node) -> bool) -> Self {
        let histogram = |def| registry.histogram(def).with_label_values::<&str>(&[]);
        let awaiting: IntGauge = registry.gauge(&AWAITING).with_label_values::<&str>(&[]);
        let nodes = Arc::downgrade(nodes);
        registry.at_scrape(move || {
            let count = nodes.upgrade().map_or(0, |nodes| nodes.list().iter().filter(|node| awaits(node)).count());
            awaiting.set(i64::try_from(count).unwrap_or(i64::MAX));
        });
        Self { taint_removal: histogram(&TAINT_REMOVAL), initial_sync: histogram(&INITIAL_SYNC) }
    }
}
