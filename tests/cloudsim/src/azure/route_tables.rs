//! Route tables.

use super::errors;
use super::ids::Id;
use super::json::{default, list, set, text};
use super::world::World;
use crate::core::rest::Problem;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn check(world: &mut World, id: &Id, _: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    default(fields, "/properties/disableBgpRoutePropagation", false);
    let (mut names, mut prefixes) = (BTreeSet::new(), BTreeMap::new());
    let routes = list(fields, "/properties/routes");
    let limit = world.options.limits.routes;
    if routes.len() > limit {
        // unverified: the code and the text.
        let text = format!("Route table {} cannot have more than {limit} routes.", id.text());
        return Err(errors::bad("RouteTableRouteCountLimitReached", text));
    }
    for route in routes {
        let name = text(route, "/name");
        let user = id.child("routes", name).text();
        if !names.insert(name.to_lowercase()) {
            return Err(super::load_balancers::twice(id, name));
        }
        let prefix = text(route, "/properties/addressPrefix");
        let tag = prefix.starts_with(|c: char| c.is_ascii_alphabetic()) && !prefix.contains([':', '/']);
        let range = prefix.parse::<ipnet::IpNet>().ok();
        if range.is_none_or(|range| range.trunc() != range) && !tag {
            let text = format!("Route {user} has an invalid address prefix '{prefix}'.");
            return Err(errors::bad("InvalidAddressPrefix", text));
        }
        if let Some(other) = prefixes.insert(prefix, name) {
            // unverified: the code.
            let text = format!("Route {other} conflicts with route {name}. Routes cannot have the same AddressPrefix.");
            return Err(errors::bad("RouteConflict", text));
        }
        let hop = text(route, "/properties/nextHopIpAddress");
        match text(route, "/properties/nextHopType") {
            "VirtualAppliance" if hop.parse::<std::net::IpAddr>().is_ok() => {}
            "VirtualAppliance" => {
                let text =
                    format!("Route {user} with next hop type VirtualAppliance needs a valid next hop IP address.");
                return Err(errors::bad("InvalidNextHopIpAddress", text));
            }
            "VirtualNetworkGateway" | "VnetLocal" | "Internet" | "None" if hop.is_empty() => {}
            other => {
                let text =
                    format!("Route {user} has an invalid next hop type '{other}' or a next hop IP address '{hop}'.");
                return Err(errors::bad("InvalidNextHopType", text));
            }
        }
    }
    Ok(())
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some((_, user, _)) = world.store.users(&id.key()).next() else { return Ok(()) };
    let text = format!("Route table {} is in use by {user} and cannot be deleted.", id.text());
    Err(errors::bad("InUseRouteTableCannotBeDeleted", text))
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    default(value, "/properties/routes", json!([]));
    let users: Vec<Value> = world.store.users(&id.key()).map(|(_, user, _)| json!({ "id": user })).collect();
    if !users.is_empty() {
        set(value, "/properties/subnets", users);
    }
}
