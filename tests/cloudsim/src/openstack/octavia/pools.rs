//! Pools.

use super::{
    BALANCER, LISTENER, POOL, add_id, begin, ids, invalid, list, minor_version, mutable, providers, refused, room,
    shapes, stamp,
};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::openstack::World;
use serde_json::{Map, Value, json};

/// `GET /pools`
pub(in super::super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    list(&POOL, world, call)
}

/// `GET /pools/{id}`
pub(in super::super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    POOL.find(world, call.id(0))?;
    POOL.reply(world, 200, call.id(0))
}

/// Checks whether a pool can serve a listener.
pub(super) fn compatible(listener: &str, pool: &str) -> Result<(), Problem> {
    let fits = match listener {
        "TCP" => matches!(pool, "HTTP" | "HTTPS" | "PROXY" | "PROXYV2" | "TCP"),
        "HTTPS" => matches!(pool, "HTTPS" | "PROXY" | "PROXYV2" | "TCP"),
        "HTTP" | "TERMINATED_HTTPS" => matches!(pool, "HTTP" | "PROXY" | "PROXYV2"),
        "UDP" | "SCTP" => listener == pool,
        _ => false,
    };
    if fits {
        return Ok(());
    }
    Err(invalid(&format!("The pool protocol '{pool}' is invalid while the listener protocol is '{listener}'.")))
}

/// The protocols of pools, with the version of the API that brought them if that is not the first one.
const PROTOCOLS: [(&str, u32); 7] =
    [("HTTP", 0), ("HTTPS", 0), ("PROXY", 0), ("PROXYV2", 22), ("SCTP", 23), ("TCP", 0), ("UDP", 0)];

/// Checks whether this Octavia has the protocol of a pool.
pub(super) fn known(world: &World, fields: &Map<String, Value>) -> Result<(), Problem> {
    let protocol = fields.get("protocol").and_then(Value::as_str).unwrap_or_default();
    let current = minor_version(world);
    let has: Vec<&str> = PROTOCOLS.iter().filter(|(_, since)| current >= *since).map(|(name, _)| *name).collect();
    if has.contains(&protocol) {
        return Ok(());
    }
    let wants = format!("Value should be one of: {}", has.join(", "));
    let text = format!("Invalid input for field/attribute protocol. Value: '{protocol}'. {wants}");
    Err(Problem::violation(400, "", text))
}

fn persistence(fields: &Map<String, Value>) -> Result<(), Problem> {
    let Some(persistence) = fields.get("session_persistence").filter(|value| value.is_object()) else { return Ok(()) };
    if persistence.get("type").is_some_and(|kind| kind == "APP_COOKIE")
        && persistence.get("cookie_name").is_none_or(Value::is_null)
    {
        let text = "Field \"cookie_name\" must be specified when using the \"APP_COOKIE\" session persistence type.";
        return Err(invalid(text));
    }
    Ok(())
}

/// Adds the missing fields of the session persistence.
fn filled(fields: &mut Map<String, Value>) {
    if let Some(Value::Object(given)) = fields.get_mut("session_persistence") {
        for name in ["cookie_name", "persistence_timeout", "persistence_granularity"] {
            given.entry(name).or_insert(Value::Null);
        }
    }
}

/// `POST /pools`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = POOL.body(call, shapes::POOL)?;
    known(world, &body)?;
    room(&POOL, world, 1)?;
    let mut id = |name: &str| body.remove(name).and_then(|id| id.as_str().map(str::to_owned));
    let (listener, balancer) = (id("listener_id"), id("loadbalancer_id"));
    let protocol = body.get("protocol").and_then(Value::as_str).unwrap_or_default();
    let balancer = match (&listener, balancer) {
        (Some(listener), _) => {
            let listener = LISTENER.find(world, listener)?;
            let balancer = listener.text("_loadbalancer_id").to_owned();
            mutable(world, &balancer)?;
            if !listener.text("default_pool_id").is_empty() {
                return Err(refused(409, "This listener already has a default pool"));
            }
            compatible(listener.text("protocol"), protocol)?;
            balancer
        }
        (None, Some(balancer)) => {
            mutable(world, &balancer)?;
            balancer
        }
        (None, None) => return Err(invalid("Must provide at least one of: loadbalancer_id, listener_id")),
    };
    persistence(&body)?;
    providers::pool(BALANCER.find(world, &balancer)?.text("provider"), &body)?;
    let pool = make(world, &balancer, listener.as_deref(), body);
    let parts: Vec<(&'static str, &str, &str)> =
        listener.iter().map(|listener| ("listener", listener.as_str(), "PENDING_UPDATE")).collect();
    begin(world, &balancer, "PENDING_UPDATE", &parts);
    POOL.reply(world, 201, &pool)
}

/// Creates a pool whose fields are valid.
pub(super) fn make(
    world: &mut World,
    balancer: &str,
    listener: Option<&str>,
    mut fields: Map<String, Value>,
) -> String {
    let project = world.row("loadbalancer", balancer).map(|row| row.text("project_id").to_owned());
    filled(&mut fields);
    fields.retain(|_, value| !value.is_null());
    let listeners: Vec<Value> = listener.iter().map(|id| json!({ "id": id })).collect();
    let base = json!({
        "name": "", "description": "", "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
        "admin_state_up": true, "session_persistence": null, "project_id": project, "tenant_id": project,
        "loadbalancers": [{"id": balancer}], "listeners": listeners, "created_at": stamp(world), "updated_at": null,
        "members": [], "tags": [], "tls_container_ref": null, "ca_tls_container_ref": null, "crl_container_ref": null,
        "tls_enabled": false, "tls_ciphers": null, "tls_versions": null, "alpn_protocols": null,
        "_loadbalancer_id": balancer, "_load_balancer_id": balancer,
    });
    let id = world.add("pool", base, fields);
    add_id(world, "loadbalancer", balancer, "pools", &id);
    if let Some(row) = listener.and_then(|listener| world.row_mut("listener", listener)) {
        row.set("default_pool_id", id.as_str());
    }
    id
}

/// The resources that change with a pool: the pool and its listeners.
pub(super) fn around<'a>(
    pool: &'a str,
    status: &'a str,
    listeners: &'a [String],
) -> Vec<(&'static str, &'a str, &'a str)> {
    let listeners = listeners.iter().map(|listener| ("listener", listener.as_str(), "PENDING_UPDATE"));
    listeners.chain([("pool", pool, status)]).collect()
}

/// The load balancer and the listeners of a pool.
pub(super) fn above(pool: &Row) -> (String, Vec<String>) {
    (pool.text("_loadbalancer_id").to_owned(), ids(pool, "listeners"))
}

/// `PUT /pools/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = POOL.body(call, shapes::POOL_PUT)?;
    let id = call.id(0);
    let (balancer, listeners) = above(POOL.find(world, id)?);
    mutable(world, &balancer)?;
    persistence(&body)?;
    providers::pool(BALANCER.find(world, &balancer)?.text("provider"), &body)?;
    filled(&mut body);
    if let Some(row) = world.row_mut("pool", id) {
        row.fields.extend(body);
    }
    begin(world, &balancer, "PENDING_UPDATE", &around(id, "PENDING_UPDATE", &listeners));
    POOL.reply(world, 200, id)
}

/// `DELETE /pools/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = call.id(0);
    let (balancer, listeners) = above(POOL.find(world, id)?);
    mutable(world, &balancer)?;
    begin(world, &balancer, "PENDING_UPDATE", &around(id, "PENDING_DELETE", &listeners));
    Ok(Reply::empty(204))
}
