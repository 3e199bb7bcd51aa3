//! JSON patch (RFC 6902).

use crate::error::ApiError;
use serde_json::{Value, json};

/// Applies the operations in order; all or nothing, because the caller throws `target` away on an error.
pub(super) fn apply(target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let Value::Array(operations) = patch else {
        return Err(ApiError::bad_request(
            "error decoding patch: json: cannot unmarshal object into Go value of type []handlers.jsonPatchOp",
        ));
    };
    for operation in operations {
        step(target, operation)?;
    }
    Ok(())
}

fn step(target: &mut Value, operation: &Value) -> Result<(), ApiError> {
    let field = |name: &str| operation.get(name).and_then(Value::as_str).unwrap_or_default();
    let (name, path) = (field("op"), field("path"));
    let value = || operation.get("value").cloned().unwrap_or(Value::Null);
    match name {
        "add" => add(target, path, value()),
        "remove" => remove(target, path).map(|_| ()),
        "replace" => replace(target, path, value()),
        "move" => {
            let taken = remove(target, field("from"))?;
            add(target, path, taken)
        }
        "copy" => {
            let copied = target.pointer(field("from")).cloned().ok_or_else(refused)?;
            add(target, path, copied)
        }
        "test" => {
            // A missing member equals null, as in the library that the real server uses.
            let found = target.pointer(path).cloned().unwrap_or(Value::Null);
            if found == value() { Ok(()) } else { Err(refused()) }
        }
        _ => Err(refused()),
    }
}

/// The real server hides the cause of a failed JSON patch behind one text.
fn refused() -> ApiError {
    let mut error = ApiError::new(422, "Invalid", "the server rejected our request due to an error in our request");
    error.details = Some(Box::new(json!({})));
    error
}

fn split(path: &str) -> Option<(&str, String)> {
    let (parent, last) = path.rsplit_once('/')?;
    Some((parent, last.replace("~1", "/").replace("~0", "~")))
}

fn add(target: &mut Value, path: &str, value: Value) -> Result<(), ApiError> {
    if path.is_empty() {
        *target = value;
        return Ok(());
    }
    let (parent, last) = split(path).ok_or_else(refused)?;
    match target.pointer_mut(parent) {
        Some(Value::Object(map)) => {
            map.insert(last, value);
            Ok(())
        }
        Some(Value::Array(items)) => {
            let index = if last == "-" { Some(items.len()) } else { last.parse().ok() };
            let index = index.filter(|index| *index <= items.len()).ok_or_else(refused)?;
            items.insert(index, value);
            Ok(())
        }
        _ => Err(refused()),
    }
}

/// A missing member of an object may be replaced: not what the RFC says, but what the real server does.
fn replace(target: &mut Value, path: &str, value: Value) -> Result<(), ApiError> {
    if let Some(place) = target.pointer_mut(path) {
        *place = value;
        return Ok(());
    }
    let parent = split(path).and_then(|(parent, _)| target.pointer(parent));
    if parent.is_some_and(Value::is_object) { add(target, path, value) } else { Err(refused()) }
}

fn remove(target: &mut Value, path: &str) -> Result<Value, ApiError> {
    let (parent, last) = split(path).ok_or_else(refused)?;
    let taken = match target.pointer_mut(parent) {
        Some(Value::Object(map)) => map.remove(&last),
        Some(Value::Array(items)) => {
            last.parse().ok().filter(|index: &usize| *index < items.len()).map(|index| items.remove(index))
        }
        _ => None,
    };
    taken.ok_or_else(refused)
}
