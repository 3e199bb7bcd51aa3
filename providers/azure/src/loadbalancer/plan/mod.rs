//! Plans the writes for a group of Services. Pure.
//!
//! All Services are planned together: one write for each shared object. Services fail alone: one that is impossible leaves
//! the objects as they are for it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_kit::balancer::{Items, Kind, Part, Plan, Step};
use ccm_provider::{Finding, ProviderError, Risk, ServiceAction, Verb};
use serde_json::Value;

use super::balancer::{BalancerChange, Edit};
use super::env::Env;
use super::json::{self, same};
use super::members::{InstanceChange, InterfaceChange};
use super::names::without_internal;
use super::observed::Observed;
use super::wanted::{Item, Wanted};
use crate::annotations::Scheme;
use crate::client::id::ArmId;

pub(crate) mod address;
mod admission;
mod backends;
mod handover;
mod index;
mod limits;
pub(crate) mod links;
mod members;
mod outbound;
mod place;
mod public_ips;
mod retagged;
mod rules;
pub(crate) mod security;
pub(crate) mod service;
pub(crate) mod step;
#[cfg(test)]
mod tests;

use address::{AddressChange, AddressEdit, Outcome};
use index::Index;
pub(crate) use limits::MOST_SETS;
pub(crate) use place::{Places, set_of};
use service::Reached;
use step::Write;

/// Stages: steps of a smaller one end first.
const ADDRESSES: u32 = 0;
/// Load balancers that Services leave for another one of the kind, with the same address.
const MOVED: u32 = 8;
const BALANCERS: u32 = 10;
/// Load balancers that Services leave for another one, which serves them by now.
const LEFT_BALANCERS: u32 = 54;
const SHARED_ADDRESSES: u32 = 56;
const GONE_BALANCERS: u32 = 80;
const GONE_ADDRESSES: u32 = 90;

/// The delay of what waits for other Services.
const SOON: Duration = Duration::from_secs(1);

/// The plan in the making.
pub(super) struct Planner<'a> {
    env: &'a Env,
    observed: &'a Observed,
    wanted: &'a Wanted,
    index: Index<'a>,
    /// By name in lower case: the changes, and the load balancer with all of them.
    balancers: BTreeMap<String, (BalancerChange, Arc<Value>)>,
    addresses: BTreeMap<ArmId, AddressChange>,
    /// The addresses of ensured Services.
    reached: BTreeMap<usize, Vec<Reached>>,
    /// See [`Planner::places_of_nodes`].
    places: Option<Places>,
    failed: BTreeMap<usize, ProviderError>,
    /// The Services that wait for another one of the pass, which gives up what they ask for.
    waits: BTreeMap<usize, usize>,
    /// The Services that have given up what others wait for, before they get what they ask for.
    gave: BTreeSet<usize>,
    /// What Services lack that have everything else: a private link service, or a change that is refused.
    without: BTreeMap<usize, ProviderError>,
    findings: Vec<Finding>,
    steps: Vec<Step<Write>>,
}

/// The writes that change what was observed into what is wanted.
pub(super) fn plan(env: &Env, observed: &Observed, wanted: &Wanted) -> Plan<Write> {
    let mut planner = Planner::new(env, observed, wanted);
    // Ports and frontends that are given up are free for others.
    let first = |item: &Item| item.action == ServiceAction::Delete;
    for (place, item) in wanted.items.iter().filter(|(_, item)| first(item)) {
        planner.delete(*place, item);
    }
    for (place, item) in &wanted.items {
        planner.findings.extend(item.findings.iter().cloned());
        planner.attempt(*place);
    }
    planner.hand_over();
    planner.put_swaps_off();
    planner.put_takers_off();
    planner.places = planner.places_of_nodes();
    planner.rule_steps();
    planner.address_steps();
    planner.balancer_steps();
    planner.member_steps();
    planner.tie();
    planner.last_members();
    planner.outbound_warnings();
    let Planner { mut steps, findings, mut failed, without, .. } = planner;
    for (place, error) in without {
        failed.entry(place).or_insert(error);
    }
    steps.sort_by_key(|step| step.stage);
    Plan { steps, findings, failed }
}

