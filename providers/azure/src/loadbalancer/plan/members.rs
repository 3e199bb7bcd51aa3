//! The members of the pools. Pure.
//!
//! Members are added before others are removed, and a pool that has members never loses all of them. One write for each
//! machine, whatever the number of pools, and one for each pool of addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use ccm_kit::balancer::{Items, Kind, Part, Step};
use ccm_provider::address::parse_ip;
use ccm_provider::{ProviderError, Risk, ServiceAction, Verb};
use serde_json::Value;

use super::super::balancer::{BalancerChange, Edit};
use super::super::env::{PoolKind, balancer_name};
use super::super::json;
use super::super::machines::Machine;
use super::super::members::{
    InstanceChange, InterfaceChange, Members, ModelChange, PoolChange, Pools, configurations_of,
    configurations_of_model, has_addresses, may_join, obstacle, pools_of_model, scheme_of,
};
use super::super::names::{self, Family};
use super::super::wanted::hosts::Host;
use super::super::wanted::{Item, refused};
use super::limits::MOST_SETS;
use super::place::Places;
use super::step::Write;
use super::{Planner, is_pair, summary};
use crate::client::id::ArmId;
use crate::client::operation::VMSS;

const MODELS: u32 = 40;
const JOINS: u32 = 41;
const LEAVES: u32 = 42;
const LAST_MODELS: u32 = 60;
const LAST_LEAVES: u32 = 61;
/// The writes of machines in one call: other Services do not wait longer.
const MOST_AT_ONCE: usize = 100;
/// The same of pools of one load balancer, which are written one after the other.
const MOST_POOLS: usize = 8;
/// The same if Services wait for this call, because they get an address or another rule.
const FEW_AT_ONCE: usize = 10;
const SKIPPED: &str = "LoadBalancerMemberSkipped";

/// The changes of machines in the making.
#[derive(Default)]
struct Changes {
    machines: BTreeMap<Machine, Pools>,
    models: BTreeMap<ArmId, Pools>,
    /// The Services whose load balancers must be written first.
    places: BTreeSet<usize>,
    /// The pools that this plan makes.
    new: BTreeSet<ArmId>,
}

/// The writes of machines that a call still has time for.
struct Left {
    now: usize,
    /// Those that wait for new pools have their own: they may stay without a pool, and hold up nobody.
    waiting: usize,
    /// Whether later calls have more to do.
    has_more: bool,
}

