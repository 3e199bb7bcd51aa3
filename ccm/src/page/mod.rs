//! The page for people: `/debug/`, and `ccm snapshot --html`.
//!
//! One file without external parts. The data is in it as JSON, so that it needs no other request, and a saved page still
//! works. Its policy allows only its own script and style, by their hashes.

pub(crate) mod live;
pub(crate) mod objects;
#[cfg(test)]
mod tests;

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;

const TEMPLATE: &str = include_str!("page.html");

/// The content.
#[derive(Debug, Serialize)]
pub(crate) struct Page {
    pub(crate) title: String,
    pub(crate) notes: Vec<String>,
    pub(crate) facts: Vec<(&'static str, String)>,
    pub(crate) tables: Vec<Table>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Table {
    pub(crate) title: &'static str,
    pub(crate) columns: &'static [&'static str],
    pub(crate) rows: Vec<Row>,
    /// Shown if there are no rows.
    pub(crate) empty: &'static str,
}

#[derive(Debug, Serialize)]
pub(crate) struct Row {
    pub(crate) level: Level,
    /// One per column.
    pub(crate) cells: Vec<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// Neither good nor bad.
    Plain,
    Good,
    Waiting,
    Bad,
}

impl Page {
    pub(crate) fn html(&self) -> String {
        // Without `<` no text can end the element that contains it.
        let data = serde_json::to_string(self).unwrap_or_default().replace('<', "\\u003c");
        TEMPLATE.replacen("{{policy}}", &policy(), 1).replacen("{{data}}", &data, 1)
    }
}

/// The Content-Security-Policy: nothing but the script and the style of the page.
pub(crate) fn policy() -> String {
    let hash = |open: &str, close: &str| {
        let rest = TEMPLATE.split_once(open).map_or("", |(_, rest)| rest);
        let content = rest.split_once(close).map_or("", |(content, _)| content);
        STANDARD.encode(digest(&SHA256, content.as_bytes()))
    };
    format!(
        "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; base-uri 'none'; form-action 'none'",
        hash("<script>", "</script>"),
        hash("<style>", "</style>")
    )
}
