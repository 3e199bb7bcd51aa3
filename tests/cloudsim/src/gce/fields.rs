//! The parameter `fields`: a partial answer, `nextPageToken,items(name,tags/items)`. `*` is any field of an object:
//! `items/*/instances(name)`.

use super::errors;
use crate::core::rest::{Problem, Reply};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// The selected fields; an empty selection has all.
#[derive(Debug, Default, PartialEq, Eq)]
struct Selection(BTreeMap<String, Selection>);

/// Reduces an answer to the selected fields, or replaces it with the error about the selection.
pub(super) fn select(fields: &str, reply: &mut Reply) {
    let Some(selection) = Selection::parse(fields) else {
        let text = format!("Invalid field selection {fields}");
        *reply = errors::render(&Problem::violation(400, "invalidParameter", text));
        return;
    };
    if let Ok(body) = serde_json::from_slice::<Value>(&reply.body) {
        reply.body = serde_json::to_vec(&selection.of(body)).unwrap_or_default();
    }
}

impl Selection {
    fn parse(text: &str) -> Option<Self> {
        let mut rest = text;
        let selection = Self::list(&mut rest)?;
        rest.is_empty().then_some(selection)
    }

    /// `a,b/c,d(e,f)`
    fn list(rest: &mut &str) -> Option<Self> {
        let mut selection = Self::default();
        loop {
            let (name, inner) = Self::path(rest)?;
            selection.add(name, inner);
            match rest.strip_prefix(',') {
                Some(more) => *rest = more,
                None => return Some(selection),
            }
        }
    }

    fn add(&mut self, name: String, inner: Self) {
        let own = self.0.entry(name).or_default();
        inner.0.into_iter().for_each(|(name, inner)| own.add(name, inner));
    }

    fn path(rest: &mut &str) -> Option<(String, Self)> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '*';
        let end = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        let (name, more) = rest.split_at(end);
        if name.is_empty() {
            return None;
        }
        *rest = more;
        if let Some(more) = rest.strip_prefix('/') {
            *rest = more;
            let (inner, selection) = Self::path(rest)?;
            return Some((name.to_owned(), Self([(inner, selection)].into())));
        }
        let Some(more) = rest.strip_prefix('(') else {
            return Some((name.to_owned(), Self::default()));
        };
        *rest = more;
        let inner = Self::list(rest)?;
        *rest = rest.strip_prefix(')')?;
        Some((name.to_owned(), inner))
    }

    fn of(&self, value: Value) -> Value {
        match value {
            _ if self.0.is_empty() => value,
            Value::Array(list) => list.into_iter().map(|value| self.of(value)).collect(),
            Value::Object(fields) => {
                let of = |name: &str| self.0.get(name).or_else(|| self.0.get("*"));
                let kept = fields.into_iter().filter_map(|(name, value)| Some((of(&name)?.of(value), name)));
                Value::Object(kept.map(|(value, name)| (name, value)).collect::<Map<_, _>>())
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_answer_has_only_the_selected_fields() {
        let all = json!({"kind": "k", "nextPageToken": "t", "items": [
            {"name": "a", "metadata": {"items": []}, "tags": {"items": ["x"], "fingerprint": "f"}}, {"name": "b"}]});
        let selection = Selection::parse("nextPageToken,items(name,tags/items)").unwrap();
        let expected = json!({"nextPageToken": "t", "items": [{"name": "a", "tags": {"items": ["x"]}}, {"name": "b"}]});
        assert_eq!(selection.of(all), expected);
        let all =
            json!({"items": {"zones/a": {"instances": [{"name": "a", "id": 1}]}, "zones/b": {"warning": 1, "id": 2}}});
        let selection = Selection::parse("items/*/warning,items/*/instances(name)").unwrap();
        let expected = json!({"items": {"zones/a": {"instances": [{"name": "a"}]}, "zones/b": {"warning": 1}}});
        assert_eq!(selection.of(all), expected);
    }

    #[test]
    fn a_selection_of_another_form_is_refused() {
        for wrong in ["", "a,", "a(b", "a)", "a b", "/a", "a/"] {
            assert_eq!(Selection::parse(wrong), None, "{wrong}");
        }
    }
}