impl Planner<'_> {
    /// Plans the members of all pools.
    pub(super) fn member_steps(&mut self) {
        if let Some(owner) = self.owner() {
            self.members_of_all(owner);
        }
        self.own_members();
    }

    /// The members of the pools of all nodes.
    fn members_of_all(&mut self, owner: usize) {
        let places = self.places.clone();
        let mut changes = Changes::default();
        changes.places.insert(owner);
        // The sets of nodes decide behind which of several load balancers they are: those of unknown ones stay.
        if let (false, Some(error)) = (self.env.several.is_empty(), self.observed.interfaces.unread.values().next()) {
            let error = error.clone();
            self.fail_members(&changes.places, &error);
        }
        let balancers: Vec<(BalancerChange, Arc<Value>)> = self.balancers.values().cloned().collect();
        // Those that leave another load balancer for the pools that get members wait for these, and fail with them.
        let edits = balancers.iter().flat_map(|(change, _)| &change.edits);
        changes.places.extend(edits.filter(|edit| !edit.fills.is_empty()).map(|edit| edit.place));
        for (change, body) in balancers.iter().filter(|(_, body)| !BalancerChange::is_empty(body)) {
            changes
                .places
                .extend(change.edits.iter().map(|edit| edit.place).find(|place| self.reached.contains_key(place)));
            for family in [Family::V4, Family::V6] {
                let name = names::pool(&self.wanted.cluster, family);
                let Some((id, pool)) = self.pool_to_fill(change, body, &name) else { continue };
                let result = match self.env.pools {
                    PoolKind::Addresses => {
                        self.addresses(change, (&id, pool), family, owner, places.as_ref(), &mut changes)
                    }
                    PoolKind::Interfaces => self.interfaces(&id, pool, family, &mut changes),
                };
                if let Err(error) = result {
                    self.failed.entry(owner).or_insert(error);
                }
            }
        }
        self.machine_steps(changes);
    }

    /// The pool of this name, unless its members are left to users. They configure none that this plan makes.
    fn pool_to_fill<'v>(&self, change: &BalancerChange, body: &'v Value, name: &str) -> Option<(ArmId, &'v Value)> {
        let pool = json::named(json::items(body, "backendAddressPools"), name)?;
        let is_there = || json::named(json::items(&change.before, "backendAddressPools"), name).is_some();
        let is_left = self.env.leaves_members(scheme_of(&change.name)) && is_there();
        (!is_left).then(|| (change.id.child("backendAddressPools", name), pool))
    }

    /// The members of the pools of single Services: the nodes with their endpoints, wherever these are otherwise.
    fn own_members(&mut self) {
        let wanted = self.wanted;
        let local = wanted.items.iter().filter_map(|(place, item)| Some((*place, item, item.own_hosts.as_ref()?)));
        let local: Vec<_> = local.collect();
        if local.is_empty() {
            return;
        }
        let balancers: Vec<(BalancerChange, Arc<Value>)> = self.balancers.values().cloned().collect();
        for (change, body) in balancers.iter().filter(|(_, body)| !BalancerChange::is_empty(body)) {
            let mut due = Vec::new();
            for (place, item, hosts) in &local {
                for family in [Family::V4, Family::V6] {
                    let name = names::own_pool(&item.key, family);
                    let Some((id, pool)) = self.pool_to_fill(change, body, &name) else { continue };
                    // Another one may have a pool of the same name.
                    let may_leave = !has_foreign_rule(body, id.as_str(), item);
                    let (add, remove) = differences_of(pool, addresses_of(hosts.iter(), family), |_| may_leave);
                    if !add.is_empty() || !remove.is_empty() {
                        let is_there = json::named(json::items(&change.before, "backendAddressPools"), &name).is_some();
                        let service = is_there.then(|| item.key.clone());
                        due.push((*place, PoolChange { service, ..self.pool_change(&id, pool, add, remove) }));
                    }
                }
            }
            self.own_pool_steps(change, due);
        }
    }

    /// The writes of pools of single Services, one after the other, because the pools of a load balancer are one object.
    fn own_pool_steps(&mut self, change: &BalancerChange, mut due: Vec<(usize, PoolChange)>) {
        let is_of =
            |step: &&Step<Write>| matches!(&step.write, Write::Pool(of) if of.id.parent().as_ref() == Some(&change.id));
        let earlier = self.steps.iter().filter(is_of).find_map(|step| match &step.items {
            Items::Some(places) => places.first().copied(),
            Items::All => None,
        });
        // Those that may not be made hold up no others.
        due.sort_by_cached_key(|(_, pool)| (pool.is_new(), self.observed.failed_at(&pool.id)));
        let has_more = due.len() > MOST_POOLS;
        due.truncate(MOST_POOLS);
        let first = earlier.or_else(|| due.first().map(|(place, _)| *place));
        for (stage, (place, pool)) in (JOINS + 2..).zip(due) {
            let (reached, mut after) = self.items_of_pool(change, place);
            after.extend(first.into_iter().chain([reached]));
            let pool = PoolChange { has_more, ..pool };
            self.push_pool(change, pool, (place, after), stage);
        }
    }

    /// The Service that the members are for: they are all Services', and one of them reports what fails.
    fn owner(&self) -> Option<usize> {
        self.wanted.hosts.as_ref()?;
        let of = |is_one: &dyn Fn(&Item) -> bool| {
            let mut items = self.wanted.items.iter();
            items.find(|(place, item)| is_one(item) && !self.failed.contains_key(place)).map(|(place, _)| *place)
        };
        let is = |item: &Item, action| item.action == action;
        // The errors of a Service that was never served are those of its settings.
        of(&|item| is(item, ServiceAction::UpdateHosts) && !item.published.is_empty())
            .or_else(|| of(&|item| is(item, ServiceAction::Ensure)))
            .or_else(|| of(&|item| is(item, ServiceAction::UpdateHosts)))
            // Members follow the nodes without security rules, too.
            .or_else(|| self.wanted.items.iter().find(|(_, item)| is(item, ServiceAction::UpdateHosts)).map(|it| *it.0))
    }

    /// The addresses of a pool.
    fn addresses(
        &mut self,
        change: &BalancerChange,
        (id, pool): (&ArmId, &Value),
        family: Family,
        owner: usize,
        places: Option<&Places>,
        changes: &mut Changes,
    ) -> Result<(), ProviderError> {
        if !json::items(pool, "backendIPConfigurations").is_empty() && !has_addresses(pool) {
            self.migrate(change, id, pool, owner);
            return Ok(());
        }
        // Azure's migration leaves the models as they are, and a change of one that names a pool of addresses is refused.
        for model in self.observed.interfaces.models.values().filter(|model| pools_of_model(model).any(|it| it == *id))
        {
            let Ok(set) = ArmId::parse(json::text(model, &["id"])) else { continue };
            changes.models.entry(set).or_default().remove.insert(id.clone());
        }
        let Some((add, remove, takes_over)) = self.address_changes(&change.name, pool, family, places) else {
            return Ok(());
        };
        // Those that come from other load balancers leave them in the next call.
        let is_elsewhere = |ip: &IpAddr| {
            self.bodies().any(|body| !is_pair(json::name(body), &change.name) && self.index.has_member(body, *ip))
        };
        // The security rules name nodes until they have left.
        let nodes = self.wanted.hosts.iter().flatten().flat_map(|(_, host)| &host.addresses);
        let nodes: BTreeSet<String> = nodes.map(ToString::to_string).collect();
        let has_more = places.is_some() && (add.values().any(is_elsewhere) || !remove.is_disjoint(&nodes));
        let write = PoolChange { has_more, takes_over, ..self.pool_change(id, pool, add, remove) };
        let items = self.items_of_pool(change, owner);
        self.push_pool(change, write, items, JOINS + u32::from(family == Family::V6));
        Ok(())
    }

    fn pool_change(
        &self,
        id: &ArmId,
        pool: &Value,
        add: BTreeMap<String, IpAddr>,
        remove: BTreeSet<String>,
    ) -> PoolChange {
        let network = self.env.network_id();
        let (has_more, takes_over) = (false, false);
        PoolChange { id: id.clone(), before: pool.clone(), network, has_more, takes_over, add, remove, service: None }
    }

    /// The pools of one load balancer are written one after the other.
    fn push_pool(
        &mut self,
        change: &BalancerChange,
        write: PoolChange,
        (place, after): (usize, BTreeSet<usize>),
        stage: u32,
    ) {
        let text = "the pool has other addresses than the nodes";
        let mut summary = summary(Verb::Attach, "LoadBalancer", &change.id, text, Risk::None);
        let text = |list: Vec<String>| Some(list.join(" ")).filter(|text| !text.is_empty());
        summary.changes.push(ccm_provider::Change {
            field: "addresses".into(),
            before: text(write.remove.iter().cloned().collect()),
            after: text(write.add.values().map(ToString::to_string).collect()),
        });
        let part = Part::of(Kind::Members, write.id.folded());
        let edits = self.balancers.values().flat_map(|(change, _)| &change.edits);
        let waiting = edits.filter(|edit| edit.fills.contains(&write.id)).map(|edit| edit.place);
        let items = Items::Some(waiting.chain([place]).collect());
        let step = Step::new(Write::Pool(write), summary, items, part);
        self.steps.push(step.after(after).needs(&[]).stage(stage));
    }

    /// The Service of a write of a pool, and one of those that change the load balancer: a write of it that still runs would
    /// be cancelled.
    fn items_of_pool(&self, change: &BalancerChange, owner: usize) -> (usize, BTreeSet<usize>) {
        let is_first = |edit: &&Edit| !edit.moves && !edit.leaves;
        let stays = |edit: &&Edit| is_first(edit) && self.reached.contains_key(&edit.place);
        let reached = change.edits.iter().find(stays).map(|edit| edit.place);
        let last = change.edits.iter().find(is_first).or_else(|| change.edits.iter().find(|edit| !edit.moves));
        let last = last.or_else(|| change.edits.first());
        (reached.unwrap_or(owner), last.into_iter().map(|edit| edit.place).collect())
    }

    /// The addresses that a pool gains, by node, those that it loses, and whether it takes over; `None` if nothing changes.
    fn address_changes(
        &self,
        balancer: &str,
        pool: &Value,
        family: Family,
        places: Option<&Places>,
    ) -> Option<(BTreeMap<String, IpAddr>, BTreeSet<String>, bool)> {
        let hosts = self.wanted.hosts.as_ref()?;
        // A load balancer without nodes of its own keeps those that it has, as long as they exist; a new one gets all.
        let plain = names::without_internal(balancer).0;
        let nodes = places.and_then(|places| places.iter().find(|(name, _)| json::same(name, plain)));
        let nodes = nodes.map(|(_, nodes)| nodes).filter(|nodes| !nodes.is_empty());
        let mine = hosts.iter().filter(|(name, _)| nodes.is_none_or(|nodes| nodes.contains(*name)));
        let mine = addresses_of(mine, family);
        let present = json::items(pool, "loadBalancerBackendAddresses");
        let ip = |address: &Value| parse_ip(json::property(address, "ipAddress"));
        let is_first = nodes.is_some() && !present.iter().filter_map(ip).any(|ip| mine.values().any(|own| *own == ip));
        // Those of other load balancers serve until the first of its own have been probed.
        let is_node = |text: &str| parse_ip(text).is_some_and(|ip| hosts.values().any(|it| it.addresses.contains(&ip)));
        let may_leave = |text: &str| !(is_first && is_node(text)) && self.may_leave(text, balancer, places);
        let (mut add, remove) = differences_of(pool, mine, may_leave);
        let keeps = remove.len() < present.len();
        if nodes.is_none() && !self.env.several.is_empty() && keeps {
            add.clear();
        }
        let takes_over = is_first && keeps;
        (!add.is_empty() || !remove.is_empty()).then_some((add, remove, takes_over))
    }

    /// Whether an address is in the pool of the load balancer to which its node moves, if there is any.
    fn may_leave(&self, address: &str, balancer: &str, places: Option<&Places>) -> bool {
        let Some(ip) = parse_ip(address) else { return true };
        let is_of = |(_, host): &(&String, &Host)| host.addresses.contains(&ip);
        let node = self.wanted.hosts.iter().flatten().find(is_of).map(|(name, _)| name);
        let target = node.and_then(|node| places?.iter().find(|(_, nodes)| nodes.contains(node)));
        target.is_none_or(|(plain, _)| {
            let name = balancer_name(plain, scheme_of(balancer));
            let observed = json::named(&self.observed.balancers, &name);
            self.body(&name).is_null() || observed.is_some_and(|body| self.index.has_member(body, ip))
        })
    }

    /// A pool of interfaces becomes one of addresses by one call, so that it is never empty.
    fn migrate(&mut self, change: &BalancerChange, pool: &ArmId, body: &Value, owner: usize) {
        let text = "its members are interfaces, and are to be addresses";
        let summary = summary(Verb::Update, "LoadBalancer", &change.id, text, Risk::Brief);
        let members = json::items(body, "backendIPConfigurations").iter();
        let members = members.filter_map(|member| ArmId::parse(json::text(member, &["id"])).ok());
        let sets = members.filter_map(|id| std::iter::successors(Some(id), ArmId::parent).find(|it| it.is(VMSS.kind)));
        let write = Write::Migrate { id: change.id.clone(), pools: vec![pool.name().to_owned()], sets: sets.collect() };
        let part = Part::of(Kind::Members, change.name.clone());
        let (place, after) = self.items_of_pool(change, owner);
        let step = Step::new(write, summary, Items::one(place), part).after(after);
        self.steps
            .push(step.needs(&[]).stage(JOINS + u32::from(!pool.name().eq_ignore_ascii_case(&self.wanted.cluster))));
    }

    /// The interfaces in a pool.
    fn interfaces(
        &mut self,
        id: &ArmId,
        pool: &Value,
        family: Family,
        changes: &mut Changes,
    ) -> Result<(), ProviderError> {
        let addresses = json::items(pool, "loadBalancerBackendAddresses").iter();
        if addresses.into_iter().any(|it| !json::reference(it, "virtualNetwork").is_empty())
            || !json::reference(pool, "virtualNetwork").is_empty()
        {
            return Err(of_addresses(id));
        }
        let Some(hosts) = &self.wanted.hosts else { return Ok(()) };
        changes.new.extend(json::text(pool, &["id"]).is_empty().then(|| id.clone()));
        let members = Members::of(pool);
        self.report_strangers(id, &members);
        let members = members.machines(&self.observed.interfaces.owners);
        let wanted: BTreeSet<Machine> = hosts.values().filter_map(|host| Machine::of(&host.provider_id)).collect();
        let (present, joining): (Vec<&Machine>, Vec<&Machine>) =
            wanted.iter().partition(|machine| machine.is_in(&members));
        let surplus = self.without_place(&present, &joining);
        self.report_surplus(id, &surplus);
        for machine in wanted.iter().filter(|machine| !surplus.contains(*machine)) {
            if let Some(set) = self.observed.interfaces.model_of(machine) {
                changes.models.entry(set).or_default().add.insert((id.clone(), family));
            }
            if !machine.is_in(&members) {
                changes.machines.entry(machine.clone()).or_default().add.insert((id.clone(), family));
            }
        }
        let has_wanted = wanted.iter().any(|machine| machine.is_in(&members));
        let known = self.observed.cluster.as_ref().map(|facts| facts.machines.iter());
        let known = known.into_iter().flatten().filter_map(|id| Machine::of(id));
        for machine in known.filter(|machine| !wanted.contains(machine) && machine.is_in(&members)) {
            // The pool is not emptied.
            if has_wanted {
                changes.machines.entry(machine).or_default().remove.insert(id.clone());
            }
        }
        Ok(())
    }

    /// Reports interfaces in a pool that belong to no machine.
    fn report_strangers(&mut self, pool: &ArmId, members: &Members) {
        let owners = &self.observed.interfaces.owners;
        let is_alone = |id: &&String| owners.get(*id).is_some_and(String::is_empty);
        let names: Vec<&str> =
            members.interfaces.iter().filter(is_alone).filter_map(|id| id.rsplit('/').next()).collect();
        let Some(item) = self.wanted.items.values().next().filter(|_| !names.is_empty()) else { return };
        let (pool, names) = (pool.name(), ccm_kit::inspect::first_few(&names));
        let text = format!(
            "network interfaces in the pool {pool} are of no machine: {names}; remove them from the pool, or delete them"
        );
        self.findings.push(item.finding(SKIPPED, text));
    }

    fn report_surplus(&mut self, pool: &ArmId, surplus: &BTreeSet<Machine>) {
        let names: Vec<&str> = surplus.iter().map(|machine| machine.id().name()).collect();
        let Some(item) = self.wanted.items.values().next().filter(|_| !names.is_empty()) else { return };
        let text = format!(
            "Azure allows a pool of interfaces machines of {MOST_SETS} availability sets, and a machine in none counts as one; the pool \
             {} has no place for {}; use scale sets, or loadBalancerBackendPoolConfigurationType \"nodeIP\"",
            pool.name(),
            ccm_kit::inspect::first_few(&names)
        );
        self.findings.push(item.finding(SKIPPED, text));
    }

    fn machine_steps(&mut self, Changes { mut machines, mut models, places, new }: Changes) {
        machines.values_mut().chain(models.values_mut()).for_each(|pools| pools.new.clone_from(&new));
        // Only models of sets whose members change were read.
        for (set, pools) in models {
            self.model_step(&set, pools, &places, MODELS);
        }
        let most = if self.steps.iter().any(|step| step.part.kind == Kind::Frame) { FEW_AT_ONCE } else { MOST_AT_ONCE };
        let mut left = Left { now: most, waiting: most, has_more: machines.len() > most };
        let mut machines: Vec<(Machine, Pools)> = machines.into_iter().collect();
        let read = &self.observed.interfaces;
        if !self.observed.failed_members.is_empty() {
            machines.sort_by_cached_key(|(machine, _)| self.observed.failed_at(&read.of(machine)?.0));
        }
        for (machine, pools) in machines {
            let stage = if pools.add.is_empty() { LEAVES } else { JOINS };
            self.machine_step(&machine, pools, &places, stage, &mut left);
            if left.now == 0 {
                break;
            }
        }
    }

    fn model_step(&mut self, set: &ArmId, mut pools: Pools, places: &BTreeSet<usize>, stage: u32) {
        let Some(before) = self.observed.interfaces.models.get(&set.folded()).cloned() else { return };
        if json::property(&before, "provisioningState").eq_ignore_ascii_case("Deleting") {
            return;
        }
        // The instances are left out with an event: the model cannot name the pool either.
        let configurations = configurations_of_model(&before);
        pools.add.retain(|(pool, family)| obstacle(configurations, pool, *family).is_none());
        let change = ModelChange { id: set.clone(), before, pools, zone: self.env.edge_zone() };
        if change.body().is_none() {
            return;
        }
        let (verb, text) = match change.pools.remove.is_empty() {
            true => (Verb::Attach, "new instances become members"),
            false => (Verb::Detach, "the pool has addresses, and no model may name it"),
        };
        let summary = summary(verb, "ScaleSet", set, text, Risk::None);
        let part = Part::of(Kind::Members, set.folded());
        let step = Step::new(Write::Model(change), summary, Items::Some(places.clone()), part);
        self.steps.push(step.needs(&[]).stage(stage));
    }

    fn machine_step(
        &mut self,
        machine: &Machine,
        mut pools: Pools,
        places: &BTreeSet<usize>,
        stage: u32,
        left: &mut Left,
    ) {
        let read = &self.observed.interfaces;
        let Some((id, before)) = read.of(machine) else {
            match read.unread_of(machine).cloned() {
                Some(error) => self.fail_members(places, &error),
                None if machine.is_in(&read.settled) => {}
                None => self.skip(machine, places, "it is not found"),
            }
            return;
        };
        let configurations = match machine {
            Machine::Instance(_) => configurations_of(before),
            Machine::Machine(_) => json::items(before, "ipConfigurations"),
        };
        let state = json::property(before, "provisioningState");
        // Azure takes it out of its pools, and refuses other changes.
        if matches!(machine, Machine::Instance(_)) && json::same(state, "Deleting") {
            return;
        }
        let is_failed = matches!(machine, Machine::Machine(_)) && json::same(state, "Failed");
        let (joins, mut obstacles) = (may_join(before), Vec::new());
        pools.add.retain(|(pool, family)| {
            let found = obstacle(configurations, pool, *family).filter(|_| joins);
            let is_free = found.is_none();
            obstacles.extend(found);
            joins && is_free
        });
        if is_failed {
            self.skip(machine, places, "its interface is in the state Failed; repair it");
            return;
        }
        // A node of one family is no mistake.
        if let Some(why) = obstacles.first().filter(|why| !why.contains("configuration")) {
            self.skip(machine, places, why);
        }
        let room = if pools.waits() { &mut left.waiting } else { &mut left.now };
        if *room == 0 {
            return;
        }
        let (before, has_more) = (before.clone(), left.has_more);
        let verb = if pools.add.is_empty() { Verb::Detach } else { Verb::Attach };
        let (write, kind, has_body) = match machine {
            Machine::Instance(_) => {
                let change = InstanceChange { id: id.clone(), before, pools, has_more };
                let has_body = change.body().is_some();
                (Write::Instance(change), "ScaleSetInstance", has_body)
            }
            Machine::Machine(_) => {
                let change = InterfaceChange { id: id.clone(), before, pools, has_more };
                let has_body = change.body().is_some();
                (Write::Interface(change), "NetworkInterface", has_body)
            }
        };
        if !has_body {
            return;
        }
        *room -= 1;
        let reason =
            if verb == Verb::Attach { "the node is not a member yet" } else { "the node is no longer a member" };
        let mut summary = summary(verb, kind, &id, reason, Risk::None);
        summary.id = machine.set().map_or_else(|| id.name().to_owned(), |set| format!("{}/{}", set.name(), id.name()));
        let part = Part::of(Kind::Members, id.folded());
        let step = Step::new(write, summary, Items::Some(places.clone()), part);
        self.steps.push(step.needs(&[]).stage(stage));
    }

    /// Nothing follows for members that were not read.
    fn fail_members(&mut self, places: &BTreeSet<usize>, error: &ProviderError) {
        let error = error.clone().wrap("the members of the load balancer");
        for place in places {
            self.failed.entry(*place).or_insert_with(|| error.clone());
        }
    }

    fn skip(&mut self, machine: &Machine, places: &BTreeSet<usize>, why: &str) {
        let Some(item) = places.first().and_then(|place| self.wanted.items.get(place)) else { return };
        let text = format!("the machine {} is not a member of the load balancer: {why}", machine.id().name());
        self.findings.push(item.finding(SKIPPED, text));
    }

    /// A load balancer with instances of scale sets cannot be deleted: they leave before.
    pub(super) fn last_members(&mut self) {
        let deletion = |step: &Step<Write>| {
            if let Write::DeleteBalancer(change) = &step.write { Some(change.clone()) } else { None }
        };
        let gone: Arc<[BalancerChange]> = self.steps.iter().filter_map(deletion).collect();
        // One write for each machine, also if both load balancers go.
        let (mut machines, mut models) = (BTreeMap::<Machine, Pools>::new(), BTreeMap::<ArmId, Pools>::new());
        let mut places = BTreeSet::new();
        for change in gone.iter() {
            if self.env.pools == PoolKind::Addresses || self.env.leaves_members(scheme_of(&change.name)) {
                continue;
            }
            places.extend(change.edits.iter().map(|edit| edit.place));
            for pool in json::items(&change.before, "backendAddressPools") {
                let id = change.id.child("backendAddressPools", json::name(pool));
                let members = Members::of(pool).instances.into_iter();
                for machine in members.filter_map(|id| Some(Machine::Instance(ArmId::parse(&id).ok()?))) {
                    models.entry(machine.set().unwrap_or_else(|| id.clone())).or_default().remove.insert(id.clone());
                    machines.entry(machine).or_default().remove.insert(id.clone());
                }
            }
        }
        let written = |id: &ArmId| self.steps.iter().any(|step| step.part == Part::of(Kind::Members, id.folded()));
        let is_second = |machine: &Machine| self.observed.interfaces.of(machine).is_some_and(|(id, _)| written(&id));
        models.iter_mut().for_each(|(set, pools)| pools.is_second = written(set));
        machines.iter_mut().for_each(|(machine, pools)| pools.is_second = is_second(machine));
        models.values_mut().chain(machines.values_mut()).for_each(|pools| pools.gone = gone.clone());
        for (set, pools) in models {
            self.model_step(&set, pools, &places, LAST_MODELS);
        }
        let mut left = Left { now: usize::MAX, waiting: usize::MAX, has_more: false };
        for (machine, pools) in machines {
            self.machine_step(&machine, pools, &places, LAST_LEAVES, &mut left);
        }
    }
}

