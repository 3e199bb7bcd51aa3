//! Metrics of authentication and authorization on the secure port, as in `k8s.io/apiserver`
//! (`pkg/endpoints/filters/metrics.go`, `pkg/authentication/token/cache/stats.go`,
//! `pkg/server/options/{authentication,authorization}.go`).

use std::time::Duration;

use ccm_runtime::metrics::{Def, Histogram, HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};
use ccm_runtime::{Metrics, metrics};

const CODE: &[&str] = &["code"];
const RESULT: &[&str] = &["result"];
const STATUS: &[&str] = &["status"];
pub(crate) const DELEGATED: &[f64] = &[0.25, 0.5, 0.7, 1.0, 1.5, 3.0, 5.0, 10.0];
/// 1 ms × 2^0…14.
const ACCESS: &[f64] =
    &[0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.128, 0.256, 0.512, 1.024, 2.048, 4.096, 8.192, 16.384];
const TOKEN_CACHE: &[f64] = &[0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// 0, half an hour … a year.
const CERTIFICATE: &[f64] = &[
    0.0,
    1800.0,
    3600.0,
    7200.0,
    21600.0,
    43200.0,
    86400.0,
    172_800.0,
    345_600.0,
    604_800.0,
    2_592_000.0,
    7_776_000.0,
    15_552_000.0,
    31_104_000.0,
];

metrics! {
    pub(crate) struct AccessMetrics {
        token_reviews: IntCounterVec = Def::counter(
            "apiserver_delegated_authn_request_total", CODE, "[ALPHA] Number of HTTP requests partitioned by status code.",
        );
        token_review_time: HistogramVec = Def::histogram(
            "apiserver_delegated_authn_request_duration_seconds", CODE, DELEGATED,
            "[ALPHA] Request latency in seconds. Broken down by status code.",
        );
        access_reviews: IntCounterVec = Def::counter(
            "apiserver_delegated_authz_request_total", CODE, "[ALPHA] Number of HTTP requests partitioned by status code.",
        );
        access_review_time: HistogramVec = Def::histogram(
            "apiserver_delegated_authz_request_duration_seconds", CODE, DELEGATED,
            "[ALPHA] Request latency in seconds. Broken down by status code.",
        );
        users: IntCounterVec = Def::counter(
            "authenticated_user_requests", &["username"], "[ALPHA] Counter of authenticated requests broken out by username.",
        );
        authentications: IntCounterVec = Def::counter("authentication_attempts", RESULT, "[ALPHA] Counter of authenticated attempts.");
        authentication_time: HistogramVec = Def::histogram(
            "authentication_duration_seconds", RESULT, ACCESS,
            "[ALPHA] Authentication duration in seconds broken out by result.",
        );
        authorizations: IntCounterVec = Def::counter(
            "authorization_attempts_total", RESULT,
            "[ALPHA] Counter of authorization attempts broken down by result. It can be either 'allowed', 'denied', 'no-opinion' or 'error'.",
        );
        authorization_time: HistogramVec = Def::histogram(
            "authorization_duration_seconds", RESULT, ACCESS,
            "[ALPHA] Authorization duration in seconds broken out by result.",
        );
        cached: IntCounterVec = Def::counter(
            "authentication_token_cache_request_total", STATUS, "[ALPHA] Tokens asked of the cache, by hit or miss.",
        );
        cache_time: HistogramVec = Def::histogram(
            "authentication_token_cache_request_duration_seconds", STATUS, TOKEN_CACHE,
            "[ALPHA] How long an answer of the cache of tokens took, by hit or miss.",
        );
        fetches: IntCounterVec = Def::counter(
            "authentication_token_cache_fetch_total", STATUS, "[ALPHA] Tokens that were reviewed for the cache, by outcome.",
        );
        fetching: IntGaugeVec = Def::gauge(
            "authentication_token_cache_active_fetch_count", STATUS,
            "[ALPHA] Reviews of tokens that are under way (in_flight), and requests that wait for one of another (blocked).",
        );
        certificates: Histogram = Def::histogram(
            "apiserver_client_certificate_expiration_seconds", &[], CERTIFICATE,
            "[ALPHA] Distribution of the remaining lifetime on the certificate used to authenticate a request.",
        );
    }
}

impl AccessMetrics {
    pub(crate) fn of(registry: &Metrics) -> std::sync::Arc<Self> {
        let access = registry.part::<Self>();
        for status in ["blocked", "in_flight"] {
            access.fetching.with_label_values(&[status]);
        }
        access
    }

    /// Records an authentication; `user` if it succeeded.
    pub(crate) fn authenticated(&self, user: Option<&str>, took: Duration) {
        let result = if user.is_some() { "success" } else { "error" };
        observe(&self.authentications, &self.authentication_time, result, took);
        if let Some(user) = user {
            self.users.with_label_values(&[kind_of(user)]).inc();
        }
    }

    /// Records an authorization; `result` is its label.
    pub(crate) fn authorized(&self, result: &str, took: Duration) {
        observe(&self.authorizations, &self.authorization_time, result, took);
    }

    /// Records a TokenReview; `code` is the status of the response, or `<error>` without one.
    pub(crate) fn token_review(&self, code: &str, took: Duration) {
        observe(&self.token_reviews, &self.token_review_time, code, took);
    }

    /// Records a SubjectAccessReview.
    pub(crate) fn access_review(&self, code: &str, took: Duration) {
        observe(&self.access_reviews, &self.access_review_time, code, took);
    }

    pub(crate) fn token_cache(&self, hit: bool, took: Duration) {
        observe(&self.cached, &self.cache_time, if hit { "hit" } else { "miss" }, took);
    }

    pub(crate) fn token_fetched(&self, ok: bool) {
        self.fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
    }

    /// Counts a review as in progress until the guard is dropped.
    pub(crate) fn token_fetching(&self) -> Held {
        Held::new(self.fetching.with_label_values(&["in_flight"]))
    }

    pub(crate) fn client_certificate(&self, remaining: Duration) {
        self.certificates.observe(remaining.as_secs_f64());
    }
}

fn observe(count: &IntCounterVec, time: &HistogramVec, label: &str, took: Duration) {
    count.with_label_values(&[label]).inc();
    time.with_label_values(&[label]).observe(took.as_secs_f64());
}

/// The label for a user, one of few: metrics contain no user names.
fn kind_of(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        _ if user.contains('@') => "email_id",
        _ => "other",
    }
}

