//! The `filter` of lists, in its old form: `name eq regex`, `(name eq regex) (network ne regex)`. Nested fields and the
//! comparisons of AIP-160 are not simulated.

use super::errors;
use crate::core::rest::Problem;
use regex::Regex;
use serde_json::{Map, Value};

/// A filter: conditions, all of which must match.
#[derive(Debug, Default)]
pub(super) struct Filter(Vec<Condition>);

/// The whole field matches, or does not.
#[derive(Debug)]
struct Condition {
    field: String,
    regex: Regex,
    matches: bool,
}

impl Filter {
    /// Whether the filter is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Parses a filter; an empty filter matches everything.
    ///
    /// # Errors
    /// It is not a valid filter.
    pub(super) fn parse(text: &str) -> Result<Self, Problem> {
        if text.trim().is_empty() {
            return Ok(Filter::default());
        }
        let conditions = parts(text).and_then(|parts| parts.into_iter().map(condition).collect());
        conditions.map(Filter).ok_or_else(|| errors::invalid("filter", text, "Invalid list filter expression."))
    }

    /// Whether an object matches.
    pub(super) fn passes(&self, fields: &Map<String, Value>) -> bool {
        self.0.iter().all(|condition| condition.holds(fields))
    }
}

/// The conditions, each without its parentheses. A single one needs no parentheses.
fn parts(text: &str) -> Option<Vec<&str>> {
    let mut rest = text.trim();
    if !rest.starts_with('(') {
        return Some(vec![rest]);
    }
    let mut parts = Vec::new();
    while !rest.is_empty() {
        let inside = rest.strip_prefix('(')?;
        let end = closing(inside)?;
        parts.push(inside.get(..end)?.trim());
        rest = inside.get(end + 1..)?.trim_start();
    }
    Some(parts)
}

/// The end of the parenthesis that was opened before the text.
fn closing(text: &str) -> Option<usize> {
    let mut depth = 0_usize;
    for (at, letter) in text.char_indices() {
        match letter {
            '(' => depth += 1,
            ')' if depth == 0 => return Some(at),
            ')' => depth -= 1,
            _ => {}
        }
    }
    None
}

fn condition(text: &str) -> Option<Condition> {
    let (field, rest) = text.split_once(' ')?;
    let (word, regex) = rest.trim_start().split_once(' ')?;
    let matches = match word {
        "eq" => true,
        "ne" => false,
        _ => return None,
    };
    // Only comparisons are joined by words.
    let joined = regex.split(' ').any(|word| matches!(word, "AND" | "OR"));
    let named = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let regex = Regex::new(&format!("^(?:{})$", unquoted(regex.trim()))).ok()?;
    (named && !joined).then(|| Condition { field: field.to_owned(), regex, matches })
}

fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

impl Condition {
    fn holds(&self, fields: &Map<String, Value>) -> bool {
        let found = match fields.get(&self.field) {
            Some(Value::String(text)) => self.regex.is_match(text),
            Some(value @ (Value::Bool(_) | Value::Number(_))) => self.regex.is_match(&value.to_string()),
            _ => false,
        };
        found == self.matches
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passes(filter: &str) -> Option<bool> {
        let object = json!({
            "name": "dev-2-x", "description": "k8s-node-route", "network": "https://h/projects/p/global/networks/net",
            "canIpForward": true,
        });
        Some(Filter::parse(filter).ok()?.passes(object.as_object().unwrap()))
    }

    #[test]
    fn regular_expressions_match_whole_fields() {
        assert_eq!(passes("name eq dev-.*"), Some(true));
        assert_eq!(passes("name eq dev"), Some(false));
        assert_eq!(passes("name ne dev"), Some(true));
        assert_eq!(passes("name eq 'dev-2-x'"), Some(true));
        assert_eq!(passes("canIpForward eq true"), Some(true));
        assert_eq!(passes("network eq .*/net$"), Some(true));
        assert_eq!(passes("(name eq dev-.*) (description eq k8s-node-route) (network eq https://h/.*)"), Some(true));
        assert_eq!(passes("(name eq (dev|x)-.*) (description eq other)"), Some(false));
        assert_eq!(passes("nosuch eq .*"), Some(false));
    }

    #[test]
    fn an_invalid_filter_is_refused() {
        for wrong in [
            "name",
            "name eq (",
            "(name eq a) (name = b)",
            "(name eq a",
            "name ~ x",
            "(name = a) OR",
            "name eq a AND name eq b",
        ] {
            assert_eq!(passes(wrong), None, "{wrong}");
        }
        assert_eq!(passes(""), Some(true));
    }
}
