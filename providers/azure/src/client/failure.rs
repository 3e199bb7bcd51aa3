//! The content of error answers, and failures before anything was sent.

use ccm_kit::call::{Cause, Failure};
use serde_json::Value;

use super::operation::BUSY_CODES;

/// A request that cannot be built.
pub(crate) fn malformed(message: String) -> Failure {
    Failure { message, cause: Cause::Malformed, ..Failure::default() }
}

/// An answer that cannot be used.
pub(super) fn unreadable(message: impl Into<String>) -> Failure {
    Failure { message: message.into(), cause: Cause::NoAnswer, ..Failure::default() }
}

const RETRYABLE: &str = "RetryableError";
/// Codes that say less than those of their details.
const GENERAL: [&str; 6] =
    [RETRYABLE, "Canceled", "PreconditionFailed", "OperationNotAllowed", "ResourceOperationFailure", "Failed"];

/// The code and the message in the body of an error answer, or of a failed operation. Token endpoints have a flat form.
pub(crate) fn refusal(body: &Value) -> Option<(String, String)> {
    let text = |value: &Value, key: &str| value.get(key).and_then(Value::as_str).map(str::to_owned);
    let error = body.get("error").filter(|error| !error.is_null()).or_else(|| body.get("odata.error"))?;
    if let Some(code) = error.as_str() {
        // What follows is new in each answer: the same refusal would be another event each time.
        let description = text(body, "error_description").unwrap_or_default();
        let message = description.split(" Trace ID:").next().unwrap_or_default();
        return Some((code.to_owned(), message.trim_end().to_owned()));
    }
    let details = error.get("details").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let (code, message) = (text(error, "code")?, text(error, "message").unwrap_or_default());
    let inner = details.iter().find_map(|detail| text(detail, "code").filter(|code| !code.is_empty()));
    // A new reason of an error that passes says no more than the error.
    let is_known = |inner: &String| code != RETRYABLE || BUSY_CODES.contains(&&**inner);
    let inner = inner.filter(|inner| GENERAL.contains(&&*code) && is_known(inner));
    let code = inner.unwrap_or(code);
    let others = details.iter().filter_map(|detail| text(detail, "message"));
    let others: Vec<String> = others.filter(|other| !other.is_empty() && !message.contains(&**other)).collect();
    let parts = std::iter::once(message.clone()).filter(|message| !message.is_empty()).chain(others);
    Some((code, parts.collect::<Vec<_>>().join("; ")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn refusals_are_read_with_their_details() {
        let busy = json!({"error": {"code": "RetryableError", "message": "A retryable error occurred.", "details": [
            {"code": "RetryableErrorDueToAnotherOperation", "message": "can be retried in 14 seconds"},
        ]}});
        let stale = json!({"error": {"code": "PreconditionFailed", "message": "m", "details": [
            {"code": "PreconditionFailedEtagMismatch", "message": "m"},
        ]}});
        let invalid =
            json!({"error": {"code": "InvalidResourceReference", "message": "m", "details": [{"code": "x"}]}});
        for (body, code, message) in [
            (busy, "RetryableErrorDueToAnotherOperation", "A retryable error occurred.; can be retried in 14 seconds"),
            (
                json!({"error": {"code": "RetryableError", "message": "m", "details": [{"code": "New"}]}}),
                "RetryableError",
                "m",
            ),
            (stale, "PreconditionFailedEtagMismatch", "m"),
            (invalid, "InvalidResourceReference", "m"),
            (json!({"error": {"code": "NotFound"}}), "NotFound", ""),
            (
                json!({"error": "invalid_client", "error_description": "AADSTS7000222"}),
                "invalid_client",
                "AADSTS7000222",
            ),
        ] {
            assert_eq!(refusal(&body), Some((code.to_owned(), message.to_owned())), "{body}");
        }
        for body in [json!({"error": null}), json!({}), json!([]), json!({"error": {"message": "m"}})] {
            assert_eq!(refusal(&body), None, "{body}");
        }
    }
}
