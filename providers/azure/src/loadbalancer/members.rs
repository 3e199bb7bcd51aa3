//! The members of backend pools: what is there, what must be read to change them, and the changes. Pure.
//!
//! The load balancer shows the IP configurations in its pools. Their machines are read only if the pools do not have the
//! wanted members.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ccm_provider::ServiceAction;
use serde_json::{Value, json};

use super::balancer::BalancerChange;
use super::env::{Env, PoolKind, balancer_name};
use super::json::{self, same};
use super::machines::{Machine, instance_part};
use super::names::{self, Family};
use super::observed::Observed;
use super::wanted::{Item, Wanted};
use crate::annotations::Scheme;
use crate::client::id::ArmId;

/// What must be read because the pools do not have the wanted members.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Missing {
    pub(crate) sets: BTreeSet<ArmId>,
    /// Subscriptions and resource groups of interfaces, in lower case.
    pub(crate) groups: BTreeSet<(String, String)>,
    /// The machines that join or leave, by ID in lower case.
    pub(crate) machines: BTreeSet<String>,
    /// Members whose machine is not known, by ID in lower case.
    pub(crate) interfaces: BTreeSet<String>,
}

impl Missing {
    pub(crate) fn of(env: &Env, observed: &Observed, wanted: &Wanted) -> Self {
        let missing = Self::without(&observed.interfaces.settled, env, observed, wanted);
        // What joins or leaves may free the settled ones.
        if missing.machines.is_empty() { missing } else { Self::without(&BTreeSet::new(), env, observed, wanted) }
    }

    /// What must be read if these machines stay as they are.
    fn without(settled: &BTreeSet<String>, env: &Env, observed: &Observed, wanted: &Wanted) -> Self {
        let mut missing = Self::default();
        if env.pools != PoolKind::Interfaces {
            return missing;
        }
        let hosts = wanted.hosts.iter().flat_map(|hosts| hosts.values());
        let hosts: BTreeSet<Machine> = hosts.filter_map(|host| Machine::of(&host.provider_id)).collect();
        let known = observed.cluster.as_ref().map(|facts| facts.machines.iter());
        let others: Vec<Machine> =
            known.into_iter().flatten().filter_map(|id| Machine::of(id)).filter(|it| !hosts.contains(it)).collect();
        let mut new: BTreeSet<(String, Family)> = wanted
            .items
            .values()
            .filter(|item| item.is_whole())
            .flat_map(|item| {
                let name = balancer_name(env.balancer(&wanted.cluster), item.scheme).to_lowercase();
                item.families.iter().map(move |family| (name.clone(), *family))
            })
            .collect();
        for balancer in &observed.balancers {
            let name = json::name(balancer);
            let leaves = env.leaves_members(scheme_of(name));
            for family in [Family::V4, Family::V6] {
                let pool = names::pool(&wanted.cluster, family);
                let Some(pool) = json::named(json::items(balancer, "backendAddressPools"), &pool) else { continue };
                new.remove(&(name.to_lowercase(), family));
                if leaves {
                    continue;
                }
                if wanted.hosts.is_some() {
                    missing.add_pool(&Members::of(pool), &hosts, &others, &observed.interfaces.owners, settled);
                }
            }
            missing.add_last(env, balancer, observed, wanted);
        }
        if !new.is_empty() {
            hosts.iter().for_each(|machine| missing.add(machine));
        }
        missing
    }

    /// An instance that joins or leaves, with its ID in lower case.
    pub(crate) fn instance(&self, instance: &Value) -> Option<(String, Value)> {
        let id = json::text(instance, &["id"]).to_lowercase();
        self.machines.contains(&id).then(|| (id, instance_part(instance)))
    }

