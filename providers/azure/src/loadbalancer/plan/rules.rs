//! The part of each Service in the security group. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_provider::{ProviderError, ServiceAction};
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
use super::security::{self, Claim, Keep, Ports, by_family, has_failed};
use super::service::Reached;
use super::step::{Results, SecurityChange, SecurityPart};
use super::{Planner, admission};

/// What is where a Service is, besides it: for all Services, so that they do not look through each other's objects.
struct Others<'a> {
    /// The addresses of Services as the load balancers show them, by base name.
    addresses: BTreeMap<String, BTreeSet<IpAddr>>,
    /// The Services that stay, by address.
    services: BTreeMap<IpAddr, Vec<&'a ServiceFacts>>,
    /// The load balancing rules of Services that stay, by the address of the frontend.
    rules: BTreeMap<IpAddr, Vec<&'a Value>>,
    holders: Holders,
    /// See [`Keep`].
    unsettled: BTreeMap<String, Ports>,
    /// The destinations of all rules.
    admitted: BTreeSet<String>,
}

impl Others<'_> {
    /// Whether nodes, whichever, are or have been destinations of a Service.
    fn is_at_nodes(&self, item: &Item) -> bool {
        !item.access.has_floating_ip || self.unsettled.contains_key(&item.names.base.to_lowercase())
    }
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
        let (mut parts, mut lost) = (Vec::new(), BTreeSet::new());
        for (place, item) in &self.wanted.items {
            let Some(mut part) = self.part(*place, item, facts, &others) else { continue };
            if let Some(refusal) = self.observed.refused_rules.get(&item.key) {
                self.failed.entry(*place).or_insert_with(|| refusal.clone());
                lost.insert(*place);
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
        keep.unsettled.clone_from(&others.unsettled);
        let frontends = self.observed.frontends();
        keep.own.extend(frontends.filter_map(|frontend| self.index.address(frontend)).map(|ip| ip.to_string()));
        let keys = parts.iter().filter_map(|part| Some(&*self.wanted.items.get(&part.claim.place)?.key)).collect();
        self.add_joining(facts, &others.holders, &keys, &mut keep);
        keep.nodes.extend(self.host_addresses(facts).iter().map(ToString::to_string));
        let live = facts.services.iter().filter(|service| self.index.is_live(service));
        keep.denied = live.flat_map(|service| self.denied_by(service, facts)).collect();
        self.keep_served(&lost);
        self.security_steps(group, parts, &keep);
    }

    /// The Services that need security rules fail; those that need none only if that may hide some.
    fn fail_rules(&mut self, error: &ProviderError, is_absent: bool) {
        let mut without = BTreeSet::new();
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
                let access = item.settings.as_ref().and_then(|settings| settings.access.as_ref());
                without.extend(access.is_some_and(|access| !access.is_empty()).then_some(*place));
            }
        }
        self.keep_served(&without);
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
                own.extend(hosts.unwrap_or(all).into_iter().filter(is_of));
            }
        }
        if others.is_at_nodes(item) {
            former.extend(self.host_addresses(facts));
        }
        for (family, ips) in by_family(own.iter().copied()) {
            destinations.entry(family).or_default().extend(ips);
        }
        let frontends = self.observed.frontends();
        let own_frontends = frontends.filter(|frontend| item.names.own(json::name(frontend)));
        former.extend(own_frontends.filter_map(|frontend| self.index.address(frontend)));
        former.extend(others.addresses.get(&item.names.base).into_iter().flatten());
        let all: BTreeSet<IpAddr> = own.union(&former).copied().collect();
        let (kept, denied) = self.kept(item, &all, facts, others);
        let access = settings.and_then(|settings| settings.access.clone());
        if access.as_ref().is_none_or(Access::is_empty) {
            pending.clear();
        }
        let (former, ports) = (by_family(former), ports.clone());
        let claim = Claim { place, destinations, former, ports, kept, denied, holds: false, access };
        let (key, base) = (item.key.clone(), item.names.base.to_lowercase());
        Some(SecurityPart { key, fingerprint: item.fingerprint, base, claim, pending, frames: Vec::new() })
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
        let admitted = match &self.observed.security_group {
            Some(Seen::Present(group)) => security::destinations(group).flat_map(|(_, all)| all).collect(),
            _ => BTreeSet::new(),
        };
        Others { addresses, services, rules, holders: self.holders(), unsettled: self.unsettled(facts), admitted }
    }

    /// The ports of nodes to which the rules without floating IP of Services that stay lead.
    fn unsettled(&self, facts: &Facts) -> BTreeMap<String, Ports> {
        let live = facts.services.iter().filter(|service| self.index.is_live(service));
        let live: BTreeSet<String> = live.map(|service| service.base.to_lowercase()).collect();
        let mut unsettled = BTreeMap::<String, Ports>::new();
        for rule in self.observed.balancers.iter().flat_map(|balancer| json::items(balancer, "loadBalancingRules")) {
            let base = json::name(rule).get(..32).unwrap_or_default().to_lowercase();
            let port = json::number(rule, &["properties", "backendPort"]).and_then(|port| i32::try_from(port).ok());
            let floats = json::at(rule, &["properties", "enableFloatingIP"]) == true;
            if let Some(port) = port.filter(|_| !floats && live.contains(&base)) {
                let protocol = json::property(rule, "protocol").to_owned();
                unsettled.entry(base).or_default().entry(protocol).or_default().insert(port);
            }
        }
        unsettled
    }

    /// What other Services have at the same destinations: their ports, and the addresses that they deny. Services share an
    /// address whether or not they have floating IP.
    fn kept(
        &self,
        item: &Item,
        destinations: &BTreeSet<IpAddr>,
        facts: &Facts,
        others: &Others<'_>,
    ) -> (Ports, BTreeSet<String>) {
        let is_other = |service: &&ServiceFacts| service.key != item.key;
        let (mut kept, mut denied) = (Ports::new(), BTreeSet::new());
        for ip in destinations {
            for service in others.services.get(ip).into_iter().flatten().copied().filter(is_other) {
                security::add_ports(&mut kept, &service.destinations.ports);
                denied.extend((service.denies && service.destinations.has_floating_ip).then(|| ip.to_string()));
            }
            // The rules of other Services on the same frontends.
            let rules = others.rules.get(ip).into_iter().flatten();
            for rule in rules.filter(|rule| !item.names.own(json::name(rule))) {
                let port = json::number(rule, &["properties", "frontendPort"]).unwrap_or_default();
                let protocol = json::property(rule, "protocol").to_owned();
                kept.entry(protocol).or_default().extend(i32::try_from(port));
            }
        }
        if !others.is_at_nodes(item) {
            return (kept, denied);
        }
        let at_nodes = |service: &&ServiceFacts| self.index.is_live(service) && !service.destinations.has_floating_ip;
        for service in facts.services.iter().filter(at_nodes).filter(is_other) {
            security::add_ports(&mut kept, &service.destinations.ports);
            denied.extend(self.denied_by(service, facts));
            // Until the rules have its networks, its clients come to the nodes.
            let is_written = service.ranges.iter().any(|range| others.admitted.contains(range));
            if service.denies && !service.ranges.is_empty() && !is_written {
                denied.extend(self.host_addresses(facts).iter().map(ToString::to_string));
            }
        }
        let own = item.names.base.to_lowercase();
        for (protocol, ports) in others.unsettled.iter().filter(|(base, _)| **base != own).flat_map(|(_, ports)| ports)
        {
            kept.entry(protocol.clone()).or_default().extend(ports);
        }
        (kept, denied)
    }

    /// The destinations that a Service denies to all but its clients.
    fn denied_by(&self, service: &ServiceFacts, facts: &Facts) -> Vec<String> {
        let Destinations { additional, has_floating_ip, .. } = &service.destinations;
        let published = &service.published;
        let is_of = |ip: &IpAddr| published.is_empty() || published.iter().any(|own| own.is_ipv4() == ip.is_ipv4());
        let mut all: Vec<String> = additional.iter().map(ToString::to_string).collect();
        match has_floating_ip {
            _ if !service.denies => return Vec::new(),
            true => all.extend(published.iter().map(ToString::to_string)),
            false if service.ranges.is_empty() => {
                let nodes = self.host_addresses(facts).into_iter().filter(is_of);
                all.extend(nodes.map(|ip| ip.to_string()));
            }
            false => all.extend(service.ranges.iter().cloned()),
        }
        all
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
        let (after, _) = security::after(&self.before, &[], self.keep.as_ref());
        let gone: BTreeSet<String> = all(&self.before).difference(&all(&after)).map(|(_, it)| it.clone()).collect();
        gone.into_iter().collect()
    }

    /// The group with all rules, for the group as it is now, and the Services that do not fit.
    pub(crate) fn after(&self, env: &Env, now: &Value, made: &Results) -> (Value, BTreeMap<usize, ProviderError>) {
        // Of others nothing changes: their load balancers could not be made or written.
        let mut parts: Vec<SecurityPart> = self.parts.iter().filter(|part| part.is_due(made)).cloned().collect();
        let mut keep = self.keep.clone();
        for part in &mut parts {
            let found = part.pending.iter().filter_map(|reached| match reached {
                Reached::Known(ip) => Some(*ip),
                Reached::Of(id) => made.addresses.get(&id.folded()).copied(),
            });
            for (family, ips) in by_family(found) {
                keep.iter_mut().for_each(|keep| keep.own.extend(ips.iter().cloned()));
                part.claim.destinations.entry(family).or_default().extend(ips);
            }
        }
        let (mut after, failed) = admission::after(now, &parts, keep.as_ref());
        tags::set_configured(&mut after, &env.tags, &env.system_tags);
        (after, failed)
    }
}
