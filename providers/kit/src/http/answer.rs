//! Helpers for the answers and errors of transports.

use std::error::Error;
use std::time::{Duration, SystemTime};

use http::HeaderMap;
use serde::{Deserialize, Deserializer};

/// Whether a body is a web page, which is never an answer of an API.
pub fn is_web_page(body: &[u8]) -> bool {
    let head = body.get(..body.len().min(256)).unwrap_or_default().to_ascii_lowercase();
    let head = String::from_utf8_lossy(&head);
    let head = head.trim_start();
    head.starts_with("<!doctype html") || head.starts_with("<html")
}

/// The error message for a web page in place of an answer.
pub fn web_page(cloud: &str, status: Option<u16>) -> String {
    let status = status.map(|status| format!(" with HTTP {status}")).unwrap_or_default();
    format!("a web page{status} instead of an answer: a proxy or portal stands between this host and {cloud}")
}

/// The HTTP status, if any, and the causes of an error, outermost first, without duplicates and without the error
/// itself.
pub fn causes(error: &(dyn Error + 'static), status: Option<u16>) -> String {
    let mut texts: Vec<String> = status.map(|status| format!("HTTP {status}")).into_iter().collect();
    for cause in std::iter::successors(error.source(), |error| (*error).source()) {
        let text = cause.to_string();
        if !texts.iter().any(|known| known.contains(&text)) {
            texts.push(text);
        }
    }
    if texts.is_empty() { error.to_string() } else { texts.join(": ") }
}

/// Parses the delay of a `Retry-After`: seconds, or a date.
pub fn retry_after(value: &str) -> Option<Duration> {
    if let Ok(seconds) = value.trim().parse() {
        return Some(Duration::from_secs(seconds));
    }
    let date = jiff::fmt::rfc2822::parse(value.trim()).ok()?;
    Some(SystemTime::from(date.timestamp()).duration_since(SystemTime::now()).unwrap_or_default())
}

/// The delay that an answer requests, in any of the headers that clouds use for it.
pub fn requested_delay(headers: &HeaderMap) -> Option<Duration> {
    let text = |name: &str| headers.get(name)?.to_str().ok();
    let milliseconds =
        ["retry-after-ms", "x-ms-retry-after-ms"].into_iter().find_map(|name| text(name)?.trim().parse().ok());
    milliseconds.map(Duration::from_millis).or_else(|| retry_after(text("retry-after")?))
}

/// Defines objects in answers: a field that is missing or null has its default.
#[macro_export]
macro_rules! models {
    ($($(#[$attribute:meta])* $visible:vis struct $name:ident {
        $($(#[$note:meta])* $seen:vis $field:ident: $type:ty,)*
    })*) => {
        $(#[derive(Debug, Clone, PartialEq, Eq, Default, ::serde::Serialize, ::serde::Deserialize)]
        #[serde(default)]
        $(#[$attribute])*
        $visible struct $name {
            $($(#[$note])* #[serde(deserialize_with = "ccm_kit::http::null")] $seen $field: $type,)*
        })*
    };
}

/// Deserializes null as the default, for `#[serde(deserialize_with = "null")]`.
///
/// # Errors
///
/// The value has another type.
pub fn null<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}
