//! Failures in the form of the API: a `Status` object.

use crate::kind::Kind;
use crate::value::{set, text};
use serde_json::{Value, json};

/// The response to a failed request.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status and `code`.
    pub code: u16,
    /// `reason`, such as `NotFound`.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// `details`, if there are any.
    pub details: Option<Box<Value>>,
    /// `Retry-After` seconds, also sent as a header.
    pub retry_after: Option<u64>,
    /// A token in `metadata.continue` that continues without consistency (expired lists only).
    pub continue_token: Option<String>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}

/// Temporary reason of an error until `after_decoding` has set its final form; never sent.
const UNDECODABLE: &str = "undecodable";

/// One field of an `Invalid` response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    fn new(reason: &'static str, field: &str, head: &str, detail: &str) -> Cause {
        let message = if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") };
        Cause { reason, message, field: field.to_owned() }
    }

    pub(crate) fn required(field: &str, detail: &str) -> Cause {
        Cause::new("FieldValueRequired", field, "Required value", detail)
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Cause {
        Cause::new("FieldValueInvalid", field, &format!("Invalid value: {value}"), detail)
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Cause {
        Cause::new("FieldValueForbidden", field, "Forbidden", detail)
    }

    /// `value` is the text of the value: for structs the server prints its own form, not JSON.
    pub(crate) fn duplicate(field: &str, value: &str, detail: &str) -> Cause {
        Cause::new("FieldValueDuplicate", field, &format!("Duplicate value: {value}"), detail)
    }

    pub(crate) fn not_supported(field: &str, value: &str, supported: &[&str]) -> Cause {
        let quoted: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let head = format!("Unsupported value: \"{value}\": supported values: {}", quoted.join(", "));
        Cause::new("FieldValueNotSupported", field, &head, "")
    }

    /// An error for a value that is not one of these. An empty value is reported by another check.
    pub(crate) fn unless_one_of(field: &str, value: &str, supported: &[&str]) -> Option<Cause> {
        let fits = value.is_empty() || supported.contains(&value);
        (!fits).then(|| Cause::not_supported(field, value, supported))
    }
}

/// `details` without empty members.
pub(crate) fn details(name: &str, group: &str, kind: &str) -> Value {
    let mut details = json!({});
    for (member, value) in [("/name", name), ("/group", group), ("/kind", kind)] {
        if !value.is_empty() {
            set(&mut details, member, value);
        }
    }
    details
}

impl ApiError {
    /// A response with only this code, reason and message.
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> ApiError {
        let (reason, message) = (reason.to_owned(), message.into());
        ApiError { code, reason, message, details: None, retry_after: None, continue_token: None }
    }

    fn with(self, details: Value) -> ApiError {
        ApiError { details: Some(Box::new(details)), ..self }
    }

    fn about(self, kind: &Kind, name: &str) -> ApiError {
        self.with(details(name, kind.group, kind.plural))
    }

    pub(crate) fn not_found(kind: &Kind, name: &str) -> ApiError {
        ApiError::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified())).about(kind, name)
    }

    pub(crate) fn already_exists(kind: &Kind, name: &str) -> ApiError {
        ApiError::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified())).about(kind, name)
    }

    pub(crate) fn conflict(kind: &Kind, name: &str, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        ApiError::new(409, "Conflict", message).about(kind, name)
    }

    pub(crate) fn modified(kind: &Kind, name: &str) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(kind, name, why)
    }

    /// A precondition of a delete that does not hold; these errors name the kind instead of the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_kind());
        ApiError::new(409, "Conflict", message).with(details(name, kind.group, kind.kind))
    }

    /// A PUT whose UID is not that of the stored object.
    pub(crate) fn other_uid(kind: &Kind, name: &str, wanted: &str, found: &str) -> ApiError {
        let why = format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}");
        ApiError::conflict(kind, name, &format!("StorageError: invalid object, Code: 4, AdditionalErrorMsg: {why}"))
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// An error for a feature of a real server that this one does not implement.
    pub(crate) fn not_implemented(what: &str) -> ApiError {
        ApiError::new(501, "NotImplemented", format!("the in-memory API server does not implement {what}"))
    }

    /// A body that Go's types could not decode. The form depends on the verb: a patch reports it differently.
    pub(crate) fn undecodable(why: &str) -> ApiError {
        ApiError::new(400, UNDECODABLE, why)
    }

    /// Reports an undecodable body in the form of the verb.
    pub(crate) fn after_decoding(self, kind: &Kind, patch: bool) -> ApiError {
        if self.reason != UNDECODABLE {
            return self;
        }
        if patch {
            let cause = Cause::new("FieldValueInvalid", "patch", "Invalid value", &self.message);
            return ApiError::invalid_as("", "", "", "", &[cause]);
        }
        let name = kind.kind;
        ApiError::bad_request(format!("{name} in version \"v1\" cannot be handled as a {name}: {}", self.message))
    }

    pub(crate) fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
        let details = json!({"causes": [{"message": message.to_string()}]});
        ApiError::new(500, "InternalError", format!("Internal error occurred: {message}")).with(details)
    }

    /// The client requests a version that does not exist yet.
    pub(crate) fn too_large(asked: u64, current: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        let error = ApiError::new(504, "Timeout", message).with(json!({"causes": [cause], "retryAfterSeconds": 1}));
        ApiError { retry_after: Some(1), ..error }
    }

    /// A streaming list over an etcd that cannot report progress.
    pub(crate) fn no_progress() -> ApiError {
        let message = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
        ApiError::new(500, "InternalError", message)
    }

    pub(crate) fn no_resource() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource").with(json!({}))
    }

    pub(crate) fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", message).with(json!({}))
    }

    pub(crate) fn unsupported_patch() -> ApiError {
        ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").with(json!({}))
    }

    pub(crate) fn unsupported_media() -> ApiError {
        let message =
            "the body of the request was in an unknown format - accepted media types include: application/json";
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 422 for an object of `kind`; the causes are listed in the message as in the real server.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_as(&kind.qualified_kind(), kind.kind, kind.group, name, causes)
    }

    /// 422 for the parameters of a list or watch.
    pub(crate) fn invalid_options(causes: &[Cause]) -> ApiError {
        ApiError::invalid_as("ListOptions.meta.k8s.io", "ListOptions", "meta.k8s.io", "", causes)
    }

    fn invalid_as(title: &str, kind: &str, group: &str, name: &str, causes: &[Cause]) -> ApiError {
        let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        let mut details = details(name, group, kind);
        set(&mut details, "/causes", causes);
        ApiError::new(422, "Invalid", format!("{title} \"{name}\" is invalid: {list}")).with(details)
    }

    /// The error of a validation, if there are causes.
    pub(crate) fn check(kind: &Kind, object: &Value, causes: &[Cause]) -> Result<(), ApiError> {
        if causes.is_empty() { Ok(()) } else { Err(ApiError::invalid(kind, text(object, "/metadata/name"), causes)) }
    }

    /// The `Status` object of this failure.
    pub fn to_status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if let Some(token) = &self.continue_token {
            set(&mut status, "/metadata/continue", token.as_str());
        }
        if !self.reason.is_empty() {
            set(&mut status, "/reason", self.reason.as_str());
        }
        if let Some(details) = &self.details {
            set(&mut status, "/details", Value::clone(details));
        }
        status
    }
}
