//! `AdmissionReview` of `admission.k8s.io/v1`: the parts that handlers need.
//!
//! Not the types of `kube::core::admission`: they reject a request without `kind`, `operation` or `userInfo`, which the
//! Go program accepts, encode a patch as a list of numbers where Go uses base64, and add a status to allowed requests
//! too.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// The request of the API server.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct AdmissionRequest {
    /// Identifies the request; the response has the same UID.
    pub uid: String,
    /// Type of the object.
    pub kind: GroupVersionKind,
    /// The written resource.
    pub resource: GroupVersionResource,
    /// Subresource, such as `status`.
    pub sub_resource: String,
    /// Name of the object; empty if the API server will generate it.
    pub name: String,
    /// Namespace of the object.
    pub namespace: String,
    /// `CREATE`, `UPDATE`, `DELETE` or `CONNECT`.
    pub operation: String,
    /// The user who makes the request.
    pub user_info: UserInfo,
    /// The new object; null for deletions.
    pub object: Value,
    /// The existing object; null for creations.
    pub old_object: Value,
    /// Whether the write is a dry run.
    pub dry_run: bool,
    /// Options of the operation.
    pub options: Value,
}

/// Type of an object.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionKind {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Kind.
    pub kind: String,
}

/// A resource.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct GroupVersionResource {
    /// API group; empty for the core group.
    pub group: String,
    /// Version.
    pub version: String,
    /// Plural name.
    pub resource: String,
}

/// The user who makes the request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct UserInfo {
    /// Name.
    pub username: String,
    /// Groups.
    pub groups: Vec<String>,
}

/// The response to the API server.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AdmissionResponse {
    /// Whether the request is allowed.
    pub allowed: bool,
    /// The reason for a rejection.
    pub status: Option<AdmissionStatus>,
    /// A JSON patch (RFC 6902) of the object: a list of operations.
    pub patch: Option<Value>,
    /// Warnings for the user of the request.
    pub warnings: Vec<String>,
}

/// The reason why a request is rejected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct AdmissionStatus {
    /// The message for the user.
    pub message: String,
    /// HTTP status code; 0 leaves it to the API server.
    #[serde(skip_serializing_if = "is_zero")]
    pub code: u16,
    /// The reason as one word, for clients: `Forbidden`. May be empty.
    #[serde(skip_serializing_if = "str::is_empty")]
    pub reason: &'static str,
}

#[allow(clippy::trivially_copy_pass_by_ref)] // serde hands out references
fn is_zero(code: &u16) -> bool {
    *code == 0
}

impl AdmissionResponse {
    /// Allows the request.
    pub fn allow() -> Self {
        Self { allowed: true, ..Self::default() }
    }

    /// Rejects the request with a reason.
    pub fn deny(message: impl Into<String>) -> Self {
        Self {
            status: Some(AdmissionStatus { message: message.into(), ..AdmissionStatus::default() }),
            ..Self::default()
        }
    }

    /// Rejects the request with 403 Forbidden.
    pub fn forbid(message: impl Into<String>) -> Self {
        let status = AdmissionStatus { message: message.into(), code: 403, reason: "Forbidden" };
        Self { status: Some(status), ..Self::default() }
    }
}

