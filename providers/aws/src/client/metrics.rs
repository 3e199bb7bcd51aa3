//! Metrics of the calls to AWS and of tagging: upstream's names and labels where they exist, else with `ccm_aws_`.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::call::{BUCKETS, CallDefs, CallMetrics, Caller, Observer};
use ccm_provider::metric::{Def, HistogramVec, IntCounterVec, Registry};

use crate::client::operation::Operation;

const TAGGING: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];

ccm_provider::metrics! {
    /// Upstream's metrics. Cheap to clone.
    pub(crate) struct Metrics {
        duration: HistogramVec = Def::histogram(
            "cloudprovider_aws_api_request_duration_seconds",
            &["request"],
            BUCKETS,
            "[ALPHA] Latency of AWS API calls; those that succeeded, all pages of a list together",
        );
        errors: IntCounterVec = Def::counter("cloudprovider_aws_api_request_errors", &["request"], "[ALPHA] AWS API errors");
        throttled: IntCounterVec = Def::counter(
            "cloudprovider_aws_api_throttled_requests_total",
            &["operation_name"],
            "[ALPHA] AWS API throttled requests",
        );
        status: IntCounterVec = Def::counter(
            "cloudprovider_aws_api_response_status_total",
            &["service", "operation", "status_code"],
            "[ALPHA] HTTP answers of AWS with a status of 400 or more, each attempt",
        );
        tagging_errors: IntCounterVec = Def::counter(
            "cloudprovider_aws_tagging_controller_work_item_errors_total",
            &["error_type", "instance_id"],
            "[ALPHA] workitem errors of any kind",
        );
        // The spelling is upstream's.
        tagging_delay: HistogramVec = Def::histogram(
            "tagging_controller_inital_node_tagging_delay_seconds",
            &[],
            TAGGING,
            "[ALPHA] Number of seconds after node creation when TaggingController successfully tagged or untagged the node resources.",
        );
    }
}

static CALLS: CallDefs = ccm_kit::call_metrics!("ccm_aws_api", "AWS");

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    CALLS.page("aws", "Every operation has its `request`.", Metrics::DEFS.iter().copied())
}

/// The caller of a provider and the metrics that it records.
pub(crate) fn caller(registry: &Registry) -> (Caller<Operation>, Metrics) {
    let metrics = Metrics::new(registry);
    (Caller::new(CallMetrics::new(registry, &CALLS), Arc::new(metrics.clone())), metrics)
}

/// The same for a process that leads, without rate limits.
#[cfg(test)]
pub(crate) fn leading(registry: &Registry) -> (Caller<Operation>, Metrics) {
    let (caller, metrics) = caller(registry);
    caller.lend(Arc::new(ccm_provider_contract::TestCluster::default()));
    (caller.unlimited(), metrics)
}

impl Observer<Operation> for Metrics {
    fn operation(&self, operation: Operation, succeeded: bool, took: Duration) {
        let request = &[&*request_label(operation.name)];
        if succeeded {
            self.duration.with_label_values(request).observe(took.as_secs_f64());
        } else {
            self.errors.with_label_values(request).inc();
        }
    }

    fn attempt(&self, operation: Operation, outcome: &'static str) {
        if outcome == "throttled" {
            self.throttled.with_label_values(&[operation.name]).inc();
        }
    }
}

impl Metrics {
    /// An HTTP answer of any service, including STS; counted if the status is 400 or higher.
    pub(crate) fn response(&self, service: &str, operation: &str, status: u16) {
        if status >= 400 {
            self.status.with_label_values(&[service, operation, &status.to_string()]).inc();
        }
    }

    /// A work item of the tagging controller failed; `error_type`: `total_errors` or `errors_after_retries_exhausted`.
    pub(crate) fn tagging_error(&self, error_type: &str, instance: &str) {
        self.tagging_errors.with_label_values(&[error_type, instance]).inc();
    }

    /// A node got its tags for the first time, with this delay after its creation.
    pub(crate) fn tagging_delay(&self, delay: Duration) {
        self.tagging_delay.with_label_values::<&str>(&[]).observe(delay.as_secs_f64());
    }
}

/// The operation in snake case. Upstream uses `describe_instance` for the calls that it batches.
fn request_label(operation: &str) -> String {
    if operation == "DescribeInstances" {
        return "describe_instance".to_owned();
    }
    let mut label = String::with_capacity(operation.len() + 4);
    for letter in operation.chars() {
        if letter.is_ascii_uppercase() && !label.is_empty() {
            label.push('_');
        }
        label.push(letter.to_ascii_lowercase());
    }
    label
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::operation::Service;

    #[test]
    fn names_and_labels_are_upstreams() {
        let registry = Registry::new();
        let metrics = Metrics::new(&registry);
        let describe = Operation::new(Service::Ec2, "DescribeInstances");
        metrics.operation(describe, true, Duration::from_millis(20));
        metrics.operation(Operation::new(Service::Ec2, "CreateTags"), false, Duration::ZERO);
        metrics.attempt(describe, "throttled");
        metrics.response("Elastic Load Balancing v2", "DescribeTargetHealth", 400);
        metrics.response("EC2", "DescribeInstances", 200);
        metrics.tagging_error("total_errors", "i-1");
        metrics.tagging_delay(Duration::from_secs(3));
        let status = "cloudprovider_aws_api_response_status_total";
        for (name, labels) in [
            ("cloudprovider_aws_api_request_duration_seconds", &[("request", "describe_instance")][..]),
            ("cloudprovider_aws_api_request_errors", &[("request", "create_tags")]),
            ("cloudprovider_aws_api_throttled_requests_total", &[("operation_name", "DescribeInstances")]),
            (
                status,
                &[
                    ("operation", "DescribeTargetHealth"),
                    ("service", "Elastic Load Balancing v2"),
                    ("status_code", "400"),
                ],
            ),
            (
                "cloudprovider_aws_tagging_controller_work_item_errors_total",
                &[("error_type", "total_errors"), ("instance_id", "i-1")],
            ),
            ("tagging_controller_inital_node_tagging_delay_seconds", &[]),
        ] {
            assert_eq!(registry.value(name, labels), Some(1.0), "{name} {labels:?}");
        }
        assert_eq!(registry.value(status, &[("status_code", "200")]), None);
    }
}
