//! Access to parts of JSON bodies by pointer; a missing part is null, empty or absent.

use serde_json::{Value, json};

static NULL: Value = Value::Null;

/// The value at a pointer; null if missing.
pub(super) fn at<'a>(value: &'a Value, pointer: &str) -> &'a Value {
    value.pointer(pointer).unwrap_or(&NULL)
}

/// The string at a pointer; empty if missing.
pub(super) fn text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    at(value, pointer).as_str().unwrap_or_default()
}

/// The list at a pointer; empty if missing.
pub(super) fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    at(value, pointer).as_array().map(Vec::as_slice).unwrap_or_default()
}

/// The elements of the list at a pointer, to change them.
pub(super) fn each<'a>(value: &'a mut Value, pointer: &str) -> std::slice::IterMut<'a, Value> {
    value.pointer_mut(pointer).and_then(Value::as_array_mut).map(|items| items.iter_mut()).unwrap_or_default()
}

/// The strings in the list at a pointer.
pub(super) fn texts<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    list(value, pointer).iter().filter_map(Value::as_str)
}

/// The number at a pointer.
pub(super) fn number(value: &Value, pointer: &str) -> Option<i64> {
    at(value, pointer).as_i64()
}

/// Whether the value at a pointer is true.
pub(super) fn is(value: &Value, pointer: &str) -> bool {
    at(value, pointer).as_bool().unwrap_or_default()
}

/// Sets the value at a pointer; creates the objects around it.
pub(super) fn set(value: &mut Value, pointer: &str, new: impl Into<Value>) {
    let Some((head, name)) = pointer.rsplit_once('/') else { return };
    let mut at = value;
    for part in head.split('/').filter(|part| !part.is_empty()) {
        if !at.is_object() {
            *at = json!({});
        }
        let Value::Object(map) = at else { return };
        at = map.entry(part.to_owned()).or_insert(Value::Null);
    }
    if !at.is_object() {
        *at = json!({});
    }
    if let Value::Object(map) = at {
        map.insert(name.to_owned(), new.into());
    }
}

/// Sets the value at a pointer if there is none.
pub(super) fn default(value: &mut Value, pointer: &str, new: impl Into<Value>) {
    if at(value, pointer).is_null() {
        set(value, pointer, new);
    }
}

/// Removes the value at a pointer.
pub(super) fn remove(value: &mut Value, pointer: &str) -> Value {
    let Some((head, name)) = pointer.rsplit_once('/') else { return Value::Null };
    let parent = if head.is_empty() { Some(value) } else { value.pointer_mut(head) };
    parent.and_then(Value::as_object_mut).and_then(|map| map.remove(name)).unwrap_or_default()
}

/// Merges objects; lists and plain values are replaced, and what is absent stays. Null removes.
pub(super) fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (name, change) in changes {
                if change.is_null() {
                    fields.remove(&name);
                } else {
                    merge(fields.entry(name).or_insert(Value::Null), change);
                }
            }
        }
        (value, change) => *value = change,
    }
}

/// Removes null fields of objects, at all levels.
pub(super) fn without_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| !inner.is_null());
            map.values_mut().for_each(without_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(without_nulls),
        _ => {}
    }
}

/// Whether two texts are equal regardless of case.
pub(super) fn same(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}
