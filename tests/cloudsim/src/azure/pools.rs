//! Backend address pools: members by interface or by address, and the calls on single pools.

use super::ids::Id;
use super::json::{at, each, list, remove, same, set, text};
use super::operations::{self, Write};
use super::world::World;
use super::{errors, kinds, load_balancers, verbs};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// The fields of IP configurations with references to pools.
pub(super) const MEMBERSHIPS: [&str; 3] =
    ["loadBalancerBackendAddressPools", "loadBalancerInboundNatRules", "loadBalancerInboundNatPools"];

/// Removes from a pool what answers have: the members by interface, which the interfaces refer to.
pub(super) fn strip(pool: &mut Value) {
    for address in list(pool, "/properties/loadBalancerBackendAddresses").to_vec() {
        let member = text(&address, "/properties/networkInterfaceIPConfiguration/id").to_lowercase();
        let state = text(&address, "/properties/adminState");
        if !member.is_empty() && !state.is_empty() {
            set(pool, &format!("/_admin/{}", member.replace('/', "+")), state);
        }
    }
    if let Some(addresses) = pool.pointer_mut("/properties/loadBalancerBackendAddresses").and_then(Value::as_array_mut)
    {
        addresses.retain(|address| at(address, "/properties/networkInterfaceIPConfiguration").is_null());
        for address in addresses.iter_mut() {
            remove(address, "/properties/inboundNatRulesPortMapping");
        }
    }
    if list(pool, "/properties/loadBalancerBackendAddresses").is_empty() {
        remove(pool, "/properties/loadBalancerBackendAddresses");
    }
}

/// The members of a pool by interface.
pub(super) fn members<'a>(world: &'a World, pool: &str) -> impl Iterator<Item = &'a str> + use<'a> {
    world.store.users(pool).filter(|(key, ..)| key.contains("/ipconfigurations/")).map(|(_, id, _)| id)
}

/// Checks the addresses of a pool: their networks exist, and the pool has no members by interface.
pub(super) fn check(world: &World, id: &Id, pool: &Value) -> Result<(), Problem> {
    let addresses = list(pool, "/properties/loadBalancerBackendAddresses");
    if addresses.is_empty() {
        return Ok(());
    }
    if members(world, &id.key()).next().is_some() {
        // unverified: the code.
        let text = format!(
            "Backend address pool {} cannot have both network interfaces and IP addresses as members.",
            id.text()
        );
        return Err(errors::bad("MixingIpConfigurationsAndBackendAddressesNotAllowed", text));
    }
    let of_pool = text(pool, "/properties/virtualNetwork/id");
    let (mut names, mut seen) = (Vec::new(), Vec::new());
    for address in addresses {
        let (name, ip) = (text(address, "/name"), text(address, "/properties/ipAddress"));
        if name.is_empty() || names.contains(&name) {
            return Err(load_balancers::twice(id, name));
        }
        if ip.parse::<std::net::IpAddr>().is_err() || seen.contains(&ip) {
            // unverified: the code.
            let text =
                format!("Backend address {name} of pool {} has an invalid or duplicate IP address '{ip}'.", id.text());
            return Err(errors::bad("LoadBalancerBackendAddressInvalidIpAddress", text));
        }
        let own = text(address, "/properties/virtualNetwork/id");
        let subnet = text(address, "/properties/subnet/id");
        let network = [own, of_pool, subnet].into_iter().find(|network| !network.is_empty());
        let Some(network) = network else {
            // unverified: the code.
            let text = format!("Backend address {name} of pool {} has no virtual network.", id.text());
            return Err(errors::bad("LoadBalancerBackendAddressVirtualNetworkRequired", text));
        };
        if !world.exists(&network.to_lowercase()) {
            return Err(errors::no_reference(network, &id.text()));
        }
        names.push(name);
        seen.push(ip);
    }
    Ok(())
}

/// Adds to a pool in an answer its members by interface.
pub(super) fn show(world: &World, pool: &mut Value) {
    let key = text(pool, "/id").to_lowercase();
    let admin = remove(pool, "/_admin");
    let members: Vec<&str> = members(world, &key).collect();
    if members.is_empty() {
        return;
    }
    let configurations: Vec<Value> = members.iter().map(|id| json!({"id": id})).collect();
    set(pool, "/properties/backendIPConfigurations", configurations);
    let addresses = members.iter().map(|id| {
        let segment = |n: usize| id.split('/').rev().nth(n).unwrap_or_default();
        let name = format!("{}_{}{}", id.split('/').nth(4).unwrap_or_default(), segment(2), segment(0));
        let mut address = json!({"name": name, "properties": {"networkInterfaceIPConfiguration": {"id": id}}});
        if let Some(state) = admin.get(id.to_lowercase().replace('/', "+")) {
            set(&mut address, "/properties/adminState", state.clone());
        }
        address
    });
    set(pool, "/properties/loadBalancerBackendAddresses", addresses.collect::<Vec<_>>());
}

/// The load balancer of a call on a pool, and its fields.
fn balancer(world: &World, call: &Call) -> Result<(Id, Value), Problem> {
    let id = Id::parse(&call.path).map(|id| id.root()).ok_or_else(|| errors::bad("InvalidResourceId", "No ID."))?;
    if !world.groups.contains_key(&id.group_key()) {
        return Err(errors::no_group(&id.group));
    }
    let row = world.store.get(&id.key()).ok_or_else(|| errors::not_found(&id))?;
    Ok((row.id.clone(), row.fields.clone()))
}

