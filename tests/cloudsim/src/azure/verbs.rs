//! GET, PUT, PATCH and DELETE of resources.

use super::ids::Id;
use super::json::{merge, remove, set, text};
use super::kinds::Kind;
use super::operations::{self, Write};
use super::world::World;
use super::{errors, linked, login};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// `GET …/{name}`
pub(super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, id) = world.target(call)?;
    if kind.resource == "virtualMachineScaleSetVMs" && id.name().parse::<u32>().is_err() {
        return Err(errors::parameter("instanceId", "Virtual Machine Scale Set VM instanceId must be a number."));
    }
    let row = world.store.seen(&id.key(), world.now()).ok_or_else(|| missing(world, &id))?;
    let mut shown = world.shown(row);
    if id.namespace.eq_ignore_ascii_case("Microsoft.Compute") {
        super::compute::expand(call, &mut shown)?;
    }
    let headers = vec![("etag", text(&shown, "/etag").to_owned())];
    Ok(Reply { headers, ..Reply::json(200, &shown) })
}

/// The error for a resource that does not exist.
fn missing(world: &World, id: &Id) -> Problem {
    match id.parent() {
        Some(parent) if world.store.get(&parent.key()).is_none() => errors::no_parent(id, &parent),
        _ => errors::not_found(id),
    }
}

/// `PUT …/{name}`
pub(super) fn put(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, id) = world.target(call)?;
    let body = body(call)?;
    linked::check(world, call, &id, &body)?;
    if let Some(parent) = id.parent().filter(|parent| world.store.get(&parent.key()).is_none()) {
        return Err(errors::no_parent(&id, &parent));
    }
    let old = world.store.get(&id.key()).map(|row| row.fields.clone());
    guard(world, call, &id, old.as_ref())?;
    let fields = goal(kind, old.as_ref(), body);
    write(world, kind, &id, old.as_ref(), fields)
}

/// `PATCH …/{name}`: of network resources only the tags; of compute resources all fields.
pub(super) fn patch(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, id) = world.target(call)?;
    let body = body(call)?;
    linked::check(world, call, &id, &body)?;
    let Some(old) = world.store.get(&id.key()).map(|row| row.fields.clone()) else { return Err(missing(world, &id)) };
    guard(world, call, &id, Some(&old))?;
    if kind.merges {
        let fields = goal(kind, Some(&old), body);
        return write(world, kind, &id, Some(&old), fields);
    }
    let mut fields = old.clone();
    set(&mut fields, "/tags", body.get("tags").cloned().unwrap_or_else(|| json!({})));
    let etag = world.etag(&id.key());
    set(&mut fields, "/etag", etag);
    let (key, now) = (id.key(), world.now());
    if let Some(row) = world.store.get(&key).cloned() {
        world.store.put(super::store::Row { fields, ..row }, now, now);
    }
    Ok(Reply::json(200, &world.shown_now(&key).unwrap_or_default()))
}

/// The fields that a resource will have.
fn goal(kind: &Kind, old: Option<&Value>, body: Value) -> Value {
    match old.filter(|_| kind.merges) {
        Some(old) => {
            let mut fields = old.clone();
            let mut change = World::stripped(kind, body);
            // Tags that are sent replace all tags.
            if change.get("tags").is_some() {
                remove(&mut fields, "/tags");
            }
            remove(&mut change, "/location");
            merge(&mut fields, change);
            fields
        }
        None => {
            let mut fields = World::stripped(kind, body);
            // What the simulation remembers of a resource stays.
            for (name, value) in old.and_then(Value::as_object).into_iter().flatten() {
                if name.starts_with('_') {
                    set(&mut fields, &format!("/{name}"), value.clone());
                }
            }
            if let Some(guid) = old.and_then(|old| old.pointer("/properties/resourceGuid")) {
                set(&mut fields, "/properties/resourceGuid", guid.clone());
            }
            fields
        }
    }
}

