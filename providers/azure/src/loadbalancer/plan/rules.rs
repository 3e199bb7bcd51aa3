//! The part of each Service in the security group. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_kit::balancer::{Items, Kind, Part, Step};
use ccm_provider::{ProviderError, Risk, ServiceAction, Verb};
use serde_json::Value;

use super::super::claim;
use super::super::env::Env;
use super::super::json;
use super::super::names::Family;
use super::super::observed::{Facts, Seen, ServiceFacts};
use super::super::tags;
use super::super::wanted::access::Access;
use super::super::wanted::hosts::addresses_of;
use super::super::wanted::{Destinations, Item, refused};
use super::backends::Holders;
use super::security::{self, Claim, Keep, by_family, has_failed};
use super::service::Reached;
use super::step::{SecurityChange, SecurityPart, Write};
use super::{Planner, RULES, summary};

/// The needs of security rules: the address.
const FRAME: &[Kind] = &[Kind::Claim, Kind::Frame];

/// What is where a Service is, besides it: for all Services, so that they do not look through each other's objects.
struct Others<'a> {
    /// The addresses of Services as the load balancers show them, by base name.
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The Services that stay, by address.
    services: BTreeMap<IpAddr, Vec<&'a ServiceFacts>>,
    /// The load balancing rules of Services that stay, by the address of the frontend.
    rules: BTreeMap<IpAddr, Vec<&'a Value>>,
    holders: Holders,
}

impl<'a> Planner<'a> {
    /// Plans the security group.
    pub(super) fn rule_steps(&mut self) {
        let group = match &self.observed.security_group {
            None => return,
            Some(Seen::Present(group)) => group,
            Some(seen) => {
                let error = match seen {
                    Seen::Unread(error) => error.clone().wrap("the security group"),
                    _ => refused(format!(
                        "the security group {:?} of the resource group {} does not exist; create it, or correct securityGroupName",
                        self.env.security_group, self.env.security_group_group
                    )),
                };
                let is_absent = matches!(seen, Seen::Absent);
                self.fail_rules(&error, is_absent);
                return;
            }
        };
        let Some(facts) = &self.observed.cluster else {
            return self.fail_rules(&ProviderError::unknown("the Services of the cluster are not known yet"), false);
        };
        let others = self.others(facts);
        let mut parts = Vec::new();
        for (place, item) in &self.wanted.items {
            let Some(mut part) = self.part(*place, item, facts, &others) else { continue };
            if let Some(refusal) = self.observed.refused_rules.get(&item.key) {
                self.failed.entry(*place).or_insert_with(|| refusal.clone());
                // What was refused late is still shown.
                if !has_failed(group) {
                    continue;
                }
                part.pending.clear();
                part.claim.access = None;
            }
            parts.push(part);
        }
        let mut keep = keep(facts, &parts);
        let frontends = self.observed.frontends();
        keep.own.extend(frontends.filter_map(|frontend| self.index.address(frontend)).map(|ip| ip.to_string()));
        let keys = parts.iter().filter_map(|part| Some(&*self.wanted.items.get(&part.claim.place)?.key)).collect();
        self.add_joining(facts, &others.holders, &keys, &mut keep);
        keep.nodes.extend(self.host_addresses(facts).iter().map(ToString::to_string));
        let mut before = group.clone();
        tags::set_configured(&mut before, &self.env.tags, &self.env.system_tags);
        let claims: Vec<Claim> = parts.iter().map(|part| part.claim.clone()).collect();
        let (after, failed) = security::after(&before, &claims, Some(&keep));
        // Those that have no place are not in the write: it would be planned again for them.
        parts.retain(|part| !failed.contains_key(&part.claim.place));
        for (place, error) in failed {
            self.failed.entry(place).or_insert(error);
        }
        let satisfied = security::satisfied(group, parts.iter().map(|part| &part.claim));
        // In a group whose last write has failed, nothing is certain.
        let is_due = |part: &&SecurityPart| {
            has_failed(group) || !part.pending.is_empty() || !satisfied.contains(&part.claim.place)
        };
        let mut places: BTreeSet<usize> = parts.iter().filter(is_due).map(|part| part.claim.place).collect();
        let differs = after != *group || has_failed(group);
        if differs && places.is_empty() {
            places.extend(self.first_whole().or_else(|| self.wanted.items.keys().next().copied()));
        }
        let is_pending = parts.iter().any(|part| !part.pending.is_empty());
        if !differs && !is_pending || places.is_empty() {
            return;
        }
        let id = self.env.security_group_id();
        let summary = summary(Verb::Update, "SecurityGroup", &id, "security rules differ", Risk::None);
        let write = Write::Security(SecurityChange { id, before: group.clone(), parts, keep });
        let step = Step::new(write, summary, Items::Some(places), Part::new(Kind::Rules));
        self.steps.push(step.needs(FRAME).stage(RULES));
    }