    /// The ID of an interface and of its machine, in lower case, and the interface if its membership may change.
    pub(crate) fn interface(&self, interface: Value) -> (String, String, Option<Value>) {
        let id = json::text(&interface, &["id"]).to_lowercase();
        let machine = json::reference(&interface, "virtualMachine").to_lowercase();
        let is_missing = self.machines.contains(&machine) || self.interfaces.contains(&id);
        (id, machine, is_missing.then_some(interface))
    }

    fn add_pool(
        &mut self,
        members: &Members,
        hosts: &BTreeSet<Machine>,
        others: &[Machine],
        owners: &BTreeMap<String, String>,
        settled: &BTreeSet<String>,
    ) {
        for unknown in members.interfaces.iter().filter(|id| !owners.contains_key(*id)) {
            if let Ok(id) = ArmId::parse(unknown) {
                self.groups.insert((id.subscription().to_owned(), id.group().to_owned()));
                self.interfaces.insert(unknown.clone());
            }
        }
        let members = members.machines(owners);
        let joining = hosts.iter().filter(|machine| !machine.is_in(&members));
        let leaving = others.iter().filter(|machine| machine.is_in(&members));
        joining.chain(leaving).filter(|machine| !machine.is_in(settled)).for_each(|machine| self.add(machine));
    }

    /// The members of a load balancer that is deleted with its last Service.
    fn add_last(&mut self, env: &Env, balancer: &Value, observed: &Observed, wanted: &Wanted) {
        let is_going = |name: &str| {
            let leaves = |item: &&Item| item.scheme != scheme_of(json::name(balancer)) || !item.is_whole();
            let items = wanted.items.values().filter(|item| item.action != ServiceAction::UpdateHosts);
            items.filter(leaves).any(|item| item.names.own(name))
        };
        // Its address is replaced.
        let is_retagged = |frontend: &Value| {
            let ip = observed.public_ip(json::reference(frontend, "publicIPAddress"));
            let mut items = wanted.items.values().filter(|item| item.names.own(json::name(frontend)));
            items.any(|item| ip.is_some_and(|ip| item.wants_other_ip_tags(env, ip)))
        };
        // The frontend of a Service that is gone may have been shared by one that goes.
        let is_going = |frontend: &Value| {
            let is_at =
                |rule: &&Value| same(json::reference(rule, "frontendIPConfiguration"), json::text(frontend, &["id"]));
            let mut rules = json::items(balancer, "loadBalancingRules").iter().filter(is_at).peekable();
            is_going(json::name(frontend))
                || is_retagged(frontend)
                || rules.peek().is_some() && rules.all(|rule| is_going(json::name(rule)))
        };
        if !json::items(balancer, "frontendIPConfigurations").iter().all(is_going) {
            return;
        }
        for pool in json::items(balancer, "backendAddressPools") {
            let instances = Members::of(pool).instances.into_iter().filter_map(|id| ArmId::parse(&id).ok());
            instances.for_each(|id| self.add(&Machine::Instance(id)));
        }
    }

    fn add(&mut self, machine: &Machine) {
        let id = machine.id();
        self.machines.insert(id.folded());
        match machine.set() {
            Some(set) => drop(self.sets.insert(set)),
            None => drop(self.groups.insert((id.subscription().to_lowercase(), id.group().to_lowercase()))),
        }
    }
}

/// The kind of a load balancer, by its name.
pub(crate) fn scheme_of(name: &str) -> Scheme {
    if names::without_internal(name).1 { Scheme::Internal } else { Scheme::External }
}

/// The members of a pool, by the IDs of instances and of interfaces, in lower case.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Members {
    pub(crate) instances: BTreeSet<String>,
    pub(crate) interfaces: BTreeSet<String>,
}

impl Members {
    pub(crate) fn of(pool: &Value) -> Self {
        let mut members = Self::default();
        for configuration in json::items(pool, "backendIPConfigurations") {
            let id = json::text(configuration, &["id"]).to_lowercase();
            let before = |part: &str| id.split_once(part).map(|(begin, _)| begin.to_owned());
            match before("/networkinterfaces/").filter(|_| id.contains("/virtualmachinescalesets/")) {
                Some(instance) => drop(members.instances.insert(instance)),
                None => members.interfaces.extend(before("/ipconfigurations/")),
            }
        }
        members
    }

