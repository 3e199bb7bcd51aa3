//! Responses: status, headers, body.

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use http_body_util::Full;
use serde_json::json;

pub(crate) type Answer = Response<Full<Bytes>>;

const PLAIN: HeaderValue = HeaderValue::from_static("text/plain; charset=utf-8");

pub(super) const HTML: HeaderValue = HeaderValue::from_static("text/html; charset=utf-8");

/// A response with the common headers.
pub(crate) fn answer(status: StatusCode, kind: HeaderValue, body: impl Into<Bytes>) -> Answer {
    let mut answer = Response::new(Full::new(body.into()));
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(header::CONTENT_TYPE, kind);
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    answer
}

/// A page with this Content-Security-Policy, which no other page may show in a frame.
pub(super) fn page(html: String, policy: &str) -> Answer {
    let mut answer = answer(StatusCode::OK, HTML, html);
    let policy = HeaderValue::try_from(format!("{policy}; frame-ancestors 'none'"));
    let policy = policy.unwrap_or(HeaderValue::from_static("default-src 'none'"));
    answer.headers_mut().insert(header::CONTENT_SECURITY_POLICY, policy);
    answer.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    answer
}

pub(super) fn moved(to: &'static str) -> Answer {
    let mut answer = text(StatusCode::MOVED_PERMANENTLY, "");
    answer.headers_mut().insert(header::LOCATION, HeaderValue::from_static(to));
    answer
}

pub(crate) fn text(status: StatusCode, body: impl Into<String>) -> Answer {
    answer(status, PLAIN, body.into())
}

/// An error in the form of Go's `http.Error`: the text and a line break.
pub(crate) fn error(status: StatusCode, message: impl std::fmt::Display) -> Answer {
    text(status, format!("{message}\n"))
}

pub(crate) fn not_found() -> Answer {
    error(StatusCode::NOT_FOUND, "404 page not found")
}

pub(super) fn json(body: &serde_json::Value) -> Answer {
    answer(StatusCode::OK, HeaderValue::from_static("application/json"), body.to_string())
}

/// A Kubernetes `Status`, indented as in upstream for users of a terminal.
fn status(code: StatusCode, reason: &str, message: &str, details: bool, pretty: bool) -> Answer {
    let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": message, "reason": reason});
    if let Some(status) = status.as_object_mut() {
        if details {
            status.insert("details".into(), json!({}));
        }
        status.insert("code".into(), code.as_u16().into());
    }
    let body = match pretty {
        true => serde_json::to_string_pretty(&status).unwrap_or_default(),
        false => format!("{status}\n"),
    };
    answer(code, HeaderValue::from_static("application/json"), body)
}

pub(super) fn unauthorized(headers: &HeaderMap) -> Answer {
    status(StatusCode::UNAUTHORIZED, "Unauthorized", "Unauthorized", false, is_terminal(headers))
}

pub(super) fn forbidden(headers: &HeaderMap, user: &str, verb: &str, path: &str, why: &str) -> Answer {
    let mut message = sanitized(&format!("forbidden: User {user:?} cannot {verb} path {path:?}"));
    if !why.is_empty() {
        message = format!("{message}: {why}");
    }
    status(StatusCode::FORBIDDEN, "Forbidden", &message, true, is_terminal(headers))
}

/// Escapes the text so that browsers do not interpret it as HTML.
fn sanitized(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

fn is_terminal(headers: &HeaderMap) -> bool {
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok()).unwrap_or_default();
    ["curl", "Wget", "Mozilla/5.0"].iter().any(|start| agent.starts_with(start))
}

/// Removes the body if the method is HEAD; keeps Content-Length.
pub(crate) fn for_method(method: &Method, mut answer: Answer) -> Answer {
    if method == Method::HEAD {
        let length = http_body::Body::size_hint(answer.body()).exact().unwrap_or_default();
        answer.headers_mut().insert(header::CONTENT_LENGTH, length.into());
        *answer.body_mut() = Full::default();
    }
    answer
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    async fn body(answer: Answer) -> String {
        String::from_utf8(answer.into_body().collect().await.unwrap().to_bytes().to_vec()).unwrap()
    }

    #[tokio::test]
    async fn a_refusal_is_a_kubernetes_status() {
        let none = HeaderMap::new();
        let answer = forbidden(&none, "jane", "get", "/<x>", "");
        assert_eq!(answer.status(), 403);
        assert_eq!(answer.headers()["cache-control"], "no-cache, private");
        assert_eq!(answer.headers()["x-content-type-options"], "nosniff");
        let read: serde_json::Value = serde_json::from_str(&body(answer).await).unwrap();
        assert_eq!(
            read,
            json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "details": {}, "code": 403,
                "message": "forbidden: User \"jane\" cannot get path \"/&lt;x&gt;\"", "reason": "Forbidden"})
        );
        let mut curl = HeaderMap::new();
        curl.insert(header::USER_AGENT, HeaderValue::from_static("curl/8.0"));
        let text = body(unauthorized(&curl)).await;
        assert!(text.contains("\n  \"message\": \"Unauthorized\""), "{text}");
        assert_eq!(body(unauthorized(&none)).await.lines().count(), 1);
    }

    #[tokio::test]
    async fn head_has_the_length_and_no_body() {
        let answer = for_method(&Method::HEAD, text(StatusCode::OK, "ok"));
        assert_eq!(answer.headers()["content-length"], "2");
        assert_eq!(body(answer).await, "");
    }
}
