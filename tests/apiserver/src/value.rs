//! Small readers and writers for untyped objects. A JSON null counts as absent, as it does for the typed server.

use serde_json::{Map, Value};

/// The value under `path`, or `None` when any step is missing or null.
pub(crate) fn at<'a>(value: &'a Value, path: &[&str]) -> Option<&'a Value> {
    let mut here = value;
    for step in path {
        here = here.get(step)?;
    }
    (!here.is_null()).then_some(here)
}

/// The text under `path`; empty when missing or of another type.
pub(crate) fn text<'a>(value: &'a Value, path: &[&str]) -> &'a str {
    at(value, path).and_then(Value::as_str).unwrap_or_default()
}

/// The list under `path`; empty when missing or of another type.
pub(crate) fn list<'a>(value: &'a Value, path: &[&str]) -> &'a [Value] {
    at(value, path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// The texts of the list under `path`.
pub(crate) fn texts(value: &Value, path: &[&str]) -> Vec<String> {
    list(value, path).iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The value as an object, made one when it is something else.
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

/// The place under `path`, made (as null, in objects) where missing.
pub(crate) fn entry<'a>(value: &'a mut Value, path: &[&str]) -> &'a mut Value {
    let mut here = value;
    for step in path {
        here = object(here).entry(*step).or_insert(Value::Null);
    }
    here
}

/// Puts `new` under `path`, making objects on the way.
pub(crate) fn set(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    *entry(value, path) = new.into();
}

/// Puts `new` under `path` when nothing is there.
pub(crate) fn set_default(value: &mut Value, path: &[&str], new: impl Into<Value>) {
    if at(value, path).is_none() {
        set(value, path, new);
    }
}

/// Takes what is under `path` out of the object.
pub(crate) fn remove(value: &mut Value, path: &[&str]) -> Option<Value> {
    let (last, parents) = path.split_last()?;
    let mut here = value;
    for step in parents {
        here = here.get_mut(step)?;
    }
    here.as_object_mut()?.remove(*last)
}

/// Makes `path` equal in `target` to what it is in `source`, absence included.
pub(crate) fn copy(target: &mut Value, source: &Value, path: &[&str]) {
    match at(source, path) {
        Some(found) => set(target, path, found.clone()),
        None => {
            remove(target, path);
        }
    }
}

/// Drops nulls everywhere: the typed server never stores one.
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
