//! Failures as the API reports them: a `Status` object.

use crate::kind::Kind;
use serde_json::{Map, Value, json};

/// A failed request: what the server answers with.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiError {
    /// HTTP status and `code`.
    pub code: u16,
    /// `reason`, such as `NotFound`.
    pub reason: String,
    /// `message`.
    pub message: String,
    /// `details`, when there are any.
    pub details: Option<Box<Value>>,
    /// `Retry-After` seconds, sent as a header too.
    pub retry_after: Option<u64>,
    /// A token in `metadata.continue` that goes on without consistency (expired lists only).
    pub continue_token: Option<String>,
}

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}: {}", self.code, self.reason, self.message)
    }
}

impl std::error::Error for ApiError {}

/// Reason of an error that is still to be given its form; never sent.
const UNDECODABLE: &str = "undecodable";

/// One field of an `Invalid` answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Cause {
    reason: &'static str,
    message: String,
    field: String,
}

impl Cause {
    pub(crate) fn required(field: &str, detail: &str) -> Cause {
        Cause { reason: "FieldValueRequired", message: with_detail("Required value", detail), field: field.into() }
    }

    pub(crate) fn invalid(field: &str, value: &Value, detail: &str) -> Cause {
        let message = with_detail(&format!("Invalid value: {value}"), detail);
        Cause { reason: "FieldValueInvalid", message, field: field.into() }
    }

    pub(crate) fn forbidden(field: &str, detail: &str) -> Cause {
        Cause { reason: "FieldValueForbidden", message: with_detail("Forbidden", detail), field: field.into() }
    }

    /// `value` is the text of the value: for structs the server prints its own form, not JSON.
    pub(crate) fn duplicate(field: &str, value: &str, detail: &str) -> Cause {
        let message = with_detail(&format!("Duplicate value: {value}"), detail);
        Cause { reason: "FieldValueDuplicate", message, field: field.into() }
    }

    pub(crate) fn not_supported(field: &str, value: &str, supported: &[&str]) -> Cause {
        let quoted: Vec<String> = supported.iter().map(|one| format!("\"{one}\"")).collect();
        let message = format!("Unsupported value: \"{value}\": supported values: {}", quoted.join(", "));
        Cause { reason: "FieldValueNotSupported", message, field: field.into() }
    }
}

fn with_detail(head: &str, detail: &str) -> String {
    if detail.is_empty() { head.to_owned() } else { format!("{head}: {detail}") }
}

impl ApiError {
    /// An answer with this code, reason and message and nothing else.
    #[must_use]
    pub fn new(code: u16, reason: &str, message: impl Into<String>) -> ApiError {
        ApiError {
            code,
            reason: reason.to_owned(),
            message: message.into(),
            details: None,
            retry_after: None,
            continue_token: None,
        }
    }

    fn about(mut self, kind: &Kind, name: &str) -> ApiError {
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !kind.group.is_empty() {
            details.insert("group".into(), kind.group.into());
        }
        details.insert("kind".into(), kind.plural.into());
        self.details = Some(Box::new(Value::Object(details)));
        self
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

    /// A condition of a delete that does not hold; these name the kind and not the resource.
    pub(crate) fn precondition(kind: &Kind, name: &str, why: &str) -> ApiError {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified_kind());
        let mut error = ApiError::new(409, "Conflict", message).about(kind, name);
        if let Some(details) = &mut error.details {
            crate::value::set(details, &["kind"], kind.kind);
        }
        error
    }

    /// A PUT whose uid is not that of the stored object.
    pub(crate) fn other_uid(kind: &Kind, namespace: &str, name: &str, wanted: &str, found: &str) -> ApiError {
        let folder = match kind.plural {
            "nodes" => "minions",
            "services" => "services/specs",
            plural => plural,
        };
        let path = if namespace.is_empty() { name.to_owned() } else { format!("{namespace}/{name}") };
        let why = format!(
            "StorageError: invalid object, Code: 4, Key: /registry/{folder}/{path}, ResourceVersion: 0, AdditionalErrorMsg: \
             Precondition failed: UID in precondition: {wanted}, UID in object meta: {found}"
        );
        ApiError::conflict(kind, name, &why)
    }

    pub(crate) fn forbidden(kind: &Kind, name: &str, why: &str) -> ApiError {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        ApiError::new(403, "Forbidden", message).about(kind, name)
    }

