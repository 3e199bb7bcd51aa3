//! Strategic merge patch: a merge patch that knows list keys and obeys directives.

use super::schema::{ListRule, rule};
use crate::error::ApiError;
use crate::kind::Kind;
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const RETAIN: &str = "$retainKeys";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// Merges `patch` into `target`. With `append`, new elements go to the end of lists, as in an apply; a strategic merge
/// patch puts its elements first.
pub(super) fn apply(kind: &Kind, target: &mut Value, patch: &Value, append: bool) -> Result<(), ApiError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch is an object"));
    };
    merge_map(&Place { kind, path: String::new(), append }, target, patch)
}

/// Where in the object the merge is.
struct Place<'a> {
    kind: &'a Kind,
    path: String,
    append: bool,
}

impl Place<'_> {
    fn child(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Place { kind: self.kind, path, append: self.append }
    }
}

fn directive(map: &Map<String, Value>) -> Option<&str> {
    map.get(PATCH).and_then(Value::as_str)
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message)
}

fn merge_map(place: &Place<'_>, target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    match directive(patch) {
        Some("replace") => {
            *target = patch.iter().filter(|(key, _)| *key != PATCH).map(|(k, v)| (k.clone(), v.clone())).collect();
            return Ok(());
        }
        Some("delete") => {
            target.clear();
            return Ok(());
        }
        None | Some("merge") => {}
        Some(other) => return Err(bad(format!("unknown patch type found: {other}"))),
    }
    if let Some(Value::Array(keep)) = patch.get(RETAIN) {
        target.retain(|key, _| keep.iter().any(|kept| kept.as_str() == Some(key)));
    }
    delete_from_primitive_lists(target, patch)?;
    for (key, change) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let order = patch.get(&format!("{ORDER}{key}")).and_then(Value::as_array);
        merge_member(&place.child(key), target, key, change, order)?;
    }
    reorder_untouched(place, target, patch);
    Ok(())
}

fn delete_from_primitive_lists(target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    for (directive, gone) in patch {
        let Some(key) = directive.strip_prefix(DELETE) else { continue };
        let Value::Array(gone) = gone else { return Err(bad(format!("{directive} must be a list"))) };
        if let Some(Value::Array(items)) = target.get_mut(key) {
            items.retain(|item| !gone.contains(item));
        }
    }
    Ok(())
}

/// A `$setElementOrder` whose list has no changes of its own only reorders.
fn reorder_untouched(place: &Place<'_>, target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (directive, order) in patch {
        let Some(key) = directive.strip_prefix(ORDER).filter(|key| !patch.contains_key(*key)) else { continue };
        let rule = rule(place.kind, &place.child(key).path);
        if let (Value::Array(order), Some(Value::Array(items))) = (order, target.get_mut(key)) {
            let merged = std::mem::take(items);
            *items = arrange(rule, merged.clone(), order, &merged);
        }
    }
}

fn merge_member(
    place: &Place<'_>,
    target: &mut Map<String, Value>,
    key: &str,
    change: &Value,
    order: Option<&Vec<Value>>,
) -> Result<(), ApiError> {
    match change {
        Value::Null => {
            target.remove(key);
        }
        Value::Object(patch) => {
            let mut merged = match target.remove(key) {
                Some(Value::Object(map)) => map,
                _ => Map::new(),
            };
            merge_map(place, &mut merged, patch)?;
            target.insert(key.to_owned(), Value::Object(merged));
        }
        Value::Array(patch) => {
            let original = match target.remove(key) {
                Some(Value::Array(items)) => items,
                _ => Vec::new(),
            };
            let merged = merge_list(place, original, patch, order)?;
            target.insert(key.to_owned(), Value::Array(merged));
        }
        plain => {
            target.insert(key.to_owned(), plain.clone());
        }
    }
    Ok(())
}

