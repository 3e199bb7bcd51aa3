//! Metrics of the route controller.

use ccm_runtime::Metrics;
use ccm_runtime::metrics::Def;
use prometheus::IntCounter;

const SYNCS: Def = Def::counter(
    "route_controller_route_sync_total",
    &[],
    "[ALPHA] A metric counting the amount of times routes have been synced with the cloud provider.",
);
pub(crate) const DEFS: &[&Def] = &[&SYNCS];

/// Counts the syncs.
pub(super) fn syncs(registry: &Metrics) -> IntCounter {
    registry.counter(&SYNCS).with_label_values::<&str>(&[])
}
