//! Metrics of the calls: upstream's names and labels where they exist, else with `ccm_gce_`.
//!
//! Upstream: `providers/gce/metrics.go` and `token_source.go` of cloud-provider-gcp.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{self, BUCKETS, CallDefs, CallMetrics, Caller, Observer};
use ccm_provider::metric::{Def, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::operation::Operation;
use super::resource::Scope;

/// The value of a label that a request lacks.
const UNUSED: &str = "<n/a>";
const VERSION: &str = "v1";

ccm_provider::metrics! {
    /// Upstream's metrics. Cheap to clone.
    pub(crate) struct Metrics {
        duration: HistogramVec = Def::histogram(
            "cloudprovider_gce_api_request_duration_seconds",
            &["request", "region", "zone", "version"],
            BUCKETS,
            "Latency of a GCE API call",
        );
        errors: IntCounterVec = Def::counter(
            "cloudprovider_gce_api_request_errors",
            &["request", "region", "zone", "version"],
            "Number of errors for an API call",
        );
        pub(crate) tokens: IntCounter = Def::counter(
            "get_token_count",
            &[],
            "Counter of total Token() requests to the alternate token source",
        );
        pub(crate) failed_tokens: IntCounter = Def::counter(
            "get_token_fail_count",
            &[],
            "Counter of failed Token() requests to the alternate token source",
        );
    }
}

static CALLS: CallDefs = ccm_kit::call_metrics!("ccm_gce_api", "GCE");

/// The reference page of these metrics and of others, in Markdown.
pub(crate) fn page(others: &[&'static Def]) -> String {
    let requests = "Every operation has its `request`; a write lasts until\nits operation has ended.";
    CALLS.page("gce", requests, Metrics::DEFS.iter().chain(others).copied())
}

/// The caller of a provider and the metrics that it records.
pub(crate) fn caller(registry: &Registry) -> (Caller<Operation>, Metrics) {
    (Caller::new(CallMetrics::new(registry, &CALLS), Arc::new(Uncounted)), Metrics::new(registry))
}

/// Upstream's metrics have labels that an operation lacks, and measure a write with its wait: the client records them.
#[derive(Debug)]
struct Uncounted;

impl Observer<Operation> for Uncounted {
    fn operation(&self, _: Operation, _: bool, _: Duration) {}
    fn attempt(&self, _: Operation, _: &'static str) {}
}

impl Metrics {
    /// Records a request that has ended, with all its pages and attempts.
    pub(crate) fn request(&self, operation: Operation, scope: &Scope, succeeded: bool, took: Duration) {
        let (region, zone) = match scope {
            Scope::Region(region) => (&**region, UNUSED),
            Scope::Zone(zone) => (UNUSED, &**zone),
            Scope::Project | Scope::Global => (UNUSED, UNUSED),
        };
        let labels = &[call::Operation::name(&operation), region, zone, VERSION];
        self.duration.with_label_values(labels).observe(took.as_secs_f64());
        if !succeeded {
            self.errors.with_label_values(labels).inc();
        }
    }
}