/// Checks a resource, and begins the operation.
pub(super) fn write(
    world: &mut World,
    kind: &'static Kind,
    id: &Id,
    old: Option<&Value>,
    mut fields: Value,
) -> Result<Reply, Problem> {
    if old.is_none() {
        if text(&fields, "/location").is_empty() && id.parts.len() == 1 {
            let text = "The location property is required for this definition.";
            return Err(Problem::violation(400, "LocationRequired", text));
        }
        within_quota(world, kind, id)?;
        if kind.has_guid(id) {
            let guid = world.uuid();
            set(&mut fields, "/properties/resourceGuid", guid);
        }
    } else if let Some(location) = old.and_then(|old| old.get("location")) {
        same_location(id, location.as_str().unwrap_or_default(), text(&fields, "/location"))?;
        set(&mut fields, "/location", location.clone());
    }
    (kind.rules.check)(world, id, old, &mut fields)?;
    for reference in (kind.rules.refs)(id, &fields) {
        if !world.exists(&reference.target) {
            return Err(errors::no_reference(&reference.target, &reference.user));
        }
        login::may_link(world, id, &reference.target)?;
    }
    let name = format!("Put{}Operation", kind.operation);
    let operation = world.begin_operation(Write { kind, id, name, fields: Some(fields) });
    let shown = world.shown_now(&id.key()).unwrap_or_default();
    let status = if old.is_none() { 201 } else { 200 };
    let headers = operations::headers(world, &operation, false);
    Ok(Reply { headers, ..Reply::json(status, &shown) })
}

fn same_location(id: &Id, old: &str, new: &str) -> Result<(), Problem> {
    let plain = |text: &str| text.to_lowercase().replace(' ', "");
    if new.is_empty() || plain(old) == plain(new) {
        return Ok(());
    }
    let text = format!(
        "The resource '{}' already exists in location '{old}' in resource group '{}'. A resource with the same name cannot be created in location '{new}'.",
        id.name(),
        id.group
    );
    Err(Problem::new(409, "InvalidResourceLocation", text))
}

/// Checks the quota of a subscription.
fn within_quota(world: &World, kind: &Kind, id: &Id) -> Result<(), Problem> {
    let Some(limit) = world.options.quotas.get(kind.resource) else { return Ok(()) };
    let count = world.store.of_kind(kind.kind).filter(|row| row.id.subscription.eq_ignore_ascii_case(&id.subscription));
    if count.count() < *limit {
        return Ok(());
    }
    let (code, what) = match kind.resource {
        "publicIPAddresses" => ("PublicIPCountLimitReached", "public IP addresses".to_owned()),
        other => ("ResourceCountExceedsLimit", other.to_owned()),
    };
    Err(errors::bad(code, format!("Cannot create more than {limit} {what} for this subscription in this region.")))
}

/// Checks the conditions of a write: the ETag, that no other change is in the way, and that it is not being deleted.
pub(super) fn guard(world: &World, call: &Call, id: &Id, old: Option<&Value>) -> Result<(), Problem> {
    let given = call.header("if-match");
    let current = old.map(|old| text(old, "/etag")).unwrap_or_default();
    if !given.is_empty() && (old.is_none() || (given != "*" && given != current)) {
        return Err(errors::etag(id, given, current));
    }
    if !call.header("if-none-match").is_empty() {
        return Err(errors::bad(
            "UnverifiedRequest",
            "no description of Microsoft.Network shows If-None-Match".to_owned(),
        ));
    }
    let key = id.key();
    if let Some(until) = world.busy.get(&key).filter(|until| **until > world.now()) {
        let seconds = until.duration_since(world.now()).as_secs().unsigned_abs().clamp(1, 14);
        let text = format!(
            "Operation on resource {} cannot proceed because of another operation in progress. The call can be retried in {seconds} seconds.",
            id.text()
        );
        return Err(errors::busy("RetryableErrorDueToAnotherOperation", &text, seconds));
    }
    let (state, operation) = world.state_of(&key);
    if state == "Deleting" && world.operations.running(&key) {
        let text = id.text();
        return Err(errors::not_provisioned(&text, &text, state, operation));
    }
    Ok(())
}

/// `DELETE …/{name}`
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (kind, id) = world.target(call)?;
    let Some(row) = world.store.get(&id.key()) else { return Ok(Reply::empty(204)) };
    let (id, old) = (row.id.clone(), row.fields.clone());
    guard(world, call, &id, Some(&old))?;
    (kind.rules.removal)(world, &id)?;
    let name = format!("Delete{}Operation", kind.operation);
    let operation = world.begin_operation(Write { kind, id: &id, name, fields: None });
    Ok(Reply { headers: operations::headers(world, &operation, true), ..Reply::empty(202) })
}

/// The JSON object of a body.
pub(super) fn body(call: &Call) -> Result<Value, Problem> {
    let wrong = || {
        let text = "The request content was invalid and could not be deserialized.";
        Problem::violation(400, "InvalidRequestContent", text)
    };
    call.object().map(Value::Object).ok_or_else(wrong)
}
