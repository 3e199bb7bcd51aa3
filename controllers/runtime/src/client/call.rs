//! One request.

use std::time::Duration;

use bytes::Bytes;
use http::Method;

/// Default `Accept` header.
pub(super) const JSON: &str = "application/json";
pub(super) const METADATA_ONLY: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
/// Default deadline of a request.
pub const REQUEST_DEADLINE: Duration = Duration::from_secs(30);

/// The order of a write among others to a busy API server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Pods wait for it: writes that can wait let it go first, and wait for the end of a burst of such writes.
    Urgent,
    /// Waits for no other write, and no other write waits for it.
    Normal,
    /// Lets urgent writes go first, for a limited time.
    CanWait,
}

/// One request.
#[derive(Debug, Clone)]
pub struct Call<'a> {
    /// Method.
    pub method: Method,
    /// Path and query.
    pub path: std::borrow::Cow<'a, str>,
    /// `Content-Type` of the body.
    pub content_type: Option<&'static str>,
    /// `Accept` header.
    pub accept: &'static str,
    /// Body.
    pub body: Option<Bytes>,
    /// The deadline of the answer.
    pub deadline: Duration,
    /// The order of writes to a busy API server.
    pub urgency: Urgency,
    /// Whether a shutdown leaves the request to the next leader, which decides and writes the same. Then it does not
    /// start after a shutdown has begun.
    pub yields: bool,
    /// Whether the next leader cannot foresee the request. Then it is only sent if the lease lasts until the deadline.
    pub within_lease: bool,
}

impl<'a> Call<'a> {
    /// A GET.
    pub fn get(path: impl Into<std::borrow::Cow<'a, str>>) -> Self {
        Self {
            method: Method::GET,
            path: path.into(),
            content_type: None,
            accept: JSON,
            body: None,
            deadline: REQUEST_DEADLINE,
            urgency: Urgency::Normal,
            yields: false,
            within_lease: false,
        }
    }

    /// A request with a JSON body.
    pub fn json(method: Method, path: impl Into<std::borrow::Cow<'a, str>>, body: &serde_json::Value) -> Self {
        let body = Some(Bytes::from(body.to_string()));
        Self { method, content_type: Some(JSON), body, ..Self::get(path) }
    }

    /// A strategic-merge patch.
    pub fn strategic(path: impl Into<std::borrow::Cow<'a, str>>, body: &serde_json::Value) -> Self {
        let content_type = Some("application/strategic-merge-patch+json");
        Self { content_type, ..Self::json(Method::PATCH, path, body) }
    }

    /// The same, but the answer has only the metadata of the object: a node is about 20 KB, and the writer knows what
    /// it wrote.
    #[must_use]
    pub fn metadata_only(self) -> Self {
        Self { accept: METADATA_ONLY, ..self }
    }

    /// The same with another deadline.
    #[must_use]
    pub fn within(self, deadline: Duration) -> Self {
        Self { deadline, ..self }
    }

    pub(super) fn verb(&self) -> &str {
        self.method.as_str()
    }
}
