//! Changes of the security group: of all Services together. Pure.
//!
//! All Services first give up their destinations and then take them with their present settings, so that what they had before
//! goes. What other Services have at the same addresses stays. At the end, destinations that belong to nobody are removed.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_provider::ProviderError;
use ipnet::IpNet;
use md5::{Digest as _, Md5};
use serde_json::{Value, json};

use super::super::json::{self, same};
use super::super::names::Family;
use super::super::wanted::access::Access;
use super::super::wanted::refused;

const PREFIX: &str = "k8s-azure-lb";
/// The priorities of managed rules.
const FIRST: i64 = 500;
const LAST: i64 = 4096;
/// The limits of a group.
const MOST_RULES: usize = 1000;
const MOST_ADDRESSES: usize = 4000;
const PROTOCOLS: [&str; 3] = ["Tcp", "Udp", "*"];

/// The part of one Service.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claim {
    pub(crate) place: usize,
    /// Addresses or networks.
    pub(crate) destinations: BTreeMap<Family, BTreeSet<String>>,
    /// Those that it has had too.
    pub(crate) former: BTreeMap<Family, BTreeSet<String>>,
    pub(crate) ports: BTreeMap<String, Vec<i32>>,
    /// The ports of other Services of the same destinations, by protocol.
    pub(crate) kept: Ports,
    /// The destinations that other Services deny to all but their clients.
    pub(crate) denied: BTreeSet<String>,
    /// Whether it keeps for now what it has had: another load balancer serves it until later.
    pub(crate) holds: bool,
    /// `None`: the Service has no rules.
    pub(crate) access: Option<Access>,
}

/// The destinations that belong to somebody.
#[derive(Debug, Clone, Default)]
pub(crate) struct Keep {
    /// Those of Services.
    pub(crate) own: BTreeSet<String>,
    /// Those of nodes.
    pub(crate) nodes: BTreeSet<String>,
    /// The ports for which nodes are destinations.
    pub(crate) node_ports: Ports,
    /// The ports for which a network is a destination in place of the nodes.
    pub(crate) ranges: BTreeMap<String, Ports>,
    /// Those that Services deny to all but their clients.
    pub(crate) denied: BTreeSet<String>,
    /// The ports of load balancing rules without floating IP, by the base name of the Service: whatever that asks for by
    /// now, they lead to nodes or networks that are destinations.
    pub(crate) unsettled: BTreeMap<String, Ports>,
    /// The ports of Services without a part in the change, and all nodes that are their destinations by now, by load balancer.
    pub(crate) joining: Vec<(Ports, BTreeSet<String>)>,
}

/// Ports by protocol.
pub(crate) type Ports = BTreeMap<String, BTreeSet<i32>>;

impl Keep {
    pub(super) fn add_range(&mut self, range: &str, ports: &BTreeMap<String, Vec<i32>>) {
        add_ports(self.ranges.entry(range.to_owned()).or_default(), ports);
    }
}

pub(super) fn add_ports(all: &mut Ports, ports: &BTreeMap<String, Vec<i32>>) {
    for (protocol, ports) in ports {
        all.entry(protocol.clone()).or_default().extend(ports);
    }
}

impl Claim {
    /// The names of its rules.
    pub(crate) fn rules(&self) -> Vec<String> {
        let mut names = Vec::new();
        let Some(access) = &self.access else { return names };
        for family in [Family::V4, Family::V6] {
            names.extend(access.denies.then(|| deny_name(family)));
            for (protocol, ports) in &self.ports {
                let tags = access.tags.iter().map(std::slice::from_ref);
                let sources = tags.chain(access.ranges.get(&family).map(Vec::as_slice));
                names.extend(sources.map(|sources| allow_name(family, protocol, sources, ports)));
            }
        }
        names
    }
}

/// A rule with what changes of it.
#[derive(Debug, Clone)]
struct Rule {
    value: Value,
    name: String,
    priority: i64,
    protocol: String,
    is_managed: bool,
    denies: bool,
    /// `None` if they are not all numbers.
    ports: Option<Vec<i32>>,
    destinations: BTreeSet<String>,
    /// The networks among the destinations that it has in Azure.
    networks: Vec<IpNet>,
    is_changed: bool,
}