/// The names of the subnets of new internal frontends.
pub(crate) fn subnets_of_frontends(env: &Env, observed: &Observed, wanted: &Wanted) -> BTreeSet<String> {
    let is_internal = |item: &&Item| item.is_whole() && item.scheme == Scheme::Internal;
    let mut items = wanted.items.values().filter(is_internal).peekable();
    if items.peek().is_none() {
        return BTreeSet::new();
    }
    let planner = Planner::new(env, observed, wanted);
    let due = items.filter(|item| planner.lacks_frontend(item));
    due.filter_map(|item| Some(item.settings.as_ref()?.subnet.clone())).collect()
}

/// The nodes of each of several load balancers, by name; `None` if there is only one.
pub(crate) fn places(env: &Env, observed: &Observed, wanted: &Wanted) -> Option<Places> {
    Planner::new(env, observed, wanted).places_of_nodes()
}

impl<'a> Planner<'a> {
    fn new(env: &'a Env, observed: &'a Observed, wanted: &'a Wanted) -> Self {
        let of = |balancer: &Arc<Value>| {
            let name = json::name(balancer);
            let change = BalancerChange::new(env, name, Some(balancer));
            let body = change.before.clone();
            (name.to_lowercase(), (change, body))
        };
        Self {
            env,
            observed,
            wanted,
            index: Index::of(observed, wanted),
            balancers: observed.balancers.iter().map(of).collect(),
            addresses: BTreeMap::new(),
            reached: BTreeMap::new(),
            places: None,
            failed: BTreeMap::new(),
            waits: BTreeMap::new(),
            gave: BTreeSet::new(),
            without: BTreeMap::new(),
            findings: Vec::new(),
            steps: Vec::new(),
        }
    }

    /// A load balancer with the changes so far; null if there is none.
    fn body(&self, name: &str) -> &Value {
        self.balancers.get(&name.to_lowercase()).map_or(&Value::Null, |(_, body)| body)
    }

    fn bodies(&self) -> impl Iterator<Item = &Value> {
        self.balancers.values().map(|(_, body)| &**body)
    }

    fn add_edit(&mut self, name: &str, edit: Edit) {
        let key = name.to_lowercase();
        if !edit.changes(self.body(name)) {
            return;
        }
        let fresh = || {
            let change = BalancerChange::new(self.env, name, None);
            let body = change.before.clone();
            (change, body)
        };
        let (change, body) = self.balancers.entry(key).or_insert_with(fresh);
        edit.apply(Arc::make_mut(body));
        change.edits.push(edit);
    }

    fn add_address_edit(&mut self, id: &ArmId, edit: AddressEdit) {
        let fresh = self.new_address_change(id);
        self.addresses.entry(id.clone()).or_insert(fresh).edits.push(edit);
    }

    fn address_steps(&mut self) {
        let changes = std::mem::take(&mut self.addresses);
        for change in changes.into_values() {
            let outcome = change.after(self.env, &change.before);
            let verb = match &outcome {
                Outcome::Same => continue,
                Outcome::Delete => Verb::Delete,
                Outcome::Put(_) if change.is_new() => Verb::Create,
                Outcome::Put(_) => Verb::Update,
            };
            let places = change.places(self.env);
            let (stage, kind) = match (verb, change.is_used()) {
                (Verb::Delete, _) => (GONE_ADDRESSES, Kind::Release),
                (_, true) => (ADDRESSES, Kind::Frame),
                (_, false) => (SHARED_ADDRESSES, Kind::Release),
            };
            let reason = match (verb, kind) {
                (Verb::Create, _) => "the Service has no public IP address",
                (Verb::Delete, _) => "no Service uses it any more",
                (_, Kind::Frame) => "its tags or settings differ",
                _ => "a Service does not use it any more",
            };
            let risk = if verb == Verb::Delete { Risk::Disruptive } else { Risk::None };
            let summary = summary(verb, "PublicIPAddress", &change.id, reason, risk);
            self.push(Write::Address(change), summary, places, Part::new(kind), stage);
        }
    }

