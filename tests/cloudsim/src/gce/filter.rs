//! The `filter` of lists, in its old form: `name eq regex`, `name eq "(a|b)"`, `(name eq regex) (network ne regex)`.
//! Nested fields and the comparisons of AIP-160 are not simulated.
//!
//! Only forms that Google's documentation, command line tool or Kubernetes programs show are accepted. A pattern may be
//! without quotes if it has only the characters that those programs send without them; parentheses and `|` are quoted by
//! all of them.

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

/// The conditions: a single one without parentheses, several with.
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
    (parts.len() > 1).then_some(parts)
}

/// The end of the parenthesis that was opened before the text, outside of quotes.
fn closing(text: &str) -> Option<usize> {
    let (mut quote, mut escaped) = (None, false);
    for (at, letter) in text.char_indices() {
        match (letter, quote) {
            _ if escaped => escaped = false,
            ('\\', Some(_)) => escaped = true,
            ('"' | '\'', None) => quote = Some(letter),
            (_, Some(open)) if letter == open => quote = None,
            (')', None) => return Some(at),
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
    let named = !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_alphanumeric());
    let regex = Regex::new(&format!("^(?:{})$", pattern(regex.trim())?)).ok()?;
    named.then(|| Condition { field: field.to_owned(), regex, matches })
}

/// The pattern of a literal. Within quotes a backslash before a quote escapes it, before anything else it is part of the
/// pattern.
fn pattern(text: &str) -> Option<String> {
    let Some(quote) = text.chars().next().filter(|first| matches!(first, '"' | '\'')) else {
        let plain = |c: char| c.is_ascii_alphanumeric() || "-_.*+?/:$^[]{}\\".contains(c);
        return (!text.is_empty() && text.chars().all(plain)).then(|| text.to_owned());
    };
    let inside = text.strip_prefix(quote)?.strip_suffix(quote)?;
    let (mut pattern, mut letters) = (String::new(), inside.chars());
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => match letters.next()? {
                escaped if escaped == quote => pattern.push(quote),
                other => pattern.extend(['\\', other]),
            },
            letter if letter == quote => return None,
            letter => pattern.push(letter),
        }
    }
    Some(pattern)
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
        assert_eq!(passes(r#"(name eq "(dev|x)-.*")(description eq 'other')"#), Some(false));
        assert_eq!(passes(r#"name eq "(dev|x)-.*""#), Some(true));
        assert_eq!(passes(r#"name eq "dev\-2[-]x""#), Some(true));
        assert_eq!(passes(r#"name ne "a\"b""#), Some(true));
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
            // Nothing shows these to be accepted.
            "name eq (a|b)",
            "name eq a|b",
            "(name eq a)",
            "name eq",
            "name eq a b",
            r#"name eq "a" b""#,
            r#"name eq "a"#,
        ] {
            assert_eq!(passes(wrong), None, "{wrong}");
        }
        assert_eq!(passes(""), Some(true));
    }
}
