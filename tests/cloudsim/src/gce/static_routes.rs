//! Routes of a network.

use super::kinds::Fields;
use super::places::{Spot, unlink};
use super::verbs::{default, refer, text};
use super::world::World;
use super::{errors, instances};
use crate::core::rest::Problem;
use ipnet::IpNet;
use serde_json::{Value, json};

const NEXT: [&str; 7] = [
    "nextHopInstance",
    "nextHopIp",
    "nextHopGateway",
    "nextHopIlb",
    "nextHopNetwork",
    "nextHopVpnTunnel",
    "nextHopInterconnectAttachment",
];

/// Checks a new route.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    let network = refer(world, spot, fields, "network", "networks")?;
    world.may("compute.networks.updatePolicy", &network)?;
    let range = text(fields, "destRange");
    let parsed = range.parse::<IpNet>().ok().filter(|parsed| parsed.trunc() == *parsed);
    if parsed.is_none() {
        return Err(errors::invalid("resource.destRange", range, "Must be a CIDR address range."));
    }
    let hops = NEXT.iter().filter(|name| fields.get(**name).is_some_and(|value| !value.is_null())).count();
    if hops != 1 {
        return Err(errors::bad_request("Exactly one next hop must be specified."));
    }
    if fields.contains_key("nextHopInstance") {
        let instance = refer(world, spot, fields, "nextHopInstance", "instances")?;
        world.may("compute.instances.use", &instance)?;
    }
    let priority = fields.get("priority").and_then(Value::as_u64).unwrap_or(1000);
    if priority > 65535 {
        let text = "Must be greater than or equal to 0 and less than or equal to 65535.";
        return Err(errors::invalid("resource.priority", &priority.to_string(), text));
    }
    default(fields, "priority", 1000);
    fields.insert("routeType".to_owned(), json!("STATIC"));
    Ok(())
}

/// Adds a warning if the next hop of the route can't receive packets.
pub(super) fn show(world: &World, _: &str, fields: &mut Fields) {
    let hop = text(fields, "nextHopInstance");
    if hop.is_empty() {
        return;
    }
    let key = unlink(hop);
    let network = unlink(text(fields, "network"));
    let code = match world.store.get(key).map(|row| &row.fields) {
        None => "NEXT_HOP_INSTANCE_NOT_FOUND",
        Some(instance) if text(instance, "status") != "RUNNING" => "NEXT_HOP_NOT_RUNNING",
        Some(instance) if !instances::is_in(instance, network) => "NEXT_HOP_INSTANCE_NOT_ON_NETWORK",
        Some(instance) if instance.get("canIpForward") != Some(&json!(true)) => "NEXT_HOP_CANNOT_IP_FORWARD",
        Some(_) => return,
    };
    // unverified: the texts.
    let message = format!("Next hop instance '{key}': {code}");
    let warning = json!({"code": code, "message": message, "data": [{"key": "instance", "value": key}]});
    fields.insert("warnings".to_owned(), json!([warning]));
}