/// The rules of a group.
#[derive(Debug, Clone)]
struct Rules {
    rules: Vec<Rule>,
    priorities: BTreeSet<i64>,
}

/// The security group with the changes of the Services, and the Services for which there is no place. `keep`: the
/// destinations that belong to somebody; `None` if that is not known.
pub(crate) fn after(group: &Value, claims: &[Claim], keep: Option<&Keep>) -> (Value, BTreeMap<usize, ProviderError>) {
    let mut failed = BTreeMap::new();
    let mut rules = Rules::of(group);
    for step in [Rules::leave, Rules::take] {
        for claim in claims {
            if let Err(error) = step(&mut rules, claim) {
                failed.insert(claim.place, error);
            }
        }
    }
    if let Some(keep) = keep {
        rules.retain(keep);
    }
    if rules.problem().is_some() && Rules::of(group).problem().is_none() {
        // Somebody has to give way: the last ones that do not fit.
        rules = Rules::of(group);
        rules.take_what_fits(claims, &mut failed);
        if let Some(keep) = keep {
            rules.retain(keep);
        }
    }
    (rules.into_group(group), failed)
}

/// The destinations of the managed rules, by name.
pub(crate) fn destinations(group: &Value) -> impl Iterator<Item = (&str, Vec<String>)> {
    let managed = json::items(group, "securityRules").iter().filter(|rule| Rule::of(rule).is_managed);
    managed.map(|rule| (json::name(rule), both(rule, "destinationAddressPrefix", "destinationAddressPrefixes")))
}

/// Whether the last write of a group has failed: what is shown may not be there.
pub(crate) fn has_failed(group: &Value) -> bool {
    same(json::property(group, "provisioningState"), "Failed")
}

/// The Services among these that have exactly their rules.
pub(crate) fn satisfied<'c>(group: &Value, claims: impl Iterator<Item = &'c Claim>) -> BTreeSet<usize> {
    let all = Rules::of(group);
    claims.filter(|claim| all.satisfies(claim)).map(|claim| claim.place).collect()
}

/// Whether the clients of a Service are admitted, by whatever rules.
pub(crate) fn admits(group: &Value, claim: &Claim) -> bool {
    let Some(access) = &claim.access else { return true };
    let rules = Rules::of(group).rules;
    let has = |protocol: &str, sources: &[String], port: i32, destination: &String| {
        let mut rules = rules.iter().filter(|rule| rule.is_managed && !rule.denies && same(&rule.protocol, protocol));
        rules.any(|rule| {
            let present = rule.sources();
            rule.reaches(destination)
                && rule.ports.as_ref().is_some_and(|ports| ports.contains(&port))
                && sources.iter().all(|source| present.iter().any(|it| same(it, source)))
        })
    };
    claim.ports.iter().all(|(protocol, ports)| {
        claim.destinations.iter().all(|(family, destinations)| {
            let tags = access.tags.iter().map(std::slice::from_ref);
            let mut sources = tags.chain(access.ranges.get(family).map(Vec::as_slice));
            let is_open =
                |sources: &[String], port: i32| destinations.iter().all(|to| has(protocol, sources, port, to));
            sources.all(|sources| ports.iter().all(|port| is_open(sources, *port)))
        })
    })
}

impl Rules {
    fn of(group: &Value) -> Self {
        let rules: Vec<Rule> = json::items(group, "securityRules").iter().map(Rule::of).collect();
        let priorities = rules.iter().map(|rule| rule.priority).collect();
        Self { rules, priorities }
    }

