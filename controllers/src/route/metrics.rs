//! Metrics of the route controller.

use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, IntCounterVec};

metrics! {
    pub(crate) struct RouteMetrics {
        pub(super) syncs: IntCounterVec = Def::counter(
            "route_controller_route_sync_total",
            &["outcome", "trigger"],
            "[ALPHA] Reconciles of the routes, by outcome (changed, noop, error) and trigger (periodic, node_change).",
        );
    }
}
