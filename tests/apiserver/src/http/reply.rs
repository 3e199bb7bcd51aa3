//! Answers and their bodies.

use crate::error::ApiError;
use crate::store::{List, Stored};
use bytes::{BufMut, Bytes, BytesMut};
use futures::stream;
use http::{Response, StatusCode, header};
use http_body_util::{BodyExt, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::body::Frame;
use serde_json::{Value, json};
use std::sync::Arc;

/// The connection is closed instead of an answer (or of the rest of one).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Closed;

impl std::fmt::Display for Closed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the connection was closed")
    }
}

impl std::error::Error for Closed {}

/// Body of an answer.
pub type Body = UnsyncBoxBody<Bytes, Closed>;

pub(super) type Reply = Response<Body>;

/// How much of a list is put together before it is written.
const BLOCK: usize = 128 * 1024;

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
        crate::value::set(&mut metadata, &["continue"], list.continue_token.clone());
    }
    if let Some(remaining) = list.remaining {
        crate::value::set(&mut metadata, &["remainingItemCount"], remaining);
    }
    metadata
}

/// A list, written in blocks from the bytes that the objects share.
pub(super) fn list(list: List) -> Reply {
    let kind = list.kind;
    let head = format!(
        "{{\"kind\":\"{}List\",\"apiVersion\":\"{}\",\"metadata\":{},\"items\":[",
        kind.kind,
        kind.api_version(),
        list_metadata(&list)
    );
    let mut items = list.items.into_iter();
    let mut first = true;
    let mut pending = Some(BytesMut::from(head.as_bytes()));
    let blocks = std::iter::from_fn(move || {
        let mut block = pending.take()?;
        while block.len() < BLOCK {
            let Some(stored) = items.next() else {
                block.put_slice(b"]}\n");
                return Some(block.freeze());
            };
            put_item(&mut block, &stored, std::mem::take(&mut first));
        }
        pending = Some(BytesMut::with_capacity(BLOCK + BLOCK / 4));
        Some(block.freeze())
    });
    let frames = stream::iter(blocks.map(|block| Ok::<_, Closed>(Frame::data(block))));
    with_body(200, "application/json", BodyExt::boxed_unsync(StreamBody::new(frames)))
}

fn put_item(block: &mut BytesMut, stored: &Arc<Stored>, first: bool) {
    block.put_slice(if first { b"{" } else { b",{" });
    block.put_slice(&stored.bare());
}

/// A page as a proxy or load balancer would send it.
pub(super) fn html(code: u16) -> Reply {
    let title = StatusCode::from_u16(code).ok().and_then(|code| code.canonical_reason()).unwrap_or("Error");
    let page = format!(
        "<html>\r\n<head><title>{code} {title}</title></head>\r\n<body>\r\n<center><h1>{code} {title}</h1></center>\r\n</body>\r\n</html>\r\n"
    );
    with_body(code, "text/html", full(page))
}