fn merge_list(
    place: &Place<'_>,
    original: Vec<Value>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, ApiError> {
    let rule = rule(place.kind, &place.path);
    match rule {
        ListRule::Atomic => Ok(patch.to_vec()),
        ListRule::Set => {
            let mut merged = original.clone();
            for item in patch {
                if !merged.contains(item) {
                    merged.push(item.clone());
                }
            }
            if place.append {
                return Ok(merged);
            }
            Ok(arrange(rule, merged, order.map_or(patch, Vec::as_slice), &original))
        }
        ListRule::Key(key) => {
            let Some((server, changes)) = obey_element_directives(place, key, original, patch)? else {
                return Ok(patch.iter().filter(|item| item.get(PATCH).is_none()).cloned().collect());
            };
            let merged = merge_elements(place, key, server.clone(), &changes)?;
            if place.append {
                return Ok(merged);
            }
            Ok(arrange(rule, merged, order.map_or(changes.as_slice(), Vec::as_slice), &server))
        }
    }
}

/// Deletes what the patch says, and returns the rest of both sides; `None` when the patch replaces the list.
#[allow(clippy::type_complexity, reason = "a pair of lists, named where it is taken apart")]
fn obey_element_directives(
    place: &Place<'_>,
    key: &str,
    mut original: Vec<Value>,
    patch: &[Value],
) -> Result<Option<(Vec<Value>, Vec<Value>)>, ApiError> {
    let mut changes = Vec::new();
    for item in patch {
        let Value::Object(map) = item else {
            return Err(bad(format!("{}: elements of this list must be objects", place.path)));
        };
        match directive(map) {
            None => changes.push(item.clone()),
            Some("replace") => return Ok(None),
            Some("delete") => {
                let gone = item.get(key).ok_or_else(|| no_key(item, key))?;
                original.retain(|element| element.get(key) != Some(gone));
            }
            Some("merge") => return Err(bad("merging lists cannot yet be specified in the patch")),
            Some(other) => return Err(bad(format!("unknown patch type found: {other}"))),
        }
    }
    Ok(Some((original, changes)))
}

fn no_key(item: &Value, key: &str) -> ApiError {
    ApiError::new(500, "", format!("map: {item} does not contain declared merge key: {key}"))
}

fn merge_elements(
    place: &Place<'_>,
    key: &str,
    mut merged: Vec<Value>,
    changes: &[Value],
) -> Result<Vec<Value>, ApiError> {
    for change in changes {
        let id = change.get(key).ok_or_else(|| no_key(change, key))?;
        let Value::Object(patch) = change else { continue };
        // The first element with the key, as the real server does when keys repeat (two addresses of one type).
        match merged.iter_mut().find(|element| element.get(key) == Some(id)) {
            Some(Value::Object(element)) => merge_map(place, element, patch)?,
            _ => {
                let mut element = Map::new();
                merge_map(place, &mut element, patch)?;
                merged.push(Value::Object(element));
            }
        }
    }
    Ok(merged)
}

fn position(rule: ListRule, order: &[Value], item: &Value) -> Option<usize> {
    match rule {
        ListRule::Key(key) => order.iter().position(|one| one.get(key).is_some() && one.get(key) == item.get(key)),
        _ => order.iter().position(|one| one == item),
    }
}

/// Orders a merged list: what the patch orders stands in that order, the rest in the order of the server, and the two are
/// woven together by the server's order.
fn arrange(rule: ListRule, merged: Vec<Value>, wanted: &[Value], server: &[Value]) -> Vec<Value> {
    let (mut ours, mut theirs): (Vec<Value>, Vec<Value>) =
        merged.into_iter().partition(|item| position(rule, wanted, item).is_some());
    ours.sort_by_key(|item| position(rule, wanted, item));
    theirs.sort_by_key(|item| position(rule, server, item));
    let (mut ours, mut theirs) = (ours.into_iter().peekable(), theirs.into_iter().peekable());
    let mut all = Vec::new();
    loop {
        let from_server = match (theirs.peek(), ours.peek()) {
            (None, None) => return all,
            (Some(_), None) => true,
            (None, Some(_)) => false,
            (Some(left), Some(right)) => match (position(rule, server, left), position(rule, server, right)) {
                (Some(left), Some(right)) => left < right,
                _ => false,
            },
        };
        all.extend(if from_server { theirs.next() } else { ours.next() });
    }
}
