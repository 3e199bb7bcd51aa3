//! Errors of the Compute API, with its messages.

use super::world::set;
use crate::core::rest::{Problem, Reply};
use serde_json::json;

/// An object does not exist.
pub(super) fn not_found(key: &str) -> Problem {
    Problem::new(404, "notFound", format!("The resource '{key}' was not found"))
}

/// A name is already in use.
pub(super) fn already_exists(key: &str) -> Problem {
    Problem::new(409, "alreadyExists", format!("The resource '{key}' already exists"))
}

/// An object is being created or deleted.
pub(super) fn not_ready(key: &str) -> Problem {
    Problem::new(400, "resourceNotReady", format!("The resource '{key}' is not ready"))
}

/// An object is used by another; `word` is the name of its kind in errors, e.g. `target_pool`.
pub(super) fn in_use(word: &str, key: &str, by: &str) -> Problem {
    let text = format!("The {word} resource '{key}' is already being used by '{by}'");
    Problem::new(400, "resourceInUseByAnotherResource", text)
}

/// A field of the body, or a parameter, has an invalid value.
pub(super) fn invalid(field: &str, value: &str, why: &str) -> Problem {
    Problem::new(400, "invalid", format!("Invalid value for field '{field}': '{value}'. {why}"))
}

/// A required field is missing.
pub(super) fn required(field: &str) -> Problem {
    Problem::new(400, "required", format!("Required field '{field}' not specified"))
}

/// The request is not possible.
pub(super) fn bad_request(text: impl Into<String>) -> Problem {
    Problem::new(400, "badRequest", text)
}

/// A fingerprint does not match that of the object.
pub(super) fn stale() -> Problem {
    Problem::new(412, "conditionNotMet", "Invalid fingerprint.")
}

/// A quota is exceeded.
pub(super) fn quota(metric: &str, limit: usize, place: &str) -> Problem {
    let place = if place.is_empty() { "globally".to_owned() } else { format!("in region {place}") };
    Problem::new(403, "quotaExceeded", format!("Quota '{metric}' exceeded.  Limit: {limit}.0 {place}."))
}

/// The caller lacks a permission.
pub(super) fn denied(permission: &str, key: &str) -> Problem {
    Problem::new(403, "forbidden", format!("Required '{permission}' permission for '{key}'"))
}

/// There is no token, or it is invalid or expired.
pub(super) fn unauthorized(given: bool) -> Problem {
    let see = "Expected OAuth 2 access token, login cookie or other valid authentication credential. See https://developers.google.com/identity/sign-in/web/devconsole-project.";
    if given {
        Problem::new(401, "authError", format!("Request had invalid authentication credentials. {see}"))
    } else {
        Problem::new(401, "required", format!("Request is missing required authentication credential. {see}"))
    }
}

/// An error in the format of the API.
pub(super) fn render(problem: &Problem) -> Reply {
    let Problem { status, code, message, .. } = problem;
    let mut entry = json!({"message": message, "domain": "global", "reason": code});
    if code == "rateLimitExceeded" || code == "quotaExceeded" {
        set(&mut entry, "domain", "usageLimits");
    }
    if *status == 401 {
        let short = if code == "authError" { "Invalid Credentials" } else { "Login Required." };
        entry = json!({
            "message": short, "domain": "global", "reason": code, "location": "Authorization", "locationType": "header",
        });
    }
    let mut error = json!({"code": status, "message": message, "errors": [entry]});
    if let Some(name) = status_name(*status, code) {
        set(&mut error, "status", name);
    }
    let mut reply = Reply::json(*status, &json!({ "error": error }));
    if *status == 401 {
        let challenge = "Bearer realm=\"https://accounts.google.com/\", error=\"invalid_token\"";
        reply.headers.push(("www-authenticate", challenge.to_owned()));
    }
    reply
}

/// The name of a status, which only the common frontend of the APIs returns.
fn status_name(status: u16, reason: &str) -> Option<&'static str> {
    match (status, reason) {
        (401, _) => Some("UNAUTHENTICATED"),
        (429, _) => Some("RESOURCE_EXHAUSTED"),
        (403, "rateLimitExceeded") => Some("PERMISSION_DENIED"),
        (503, _) => Some("UNAVAILABLE"),
        _ => None,
    }
}

/// The reason phrase that a failed operation reports for a status.
pub(super) fn phrase(status: u16) -> &'static str {
    match status {
        400 => "BAD REQUEST",
        403 => "FORBIDDEN",
        404 => "NOT FOUND",
        409 => "CONFLICT",
        412 => "PRECONDITION FAILED",
        429 => "TOO MANY REQUESTS",
        503 => "SERVICE UNAVAILABLE",
        _ => "INTERNAL SERVER ERROR",
    }
}
