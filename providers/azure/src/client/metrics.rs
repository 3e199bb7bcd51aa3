//! Metrics of the calls: upstream's names and labels where they exist, else with `ccm_azure_`.
//!
//! Upstream: `pkg/metrics` of cloud-provider-azure.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{self, CallDefs, CallMetrics, Caller, Observer};
use ccm_provider::metric::{Def, HistogramVec, IntCounterVec, Registry};

use super::operation::Operation;

const REQUESTS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0, 1200.0];
const RECONCILES: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
const LABELS: &[&str] = &["request", "resource_group", "subscription_id", "source"];

ccm_provider::metrics! {
    /// Upstream's metrics. Cheap to clone. The label `source` is empty: upstream's values are Services and nodes.
    pub(crate) struct Metrics {
        duration: HistogramVec = Def::histogram(
            "cloudprovider_azure_api_request_duration_seconds", LABELS, REQUESTS, "Latency of an Azure API call",
        );
        errors: IntCounterVec = Def::counter(
            "cloudprovider_azure_api_request_errors",
            &["request", "resource_group", "subscription_id", "source", "code"],
            "Number of errors for an Azure API call",
        );
        limited: IntCounterVec = Def::counter(
            "cloudprovider_azure_api_request_ratelimited_count", LABELS, "Number of rate limited Azure API calls",
        );
        throttled: IntCounterVec = Def::counter(
            "cloudprovider_azure_api_request_throttled_count", LABELS, "Number of throttled Azure API calls",
        );
        op_duration: HistogramVec = Def::histogram(
            "cloudprovider_azure_op_duration_seconds", LABELS, RECONCILES, "Latency of an Azure service operation",
        );
        op_failures: IntCounterVec = Def::counter(
            "cloudprovider_azure_op_failure_count", LABELS, "Number of failed Azure service operations",
        );
    }
}

static CALLS: CallDefs = ccm_kit::call_metrics!("ccm_azure_api", "Azure");

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    let requests = "Every operation has its `request`; a write and its wait are counted apart.";
    CALLS.page("azure", requests, Metrics::DEFS.iter().copied())
}

/// The caller of a provider and the metrics that it records.
pub(crate) fn caller(registry: &Registry) -> (Caller<Operation>, Metrics) {
    (Caller::new(CallMetrics::new(registry, &CALLS), Arc::new(Uncounted)), Metrics::new(registry))
}

/// Upstream's metrics have labels that an operation lacks: the client records them.
#[derive(Debug)]
struct Uncounted;

impl Observer<Operation> for Uncounted {
    fn operation(&self, _: Operation, _: bool, _: Duration) {}
    fn attempt(&self, _: Operation, _: &'static str) {}
}

/// The resource group and the subscription of a call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Place<'a> {
    pub(crate) group: &'a str,
    pub(crate) subscription: &'a str,
}

impl Metrics {
    /// Records a request that has ended, with all its pages and attempts.
    pub(super) fn request(
        &self,
        operation: Operation,
        place: Place<'_>,
        error: Option<&super::ApiError>,
        took: Duration,
    ) {
        let (request, group) = (call::Operation::name(&operation), place.group.to_ascii_lowercase());
        let labels = &[request, &*group, place.subscription, ""];
        self.duration.with_label_values(labels).observe(took.as_secs_f64());
        if let Some(error) = error {
            let code = if error.code.is_empty() { error.outcome() } else { &*error.code };
            self.errors.with_label_values(&[request, &*group, place.subscription, "", code]).inc();
            if matches!(error.kind, call::ErrorKind::Throttled { .. }) {
                self.throttled.with_label_values(labels).inc();
            }
        }
    }

    /// Records a call that the configured rate limit has held back.
    pub(super) fn rate_limited(&self, operation: Operation, place: Place<'_>) {
        let group = place.group.to_ascii_lowercase();
        let labels = &[call::Operation::name(&operation), &*group, place.subscription, ""];
        self.limited.with_label_values(labels).inc();
    }

    /// Records the work on a Service or route: `services_ensure_loadbalancer`, `routes_create_route`.
    pub(crate) fn reconciled(&self, request: &str, place: Place<'_>, succeeded: bool, took: Duration) {
        let group = place.group.to_ascii_lowercase();
        let labels = &[request, &*group, place.subscription, ""];
        self.op_duration.with_label_values(labels).observe(took.as_secs_f64());
        if !succeeded {
            self.op_failures.with_label_values(labels).inc();
        }
    }
}
