//! Metrics of calls and reconciles: upstream's names and labels, and `ccm_openstack_` for our own.
//!
//! Upstream: `pkg/metrics` of cloud-provider-openstack.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{BUCKETS, CallDefs, CallMetrics, Caller, Observer};
use ccm_provider::metric::{Def, HistogramVec, IntCounterVec, Registry};

use super::operation::Operation;

const RECONCILE: &[f64] = &[
    0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 7.5, 10.0, 12.5, 15.0, 17.5, 20.0, 22.5, 25.0, 27.5, 30.0, 50.0, 75.0, 100.0,
    1000.0,
];

ccm_provider::metrics! {
    /// Upstream's metrics. Cheap to clone.
    pub(crate) struct Metrics {
        duration: HistogramVec = Def::histogram(
            "openstack_api_request_duration_seconds",
            &["request"],
            BUCKETS,
            "Latency of an OpenStack API call",
        );
        total: IntCounterVec = Def::counter("openstack_api_requests_total", &["request"], "Total number of OpenStack API calls");
        errors: IntCounterVec = Def::counter(
            "openstack_api_request_errors_total",
            &["request"],
            "Total number of errors for an OpenStack API call",
        );
        reconcile_duration: HistogramVec = Def::histogram(
            "cloudprovider_openstack_reconcile_duration_seconds",
            &["operation"],
            RECONCILE,
            "Time taken by various parts of OpenStack cloud controller manager reconciliation loops",
        );
        reconcile_total: IntCounterVec = Def::counter(
            "cloudprovider_openstack_reconcile_total",
            &["operation"],
            "Total number of OpenStack cloud controller manager reconciliations",
        );
        reconcile_errors: IntCounterVec = Def::counter(
            "cloudprovider_openstack_reconcile_errors_total",
            &["operation"],
            "Total number of OpenStack cloud controller manager reconciliation errors",
        );
    }
}

static CALLS: CallDefs = ccm_kit::call_metrics!("ccm_openstack_api", "OpenStack");

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    CALLS.page("openstack", "Every operation has its `request`.", Metrics::DEFS.iter().copied())
}

/// The caller of a provider and the metrics that it counts.
pub(crate) fn caller(registry: &Registry) -> (Caller<Operation>, Metrics) {
    let metrics = Metrics::new(registry);
    (Caller::new(CallMetrics::new(registry, &CALLS), Arc::new(metrics.clone())), metrics)
}

impl Observer<Operation> for Metrics {
    fn operation(&self, operation: Operation, succeeded: bool, took: Duration) {
        let request = &[ccm_kit::call::Operation::name(&operation)];
        self.duration.with_label_values(request).observe(took.as_secs_f64());
        self.total.with_label_values(request).inc();
        if !succeeded {
            self.errors.with_label_values(request).inc();
        }
    }

    fn attempt(&self, _: Operation, _: &'static str) {}
}

impl Metrics {
    /// Counts a Service that was ensured, updated or deleted.
    pub(crate) fn reconciled(&self, operation: &str, succeeded: bool, took: Duration) {
        let operation = &[operation];
        self.reconcile_duration.with_label_values(operation).observe(took.as_secs_f64());
        self.reconcile_total.with_label_values(operation).inc();
        if !succeeded {
            self.reconcile_errors.with_label_values(operation).inc();
        }
    }
}
