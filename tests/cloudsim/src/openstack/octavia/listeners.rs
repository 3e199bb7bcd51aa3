//! Listeners.

use super::{
    BALANCER, LISTENER, POOL, add_id, begin, immutable, invalid, list, minor_version, mutable, pools, providers,
    refused, room, shapes, stamp, take_id,
};
use crate::core::rest::{Call, Problem, Reply};
use crate::openstack::World;
use crate::openstack::neutron::python;
use ipnet::IpNet;
use serde_json::{Map, Value, json};
use std::net::IpAddr;

/// `GET /listeners`
pub(in super::super) fn list_all(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    list(&LISTENER, world, call)
}

/// `GET /listeners/{id}`
pub(in super::super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    LISTENER.find(world, call.id(0))?;
    LISTENER.reply(world, 200, call.id(0))
}

/// The transport protocol of a listener protocol.
fn transport(protocol: &str) -> &str {
    if matches!(protocol, "UDP" | "SCTP") { protocol } else { "TCP" }
}

/// Checks that the port is available: for this transport, and before the API of CIDRs for any.
pub(super) fn free<'a>(
    world: &World,
    protocol: &str,
    port: i64,
    mut others: impl Iterator<Item = (&'a str, i64, &'a str)>,
) -> Result<(), Problem> {
    let is_older = minor_version(world) < 12;
    let taken = others.find(|(other, at, _)| *at == port && (is_older || transport(other) == transport(protocol)));
    match taken {
        None => Ok(()),
        Some(_) if is_older => {
            Err(refused(409, format!("Another Listener on this Load Balancer is already using protocol_port {port}")))
        }
        Some((other, ..)) => {
            let what = format!("protocol {other} and protocol_port {port}");
            Err(refused(409, format!("Another Listener on this Load Balancer is already using {what}")))
        }
    }
}

/// Checks that the fields of a listener are consistent.
pub(super) fn sensible(fields: &Map<String, Value>) -> Result<(), Problem> {
    let protocol = fields.get("protocol").and_then(Value::as_str).unwrap_or_default();
    let http = matches!(protocol, "HTTP" | "TERMINATED_HTTPS");
    let headers = fields.get("insert_headers").and_then(Value::as_object).filter(|headers| !headers.is_empty());
    if let Some(headers) = headers {
        if !http {
            return Err(refused(
                400,
                format!("insert-headers is not a valid option for a {protocol} protocol listener."),
            ));
        }
        let known = |name: &str| {
            matches!(name, "X-Forwarded-For" | "X-Forwarded-Port" | "X-Forwarded-Proto")
                || name.starts_with("X-SSL-Client-")
        };
        if headers.keys().any(|name| !known(name)) {
            let names: Value = headers.keys().cloned().collect();
            return Err(refused(
                400,
                format!("dict_keys({}) is not a valid option for insert_headers", python(&names)),
            ));
        }
    }
    let reference = fields.get("default_tls_container_ref").is_some_and(Value::is_string)
        || fields.get("sni_container_refs").and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if protocol == "TERMINATED_HTTPS" && !reference {
        let what = "An SNI or default certificate container reference must be provided for TERMINATED_HTTPS protocol listeners.";
        return Err(invalid(what));
    }
    if protocol != "TERMINATED_HTTPS" && reference {
        let what = format!("Certificate container references are not allowed on {protocol} protocol listeners.");
        return Err(invalid(&what));
    }
    Ok(())
}

/// Checks that the certificates exist.
fn certified(world: &World, fields: &Map<String, Value>) -> Result<(), Problem> {
    if let Some(reference) = fields.get("default_tls_container_ref").and_then(Value::as_str) {
        let id = reference.rsplit('/').next().unwrap_or_default();
        if world.row("container", id).or_else(|| world.row("secret", id)).is_none() {
            // unverified: the format of the reference in the text.
            return Err(refused(400, format!("Could not retrieve certificate: ['{reference}']")));
        }
    }
    Ok(())
}

/// Checks that no other listener has the port.
fn unused(world: &World, balancer: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let row = world.row("loadbalancer", balancer).ok_or_else(|| BALANCER.not_found(balancer))?;
    let port = fields.get("protocol_port").and_then(Value::as_i64).unwrap_or_default();
    let others = row.list("listeners").iter().filter_map(|entry| world.row("listener", entry.get("id")?.as_str()?));
    let others = others.map(|other| (other.text("protocol"), other.number("protocol_port"), other.id()));
    free(world, fields.get("protocol").and_then(Value::as_str).unwrap_or_default(), port, others)
}

/// Checks that the CIDRs have the address family of the VIP, and that the driver takes the listener.
fn fitting(world: &World, balancer: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let row = BALANCER.find(world, balancer)?;
    let vip = row.text("vip_address");
    let four = vip.parse::<IpAddr>().is_ok_and(|vip| vip.is_ipv4());
    for cidr in fields.get("allowed_cidrs").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str) {
        if cidr.parse::<IpNet>().is_ok_and(|range| range.addr().is_ipv4() != four) {
            let text = format!("CIDR {cidr} IP version incompatible with all VIPs ['{vip}'] IP version.");
            return Err(invalid(&text));
        }
    }
    providers::listener(row.text("provider"), fields)
}