    /// The machines that are members, by ID in lower case.
    pub(crate) fn machines(&self, owners: &BTreeMap<String, String>) -> BTreeSet<String> {
        let of_interfaces = self.interfaces.iter().filter_map(|interface| owners.get(interface));
        self.instances.iter().chain(of_interfaces).cloned().collect()
    }
}

/// The changes of the pools of one machine or model.
#[derive(Debug, Clone, Default)]
pub(crate) struct Pools {
    pub(crate) add: BTreeSet<(ArmId, Family)>,
    pub(crate) remove: BTreeSet<ArmId>,
    /// The pools that the same plan makes. Without the address of any Service that needs them, they are not made.
    pub(crate) new: BTreeSet<ArmId>,
    /// The load balancers that go with these removals, if all their Services leave them.
    pub(crate) gone: Arc<[BalancerChange]>,
    /// Whether the same plan writes the machine or model before: it is read again.
    pub(crate) is_second: bool,
}

/// A change of an interface.
#[derive(Debug, Clone)]
pub(crate) struct InterfaceChange {
    pub(crate) id: ArmId,
    pub(crate) before: Value,
    pub(crate) pools: Pools,
    /// Whether later calls have more to do.
    pub(crate) has_more: bool,
}

/// A change of an instance of a scale set.
#[derive(Debug, Clone)]
pub(crate) struct InstanceChange {
    pub(crate) id: ArmId,
    pub(crate) before: Value,
    pub(crate) pools: Pools,
    pub(crate) has_more: bool,
}

/// A change of the model of a scale set.
#[derive(Debug, Clone)]
pub(crate) struct ModelChange {
    pub(crate) id: ArmId,
    pub(crate) before: Value,
    pub(crate) pools: Pools,
    /// The edge zone.
    pub(crate) zone: Option<Value>,
}

/// A change of the addresses of a pool.
#[derive(Debug, Clone)]
pub(crate) struct PoolChange {
    pub(crate) id: ArmId,
    pub(crate) before: Value,
    /// The ID of the virtual network.
    pub(crate) network: ArmId,
    /// Names of nodes with their addresses.
    pub(crate) add: BTreeMap<String, IpAddr>,
    pub(crate) remove: BTreeSet<String>,
    /// Whether later calls have more to do.
    pub(crate) has_more: bool,
    /// Whether its load balancer gets its first nodes of its own: the others leave when these have been probed.
    pub(crate) takes_over: bool,
    /// The Service whose own pool it is, if that was there before: it gets an event.
    pub(crate) service: Option<String>,
}

impl InterfaceChange {
    /// What is sent: the whole interface.
    pub(crate) fn body(&self) -> Option<Value> {
        let mut body = self.before.clone();
        let configurations = json::items_mut(&mut body, "ipConfigurations");
        self.pools.apply(configurations).then_some(body)
    }
}

impl InstanceChange {
    /// What is sent: a part, because what is absent stays. The list of interfaces is whole.
    pub(crate) fn body(&self) -> Option<Value> {
        let mut interfaces = interfaces_of(&self.before).to_vec();
        self.pools.apply_primary(&mut interfaces).then(|| instance_with(&self.before, &interfaces))
    }
}

fn interfaces_of_model(model: &Value) -> &[Value] {
    json::list(model, &["properties", "virtualMachineProfile", "networkProfile", "networkInterfaceConfigurations"])
}

/// Whether a pool has members by address. Those of interfaces are listed without one.
pub(crate) fn has_addresses(pool: &Value) -> bool {
    json::items(pool, "loadBalancerBackendAddresses").iter().any(|it| !json::property(it, "ipAddress").is_empty())
}