    pub(crate) fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// A body that the typed server could not decode. A patch reports it otherwise than a whole object.
    pub(crate) fn undecodable(why: &str) -> ApiError {
        let mut error = ApiError::bad_request(why);
        error.reason = UNDECODABLE.to_owned();
        error
    }

    /// Gives an undecodable body the form in which this verb reports it.
    pub(crate) fn after_decoding(self, kind: &Kind, patch: bool) -> ApiError {
        if self.reason != UNDECODABLE {
            return self;
        }
        if patch {
            let cause = Cause {
                reason: "FieldValueInvalid",
                message: format!("Invalid value: {}", self.message),
                field: "patch".into(),
            };
            return ApiError::invalid_as("", "", "", "", &[cause]);
        }
        let (version, name) = (kind.version, kind.kind);
        let message = format!("{name} in version \"{version}\" cannot be handled as a {name}: {}", self.message);
        ApiError::bad_request(message)
    }

    pub(crate) fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    pub(crate) fn internal(message: impl std::fmt::Display) -> ApiError {
        let mut error = ApiError::new(500, "InternalError", format!("Internal error occurred: {message}"));
        error.details = Some(Box::new(json!({"causes": [{"message": message.to_string()}]})));
        error
    }

    /// The client asks for a version that does not exist yet.
    pub(crate) fn too_large(asked: u64, current: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {asked}, current: {current}");
        let mut error = ApiError::new(504, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.details = Some(Box::new(json!({"causes": [cause], "retryAfterSeconds": 1})));
        error.retry_after = Some(1);
        error
    }

    /// A streaming list over an etcd that cannot report progress.
    pub(crate) fn no_progress() -> ApiError {
        let message = "a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled";
        ApiError::new(500, "InternalError", message)
    }

    pub(crate) fn invalid_initial_events() -> ApiError {
        let cause = Cause::forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list");
        ApiError::invalid_as("ListOptions.meta.k8s.io", "ListOptions", "meta.k8s.io", "", &[cause])
    }

    pub(crate) fn no_field_manager() -> ApiError {
        let cause = Cause::required("fieldManager", "is required for apply patch");
        ApiError::invalid_as("PatchOptions.meta.k8s.io", "PatchOptions", "meta.k8s.io", "", &[cause])
    }

    pub(crate) fn no_resource() -> ApiError {
        let mut error = ApiError::new(404, "NotFound", "the server could not find the requested resource");
        error.details = Some(Box::new(json!({})));
        error
    }

    pub(crate) fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        let mut error = ApiError::new(405, "MethodNotAllowed", message);
        error.details = Some(Box::new(json!({})));
        error
    }

    pub(crate) fn unsupported_patch() -> ApiError {
        let mut error = ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type");
        error.details = Some(Box::new(json!({})));
        error
    }

    pub(crate) fn unsupported_media(accepted: &str) -> ApiError {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 422 for an object of `kind`; the causes are listed in the message as the real server lists them.
    pub(crate) fn invalid(kind: &Kind, name: &str, causes: &[Cause]) -> ApiError {
        ApiError::invalid_as(&kind.qualified_kind(), kind.kind, kind.group, name, causes)
    }

    pub(crate) fn invalid_as(title: &str, kind: &str, group: &str, name: &str, causes: &[Cause]) -> ApiError {
        let lines: Vec<String> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list = match lines.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let mut error = ApiError::new(422, "Invalid", format!("{title} \"{name}\" is invalid: {list}"));
        let mut details = Map::new();
        if !name.is_empty() {
            details.insert("name".into(), name.into());
        }
        if !group.is_empty() {
            details.insert("group".into(), group.into());
        }
        if !kind.is_empty() {
            details.insert("kind".into(), kind.into());
        }
        let causes: Vec<Value> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        details.insert("causes".into(), causes.into());
        error.details = Some(Box::new(Value::Object(details)));
        error
    }

    /// The `Status` object of this failure.
    #[must_use]
    pub fn to_status(&self) -> Value {
        let mut metadata = Map::new();
        if let Some(token) = &self.continue_token {
            metadata.insert("continue".into(), token.clone().into());
        }
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": metadata, "status": "Failure",
            "message": self.message, "code": self.code,
        });
        if !self.reason.is_empty() {
            crate::value::set(&mut status, &["reason"], self.reason.clone());
        }
        if let Some(details) = &self.details {
            crate::value::set(&mut status, &["details"], Value::clone(details));
        }
        status
    }
}
