//! Requests with a token, and what is in their refusals.

use bytes::Bytes;
use ccm_kit::call::{Cause, Failure};
use ccm_kit::http::{Answer, Client};
use http::{Method, Request, header};
use serde_json::Value;

use super::credentials::Tokens;
use super::operation::{IN_USE, ORGANIZATION_POLICY};
use super::write::{LONGEST_WAIT, names_policy};

/// What is sent.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    /// With the query.
    pub(crate) url: String,
    pub(crate) body: Option<Value>,
    /// Whether the answer may take minutes.
    pub(crate) is_long: bool,
}

/// Sends requests with a token. One for the process.
#[derive(Debug)]
pub(crate) struct Session {
    http: Client,
    /// For answers that take minutes.
    patient: Client,
    tokens: Tokens,
    /// The base of the Resource Manager API, ending with a slash.
    pub(super) resource_manager: String,
}

impl Session {
    /// For the Compute API, and the Resource Manager API at this base.
    pub(crate) fn new(http: Client, tokens: Tokens, resource_manager: String) -> Self {
        Self { patient: http.patient(LONGEST_WAIT), http, tokens, resource_manager }
    }

    /// Sends a request; once more with a new token after 401.
    pub(crate) async fn send(&self, message: &Message) -> Result<Answer, Failure> {
        let token = self.tokens.get().await?;
        match self.exchange(message, token.header()).await {
            Err(failure) if failure.status == Some(401) => {
                let token = self.tokens.after(&token).await?;
                self.exchange(message, token.header()).await
            }
            answer => answer,
        }
    }

    async fn exchange(&self, message: &Message, token: header::HeaderValue) -> Result<Answer, Failure> {
        let mut request = Request::builder().method(&message.method).uri(&message.url);
        if let Some(headers) = request.headers_mut() {
            headers.insert(header::AUTHORIZATION, token);
            headers.insert(header::ACCEPT, header::HeaderValue::from_static("application/json"));
            if message.body.is_some() {
                headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
            }
        }
        let body = message.body.as_ref().map(|body| Bytes::from(body.to_string())).unwrap_or_default();
        let request = request.body(body).map_err(|_| malformed(format!("{:?} is not a URL", message.url)))?;
        let http = if message.is_long { &self.patient } else { &self.http };
        http.send(request).await
    }
}

/// A request that cannot be built.
pub(crate) fn malformed(message: String) -> Failure {
    Failure { message, cause: Cause::Malformed, ..Failure::default() }
}

/// What is in the body of a refusal: the reason and the message. Token endpoints answer flat.
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
        // With whichever reason: the message is what upstream goes by.
        () if message.contains("being used by") => Some((IN_USE.to_owned(), message)),
        () => Some((code()?, message)),
    }
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
