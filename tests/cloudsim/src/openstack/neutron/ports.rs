//! Ports: changes, and deletion with all its effects.

use super::super::World;
use super::{GROUP, PORT, addresses, bad, change, floating};
use crate::core::rest::{Call, Problem, Reply};
use crate::core::shape::{Field, Kind, answer, cidr, may};
use serde_json::{Map, Value, json};

const FIELDS: &[Field] = &[
    may("name", Kind::Text(255)),
    may("description", Kind::Text(255)),
    may("admin_state_up", Kind::Bool),
    may("device_id", Kind::Text(255)),
    may("device_owner", Kind::Text(255)),
    may("security_groups", Kind::List(&Kind::Uuid)),
    may("allowed_address_pairs", Kind::List(&Kind::Any)),
    may("port_security_enabled", Kind::Bool),
    answer("id"),
    answer("status"),
    answer("network_id"),
    answer("tenant_id"),
    answer("project_id"),
    answer("tags"),
    answer("created_at"),
    answer("updated_at"),
    answer("revision_number"),
    answer("trunk_details"),
];

/// `PUT /v2.0/ports/{id}`
pub(in super::super) fn update(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let mut body = PORT.update(world, call, FIELDS)?;
    let id = call.id(0);
    let port = PORT.find(world, id)?;
    if let Some(pairs) = body.get("allowed_address_pairs") {
        let owner = world.row("network", port.text("network_id")).map(|network| network.text("project_id"));
        if !world.who.admin && owner != Some(world.who.project.as_str()) {
            let rule = "rule:update_port:allowed_address_pairs";
            let text = format!("(rule:update_port and ({rule} and ({rule}:ip_address))) is disallowed by policy");
            return Err(Problem::new(403, "PolicyNotAuthorized", text));
        }
        let pairs = address_pairs(pairs, port.text("mac_address"))?;
        body.insert("allowed_address_pairs".to_owned(), pairs);
    }
    for group in body.get("security_groups").and_then(Value::as_array).into_iter().flatten() {
        GROUP.find(world, group.as_str().unwrap_or_default())?;
    }
    secure(&body, &port.fields)?;
    change(world, "port", id, body);
    PORT.reply(world, 200, id)
}

/// Checks the new state of the port against the rules of port security.
fn secure(body: &Map<String, Value>, port: &Map<String, Value>) -> Result<(), Problem> {
    let will = |name: &str| body.get(name).or_else(|| port.get(name));
    let any = |name: &str| will(name).and_then(Value::as_array).is_some_and(|list| !list.is_empty());
    if will("port_security_enabled") != Some(&json!(false)) {
        return Ok(());
    }
    let off = body.contains_key("port_security_enabled");
    if any("security_groups") && off {
        let text = "Port has security group associated. Cannot disable port security or IP address until security group is removed.";
        return Err(Problem::new(409, "PortSecurityPortHasSecurityGroup", text));
    }
    if any("security_groups") {
        let text = "Port security must be enabled and port must have an IP address in order to use security groups.";
        return Err(Problem::new(400, "PortSecurityAndIPRequiredForSecurityGroups", text));
    }
    if any("allowed_address_pairs") {
        let text = "Port Security must be enabled in order to have allowed address pairs on a port.";
        return Err(Problem::new(409, "AddressPairAndPortSecurityRequired", text));
    }
    Ok(())
}

/// The allowed address pairs; those without a MAC address get that of the port.
fn address_pairs(pairs: &Value, mac: &str) -> Result<Value, Problem> {
    let mut found: Vec<Value> = Vec::new();
    for pair in pairs.as_array().into_iter().flatten() {
        let Some(address) = pair.get("ip_address").and_then(Value::as_str) else {
            return Err(Problem::violation(
                400,
                "AllowedAddressPairsMissingIP",
                "AllowedAddressPair must contain ip_address",
            ));
        };
        if !cidr(address) && address.parse::<std::net::IpAddr>().is_err() {
            return Err(bad(&format!("'{address}' is not a valid IP address")));
        }
        let given = pair.get("mac_address").and_then(Value::as_str);
        let whole = json!({"mac_address": given.unwrap_or(mac), "ip_address": address});
        if found.contains(&whole) {
            let given = given.unwrap_or("None");
            let text = format!("Request contains duplicate address pair: mac_address {given} ip_address {address}.");
            return Err(Problem::new(400, "DuplicateAddressPairInRequest", text));
        }
        found.push(whole);
    }
    Ok(Value::Array(found))
}

/// `DELETE /v2.0/ports/{id}`
pub(in super::super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let port = PORT.find(world, call.id(0))?;
    if port.text("device_owner").starts_with("network:router") {
        let (id, owner) = (port.id(), port.text("device_owner"));
        let text = format!("Port {id} cannot be deleted directly via the port API: has device owner {owner}.");
        return Err(Problem::new(409, "ServicePortInUse", text));
    }
    remove(world, call.id(0));
    Ok(Reply::empty(204))
}

/// Deletes a port: its addresses are released, and its floating IPs are disassociated.
pub(in super::super) fn remove(world: &mut World, id: &str) {
    let Some(port) = world.remove("port", id) else { return };
    for fixed in port.list("fixed_ips") {
        let text = |name: &str| fixed.get(name).and_then(Value::as_str).unwrap_or_default();
        addresses::give_back(world, text("subnet_id"), text("ip_address"));
    }
    let attached: Vec<String> = world
        .table("floatingip")
        .values()
        .filter(|floating| floating.text("port_id") == id)
        .map(|floating| floating.id().to_owned())
        .collect();
    for floating in attached {
        floating::detach(world, &floating);
    }
}

/// Creates a port; its first address is `wanted`, or a free one. `None`: the subnet is full, or the address is in use.
pub(in super::super) fn make(
    world: &mut World,
    subnets: &[(&str, Option<std::net::IpAddr>)],
    with: Map<String, Value>,
) -> Option<String> {
    let mut fixed = Vec::new();
    let mut network = String::new();
    for (subnet, wanted) in subnets {
        let address = addresses::take(world, subnet, *wanted)?;
        world.row("subnet", subnet)?.text("network_id").clone_into(&mut network);
        fixed.push(json!({"subnet_id": subnet, "ip_address": address}));
    }
    let mac = world.hex(6);
    let pair = |at: usize| mac.get(at..at + 2).unwrap_or_default();
    let mac = format!("fa:16:3e:{}:{}:{}", pair(0), pair(2), pair(4));
    let project = with.get("project_id").cloned().unwrap_or_default();
    let stamp = super::stamp(world);
    let base = json!({
        "name": "", "network_id": network, "project_id": project, "tenant_id": project, "mac_address": mac,
        "admin_state_up": true, "status": "DOWN", "device_id": "", "device_owner": "", "fixed_ips": fixed,
        "allowed_address_pairs": [], "extra_dhcp_opts": [], "security_groups": [], "description": "",
        "binding:vnic_type": "normal", "port_security_enabled": true, "qos_policy_id": null,
        "qos_network_policy_id": null, "tags": [], "created_at": stamp, "updated_at": stamp, "revision_number": 1,
    });
    Some(world.add("port", base, with))
}