/// Checks that the default pool in a body is one of the load balancer, and can serve the listener.
fn served(world: &World, balancer: &str, protocol: &str, fields: &Map<String, Value>) -> Result<(), Problem> {
    let Some(pool) = fields.get("default_pool_id").and_then(Value::as_str) else { return Ok(()) };
    let row = POOL.find(world, pool)?;
    if row.text("_loadbalancer_id") != balancer {
        return Err(POOL.not_found(pool));
    }
    pools::compatible(protocol, row.text("protocol"))
}

/// `POST /listeners`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = LISTENER.body(call, shapes::LISTENER)?;
    let balancer = body.remove("loadbalancer_id").and_then(|id| id.as_str().map(str::to_owned)).unwrap_or_default();
    BALANCER.find(world, &balancer)?;
    room(&LISTENER, world, 1)?;
    mutable(world, &balancer)?;
    sensible(&body)?;
    let protocol = body.get("protocol").and_then(Value::as_str).unwrap_or_default();
    served(world, &balancer, protocol, &body)?;
    certified(world, &body)?;
    unused(world, &balancer, &body)?;
    fitting(world, &balancer, &body)?;
    let id = make(world, &balancer, body)?;
    begin(world, &balancer, "PENDING_UPDATE", &[]);
    LISTENER.reply(world, 201, &id)
}

/// Creates a listener whose fields are valid; its port may be in use.
pub(super) fn make(world: &mut World, balancer: &str, mut fields: Map<String, Value>) -> Result<String, Problem> {
    let row = world.row("loadbalancer", balancer).ok_or_else(|| BALANCER.not_found(balancer))?;
    let project = row.text("project_id").to_owned();
    unused(world, balancer, &fields)?;
    fields.retain(|_, value| !value.is_null());
    let base = json!({
        "name": "", "description": "", "provisioning_status": "PENDING_CREATE", "operating_status": "OFFLINE",
        "admin_state_up": true, "connection_limit": -1, "default_tls_container_ref": null, "sni_container_refs": [],
        "project_id": project, "tenant_id": project, "default_pool_id": null, "l7policies": [], "insert_headers": {},
        "created_at": stamp(world), "updated_at": null, "loadbalancers": [{"id": balancer}],
        "timeout_client_data": 50000, "timeout_member_connect": 5000, "timeout_member_data": 50000,
        "timeout_tcp_inspect": 0, "tags": [], "client_ca_tls_container_ref": null, "client_authentication": "NONE",
        "client_crl_container_ref": null, "allowed_cidrs": null, "tls_ciphers": null, "tls_versions": null,
        "alpn_protocols": null, "hsts_max_age": null, "hsts_include_subdomains": false, "hsts_preload": false,
        "_loadbalancer_id": balancer, "_load_balancer_id": balancer,
    });
    let pool = fields.get("default_pool_id").and_then(Value::as_str).map(str::to_owned);
    let id = world.add("listener", base, fields);
    add_id(world, "loadbalancer", balancer, "listeners", &id);
    if let Some(pool) = pool {
        add_id(world, "pool", &pool, "listeners", &id);
    }
    Ok(id)
}

/// `PUT /listeners/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = LISTENER.body(call, shapes::LISTENER_PUT)?;
    let id = call.id(0);
    let row = LISTENER.find(world, id)?;
    let balancer = row.text("_loadbalancer_id").to_owned();
    let mut whole = row.fields.clone();
    whole.extend(body.clone());
    mutable(world, &balancer)?;
    sensible(&whole)?;
    certified(world, &body)?;
    fitting(world, &balancer, &body)?;
    served(world, &balancer, whole.get("protocol").and_then(Value::as_str).unwrap_or_default(), &body)?;
    for (name, default) in [
        ("timeout_client_data", 50000),
        ("timeout_member_connect", 5000),
        ("timeout_member_data", 50000),
        ("timeout_tcp_inspect", 0),
        ("connection_limit", -1),
    ] {
        // Null restores the default.
        if body.get(name).is_some_and(Value::is_null) {
            body.insert(name.to_owned(), json!(default));
        }
    }
    if let Some(pool) = body.get("default_pool_id") {
        let before = LISTENER.find(world, id)?.text("default_pool_id").to_owned();
        take_id(world, "pool", &before, "listeners", id);
        if let Some(pool) = pool.as_str() {
            add_id(world, "pool", pool, "listeners", id);
        }
    }
    if let Some(row) = world.row_mut("listener", id) {
        row.fields.extend(body);
    }
    begin(world, &balancer, "PENDING_UPDATE", &[("listener", id, "PENDING_UPDATE")]);
    LISTENER.reply(world, 200, id)
}

/// `DELETE /listeners/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let id = call.id(0);
    let row = LISTENER.find(world, id)?;
    let balancer = row.text("_loadbalancer_id").to_owned();
    if row.text("provisioning_status") == "PENDING_DELETE" {
        return Err(immutable("Load Balancer", &balancer));
    }
    mutable(world, &balancer)?;
    begin(world, &balancer, "PENDING_UPDATE", &[("listener", id, "PENDING_DELETE")]);
    Ok(Reply::empty(204))
}
