//! Floating IPs.

use super::super::World;
use super::{FLOATING, NETWORK, PORT, addresses, bad, change, invalid, routers};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::rows::Row;
use crate::core::shape::{Field, Kind, answer, may, must};
use serde_json::{Map, Value, json};
use std::net::IpAddr;

const CREATE: &[Field] = &[
    must("floating_network_id", Kind::Uuid),
    may("floating_ip_address", Kind::Address),
    may("subnet_id", Kind::Uuid),
    may("port_id", Kind::Uuid),
    may("fixed_ip_address", Kind::Address),
    may("description", Kind::Text(255)),
    may("project_id", Kind::Text(255)),
    may("tenant_id", Kind::Text(255)),
    answer("id"),
    answer("status"),
    answer("router_id"),
    answer("tags"),
];
const UPDATE: &[Field] = &[
    may("port_id", Kind::Uuid),
    may("fixed_ip_address", Kind::Address),
    may("description", Kind::Text(255)),
    answer("id"),
    answer("status"),
    answer("router_id"),
    answer("tags"),
    answer("project_id"),
    answer("tenant_id"),
    answer("floating_network_id"),
    answer("floating_ip_address"),
];

/// A floating IP with the fields that depend on its port.
pub(super) fn shown(world: &World, row: &Row) -> Map<String, Value> {
    let mut fields = row.fields.clone();
    let details = world.row("port", row.text("port_id")).map(|port| {
        let names = ["name", "network_id", "mac_address", "admin_state_up", "status", "device_id", "device_owner"];
        names.into_iter().map(|name| (name.to_owned(), port.fields.get(name).cloned().unwrap_or_default())).collect()
    });
    fields.insert("port_details".to_owned(), details.map_or(Value::Null, Value::Object));
    fields
}

/// `POST /v2.0/floatingips`
pub(in super::super) fn create(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = FLOATING.body(call, CREATE)?;
    let text = |name: &str| body.get(name).and_then(Value::as_str);
    if text("floating_ip_address").is_some() && !world.who.admin {
        let text = "(rule:create_floatingip and rule:create_floatingip:floating_ip_address) is disallowed by policy";
        return Err(Problem::new(403, "PolicyNotAuthorized", text));
    }
    if world.full("floatingip") {
        return Err(over_quota("floatingip"));
    }
    let network = NETWORK.find(world, text("floating_network_id").unwrap_or_default())?;
    let network_id = network.id().to_owned();
    if !network.is("router:external") {
        let text = format!("Bad floatingip request: Network {network_id} is not a valid external network.");
        return Err(Problem::new(400, "BadRequest", text));
    }
    let project = text("project_id").or(text("tenant_id")).unwrap_or(&world.who.project).to_owned();
    let subnets: Vec<String> = network.texts("subnets").map(str::to_owned).collect();
    let attach = match text("port_id") {
        Some(port) => Some(PORT.find(world, port)?.id().to_owned()),
        None => None,
    };
    let (subnet, address) = allocate(world, &network_id, &subnets, text("subnet_id"), text("floating_ip_address"))?;
    let stamp = super::stamp(world);
    let base = json!({
        "tenant_id": project, "project_id": project, "floating_ip_address": address, "floating_network_id": network_id,
        "router_id": null, "port_id": null, "fixed_ip_address": null, "status": "DOWN",
        "description": text("description").unwrap_or_default(), "qos_policy_id": null, "port_forwardings": [], "tags": [],
        "created_at": stamp, "updated_at": stamp, "revision_number": 0, "_subnet": subnet,
    });
    let id = world.add("floatingip", base, Map::new());
    if let Some(port) = attach
        && let Err(problem) = attach_to(world, &id, &port, text("fixed_ip_address"))
    {
        remove(world, &id);
        return Err(problem);
    }
    FLOATING.reply(world, 201, &id)
}

/// Allocates an address of the network: from the requested subnet or any, and the requested address or any.
fn allocate(
    world: &mut World,
    network: &str,
    subnets: &[String],
    subnet: Option<&str>,
    wanted: Option<&str>,
) -> Result<(String, IpAddr), Problem> {
    if let Some(subnet) = subnet.filter(|subnet| !subnets.iter().any(|known| known == subnet)) {
        let text =
            format!("Failed to create port on network {network}, because fixed_ips included invalid subnet {subnet}.");
        return Err(invalid(&text));
    }
    let wanted: Option<IpAddr> = wanted.and_then(|address| address.parse().ok());
    for candidate in subnets.iter().filter(|candidate| subnet.is_none_or(|subnet| subnet == *candidate)) {
        let four = world.row("subnet", candidate).is_some_and(|row| row.number("ip_version") == 4);
        if four && let Some(address) = addresses::take(world, candidate, wanted) {
            return Ok((candidate.clone(), address));
        }
    }
    Err(match (wanted, subnets.first()) {
        (Some(address), Some(subnet)) => {
            let text = format!("IP address {address} already allocated in subnet {subnet}");
            Problem::new(409, "IpAddressAlreadyAllocated", text)
        }
        _ => {
            let text = format!("No more IP addresses available on network {network}.");
            Problem::new(409, "IpAddressGenerationFailure", text)
        }
    })
}

