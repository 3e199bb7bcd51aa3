//! Errors of Resource Manager, Microsoft.Network and Microsoft.Compute.

use super::ids::Id;
use crate::core::rest::{Problem, Reply};
use serde_json::{Value, json};

/// The body and headers of an error.
pub(super) fn render(problem: &Problem) -> Reply {
    let mut reply = Reply::json(problem.status, &json!({"error": body(problem)}));
    if let Some(seconds) = problem.retry_after {
        reply.headers.push(("retry-after", seconds.to_string()));
    }
    reply
}

/// The object `error`. Those of `Microsoft.Network` have details, if only an empty list; some of `Microsoft.Compute` name the
/// wrong parameter.
pub(super) fn body(problem: &Problem) -> Value {
    let mut error = json!({"code": problem.code, "message": problem.message});
    match &problem.details {
        Value::Null => {}
        Value::String(target) => super::json::set(&mut error, "/target", target.as_str()),
        details => super::json::set(&mut error, "/details", details.clone()),
    }
    error
}

/// An invalid request to `Microsoft.Network`.
pub(super) fn bad(code: &str, message: impl Into<String>) -> Problem {
    Problem { details: json!([]), ..Problem::new(400, code, message) }
}

/// A parameter is invalid.
pub(super) fn parameter(target: &str, message: &str) -> Problem {
    Problem { details: json!(target), ..Problem::new(400, "InvalidParameter", message) }
}

/// A resource does not exist.
pub(super) fn not_found(id: &Id) -> Problem {
    // Sub-resources have an error of their own service.
    if id.parts.len() > 1 {
        let text = format!("Resource {} not found.", id.text());
        return Problem { details: json!([]), ..Problem::new(404, "NotFound", text) };
    }
    let kind = id.parts.first().map(|(kind, _)| kind.as_str()).unwrap_or_default();
    let text = format!(
        "The Resource '{}/{kind}/{}' under resource group '{}' was not found. For more details please go to https://aka.ms/ARMResourceNotFoundFix",
        id.namespace,
        id.name(),
        id.group
    );
    Problem::new(404, "ResourceNotFound", text)
}

/// The resource group does not exist.
pub(super) fn no_group(group: &str) -> Problem {
    Problem::new(404, "ResourceGroupNotFound", format!("Resource group '{group}' could not be found."))
}

/// The enclosing resource does not exist.
pub(super) fn no_parent(id: &Id, parent: &Id) -> Problem {
    let types: Vec<&str> = id.parts.iter().map(|(kind, _)| kind.as_str()).collect();
    let text = format!(
        "Failed to perform 'read' on resource(s) of type '{}', because the parent resource '{}' could not be found.",
        types.join("/"),
        parent.text()
    );
    Problem::new(404, "ParentResourceNotFound", text)
}

/// A referenced resource does not exist.
pub(super) fn no_reference(target: &str, user: &str) -> Problem {
    let text = format!(
        "Resource {target} referenced by resource {user} was not found. Please make sure that the referenced resource exists, and that both resources are in the same region."
    );
    bad("InvalidResourceReference", text)
}

/// The ETag differs.
pub(super) fn etag(id: &Id, given: &str, current: &str) -> Problem {
    let text = format!("Etag provided in if-match header {given} does not match etag {current} of resource");
    if id.namespace.eq_ignore_ascii_case("Microsoft.Compute") {
        return Problem::new(412, "PreconditionFailed", format!("{text}."));
    }
    let text = format!("{text} {} in NRP data store.", id.text());
    Problem {
        details: json!([{"code": "PreconditionFailedEtagMismatch", "message": text}]),
        ..Problem::new(412, "PreconditionFailed", "Precondition failed.")
    }
}

/// Another operation is in the way: the call may be repeated soon. Nothing else is delayed.
pub(super) fn busy(code: &str, message: &str, seconds: u64) -> Problem {
    Problem {
        details: json!([{"code": code, "message": message}]),
        retry_after: Some(seconds),
        ..Problem::new(429, "RetryableError", "A retryable error occurred.")
    }
}

/// A resource that another one refers to is not in the state Succeeded.
pub(super) fn not_provisioned(target: &str, user: &str, state: &str, operation: &str) -> Problem {
    let text = format!(
        "Cannot proceed with operation because resource {target} used by resource {user} is not in Succeeded state. Resource is in {state} state and the last operation that updated/is updating the resource is {operation}."
    );
    const CODE: &str = "ReferencedResourceNotProvisioned";
    if state == "Failed" { bad(CODE, text) } else { busy(CODE, &text, 10) }
}

/// The identity lacks a right.
pub(super) fn forbidden(client: &str, action: &str, scope: &str) -> Problem {
    let text = format!(
        "The client '{client}' with object id '{client}' does not have authorization to perform action '{action}' over scope '{scope}' or the scope is invalid. If access was recently granted, please refresh your credentials."
    );
    Problem::new(403, "AuthorizationFailed", text)
}

/// The identity may write an object, and lacks a right on one that the object refers to.
pub(super) fn link_forbidden(client: &str, [action, linked]: [&str; 2], [id, target]: [&str; 2]) -> Problem {
    let text = format!(
        "The client '{client}' with object id '{client}' has permission to perform action '{action}' on scope '{id}'; however, it does not have permission to perform action '{linked}' on the linked scope(s) '{target}' or the linked scope(s) are invalid."
    );
    Problem::new(403, "LinkedAuthorizationFailed", text)
}

/// A throttled call.
pub(super) fn throttled(service: &str, costly: bool, mutating: bool, seconds: u64) -> Problem {
    let problem = match (service, costly) {
        ("compute", true) => {
            let details = json!({
                "operationGroup": "HighCostGet3Min", "allowedRequestCount": 140, "measuredRequestCount": 141,
            });
            Problem {
                details: json!([{
                    "code": "TooManyRequests", "target": "HighCostGet3Min", "message": details.to_string(),
                }]),
                ..Problem::new(
                    429,
                    "OperationNotAllowed",
                    "The server rejected the request because too many requests have been received for this subscription.",
                )
            }
        }
        _ => {
            let what = if mutating { "write" } else { "read" };
            let text = format!(
                "Number of {what} requests for subscription exceeded the limit. Please try again after '{seconds}' seconds."
            );
            Problem::new(429, "SubscriptionRequestsThrottled", text)
        }
    };
    Problem { retry_after: Some(seconds), ..problem }
}

/// The request has no token, or an invalid one.
pub(super) fn unauthorized(given: bool) -> Problem {
    if given {
        let text = "The access token expiry UTC time is earlier than current UTC time.";
        return Problem::new(401, "ExpiredAuthenticationToken", text);
    }
    Problem::new(401, "AuthenticationFailed", "Authentication failed. The 'Authorization' header is missing.")
}
