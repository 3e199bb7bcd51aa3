//! The instance groups behind internal load balancers: one for each zone, shared by all balancers. Pure.

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::{Fit, fit};
use ccm_provider::{Finding, Risk, ServiceAction, Verb};
use serde_json::json;

use super::super::env::Env;
use super::super::hosts::{Host, Hosts};
use super::super::observed::Observed;
use super::super::parts;
use super::super::step::{Act, Rank, Step};
use super::super::wanted::{HOSTS, Item};
use super::members::BATCH;
use crate::client::Write;
use crate::client::balancing::BackendService;
use crate::client::operation::{INSTANCE_GROUP_ADD, INSTANCE_GROUP_CREATE, INSTANCE_GROUP_REMOVE, Operation};
use crate::client::resource::{Collection, ResourceId, Scope, last_part};
use crate::ownership::ClusterNames;

/// The most instances that the API accepts in a group.
const MOST: usize = 1000;
const KIND: &str = "InstanceGroup";

/// The hosts that internal load balancers can use: those in the subnetwork of the cluster, unless it is only that of some
/// nodes.
pub(in super::super) fn hosts(observed: &Observed, hosts: &Hosts) -> BTreeSet<Host> {
    let subnet = observed.network.subnetwork.as_deref().filter(|_| !observed.network.is_of_nodes);
    hosts.in_subnet(subnet.map(last_part))
}

/// Those of them that fit into the groups of the cluster: the instances of a group are in one subnetwork. Unless that is
/// known for all, it is that of the members, else that of some nodes.
fn fitting(observed: &Observed, all: &Hosts) -> BTreeSet<Host> {
    let mut hosts = hosts(observed, all);
    let guess = observed.network.subnetwork.as_deref().map(last_part);
    if guess.is_some() && !observed.network.is_of_nodes {
        return hosts;
    }
    let name = ClusterNames(&observed.cluster_id).instance_group();
    let label = |host: &Host| all.known.get(host).and_then(Option::as_deref);
    let of_members = |(zone, groups): (&'_ String, &BTreeMap<String, BTreeSet<Host>>)| {
        let labels: BTreeSet<&str> = groups.get(&name).into_iter().flatten().filter_map(label).collect();
        (!labels.is_empty()).then(|| (zone.clone(), labels))
    };
    let subnets: BTreeMap<String, BTreeSet<&str>> = observed.groups.iter().filter_map(of_members).collect();
    hosts.retain(|host| match (label(host), subnets.get(&host.zone)) {
        (Some(label), Some(subnets)) => subnets.contains(label),
        (Some(label), None) => guess.is_none_or(|guess| guess == label),
        (None, _) => true,
    });
    hosts
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

/// The URLs of the groups of a backend service, by zone. It keeps those of a zone whose groups are not known, or whose
/// nodes may be those without a zone, and gets none that could not be created.
pub(super) fn urls(env: &Env, observed: &Observed, all: &Hosts, found: Option<&BackendService>) -> Vec<String> {
    let zones: BTreeSet<String> = hosts(observed, all).into_iter().map(|host| host.zone).collect();
    let hosts = fitting(observed, all);
    let url = |zone: &str, name: &str| env.links.of(Collection::InstanceGroups, &Scope::zone(zone), name);
    let name = ClusterNames(&observed.cluster_id).instance_group();
    let is_unread = |zone: &str| observed.unread(Collection::InstanceGroups, zone).is_some();
    let is_kept = |zone: &str| if zones.contains(zone) { is_unread(zone) } else { !all.unplaced.is_empty() };
    let is_kept = |url: &&str| ResourceId::parse(url).is_some_and(|id| id.scope.zone_name().is_some_and(is_kept));
    let kept = found.into_iter().flat_map(BackendService::groups).filter(is_kept).map(str::to_owned);
    let of_zone = |zone: &String| -> Vec<String> {
        if env.options.skips_groups {
            let groups = observed.groups.get(zone).into_iter().flatten();
            return groups.map(|(group, _)| url(zone, group)).collect();
        }
        let external = external(env, observed, all, zone);
        let is_left = |host: &Host| host.zone == *zone && !external.values().any(|members| members.contains(host));
        let members = observed.groups.get(zone).and_then(|groups| groups.get(&name));
        let has_unplaced = members.into_iter().flatten().any(|host| all.unplaced.contains(&host.name));
        let can_be = members.is_some() || !observed.refused_groups.contains(zone);
        let own = (can_be && (has_unplaced || hosts.iter().any(is_left))).then_some(&*name);
        external.keys().copied().chain(own).map(|group| url(zone, group)).collect()
    };
    kept.chain(zones.iter().filter(|zone| !is_unread(zone)).flat_map(of_zone)).collect()
}

/// The steps for the groups behind the internal balancers of these items, and what does not fit.
pub(super) fn plan(env: &Env, observed: &Observed, items: &BTreeMap<usize, &Item>) -> (Vec<Step>, Vec<Finding>) {
    let (mut steps, mut findings) = (Vec::new(), Vec::new());
    if env.options.skips_groups {
        return (steps, findings);
    }
    let mut wanted: BTreeMap<String, BTreeSet<Host>> = BTreeMap::new();
    let (mut unplaced, mut taken) = (BTreeSet::new(), BTreeSet::new());
    for item in items.values() {
        let all = &item.hosts;
        for host in fitting(observed, all) {
            wanted.entry(host.zone.clone()).or_default().insert(host);
        }
        for zone in observed.groups.keys() {
            taken.extend(external(env, observed, all, zone).into_values().flatten());
        }
        unplaced.extend(all.unplaced.iter().cloned());
    }
    let name = ClusterNames(&observed.cluster_id).instance_group();
    for (zone, mut hosts) in wanted {
        hosts.retain(|host| !taken.contains(host));
        let current = observed.groups.get(&zone).and_then(|groups| groups.get(&name));
        let is_unread = observed.unread(Collection::InstanceGroups, &zone).is_some();
        if is_unread || hosts.is_empty() && current.is_none() {
            continue;
        }
        hosts.retain(|host| !observed.missing.contains(host));
        let group = Group { env, zone: &zone, name: &name, items };
        let (of_zone, left_out) = group.plan(current, hosts, &unplaced);
        steps.extend(of_zone);
        if let Some(first) = left_out.first() {
            let text = format!(
                "the instance group {name} of zone {zone} is full: it has at most {MOST} instances, and {} nodes of the zone \
                 are behind no internal load balancer, as {}; put nodes into other zones",
                left_out.len(),
                first.name
            );
            findings.extend(items.values().map(|item| item.finding(HOSTS, text.clone())));
        }
    }
    (steps, findings)
}

/// The group of a zone, for some items.
struct Group<'a> {
    env: &'a Env,
    zone: &'a str,
    name: &'a str,
    items: &'a BTreeMap<usize, &'a Item>,
}

