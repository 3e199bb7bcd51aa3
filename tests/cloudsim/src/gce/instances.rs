//! Instances: their network interfaces, and the fields in answers.

use super::kinds::Fields;
use super::networks::fields;
use super::places::link;
use super::verbs::{custom, text};
use super::world::{World, inner};
use super::{errors, ip};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};
use std::collections::HashMap;

/// `PATCH …/instances/{name}/updateNetworkInterface`
pub(super) fn update_interface(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let name = call.get("networkInterface").unwrap_or_default().to_owned();
    custom(world, call, |world, spot, body, instance| {
        let interfaces = instance.get("networkInterfaces").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut changed = Vec::new();
        let mut found = false;
        for interface in interfaces {
            let mut interface = fields(interface);
            if text(&interface, "name") == name {
                found = true;
                match body.get("fingerprint").and_then(Value::as_str) {
                    None => return Err(errors::required("resource.fingerprint")),
                    Some(given) if given != text(&interface, "fingerprint") => return Err(errors::stale()),
                    Some(_) => {}
                }
                if let Some(ranges) = body.get("aliasIpRanges") {
                    let ranges = ip::alias_ranges(world, &spot.key(), &interface, ranges)?;
                    interface.insert("aliasIpRanges".to_owned(), ranges);
                }
                interface.insert("fingerprint".to_owned(), json!(world.fingerprint()));
            }
            changed.push(Value::Object(interface));
        }
        if !found {
            return Err(errors::invalid("networkInterface", &name, "Network interface not found."));
        }
        instance.insert("networkInterfaces".to_owned(), json!(changed));
        Ok(())
    })
}

/// The interfaces of an instance.
pub(super) fn interfaces(instance: &Fields) -> &[Value] {
    instance.get("networkInterfaces").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// Whether an instance has an interface in a network.
pub(super) fn is_in(instance: &Fields, network: &str) -> bool {
    interfaces(instance).iter().any(|interface| inner(interface, "network") == link(network))
}

/// Keys of instances by address, with the change count for which they are valid.
pub(super) type ByAddress = (u64, HashMap<String, Vec<String>>);

/// Keys of the instances that have an address. Cached, because a list of addresses needs it for each address, and
/// instances rarely change.
pub(super) fn with_address(world: &World, address: &str) -> Vec<String> {
    let changes = world.store.changes("instances");
    let mut known = world.instances_by_address.borrow_mut();
    let (_, by_address) = match &mut *known {
        Some(known) if known.0 == changes => known,
        known => {
            let mut by_address = HashMap::<String, Vec<String>>::new();
            for (key, row) in world.store.all("instances") {
                all_addresses(&row.fields)
                    .for_each(|a| by_address.entry(a.to_owned()).or_default().push(key.to_owned()));
            }
            known.insert((changes, by_address))
        }
    };
    by_address.get(address).cloned().unwrap_or_default()
}

/// All addresses of an instance, including those of its access configs.
pub(super) fn all_addresses(instance: &Fields) -> impl Iterator<Item = &str> {
    interfaces(instance).iter().flat_map(|interface| {
        let configs = interface.get("accessConfigs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let outside = configs.iter().map(|config| inner(config, "natIP"));
        std::iter::once(inner(interface, "networkIP")).chain(outside)
    })
}