/// Whether a model names a pool of all nodes whose members this program changes.
pub(crate) fn names_pool(env: &Env, wanted: &Wanted, balancers: &[Arc<Value>], model: &Value) -> bool {
    let mut named = pools_of_model(model).filter(|pool| names::is_pool_of_all(&wanted.cluster, pool.name()));
    named.any(|id| {
        let managed = balancers.iter().filter(|body| !env.leaves_members(scheme_of(json::name(body))));
        let mut pools = managed.flat_map(|body| json::items(body, "backendAddressPools"));
        pools.any(|pool| same(json::text(pool, &["id"]), id.as_str()))
    })
}

/// The pools that a model names for the interface that this program changes.
pub(crate) fn pools_of_model(model: &Value) -> impl Iterator<Item = ArmId> {
    let pools = configurations_of_model(model).iter().flat_map(|it| json::items(it, POOLS));
    pools.filter_map(|pool| ArmId::parse(json::text(pool, &["id"])).ok())
}

fn interfaces_of(instance: &Value) -> &[Value] {
    json::list(instance, &["properties", "networkProfileConfiguration", "networkInterfaceConfigurations"])
}

fn instance_with(before: &Value, interfaces: &[Value]) -> Value {
    let mut properties = json!({"networkProfileConfiguration": {"networkInterfaceConfigurations": interfaces}});
    let hardware = json::at(before, &["properties", "hardwareProfile"]);
    if let (true, Some(fields)) = (hardware.is_object(), properties.as_object_mut()) {
        fields.insert("hardwareProfile".to_owned(), hardware.clone());
    }
    partial(before, &properties, None)
}

/// What is sent to write an instance again as it is.
pub(crate) fn instance_again(instance: &Value) -> Value {
    instance_with(instance, interfaces_of(instance))
}

impl ModelChange {
    /// See [`InstanceChange::body`].
    pub(crate) fn body(&self) -> Option<Value> {
        let mut interfaces = interfaces_of_model(&self.before).to_vec();
        if !self.pools.apply_primary(&mut interfaces) {
            return None;
        }
        let mut network = json!({"networkInterfaceConfigurations": interfaces});
        // That of a flexible set.
        let version =
            json::at(&self.before, &["properties", "virtualMachineProfile", "networkProfile", "networkApiVersion"]);
        if let (true, Some(fields)) = (version.is_string(), network.as_object_mut()) {
            fields.insert("networkApiVersion".to_owned(), version.clone());
        }
        let properties = json!({"virtualMachineProfile": {"networkProfile": network}});
        Some(partial(&self.before, &properties, self.zone.as_ref()))
    }
}

fn partial(before: &Value, properties: &Value, zone: Option<&Value>) -> Value {
    let mut body = json!({"location": before.get("location"), "properties": properties});
    let zone = before.get("extendedLocation").or(zone);
    if let Some(fields) = body.as_object_mut() {
        fields.extend(zone.map(|zone| ("extendedLocation".to_owned(), zone.clone())));
        fields.extend(before.get("etag").map(|etag| ("etag".to_owned(), etag.clone())));
    }
    body
}

impl PoolChange {
    /// Whether the same plan makes the pool.
    pub(crate) fn is_new(&self) -> bool {
        json::text(&self.before, &["id"]).is_empty()
    }

    /// What is sent: the whole pool.
    pub(crate) fn body(&self) -> Value {
        let mut body = self.before.clone();
        json::overlay(&mut body, &json!({"name": self.id.name(), "properties": {}}));
        let network = json!({"id": self.network.as_str()});
        json::object_mut(&mut body, "properties").entry("virtualNetwork").or_insert(network);
        let addresses = json::items_mut(&mut body, "loadBalancerBackendAddresses");
        addresses.retain(|address| !self.remove.contains(json::property(address, "ipAddress")));
        for (name, ip) in &self.add {
            // Azure refuses two of one name: a node that was rebuilt may have its former name at the address of another one.
            let name = match json::named(&*addresses, name) {
                Some(_) => format!("{name}-{}", ip.to_string().replace(['.', ':'], "-")),
                None => name.clone(),
            };
            addresses.push(json!({"name": name, "properties": {"ipAddress": ip.to_string()}}));
        }
        body
    }
}