#[derive(Debug)]
pub(super) struct Review {
    pub(super) api_version: String,
    pub(super) request: AdmissionRequest,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", expecting = "an AdmissionReview")]
struct Wire {
    api_version: String,
    kind: String,
    request: Option<AdmissionRequest>,
}

/// Whether a `Content-Type` is JSON, with any parameters.
pub(super) fn is_json(kind: &str) -> bool {
    kind.split(';').next().is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
}

/// Parses a review.
///
/// # Errors
///
/// Upstream's texts.
pub(super) fn parse(body: &[u8]) -> Result<Review, String> {
    if body.is_empty() {
        return Err("admission request HTTP body is empty".into());
    }
    let bad = |error: String| format!("could not deserialize incoming admission review: {error}");
    let wire: Wire = serde_json::from_slice(body).map_err(|error| bad(error.to_string()))?;
    if wire.kind != "AdmissionReview" || wire.api_version != "admission.k8s.io/v1" {
        return Err(bad(format!(
            "expected AdmissionReview of admission.k8s.io/v1, got {} of {}",
            wire.kind, wire.api_version
        )));
    }
    let request = wire.request.ok_or("admission review can't be used: Request field is nil")?;
    Ok(Review { api_version: wire.api_version, request })
}

/// Serializes the review with the response.
pub(super) fn answer(api_version: &str, uid: &str, response: AdmissionResponse) -> Bytes {
    let mut wire = json!({"uid": uid, "allowed": response.allowed});
    if let Some(wire) = wire.as_object_mut() {
        if let Some(status) = response.status {
            let mut text = json!(status);
            if let Some(text) = text.as_object_mut() {
                text.insert("metadata".into(), json!({}));
            }
            wire.insert("status".into(), text);
        }
        if let Some(patch) = response.patch {
            wire.insert("patch".into(), BASE64_STANDARD.encode(patch.to_string()).into());
            wire.insert("patchType".into(), "JSONPatch".into());
        }
        if !response.warnings.is_empty() {
            wire.insert("warnings".into(), response.warnings.into());
        }
    }
    Bytes::from(json!({"kind": "AdmissionReview", "apiVersion": api_version, "response": wire}).to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_may_have_a_charset_and_nothing_else_is_json() {
        for good in ["application/json", "application/json; charset=utf-8", "Application/JSON ;x=y"] {
            assert!(is_json(good), "{good}");
        }
        for bad in ["", "text/plain", "application/jsonx", "; application/json"] {
            assert!(!is_json(bad), "{bad}");
        }
    }

    #[test]
    fn invalid_reviews_are_refused_with_upstreams_texts() {
        let error = |text: &str| parse(text.as_bytes()).unwrap_err();
        assert_eq!(error(""), "admission request HTTP body is empty");
        assert!(error("{").starts_with("could not deserialize incoming admission review: "));
        assert!(error("null").contains("invalid type: null, expected an AdmissionReview"));
        assert!(error(r#"{"kind":"Pod","apiVersion":"v1"}"#).contains("got Pod of v1"));
        assert_eq!(
            error(r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1"}"#),
            "admission review can't be used: Request field is nil"
        );
    }

    #[test]
    fn the_answer_has_the_uid_and_the_patch_in_base64() {
        let body = r#"{"kind":"AdmissionReview","apiVersion":"admission.k8s.io/v1","request":{"uid":"u-1",
            "operation":"CREATE","kind":{"group":"","version":"v1","kind":"PersistentVolume"},"object":{"a":1},"new":[]}}"#;
        let review = parse(body.as_bytes()).unwrap();
        assert_eq!((review.request.uid.as_str(), review.request.kind.kind.as_str()), ("u-1", "PersistentVolume"));
        let response = AdmissionResponse { patch: Some(json!([])), ..AdmissionResponse::allow() };
        let text = answer(&review.api_version, &review.request.uid, response);
        let read: Value = serde_json::from_slice(&text).unwrap();
        assert_eq!(
            read,
            json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response":
                {"uid": "u-1", "allowed": true, "patch": "W10=", "patchType": "JSONPatch"}})
        );
        let text = answer("admission.k8s.io/v1", "u", AdmissionResponse::deny("no"));
        let status = |text: &[u8]| serde_json::from_slice::<Value>(text).unwrap()["response"]["status"].take();
        assert_eq!(status(&text), json!({"metadata": {}, "message": "no"}));
        let text = answer("admission.k8s.io/v1", "u", AdmissionResponse::forbid("no"));
        assert_eq!(status(&text), json!({"metadata": {}, "message": "no", "code": 403, "reason": "Forbidden"}));
    }
}