/// `PUT /v2.0/floatingips/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let body = FLOATING.update(world, call, UPDATE)?;
    let id = call.id(0).to_owned();
    match body.get("port_id") {
        Some(Value::String(port)) => {
            let port = PORT.find(world, port)?.id().to_owned();
            attach_to(world, &id, &port, body.get("fixed_ip_address").and_then(Value::as_str))?;
        }
        Some(_) => detach(world, &id),
        // Without a port the fixed address has no effect.
        None if body.contains_key("fixed_ip_address") => return Err(bad("fixed_ip_address without port_id")),
        None => {}
    }
    let fields = body.into_iter().filter(|(name, _)| name == "description").collect();
    change(world, "floatingip", &id, fields);
    FLOATING.reply(world, 200, &id)
}

/// `DELETE /v2.0/floatingips/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    FLOATING.find(world, call.id(0))?;
    remove(world, call.id(0));
    Ok(Reply::empty(204))
}

fn remove(world: &mut World, id: &str) {
    if let Some(row) = world.remove("floatingip", id) {
        addresses::give_back(world, row.text("_subnet"), row.text("floating_ip_address"));
    }
}

/// Disassociates a floating IP from its port.
pub(in super::super) fn detach(world: &mut World, id: &str) {
    let free = json!({"port_id": null, "fixed_ip_address": null, "router_id": null, "status": "DOWN"});
    change(world, "floatingip", id, free.as_object().cloned().unwrap_or_default());
}

fn attach_to(world: &mut World, id: &str, port_id: &str, wanted: Option<&str>) -> Result<(), Problem> {
    let (port, floating) = (PORT.find(world, port_id)?, FLOATING.find(world, id)?);
    let four = |fixed: &&Value| {
        let text = fixed.get("ip_address").and_then(Value::as_str).unwrap_or_default();
        wanted.map_or_else(|| text.parse::<std::net::Ipv4Addr>().is_ok(), |wanted| wanted == text)
    };
    let Some(fixed) = port.list("fixed_ips").iter().find(four) else {
        let text = format!(
            "Bad floatingip request: Cannot add floating IP to port {port_id} that has no fixed IPv4 addresses."
        );
        return Err(Problem::new(400, "BadRequest", text));
    };
    let text = |name: &str| fixed.get(name).and_then(Value::as_str).unwrap_or_default();
    let (subnet, address) = (text("subnet_id"), text("ip_address"));
    let network = floating.text("floating_network_id");
    let taken = world.table("floatingip").values().any(|other| {
        other.text("port_id") == port_id
            && other.text("fixed_ip_address") == address
            && other.text("floating_network_id") == network
            && other.id() != id
    });
    if taken {
        let what = format!("floating IP {} ({id}) with port {port_id}", floating.text("floating_ip_address"));
        let why = format!(
            "using fixed IP {address}, as that fixed IP already has a floating IP on external network {network}."
        );
        return Err(Problem::new(409, "FloatingIPPortAlreadyAssociated", format!("Cannot associate {what} {why}")));
    }
    let out = |router: &&Row| {
        let gateway = router.fields.get("external_gateway_info").and_then(|info| info.get("network_id")?.as_str());
        let inside = |fixed: &Value| fixed.get("subnet_id").is_some_and(|is| is == subnet);
        gateway == Some(network) && routers::interfaces(world, router.id()).any(inside)
    };
    let Some(router) = world.table("router").values().find(out) else {
        let text = format!(
            "External network {network} is not reachable from subnet {subnet}.  Therefore, cannot associate Port {port_id} with a \
             Floating IP."
        );
        return Err(Problem::new(404, "ExternalGatewayForFloatingIPNotFound", text));
    };
    let fields = json!({"port_id": port_id, "fixed_ip_address": address, "router_id": router.id(), "status": "ACTIVE"});
    change(world, "floatingip", id, fields.as_object().cloned().unwrap_or_default());
    Ok(())
}

/// The error for a project that has reached its quota.
pub(super) fn over_quota(kind: &str) -> Problem {
    Problem::new(409, "OverQuota", format!("Quota exceeded for resources: ['{kind}']."))
}
