//! Bodies of requests, and the changes that they show to users.

use ccm_provider::Change;
use serde_json::{Map, Value, json};

use crate::client::octavia::{ACTIVE, ERROR};

pub(super) fn change(field: &'static str, before: &str, after: &str) -> Change {
    let some = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    Change { field: field.into(), before: some(before), after: some(after) }
}

/// Only added and removed tags: unchanged ones do not concern the reader.
pub(super) fn tag_change(before: &[String], after: &[String]) -> Change {
    let without = |tags: &[String], others: &[String]| {
        tags.iter().filter(|tag| !others.contains(tag)).map(String::as_str).collect::<Vec<_>>().join(" ")
    };
    change("tags", &without(before, after), &without(after, before))
}

/// The fields of a body.
#[derive(Default)]
pub(super) struct Fields(pub(super) Map<String, Value>);

impl Fields {
    pub(super) fn put(&mut self, key: &str, value: impl Into<Value>) {
        self.0.insert(key.to_owned(), value.into());
    }

    /// Puts a text that is not empty.
    pub(super) fn put_text(&mut self, key: &str, text: &str) {
        if !text.is_empty() {
            self.put(key, text);
        }
    }

    /// The fields below a key: a whole body.
    pub(super) fn below(self, key: &str) -> Value {
        json!({ key: self.0 })
    }
}

impl From<Fields> for Value {
    fn from(fields: Fields) -> Self {
        Self::Object(fields.0)
    }
}

/// A body of changed fields, and the changes to report.
#[derive(Default)]
pub(super) struct Changed {
    pub(super) body: Map<String, Value>,
    pub(super) changes: Vec<Change>,
}

impl Changed {
    /// Adds a field if it differs.
    pub(super) fn field<T: PartialEq + Into<Value> + Clone>(&mut self, name: &'static str, before: &T, after: &T) {
        if before != after {
            let (before, after): (Value, Value) = (before.clone().into(), after.clone().into());
            self.changes.push(change(name, &shown(&before), &shown(&after)));
            self.body.insert(name.to_owned(), after);
        }
    }

    /// Rewrites a part whose last change failed, with a field that it has.
    pub(super) fn again(&mut self, status: &str, name: &str) {
        if status == ERROR {
            self.changes.push(change("provisioning_status", ERROR, ACTIVE));
            self.body.entry("name").or_insert_with(|| name.into());
        }
    }

    pub(super) fn tags(&mut self, before: &[String], after: &[String]) {
        if before != after {
            self.changes.push(tag_change(before, after));
            self.body.insert("tags".to_owned(), after.into());
        }
    }
}

fn shown(value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other => other.to_string(),
    }
}
