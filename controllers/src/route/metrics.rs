//! Metrics of the route controller.

use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, IntCounter};

metrics! {
    pub(crate) struct RouteMetrics {
        pub(super) syncs: IntCounter = Def::counter(
            "route_controller_route_sync_total",
            &[],
            "[ALPHA] A metric counting the amount of times routes have been synced with the cloud provider.",
        );
    }
}
