//! Metrics of the calls to AWS and of tagging: upstream's names and labels where upstream has one, `ccm_aws_` for ours.

mod def;

use std::time::Duration;

use prometheus::{GaugeVec, HistogramVec, IntCounterVec, Registry, TextEncoder};

use self::def::Def;
use crate::client::operation::Operation;
use crate::client::pacing::Family;
use crate::client::{Answer, ApiError};

/// Of `prometheus` and of Go's client.
const DEFAULT: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
const TAGGING: &[f64] = &[1.0, 4.0, 16.0, 64.0, 256.0, 1024.0];
const WAITS: &[f64] = &[0.001, 0.01, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];

const DURATION: Def = Def::histogram(
    "cloudprovider_aws_api_request_duration_seconds",
    &["request"],
    DEFAULT,
    "[ALPHA] Latency of AWS API calls; those that succeeded, all pages of a list together",
);
const ERRORS: Def = Def::counter("cloudprovider_aws_api_request_errors", &["request"], "[ALPHA] AWS API errors");
const THROTTLED: Def = Def::counter(
    "cloudprovider_aws_api_throttled_requests_total",
    &["operation_name"],
    "[ALPHA] AWS API throttled requests",
);
const STATUS: Def = Def::counter(
    "cloudprovider_aws_api_response_status_total",
    &["service", "operation", "status_code"],
    "[ALPHA] HTTP answers of AWS with a status of 400 or more, each attempt",
);
const TAGGING_ERRORS: Def = Def::counter(
    "cloudprovider_aws_tagging_controller_work_item_errors_total",
    &["error_type", "instance_id"],
    "[ALPHA] workitem errors of any kind",
);
// The spelling is upstream's.
const TAGGING_DELAY: Def = Def::histogram(
    "tagging_controller_inital_node_tagging_delay_seconds",
    &[],
    TAGGING,
    "[ALPHA] Number of seconds after node creation when TaggingController successfully tagged or untagged the node resources.",
);
const CALLS: Def = Def::counter(
    "ccm_aws_api_calls_total",
    &["service", "operation", "outcome"],
    "Attempts by outcome: ok, refused, throttled, credentials, not-sent, no-answer, malformed.",
);
const HELD_BACK: Def = Def::counter(
    "ccm_aws_api_held_back_total",
    &["service", "operation"],
    "Operations that were given up without being sent, because AWS had asked for fewer calls or the pace was used up.",
);
const WAITED: Def = Def::histogram(
    "ccm_aws_api_wait_seconds",
    &["family"],
    WAITS,
    "How long a call waited for its turn, by the budget of AWS that it belongs to.",
);
const BACKING_OFF: Def = Def::gauge(
    "ccm_aws_api_backing_off",
    &["family"],
    "1 while calls of a family are held back because AWS asked for fewer.",
);
const PRESSURE: Def = Def::gauge(
    "ccm_aws_api_throttled_share",
    &["family"],
    "The share of recent calls of a family that AWS throttled, from 0 to 1; it slows the pace.",
);

/// All of them, for the reference page.
const ALL: &[&Def] = &[
    &DURATION,
    &ERRORS,
    &THROTTLED,
    &STATUS,
    &TAGGING_ERRORS,
    &TAGGING_DELAY,
    &CALLS,
    &HELD_BACK,
    &WAITED,
    &BACKING_OFF,
    &PRESSURE,
];

/// The reference page of the metrics of this provider, in Markdown.
pub fn metrics_reference() -> String {
    def::markdown(ALL)
}

