//! Strategic merge patch: a merge patch with list keys and directives.

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::object;
use serde_json::{Map, Value};

const PATCH: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETE: &str = "$deleteFromPrimitiveList/";

/// The merge strategy of a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ListRule {
    /// The patch replaces the list.
    Atomic,
    /// Elements are objects, identified by this field.
    Key(&'static str),
    /// Elements are plain values; the patch adds to them.
    Set,
}

/// The rule of the list at a dotted `path` below the object.
fn rule(kind: &Kind, path: &str) -> ListRule {
    match (kind.plural, path) {
        (_, "metadata.ownerReferences") => ListRule::Key("uid"),
        (_, "metadata.finalizers") | ("nodes", "spec.podCIDRs") => ListRule::Set,
        ("nodes", "status.addresses" | "status.conditions") | ("services" | "namespaces", "status.conditions") => {
            ListRule::Key("type")
        }
        ("services", "spec.ports") => ListRule::Key("port"),
        _ => ListRule::Atomic,
    }
}

/// Merges `patch` into `target`.
pub(super) fn apply(kind: &Kind, target: &mut Value, patch: &Value) -> Result<(), ApiError> {
    let (Value::Object(target), Value::Object(patch)) = (target, patch) else {
        return Err(ApiError::bad_request("error decoding patch: a strategic merge patch is an object"));
    };
    merge_map(&Place { kind, path: String::new() }, target, patch)
}

/// The current path in the object.
struct Place<'a> {
    kind: &'a Kind,
    path: String,
}

impl Place<'_> {
    fn child(&self, key: &str) -> Self {
        let path = if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) };
        Place { kind: self.kind, path }
    }
}

fn bad(message: impl Into<String>) -> ApiError {
    ApiError::bad_request(message)
}

fn merge_map(place: &Place<'_>, target: &mut Map<String, Value>, patch: &Map<String, Value>) -> Result<(), ApiError> {
    let known = |key: &str| key.starts_with(ORDER) || key.starts_with(DELETE);
    if let Some(other) = patch.keys().find(|key| key.starts_with('$') && !known(key)) {
        return Err(ApiError::not_implemented(&format!("the directive {other} on objects")));
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

/// A `$setElementOrder` for a list without changes only reorders it.
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
            let member = target.entry(key).or_insert(Value::Null);
            merge_map(place, object(member), patch)?;
        }
        Value::Array(patch) => {
            let original = target.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
            target.insert(key.to_owned(), Value::Array(merge_list(place, original, patch, order)?));
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
            Ok(arrange(rule, merged, order.map_or(patch, Vec::as_slice), &original))
        }
        ListRule::Key(key) => merge_elements(place, key, original, patch, order),
    }
}

fn merge_elements(
    place: &Place<'_>,
    key: &'static str,
    mut server: Vec<Value>,
    patch: &[Value],
    order: Option<&Vec<Value>>,
) -> Result<Vec<Value>, ApiError> {
    let (changes, directives): (Vec<&Value>, Vec<&Value>) = patch.iter().partition(|item| item.get(PATCH).is_none());
    if directives.iter().any(|item| item.get(PATCH).is_some_and(|word| word == "replace")) {
        return Ok(changes.into_iter().cloned().collect());
    }
    let no_key = |item| ApiError::new(500, "", format!("map: {item} does not contain declared merge key: {key}"));
    for item in directives {
        if item.get(PATCH).is_some_and(|word| word != "delete") {
            return Err(bad(format!("unknown patch type found: {}", item.get(PATCH).unwrap_or(item))));
        }
        let gone = item.get(key).ok_or_else(|| no_key(item))?;
        server.retain(|element| element.get(key) != Some(gone));
    }
    let mut merged = server.clone();
    for change in &changes {
        let id = change.get(key).ok_or_else(|| no_key(change))?;
        let Value::Object(patch) = change else { continue };
        // The first element with the key, as in the real server if keys repeat (two addresses of one type).
        match merged.iter_mut().find(|element| element.get(key) == Some(id)) {
            Some(Value::Object(element)) => merge_map(place, element, patch)?,
            _ => {
                let mut element = Value::Null;
                merge_map(place, object(&mut element), patch)?;
                merged.push(element);
            }
        }
    }
    let changes: Vec<Value> = changes.into_iter().cloned().collect();
    Ok(arrange(ListRule::Key(key), merged, order.unwrap_or(&changes), &server))
}

fn position(rule: ListRule, order: &[Value], item: &Value) -> Option<usize> {
    match rule {
        ListRule::Key(key) => order.iter().position(|one| one.get(key).is_some() && one.get(key) == item.get(key)),
        _ => order.iter().position(|one| one == item),
    }
}

/// Orders a merged list: items in the patch's order keep that order, the others keep the server's order, and both are
/// interleaved according to the server's order.
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
