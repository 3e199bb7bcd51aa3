//! Metrics of the ranges, named as upstream's (`pkg/controller/nodeipam/ipam/cidrset/metrics.go`).

use ccm_runtime::Metrics;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts};

use super::cidr_set::CidrSet;

/// 5^0 … 5^4 tries.
const BUCKETS: [f64; 5] = [1.0, 5.0, 25.0, 125.0, 625.0];
const LABELS: [&str; 1] = ["clusterCIDR"];

#[derive(Clone)]
pub(super) struct IpamMetrics {
    allocations: IntCounterVec,
    releases: IntCounterVec,
    max: IntGaugeVec,
    usage: GaugeVec,
    tries: HistogramVec,
}

impl IpamMetrics {
    // Fails only on malformed constant names, which every test of the controller would show.
    #[allow(clippy::expect_used)]
    pub(super) fn new(registry: &Metrics) -> Self {
        let opts = |name: &str, help: &str| Opts::new(format!("node_ipam_controller_{name}"), help);
        let counter = |name: &str, help: &str| {
            registry.register(IntCounterVec::new(opts(name, help), &LABELS).expect("constant name"))
        };
        let tries = HistogramOpts::from(opts(
            "cidrset_allocation_tries_per_request",
            "Number of endpoints added on each Service sync",
        ));
        Self {
            allocations: counter(
                "cidrset_cidrs_allocations_total",
                "Counter measuring total number of CIDR allocations.",
            ),
            releases: counter("cidrset_cidrs_releases_total", "Counter measuring total number of CIDR releases."),
            // The name has this slip upstream.
            max: registry.register(
                IntGaugeVec::new(opts("cirdset_max_cidrs", "Maximum number of CIDRs that can be allocated."), &LABELS)
                    .expect("constant name"),
            ),
            usage: registry.register(
                GaugeVec::new(opts("cidrset_usage_cidrs", "Gauge measuring percentage of allocated CIDRs."), &LABELS)
                    .expect("constant name"),
            ),
            tries: registry
                .register(HistogramVec::new(tries.buckets(BUCKETS.to_vec()), &LABELS).expect("constant name")),
        }
    }

    /// Shows how the ranges stand.
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

    /// Counts how many used blocks each range's search met.
    #[allow(clippy::cast_precision_loss)] // a count
    pub(super) fn tried(&self, sets: &[CidrSet], tries: &[u64]) {
        for (set, tries) in sets.iter().zip(tries) {
            self.tries.with_label_values(&[&set.range().to_string()]).observe(*tries as f64);
        }
    }
}
