//! Metrics of the service controller, named as upstream's.

use std::sync::Arc;
use std::time::Instant;

use ccm_runtime::Metrics;
use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, Histogram, IntCounter, Registry};

/// 2^0 … 2^14 seconds.
const BUCKETS: &[f64] =
    &[1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0, 2048.0, 4096.0, 8192.0, 16384.0];

metrics! {
    pub(crate) struct ServiceMetrics {
        pub(super) syncs: IntCounter = Def::counter(
            "service_controller_loadbalancer_sync_total",
            &[],
            "[ALPHA] A metric counting the amount of times any load balancer has been configured, as an effect of service/node changes on the cluster",
        );
        pub(super) node_sync_errors: IntCounter = Def::counter(
            "service_controller_nodesync_error_total",
            &[],
            "[ALPHA] A metric counting the amount of times any load balancer has been configured and errored, as an effect of node changes on the cluster",
        );
        pub(super) update_latency: Histogram = Def::histogram(
            "service_controller_update_loadbalancer_host_latency_seconds",
            &[],
            BUCKETS,
            "[ALPHA] A metric measuring the latency for updating each load balancer hosts.",
        );
        node_sync_latency: Histogram = Def::histogram(
            "service_controller_nodesync_latency_seconds",
            &[],
            BUCKETS,
            "[ALPHA] A metric measuring the latency for nodesync which updates loadbalancer hosts on cluster node updates.",
        );
    }
}

impl ServiceMetrics {
    /// The metrics, with `prefix` and an underscore before each name.
    pub(super) fn prefixed(registry: &Metrics, prefix: Option<&'static str>) -> Self {
        match prefix.map(|prefix| registry.prefixed(prefix)) {
            None => Self::new(registry),
            Some(Ok(own)) => Self::new(&own),
            Some(Err(error)) => {
                tracing::error!(%error, "metrics are not exported");
                Self::new(&Registry::new())
            }
        }
    }

    /// Starts a pass over all Services, measured until the last of its host updates has ended.
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