impl Pools {
    /// Without the new pools that have not been made, and without the load balancers that `stay` nevertheless.
    pub(crate) fn that_exist(&self, made: &BTreeSet<String>, stays: impl Fn(&BalancerChange) -> bool) -> Self {
        let mut pools = self.clone();
        pools.add.retain(|(pool, _)| !self.new.contains(pool) || made.contains(&pool.folded()));
        let staying: Vec<&ArmId> = self.gone.iter().filter(|change| stays(change)).map(|change| &change.id).collect();
        pools.remove.retain(|pool| pool.parent().is_none_or(|balancer| !staying.contains(&&balancer)));
        pools
    }

    /// Whether nothing is to be done until new pools are made.
    pub(crate) fn waits(&self) -> bool {
        self.remove.is_empty() && self.add.iter().all(|(pool, _)| self.new.contains(pool))
    }

    /// Changes the IP configurations of the primary interface; whether something changed.
    fn apply_primary(&self, interfaces: &mut [Value]) -> bool {
        let one = interfaces.len() == 1;
        let is_primary =
            |interface: &&mut Value| one || json::at(interface, &["properties", "primary"]) == &json!(true);
        match interfaces.iter_mut().find(is_primary) {
            Some(interface) => self.apply(json::items_mut(interface, "ipConfigurations")),
            None => false,
        }
    }

    /// Changes IP configurations; whether something changed.
    fn apply(&self, configurations: &mut [Value]) -> bool {
        let mut is_changed = false;
        for configuration in configurations.iter_mut() {
            let leaves = |pool: &Value| self.remove.iter().any(|id| same(id.as_str(), json::text(pool, &["id"])));
            if json::items(configuration, POOLS).iter().any(leaves) {
                json::items_mut(configuration, POOLS).retain(|pool| !leaves(pool));
                is_changed = true;
            }
        }
        for (pool, family) in &self.add {
            let one = configurations.len() == 1;
            let Some(configuration) = configurations.iter_mut().find(|it| is_of(it, *family, one)) else { continue };
            let has = |present: &Value| same(pool.as_str(), json::text(present, &["id"]));
            if !json::items(configuration, POOLS).iter().any(has) {
                json::items_mut(configuration, POOLS).push(json!({"id": pool.as_str()}));
                is_changed = true;
            }
        }
        is_changed
    }
}

const POOLS: &str = "loadBalancerBackendAddressPools";

/// Whether an IP configuration is the one of a family: the primary one, or that of IPv6.
fn is_of(configuration: &Value, family: Family, is_only: bool) -> bool {
    let is_v6 = same(json::property(configuration, "privateIPAddressVersion"), "IPv6");
    match family {
        Family::V6 => is_v6,
        Family::V4 => !is_v6 && (is_only || json::at(configuration, &["properties", "primary"]) == &json!(true)),
    }
}

/// Whether a machine has a place for a pool: an IP configuration of the family that is in no other load balancer of the
/// same kind. The name of the other one if there is one.
pub(crate) fn obstacle(configurations: &[Value], pool: &ArmId, family: Family) -> Option<String> {
    use names::without_internal;
    let one = configurations.len() == 1;
    let Some(configuration) = configurations.iter().find(|it| is_of(it, family, one)) else {
        return Some(format!("it has no {} configuration", family.as_str()));
    };
    let own = pool.named("loadBalancers").unwrap_or_default().to_owned();
    let other =
        json::items(configuration, POOLS).iter().filter_map(|pool| ArmId::parse(json::text(pool, &["id"])).ok());
    let other = other.filter_map(|pool| pool.named("loadBalancers").map(str::to_owned)).find(|name| {
        let ((plain, internal), (own_plain, own_internal)) = (without_internal(name), without_internal(&own));
        !same(plain, own_plain) && internal == own_internal
    });
    other.map(|name| format!("it is behind the load balancer {name}"))
}