    /// Whether nothing would change for a Service: neither the rules with its destinations, nor new ones.
    fn satisfies(&self, claim: &Claim) -> bool {
        let concerns = |rule: &&Rule| {
            let mut own = claim.destinations.values().chain(claim.former.values()).flatten();
            rule.is_managed && own.any(|own| rule.reaches(own))
        };
        let before: Vec<Rule> = self.rules.iter().filter(concerns).cloned().collect();
        let mut after = Self { rules: before.clone(), priorities: BTreeSet::new() };
        after.leave(claim).and_then(|()| after.take(claim)).is_ok()
            && after.into_values() == before.into_iter().map(|rule| rule.value).collect::<Vec<_>>()
    }

    /// Takes all of them if they fit together, else what fits of each half.
    fn take_what_fits(&mut self, claims: &[Claim], failed: &mut BTreeMap<usize, ProviderError>) {
        let mut with = self.clone();
        let left = claims.iter().try_for_each(|claim| with.leave(claim));
        let taken = left.and_then(|()| claims.iter().try_for_each(|claim| with.take(claim)));
        match (with.problem().map(refused).or(taken.err()), claims) {
            (None, _) => *self = with,
            (Some(error), [claim]) => drop(failed.insert(claim.place, error)),
            (Some(_), []) => {}
            (Some(_), _) => {
                let (first, second) = claims.split_at(claims.len() / 2);
                self.take_what_fits(first, failed);
                self.take_what_fits(second, failed);
            }
        }
    }

    /// What one Service gives up, before any of them takes what it asks for.
    fn leave(&mut self, claim: &Claim) -> Result<(), ProviderError> {
        for (family, destinations) in claim.destinations.iter().chain(&claim.former).filter(|_| !claim.holds) {
            for protocol in PROTOCOLS {
                self.give_up(*family, protocol, destinations, claim)?;
            }
        }
        Ok(())
    }

    /// What one Service asks for.
    fn take(&mut self, claim: &Claim) -> Result<(), ProviderError> {
        let Some(access) = &claim.access else { return Ok(()) };
        for protocol in PROTOCOLS {
            let Some(ports) = claim.ports.get(protocol) else { continue };
            for (family, destinations) in &claim.destinations {
                for tag in &access.tags {
                    self.allow(*family, protocol, std::slice::from_ref(tag), ports, destinations)?;
                }
                if let Some(ranges) = access.ranges.get(family) {
                    self.allow(*family, protocol, ranges, ports, destinations)?;
                }
            }
        }
        if access.denies {
            for (family, destinations) in &claim.destinations {
                self.deny(*family, destinations)?;
            }
        }
        Ok(())
    }

    /// Removes destinations from the managed rules of a protocol, except for what other Services have there.
    fn give_up(
        &mut self,
        family: Family,
        protocol: &str,
        given: &BTreeSet<String>,
        Claim { kept, denied, .. }: &Claim,
    ) -> Result<(), ProviderError> {
        let mut split = Vec::new();
        let none = BTreeSet::new();
        let kept = kept.get(protocol).unwrap_or(&none);
        for rule in self.rules.iter_mut().filter(|rule| rule.is_managed && same(&rule.protocol, protocol)) {
            let stays = |target: &String| rule.denies && denied.contains(target);
            let targets: Vec<String> = rule.destinations.intersection(given).filter(|it| !stays(it)).cloned().collect();
            if targets.is_empty() {
                continue;
            }
            let left = match &rule.ports {
                _ if rule.denies && kept.is_empty() => Vec::new(),
                // Not a rule of this program.
                None => continue,
                Some(ports) => ports.iter().copied().filter(|port| kept.contains(port)).collect(),
            };
            if !rule.denies && rule.ports.as_ref().is_some_and(|ports| ports.len() == left.len()) {
                continue;
            }
            rule.destinations.retain(|destination| !targets.contains(destination));
            rule.is_changed = true;
            if !left.is_empty() {
                split.push((rule.sources(), left, targets));
            }
        }
        for (sources, ports, targets) in split {
            self.allow(family, protocol, &sources, &ports, &targets.into_iter().collect())?;
        }
        Ok(())
    }

