//! Metrics of who asked the secure port and what they were allowed.

use std::time::Duration;

use prometheus::{HistogramVec, IntCounterVec, IntGauge, IntGaugeVec};

use super::{Registrar, table as t};

/// How authentication or authorization of a request ended; [`Attempt::label`] is what the metrics say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Attempt {
    /// Authentication found who it is.
    Success,
    /// Authentication found nobody.
    Failure,
    /// It could not tell.
    Error,
    /// Authorization: yes.
    Allowed,
    /// Authorization: no, whatever the others say.
    Denied,
    /// Authorization: not that I knew.
    NoOpinion,
}

impl Attempt {
    /// As upstream.
    pub fn label(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Failure => "failure",
            Self::Error => "error",
            Self::Allowed => "allowed",
            Self::Denied => "denied",
            Self::NoOpinion => "no-opinion",
        }
    }
}

/// The metrics that `k8s.io/apiserver` has of delegated authentication and authorization.
#[derive(Debug, Clone)]
pub struct Access {
    reviews: [(IntCounterVec, HistogramVec); 2],
    users: IntCounterVec,
    authentication: (IntCounterVec, HistogramVec),
    authorization: (IntCounterVec, HistogramVec),
    cache: (IntCounterVec, HistogramVec),
    fetches: IntCounterVec,
    fetching: IntGaugeVec,
    certificates: HistogramVec,
}

impl Access {
    pub(super) fn new(to: &Registrar) -> Self {
        let fetching: IntGaugeVec = to.gauge(&t::TOKEN_FETCHING);
        for status in ["blocked", "in_flight"] {
            fetching.with_label_values(&[status]);
        }
        Self {
            reviews: [
                (to.counter(&t::AUTHN_REQUESTS), to.histogram(&t::AUTHN_TIME)),
                (to.counter(&t::AUTHZ_REQUESTS), to.histogram(&t::AUTHZ_TIME)),
            ],
            users: to.counter(&t::USERS),
            authentication: (to.counter(&t::AUTHN_ATTEMPTS), to.histogram(&t::AUTHN_DURATION)),
            authorization: (to.counter(&t::AUTHZ_ATTEMPTS), to.histogram(&t::AUTHZ_DURATION)),
            cache: (to.counter(&t::TOKEN_CACHE_REQUESTS), to.histogram(&t::TOKEN_CACHE_TIME)),
            fetches: to.counter(&t::TOKEN_FETCHES),
            fetching,
            certificates: to.histogram(&t::CLIENT_CERTIFICATES),
        }
    }

    /// A request was authenticated, or not; `user` where it was.
    pub fn authenticated(&self, attempt: Attempt, user: Option<&str>, took: Duration) {
        observe(&self.authentication, attempt.label(), took);
        if let Some(user) = user {
            self.users.with_label_values(&[kind_of(user)]).inc();
        }
    }

    /// A request was authorized, or not.
    pub fn authorized(&self, attempt: Attempt, took: Duration) {
        observe(&self.authorization, attempt.label(), took);
    }

    /// The API server was asked for a TokenReview; `code` is that of its answer, or `<error>` without one.
    pub fn token_review(&self, code: &str, took: Duration) {
        observe(&self.reviews[0], code, took);
    }

    /// The API server was asked for a SubjectAccessReview.
    pub fn access_review(&self, code: &str, took: Duration) {
        observe(&self.reviews[1], code, took);
    }

    /// A token was looked up among those that were reviewed before.
    pub fn token_cache(&self, hit: bool, took: Duration) {
        observe(&self.cache, if hit { "hit" } else { "miss" }, took);
    }

    /// A review for the cache ended.
    pub fn token_fetched(&self, ok: bool) {
        self.fetches.with_label_values(&[if ok { "ok" } else { "error" }]).inc();
    }

    /// Counts a review as under way until the guard is dropped.
    pub fn token_fetching(&self) -> Held {
        Held::new(self.fetching.with_label_values(&["in_flight"]))
    }

    /// Counts a request as waiting for the review of another one until the guard is dropped.
    pub fn token_blocked(&self) -> Held {
        Held::new(self.fetching.with_label_values(&["blocked"]))
    }

    /// A client showed a certificate that is good for so long.
    pub fn client_certificate(&self, remaining: Duration) {
        self.certificates.with_label_values::<&str>(&[]).observe(remaining.as_secs_f64());
    }
}

fn observe((count, time): &(IntCounterVec, HistogramVec), label: &str, took: Duration) {
    count.with_label_values(&[label]).inc();
    time.with_label_values(&[label]).observe(took.as_secs_f64());
}

/// A name of few: no metric names a person.
fn kind_of(user: &str) -> &str {
    match user {
        "admin" | "client" | "kube_proxy" | "kubelet" | "system:serviceaccount:kube-system:default" => user,
        _ if user.contains('@') => "email_id",
        _ => "other",
    }
}

/// One more in a gauge, for as long as it lives.
#[derive(Debug)]
pub struct Held(IntGauge);

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