    fn balancer_steps(&mut self) {
        let changes: Vec<BalancerChange> = self.balancers.values().map(|(change, _)| change.clone()).collect();
        for mut change in changes {
            let mut others = BTreeSet::new();
            if change.edits.iter().any(|edit| edit.moves) {
                // Services that move give their addresses up first. Those that come wait for the same elsewhere.
                let (first, second) = change.parted(self.env);
                others = first.edits.iter().map(|edit| edit.place).collect();
                self.balancer_step(first, MOVED, BTreeSet::new());
                if second.edits.is_empty() {
                    continue;
                }
                change = second;
            }
            if !change.edits.iter().any(|edit| edit.leaves) {
                self.balancer_step(change, BALANCERS, others);
                continue;
            }
            let (first, second) = change.without_leaving(self.env);
            if !first.edits.is_empty() {
                let places: Vec<usize> = first.edits.iter().map(|edit| edit.place).collect();
                self.balancer_step(first, BALANCERS, others.clone());
                others.extend(places);
            }
            self.balancer_step(second, LEFT_BALANCERS, others);
        }
    }

    /// Leaves everything of some Services on load balancers as it is.
    fn take_back(&mut self, places: &BTreeSet<usize>) {
        for (change, body) in self.balancers.values_mut() {
            change.edits.retain(|edit| !places.contains(&edit.place));
            *body = change.before.clone();
            change.edits.iter().for_each(|edit| edit.apply(Arc::make_mut(body)));
        }
        self.balancers.retain(|_, (change, _)| !change.is_new() || !change.edits.is_empty());
        self.addresses.values_mut().for_each(|change| change.edits.retain(|edit| !places.contains(&edit.place)));
        self.addresses.retain(|_, change| !change.edits.is_empty());
        let is_of = |step: &Step<Write>| matches!(&step.items, Items::Some(of) if of.is_subset(places));
        self.steps.retain(|step| !is_of(step));
        self.reached.retain(|place, _| !places.contains(place));
    }

    /// What waits for what, of that which this plan writes.
    fn tie(&mut self) {
        let (mut sent, mut filled) = (BTreeSet::new(), BTreeSet::new());
        let mut has_members = false;
        for step in &self.steps {
            has_members |= step.part.kind == Kind::Members;
            match &step.write {
                Write::Balancer(change) | Write::DeleteBalancer(change) => {
                    sent.extend(change.edits.iter().map(|edit| (change.id.clone(), edit.place)));
                }
                Write::Pool(change) if !change.add.is_empty() => drop(filled.insert(change.id.clone())),
                Write::Instance(InstanceChange { pools, .. }) | Write::Interface(InterfaceChange { pools, .. }) => {
                    filled.extend(pools.add.iter().map(|(pool, _)| pool.clone()));
                }
                _ => {}
            }
        }
        for step in &mut self.steps {
            match &mut step.write {
                Write::Balancer(change) | Write::DeleteBalancer(change) => {
                    // Members change the ETag, and so do private link services.
                    let is_after = |edit: &Edit| has_members && edit.leaves || !edit.waits.is_empty();
                    change.is_second |= change.edits.iter().any(is_after);
                    for edit in &mut change.edits {
                        edit.joins = edit.joins.take().filter(|id| sent.contains(&(id.clone(), edit.place)));
                        edit.fills.retain(|pool| filled.contains(pool));
                    }
                }
                Write::Security(change) => change.parts.iter_mut().for_each(|part| {
                    let place = part.claim.place;
                    part.frames.retain(|id| sent.contains(&(id.clone(), place)));
                }),
                _ => {}
            }
        }
    }

