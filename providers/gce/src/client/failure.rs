//! The content of error responses, and failures before anything was sent.

use ccm_kit::call::{Cause, Failure};
use serde_json::Value;

use super::operation::{IN_USE, ORGANIZATION_POLICY};

/// A request that cannot be built.
pub(crate) fn malformed(message: String) -> Failure {
    Failure { message, cause: Cause::Malformed, ..Failure::default() }
}

/// The reason and the message in the body of an error response. Token endpoints use a flat format.
pub(crate) fn refusal(body: &Value) -> Option<(String, String)> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let error = body.get("error")?;
    if let Some(code) = error.as_str() {
        let message = text(body, "error_description").or_else(|| text(body, "message")).unwrap_or_default();
        return Some((code.to_owned(), message));
    }
    let reasons = error.get("errors").and_then(Value::as_array).into_iter().flatten();
    let mut reasons = reasons.filter_map(|entry| text(entry, "reason"));
    let message = text(error, "message").unwrap_or_default();
    let mut code = || reasons.next().or_else(|| text(error, "status")).or_else(|| Some(error.get("code")?.to_string()));
    match () {
        () if names_policy(&message) => Some((ORGANIZATION_POLICY.to_owned(), message)),
        // Regardless of the reason: upstream checks the message.
        () if message.contains("being used by") => Some((IN_USE.to_owned(), message)),
        () => Some((code()?, message)),
    }
}

/// Whether a message names a constraint of an organization policy.
pub(super) fn names_policy(message: &str) -> bool {
    message.contains("constraints/")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_are_read_by_their_first_reason() {
        let errors = |reason: &str, message: &str| json!({"error": {"code": 400, "message": message, "errors": [{"reason": reason, "message": message}]}});
        for (body, code, message) in [
            (errors("notFound", "m"), "notFound", "m"),
            (
                errors("invalid", "The x 'y' is already being used by 'z'"),
                IN_USE,
                "The x 'y' is already being used by 'z'",
            ),
            (
                errors("conditionNotMet", "Constraint constraints/compute.x violated for project p."),
                ORGANIZATION_POLICY,
                "Constraint constraints/compute.x violated for project p.",
            ),
            (json!({"error": {"code": 403, "status": "PERMISSION_DENIED", "message": "m"}}), "PERMISSION_DENIED", "m"),
            (json!({"error": {"code": 500}}), "500", ""),
            (json!({"error": "invalid_grant", "error_description": "Bad"}), "invalid_grant", "Bad"),
        ] {
            assert_eq!(refusal(&body), Some((code.to_owned(), message.to_owned())), "{body}");
        }
        assert_eq!(refusal(&json!({"x": 1})), None);
        assert_eq!(refusal(&json!([])), None);
    }
}
