//! The `filter` of lists: the old form `field eq regex`, or the comparisons of AIP-160, but not both.

use super::errors;
use crate::core::rest::Problem;
use regex::Regex;
use serde_json::{Map, Value};

/// A filter: alternatives of conditions, all of which must match.
#[derive(Debug, Default)]
pub(super) struct Filter(Vec<Vec<Condition>>);

#[derive(Debug)]
struct Condition {
    path: Vec<String>,
    test: Test,
}

#[derive(Debug)]
enum Test {
    /// The whole field matches (or does not).
    Regex(Regex, bool),
    /// The field equals (or does not equal) this.
    Is(String, bool),
    /// The field contains this; `*`: it is present.
    Has(String),
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
        let wrong = || errors::invalid("filter", text, "Invalid list filter expression.");
        if text.trim().is_empty() {
            return Ok(Filter(vec![Vec::new()]));
        }
        let parts = parts(text).ok_or_else(wrong)?;
        let mut alternatives = vec![Vec::new()];
        let (mut old, mut new) = (false, false);
        for part in parts {
            match part.as_str() {
                "AND" => new = true,
                "OR" => {
                    new = true;
                    alternatives.push(Vec::new());
                }
                part => {
                    let condition = condition(part).ok_or_else(wrong)?;
                    match condition.test {
                        Test::Regex(..) => old = true,
                        _ => new = true,
                    }
                    alternatives.last_mut().ok_or_else(wrong)?.push(condition);
                }
            }
        }
        if old && new || alternatives.iter().any(Vec::is_empty) {
            return Err(wrong());
        }
        Ok(Filter(alternatives))
    }

    /// Whether an object matches.
    pub(super) fn passes(&self, fields: &Map<String, Value>) -> bool {
        self.0.iter().any(|all| all.iter().all(|condition| condition.holds(fields)))
    }
}

/// The conditions, each without its parentheses, and the words between them. A single one needs no parentheses.
fn parts(text: &str) -> Option<Vec<String>> {
    let text = text.trim();
    if !text.starts_with('(') {
        return Some(split_and(text));
    }
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        if let Some(inside) = rest.strip_prefix('(') {
            let end = closing(inside)?;
            parts.push(inside.get(..end)?.trim().to_owned());
            rest = inside.get(end + 1..)?.trim_start();
        } else {
            let word = ["AND", "OR"].into_iter().find(|word| rest.starts_with(word))?;
            parts.push(word.to_owned());
            rest = rest.get(word.len()..)?.trim_start();
        }
    }
    Some(parts)
}

/// Splits conditions without parentheses that are joined by AND or OR.
fn split_and(text: &str) -> Vec<String> {
    let mut parts = vec![String::new()];
    for word in text.split(' ') {
        match (word, parts.last_mut()) {
            ("AND" | "OR", _) => parts.extend([word.to_owned(), String::new()]),
            (word, Some(last)) if last.is_empty() => last.push_str(word),
            (word, Some(last)) => last.push_str(&format!(" {word}")),
            (_, None) => {}
        }
    }
    parts
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
    let end = text.find(|letter: char| !(letter.is_ascii_alphanumeric() || "._-[]".contains(letter)))?;
    let (field, rest) = text.split_at(end);
    let path: Vec<String> = field.split('.').map(str::to_owned).collect();
    let rest = rest.trim_start();
    let test = if let Some((word, regex)) = rest.split_once(' ').filter(|(word, _)| matches!(*word, "eq" | "ne")) {
        let regex = Regex::new(&format!("^(?:{})$", unquoted(regex.trim()))).ok()?;
        Test::Regex(regex, word == "eq")
    } else if let Some(value) = rest.strip_prefix("!=") {
        Test::Is(unquoted(value.trim()).to_owned(), false)
    } else if let Some(value) = rest.strip_prefix('=') {
        Test::Is(unquoted(value.trim()).to_owned(), true)
    } else {
        Test::Has(unquoted(rest.strip_prefix(':')?.trim()).to_owned())
    };
    path.iter().all(|name| !name.is_empty()).then_some(Condition { path, test })
}

fn unquoted(text: &str) -> &str {
    let inside = |quote: char| text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote));
    inside('"').or_else(|| inside('\'')).unwrap_or(text)
}

impl Condition {
    fn holds(&self, fields: &Map<String, Value>) -> bool {
        let mut values = Vec::new();
        if let Some((first, rest)) = self.path.split_first()
            && let Some(value) = fields.get(first)
        {
            collect(value, rest, &mut values);
        }
        match &self.test {
            Test::Regex(regex, wanted) => values.iter().any(|value| regex.is_match(value)) == *wanted,
            Test::Is(text, wanted) => values.iter().any(|value| value == text) == *wanted,
            Test::Has(text) if text == "*" => !values.is_empty(),
            Test::Has(text) => values.iter().any(|value| value.to_lowercase().contains(&text.to_lowercase())),
        }
    }
}

/// The values at a path, as strings; a list yields the values of all its elements.
fn collect(value: &Value, path: &[String], found: &mut Vec<String>) {
    match (value, path.split_first()) {
        (Value::Array(items), _) => items.iter().for_each(|item| collect(item, path, found)),
        (Value::Object(fields), Some((first, rest))) => {
            if let Some(value) = fields.get(first) {
                collect(value, rest, found);
            }
        }
        (Value::String(text), None) => found.push(text.clone()),
        (Value::Bool(_) | Value::Number(_), None) => found.push(value.to_string()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn passes(filter: &str) -> Option<bool> {
        let object = json!({
            "name": "dev-2-x", "description": "k8s-node-route", "network": "https://h/projects/p/global/networks/net",
            "labels": {"a": "1"}, "canIpForward": true, "tags": {"items": ["t1", "t2"]},
        });
        Some(Filter::parse(filter).ok()?.passes(object.as_object().unwrap()))
    }

    #[test]
    fn regular_expressions_match_whole_fields() {
        assert_eq!(passes("name eq dev-.*"), Some(true));
        assert_eq!(passes("name eq dev"), Some(false));
        assert_eq!(passes("name ne dev"), Some(true));
        assert_eq!(passes("name eq 'dev-2-x'"), Some(true));
        assert_eq!(passes("network eq .*/net$"), Some(true));
        assert_eq!(passes("(name eq dev-.*) (description eq k8s-node-route) (network eq https://h/.*)"), Some(true));
        assert_eq!(passes("(name eq (dev|x)-.*) (description eq other)"), Some(false));
        assert_eq!(passes("nosuch eq .*"), Some(false));
    }

    #[test]
    fn comparisons_are_exact() {
        assert_eq!(passes("name = \"dev-2-x\""), Some(true));
        assert_eq!(passes("name=dev"), Some(false));
        assert_eq!(passes("name != dev"), Some(true));
        assert_eq!(passes("(canIpForward = true) AND (labels.a = 1)"), Some(true));
        assert_eq!(passes("name = x OR tags.items = t2"), Some(true));
        assert_eq!(passes("labels.a:* AND name:DEV"), Some(true));
        assert_eq!(passes("labels.b:*"), Some(false));
    }

    #[test]
    fn an_invalid_filter_is_refused() {
        for wrong in ["name", "name eq (", "(name eq a) (name = b)", "(name eq a", "name ~ x", "(name = a) OR"] {
            assert_eq!(passes(wrong), None, "{wrong}");
        }
        assert_eq!(passes(""), Some(true));
    }
}
