//! Members of pools.

use super::pools::{above, around};
use super::{
    MEMBER, POOL, add_id, begin, ids, immutable, invalid, list_among, mismatch, mutable, providers, refused, room,
    shapes, stamp,
};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::check;
use crate::openstack::World;
use serde_json::{Map, Value, json};

/// The pool of a call. If it is missing, reads have a different error than writes.
fn pool<'a>(world: &'a World, call: &Call) -> Result<&'a Row, Problem> {
    POOL.find(world, call.id(0)).map_err(|problem| Problem { code: "plain".to_owned(), ..problem })
}

fn member<'a>(world: &'a World, call: &Call) -> Result<&'a Row, Problem> {
    pool(world, call)?;
    MEMBER
        .find(world, call.id(1))
        .ok()
        .filter(|row| row.text("_pool_id") == call.id(0))
        .ok_or_else(|| MEMBER.not_found(call.id(1)))
}

/// `GET /pools/{id}/members`
pub(in super::super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let members = ids(pool(world, call)?, "members");
    list_among(&MEMBER, world, call, members.iter().filter_map(|id| world.row("member", id)))
}

/// Checks whether the members of a pool can be changed.
fn open(world: &World, call: &Call) -> Result<(String, Vec<String>), Problem> {
    let row = POOL.find(world, call.id(0))?;
    let (balancer, listeners) = above(row);
    if row.text("provisioning_status") != "ACTIVE" {
        return Err(immutable("Pool", row.id()));
    }
    mutable(world, &balancer)?;
    Ok((balancer, listeners))
}

fn subnet(world: &World, fields: &Map<String, Value>) -> Result<(), Problem> {
    match fields.get("subnet_id").and_then(Value::as_str).filter(|subnet| world.seen("subnet", subnet).is_none()) {
        Some(subnet) => Err(refused(400, format!("Subnet {subnet} not found."))),
        None => Ok(()),
    }
}

/// Checks that members have the address family of the VIP, which datagram protocols require.
fn families<'a>(
    world: &World,
    call: &Call,
    mut members: impl Iterator<Item = &'a Map<String, Value>>,
) -> Result<(), Problem> {
    let row = POOL.find(world, call.id(0))?;
    let protocol = row.text("protocol");
    let balancer = world.row("loadbalancer", row.text("_loadbalancer_id"));
    let (vip, provider) = balancer.map(|row| (row.text("vip_address"), row.text("provider"))).unwrap_or_default();
    if !matches!(protocol, "UDP" | "SCTP") || provider == "ovn" {
        return Ok(());
    }
    if members.any(|fields| key(fields).0.contains(':') != vip.contains(':')) {
        return Err(providers::mixed(protocol));
    }
    Ok(())
}

/// The key of a member in its pool.
fn key(fields: &Map<String, Value>) -> (&str, i64) {
    let address = fields.get("address").and_then(Value::as_str).unwrap_or_default();
    (address, fields.get("protocol_port").and_then(Value::as_i64).unwrap_or_default())
}

/// `POST /pools/{id}/members`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = MEMBER.body(call, shapes::MEMBER)?;
    subnet(world, &body)?;
    room(&MEMBER, world, 1)?;
    let (balancer, listeners) = open(world, call)?;
    families(world, call, std::iter::once(&body))?;
    let pool = POOL.find(world, call.id(0))?;
    let same = |id: &String| world.row("member", id).is_some_and(|row| key(&row.fields) == key(&body));
    if ids(pool, "members").iter().any(same) {
        let (address, port) = key(&body);
        let text = format!("Another member on this pool is already using ip {address} on protocol_port {port}");
        return Err(refused(409, text));
    }
    let id = make(world, call.id(0), body);
    begin(world, &balancer, "PENDING_UPDATE", &around(call.id(0), "PENDING_UPDATE", &listeners));
    MEMBER.reply(world, 201, &id)
}

