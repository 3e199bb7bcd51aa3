//! Network interfaces, and the IP configurations of all kinds of instances.

use super::ids::Id;
use super::json::{at, default, each, is, list, number, remove, same, set, text};
use super::kinds::{Ref, of_configuration, reference};
use super::world::World;
use super::{compute, errors, load_balancers, networks, pools};
use crate::core::rest::Problem;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(super) fn refs(id: &Id, fields: &Value) -> Vec<Ref> {
    let mut found: Vec<Ref> = reference(fields, "/properties/networkSecurityGroup", &id.text()).into_iter().collect();
    for configuration in list(fields, "/properties/ipConfigurations") {
        let user = id.child("ipConfigurations", text(configuration, "/name")).text();
        found.extend(of_configuration(configuration, &user));
    }
    found
}

/// Reduces what an IP configuration refers to to the references.
pub(super) fn only_references(configuration: &mut Value) {
    for name in ["subnet", "publicIPAddress", "networkSecurityGroup"] {
        if let Some(id) = configuration.pointer(&format!("/properties/{name}/id")).cloned() {
            set(configuration, &format!("/properties/{name}"), json!({ "id": id }));
        }
    }
    for name in pools::MEMBERSHIPS.into_iter().chain(["applicationSecurityGroups"]) {
        for item in each(configuration, &format!("/properties/{name}")) {
            *item = json!({ "id": at(item, "/id") });
        }
    }
}

pub(super) fn check(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    if let Some(group) = fields.pointer("/properties/networkSecurityGroup/id").cloned() {
        set(fields, "/properties/networkSecurityGroup", json!({ "id": group }));
    }
    if list(fields, "/properties/ipConfigurations").is_empty() {
        let text = format!("Network Interface {} must have one or more IP configurations.", id.text());
        return Err(errors::bad("NetworkInterfaceMustHaveOneOrMoreIpConfigurations", text));
    }
    let count = list(fields, "/properties/ipConfigurations").len();
    let mut result = Ok(());
    for configuration in each(fields, "/properties/ipConfigurations") {
        remove(configuration, "/properties/provisioningState");
        only_references(configuration);
        default(configuration, "/properties/privateIPAllocationMethod", "Dynamic");
        default(configuration, "/properties/privateIPAddressVersion", "IPv4");
        if count == 1 {
            default(configuration, "/properties/primary", true);
        }
        let name = text(configuration, "/name").to_owned();
        let user = id.child("ipConfigurations", &name).text();
        let before = old.and_then(|old| {
            list(old, "/properties/ipConfigurations").iter().find(|known| same(text(known, "/name"), &name))
        });
        result = result
            .and_then(|()| networks::assign(world, configuration, &user, before, &mut networks::Beside::default()));
    }
    result?;
    let all: Vec<(String, &Value)> = list(fields, "/properties/ipConfigurations")
        .iter()
        .map(|one| (id.child("ipConfigurations", text(one, "/name")).text(), one))
        .collect();
    joins(world, &all)
}

/// Checks the pools of the IP configurations of one interface: they exist and have no members by address, no interface
/// is in two load balancers of the same direction, and no limit is reached.
pub(super) fn joins(world: &World, configurations: &[(String, &Value)]) -> Result<(), Problem> {
    let mut balancers: BTreeMap<(bool, bool), String> = BTreeMap::new();
    let mut count = 0;
    for (user, configuration) in configurations {
        let six = text(configuration, "/properties/privateIPAddressVersion") == "IPv6";
        for pool in list(configuration, "/properties/loadBalancerBackendAddressPools") {
            let target = text(pool, "/id");
            let key = target.to_lowercase();
            let Some(part) = world.part(&key) else { return Err(errors::no_reference(target, user)) };
            if !list(part, "/properties/loadBalancerBackendAddresses").is_empty() {
                // unverified: the code.
                let text =
                    format!("Backend address pool {target} has IP addresses as members, so {user} cannot join it.");
                return Err(errors::bad("MixingIpConfigurationsAndBackendAddressesNotAllowed", text));
            }
            let Some(root) = Id::parse(&key).map(|id| id.root().key()) else { continue };
            let Some(balancer) = world.store.get(&root) else { continue };
            let internal = list(&balancer.fields, "/properties/frontendIPConfigurations").iter();
            let internal = internal.into_iter().any(|frontend| !text(frontend, "/properties/subnet/id").is_empty());
            let other = balancers.insert((internal, six), root.clone()).filter(|other| *other != root);
            if let Some(other) = other {
                // unverified: the code.
                let text = format!(
                    "IP configuration {user} cannot be in backend address pools of two load balancers of the same kind: {other}, {root}."
                );
                return Err(errors::bad("NetworkInterfaceInMultipleLoadBalancersOfSameType", text));
            }
            sets_within_limit(world, target, user)?;
            count += rules_of(world, &key, &BTreeMap::new());
        }
    }
    within(world, count, configurations.first().map(|(user, _)| user.as_str()).unwrap_or_default())
}

