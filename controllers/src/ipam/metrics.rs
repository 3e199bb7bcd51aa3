//! Metrics of the ranges, named as upstream's (`pkg/controller/nodeipam/ipam/cidrset/metrics.go`).

use ccm_runtime::metrics;
use ccm_runtime::metrics::{Def, GaugeVec, HistogramVec, IntCounterVec, IntGaugeVec};

use super::cidr_set::CidrSet;

/// 5^0 … 5^4 tries.
const BUCKETS: &[f64] = &[1.0, 5.0, 25.0, 125.0, 625.0];
const LABELS: &[&str] = &["clusterCIDR"];

metrics! {
    pub(crate) struct IpamMetrics {
        allocations: IntCounterVec = Def::counter(
            "node_ipam_controller_cidrset_cidrs_allocations_total",
            LABELS,
            "[ALPHA] Counter measuring total number of CIDR allocations.",
        );
        releases: IntCounterVec = Def::counter(
            "node_ipam_controller_cidrset_cidrs_releases_total",
            LABELS,
            "[ALPHA] Counter measuring total number of CIDR releases.",
        );
        /// The name has this typo upstream.
        max: IntGaugeVec = Def::gauge(
            "node_ipam_controller_cirdset_max_cidrs",
            LABELS,
            "[ALPHA] Maximum number of CIDRs that can be allocated.",
        );
        usage: GaugeVec = Def::gauge(
            "node_ipam_controller_cidrset_usage_cidrs",
            LABELS,
            "[ALPHA] Gauge measuring percentage of allocated CIDRs.",
        );
        tries: HistogramVec = Def::histogram(
            "node_ipam_controller_cidrset_allocation_tries_per_request",
            LABELS,
            BUCKETS,
            "[ALPHA] Number of endpoints added on each Service sync",
        );
    }
}

impl IpamMetrics {
    /// Exports the usage of the ranges.
    #[allow(clippy::cast_precision_loss)] // a share
    pub(super) fn update(&self, sets: &[CidrSet]) {
        for set in sets {
            let label = set.range().to_string();
            let label = [label.as_str()];
            let totals = set.totals();
            for (counter, total) in [(&self.allocations, totals.allocations), (&self.releases, totals.releases)] {
                let counter = counter.with_label_values(&label);
                counter.inc_by(total.saturating_sub(counter.get()));
            }
            self.max.with_label_values(&label).set(i64::try_from(set.blocks()).unwrap_or(i64::MAX));
            self.usage.with_label_values(&label).set(set.used() as f64 / set.blocks() as f64);
        }
    }

    /// Counts the used blocks that the search in each range skipped.
    #[allow(clippy::cast_precision_loss)] // a count
    pub(super) fn tried(&self, sets: &[CidrSet], tries: &[u64]) {
        for (set, tries) in sets.iter().zip(tries) {
            self.tries.with_label_values(&[&set.range().to_string()]).observe(*tries as f64);
        }
    }
}
