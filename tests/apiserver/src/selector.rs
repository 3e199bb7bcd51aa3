//! Label and field selectors: equality-based ones, and existence of labels. Set-based selectors are rejected.

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::{at, text};
use serde_json::Value;
use std::collections::BTreeMap;

/// A selector: all terms must match.
#[derive(Debug, Clone, Default)]
pub(crate) struct Selector(Vec<Term>);

#[derive(Debug, Clone)]
struct Term {
    key: String,
    /// The value to compare with; `None` checks only existence.
    value: Option<String>,
    negated: bool,
}

/// The values to which selectors apply.
pub(crate) type Values = BTreeMap<String, String>;

impl Term {
    fn parse(part: &str) -> Term {
        let (key, value, negated) = if let Some((key, value)) = part.split_once("!=") {
            (key, Some(value), true)
        } else if let Some((key, value)) = part.split_once("==").or_else(|| part.split_once('=')) {
            (key, Some(value), false)
        } else {
            (part.trim_start_matches('!'), None, part.starts_with('!'))
        };
        Term { key: key.trim().to_owned(), value: value.map(|value| value.trim().to_owned()), negated }
    }
}

impl Selector {
    /// Parses `a=b,c!=d,e,!f`.
    pub(crate) fn labels(selector: &str) -> Result<Selector, ApiError> {
        let allowed = |c: char| c.is_ascii_alphanumeric() || "-_./".contains(c);
        let read = |part: &str| {
            let term = Term::parse(part.trim());
            let words = [Some(&term.key), term.value.as_ref()];
            let fits = !term.key.is_empty() && words.into_iter().flatten().all(|word| word.chars().all(allowed));
            fits.then_some(term).ok_or_else(|| ApiError::bad_request(format!("unable to parse requirement: {part}")))
        };
        selector.split(',').filter(|part| !part.trim().is_empty()).map(read).collect::<Result<_, _>>().map(Selector)
    }

    /// Parses `a=b,c!=d` and rejects fields that the kind does not index.
    pub(crate) fn fields(kind: &Kind, selector: &str) -> Result<Selector, ApiError> {
        let read = |part: &str| {
            let term = Term::parse(part);
            if term.value.is_none() {
                let why = format!("invalid selector: '{selector}'; can't understand '{part}'");
                return Err(ApiError::bad_request(why));
            }
            if names(kind).any(|name| name == term.key) { Ok(term) } else { Err(unsupported(kind, &term.key)) }
        };
        selector.split(',').filter(|part| !part.is_empty()).map(read).collect::<Result<_, _>>().map(Selector)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn matches(&self, values: &Values) -> bool {
        self.0.iter().all(|term| {
            let found = values.get(&term.key);
            let holds = match &term.value {
                Some(value) => found == Some(value),
                None => found.is_some(),
            };
            holds != term.negated
        })
    }
}

fn unsupported(kind: &Kind, field: &str) -> ApiError {
    let why = if matches!(kind.plural, "leases" | "persistentvolumes" | "configmaps") {
        format!("\"{field}\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\"")
    } else {
        format!("field label not supported: {field}")
    };
    ApiError::bad_request(why)
}

/// The selectable fields of a kind.
fn names(kind: &Kind) -> impl Iterator<Item = &'static str> {
    let own = match kind.plural {
        "nodes" => "spec.unschedulable",
        "namespaces" => "status.phase",
        "pods" => "spec.nodeName status.phase",
        "services" => "spec.clusterIP spec.type",
        "events" => {
            "involvedObject.kind involvedObject.namespace involvedObject.name involvedObject.uid \
             involvedObject.apiVersion involvedObject.resourceVersion involvedObject.fieldPath reason reportingComponent type"
        }
        _ => "",
    };
    let all = "metadata.name metadata.namespace".split(' ').filter(|name| kind.namespaced || *name == "metadata.name");
    all.chain(own.split_whitespace())
}

/// The values of the selectable fields.
pub(crate) fn fields(kind: &Kind, value: &Value) -> Values {
    let read = |field: &'static str| {
        let found = match field {
            "spec.unschedulable" => {
                at(value, "/spec/unschedulable").and_then(Value::as_bool).unwrap_or(false).to_string()
            }
            path => text(value, &format!("/{}", path.replace('.', "/"))).to_owned(),
        };
        (field.to_owned(), found)
    };
    names(kind).map(read).collect()
}
