//! Virtual networks, subnets, and the addresses in them.

use super::errors;
use super::ids::Id;
use super::json::{at, default, remove, same, set, text, texts};
use super::kinds::{Ref, reference};
use super::world::World;
use crate::core::rest::Problem;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::net::IpAddr;

pub(super) fn subnet_refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let user = id.text();
    ["networkSecurityGroup", "routeTable"]
        .iter()
        .filter_map(|name| reference(fields, &format!("/properties/{name}"), &user))
        .collect()
}

pub(super) fn check_subnet(_: &mut World, id: &Id, _: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    for name in ["networkSecurityGroup", "routeTable", "natGateway"] {
        if let Some(reference) = fields.pointer(&format!("/properties/{name}/id")).cloned() {
            set(fields, &format!("/properties/{name}"), json!({ "id": reference }));
        }
    }
    if ranges(fields).is_empty() {
        let text = format!("Address prefix string for resource {} cannot be null or empty.", id.text());
        return Err(Problem::violation(400, "AddressPrefixStringCannotBeNullOrEmpty", text));
    }
    default(fields, "/properties/privateEndpointNetworkPolicies", "Disabled");
    default(fields, "/properties/privateLinkServiceNetworkPolicies", "Enabled");
    Ok(())
}

/// The ranges of a subnet.
fn ranges(subnet: &Value) -> Vec<IpNet> {
    let all = texts(subnet, "/properties/addressPrefixes").chain([text(subnet, "/properties/addressPrefix")]);
    all.filter_map(|range| range.parse().ok()).collect()
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    let prefix = id.child("subnets", "").key();
    let rows = world.store.seen_under(&prefix, world.now());
    let subnets: Vec<Value> = rows.into_iter().map(|row| world.shown(row)).collect();
    set(value, "/properties/subnets", subnets);
}

pub(super) fn show_subnet(world: &World, id: &Id, value: &mut Value) {
    let users: Vec<Value> = world.store.users(&id.key()).map(|(_, user, _)| json!({ "id": user })).collect();
    if !users.is_empty() {
        set(value, "/properties/ipConfigurations", users);
    }
    // An ETag of its own is only in the answers to its own calls and to those of its network.
    if at(value, "/etag").is_null() {
        remove(value, "/etag");
    }
}

/// What other configurations of the same write do with addresses.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Those that the write removes, by key: upstream renames a frontend and keeps its address in one write.
    pub(super) gone: BTreeSet<String>,
    /// The addresses that the others get.
    pub(super) taken: BTreeSet<IpAddr>,
}

/// Checks the address of an IP configuration, or gives it one. A dynamic address stays while the subnet does.
pub(super) fn assign(
    world: &mut World,
    configuration: &mut Value,
    user: &str,
    old: Option<&Value>,
    beside: &mut Beside,
) -> Result<(), Problem> {
    let subnet = text(configuration, "/properties/subnet/id").to_owned();
    let key = subnet.to_lowercase();
    let Some(row) = world.store.get(&key) else { return Err(errors::no_reference(&subnet, user)) };
    let six = text(configuration, "/properties/privateIPAddressVersion") == "IPv6";
    let ranges: Vec<IpNet> = ranges(&row.fields).into_iter().filter(|range| range.addr().is_ipv6() == six).collect();
    let holder = |wanted: IpAddr| {
        world.store.taken(&key).filter(|taken| taken.contains(&wanted))?;
        let mut holders = world.store.users(&key).filter(|(_, _, address)| *address == Some(wanted));
        let holder = holders.find(|(_, other, _)| !same(other, user) && !beside.gone.contains(&other.to_lowercase()));
        holder.map(|(_, other, _)| other.to_owned())
    };
    if text(configuration, "/properties/privateIPAllocationMethod") == "Static" {
        let given = text(configuration, "/properties/privateIPAddress");
        let Some(wanted) = given.parse::<IpAddr>().ok() else {
            let text = format!("IP configuration {user} has no valid private IP address: '{given}'.");
            return Err(errors::bad("InvalidPrivateIPAddress", text));
        };
        if !ranges.iter().any(|range| range.contains(&wanted)) {
            let prefix = ranges.first().map(ToString::to_string).unwrap_or_default();
            let text =
                format!("Private static IP address {wanted} does not belong to the range of subnet prefix {prefix}.");
            return Err(errors::bad("PrivateIPAddressNotInSubnet", text));
        }
        if let Some(range) = ranges.iter().find(|range| is_reserved(range, wanted)) {
            // unverified: the text.
            let text =
                format!("Private static IP address {wanted} falls within reserved IP range of subnet prefix {range}.");
            return Err(errors::bad("PrivateIPAddressInReservedRange", text));
        }
        if let Some(other) = holder(wanted) {
            let text = format!(
                "IP configuration {user} is using the private IP address {wanted} which is already allocated to resource {other}."
            );
            return Err(errors::bad("PrivateIPAddressIsAllocated", text));
        }
        return Ok(());
    }
    let kept = old.filter(|old| same(text(old, "/properties/subnet/id"), &subnet));
    let kept = kept.map(|old| text(old, "/properties/privateIPAddress")).filter(|kept| !kept.is_empty());
    let address = match kept {
        Some(kept) => kept.to_owned(),
        None => {
            let taken = world.store.taken(&key);
            let free = |host: &IpAddr| taken.is_none_or(|taken| !taken.contains(host)) && !beside.taken.contains(host);
            // Azure keeps the first four addresses of a subnet. The search begins behind as many as are in use.
            let behind = 3 + taken.map_or(0, BTreeSet::len);
            let host = |from: usize| ranges.iter().flat_map(|range| range.hosts().skip(from)).find(free);
            let free = host(behind).or_else(|| host(3));
            free.ok_or_else(|| full(&subnet, &ranges))?.to_string()
        }
    };
    beside.taken.extend(address.parse::<IpAddr>());
    set(configuration, "/properties/privateIPAddress", address);
    Ok(())
}

/// The first four addresses and the last one of an IPv4 range.
fn is_reserved(range: &IpNet, wanted: IpAddr) -> bool {
    let (IpNet::V4(range), IpAddr::V4(wanted)) = (range, wanted) else { return false };
    range.contains(&wanted) && (u32::from(wanted) - u32::from(range.network()) < 4 || wanted == range.broadcast())
}

fn full(subnet: &str, ranges: &[IpNet]) -> Problem {
    let name = subnet.rsplit('/').next().unwrap_or_default();
    let range = ranges.first().map(ToString::to_string).unwrap_or_default();
    let text = format!("Subnet {name} with address prefix {range} does not have enough capacity for 1 IP addresses.");
    errors::bad("SubnetIsFull", text)
}

/// The network of a subnet.
pub(super) fn network_of(subnet: &str) -> Option<String> {
    Some(Id::parse(subnet)?.parent()?.text())
}