    /// Azure has no load balancer without a frontend: where all move away, those that come do it in the next call.
    fn put_swaps_off(&mut self) {
        let names: Vec<String> = self.balancers.keys().cloned().collect();
        for name in names {
            let Some((change, _)) = self.balancers.get(&name) else { continue };
            let (_, second) = change.parted(self.env);
            // From one without a frontend, nobody has to move away.
            let is_left = BalancerChange::is_empty(&second.before) && !BalancerChange::is_empty(&change.before);
            if second.edits.is_empty() || !is_left {
                continue;
            }
            let places: BTreeSet<usize> = second.edits.iter().map(|edit| edit.place).collect();
            self.take_back(&places);
            for place in places {
                let text = format!("the Service moves to the load balancer {} when others have left it", second.name);
                self.failed.entry(place).or_insert_with(|| ProviderError::in_progress(text, SOON));
            }
        }
    }

    /// The write of a load balancer, after those of other Services.
    fn balancer_step(&mut self, change: BalancerChange, stage: u32, others: BTreeSet<usize>) {
        let after = change.after(self.env, |_| true);
        let leaving = |edit: &Edit| edit.rules.is_empty() && !edit.drops.is_empty();
        let places: BTreeSet<usize> = match change.edits.is_empty() {
            // Only tags differ: the first Service reports the write.
            true => self.first_whole().into_iter().collect(),
            false => change.edits.iter().map(|edit| edit.place).collect(),
        };
        if after == *change.before && (change.is_second || !change.has_failed()) || places.is_empty() {
            return;
        }
        if !change.is_new() && BalancerChange::is_empty(&after) && change.edits.iter().any(leaving) {
            let text = "no frontend is left";
            let summary = summary(Verb::Delete, "LoadBalancer", &change.id, text, Risk::Disruptive);
            let stage = if stage == MOVED { MOVED } else { GONE_BALANCERS };
            self.push(Write::DeleteBalancer(change), summary, places, Part::new(Kind::Retire), stage);
            return;
        }
        let verb = if change.is_new() { Verb::Create } else { Verb::Update };
        let mut summary = summary(verb, "LoadBalancer", &change.id, "rules, probes or frontends differ", Risk::None);
        summary.changes = differences(&change.before, &after);
        let step = Step::new(Write::Balancer(change), summary, Items::Some(places), Part::new(Kind::Frame));
        self.steps.push(step.after(others).stage(stage));
    }

    /// The first Service that is ensured.
    fn first_whole(&self) -> Option<usize> {
        self.wanted
            .items
            .iter()
            .find(|(place, item)| item.is_whole() && !self.failed.contains_key(place))
            .map(|(place, _)| *place)
    }

    fn push(&mut self, write: Write, summary: ccm_provider::Step, places: BTreeSet<usize>, part: Part, stage: u32) {
        self.steps.push(Step::new(write, summary, Items::Some(places), part).stage(stage));
    }
}

fn summary(verb: Verb, kind: &'static str, id: &ArmId, reason: &str, risk: Risk) -> ccm_provider::Step {
    let id = id.name().to_owned();
    ccm_provider::Step { verb, kind: kind.into(), id, changes: Vec::new(), reason: reason.to_owned(), risk }
}

/// The names of the parts that come and go.
fn differences(before: &Value, after: &Value) -> Vec<ccm_provider::Change> {
    let lists = ["frontendIPConfigurations", "loadBalancingRules", "probes", "backendAddressPools"];
    let names = |value: &Value, list: &str| -> Vec<String> {
        json::items(value, list).iter().map(|item| json::name(item).to_owned()).collect()
    };
    let of = |list: &'static str| {
        let (old, new) = (names(before, list), names(after, list));
        let less = |one: &[String], other: &[String]| {
            let rest: Vec<&str> =
                one.iter().filter(|name| !other.iter().any(|it| same(it, name))).map(String::as_str).collect();
            Some(rest.join(" ")).filter(|text| !text.is_empty())
        };
        let change = ccm_provider::Change { field: list.into(), before: less(&old, &new), after: less(&new, &old) };
        (change.before.is_some() || change.after.is_some()).then_some(change)
    };
    lists.into_iter().filter_map(of).collect()
}

/// Whether two load balancers are the external and the internal one of a pair.
fn is_pair(one: &str, other: &str) -> bool {
    same(without_internal(one).0, without_internal(other).0)
}
