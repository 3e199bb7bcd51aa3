//! The firewall rules of a load balancer. Pure.

use std::collections::BTreeSet;

use ccm_kit::balancer::{Kind, Part};
use ccm_provider::{ProviderError, Verb};
use serde_json::{Value, json};

use super::super::env::Env;
use super::super::firewall::{Admission, Command, WantedRule, covers};
use super::super::observed::Observed;
use super::super::step::{Act, FirewallWrite, RESERVED, Rank};
use super::super::tags::{self, Computed};
use super::super::wanted::{HOSTS, Item, MOST_PORTS, Settings};
use super::super::{parts, ports};
use super::checks::Check;
use super::{Draft, change, update, what};
use crate::annotations::Scheme;
use crate::client::balancing::{Firewall, ForwardingRule};
use crate::client::operation::{FIREWALL_CREATE, FIREWALL_DELETE, FIREWALL_PATCH};
use crate::client::resource::{Collection, last_part, same_url};

const KIND: &str = "Firewall";
/// The priority of deny rules, and of other rules if nothing is denied.
const PRIORITY: i64 = 1000;
const PRIORITY_ABOVE_DENY: i64 = 999;

/// A rule, and whether Services share it.
type Shared = (WantedRule, bool);

impl Draft<'_> {
    /// The tags of the hosts of this kind of balancer.
    fn computed_tags(&self, kind: Scheme) -> Computed {
        let hosts = match kind {
            Scheme::External => self.item.hosts.all(),
            Scheme::Internal => super::group_hosts(self.observed, &self.item.hosts),
        };
        tags::computed(&self.observed.tags, &hosts)
    }

    /// The reason why the tags of some hosts are not known.
    fn unread_tags(&self) -> Option<&'_ ProviderError> {
        let mut zones = self.item.hosts.known.keys().map(|host| &host.zone);
        zones.find_map(|zone| self.observed.unread(Collection::Instances, zone))
    }

    /// Whether some hosts may have other tags than the known ones.
    fn lacks_tags(&self) -> bool {
        let is_partial = || !self.item.hosts.unplaced.is_empty() || self.unread_tags().is_some();
        self.env.node_tags.is_empty() && (self.untagged.is_some() || is_partial())
    }

    /// The tags of the nodes, as far as they are known; `None` without nodes.
    fn target_tags(&mut self) -> Option<Vec<String>> {
        if !self.env.node_tags.is_empty() {
            let tags: BTreeSet<&String> = self.env.node_tags.iter().collect();
            return Some(tags.into_iter().cloned().collect());
        }
        let computed = self.computed_tags(self.item.scheme);
        if let Some(error) = self.unread_tags().cloned() {
            self.untagged = Some(error.clone()).filter(|_| computed.tags.is_empty());
            self.partly = Some(error);
        }
        if let Some(problem) = computed.problem() {
            self.note_untagged(&problem);
            self.untagged = Some(ProviderError::unknown(problem));
        }
        let tags: Vec<String> = computed.tags.into_iter().collect();
        Some(tags).filter(|tags| !tags.is_empty() || self.untagged.is_some())
    }

    fn note_untagged(&mut self, problem: &str) {
        let finding = self.item.finding(HOSTS, format!("{problem}; the firewall rules keep their other tags"));
        if !self.findings.contains(&finding) {
            self.findings.push(finding);
        }
    }

    /// Plans the rules for traffic to this address and for health checks; an empty address is known once the forwarding
    /// rule exists. Without nodes there are none: a rule without target tags would open every instance of the network.
    pub(super) fn firewalls(
        &mut self,
        settings: &Settings,
        address: &str,
        check: &Check,
        replaced: Option<&ForwardingRule>,
    ) -> Result<(), ProviderError> {
        let Some(tags) = self.target_tags() else { return Ok(()) };
        let (ip, rank) = match address {
            "" => (RESERVED, Rank::LateFirewalls),
            address => (address, Rank::Firewalls),
        };
        for (wanted, is_shared) in self.wanted_firewalls(settings, ip, check, tags) {
            let before = self.steps.len();
            // A shared rule is for no address.
            let rank = if is_shared { Rank::Firewalls } else { rank };
            let found = self.observed.firewalls.get(&wanted.name);
            match found.zip(replaced).filter(|_| !is_shared && rank == Rank::Firewalls) {
                Some((found, replaced)) => self.firewall_of_next(&wanted, found, replaced)?,
                None => self.firewall(&wanted, rank, is_shared)?,
            }
            self.is_for_checks(before, &wanted.name);
        }
        Ok(())
    }

    /// Updates the rule for a forwarding rule that replaces another one, which may never be: first it serves the current
    /// one, then both, at last the next one.
    fn firewall_of_next(
        &mut self,
        wanted: &WantedRule,
        found: &Firewall,
        replaced: &ForwardingRule,
    ) -> Result<(), ProviderError> {
        let now = wanted.as_before(found, &replaced.ip_address);
        let both = now.clone().and(wanted);
        let mut before = found.clone();
        for (next, rank) in [(&now, Rank::Firewalls), (&both, Rank::BothFirewalls), (wanted, Rank::LateFirewalls)] {
            if !next.differences(&before).is_empty() {
                self.firewall(next, rank, false)?;
            }
            before = next.rule();
        }
        Ok(())
    }

    /// Rules for health checks fail apart from those for traffic.
    fn is_for_checks(&mut self, before: usize, name: &str) {
        let is_lowered = self.steps.iter().any(|step| step.rank == Rank::NoDeny);
        let is_of_checks = name != self.item.names.firewall();
        for step in self.steps.iter_mut().skip(before).filter(|_| is_of_checks) {
            step.part = Part::of(Kind::Rules, "checks");
            step.needs = match step.rank {
                Rank::Firewalls if is_lowered => parts::NOTHING_DENIED,
                Rank::LateFirewalls if is_lowered => parts::ALL_ADMITTED,
                _ => step.needs,
            };
        }
    }

    /// The rule for traffic, and that for health checks.
    fn wanted_firewalls(&self, settings: &Settings, ip: &str, check: &Check, tags: Vec<String>) -> [Shared; 2] {
        let names = &self.item.names;
        let is_external = self.item.scheme == Scheme::External;
        let priority = is_external.then_some(self.priority());
        // The rule of the external balancer that it was, which may be above a rule that denies, is used again.
        let was_external = super::leaving(self.item, self.observed.rule(names)).contains(&Scheme::External);
        let found = self.observed.firewalls.get(&names.firewall());
        let is_above = was_external && found.and_then(|found| found.priority).is_some_and(|now| now != PRIORITY);
        let traffic = WantedRule {
            name: names.firewall(),
            description: names.firewall_description(ip),
            network: self.env.network.clone(),
            sources: settings.sources.clone(),
            destinations: vec![ip.to_owned()],
            tags: tags.clone(),
            traffic: Admission::Allow(settings.protocol.to_lowercase(), settings.ports.clone()),
            priority: priority.or(is_above.then_some(PRIORITY)),
        };
        let (name, description) = match (self.item.scheme, check.is_shared) {
            (Scheme::External, true) => {
                (self.cluster().external_check_firewall(), self.cluster().external_check_firewall_description())
            }
            (Scheme::External, false) => (names.external_check_firewall(), names.firewall_description(ip)),
            (Scheme::Internal, true) => (self.cluster().internal_check_firewall(), String::new()),
            (Scheme::Internal, false) => (names.internal_check_firewall(), String::new()),
        };
        let checks = WantedRule {
            name,
            description,
            sources: self.env.check_sources.clone(),
            // A target pool's checks are sent to the address of each forwarding rule; a shared rule is for all of them.
            destinations: if is_external && !check.is_shared { vec![ip.to_owned()] } else { Vec::new() },
            tags,
            traffic: Admission::Allow("tcp".to_owned(), [check.port].into()),
            priority,
            ..traffic.clone()
        };
        [(traffic, false), (checks, check.is_shared)]
    }

    /// Lets the rules of an existing balancer follow the tags of its hosts. Nothing else of them changes: the Service may
    /// ask for something else by now, which was never ensured. A balancer that was made without hosts has no rules yet;
    /// they are made if the Service still asks for what the balancer serves.
    pub(super) fn tags_follow(&mut self, kind: Scheme, rule: Option<&ForwardingRule>) -> Result<(), ProviderError> {
        if !self.env.node_tags.is_empty() {
            return Ok(());
        }
        let computed = self.computed_tags(kind);
        let problem = computed.problem();
        let names = self.firewall_names(kind);
        let unread_rule = names.iter().find_map(|(name, _)| self.observed.unread(Collection::Firewalls, name));
        self.partly = self.unread_tags().or(unread_rule).cloned();
        for (name, is_shared) in names {
            if let Some(found) = self.observed.firewalls.get(&name) {
                let before = self.steps.len();
                self.retag(found, &computed, is_shared);
                self.is_for_checks(before, &name);
            }
        }
        let settings = self.item.settings.as_ref().filter(|_| problem.is_none() && kind == self.item.scheme);
        if let (Some(settings), Some(rule), false) = (settings, rule, computed.tags.is_empty())
            && self.partly.is_none()
            && serves(rule, settings)
        {
            let check = self.wanted_check(settings);
            let tags: Vec<String> = computed.tags.iter().cloned().collect();
            for (wanted, is_shared) in self.wanted_firewalls(settings, &rule.ip_address, &check, tags) {
                if !self.observed.firewalls.contains_key(&wanted.name) {
                    let before = self.steps.len();
                    self.firewall(&wanted, Rank::Firewalls, is_shared)?;
                    self.is_for_checks(before, &wanted.name);
                }
            }
        }
        if let Some(problem) = problem {
            self.note_untagged(&problem);
        }
        Ok(())
    }

    /// The firewall rules that a balancer of this kind can have, each with whether Services share it.
    fn firewall_names(&self, kind: Scheme) -> [(String, bool); 3] {
        let names = &self.item.names;
        let (own, of_all) = match kind {
            Scheme::External => (names.external_check_firewall(), self.cluster().external_check_firewall()),
            Scheme::Internal => (names.internal_check_firewall(), self.cluster().internal_check_firewall()),
        };
        [(names.firewall(), false), (own, false), (of_all, true)]
    }

    /// Changes only the tags of a rule. While the tag of a host is not known, no tag is removed. A rule without tags is
    /// for all instances.
    fn retag(&mut self, found: &Firewall, computed: &Computed, is_shared: bool) {
        let before: BTreeSet<String> = found.target_tags.iter().cloned().collect();
        let mut tags = computed.tags.clone();
        if !computed.untagged.is_empty() || self.lacks_tags() {
            tags.extend(before.iter().cloned());
        }
        let is_ours = found.network.is_empty() || same_url(&found.network, &self.env.network);
        if !is_ours || tags.is_empty() || before.is_empty() || tags == before {
            return;
        }
        let is_admitted = tags.is_subset(&before);
        let rule = Firewall { target_tags: tags.into_iter().collect(), ..found.clone() };
        // The API requires the name.
        let body = json!({"name": found.name, "targetTags": rule.target_tags});
        let changes = vec![change("targetTags", &found.target_tags.join(","), &rule.target_tags.join(","))];
        let act = self.firewall_patch(body, rule, is_admitted);
        self.push_as(is_shared, Rank::Firewalls, act, update(KIND, changes, "the tags of the hosts have changed"));
    }

    /// A change of some fields of a rule that exists.
    fn firewall_patch(&self, body: Value, rule: Firewall, is_admitted: bool) -> Act {
        Act::Firewall(Box::new(FirewallWrite {
            write: self.write(FIREWALL_PATCH, &rule.name).body(body),
            command: Command::Update,
            rule,
            is_admitted,
            is_deny: false,
            unless_used: None,
            subject: self.item.subject.clone(),
        }))
    }

    /// Lets the rule for the health checks of the external balancer that it was follow its address, which may be another
    /// one after it has come back. That for its traffic is the rule of the next kind, too.
    pub(super) fn former_checks_follow(&mut self, former: &ForwardingRule) {
        let ip = [former.ip_address.clone()];
        let found = self.observed.firewalls.get(&self.item.names.external_check_firewall());
        let is_at = |found: &&Firewall| found.destination_ranges.is_empty() || covers(&found.destination_ranges, &ip);
        let Some(found) = found.filter(|found| !is_at(found) && !former.ip_address.is_empty()) else { return };
        let description = self.item.names.firewall_description(&former.ip_address);
        let body = json!({"name": found.name, "description": description, "destinationRanges": ip});
        let changes = vec![change("destinationRanges", &found.destination_ranges.join(","), &former.ip_address)];
        let rule = Firewall { description, destination_ranges: ip.into(), ..found.clone() };
        let act = self.firewall_patch(body, rule, false);
        let before = self.steps.len();
        self.push(Rank::Firewalls, act, update(KIND, changes, "the forwarding rule has come back at another address"));
        self.is_for_checks(before, &found.name);
    }

    fn priority(&self) -> i64 {
        if self.env.options.denies { PRIORITY_ABOVE_DENY } else { PRIORITY }
    }

    /// Creates or updates a rule. While the tag of a host is not known, no tag is removed. While a host has none, no
    /// rule is created, and none gets its first tags.
    fn firewall(&mut self, wanted: &WantedRule, rank: Rank, is_shared: bool) -> Result<(), ProviderError> {
        let found = self.observed.firewalls.get(&wanted.name);
        let options = &self.env.options;
        let mut wanted = wanted.clone();
        let tagged = found.filter(|found| !found.target_tags.is_empty());
        if let (None, Some(error)) = (tagged, &self.untagged) {
            return Err(error.clone());
        }
        if let Some(found) = tagged.filter(|_| self.lacks_tags()) {
            let all: BTreeSet<String> = wanted.tags.into_iter().chain(found.target_tags.iter().cloned()).collect();
            wanted.tags = all.into_iter().collect();
        }
        // A deny rule may still exist, which is not looked for without the flag: it would block the traffic.
        if self.item.scheme == Scheme::External
            && !options.denies
            && !options.removes_deny_rules
            && found.is_some_and(|it| it.priority == Some(PRIORITY_ABOVE_DENY))
        {
            wanted.priority = wanted.priority.map(|_| PRIORITY_ABOVE_DENY);
        }
        let wanted = &wanted;
        let (write, command, changes) = match found {
            None => (self.write(FIREWALL_CREATE, &wanted.name).body(wanted.body()), Command::Create, Vec::new()),
            Some(found) => {
                must_be_of_network(found, wanted)?;
                let changes = wanted.differences(found);
                if changes.is_empty() {
                    return Ok(());
                }
                (self.write(FIREWALL_PATCH, &wanted.name).body(wanted.patch(found)), Command::Update, changes)
            }
        };
        let what = match command {
            Command::Create => what(Verb::Create, KIND, "the traffic is let in"),
            _ => update(KIND, changes, "it differs from what is needed"),
        };
        let act = Act::Firewall(Box::new(FirewallWrite {
            write,
            command,
            rule: wanted.rule(),
            is_admitted: rank == Rank::BothFirewalls || found.is_some_and(|found| wanted.is_admitted_by(found)),
            is_deny: wanted.traffic == Admission::DenyAll,
            unless_used: None,
            subject: self.item.subject.clone(),
        }));
        self.push_as(is_shared, rank, act, what);
        Ok(())
    }

    /// Creates the rule that denies all other traffic to the address, or deletes it, as the flags require. At an address
    /// that Services share nothing is denied: while the rule of another one has the same priority, it would be cut.
    pub(super) fn deny(&mut self, address: &str) -> Result<(), ProviderError> {
        let name = self.item.names.deny_firewall();
        if !self.env.options.denies {
            // Before the rules above it get a lower priority again.
            if self.env.options.removes_deny_rules && self.observed.firewalls.contains_key(&name) {
                self.delete_firewall(Rank::NoDeny, &name, "denying is switched off");
            }
            return Ok(());
        }
        let reserved = self.observed.reserved.get(address).filter(|_| !self.observed.firewalls.contains_key(&name));
        if let Some(other) = reserved.and_then(|reserved| reserved.other_user(&self.item.names.balancer)) {
            let text = format!("the address {address} is shared with {}: nothing is denied at it", last_part(other));
            self.findings.push(self.item.finding("spec.loadBalancerIP", text));
            return Ok(());
        }
        let Some(tags) = self.target_tags() else { return Ok(()) };
        let ip = if address.is_empty() { RESERVED } else { address };
        let wanted = WantedRule {
            description: self.item.names.firewall_description(ip),
            name,
            network: self.env.network.clone(),
            sources: vec!["0.0.0.0/0".to_owned()],
            destinations: vec![ip.to_owned()],
            tags,
            traffic: Admission::DenyAll,
            priority: Some(PRIORITY),
        };
        self.firewall(&wanted, Rank::Deny, false)
    }

    pub(super) fn delete_firewall(&mut self, rank: Rank, name: &str, reason: &'static str) {
        let act = Act::Firewall(Box::new(self.firewall_deletion(name)));
        self.push(rank, act, what(Verb::Delete, KIND, reason));
    }

    pub(super) fn firewall_deletion(&self, name: &str) -> FirewallWrite {
        FirewallWrite {
            write: self.write(FIREWALL_DELETE, name),
            command: Command::Delete,
            rule: Firewall { name: name.to_owned(), ..Firewall::default() },
            is_admitted: false,
            is_deny: false,
            unless_used: None,
            subject: self.item.subject.clone(),
        }
    }
}

