//! Several load balancers: which one holds a Service, and which one a node. Pure.
//!
//! Upstream: `azure_loadbalancer.go` (`getEligibleLoadBalancersForService`, `accommodateNodesBy…`). A node is behind
//! exactly one load balancer and its internal twin.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{ProviderError, ServiceAction};
use serde_json::Value;

use super::super::claim;
use super::super::env::{Several, balancer_name};
use super::super::json::{self, same};
use super::super::machines::Machine;
use super::super::members::scheme_of;
use super::super::names;
use super::super::observed::{Kept, Observed};
use super::super::wanted::hosts::Host;
use super::super::wanted::{Item, refused};
use super::{Planner, is_pair};
use crate::annotations as keys;
use crate::client::id::ArmId;

const KEY: &str = "multipleStandardLoadBalancerConfigurations";
const UNPLACED: &str = "FailedToFindLoadBalancerForNode";

/// The nodes of each of several load balancers, by name.
pub(crate) type Places = BTreeMap<String, BTreeSet<String>>;

/// The scale set or availability set of a node.
pub(crate) fn set_of(observed: &Observed, host: &Host) -> Option<String> {
    let machine = Machine::of(&host.provider_id)?;
    let set = machine.set().map(|set| set.name().to_owned());
    set.or_else(|| {
        let id = observed.interfaces.sets.get(&machine.id().folded())?;
        id.rsplit('/').next().map(str::to_owned)
    })
}

