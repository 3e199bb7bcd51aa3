//! External load balancers: an address, firewall rules, a health check, a target pool, and the forwarding rule. Pure.

use std::collections::BTreeSet;

use ccm_kit::balancer::{Kind as PartKind, Part};
use ccm_provider::{ProviderError, Verb};
use serde_json::json;

use super::super::env::Env;
use super::super::hosts::Host;
use super::super::observed::Observed;
use super::super::step::{Act, Rank, Step};
use super::super::wanted::{Item, MOST_PORTS, Settings};
use super::super::{parts, ports};
use super::address::Kind;
use super::checks::{Check, has_own_check};
use super::members::{self, BATCH, Difference};
use super::{Draft, change, put, what};
use crate::annotations::{Scheme, Tier};
use crate::client::balancing::{ForwardingRule, TargetPool};
use crate::client::operation::{
    HTTP_HEALTH_CHECK_DELETE, TARGET_POOL_ADD, TARGET_POOL_CREATE, TARGET_POOL_DELETE, TARGET_POOL_REMOVE,
};
use crate::client::resource::Collection;

const POOL: &str = "TargetPool";
/// The most instances that the API accepts in a new target pool.
const FIRST_INSTANCES: usize = 200;

/// The tier: that of the annotation, else that of the existing rule or address.
pub(super) fn tier(observed: &Observed, item: &Item, settings: &Settings, rule: Option<&ForwardingRule>) -> Tier {
    let address = observed.addresses.get(&item.names.balancer);
    let found = rule.map(tier_of).or_else(|| address.map(|address| Tier::of(&address.network_tier)));
    settings.tier.or(found).unwrap_or(Tier::Premium)
}

pub(super) fn tier_of(rule: &ForwardingRule) -> Tier {
    Tier::of(&rule.network_tier)
}

/// The requested address: that of the spec, else that of the rule. `None`: any.
pub(super) fn ip(settings: &Settings, rule: Option<&ForwardingRule>, tier: Tier) -> Option<String> {
    // The tier of an address never changes.
    let of_rule = rule.filter(|rule| tier_of(rule) == tier).map(|rule| rule.ip_address.clone());
    settings.ip.clone().or(of_rule).filter(|ip| !ip.is_empty())
}

/// Whether a rule will be created, because there is none or the existing one cannot be updated.
pub(super) fn makes_rule(
    env: &Env,
    observed: &Observed,
    item: &Item,
    settings: &Settings,
    rule: Option<&ForwardingRule>,
) -> bool {
    let pool = observed.pools.get(&item.names.balancer);
    let Some(rule) = rule else { return true };
    pool.is_none_or(|pool| is_replaced(item, settings, pool))
        || !differences(env, observed, item, settings, rule).is_empty()
}

/// The differences of a rule that require its replacement.
fn differences(
    env: &Env,
    observed: &Observed,
    item: &Item,
    settings: &Settings,
    rule: &ForwardingRule,
) -> Vec<ccm_provider::Change> {
    let tier = tier(observed, item, settings, Some(rule));
    let mut changes = Vec::new();
    if tier_of(rule) != tier {
        changes.push(change("networkTier", tier_of(rule).as_str(), tier.as_str()));
    }
    if let Some(ip) = settings.ip.as_ref().filter(|ip| **ip != rule.ip_address) {
        changes.push(change("IPAddress", &rule.ip_address, ip));
    }
    if rule.ip_protocol != settings.protocol {
        changes.push(change("IPProtocol", &rule.ip_protocol, &settings.protocol));
    }
    let range = ports::range(&settings.ports);
    // A rule keeps the form that it was created with.
    let is_same = match &*rule.ports {
        [] => ports::is_same_range(&rule.port_range, &range),
        discrete => ports::expanded(discrete).as_ref() == Some(&settings.ports),
    };
    if !is_same {
        let before = if rule.ports.is_empty() { rule.port_range.clone() } else { rule.ports.join(",") };
        let after = if is_discrete(env, settings) { ports::merged(&settings.ports).join(",") } else { range };
        changes.push(change("portRange", &before, &after));
    }
    changes
}