fn within(world: &World, count: usize, user: &str) -> Result<(), Problem> {
    let limit = world.options.limits.rules_per_interface;
    if count < limit {
        return Ok(());
    }
    let most = limit.saturating_sub(1);
    let text = format!("IpConfiguration {user} cannot have more than {most} NAT or load balancing rules combined.");
    // unverified: the code.
    Err(errors::bad("NetworkInterfaceCannotHaveMoreRules", text))
}

/// The number of rules that send to a pool: from `own`, or of its load balancer.
fn rules_of(world: &World, pool: &str, own: &BTreeMap<String, usize>) -> usize {
    if let Some(count) = own.get(pool) {
        return *count;
    }
    let Some(root) = Id::parse(pool).map(|id| id.root().key()) else { return 0 };
    let Some(row) = world.store.get(&root) else { return 0 };
    load_balancers::rules_by_pool(&row.id, &row.fields).get(pool).copied().unwrap_or_default()
}

/// Checks the number of rules at the interface of a member, with those of one load balancer as it will be.
pub(super) fn within_limit(world: &World, member: &str, own: &BTreeMap<String, usize>) -> Result<(), Problem> {
    let configurations = siblings(world, member);
    let pools = configurations.iter().flat_map(|one| list(one, "/properties/loadBalancerBackendAddressPools"));
    let count = pools.map(|pool| rules_of(world, &text(pool, "/id").to_lowercase(), own)).sum();
    within(world, count, member)
}

/// All IP configurations of the interface of a member.
fn siblings<'a>(world: &'a World, member: &str) -> Vec<&'a Value> {
    let Some(id) = Id::parse(&member.to_lowercase()) else { return Vec::new() };
    if let Some(row) = world.store.get(&id.root().key())
        && row.kind == "microsoft.network/networkinterfaces"
    {
        return list(&row.fields, "/properties/ipConfigurations").iter().collect();
    }
    let Some(row) = owner(world, member) else { return Vec::new() };
    let name = id.parts.get(2).map(|(_, name)| name.as_str()).unwrap_or_default();
    let interfaces = list(&row.fields, compute::INSTANCE_INTERFACES).iter();
    let own = interfaces.into_iter().find(|interface| same(text(interface, "/name"), name));
    own.map(|own| list(own, "/properties/ipConfigurations").iter().collect()).unwrap_or_default()
}

/// The row of the interface or scale-set instance that has an IP configuration.
fn owner<'a>(world: &'a World, member: &str) -> Option<&'a super::store::Row> {
    let id = Id::parse(&member.to_lowercase())?;
    let levels = if id.namespace == "microsoft.network" { 1 } else { 2 };
    world.store.get(&Id { parts: id.parts.iter().take(levels).cloned().collect(), ..id }.key())
}

/// The provisioning state of a member, and its last operation.
pub(super) fn state_of<'a>(world: &'a World, member: &str) -> (&'a str, &'a str) {
    let Some(row) = owner(world, member) else { return ("", "") };
    let field = |name: &str| text(&row.fields, name);
    (field("/properties/provisioningState"), field("/_operation"))
}

/// The address and the network of a member.
pub(super) fn address_of(world: &World, member: &str) -> Option<(String, String)> {
    let row = owner(world, member)?;
    let refs = super::kinds::of(&row.kind).map(|kind| (kind.rules.refs)(&row.id, &row.fields))?;
    let own = refs.into_iter().find(|one| same(&one.user, member) && one.address.is_some())?;
    let subnet = world.store.get(&own.target)?;
    Some((own.address?.to_string(), networks::network_of(&subnet.id.text())?))
}