/// The metrics of one provider. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Metrics {
    registry: Registry,
    duration: HistogramVec,
    errors: IntCounterVec,
    throttled: IntCounterVec,
    status: IntCounterVec,
    tagging_errors: IntCounterVec,
    tagging_delay: HistogramVec,
    calls: IntCounterVec,
    held_back: IntCounterVec,
    waited: HistogramVec,
    backing_off: GaugeVec,
    pressure: GaugeVec,
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Metrics {
    /// A fresh set.
    pub(crate) fn new() -> Self {
        let registry = Registry::new();
        Self {
            duration: DURATION.make_histogram(&registry),
            errors: ERRORS.make_counter(&registry),
            throttled: THROTTLED.make_counter(&registry),
            status: STATUS.make_counter(&registry),
            tagging_errors: TAGGING_ERRORS.make_counter(&registry),
            tagging_delay: TAGGING_DELAY.make_histogram(&registry),
            calls: CALLS.make_counter(&registry),
            held_back: HELD_BACK.make_counter(&registry),
            waited: WAITED.make_histogram(&registry),
            backing_off: BACKING_OFF.make_gauge(&registry),
            pressure: PRESSURE.make_gauge(&registry),
            registry,
        }
    }

    /// Everything in the text format of Prometheus.
    pub(crate) fn text(&self) -> String {
        let mut text = String::new();
        if let Err(error) = TextEncoder::new().encode_utf8(&self.registry.gather(), &mut text) {
            tracing::error!(%error, "metrics of AWS cannot be shown");
        }
        text
    }

    /// An operation came to an end, all its pages and attempts together.
    pub(crate) fn operation(&self, operation: Operation, succeeded: bool, took: Duration) {
        let request = &[&*request_label(operation.name)];
        if succeeded {
            self.duration.with_label_values(request).observe(took.as_secs_f64());
        } else {
            self.errors.with_label_values(request).inc();
        }
    }

    /// One attempt came to an end.
    pub(crate) fn attempt<T>(&self, operation: Operation, answer: &Answer<T>) {
        let outcome = answer.as_ref().map_or_else(ApiError::outcome, |_| "ok");
        self.calls.with_label_values(&[operation.service.id(), operation.name, outcome]).inc();
        if outcome == "throttled" {
            self.throttled.with_label_values(&[operation.name]).inc();
        }
    }

    /// An HTTP answer of any service, STS too; counted from 400 on.
    pub(crate) fn response(&self, service: &str, operation: &str, status: u16) {
        if status >= 400 {
            self.status.with_label_values(&[service, operation, &status.to_string()]).inc();
        }
    }

    pub(crate) fn held_back(&self, operation: Operation) {
        self.held_back.with_label_values(&[operation.service.id(), operation.name]).inc();
    }

    pub(crate) fn waited(&self, family: Family, waited: Duration) {
        self.waited.with_label_values(&[family.name()]).observe(waited.as_secs_f64());
    }

    /// The state of a family of calls.
    pub(crate) fn lane(&self, family: Family, backing_off: bool, pressure: f64) {
        self.backing_off.with_label_values(&[family.name()]).set(f64::from(u8::from(backing_off)));
        self.pressure.with_label_values(&[family.name()]).set(pressure);
    }

    /// A work item of the tagging controller failed; `error_type` is `total_errors` or `errors_after_retries_exhausted`.
    pub(crate) fn tagging_error(&self, error_type: &str, instance: &str) {
        self.tagging_errors.with_label_values(&[error_type, instance]).inc();
    }

    /// A node got its tags for the first time, so long after it was created.
    pub(crate) fn tagging_delay(&self, delay: Duration) {
        self.tagging_delay.with_label_values::<&str>(&[]).observe(delay.as_secs_f64());
    }
}

/// The operation in snake case. Upstream says `describe_instance` for the calls that it joins.
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
        let metrics = Metrics::new();
        let describe = Operation::new(Service::Ec2, "DescribeInstances");
        let throttled: Answer<()> = Err(ApiError::refused(describe, "RequestLimitExceeded", "slow down"));
        metrics.operation(describe, true, Duration::from_millis(20));
        metrics.operation(Operation::new(Service::Ec2, "CreateTags"), false, Duration::ZERO);
        metrics.attempt(describe, &throttled);
        metrics.response("Elastic Load Balancing v2", "DescribeTargetHealth", 400);
        metrics.response("EC2", "DescribeInstances", 200);
        metrics.tagging_error("total_errors", "i-1");
        metrics.tagging_delay(Duration::from_secs(3));
        let text = metrics.text();
        for line in [
            r#"cloudprovider_aws_api_request_duration_seconds_bucket{request="describe_instance",le="0.025"} 1"#,
            r#"cloudprovider_aws_api_request_errors{request="create_tags"} 1"#,
            r#"cloudprovider_aws_api_throttled_requests_total{operation_name="DescribeInstances"} 1"#,
            r#"cloudprovider_aws_api_response_status_total{operation="DescribeTargetHealth",service="Elastic Load Balancing v2",status_code="400"} 1"#,
            r#"cloudprovider_aws_tagging_controller_work_item_errors_total{error_type="total_errors",instance_id="i-1"} 1"#,
            r#"tagging_controller_inital_node_tagging_delay_seconds_bucket{le="4"} 1"#,
            r#"ccm_aws_api_calls_total{operation="DescribeInstances",outcome="throttled",service="EC2"} 1"#,
        ] {
            assert!(text.lines().any(|have| have == line), "{line}\n{text}");
        }
        assert!(!text.contains(r#"status_code="200""#));
    }

    #[test]
    fn the_page_is_what_the_table_says() {
        let page = include_str!("../../../METRICS.md");
        assert_eq!(page, metrics_reference(), "run `cargo xtask reference`");
    }
}