/// Whether a new rule lists its ports one by one.
fn is_discrete(env: &Env, settings: &Settings) -> bool {
    env.options.discrete_ports && settings.ports.len() <= MOST_PORTS
}

/// The ports of a new rule.
fn rule_ports(env: &Env, settings: &Settings) -> Option<BTreeSet<u16>> {
    let is_discrete = is_discrete(env, settings);
    if is_discrete { Some(settings.ports.clone()) } else { ports::expanded(&[ports::range(&settings.ports)]) }
}

/// Whether a pool has to be replaced: its affinity, which is immutable, or its health check is a different one.
fn is_replaced(item: &Item, settings: &Settings, pool: &TargetPool) -> bool {
    let has_own = has_own_check(&item.names.balancer, pool);
    let has_affinity = pool.session_affinity.is_empty() || pool.session_affinity == settings.api_affinity();
    !has_affinity || has_own != settings.health_port.is_some()
}

impl Draft<'_> {
    pub(super) fn external(&mut self, settings: &Settings, rule: Option<&ForwardingRule>) -> Result<(), ProviderError> {
        let name = self.item.names.balancer.clone();
        let pool = self.observed.pools.get(&name);
        let check = self.wanted_check(settings);
        let hosts = members::present(self.observed, &self.item.hosts)?;
        let tier = tier(self.observed, self.item, settings, rule);
        let replaced = pool.filter(|pool| is_replaced(self.item, settings, pool));
        let makes_rule = makes_rule(self.env, self.observed, self.item, settings, rule);
        let mut address = rule.map(|rule| rule.ip_address.clone()).unwrap_or_default();
        if makes_rule {
            let kind = Kind { scheme: Scheme::External, tier, subnetwork: None, ports: rule_ports(self.env, settings) };
            address = self.hold_address(settings, rule, ip(settings, rule, tier), &kind)?;
        }
        self.deny(&address)?;
        self.firewalls(settings, &address, &check, rule.filter(|_| makes_rule).or(self.former()))?;
        self.check(&check);
        if let Some(rule) = rule.filter(|_| makes_rule) {
            self.delete_rule(differences(self.env, self.observed, self.item, settings, rule));
        }
        if replaced.is_some() {
            let reason = "its session affinity or health check cannot be changed";
            self.delete(Rank::OldPool, TARGET_POOL_DELETE, POOL, reason);
        }
        match pool.filter(|_| replaced.is_none()) {
            Some(pool) => self.pool_members(pool)?,
            None => self.make_pool(settings, &hosts, &check, replaced),
        }
        if makes_rule {
            self.make_rule(settings, &address, tier);
        }
        self.release_address();
        self.old_check(&check, replaced);
        Ok(())
    }

    /// Creates a target pool. One that was deleted for it comes back if the new one is refused.
    fn make_pool(&mut self, settings: &Settings, hosts: &BTreeSet<Host>, check: &Check, replaced: Option<&TargetPool>) {
        let name = self.item.names.balancer.clone();
        let check =
            self.env.links.of(Collection::HttpHealthChecks, &crate::client::resource::Scope::Global, &check.name);
        let body = json!({
            "description": self.item.names.description(),
            "sessionAffinity": settings.api_affinity(),
            "healthChecks": [check],
        });
        let mut hosts: Vec<Host> = hosts.iter().cloned().collect();
        let more = hosts.split_off(hosts.len().min(FIRST_INSTANCES));
        let write = self.write(TARGET_POOL_CREATE, &name).body(body);
        let former =
            replaced.map(|pool| Act::InsertPool { write: write.clone().body(pool.again()), hosts: hosts.clone() });
        self.push(
            Rank::Pools,
            Act::InsertPool { write, hosts },
            what(Verb::Create, POOL, "the instances behind the load balancer"),
        );
        let place = self.steps.len();
        self.join_pool(&more, true);
        // With the nodes of today.
        let (made, joins) = self.steps.split_at_mut(place);
        if let (Some(act), Some(step)) = (former, made.last_mut()) {
            step.restore = [Step { act, ..step.clone() }].into_iter().chain(joins.iter().cloned()).collect();
        }
    }

    pub(super) fn pool_members(&mut self, pool: &TargetPool) -> Result<(), ProviderError> {
        let hosts = &self.item.hosts;
        let wanted = members::present(self.observed, hosts)?;
        let current = pool.instances.iter().filter_map(|url| Host::of_url(url)).collect();
        let Difference { join, leave, has_others } = members::difference(&current, &wanted, &hosts.unplaced);
        self.join_pool(&join, has_others);
        for (order, hosts) in (0..).zip(leave.chunks(BATCH)) {
            let write =
                self.write(TARGET_POOL_REMOVE, &self.item.names.balancer).body(super::instances_body(self.env, hosts));
            let act = Act::Leave { write, hosts: hosts.to_vec() };
            let what = what(Verb::Detach, "Instances", "their nodes are no longer hosts");
            self.push_in_order(Rank::LeavePools, order, act, what);
        }
        // Nobody leaves before somebody has joined.
        let is_replaced = !has_others && !join.is_empty();
        for step in self.steps.iter_mut().filter(|step| is_replaced && step.rank == Rank::LeavePools) {
            step.part = Part::of(PartKind::Members, "pool");
        }
        Ok(())
    }

    fn join_pool(&mut self, join: &[Host], mut has_others: bool) {
        let before = self.steps.len();
        let is_new = self.steps.iter().any(|step| matches!(step.act, Act::InsertPool { .. }));
        for (order, hosts) in (0..).zip(join.chunks(BATCH)) {
            let write = self.write(TARGET_POOL_ADD, &self.item.names.balancer);
            let act = Act::Join { write, hosts: hosts.to_vec(), has_others };
            let what = what(Verb::Attach, "Instances", "their nodes are behind the load balancer");
            self.push_in_order(Rank::JoinPools, order, act, what);
            has_others = true;
        }
        for step in self.steps.iter_mut().skip(before).filter(|_| is_new) {
            step.needs = parts::FRAME;
        }
    }

    fn make_rule(&mut self, settings: &Settings, address: &str, tier: Tier) {
        let name = self.item.names.balancer.clone();
        let mut body = json!({
            "description": self.item.names.description(),
            "IPProtocol": settings.protocol,
            "target": self.env.links.of(Collection::TargetPools, &self.env.region(), &name),
            "networkTier": tier.as_str(),
        });
        if !address.is_empty() {
            put(&mut body, "IPAddress", json!(address));
        }
        match is_discrete(self.env, settings) {
            true => put(&mut body, "ports", json!(settings.ports.iter().map(ToString::to_string).collect::<Vec<_>>())),
            false => put(&mut body, "portRange", json!(ports::range(&settings.ports))),
        }
        self.insert_rule(body, !address.is_empty());
    }

    /// Deletes the health check that is no longer used.
    fn old_check(&mut self, check: &Check, replaced: Option<&TargetPool>) {
        let name = self.item.names.balancer.clone();
        if check.is_shared {
            // With a rule, the check is not looked for: the pool names it.
            if self.observed.http_checks.contains_key(&name) || replaced.is_some_and(|pool| has_own_check(&name, pool))
            {
                // The check is deleted last: while it exists, its firewall rule is looked for.
                let firewall = self.item.names.external_check_firewall();
                let reason = "the nodes' own health check is used";
                if self.observed.firewalls.contains_key(&firewall) {
                    self.delete_firewall(Rank::ReplacedFirewalls, &firewall, reason);
                }
                self.delete(Rank::ReplacedChecks, HTTP_HEALTH_CHECK_DELETE, "HttpHealthCheck", reason);
            }
        }
        self.replaced_check(check);
    }
}
