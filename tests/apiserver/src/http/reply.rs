//! Responses and their bodies.

use crate::error::ApiError;
use crate::store::{List, Stored};
use bytes::Bytes;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, combinators::UnsyncBoxBody};
use serde_json::{Value, json};

/// The connection is closed instead of a response (or of the rest of one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection was closed")
    }
}

impl std::error::Error for Closed {}

/// Body of a response.
pub type Body = UnsyncBoxBody<Bytes, Closed>;

pub(super) type Reply = Response<Body>;

pub(super) fn full(bytes: impl Into<Bytes>) -> Body {
    Full::new(bytes.into()).map_err(|never| match never {}).boxed_unsync()
}

pub(super) fn with_body(code: u16, content_type: &'static str, body: Body) -> Reply {
    let mut reply = Response::new(body);
    *reply.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = reply.headers_mut();
    headers.insert(header::CONTENT_TYPE, header::HeaderValue::from_static(content_type));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-cache, private"));
    reply
}

pub(super) fn json_value(code: u16, value: &Value) -> Reply {
    with_body(code, "application/json", full(value.to_string()))
}

pub(super) fn object(code: u16, stored: &Stored) -> Reply {
    with_body(code, "application/json", full(stored.bytes.clone()))
}

pub(super) fn plain(code: u16, text: &str) -> Reply {
    with_body(code, "text/plain; charset=utf-8", full(text.to_owned()))
}

pub(super) fn error(error: &ApiError) -> Reply {
    let mut reply = json_value(error.code, &error.to_status());
    if let Some(seconds) = error.retry_after {
        reply.headers_mut().insert(header::RETRY_AFTER, header::HeaderValue::from(seconds));
    }
    reply
}

/// The `metadata` of a list.
pub(super) fn list_metadata(list: &List) -> Value {
    let mut metadata = json!({"resourceVersion": list.version.to_string()});
    if !list.continue_token.is_empty() {
        crate::value::set(&mut metadata, "/continue", list.continue_token.clone());
    }
    if let Some(remaining) = list.remaining {
        crate::value::set(&mut metadata, "/remainingItemCount", remaining);
    }
    metadata
}

/// A list, assembled from the shared bytes of the objects.
pub(super) fn list(list: &List) -> Reply {
    let (kind, version, metadata) = (list.kind.kind, list.kind.api_version(), list_metadata(list));
    let head = format!("{{\"kind\":\"{kind}List\",\"apiVersion\":\"{version}\",\"metadata\":{metadata},\"items\":[");
    let mut bytes = head.into_bytes();
    for (index, stored) in list.items.iter().enumerate() {
        bytes.extend_from_slice(if index == 0 { b"{" } else { b",{" });
        bytes.extend_from_slice(stored.bare());
    }
    bytes.extend_from_slice(b"]}\n");
    with_body(200, "application/json", full(bytes))
}

/// An HTML page like that of a proxy or load balancer.
pub(super) fn html(code: u16) -> Reply {
    let title = StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()).unwrap_or("Error");
    let page = format!(
        "<html>\r\n<head><title>{code} {title}</title></head>\r\n<body><h1>{code} {title}</h1></body>\r\n</html>\r\n"
    );
    with_body(code, "text/html", full(page))
}
