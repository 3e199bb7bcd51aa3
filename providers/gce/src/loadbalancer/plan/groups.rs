//! The instance groups behind internal load balancers: one for each zone, shared by all balancers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Risk, Verb};
use serde_json::json;

use super::super::Env;
use super::super::hosts::{Host, Hosts};
use super::super::observed::Observed;
use super::super::step::{Act, Rank, Step};
use super::members::{self, BATCH};
use crate::client::Write;
use crate::client::operation::{INSTANCE_GROUP_ADD, INSTANCE_GROUP_CREATE, INSTANCE_GROUP_REMOVE};
use crate::client::resource::{Collection, Scope, last_part};
use crate::ownership::ClusterNames;

/// The most instances that the API accepts in a group.
const MOST: usize = 1000;
const KIND: &str = "InstanceGroup";

/// The hosts that internal load balancers can use: those in the subnetwork of the cluster.
pub(in super::super) fn hosts(observed: &Observed, hosts: &Hosts) -> BTreeSet<Host> {
    let subnet = observed.network.subnetwork.as_deref().map(last_part);
    hosts.in_subnet(subnet)
}

/// The external groups that are used unchanged, by name: those whose members are all hosts. An instance may be in only
/// one group of backend services.
fn external<'o>(env: &Env, observed: &'o Observed, all: &Hosts, zone: &str) -> BTreeMap<&'o str, &'o BTreeSet<Host>> {
    let (prefix, own) = (&env.external_groups_prefix, ClusterNames(&observed.cluster_id).instance_group());
    if prefix.is_empty() {
        return BTreeMap::new();
    }
    let hosts = hosts(observed, all);
    let is_host = |host: &Host| hosts.contains(host) || all.unplaced.contains(&host.name);
    let groups = observed.groups.get(zone).into_iter().flatten();
    let of_others = groups.filter(|(name, _)| name.starts_with(prefix) && **name != own);
    let used = of_others.filter(|(_, members)| !members.is_empty() && members.iter().all(is_host));
    used.map(|(name, members)| (&**name, members)).collect()
}

/// The URLs of the groups of a backend service, by zone.
pub(super) fn urls(env: &Env, observed: &Observed, all: &Hosts) -> Vec<String> {
    let hosts = hosts(observed, all);
    let zones: BTreeSet<String> = hosts.iter().map(|host| host.zone.clone()).collect();
    let url = |zone: &str, name: &str| env.links.of(Collection::InstanceGroups, &Scope::zone(zone), name);
    let name = ClusterNames(&observed.cluster_id).instance_group();
    let of_zone = |zone: String| -> Vec<String> {
        if env.options.skips_groups {
            let groups = observed.groups.get(&zone).into_iter().flatten();
            return groups.map(|(group, _)| url(&zone, group)).collect();
        }
        let external = external(env, observed, all, &zone);
        let is_left = |host: &Host| host.zone == zone && !external.values().any(|members| members.contains(host));
        let own = hosts.iter().any(is_left).then_some(&*name);
        external.keys().copied().chain(own).map(|group| url(&zone, group)).collect()
    };
    zones.into_iter().flat_map(of_zone).collect()
}

/// The steps for the groups behind internal balancers with these hosts.
pub(super) fn plan<'i>(env: &Env, observed: &Observed, all: impl Iterator<Item = &'i Hosts>) -> Vec<Step> {
    if env.options.skips_groups {
        return Vec::new();
    }
    let mut wanted: BTreeMap<String, BTreeSet<Host>> = BTreeMap::new();
    let (mut unplaced, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for all in all {
        for host in hosts(observed, all) {
            wanted.entry(host.zone.clone()).or_default().insert(host);
        }
        for zone in observed.groups.keys() {
            taken.extend(external(env, observed, all, zone).into_values().flatten());
        }
        unplaced.extend(all.unplaced.iter().cloned());
    }
    let name = ClusterNames(&observed.cluster_id).instance_group();
    let zones = wanted.into_iter().flat_map(|(zone, hosts)| {
        let hosts: Vec<&Host> = hosts.iter().filter(|host| !taken.contains(host)).collect();
        let first = hosts.iter().take(MOST).filter(|host| !observed.missing.contains(**host));
        let present: BTreeSet<Host> = first.copied().cloned().collect();
        let current = observed.groups.get(&zone).and_then(|groups| groups.get(&name));
        match hosts.is_empty() && current.is_none() {
            true => Vec::new(),
            false => of_zone(env, &zone, &name, current, &present, &unplaced),
        }
    });
    zones.collect()
}

fn of_zone(
    env: &Env,
    zone: &str,
    name: &str,
    current: Option<&BTreeSet<Host>>,
    wanted: &BTreeSet<Host>,
    unplaced: &BTreeSet<String>,
) -> Vec<Step> {
    let write = |operation| Write::new(operation, Scope::zone(zone), name);
    let step = |rank, order, act, verb, kind, reason| Step {
        item: None,
        balancer: None,
        rank,
        wave: 0,
        order,
        act,
        verb,
        kind,
        id: name.to_owned(),
        changes: Vec::new(),
        reason,
        risk: if verb == Verb::Detach { Risk::Brief } else { Risk::None },
    };
    let mut steps = Vec::new();
    if current.is_none() {
        let act = Act::Send(write(INSTANCE_GROUP_CREATE).body(json!({})));
        steps.push(step(Rank::Groups, 0, act, Verb::Create, KIND, "the instances of the zone"));
    }
    let empty = BTreeSet::new();
    let difference = members::difference(current.unwrap_or(&empty), wanted, unplaced);
    for (order, hosts) in (0..).zip(difference.join.chunks(BATCH)) {
        // Without members the zone has no healthy backend, but other zones have.
        let act = Act::Join { write: write(INSTANCE_GROUP_ADD), hosts: hosts.to_vec(), has_others: true };
        let reason = "their nodes are behind internal load balancers";
        steps.push(step(Rank::JoinGroups, order, act, Verb::Attach, "Instances", reason));
    }
    for (order, hosts) in (0..).zip(difference.leave.chunks(BATCH)) {
        let body = super::instances_body(env, hosts);
        let act = Act::Leave { write: write(INSTANCE_GROUP_REMOVE).body(body), hosts: hosts.to_vec() };
        let reason = "their nodes are no hosts any more";
        steps.push(step(Rank::LeaveGroups, order, act, Verb::Detach, "Instances", reason));
    }
    steps
}