    fn allow(
        &mut self,
        family: Family,
        protocol: &str,
        sources: &[String],
        ports: &[i32],
        destinations: &BTreeSet<String>,
    ) -> Result<(), ProviderError> {
        let name = allow_name(family, protocol, sources, ports);
        let ports = sorted_ports(ports);
        let mut sources = sources.to_vec();
        sources.sort();
        let (one, many) = match &sources[..] {
            [one] => (json!(one), Value::Null),
            _ => (Value::Null, json!(sources)),
        };
        // Azure refuses a rule with two forms of one thing: what somebody has written in the other form goes.
        let properties = json!({
            "protocol": protocol, "access": "Allow", "direction": "Inbound",
            "sourceAddressPrefix": one, "sourceAddressPrefixes": many, "sourceApplicationSecurityGroups": null,
            "sourcePortRange": "*", "sourcePortRanges": null,
            "destinationPortRange": null, "destinationPortRanges": ports, "destinationApplicationSecurityGroups": null,
        });
        self.extend(&name, true, &properties, destinations)
    }

    fn deny(&mut self, family: Family, destinations: &BTreeSet<String>) -> Result<(), ProviderError> {
        let name = deny_name(family);
        let properties = json!({
            "protocol": "*", "access": "Deny", "direction": "Inbound",
            "sourceAddressPrefix": "*", "sourceAddressPrefixes": null, "sourceApplicationSecurityGroups": null,
            "sourcePortRange": "*", "sourcePortRanges": null,
            "destinationPortRange": "*", "destinationPortRanges": null, "destinationApplicationSecurityGroups": null,
        });
        self.extend(&name, false, &properties, destinations)
    }

    /// Adds destinations to a rule, which is made if it does not exist.
    fn extend(
        &mut self,
        name: &str,
        from_start: bool,
        properties: &Value,
        destinations: &BTreeSet<String>,
    ) -> Result<(), ProviderError> {
        let place = match self.rules.iter().position(|rule| rule.name == name) {
            Some(place) => place,
            None => {
                let priority = self.free(from_start)?;
                self.priorities.insert(priority);
                self.rules.push(Rule::of(&json!({"name": name, "properties": {"priority": priority}})));
                self.rules.len() - 1
            }
        };
        let Some(rule) = self.rules.get_mut(place) else { return Ok(()) };
        rule.destinations.extend(destinations.iter().cloned());
        rule.set(properties);
        rule.is_changed = true;
        Ok(())
    }

    fn free(&self, from_start: bool) -> Result<i64, ProviderError> {
        let is_free = |priority: &i64| !self.priorities.contains(priority);
        let free = if from_start { (FIRST..LAST).find(is_free) } else { (FIRST..LAST).rev().find(is_free) };
        free.ok_or_else(|| refused("the security group has no free priority from 500 to 4095; remove rules of users"))
    }

    fn retain(&mut self, keep: &Keep) {
        let is_unsettled = |rule: &Rule| keep.unsettled.values().any(|ports| rule.has_any(ports));
        // Who denies a network admits somebody there.
        let admitting = self.rules.iter().filter(|rule| rule.is_managed && !rule.denies && is_unsettled(rule));
        let admitted: BTreeSet<String> = admitting.flat_map(|rule| rule.destinations.iter().cloned()).collect();
        for rule in self.rules.iter_mut().filter(|rule| rule.is_managed) {
            // Of no rule whose Service is gone or has floating IP again.
            let is_unsettled = is_unsettled(rule);
            let has_nodes = is_unsettled || rule.has_any(&keep.node_ports);
            let stays = |destination: &&String| {
                keep.own.contains(*destination)
                    || has_nodes && keep.nodes.contains(*destination)
                    || is_unsettled && destination.contains('/') && admitted.contains(*destination)
                    || keep.ranges.get(*destination).is_some_and(|ports| rule.has_any(ports))
            };
            let mut left: BTreeSet<String> = rule.destinations.iter().filter(stays).cloned().collect();
            // Also one whose nodes are all gone.
            let is_node = |it: &String| keep.nodes.contains(it) || !keep.own.contains(it) && !it.contains('/');
            if has_nodes && !rule.denies && rule.destinations.iter().any(is_node) {
                let is_v6 = rule.destinations.first().is_some_and(|address| address.contains(':'));
                let joining = keep.joining.iter().filter(|(ports, _)| rule.has_any(ports)).flat_map(|(_, nodes)| nodes);
                left.extend(joining.filter(|node| node.contains(':') == is_v6).cloned());
            }
            if rule.denies {
                // A network that goes has covered those of other Services.
                left.extend(keep.denied.iter().filter(|it| rule.networks.iter().any(|net| is_in(it, net))).cloned());
            }
            rule.is_changed |= left != rule.destinations;
            rule.destinations = left;
        }
    }

