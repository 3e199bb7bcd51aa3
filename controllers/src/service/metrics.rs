//! Metrics of the service controller, named as upstream's.

use std::sync::Arc;
use std::time::Instant;

use ccm_runtime::Metrics;
use ccm_runtime::metrics::Def;
use prometheus::{Histogram, IntCounter};

/// 2^0 … 2^14 seconds.
const BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

const SYNCS: Def = Def::counter(
    "service_controller_loadbalancer_sync_total",
    &[],
    "[ALPHA] A metric counting the amount of times any load balancer has been configured, as an effect of service/node changes on the cluster",
);
const NODE_SYNC_ERRORS: Def = Def::counter(
    "service_controller_nodesync_error_total",
    &[],
    "[ALPHA] A metric counting the amount of times any load balancer has been configured and errored, as an effect of node changes on the cluster",
);
const UPDATE_LATENCY: Def = Def::histogram(
    "service_controller_update_loadbalancer_host_latency_seconds",
    &[],
    BUCKETS,
    "[ALPHA] A metric measuring the latency for updating each load balancer hosts.",
);
const NODE_SYNC_LATENCY: Def = Def::histogram(
    "service_controller_nodesync_latency_seconds",
    &[],
    BUCKETS,
    "[ALPHA] A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
);
pub(crate) const DEFS: &[&Def] = &[&SYNCS, &NODE_SYNC_ERRORS, &UPDATE_LATENCY, &NODE_SYNC_LATENCY];

#[derive(Clone)]
pub(super) struct ServiceMetrics {
    pub(super) syncs: IntCounter,
    pub(super) node_sync_errors: IntCounter,
    pub(super) update_latency: Histogram,
    node_sync_latency: Histogram,
}

impl ServiceMetrics {
    pub(super) fn new(registry: &Metrics) -> Self {
        let counter = |def| registry.counter(def).with_label_values::<&str>(&[]);
        let histogram = |def| registry.histogram(def).with_label_values::<&str>(&[]);
        Self {
            syncs: counter(&SYNCS),
            node_sync_errors: counter(&NODE_SYNC_ERRORS),
            update_latency: histogram(&UPDATE_LATENCY),
            node_sync_latency: histogram(&NODE_SYNC_LATENCY),
        }
    }

    /// A pass over all Services, measured until the last of its host updates has ended.
    pub(super) fn pass(&self) -> Arc<Pass> {
        Arc::new(Pass { began: Instant::now(), latency: self.node_sync_latency.clone() })
    }
}

/// Held by every host update of a pass.
pub(super) struct Pass {
    began: Instant,
    latency: Histogram,
}

impl Drop for Pass {
    fn drop(&mut self) {
        self.latency.observe(self.began.elapsed().as_secs_f64());
    }
}