impl Group<'_> {
    /// The steps from the current to the wanted members, and the wanted ones that do not fit.
    fn plan(
        &self,
        current: Option<&BTreeSet<Host>>,
        mut wanted: BTreeSet<Host>,
        unplaced: &BTreeSet<String>,
    ) -> (Vec<Step>, Vec<Host>) {
        let mut steps = Vec::new();
        if current.is_none() {
            let act = Act::Send(self.write(INSTANCE_GROUP_CREATE).body(json!({})));
            steps.push(self.step(Rank::Groups, 0, act, Verb::Create, KIND, "the instances of the zone"));
        }
        let empty = BTreeSet::new();
        let current = current.unwrap_or(&empty);
        // They are not removed, and take places.
        wanted.extend(current.iter().filter(|host| unplaced.contains(&host.name)).cloned());
        let Fit { join, leave, left_out, leaves_first } = fit(current, &wanted, MOST);
        for (order, hosts) in (0..).zip(join.chunks(BATCH)) {
            // Without members the zone has no healthy backend, but other zones have.
            let act = Act::Join { write: self.write(INSTANCE_GROUP_ADD), hosts: hosts.to_vec(), has_others: true };
            let reason = "their nodes are behind internal load balancers";
            steps.push(self.step(Rank::JoinGroups, order, act, Verb::Attach, "Instances", reason));
        }
        let rank = if leaves_first { Rank::LeaveFullGroups } else { Rank::LeaveGroups };
        for (order, hosts) in (0..).zip(leave.chunks(BATCH)) {
            let body = super::instances_body(self.env, hosts);
            let act = Act::Leave { write: self.write(INSTANCE_GROUP_REMOVE).body(body), hosts: hosts.to_vec() };
            steps.push(self.step(rank, order, act, Verb::Detach, "Instances", "their nodes are no longer hosts"));
        }
        (steps, left_out)
    }

    fn write(&self, operation: Operation) -> Write {
        Write::new(operation, Scope::zone(self.zone), self.name)
    }

    fn step(&self, rank: Rank, order: u32, act: Act, verb: Verb, kind: &'static str, reason: &'static str) -> Step {
        let (part, needs) = parts::of(ServiceAction::UpdateHosts, rank, verb, &act);
        Step {
            items: self.items.keys().copied().collect(),
            is_shared: true,
            balancer: None,
            rank,
            order,
            part,
            needs,
            act,
            verb,
            kind,
            id: self.name.to_owned(),
            changes: Vec::new(),
            reason,
            risk: if verb == Verb::Detach { Risk::Brief } else { Risk::None },
            restore: Vec::new(),
            releases: false,
        }
    }
}
