//! Health monitors.

use super::pools::{above, around};
use super::{
    BALANCER, MONITOR, POOL, begin, ids, immutable, invalid, list, mutable, providers, refused, room, shapes, stamp,
};
use crate::core::rest::{Call, Problem, Reply};
use crate::openstack::World;
use serde_json::{Map, Value, json};

/// The default of `udp_connect_min_interval_health_monitor`.
const LEAST_DELAY: i64 = 3;

/// `GET /healthmonitors`
pub(in super::super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    list(&MONITOR, world, call)
}

/// `GET /healthmonitors/{id}`
pub(in super::super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    MONITOR.find(world, call.id(0))?;
    MONITOR.reply(world, 200, call.id(0))
}

/// Checks whether the health monitors of a pool can be changed.
fn open(world: &World, pool: &str) -> Result<(String, Vec<String>), Problem> {
    let row = POOL.find(world, pool)?;
    let (balancer, listeners) = above(row);
    if row.text("provisioning_status") != "ACTIVE" {
        return Err(immutable("Pool", pool));
    }
    mutable(world, &balancer)?;
    Ok((balancer, listeners))
}

/// Checks whether the fields of a monitor are valid for its type.
fn sensible(kind: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let http = matches!(kind, "HTTP" | "HTTPS");
    let has = |name: &&&str| fields.get(**name).is_some_and(|value| !value.is_null());
    match ["http_method", "url_path", "expected_codes", "domain_name", "http_version"].iter().find(has) {
        Some(name) if !http => {
            Err(refused(400, format!("{name} is not a valid option for health monitors of type {kind}")))
        }
        _ => Ok(()),
    }
}

/// Checks whether a pool of this protocol can have the monitor.
pub(super) fn fits(protocol: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or_default();
    let datagrams = matches!(protocol, "UDP" | "SCTP");
    if kind == "UDP-CONNECT" && !datagrams {
        return Err(invalid("The UDP-CONNECT type is only supported for pools of type UDP/SCTP."));
    }
    if datagrams && !matches!(kind, "UDP-CONNECT" | "SCTP" | "TCP" | "HTTP") {
        let which = "so only a UDP-CONNECT/SCTP/TCP/HTTP health monitor is supported.";
        return Err(invalid(&format!("The associated pool protocol is {protocol}, {which}")));
    }
    paced(kind, fields)
}

/// Checks whether the delay is possible for the type of the monitor.
fn paced(kind: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    match fields.get("delay").and_then(Value::as_i64).filter(|delay| kind == "UDP-CONNECT" && *delay < LEAST_DELAY) {
        Some(delay) => Err(invalid(&format!(
            "The request delay value {delay} should be larger than {LEAST_DELAY} for {kind} health monitor type."
        ))),
        None => Ok(()),
    }
}

/// `POST /healthmonitors`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = MONITOR.body(call, shapes::MONITOR)?;
    let pool = body.remove("pool_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default();
    let kind = body.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    room(&MONITOR, world, 1)?;
    let (balancer, listeners) = open(world, &pool)?;
    sensible(&kind, &body)?;
    let row = POOL.find(world, &pool)?;
    fits(row.text("protocol"), &body)?;
    providers::monitor(BALANCER.find(world, &balancer)?.text("provider"), &kind)?;
    if !row.text("healthmonitor_id").is_empty() {
        return Err(refused(409, "This pool already has a health monitor"));
    }
    let id = make(world, &pool, body);
    begin(world, &balancer, "PENDING_UPDATE", &around(&pool, "PENDING_UPDATE", &listeners));
    MONITOR.reply(world, 201, &id)
}

/// Creates a monitor whose fields are valid.
pub(super) fn make(world: &mut World, pool: &str, mut fields: Map<String, Value>) -> String {
    fields.retain(|_, value| !value.is_null());
    let project = world.row("pool", pool).map(|row| row.text("project_id").to_owned());
    let http = fields.get("type").is_some_and(|kind| kind == "HTTP" || kind == "HTTPS");
    let default = |text: &str| if http { json!(text) } else { Value::Null };
    let base = json!({
        "name": "", "max_retries_down": 3, "http_method": default("GET"), "url_path": default("/"),
        "expected_codes": default("200"), "admin_state_up": true, "project_id": project, "tenant_id": project,
        "pools": [{"id": pool}], "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
        "created_at": stamp(world), "updated_at": null, "tags": [], "http_version": null, "domain_name": null,
        "_pool_id": pool,
    });
    let id = world.add("healthmonitor", base, fields);
    let members = world.row("pool", pool).map(|row| ids(row, "members")).unwrap_or_default();
    if let Some(row) = world.row_mut("pool", pool) {
        row.set("healthmonitor_id", id.as_str());
    }
    for member in members {
        if let Some(row) = world.row_mut("member", &member) {
            row.set("operating_status", "ONLINE");
        }
    }
    id
}

/// `PUT /healthmonitors/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = MONITOR.body(call, shapes::MONITOR_PUT)?;
    let id = call.id(0);
    let row = MONITOR.find(world, id)?;
    sensible(row.text("type"), &body)?;
    paced(row.text("type"), &body)?;
    let pool = row.text("_pool_id").to_owned();
    let (balancer, listeners) = open(world, &pool)?;
    if let Some(row) = world.row_mut("healthmonitor", id) {
        row.fields.extend(body);
    }
    let mut parts = around(&pool, "PENDING_UPDATE", &listeners);
    parts.push(("healthmonitor", id, "PENDING_UPDATE"));
    begin(world, &balancer, "PENDING_UPDATE", &parts);
    MONITOR.reply(world, 200, id)
}

/// `DELETE /healthmonitors/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let pool = MONITOR.find(world, call.id(0))?.text("_pool_id").to_owned();
    let (balancer, listeners) = open(world, &pool)?;
    let mut parts = around(&pool, "PENDING_UPDATE", &listeners);
    parts.push(("healthmonitor", call.id(0), "PENDING_DELETE"));
    begin(world, &balancer, "PENDING_UPDATE", &parts);
    Ok(Reply::empty(204))
}