    /// The limit that the rules exceed.
    fn problem(&self) -> Option<String> {
        let left: Vec<&Rule> = self.rules.iter().filter(|rule| !rule.is_dropped()).collect();
        let sources: usize = left.iter().map(|rule| rule.sources().len()).sum();
        let destinations: usize = left.iter().map(|rule| least(&rule.destinations).len()).sum();
        let over = |what: &str, count: usize, most: usize, fix: &str| {
            (count > most).then(|| {
                format!("the security group would exceed the maximum number of {what} ({count} > {most}); {fix}")
            })
        };
        over("rules", left.len(), MOST_RULES, "use fewer different ports and source ranges")
            .or_else(|| over("source IP addresses", sources, MOST_ADDRESSES, "use fewer source ranges"))
            .or_else(|| {
                let fix = "enable floating IP, or set service.beta.kubernetes.io/azure-allowed-destination-ip-ranges";
                over("destination IP addresses", destinations, MOST_ADDRESSES, fix)
            })
    }

    fn into_values(self) -> Vec<Value> {
        self.rules.into_iter().filter(|rule| !rule.is_dropped()).map(Rule::into_value).collect()
    }

    fn into_group(self, group: &Value) -> Value {
        let rules = self.into_values();
        let mut after = group.clone();
        if rules != json::items(group, "securityRules") {
            *json::items_mut(&mut after, "securityRules") = rules;
        }
        after
    }
}

impl Rule {
    fn of(value: &Value) -> Self {
        let name = json::name(value).to_owned();
        let priority = json::number(value, &["properties", "priority"]).unwrap_or_default();
        let ports = both(value, "destinationPortRange", "destinationPortRanges");
        let destinations = both(value, "destinationAddressPrefix", "destinationAddressPrefixes").into_iter().collect();
        Self {
            // Azure keeps the case of names, and this program and the Go one write theirs in one: any other is of users.
            is_managed: name.starts_with(PREFIX) && (FIRST..=LAST).contains(&priority),
            name,
            priority,
            protocol: json::property(value, "protocol").to_owned(),
            denies: same(json::property(value, "access"), "Deny"),
            ports: ports.iter().map(|port| port.parse().ok()).collect(),
            networks: networks(&destinations),
            destinations,
            value: value.clone(),
            is_changed: false,
        }
    }

    fn sources(&self) -> Vec<String> {
        both(&self.value, "sourceAddressPrefix", "sourceAddressPrefixes")
    }

    fn set(&mut self, properties: &Value) {
        let differs = |(field, wanted): (&String, &Value)| {
            let present = json::at(&self.value, &["properties", field]);
            let is_empty = |value: &Value| value.is_null() || value.as_array().is_some_and(Vec::is_empty);
            match (present.as_str(), wanted.as_str()) {
                (Some(present), Some(wanted)) => !same(present, wanted),
                _ => present != wanted && !(is_empty(present) && is_empty(wanted)),
            }
        };
        if properties.as_object().is_some_and(|fields| fields.iter().any(differs)) {
            json::overlay(&mut self.value, &json!({"properties": properties}));
        }
        json::property(&self.value, "protocol").clone_into(&mut self.protocol);
        self.denies = same(json::property(&self.value, "access"), "Deny");
        let ports = both(&self.value, "destinationPortRange", "destinationPortRanges");
        self.ports = ports.iter().map(|port| port.parse().ok()).collect();
        self.is_managed = true;
    }

