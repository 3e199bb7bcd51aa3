//! Metrics of the calls: upstream's names and labels where they exist, else with `ccm_azure_`.
//!
//! Upstream: `pkg/metrics`, `pkg/azclient/metrics` and `pkg/trace/metrics` of cloud-provider-azure. The names of the latter two
//! are those that its exporter makes of `arm.request.duration` and the like.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{self, CallDefs, CallMetrics, Caller, Observer};
use ccm_provider::metric::{Def, GaugeVec, HistogramVec, IntCounterVec, Registry};

use super::operation::Operation;

const REQUESTS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 25.0, 50.0, 120.0, 300.0, 600.0, 1200.0];
const RECONCILES: &[f64] =
    &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 100.0, 200.0, 300.0, 600.0, 1200.0];
const ARM_REQUESTS: &[f64] = &[0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0, 300.0, 600.0];
const TRACED: &[f64] = &[0.1, 0.2, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 600.0];
const ARM: &[&str] = &["subscription_id", "resource_group", "resource", "method"];
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
        arm_duration: HistogramVec = Def::histogram(
            "arm_request_duration_seconds", ARM, ARM_REQUESTS, "Measures the duration of Azure ARM API calls.",
        );
        arm_errors: IntCounterVec = Def::counter(
            "arm_request_errors_counter_total",
            &["subscription_id", "resource_group", "resource", "method", "status_code", "error_code"],
            "Measures the number of errors in Azure ARM API calls.",
        );
        arm_limited: IntCounterVec = Def::counter(
            "arm_request_rate_limit_counter_total", ARM, "Measures the number of rate-limited Azure ARM API calls.",
        );
        arm_throttled: IntCounterVec = Def::counter(
            "arm_request_throttle_counter_total", ARM, "Measures the number of throttled Azure ARM API calls.",
        );
        traced: HistogramVec = Def::histogram(
            "provider_reconcile_duration_seconds", &["name"], TRACED,
            "Measures the duration of reconcile operations in seconds.",
        );
        traced_errors: IntCounterVec = Def::counter(
            "provider_reconcile_errors_counter_total", &["name"],
            "Measures the number of errors during reconcile operations.",
        );
        remaining: GaugeVec = Def::gauge(
            "ccm_azure_api_remaining", &["subscription_id", "budget"],
            "The calls that Azure still allows, as its last answer says: of a kind in a subscription, or of a resource provider.",
        );
    }
}

static CALLS: CallDefs = ccm_kit::call_metrics!("ccm_azure_api", "Azure");

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    let requests = "Every operation has its `request`; a write and its wait are counted apart.\n\
The label `source` is empty: a call here is for all Services or nodes of a moment.\n\
`cloudprovider_azure_op_*` has `services_ensure_loadbalancer`, `services_update_loadbalancer`, `services_ensure_loadbalancer_deleted`,\n\
`routes_create_route` and `routes_delete_route` for the work on each Service and route, and `services_ensure_privatelinkservice`,\n\
`services_ensure_privatelinkservice_deleted`, `services_local_update_backend_pool` and `services_migrate_to_ip_based_backend_pool` for\n\
writes: where nothing is written, they count nothing.\n\
\n\
Not here: `services_vmss_*`, `services_vmssflex_*` and `services_vmas_*`, because one write of a machine is for all Services;\n\
`services_migrate_to_nic_based_backend_pool`, because nothing is migrated that way; `difftracker_engine_*`, `services_InitializeFromCluster` and\n\
`locations_*` of the service gateway, which is not supported; and `node_ipam_controller_rate_limiter_use`, which the Go program never sets.";
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
        let arm = &[place.subscription, &*group, operation.resource.arm, operation.verb.arm()];
        self.arm_duration.with_label_values(arm).observe(took.as_secs_f64());
        if let Some(error) = error {
            let code = if error.code.is_empty() { error.outcome() } else { &*error.code };
            self.errors.with_label_values(&[request, &*group, place.subscription, "", code]).inc();
            if !matches!(error.kind, call::ErrorKind::Throttled { .. }) {
                let status = error.status.map(|status| status.to_string()).unwrap_or_default();
                let [subscription, group, resource, method] = *arm;
                let labels = &[subscription, group, resource, method, &*status, &*error.code];
                self.arm_errors.with_label_values(labels).inc();
            }
        }
    }

    /// Records an answer that asks for fewer calls. The request may yet succeed.
    pub(super) fn throttled(&self, operation: Operation, place: Place<'_>) {
        let group = place.group.to_ascii_lowercase();
        let labels = &[call::Operation::name(&operation), &*group, place.subscription, ""];
        self.throttled.with_label_values(labels).inc();
        let arm = &[place.subscription, &*group, operation.resource.arm, operation.verb.arm()];
        self.arm_throttled.with_label_values(arm).inc();
    }

    /// Records a call that the configured rate limit has held back.
    pub(super) fn rate_limited(&self, operation: Operation, place: Place<'_>) {
        let group = place.group.to_ascii_lowercase();
        let labels = &[call::Operation::name(&operation), &*group, place.subscription, ""];
        self.limited.with_label_values(labels).inc();
        let arm = &[place.subscription, &*group, operation.resource.arm, operation.verb.arm()];
        self.arm_limited.with_label_values(arm).inc();
    }

    /// Records the work on a Service or route: `services_ensure_loadbalancer`, `routes_create_route`.
    pub(crate) fn reconciled(&self, request: &str, place: Place<'_>, succeeded: bool, took: Duration) {
        let group = place.group.to_ascii_lowercase();
        let labels = &[request, &*group, place.subscription, ""];
        self.op_duration.with_label_values(labels).observe(took.as_secs_f64());
        if !succeeded {
            self.op_failures.with_label_values(labels).inc();
        }
        let name = match request {
            "services_ensure_loadbalancer" => "EnsureLoadBalancer",
            "services_update_loadbalancer" => "UpdateLoadBalancer",
            "services_ensure_loadbalancer_deleted" => "EnsureLoadBalancerDeleted",
            _ => return,
        };
        self.traced.with_label_values(&[name]).observe(took.as_secs_f64());
        if !succeeded {
            self.traced_errors.with_label_values(&[name]).inc();
        }
    }

    /// Records the calls that remain.
    pub(super) fn remains(&self, subscription: &str, budget: &str, calls: f64) {
        self.remaining.with_label_values(&[subscription, budget]).set(calls);
    }
}
