//! Metrics of requests to the API server, as in `k8s.io/component-base/metrics/prometheus/restclient`.

use std::time::Duration;

use crate::metrics::{Def, HistogramVec, IntCounterVec, Metrics};

const VERB_HOST: &[&str] = &["verb", "host"];
pub(crate) const REQUEST: &[f64] = &[0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0];
/// 64 bytes … 16 MiB.
const SIZE: &[f64] =
    &[64.0, 256.0, 512.0, 1024.0, 4096.0, 16384.0, 65536.0, 262_144.0, 1_048_576.0, 4_194_304.0, 16_777_216.0];

crate::metrics! {
    pub(crate) struct ClientMetrics {
        requests: IntCounterVec = Def::counter(
            "rest_client_requests_total", &["code", "method", "host"],
            "[ALPHA] Number of HTTP requests, partitioned by status code, method, and host.",
        );
        time: HistogramVec = Def::histogram(
            "rest_client_request_duration_seconds", VERB_HOST, REQUEST,
            "[ALPHA] Request latency in seconds. Broken down by verb, and host.",
        );
        request_size: HistogramVec = Def::histogram(
            "rest_client_request_size_bytes", VERB_HOST, SIZE, "[ALPHA] Request size in bytes. Broken down by verb and host.",
        );
        response_size: HistogramVec = Def::histogram(
            "rest_client_response_size_bytes", VERB_HOST, SIZE, "[ALPHA] Response size in bytes. Broken down by verb and host.",
        );
        rate_limited: HistogramVec = Def::histogram(
            "rest_client_rate_limiter_duration_seconds", VERB_HOST, REQUEST,
            "[ALPHA] Client side rate limiter latency in seconds. Broken down by verb, and host.",
        );
        retries: IntCounterVec = Def::counter(
            "rest_client_request_retries_total", &["code", "verb", "host"],
            "[ALPHA] Number of request retries, partitioned by status code, verb, and host.",
        );
    }
}

impl Metrics {
    pub(super) fn rest_request(&self, verb: &str, code: &str, host: &str, took: Duration) {
        let client = self.part::<ClientMetrics>();
        client.requests.with_label_values(&[code, verb, host]).inc();
        client.time.with_label_values(&[verb, host]).observe(took.as_secs_f64());
    }

    /// Records the time that a request waited for the client-side limit, `--kube-api-qps`; zero without a limit.
    pub(super) fn rest_rate_limited(&self, verb: &str, host: &str, waited: Duration) {
        self.part::<ClientMetrics>().rate_limited.with_label_values(&[verb, host]).observe(waited.as_secs_f64());
    }

    /// Counts a request that was sent again because the server requested it; `code` is that of the new answer.
    pub(super) fn rest_repeated(&self, code: &str, verb: &str, host: &str) {
        self.part::<ClientMetrics>().retries.with_label_values(&[code, verb, host]).inc();
    }

    /// Records the size of the body of a request.
    pub(super) fn rest_request_size(&self, verb: &str, host: &str, bytes: usize) {
        self.part::<ClientMetrics>().request_size.with_label_values(&[verb, host]).observe(size(bytes));
    }

    /// Records the size of the body of an answer. Watches have no end and are not counted.
    pub(super) fn rest_response_size(&self, verb: &str, host: &str, bytes: usize) {
        self.part::<ClientMetrics>().response_size.with_label_values(&[verb, host]).observe(size(bytes));
    }
}

#[allow(clippy::cast_precision_loss)] // buckets are wide
fn size(bytes: usize) -> f64 {
    bytes as f64
}
