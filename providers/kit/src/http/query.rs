//! Parts of URLs.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A query string with escaped parameters. Begins with `?` unless it is empty.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Query(String);

impl Query {
    /// Adds a parameter.
    #[must_use]
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.0.push(if self.0.is_empty() { '?' } else { '&' });
        self.0.push_str(key);
        self.0.push('=');
        self.0.push_str(&escaped(value));
        self
    }

    /// Adds a parameter for each value.
    #[must_use]
    pub fn each<'a>(self, key: &str, values: impl IntoIterator<Item = &'a str>) -> Self {
        values.into_iter().fold(self, |query, value| query.with(key, value))
    }
}

impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Escapes a text for a path or query.
pub fn escaped(text: &str) -> String {
    utf8_percent_encode(text, ESCAPED).to_string()
}