/// The name of the machine of a member.
pub(super) fn host_of(world: &World, member: &str) -> String {
    let Some(row) = owner(world, member) else { return String::new() };
    if row.kind == "microsoft.network/networkinterfaces" {
        let mut users = world.store.users(&row.id.key());
        return users
            .next()
            .map(|(_, user, _)| user.rsplit('/').next().unwrap_or_default().to_owned())
            .unwrap_or_default();
    }
    text(&row.fields, "/properties/osProfile/computerName").to_owned()
}

/// Takes a member out of a pool, outside of the API.
pub(super) fn leave(world: &mut World, member: &str, pool: &str) {
    let Some(key) = owner(world, member).map(|row| row.id.key()) else { return };
    let Some(row) = world.store.get_mut(&key) else { return };
    let name = member.rsplit('/').next().unwrap_or_default();
    let out = |configuration: &mut Value| {
        let own = same(text(configuration, "/name"), name);
        if let Some(pools) = configuration
            .pointer_mut("/properties/loadBalancerBackendAddressPools")
            .and_then(Value::as_array_mut)
            .filter(|_| own)
        {
            pools.retain(|one| !same(text(one, "/id"), pool));
        }
    };
    each(&mut row.fields, "/properties/ipConfigurations").for_each(out);
    for interface in each(&mut row.fields, compute::INSTANCE_INTERFACES) {
        each(interface, "/properties/ipConfigurations").for_each(out);
    }
    world.store.release(&Ref { target: pool.to_lowercase(), user: member.to_owned(), address: None });
    world.touch(&key);
}

/// A pool has members of at most so many availability sets; each single machine counts as one.
fn sets_within_limit(world: &World, pool: &str, user: &str) -> Result<(), Problem> {
    let limit = world.options.limits.availability_sets_per_pool;
    let key = pool.to_lowercase();
    if pools::members(world, &key).count() < limit {
        return Ok(());
    }
    let group = |member: &str| {
        let row = owner(world, member)?;
        let machine = world.store.users(&row.id.key()).next().map(|(key, ..)| key.to_owned())?;
        let machine = world.store.get(&machine)?;
        let of = |name: &str| text(&machine.fields, &format!("/properties/{name}/id")).to_lowercase();
        match (of("virtualMachineScaleSet"), of("availabilitySet")) {
            (set, _) if !set.is_empty() => None,
            (_, set) if !set.is_empty() => Some(set),
            _ => Some(machine.id.key()),
        }
    };
    let mut groups: BTreeSet<String> = pools::members(world, &key).filter_map(group).collect();
    groups.extend(group(user));
    if groups.len() <= limit {
        return Ok(());
    }
    let text = format!("Number of availability sets in load balancer backend pool {pool} cannot exceed {limit}.");
    Err(errors::bad("MaxAvailabilitySetsInLoadBalancerReached", text))
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some((_, user, _)) = world.store.users(&id.key()).next() else { return Ok(()) };
    let text = format!(
        "Network Interface {} is used by existing resource {user}. In order to delete the network interface, it must be dissociated from the resource. To learn more, see aka.ms/deletenic.",
        id.text()
    );
    Err(errors::bad("NicInUse", text))
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    if let Some((key, user, _)) = world.store.users(&id.key()).next() {
        let machine = world.store.get(key).map(|row| &row.fields);
        let own = machine.and_then(|machine| {
            let mut all = list(machine, "/properties/networkProfile/networkInterfaces").iter();
            all.find(|interface| same(text(interface, "/id"), &id.text()))
        });
        let primary = own.is_none_or(|own| at(own, "/properties/primary").is_null() || is(own, "/properties/primary"));
        set(value, "/properties/primary", primary);
        set(value, "/properties/virtualMachine", json!({ "id": user }));
    }
    let number = number(value, "/_mac").unwrap_or_default();
    set(value, "/properties/macAddress", format!("00-0D-3A-00-{:02X}-{:02X}", number / 256 % 256, number % 256));
    // Real answers have these too, although Microsoft's description does not.
    default(value, "/kind", "Regular");
    default(value, "/properties/allowPort25Out", true);
    default(value, "/properties/hostedWorkloads", json!([]));
    default(value, "/properties/tapConfigurations", json!([]));
}
