//! Reads and writes untyped objects by JSON pointer. A JSON null counts as absent, as for Go's types.

use serde_json::{Map, Value};

/// The value at `path`, or `None` if any step is missing or null.
pub(crate) fn at<'a>(value: &'a Value, path: &str) -> Option<&'a Value> {
    value.pointer(path).filter(|found| !found.is_null())
}

/// The text at `path`; empty when missing or of another type.
pub(crate) fn text<'a>(value: &'a Value, path: &str) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The list at `path`; empty when missing or of another type.
pub(crate) fn list<'a>(value: &'a Value, path: &str) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The mutable list at `path`; empty when missing or of another type.
pub(crate) fn list_mut<'a>(value: &'a mut Value, path: &str) -> &'a mut [Value] {
    value.pointer_mut(path).and_then(Value::as_array_mut).map(Vec::as_mut_slice).unwrap_or_default()
}

/// The texts of the list at `path`.
pub(crate) fn texts(value: &Value, path: &str) -> Vec<String> {
    list(value, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The value as an object; anything else is replaced by an empty one.
pub(crate) fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    match value {
        Value::Object(map) => map,
        // Set to an object two lines above.
        _ => unreachable!(),
    }
}

/// Stores `new` at `path`, creating parent objects.
pub(crate) fn set(value: &mut Value, path: &str, new: impl Into<Value>) {
    let step = |here, step: &str| object(here).entry(step.replace("~1", "/")).or_insert(Value::Null);
    *path.split('/').skip(1).fold(value, step) = new.into();
}

/// Stores `new` at `path` if that is absent.
pub(crate) fn set_default(value: &mut Value, path: &str, new: impl Into<Value>) {
    if at(value, path).is_none() {
        set(value, path, new);
    }
}

/// Removes the value at `path`.
pub(crate) fn remove(value: &mut Value, path: &str) {
    let Some((parent, last)) = path.rsplit_once('/') else { return };
    if let Some(Value::Object(map)) = value.pointer_mut(parent) {
        map.remove(last);
    }
}

/// Copies the value at `path`, or its absence, from `source` to `target`.
pub(crate) fn copy(target: &mut Value, source: &Value, path: &str) {
    match at(source, path) {
        Some(found) => set(target, path, found.clone()),
        None => remove(target, path),
    }
}

/// Removes all nulls: a real server never stores one.
pub(crate) fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}
