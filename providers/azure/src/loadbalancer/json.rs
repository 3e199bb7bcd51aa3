//! Views of objects as JSON. Pure.
//!
//! An object is written back as it was read, with the few fields changed that this program sets: fields that it does not
//! know survive.

use std::borrow::Borrow;

use serde_json::{Map, Value};

pub(crate) use crate::client::id::same;

/// A field of an object at any depth, by its names.
pub(crate) fn at<'v>(value: &'v Value, path: &[&str]) -> &'v Value {
    path.iter().fold(value, |value, name| value.get(name).unwrap_or(&Value::Null))
}

/// A text at any depth; empty if it is absent.
pub(crate) fn text<'v>(value: &'v Value, path: &[&str]) -> &'v str {
    at(value, path).as_str().unwrap_or_default()
}

/// A list at any depth; empty if it is absent.
pub(crate) fn list<'v>(value: &'v Value, path: &[&str]) -> &'v [Value] {
    at(value, path).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// A number at any depth.
pub(crate) fn number(value: &Value, path: &[&str]) -> Option<i64> {
    at(value, path).as_i64()
}

/// A list in the properties of an object.
pub(crate) fn items<'v>(value: &'v Value, name: &str) -> &'v [Value] {
    list(value, &["properties", name])
}

/// The name of an object.
pub(crate) fn name(value: &Value) -> &str {
    text(value, &["name"])
}

/// A property that is a text.
pub(crate) fn property<'v>(value: &'v Value, name: &str) -> &'v str {
    text(value, &["properties", name])
}

/// The ID to which a property refers.
pub(crate) fn reference<'v>(value: &'v Value, name: &str) -> &'v str {
    text(value, &["properties", name, "id"])
}

/// The item of a list with this name.
pub(crate) fn named<'v, V: Borrow<Value>>(list: &'v [V], wanted: &str) -> Option<&'v Value> {
    list.iter().map(Borrow::borrow).find(|item| same(name(item), wanted))
}

/// The object in a field, made if it is missing.
pub(crate) fn object_mut<'v>(value: &'v mut Value, field: &str) -> &'v mut Map<String, Value> {
    let fields = as_object(value);
    as_object(fields.entry(field).or_insert_with(|| Value::Object(Map::new())))
}

/// The list in the properties of an object, made if it is missing.
pub(crate) fn items_mut<'v>(value: &'v mut Value, field: &str) -> &'v mut Vec<Value> {
    let slot = object_mut(value, "properties").entry(field).or_insert_with(|| Value::Array(Vec::new()));
    if !slot.is_array() {
        *slot = Value::Array(Vec::new());
    }
    match slot {
        Value::Array(list) => list,
        _ => unreachable!("it was just made a list"),
    }
}

fn as_object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(fields) => fields,
        _ => unreachable!("it was just made an object"),
    }
}

/// Sets the fields of `new` in `old`, at any depth; a null removes its field. Other fields stay.
pub(crate) fn overlay(old: &mut Value, new: &Value) {
    match new {
        Value::Object(fields) => {
            let own = as_object(old);
            for (key, value) in fields {
                match value {
                    Value::Null => drop(own.remove(key)),
                    _ => overlay(own.entry(key).or_insert(Value::Null), value),
                }
            }
        }
        _ => old.clone_from(new),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_overlay_keeps_what_it_does_not_name() {
        let mut old = json!({"name": "a", "properties": {"port": 80, "own": {"x": 1}, "probe": {"id": "p"}}});
        overlay(&mut old, &json!({"properties": {"port": 81, "probe": null}}));
        assert_eq!(old, json!({"name": "a", "properties": {"port": 81, "own": {"x": 1}}}));
    }

    #[test]
    fn what_is_absent_reads_as_empty() {
        let value = json!({"properties": {"list": null}});
        assert_eq!(items(&value, "list").len() + items(&value, "none").len(), 0);
        assert_eq!((name(&value), reference(&value, "list"), number(&value, &["x", "y"])), ("", "", None));
        let mut value = value;
        items_mut(&mut value, "list").push(json!(1));
        assert_eq!(value, json!({"properties": {"list": [1]}}));
    }
}