/// Increments a gauge until it is dropped.
#[derive(Debug)]
pub(crate) struct Held(IntGauge);

impl Held {
    fn new(gauge: IntGauge) -> Self {
        gauge.inc();
        Self(gauge)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_metric_names_a_user() {
        let metrics = Metrics::new();
        let access = AccessMetrics::of(&metrics);
        for user in ["admin", "somebody@example.com", "system:serviceaccount:monitoring:prometheus"] {
            access.authenticated(Some(user), Duration::ZERO);
        }
        access.authenticated(None, Duration::ZERO);
        for (user, count) in [("admin", 1.0), ("email_id", 1.0), ("other", 1.0)] {
            assert_eq!(metrics.sample(&format!("authenticated_user_requests{{username=\"{user}\"}}")), Some(count));
        }
        assert_eq!(metrics.sample("authentication_attempts{result=\"success\"}"), Some(3.0));
        assert_eq!(metrics.sample("authentication_attempts{result=\"error\"}"), Some(1.0));
        let in_flight = "authentication_token_cache_active_fetch_count{status=\"in_flight\"}";
        let held = access.token_fetching();
        assert_eq!(metrics.sample(in_flight), Some(1.0));
        drop(held);
        assert_eq!(metrics.sample(in_flight), Some(0.0));
    }
}