    /// The Services that need security rules fail; those that need none only if that may hide some.
    fn fail_rules(&mut self, error: &ProviderError, is_absent: bool) {
        for (place, item) in &self.wanted.items {
            let needs = match item.action {
                ServiceAction::Ensure => {
                    item.settings.as_ref().is_some_and(|settings| !is_absent || settings.access.is_some())
                }
                ServiceAction::UpdateHosts => !item.access.has_floating_ip && !is_absent,
                ServiceAction::Delete => !is_absent,
            };
            if needs {
                self.failed.entry(*place).or_insert_with(|| error.clone());
            }
        }
    }

    /// What a Service has in the security group. `None` if that does not change now.
    fn part(&self, place: usize, item: &Item, facts: &Facts, others: &Others<'_>) -> Option<SecurityPart> {
        let Destinations { additional, has_floating_ip, ports } = &item.access;
        // The nodes are destinations only without floating IP.
        if item.action == ServiceAction::UpdateHosts && (*has_floating_ip || item.settings.is_none()) {
            return None;
        }
        if item.is_whole() && self.failed.contains_key(&place) {
            return None;
        }
        let settings = item.settings.as_ref();
        let custom = settings.and_then(|settings| settings.access.as_ref()?.destinations.as_ref());
        let mut pending = Vec::new();
        let mut own: BTreeSet<IpAddr> = additional.iter().copied().collect();
        let mut former: BTreeSet<IpAddr> = item.published.iter().copied().collect();
        let mut destinations = BTreeMap::new();
        match (has_floating_ip, custom) {
            (true, _) if item.action == ServiceAction::Delete => {}
            (true, _) => {
                for reached in self.reached.get(&place).into_iter().flatten() {
                    match reached {
                        Reached::Known(ip) => drop(own.insert(*ip)),
                        Reached::Of(_) => pending.push(reached.clone()),
                    }
                }
            }
            (false, Some(nets)) => {
                for net in nets.iter().filter(|net| item.families.contains(&Family::of(net.addr()))) {
                    let family: &mut BTreeSet<String> = destinations.entry(Family::of(net.addr())).or_default();
                    family.insert(net.to_string());
                }
            }
            (false, None) => {
                let is_of =
                    |ip: &IpAddr| item.families.contains(&Family::of(*ip)) || item.action == ServiceAction::Delete;
                let hosts = item.own_hosts.as_ref().map(|hosts| addresses_of(hosts.values()));
                let holder = others.holders.get(&item.names.base.to_lowercase());
                let holder = holder.filter(|_| item.action != ServiceAction::Delete);
                let hosts = hosts.or_else(|| self.addresses_behind(holder?));
                let all = self.host_addresses(facts);
                own.extend(hosts.as_ref().unwrap_or(&all).iter().copied().filter(is_of));
                // It may have been behind another one.
                former.extend(all);
            }
        }
        for (family, ips) in by_family(own.iter().copied()) {
            destinations.entry(family).or_default().extend(ips);
        }
        let frontends = self.observed.frontends();
        let own_frontends = frontends.filter(|frontend| item.names.own(json::name(frontend)));
        former.extend(own_frontends.filter_map(|frontend| self.index.address(frontend)));
        former.extend(others.addresses.get(&item.names.base).into_iter().flatten());
        let all: BTreeSet<IpAddr> = own.union(&former).copied().collect();
        let kept = self.kept_ports(item, &all, facts, others);
        let access = settings.and_then(|settings| settings.access.clone());
        if access.as_ref().is_none_or(Access::is_empty) {
            pending.clear();
        }
        let claim = Claim { place, destinations, former: by_family(former), ports: ports.clone(), kept, access };
        Some(SecurityPart { key: item.key.clone(), fingerprint: item.fingerprint, claim, pending })
    }