    /// Whether a destination is one of the rule's, or in one of its networks.
    fn reaches(&self, destination: &str) -> bool {
        self.destinations.contains(destination) || self.networks.iter().any(|net| is_in(destination, net))
    }

    /// Whether it is for one of these ports.
    fn has_any(&self, used: &Ports) -> bool {
        let ports = || self.ports.iter().flatten();
        let mut used = used.iter().filter(|(protocol, _)| self.denies || same(protocol, &self.protocol));
        used.any(|(_, used)| self.denies || self.ports.is_none() || ports().any(|port| used.contains(port)))
    }

    /// A managed rule without destinations. Rules of users may have none, or application security groups.
    fn is_dropped(&self) -> bool {
        let groups = json::items(&self.value, "destinationApplicationSecurityGroups");
        self.is_managed && self.destinations.is_empty() && groups.is_empty()
    }

    fn into_value(self) -> Value {
        let mut value = self.value;
        let before: BTreeSet<String> =
            both(&value, "destinationAddressPrefix", "destinationAddressPrefixes").into_iter().collect();
        let destinations = least(&self.destinations);
        if !self.is_changed || before.iter().eq(destinations.iter().copied()) {
            return value;
        }
        let (one, many) = match &destinations[..] {
            [one] => (json!(one), Value::Null),
            _ => (Value::Null, json!(destinations)),
        };
        let properties = json!({"destinationAddressPrefix": one, "destinationAddressPrefixes": many});
        json::overlay(&mut value, &json!({"properties": properties}));
        value
    }
}

fn networks(destinations: &BTreeSet<String>) -> Vec<IpNet> {
    destinations.iter().filter(|it| it.contains('/')).filter_map(|it| it.parse().ok()).collect()
}

/// Whether a destination is in a network, or is that.
fn is_in(destination: &str, net: &IpNet) -> bool {
    match destination.parse::<IpNet>() {
        Ok(other) => net.contains(&other),
        Err(_) => destination.parse::<IpAddr>().is_ok_and(|ip| net.contains(&ip)),
    }
}

/// The destinations without those in a network of the others: Azure refuses both in one rule.
fn least(destinations: &BTreeSet<String>) -> Vec<&String> {
    let networks = networks(destinations);
    let is_least = |it: &&String| !networks.iter().any(|net| it.parse() != Ok(*net) && is_in(it, net));
    destinations.iter().filter(is_least).collect()
}

/// The texts of a property that has a singular and a plural form.
fn both(value: &Value, one: &str, many: &str) -> Vec<String> {
    let one = Some(json::property(value, one)).filter(|text| !text.is_empty());
    let many = json::items(value, many).iter().filter_map(Value::as_str);
    one.into_iter().chain(many).map(str::to_owned).collect()
}

/// Sorted as texts.
fn sorted_ports(ports: &[i32]) -> Vec<String> {
    let mut ports: Vec<String> = ports.iter().map(ToString::to_string).collect();
    ports.sort();
    ports
}

fn deny_name(family: Family) -> String {
    format!("{PREFIX}_deny-all_{}", family.as_str())
}

/// The name of a rule: from what it allows.
fn allow_name(family: Family, protocol: &str, sources: &[String], ports: &[i32]) -> String {
    let mut sources = sources.to_vec();
    sources.sort();
    let text = format!("{protocol}_{}_{}", sources.join(","), sorted_ports(ports).join(","));
    let hash: String = Md5::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{PREFIX}_allow_{}_{hash}", family.as_str())
}

/// Addresses as destinations, by family.
pub(super) fn by_family(addresses: impl IntoIterator<Item = IpAddr>) -> BTreeMap<Family, BTreeSet<String>> {
    let mut destinations = BTreeMap::<Family, BTreeSet<String>>::new();
    for address in addresses {
        destinations.entry(Family::of(address)).or_default().insert(address.to_string());
    }
    destinations
}

#[cfg(test)]
#[path = "tests/security.rs"]
mod tests;