/// The IP configurations of the primary interface of an instance.
pub(crate) fn configurations_of(instance: &Value) -> &[Value] {
    primary_of(interfaces_of(instance))
}

/// The same of the model of a scale set.
pub(crate) fn configurations_of_model(model: &Value) -> &[Value] {
    primary_of(interfaces_of_model(model))
}

fn primary_of(interfaces: &[Value]) -> &[Value] {
    let one = interfaces.len() == 1;
    let primary = interfaces.iter().find(|it| one || json::at(it, &["properties", "primary"]) == &json!(true));
    primary.map(|interface| json::items(interface, "ipConfigurations")).unwrap_or_default()
}

/// Whether an instance can become a member: it is not being deleted, and not stopped.
pub(crate) fn may_join(instance: &Value) -> bool {
    let state = json::property(instance, "provisioningState").to_lowercase();
    let statuses = json::list(instance, &["properties", "instanceView", "statuses"]).iter();
    let mut powers = statuses.filter_map(|status| json::text(status, &["code"]).strip_prefix("PowerState/"));
    let is_off = |power: &str| ["unknown", "stopped", "stopping", "deallocated", "deallocating"].contains(&power);
    !["deleting", "unknown"].contains(&&*state) && !powers.any(is_off)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachineScaleSets/Set";

    fn pool(name: &str) -> ArmId {
        ArmId::new("s", "g", "Microsoft.Network/loadBalancers", name).child("backendAddressPools", "kubernetes")
    }

    fn adds(name: &str) -> Pools {
        Pools { add: [(pool(name), Family::V4)].into(), ..Pools::default() }
    }

    #[test]
    fn members_are_known_by_their_ip_configurations() {
        let nic = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Network/networkInterfaces/Nic";
        let pool = json!({"properties": {"backendIPConfigurations": [
            {"id": format!("{SET}/virtualMachines/3/networkInterfaces/n/ipConfigurations/c")},
            {"id": format!("{nic}/ipConfigurations/c")},
        ]}});
        let has = |id: &str, owners: &BTreeMap<String, String>| {
            Machine::of(id).unwrap().is_in(&Members::of(&pool).machines(owners))
        };
        let owners = [(nic.to_lowercase(), "vm".to_owned())].into();
        assert!(has(&format!("azure://{}/virtualMachines/3", SET.to_lowercase()), &owners));
        assert!(has(&format!("azure://{SET}/virtualMachines/set_3"), &owners));
        assert!(!has(&format!("azure://{SET}/virtualMachines/30"), &owners));
        let vm = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Compute/virtualMachines/vm";
        let owners = [(nic.to_lowercase(), vm.to_lowercase())].into();
        assert!(has(&format!("azure://{vm}"), &owners));
        assert_eq!(Machine::of("aws:///i-1"), None);
    }

    #[test]
    fn an_interface_is_sent_whole_and_not_at_all_if_nothing_changes() {
        let before = json!({"unknown": 1, "properties": {"ipConfigurations": [
            {"name": "v6", "properties": {"privateIPAddressVersion": "IPv6"}},
            {"name": "v4", "properties": {"primary": true, "own": 2}},
        ]}});
        let change = InterfaceChange { id: pool("x"), before, pools: adds("lb"), has_more: false };
        let body = change.body().unwrap();
        assert_eq!(body["unknown"], 1);
        assert_eq!(body["properties"]["ipConfigurations"][0], change.before["properties"]["ipConfigurations"][0]);
        let v4 = &body["properties"]["ipConfigurations"][1]["properties"];
        assert_eq!(v4, &json!({"primary": true, "own": 2, POOLS: [{"id": pool("lb").as_str()}]}));
        let again = InterfaceChange { before: body, ..change };
        assert_eq!(again.body(), None, "an equal interface is not sent");
    }

    #[test]
    fn an_instance_is_sent_in_part_with_all_its_interfaces() {
        let other = json!({"name": "b", "properties": {"primary": false, "x": 1}});
        let before = json!({"location": "westus", "etag": "1", "zones": ["1"], "properties": {
            "hardwareProfile": {"vmSize": "D"}, "osProfile": {"x": 1},
            "networkProfileConfiguration": {"networkInterfaceConfigurations": [
                other, {"name": "a", "properties": {"primary": true, "ipConfigurations": [{"name": "c", "properties": {}}]}},
            ]},
        }});
        let change = InstanceChange { id: pool("x"), before, pools: adds("lb"), has_more: false };
        let body = change.body().unwrap();
        assert_eq!(body["etag"], "1");
        assert!(body["properties"].get("osProfile").is_none() && body.get("zones").is_none(), "{body}");
        let interfaces = &body["properties"]["networkProfileConfiguration"]["networkInterfaceConfigurations"];
        assert_eq!(interfaces[0], other);
        assert_eq!(
            interfaces[1]["properties"]["ipConfigurations"][0]["properties"][POOLS][0]["id"],
            pool("lb").as_str()
        );
    }

    #[test]
    fn a_configuration_of_another_load_balancer_of_the_kind_is_an_obstacle() {
        let with = |name: &str| json!([{"properties": {POOLS: [{"id": pool(name).as_str()}]}}]);
        let of = |present: &str, wanted: &str| obstacle(with(present).as_array().unwrap(), &pool(wanted), Family::V4);
        assert_eq!(of("lb-internal", "lb"), None);
        assert_eq!(of("other-internal", "lb"), None);
        assert!(of("other", "lb").unwrap().contains("other"));
        assert!(obstacle(with("lb").as_array().unwrap(), &pool("lb"), Family::V6).unwrap().contains("IPv6"));
    }

    #[test]
    fn stopped_and_vanishing_instances_do_not_join() {
        let of = |state: &str, power: &str| {
            may_join(
                &json!({"properties": {"provisioningState": state, "instanceView": {"statuses": [{"code": power}]}}}),
            )
        };
        assert!(of("Succeeded", "PowerState/running") && of("Updating", "PowerState/starting"));
        assert!(!of("Deleting", "PowerState/running") && !of("Succeeded", "PowerState/stopped"));
        assert!(may_join(&json!({"properties": {"provisioningState": "Succeeded"}})), "no power state is none known");
    }

    #[test]
    fn addresses_of_a_pool_keep_what_others_set() {
        let before = json!({"name": "kubernetes", "properties": {"loadBalancerBackendAddresses": [
            {"name": "a", "properties": {"ipAddress": "10.0.0.1", "adminState": "Down"}},
            {"name": "b", "properties": {"ipAddress": "10.0.0.2"}},
        ]}});
        let change = PoolChange {
            id: pool("lb"),
            before,
            network: ArmId::new("s", "g", "Microsoft.Network/virtualNetworks", "net"),
            add: [("c".to_owned(), "10.0.0.3".parse().unwrap())].into(),
            remove: ["10.0.0.2".to_owned()].into(),
            has_more: false,
            takes_over: false,
            service: None,
        };
        let body = change.body();
        let addresses = &body["properties"]["loadBalancerBackendAddresses"];
        assert_eq!(addresses[0], change.before["properties"]["loadBalancerBackendAddresses"][0]);
        assert_eq!(addresses[1], json!({"name": "c", "properties": {"ipAddress": "10.0.0.3"}}));
        assert_eq!(body["properties"]["virtualNetwork"]["id"], change.network.as_str());
    }
}
