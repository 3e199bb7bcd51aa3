//! The nodes behind the load balancers, as destinations of security rules without floating IP. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use serde_json::Value;

use super::super::json;
use super::super::machines::Machine;
use super::super::members::{Members, scheme_of};
use super::super::names;
use super::super::observed::{Facts, ServiceFacts};
use super::super::wanted::hosts::{Host, addresses_of};
use super::Planner;
use super::security::{Keep, Ports, add_ports};

/// The load balancers whose pools of all nodes Services use, by base name.
pub(super) type Holders = BTreeMap<String, String>;

impl Planner<'_> {
    pub(super) fn holders(&self) -> Holders {
        let mut holders = Holders::new();
        for body in self.bodies() {
            for rule in json::items(body, "loadBalancingRules") {
                let pool = json::reference(rule, "backendAddressPool").rsplit('/').next().unwrap_or_default();
                if names::is_pool_of_all(&self.wanted.cluster, pool)
                    && let Some(base) = json::name(rule).get(..32)
                {
                    holders.insert(base.to_lowercase(), json::name(body).to_owned());
                }
            }
        }
        holders
    }

    /// The addresses of all nodes.
    pub(super) fn host_addresses(&self, facts: &Facts) -> BTreeSet<IpAddr> {
        match &self.wanted.hosts {
            Some(hosts) => addresses_of(hosts.values()),
            None => facts.nodes.clone(),
        }
    }

    /// The addresses of the nodes behind a load balancer; `None` if these are all nodes, or not known.
    pub(super) fn addresses_behind(&self, balancer: &str) -> Option<BTreeSet<IpAddr>> {
        let hosts = self.wanted.hosts.as_ref()?;
        let members = |observed: &Value| -> Option<BTreeSet<IpAddr>> {
            let pools: Vec<&Value> = self.pools_of_all(observed).collect();
            let machines = pools.iter().map(|pool| self.machines_of(pool)).collect::<Option<Vec<_>>>()?;
            let machines: BTreeSet<String> = machines.into_iter().flatten().collect();
            let is_in = |host: &Host| {
                let is_member = |ip: &IpAddr| self.index.has_member(observed, *ip);
                host.addresses.iter().any(is_member)
                    || Machine::of(&host.provider_id).is_some_and(|it| machines.contains(&it.id().folded()))
            };
            (!pools.is_empty()).then(|| addresses_of(hosts.values().filter(|host| is_in(host))))
        };
        let observed = json::named(&self.observed.balancers, balancer);
        if self.env.leaves_members(scheme_of(balancer)) {
            return members(observed?);
        }
        let places = self.places.as_ref()?;
        let plain = names::without_internal(balancer).0;
        let nodes = places.iter().find(|(name, _)| json::same(name, plain)).map(|(_, nodes)| nodes);
        let Some(nodes) = nodes.filter(|nodes| !nodes.is_empty()) else {
            // One without nodes of its own keeps those that it has, and a new one gets all.
            return members(observed?).filter(|members| !members.is_empty());
        };
        let mut behind = addresses_of(hosts.iter().filter(|(name, _)| nodes.contains(*name)).map(|(_, host)| host));
        // Those that move stay until they have left the pool: rules are written before members leave.
        let stays = |ip: &IpAddr| observed.is_some_and(|body| self.index.has_member(body, *ip));
        behind.extend(addresses_of(hosts.values()).into_iter().filter(stays));
        Some(behind)
    }

    /// The machines in a pool of interfaces, by ID in lower case; `None` if some are not known.
    fn machines_of(&self, pool: &Value) -> Option<BTreeSet<String>> {
        let members = Members::of(pool);
        let owners = &self.observed.interfaces.owners;
        let is_known = members.interfaces.iter().all(|interface| owners.contains_key(interface));
        is_known.then(|| members.machines(owners))
    }

    /// Nodes that join the load balancers of Services without a part in this plan are their destinations at once: at the
    /// ports of the rules that these have, and at those that they ask for.
    pub(super) fn add_joining(&self, facts: &Facts, holders: &Holders, parts: &BTreeSet<&str>, keep: &mut Keep) {
        let Some(hosts) = &self.wanted.hosts else { return };
        let is_due = |service: &&ServiceFacts| self.index.is_live(service) && !parts.contains(&*service.key);
        let mut due = BTreeMap::<&str, Ports>::new();
        for service in facts.services.iter().filter(is_due) {
            let base = service.base.to_lowercase();
            let Some(holder) = holders.get(&base) else { continue };
            let ports = due.entry(holder).or_default();
            for (protocol, used) in keep.unsettled.get(&base).into_iter().flatten() {
                ports.entry(protocol.clone()).or_default().extend(used);
            }
            if !service.destinations.has_floating_ip {
                add_ports(ports, &service.destinations.ports);
            }
        }
        for (holder, ports) in due.into_iter().filter(|(_, ports)| !ports.is_empty()) {
            let all = || self.env.several.is_empty().then(|| addresses_of(hosts.values()));
            let behind = self.addresses_behind(holder).or_else(all).into_iter().flatten();
            keep.joining.push((ports, behind.map(|ip| ip.to_string()).collect()));
        }
    }
}