/// A pool in a load balancer as answers show it.
pub(super) fn in_answer(balancer: &Value, name: &str) -> Option<Value> {
    list(balancer, "/properties/backendAddressPools").iter().find(|pool| same(text(pool, "/name"), name)).cloned()
}

/// `GET …/backendAddressPools/{name}`
pub(super) fn get(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (id, _) = balancer(world, call)?;
    let seen = world.store.seen(&id.key(), world.now()).map(|row| world.shown(row)).unwrap_or_default();
    let pool =
        in_answer(&seen, call.id(3)).ok_or_else(|| errors::not_found(&id.child("backendAddressPools", call.id(3))))?;
    Ok(Reply::json(200, &pool))
}

/// `PUT …/backendAddressPools/{name}`: on the same lane as writes of the load balancer.
pub(super) fn put(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (id, mut fields) = balancer(world, call)?;
    let old = fields.clone();
    verbs::guard(world, call, &id, Some(&old))?;
    let mut pool = verbs::body(call)?;
    super::json::without_nulls(&mut pool);
    let name = call.id(3).to_owned();
    set(&mut pool, "/name", name.as_str());
    let mut whole = json!({"properties": {"backendAddressPools": [pool]}});
    if let Some(kind) = kinds::of("microsoft.network/loadbalancers") {
        whole = World::stripped(kind, whole);
    }
    let Some(pool) = each(&mut whole, "/properties/backendAddressPools").next().map(Value::take) else {
        return Ok(Reply::empty(500));
    };
    let mut created = true;
    for known in each(&mut fields, "/properties/backendAddressPools") {
        if same(text(known, "/name"), &name) {
            *known = pool.clone();
            created = false;
        }
    }
    if created {
        let mut all = list(&fields, "/properties/backendAddressPools").to_vec();
        all.push(pool);
        set(&mut fields, "/properties/backendAddressPools", all);
    }
    let reply = change(world, &id, &old, fields, ("PutLoadBalancerBackendAddressPoolOperation", &name))?;
    let shown: Value = serde_json::from_slice(&reply.body).unwrap_or_default();
    let pool = in_answer(&shown, &name);
    let status = if created { 201 } else { 200 };
    Ok(Reply { headers: reply.headers, ..Reply::json(status, &pool) })
}

/// `DELETE …/backendAddressPools/{name}`
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (id, mut fields) = balancer(world, call)?;
    let old = fields.clone();
    verbs::guard(world, call, &id, Some(&old))?;
    let mut pools = list(&fields, "/properties/backendAddressPools").to_vec();
    let count = pools.len();
    pools.retain(|pool| !same(text(pool, "/name"), call.id(3)));
    if pools.len() == count {
        return Ok(Reply::empty(204));
    }
    set(&mut fields, "/properties/backendAddressPools", pools);
    let reply = change(world, &id, &old, fields, ("DeleteLoadBalancerBackendAddressPoolOperation", call.id(3)))?;
    Ok(Reply { headers: reply.headers, ..Reply::empty(202) })
}

/// `POST …/migrateToIpBased`: the members by interface of the named pools become members by address.
pub(super) fn migrate(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let (id, mut fields) = balancer(world, call)?;
    let old = fields.clone();
    let body = call.object().map(Value::Object).unwrap_or_default();
    let named: Vec<String> = super::json::texts(&body, "/pools").map(str::to_owned).collect();
    for pool in each(&mut fields, "/properties/backendAddressPools") {
        let name = text(pool, "/name").to_owned();
        if !named.is_empty() && !named.iter().any(|wanted| same(wanted, &name)) {
            continue;
        }
        let key = id.child("backendAddressPools", &name).key();
        let members: Vec<String> = members(world, &key).map(str::to_owned).collect();
        let addresses: Vec<Value> = members
            .iter()
            .filter_map(|member| {
                let (address, network) = super::interfaces::address_of(world, member)?;
                let host = super::interfaces::host_of(world, member);
                Some(json!({"name": host, "properties": {"ipAddress": address, "virtualNetwork": {"id": network}}}))
            })
            .collect();
        members.iter().for_each(|member| super::interfaces::leave(world, member, &key));
        if !addresses.is_empty() {
            set(pool, "/properties/loadBalancerBackendAddresses", addresses);
        }
    }
    let reply = change(world, &id, &old, fields, ("MigrateToIpBasedOperation", ""))?;
    let body = json!({ "migratedPools": named });
    Ok(Reply { headers: reply.headers, ..Reply::json(200, &body) })
}

fn change(
    world: &mut World,
    id: &Id,
    old: &Value,
    mut fields: Value,
    (name, part): (&str, &str),
) -> Result<Reply, Problem> {
    load_balancers::check(world, id, Some(old), &mut fields)?;
    let Some(kind) = kinds::of("microsoft.network/loadbalancers") else { return Ok(Reply::empty(500)) };
    let write = Write { kind, id, name: name.to_owned(), fields: Some(fields) };
    let operation = world.begin_operation(write);
    if !part.is_empty() {
        world.operations.of_part(&operation, id.child("backendAddressPools", part));
    }
    let shown = world.shown_now(&id.key()).unwrap_or_default();
    Ok(Reply { headers: operations::headers(world, &operation, false), ..Reply::json(200, &shown) })
}