/// The requested address of a Service that is yet to get a rule which denies.
pub(super) fn address_to_deny(env: &Env, observed: &Observed, item: &Item) -> Option<String> {
    let settings = item.settings.as_ref().filter(|_| item.scheme == Scheme::External && !item.hosts_only())?;
    let is_due = env.options.denies && !observed.firewalls.contains_key(&item.names.deny_firewall());
    settings.ip.clone().filter(|_| is_due)
}

/// Whether a forwarding rule is for the protocol and the ports that a Service asks for.
fn serves(rule: &ForwardingRule, settings: &Settings) -> bool {
    let ports = match &*rule.ports {
        [] if rule.all_ports => settings.ports.len() > MOST_PORTS,
        [] => ports::is_same_range(&rule.port_range, &ports::range(&settings.ports)),
        discrete => ports::expanded(discrete).as_ref() == Some(&settings.ports),
    };
    ports && rule.ip_protocol == settings.protocol
}

/// Names of firewall rules are unique in a project, and the network of a rule never changes.
fn must_be_of_network(found: &Firewall, wanted: &WantedRule) -> Result<(), ProviderError> {
    let is_same = found.network.is_empty() || same_url(&found.network, &wanted.network);
    if is_same {
        return Ok(());
    }
    Err(ProviderError::unknown(format!(
        "the firewall rule {} belongs to the network {}, not to {}: delete it: it is created again",
        wanted.name, found.network, wanted.network
    )))
}
