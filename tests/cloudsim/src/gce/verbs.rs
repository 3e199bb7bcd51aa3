//! The calls of all kinds of objects: get, insert, patch, update and delete; each write has an operation.

use super::kinds::{self, Fields, Kind};
use super::places::{PATH, Scope, Spot};
use super::world::World;
use super::{errors, operations};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// The fields that only the service sets.
const OWN: [&str; 6] = ["kind", "id", "creationTimestamp", "selfLink", "region", "zone"];

/// The kind and the path of a call.
pub(super) fn at(world: &World, call: &Call) -> Result<(&'static Kind, Spot), Problem> {
    let path = call.path.strip_prefix(PATH).unwrap_or_default();
    let kind = kinds::of_method(call.action).ok_or_else(|| errors::not_found(path))?;
    let mut spot = Spot::parse(path).ok_or_else(|| errors::not_found(path))?;
    spot.project = known_project(world, &spot.project)?;
    let regions = &world.options.regions;
    match spot.scope {
        Scope::Zone if !regions.values().flatten().any(|zone| *zone == spot.place) => {
            Err(errors::invalid("zone", &spot.place, "Unknown zone."))
        }
        Scope::Region if !regions.contains_key(&spot.place) => {
            Err(errors::invalid("region", &spot.place, "Unknown region."))
        }
        _ => Ok((kind, spot)),
    }
}

/// The ID of an existing project. `unverified`: the answer to another one may be the same for an existing project
/// without access.
pub(super) fn known_project(world: &World, project: &str) -> Result<String, Problem> {
    world.project_id(project).ok_or_else(|| errors::not_found(&format!("projects/{project}")))
}

/// `GET …/{collection}/{name}`
pub(super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, spot) = at(world, call)?;
    let key = spot.key();
    let row = world.store.seen(&key, world.now()).ok_or_else(|| errors::not_found(&key))?;
    Ok(Reply::json(200, &kinds::shown(world, kind, &key, row)))
}

/// `POST …/{collection}`
pub(super) fn insert(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, mut spot) = at(world, call)?;
    if let Some(reply) = operations::replayed(world, call, &spot) {
        return Ok(reply);
    }
    let mut fields = body(call)?;
    let name = fields.get("name").and_then(Value::as_str).ok_or_else(|| errors::required("resource.name"))?;
    if !is_name(name) {
        let text = "Must be a match of regex '(?:[a-z](?:[-a-z0-9]{0,61}[a-z0-9])?)'";
        return Err(errors::invalid("resource.name", name, text));
    }
    spot.name = name.to_owned();
    world.free(&spot)?;
    world.within_quota(kind, &spot, &fields)?;
    OWN.iter().for_each(|name| drop(fields.remove(*name)));
    (kind.rules.make)(world, &spot, &mut fields)?;
    world.create(kind, &spot, fields);
    Ok(operations::begin(world, call, &spot, "insert"))
}

/// Whether this is a valid name of an object or a network tag.
pub(super) fn is_name(text: &str) -> bool {
    let inside = text.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    inside && text.len() <= 63 && text.starts_with(|first: char| first.is_ascii_lowercase()) && !text.ends_with('-')
}

/// `PATCH …/{collection}/{name}`: the fields of the body replace those of the object; null removes a field.
pub(super) fn patch(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    change(world, call, "patch", |old, body| {
        let mut fields = old.clone();
        merge(&mut fields, body);
        fields
    })
}

/// `PUT …/{collection}/{name}`: the body replaces the object.
pub(super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    change(world, call, "update", |old, mut body| {
        let hidden =
            old.iter().filter(|(name, _)| name.starts_with('_') || OWN.contains(&name.as_str()) || *name == "name");
        for (name, value) in hidden {
            body.insert(name.clone(), value.clone());
        }
        body
    })
}