/// Creates a member whose fields are valid.
pub(super) fn make(world: &mut World, pool: &str, mut fields: Map<String, Value>) -> String {
    fields.retain(|_, value| !value.is_null());
    let row = world.row("pool", pool);
    let project = row.map(|row| row.text("project_id").to_owned());
    let monitored = row.is_some_and(|row| !row.text("healthmonitor_id").is_empty());
    let base = json!({
        "name": "", "operating_status": if monitored { "ONLINE" } else { "NO_MONITOR" },
        "provisioning_status": "PENDING_CREATE", "admin_state_up": true, "weight": 1, "backup": false,
        "subnet_id": null, "project_id": project, "tenant_id": project, "created_at": stamp(world), "updated_at": null,
        "monitor_address": null, "monitor_port": null, "tags": [], "vnic_type": "normal", "_pool_id": pool,
    });
    let id = world.add("member", base, fields);
    add_id(world, "pool", pool, "members", &id);
    id
}

/// `PUT /pools/{id}/members`: replaces the members, or adds to them with `additive_only`.
pub(in super::super) fn replace(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let Some(body) = call.object() else {
        return Err(Problem::violation(400, "", "Request is not in valid JSON format"));
    };
    check(&body, shapes::MEMBERS).map_err(|mut wrong| {
        // The body of this call is the list itself.
        wrong.inside = wrong.inside.trim_start_matches("members").to_owned();
        mismatch(&wrong, "members_", "members")
    })?;
    let wanted: Vec<&Map<String, Value>> =
        body.get("members").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object).collect();
    let (balancer, listeners) = open(world, call)?;
    let mut keys: Vec<(&str, i64)> = wanted.iter().map(|fields| key(fields)).collect();
    keys.sort_unstable();
    if keys.windows(2).any(|pair| pair.first() == pair.last()) {
        return Err(invalid("Member must be updated only once in the same request."));
    }
    families(world, call, wanted.iter().copied())?;
    for fields in &wanted {
        subnet(world, fields)?;
    }
    let old = ids(POOL.find(world, call.id(0))?, "members");
    let additive = call.get("additive_only").is_some_and(|text| text.eq_ignore_ascii_case("true"));
    let is_known = |key_of: (&str, i64)| {
        old.iter().any(|id| world.row("member", id).is_some_and(|row| key(&row.fields) == key_of))
    };
    let new = wanted.iter().filter(|fields| !is_known(key(fields))).count();
    let gone = if additive { 0 } else { old.len() + new - wanted.len() };
    room(&MEMBER, world, new.saturating_sub(gone))?;
    let mut parts: Vec<(&'static str, String, &str)> = Vec::new();
    for id in &old {
        let Some(row) = world.row_mut("member", id) else { continue };
        match wanted.iter().find(|fields| key(fields) == key(&row.fields)) {
            Some(fields) => {
                row.fields.extend((*fields).clone());
                parts.push(("member", id.clone(), "PENDING_UPDATE"));
            }
            None if additive => {}
            None => parts.push(("member", id.clone(), "PENDING_DELETE")),
        }
    }
    for fields in wanted {
        let known = old.iter().any(|id| world.row("member", id).is_some_and(|row| key(&row.fields) == key(fields)));
        if !known {
            make(world, call.id(0), fields.clone());
        }
    }
    let mut all = around(call.id(0), "PENDING_UPDATE", &listeners);
    all.extend(parts.iter().map(|(kind, id, status)| (*kind, id.as_str(), *status)));
    begin(world, &balancer, "PENDING_UPDATE", &all);
    Ok(Reply::empty(202))
}

/// `DELETE /pools/{id}/members/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    member(world, call)?;
    let (balancer, listeners) = open(world, call)?;
    let mut parts = around(call.id(0), "PENDING_UPDATE", &listeners);
    parts.push(("member", call.id(1), "PENDING_DELETE"));
    begin(world, &balancer, "PENDING_UPDATE", &parts);
    Ok(Reply::empty(204))
}