    fn others(&self, facts: &'a Facts) -> Others<'a> {
        let (mut addresses, mut rules) = (BTreeMap::<String, BTreeSet<IpAddr>>::new(), BTreeMap::<_, Vec<_>>::new());
        let is_going = |name: &str| {
            let mut going = self.wanted.items.values().filter(|it| it.action == ServiceAction::Delete);
            going.any(|it| it.names.own(name))
        };
        for balancer in &self.observed.balancers {
            let frontends = json::items(balancer, "frontendIPConfigurations");
            let id = |frontend| json::text(frontend, &["id"]).to_lowercase();
            let known: BTreeMap<String, IpAddr> =
                frontends.iter().filter_map(|it| Some((id(it), self.index.address(it)?))).collect();
            let of_rules = json::items(balancer, "loadBalancingRules").iter();
            let of_rules = of_rules.map(|rule| (rule, json::reference(rule, "frontendIPConfiguration").to_lowercase()));
            let own = frontends.iter().map(|frontend| (frontend, id(frontend)));
            for (object, frontend) in of_rules.chain(own) {
                let name = json::name(object);
                let Some(ip) = known.get(&frontend).filter(|_| claim::is_of_some_service(name)) else { continue };
                let base = name.get(..32).unwrap_or(name).to_lowercase();
                addresses.entry(base).or_default().insert(*ip);
                // A frontend has no port.
                if json::number(object, &["properties", "frontendPort"]).is_some() && !is_going(name) {
                    rules.entry(*ip).or_default().push(object);
                }
            }
        }
        // Those that this plan makes do not show yet.
        for (place, reached) in &self.reached {
            let Some(item) = self.wanted.items.get(place) else { continue };
            let known =
                reached.iter().filter_map(|reached| if let Reached::Known(ip) = reached { Some(*ip) } else { None });
            addresses.entry(item.names.base.to_lowercase()).or_default().extend(known);
        }
        let mut services = BTreeMap::<_, Vec<_>>::new();
        for service in facts.services.iter().filter(|service| self.index.is_live(service)) {
            let seen = addresses.get(&service.base).into_iter().flatten();
            for ip in service.published.iter().chain(&service.destinations.additional).chain(seen) {
                services.entry(*ip).or_default().push(service);
            }
        }
        Others { addresses, services, rules, holders: self.holders() }
    }

    /// The ports of other Services of the same destinations.
    fn kept_ports(
        &self,
        item: &Item,
        destinations: &BTreeSet<IpAddr>,
        facts: &Facts,
        others: &Others<'_>,
    ) -> BTreeMap<String, BTreeSet<i32>> {
        let at_nodes = |service: &&ServiceFacts| self.index.is_live(service) && !service.destinations.has_floating_ip;
        let services: Vec<&ServiceFacts> = match item.access.has_floating_ip {
            true => destinations.iter().filter_map(|ip| others.services.get(ip)).flatten().copied().collect(),
            false => facts.services.iter().filter(at_nodes).collect(),
        };
        let mut kept = BTreeMap::<String, BTreeSet<i32>>::new();
        for service in services.into_iter().filter(|service| service.key != item.key) {
            for (protocol, ports) in &service.destinations.ports {
                kept.entry(protocol.clone()).or_default().extend(ports);
            }
        }
        // The rules of other Services on the same frontends.
        let rules = destinations.iter().filter(|_| item.access.has_floating_ip).filter_map(|ip| others.rules.get(ip));
        for rule in rules.flatten().filter(|rule| !item.names.own(json::name(rule))) {
            let port = json::number(rule, &["properties", "frontendPort"]).unwrap_or_default();
            let protocol = json::property(rule, "protocol").to_owned();
            kept.entry(protocol).or_default().extend(i32::try_from(port));
        }
        kept
    }
}

/// The destinations that belong to a Service or a node.
fn keep(facts: &Facts, parts: &[SecurityPart]) -> Keep {
    let of_services = facts.services.iter().flat_map(|service| {
        let ips = service.published.iter().chain(&service.destinations.additional);
        ips.map(ToString::to_string)
    });
    let mut keep = Keep {
        own: of_services.collect(),
        nodes: facts.nodes.iter().map(ToString::to_string).collect(),
        ..Keep::default()
    };
    for service in facts.services.iter().filter(|service| !service.is_going && !service.destinations.has_floating_ip) {
        let ports = &service.destinations.ports;
        security::add_ports(&mut keep.node_ports, ports);
        service.ranges.iter().for_each(|range| keep.add_range(range, ports));
    }
    for part in parts {
        for destination in part.claim.destinations.values().flatten() {
            match destination.contains('/') {
                true => keep.add_range(destination, &part.claim.ports),
                false => drop(keep.own.insert(destination.clone())),
            }
        }
    }
    keep
}

impl SecurityChange {
    /// The destinations that belong to nobody.
    pub(crate) fn stale(&self) -> Vec<String> {
        let all = |group: &Value| -> BTreeSet<(String, String)> {
            let rules = security::destinations(group).map(|(name, of)| (name.to_owned(), of));
            rules.flat_map(|(name, of)| of.into_iter().map(move |it| (name.clone(), it))).collect()
        };
        let (after, _) = security::after(&self.before, &[], Some(&self.keep));
        let gone: BTreeSet<String> = all(&self.before).difference(&all(&after)).map(|(_, it)| it.clone()).collect();
        gone.into_iter().collect()
    }

    /// The group with all rules, for the group as it is now, and the Services that do not fit.
    pub(crate) fn after(
        &self,
        env: &Env,
        now: &Value,
        address: impl Fn(&Reached) -> Option<IpAddr>,
    ) -> (Value, BTreeMap<usize, ProviderError>) {
        let mut keep = self.keep.clone();
        let mut claims = Vec::new();
        for part in &self.parts {
            let found: Vec<IpAddr> = part.pending.iter().filter_map(&address).collect();
            // Its load balancer could not be made: nothing is known about its destinations.
            if found.len() < part.pending.len() && found.is_empty() {
                continue;
            }
            let mut claim = part.claim.clone();
            for (family, ips) in by_family(found) {
                keep.own.extend(ips.iter().cloned());
                claim.destinations.entry(family).or_default().extend(ips);
            }
            claims.push(claim);
        }
        let (mut after, failed) = security::after(now, &claims, Some(&keep));
        tags::set_configured(&mut after, &env.tags, &env.system_tags);
        (after, failed)
    }
}
