//! Resources as JSON objects in tables, and paginated lists of them.

use jiff::Timestamp;
use serde::ser::{Serialize, SerializeMap, Serializer};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// A resource: the fields in answers, and internal fields of the simulation, whose names begin with `_`.
#[derive(Debug, Clone, PartialEq)]
pub struct Row {
    /// The number in order of creation.
    pub seq: u64,
    pub made: Timestamp,
    pub fields: Map<String, Value>,
}

/// All resources of a kind, by ID.
pub type Table = BTreeMap<String, Row>;

impl Row {
    /// The string value of a field; empty if missing.
    pub fn text(&self, name: &str) -> &str {
        self.fields.get(name).and_then(Value::as_str).unwrap_or_default()
    }

    /// Whether a field is true.
    pub fn is(&self, name: &str) -> bool {
        self.fields.get(name).and_then(Value::as_bool).unwrap_or_default()
    }

    /// The number in a field, or 0.
    pub fn number(&self, name: &str) -> i64 {
        self.fields.get(name).and_then(Value::as_i64).unwrap_or_default()
    }

    /// The list in a field; empty if missing.
    pub fn list(&self, name: &str) -> &[Value] {
        self.fields.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
    }

    /// The strings in a field's list.
    pub fn texts(&self, name: &str) -> impl Iterator<Item = &str> {
        self.list(name).iter().filter_map(Value::as_str)
    }

    /// Sets a field.
    pub fn set(&mut self, name: &str, value: impl Into<Value>) {
        self.fields.insert(name.to_owned(), value.into());
    }

    /// The fields in answers.
    pub fn shown(&self) -> Map<String, Value> {
        let seen = self.fields.iter().filter(|(name, _)| !name.starts_with('_'));
        seen.map(|(name, value)| (name.clone(), value.clone())).collect()
    }

    /// The ID of the resource.
    pub fn id(&self) -> &str {
        self.text("id")
    }

    /// Whether a field has one of these values, as spelled in a query.
    pub fn matches<'a>(&self, name: &str, mut wanted: impl Iterator<Item = &'a str>) -> bool {
        let value = self.fields.get(name);
        wanted.any(|wanted| match value {
            None | Some(Value::Null) => wanted.is_empty(),
            Some(Value::String(text)) => text == wanted,
            Some(Value::Bool(is)) => is.to_string().eq_ignore_ascii_case(wanted),
            Some(Value::Array(items)) => items.iter().any(|item| item.as_str() == Some(wanted)),
            Some(Value::Number(number)) => wanted.parse().is_ok_and(|wanted: serde_json::Number| wanted == *number),
            Some(Value::Object(_)) => false,
        })
    }
}

/// A resource in an answer: without internal fields, and only with the requested fields.
#[derive(Debug, Clone, Copy)]
pub struct View<'a> {
    pub fields: &'a Map<String, Value>,
    /// The requested fields; empty: all.
    pub only: &'a [&'a str],
}

impl Serialize for View<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        for (name, value) in self.fields {
            if !name.starts_with('_') && (self.only.is_empty() || self.only.contains(&name.as_str())) {
                map.serialize_entry(name, value)?;
            }
        }
        map.end()
    }
}

/// A named list, with links to further pages.
#[derive(Debug)]
pub struct Page<'a> {
    /// The name of the list.
    pub name: &'a str,
    /// The elements.
    pub rows: Vec<View<'a>>,
    /// The links, in the field `<name>_links`; `None`: no such field.
    pub links: Option<Value>,
}

impl Serialize for Page<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(self.name, &self.rows)?;
        if let Some(links) = &self.links {
            map.serialize_entry(&format!("{}_links", self.name), links)?;
        }
        map.end()
    }
}

/// The rows of a list after a marker, at most `limit`. `None`: the marker is not in the list.
pub fn page<'a>(mut rows: Vec<&'a Row>, marker: Option<&str>, limit: Option<usize>) -> Option<Vec<&'a Row>> {
    if let Some(marker) = marker {
        let at = rows.iter().position(|row| row.id() == marker)?;
        rows.drain(..=at);
    }
    rows.truncate(limit.unwrap_or(usize::MAX));
    Some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn row(seq: u64, fields: &Value) -> Row {
        Row { seq, made: Timestamp::UNIX_EPOCH, fields: fields.as_object().unwrap().clone() }
    }

    #[test]
    fn an_answer_has_only_the_requested_fields_and_none_of_the_simulation() {
        let row = row(1, &json!({"id": "1", "name": "a", "_pool": "p"}));
        let shown = |only| serde_json::to_string(&View { fields: &row.fields, only }).unwrap();
        assert_eq!(shown(&[]), r#"{"id":"1","name":"a"}"#);
        assert_eq!(shown(&["name", "_pool"]), r#"{"name":"a"}"#);
    }

    #[test]
    fn filters_compare_as_queries_write_values() {
        let row = row(1, &json!({"id": "1", "up": true, "port": 80, "groups": ["a", "b"], "none": null}));
        let has = |name, wanted: &'static str| row.matches(name, [wanted].into_iter());
        assert!(has("id", "1") && has("up", "True") && has("port", "80") && has("groups", "b") && has("none", ""));
        assert!(!has("groups", "c") && !has("port", "8"));
    }

    #[test]
    fn a_page_begins_behind_its_marker() {
        let rows: Vec<Row> = (1..=4).map(|n| row(n, &json!({"id": n.to_string()}))).collect();
        let ids = |marker, limit| {
            let found = page(rows.iter().collect(), marker, limit)?;
            Some(found.iter().map(|row| row.id().to_owned()).collect::<String>())
        };
        assert_eq!(ids(Some("1"), Some(2)).unwrap(), "23");
        assert_eq!(ids(None, None).unwrap(), "1234");
        assert_eq!(ids(Some("9"), None), None);
    }
}