fn change(
    world: &mut World,
    call: &Call,
    verb: &str,
    apply: impl FnOnce(&Fields, Fields) -> Fields,
) -> Result<Reply, Problem> {
    let (kind, spot) = at(world, call)?;
    if let Some(reply) = operations::replayed(world, call, &spot) {
        return Ok(reply);
    }
    let key = spot.key();
    world.ready(&key)?;
    let mut body = body(call)?;
    if body.get("name").and_then(Value::as_str).is_some_and(|name| name != spot.name) {
        return Err(errors::invalid("resource.name", &spot.name, "The name cannot be changed."));
    }
    OWN.iter().for_each(|name| drop(body.remove(*name)));
    let old = world.store.get(&key).cloned().ok_or_else(|| errors::not_found(&key))?;
    check_fingerprint(&old.fields, &body, verb == "update")?;
    body.remove("fingerprint");
    let mut fields = apply(&old.fields, body);
    (kind.rules.change)(world, &spot, &old, &mut fields)?;
    world.replace(&spot, fields);
    Ok(operations::begin(world, call, &spot, verb))
}

/// Checks that a body has the fingerprint of the object.
fn check_fingerprint(old: &Fields, body: &Fields, needed: bool) -> Result<(), Problem> {
    let Some(has) = old.get("fingerprint") else { return Ok(()) };
    match body.get("fingerprint") {
        None if needed => Err(errors::required("resource.fingerprint")),
        Some(given) if given != has => Err(errors::stale()),
        _ => Ok(()),
    }
}

/// `DELETE …/{collection}/{name}`
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, spot) = at(world, call)?;
    if let Some(reply) = operations::replayed(world, call, &spot) {
        return Ok(reply);
    }
    world.ready(&spot.key())?;
    (kind.rules.free)(world, &spot)?;
    // The operation begins before the removal, because it reads the ID of the object.
    let due = world.due(kind.resource);
    let reply = operations::begin(world, call, &spot, "delete");
    world.store.remove(&spot.key(), due);
    Ok(reply)
}

/// A custom verb on an existing object: changes its fields.
pub(super) fn custom(
    world: &mut World,
    call: &Call,
    apply: impl FnOnce(&mut World, &Spot, &Fields, &mut Fields) -> Result<(), Problem>,
) -> Result<Reply, Problem> {
    let (_, spot) = at(world, call)?;
    if let Some(reply) = operations::replayed(world, call, &spot) {
        return Ok(reply);
    }
    let key = spot.key();
    world.ready(&key)?;
    let body = if call.body.is_empty() { Fields::new() } else { body(call)? };
    let mut fields = world.store.get(&key).map(|row| row.fields.clone()).ok_or_else(|| errors::not_found(&key))?;
    apply(world, &spot, &body, &mut fields)?;
    world.replace(&spot, fields);
    let verb = call.action.rsplit('.').next().unwrap_or_default();
    Ok(operations::begin(world, call, &spot, verb))
}

/// The body, which must be a JSON object.
pub(super) fn body(call: &Call) -> Result<Fields, Problem> {
    let parse = || Problem::violation(400, "parseError", "Parse Error");
    call.object().ok_or_else(parse)
}

/// Merges fields into others, recursively; null removes a field.
pub(super) fn merge(fields: &mut Fields, changes: Fields) {
    for (name, change) in changes {
        match (fields.get_mut(&name), change) {
            (_, Value::Null) => drop(fields.remove(&name)),
            (Some(Value::Object(inner)), Value::Object(change)) => merge(inner, change),
            (_, change) => drop(fields.insert(name, change)),
        }
    }
}

/// Sets a field if it is absent.
pub(super) fn default(fields: &mut Fields, name: &str, value: impl Into<Value>) {
    if fields.get(name).is_none_or(Value::is_null) {
        fields.insert(name.to_owned(), value.into());
    }
}

/// The string in a field; empty if missing.
pub(super) fn text<'a>(fields: &'a Fields, name: &str) -> &'a str {
    fields.get(name).and_then(Value::as_str).unwrap_or_default()
}

/// The strings in a field's list.
pub(super) fn texts(fields: &Fields, name: &str) -> Vec<String> {
    let items = fields.get(name).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    items.iter().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// Replaces a reference in a field by the link of the object, which must exist.
pub(super) fn refer(
    world: &World,
    spot: &Spot,
    fields: &mut Fields,
    name: &str,
    collection: &str,
) -> Result<String, Problem> {
    let key = world.found(text(fields, name), spot, &format!("resource.{name}"), collection)?;
    fields.insert(name.to_owned(), json!(super::places::link(&key)));
    Ok(key)
}