impl Planner<'_> {
    /// The name of the load balancer of a Service, without the end of internal ones.
    pub(super) fn target(&self, item: &Item, public_ips: &[&str]) -> Result<String, ProviderError> {
        let several = &self.env.several;
        if several.is_empty() {
            return Ok(self.env.balancer(&self.wanted.cluster).to_owned());
        }
        if let Some(Kept::Place(name)) = self.observed.kept.get(&item.key) {
            return Ok(name.clone());
        }
        if !several.iter().any(|one| same(&one.name, &self.wanted.cluster)) {
            let text = format!("{KEY} has no entry with the name of the cluster, {:?}; add one", self.wanted.cluster);
            return Err(refused(text));
        }
        let holds = |one: &&Several| self.holds(one, item);
        let current = several.iter().find(holds);
        let is_named = |one: &&Several| {
            item.placing.named.as_ref().is_none_or(|names| names.iter().any(|name| same(name, &one.name)))
        };
        let named: Vec<&Several> = several.iter().filter(is_named).collect();
        if named.is_empty() {
            let key = keys::LB_CONFIGURATIONS.row.key;
            return Err(refused(format!("{key} names no load balancer of {KEY}; correct it")));
        }
        let takes = |one: &&&Several| one.takes_services || holds(one);
        let open: Vec<&Several> = named.iter().filter(takes).copied().collect();
        let is_selected = |one: &&&Several| item.placing.selected.contains(&one.name);
        let with_selector: Vec<&Several> = open.iter().filter(is_selected).copied().collect();
        let is_plain = |one: &&&Several| one.services.is_none() && one.namespaces.is_none();
        let eligible = match with_selector.is_empty() {
            true => open.iter().filter(is_plain).copied().collect(),
            false => with_selector,
        };
        if eligible.is_empty() {
            let list = |all: &[&Several]| all.iter().map(|one| &*one.name).collect::<Vec<_>>().join(", ");
            return Err(refused(format!(
                "no load balancer can hold the Service: {} are allowed by name, {} of them take Services (allowServicePlacement), and \
                 none of these selects its labels or those of its namespace",
                list(&named),
                if open.is_empty() { "none".to_owned() } else { list(&open) },
            )));
        }
        if let Some(pinned) = self.pinned(item, public_ips)? {
            return match eligible.iter().any(|one| same(&one.name, &pinned)) {
                true => Ok(pinned),
                false => Err(refused(format!(
                    "the requested address is on the load balancer {pinned}, which may not hold the Service"
                ))),
            };
        }
        if let Some(current) = current.filter(|current| eligible.iter().any(|one| one.name == current.name)) {
            return Ok(current.name.clone());
        }
        let rules = |one: &&&Several| {
            let body = self.body(&balancer_name(&one.name, item.scheme));
            (!body.is_null()).then(|| json::items(body, "loadBalancingRules").len())
        };
        let empty = eligible.iter().find(|one| rules(one) == Some(0));
        let new = || eligible.iter().find(|one| rules(one).is_none());
        let chosen = empty.or_else(new).or_else(|| eligible.iter().min_by_key(|one| rules(one)));
        Ok(chosen.map(|one| one.name.clone()).unwrap_or_default())
    }

    /// Whether a load balancer has the frontend of a Service, or its rules for the frontend of another one.
    fn holds(&self, one: &Several, item: &Item) -> bool {
        let body = self.body(&balancer_name(&one.name, item.scheme));
        let has = |list: &str| json::items(body, list).iter().any(|object| item.names.own(json::name(object)));
        has("frontendIPConfigurations") || has("loadBalancingRules")
    }

    /// The load balancer whose frontend has the requested address.
    fn pinned(&self, item: &Item, public_ips: &[&str]) -> Result<Option<String>, ProviderError> {
        let mut found = BTreeSet::new();
        for body in self.bodies() {
            let (plain, is_internal) = names::without_internal(json::name(body));
            if is_internal != (item.scheme == keys::Scheme::Internal) {
                continue;
            }
            let mut frontends = json::items(body, "frontendIPConfigurations").iter();
            let is_it = |frontend: &Value| {
                let public = json::reference(frontend, "publicIPAddress");
                !item.names.own(json::name(frontend))
                    && (claim::frontend(self.observed, item, frontend) == claim::Frontend::Shared
                        || public_ips.iter().any(|id| same(id, public)))
            };
            if frontends.any(is_it) {
                found.insert(plain.to_owned());
            }
        }
        match found.len() {
            0 | 1 => Ok(found.pop_first()),
            _ => Err(refused(format!(
                "the requested addresses are on different load balancers: {}",
                found.into_iter().collect::<Vec<_>>().join(", ")
            ))),
        }
    }

    /// The frontends that a Service gives up on other load balancers of the kind before it gets one on this: an address is
    /// on one frontend only.
    pub(super) fn given_up(&self, item: &Item, target: &str) -> Result<Vec<ArmId>, ProviderError> {
        let mut all = Vec::new();
        let is_other = |name: &str| scheme_of(name) == item.scheme && !same(name, target);
        for body in self.observed.balancers.iter().filter(|body| is_other(json::name(body))) {
            let (name, frontends) = (json::name(body), json::items(body, "frontendIPConfigurations"));
            let own: Vec<&Value> = frontends.iter().filter(|it| item.names.own(json::name(it))).collect();
            let stays = self.env.leaves_members(item.scheme) && own.len() == frontends.len();
            for frontend in own {
                let id = self.frontend_id(name, frontend);
                let used = self.other_use(name, item, &id);
                match used.or_else(|| stays.then(|| "preConfiguredBackendPoolLoadBalancerTypes".to_owned())) {
                    None => all.push(id),
                    // One that an earlier move has left.
                    Some(_) if claim::served(item, body).is_empty() => {}
                    Some(why) => {
                        return Err(refused(format!(
                            "the Service cannot move from the load balancer {name} to {target}, because {why} keeps its frontend {}; \
                             end that, or leave the Service where it is",
                            json::name(frontend)
                        )));
                    }
                }
            }
        }
        Ok(all)
    }

    /// Whether a load balancer can have Services.
    pub(super) fn check_sku(&self, balancer: &str) -> Result<(), ProviderError> {
        // Azure Stack has no others.
        match !self.env.is_stack && same(json::text(self.body(balancer), &["sku", "name"]), "Basic") {
            true => Err(refused(format!(
                "the load balancer {balancer} is a basic one, which Azure has retired: upgrade it with Azure's script, or delete it"
            ))),
            false => Ok(()),
        }
    }

    /// The nodes of each load balancer, by name without the end of internal ones. `None`: all nodes are behind the only one.
    pub(super) fn places_of_nodes(&mut self) -> Option<Places> {
        let several = &self.env.several;
        let hosts = self.wanted.hosts.as_ref().filter(|_| !several.is_empty())?;
        let exists = |one: &&Several| {
            let mut own = self.bodies().filter(|body| is_pair(json::name(body), &one.name));
            own.any(|body| !super::BalancerChange::is_empty(body) && self.pools_of_all(body).next().is_some())
        };
        let existing: Vec<&Several> = several.iter().filter(exists).collect();
        let mut places: Places = existing.iter().map(|one| (one.name.clone(), BTreeSet::new())).collect();
        let mut unplaced = Vec::new();
        let primary = |host: &Host| {
            let set = set_of(self.observed, host)?;
            existing.iter().find(|one| same(&set, &one.primary_set))
        };
        let (fixed, free): (Vec<_>, Vec<_>) = hosts.iter().partition(|(_, host)| primary(host).is_some());
        for (name, host) in fixed {
            if let Some(nodes) = primary(host).and_then(|one| places.get_mut(&one.name)) {
                nodes.insert(name.clone());
            }
        }
        for (name, host) in free {
            // Its set may be the primary one of any.
            if self.is_unread(host) {
                for one in existing.iter().filter(|one| self.has_node(one, host)) {
                    places.entry(one.name.clone()).or_default().insert(name.clone());
                }
                continue;
            }
            let selecting = existing.iter().filter(|one| host.selected.contains(&one.name));
            let mut eligible: Vec<&Several> = selecting.copied().collect();
            if eligible.is_empty() {
                eligible = existing.iter().filter(|one| one.nodes.is_none()).copied().collect();
            }
            let present = eligible.iter().find(|one| self.has_node(one, host)).map(|one| one.name.clone());
            let count = |one: &&&Several| places.get(&one.name).map_or(0, BTreeSet::len);
            let chosen = present.or_else(|| eligible.iter().min_by_key(count).map(|one| one.name.clone()));
            match chosen.and_then(|name| places.get_mut(&name)) {
                Some(nodes) => drop(nodes.insert(name.clone())),
                None if existing.is_empty() => {}
                None => unplaced.push(name.clone()),
            }
        }
        let item = self.wanted.items.values().next();
        for name in unplaced {
            let text = format!(
                "no load balancer of {KEY} accepts the node {name}; add one without nodeSelector, or correct the labels of the node"
            );
            self.findings.extend(item.map(|item| item.finding(UNPLACED, text)));
        }
        // What cannot be read may be its nodes.
        if !hosts.is_empty() && !hosts.values().any(|host| self.is_unread(host)) {
            self.report_empty(&places);
        }
        Some(places)
    }

    /// Reports load balancers to which no node belongs, to the Services on them.
    fn report_empty(&mut self, places: &Places) {
        let empty = self.env.several.iter().filter(|one| places.get(&one.name).is_some_and(BTreeSet::is_empty));
        for one in empty {
            let text = format!(
                "no node belongs to the load balancer {}, which keeps its members, or gets all nodes if it has none: correct its \
                 primaryVMSet or nodeSelector in {KEY}, or move its Services",
                one.name
            );
            let on_it =
                self.wanted.items.values().filter(|item| item.action != ServiceAction::Delete && self.holds(one, item));
            let found: Vec<_> = on_it.map(|item| item.finding(UNPLACED, text.clone())).collect();
            self.findings.extend(found);
        }
    }

    /// Whether the set of a node is not known.
    fn is_unread(&self, host: &Host) -> bool {
        let machine = Machine::of(&host.provider_id);
        set_of(self.observed, host).is_none()
            && machine.is_some_and(|machine| self.observed.interfaces.unread_of(&machine).is_some())
    }

    /// Whether a node is in a pool of a load balancer or its twin.
    fn has_node(&self, one: &Several, host: &Host) -> bool {
        let mut balancers = self.observed.balancers.iter().filter(|body| is_pair(json::name(body), &one.name));
        balancers.any(|body| host.addresses.iter().any(|ip| self.index.has_member(body, *ip)))
    }

    /// The pools of a load balancer that are not one Service's.
    pub(super) fn pools_of_all<'v>(&self, balancer: &'v Value) -> impl Iterator<Item = &'v Value> {
        let cluster = &self.wanted.cluster;
        let pools = json::items(balancer, "backendAddressPools").iter();
        pools.filter(move |pool| names::is_pool_of_all(cluster, json::name(pool)))
    }
}