/// The addresses of a family of nodes, by name.
fn addresses_of<'h>(hosts: impl Iterator<Item = (&'h String, &'h Host)>, family: Family) -> BTreeMap<String, IpAddr> {
    hosts.filter_map(|(name, host)| Some((name.clone(), host.address(family)?))).collect()
}

/// The addresses that a pool gains, by node, and those that it loses: never all.
fn differences_of(
    pool: &Value,
    wanted: BTreeMap<String, IpAddr>,
    may_leave: impl Fn(&str) -> bool,
) -> (BTreeMap<String, IpAddr>, BTreeSet<String>) {
    let present = json::items(pool, "loadBalancerBackendAddresses").iter();
    let present: BTreeSet<&str> = present.map(|address| json::property(address, "ipAddress")).collect();
    let texts: BTreeSet<String> = wanted.values().map(ToString::to_string).collect();
    let leaves = |text: &&&str| !texts.is_empty() && !text.is_empty() && !texts.contains(**text) && may_leave(text);
    let remove = present.iter().filter(leaves).map(|text| (*text).to_owned()).collect();
    // Azure refuses an address that is there twice: that of a node under two names.
    let mut known = BTreeSet::new();
    let mut is_new = |ip: &IpAddr| !present.contains(&*ip.to_string()) && known.insert(*ip);
    let add = wanted.into_iter().filter(|(_, ip)| is_new(ip)).collect();
    (add, remove)
}

/// Whether a rule of another Service has this pool.
fn has_foreign_rule(balancer: &Value, pool: &str, item: &Item) -> bool {
    let mut rules = json::items(balancer, "loadBalancingRules").iter();
    rules.any(|rule| json::same(json::reference(rule, "backendAddressPool"), pool) && !item.names.own(json::name(rule)))
}

fn of_addresses(pool: &ArmId) -> ProviderError {
    refused(format!(
        "the members of the pool {} are addresses: loadBalancerBackendPoolConfigurationType must be \"nodeIP\"; to go back to \
         interfaces, delete the load balancer's Services first",
        pool.name()
    ))
}
