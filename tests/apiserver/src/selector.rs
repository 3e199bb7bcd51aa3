//! Label and field selectors.

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::{at, text};
use serde_json::Value;
use std::collections::BTreeMap;

/// A label selector: every requirement must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Labels(Vec<Requirement>);

#[derive(Debug, Clone)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Debug, Clone)]
enum Test {
    Exists,
    Missing,
    In(Vec<String>),
    NotIn(Vec<String>),
    Greater(i64),
    Less(i64),
}

impl Labels {
    /// Parses `a=b,c!=d,e in (x,y),f notin (z),g,!h,i>1`.
    pub(crate) fn parse(selector: &str) -> Result<Labels, ApiError> {
        let mut requirements = Vec::new();
        for part in split_top_level(selector) {
            if !part.trim().is_empty() {
                requirements.push(Requirement::parse(part.trim())?);
            }
        }
        Ok(Labels(requirements))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        self.0.iter().all(|requirement| {
            let found = labels.get(&requirement.key);
            match &requirement.test {
                Test::Exists => found.is_some(),
                Test::Missing => found.is_none(),
                Test::In(values) => found.is_some_and(|value| values.contains(value)),
                Test::NotIn(values) => found.is_none_or(|value| !values.contains(value)),
                Test::Greater(bound) => number(found).is_some_and(|value| value > *bound),
                Test::Less(bound) => number(found).is_some_and(|value| value < *bound),
            }
        })
    }
}

fn number(found: Option<&String>) -> Option<i64> {
    found.and_then(|value| value.parse().ok())
}

/// Splits at commas that are not inside parentheses.
fn split_top_level(selector: &str) -> Vec<&str> {
    let (mut parts, mut depth, mut start) = (Vec::new(), 0_i32, 0);
    for (index, character) in selector.char_indices() {
        match character {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(selector.get(start..index).unwrap_or_default());
                start = index + 1;
            }
            _ => {}
        }
    }
    parts.push(selector.get(start..).unwrap_or_default());
    parts
}

impl Requirement {
    fn parse(part: &str) -> Result<Requirement, ApiError> {
        let bad = || ApiError::bad_request(format!("unable to parse requirement: {part}"));
        let (key, test) = if let Some(key) = part.strip_prefix('!') {
            (key, Test::Missing)
        } else if let Some((key, values)) = set_part(part, " notin ") {
            (key, Test::NotIn(values))
        } else if let Some((key, values)) = set_part(part, " in ") {
            (key, Test::In(values))
        } else if let Some((key, value)) = part.split_once("!=") {
            (key, Test::NotIn(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, Test::In(vec![value.trim().to_owned()]))
        } else if let Some((key, value)) = part.split_once('>') {
            (key, Test::Greater(value.trim().parse().map_err(|_| bad())?))
        } else if let Some((key, value)) = part.split_once('<') {
            (key, Test::Less(value.trim().parse().map_err(|_| bad())?))
        } else {
            (part, Test::Exists)
        };
        let key = key.trim();
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        if key.is_empty() || !key.chars().all(allowed) {
            return Err(bad());
        }
        Ok(Requirement { key: key.to_owned(), test })
    }
}

/// `key in (a,b)` with the given operator.
fn set_part<'a>(part: &'a str, operator: &str) -> Option<(&'a str, Vec<String>)> {
    // `a in(b)` is legal too, so the blank behind the operator is optional.
    let (key, rest) = part.split_once(operator).or_else(|| part.split_once(&format!("{}(", operator.trim_end())))?;
    let rest = rest.trim().trim_start_matches('(').strip_suffix(')')?;
    Some((key, rest.split(',').map(|value| value.trim().to_owned()).collect()))
}

/// A field selector: every term must hold.
#[derive(Debug, Clone, Default)]
pub(crate) struct Fields(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    field: String,
    value: String,
    equal: bool,
}

impl Fields {
    /// Parses `a=b,c!=d` and refuses fields that the kind does not index.
    pub(crate) fn parse(kind: &Kind, selector: &str) -> Result<Fields, ApiError> {
        let mut terms = Vec::new();
        for part in selector.split(',').filter(|part| !part.is_empty()) {
            let (field, value, equal) = if let Some((field, value)) = part.split_once("!=") {
                (field, value, false)
            } else if let Some((field, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
                (field, value, true)
            } else {
                return Err(ApiError::bad_request(format!(
                    "invalid selector: '{selector}'; can't understand '{part}'"
                )));
            };
            if !names(kind).contains(&field) {
                return Err(unsupported(kind, field));
            }
            terms.push(Term { field: field.to_owned(), value: value.to_owned(), equal });
        }
        Ok(Fields(terms))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, fields: &[(&'static str, String)]) -> bool {
        self.0.iter().all(|term| {
            let found = fields.iter().find(|(name, _)| *name == term.field).map_or("", |(_, value)| value);
            (found == term.value) == term.equal
        })
    }
}

fn unsupported(kind: &Kind, field: &str) -> ApiError {
    let why = if matches!(kind.plural, "leases" | "configmaps" | "serviceaccounts" | "persistentvolumes") {
        format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    };
    ApiError::bad_request(why)
}

/// The selectable fields of a kind.
fn names(kind: &Kind) -> &'static [&'static str] {
    match kind.plural {
        "nodes" => &["metadata.name", "spec.unschedulable"],
        "namespaces" => &["metadata.name", "status.phase"],
        "pods" => &["metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"],
        "services" => &["metadata.name", "metadata.namespace", "spec.clusterIP", "spec.type"],
        "secrets" => &["metadata.name", "metadata.namespace", "type"],
        "events" => &[
            "metadata.name",
            "metadata.namespace",
            "involvedObject.kind",
            "involvedObject.namespace",
            "involvedObject.name",
            "involvedObject.uid",
            "involvedObject.apiVersion",
            "involvedObject.resourceVersion",
            "involvedObject.fieldPath",
            "reason",
            "reportingComponent",
            "source",
            "type",
        ],
        _ => &["metadata.name", "metadata.namespace"],
    }
}

/// The values of the selectable fields, taken once when the object is stored.
pub(crate) fn extract(kind: &Kind, value: &Value) -> Vec<(&'static str, String)> {
    let read = |field: &&'static str| {
        let found = match *field {
            "spec.unschedulable" => {
                at(value, &["spec", "unschedulable"]).and_then(Value::as_bool).unwrap_or(false).to_string()
            }
            "source" => match text(value, &["source", "component"]) {
                "" => text(value, &["reportingComponent"]).to_owned(),
                component => component.to_owned(),
            },
            path => text(value, &path.split('.').collect::<Vec<_>>()).to_owned(),
        };
        (*field, found)
    };
    names(kind).iter().map(read).collect()
}
