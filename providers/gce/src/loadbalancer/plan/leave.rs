//! The deletion of a load balancer of one kind. Pure.
//!
//! Shared objects are deleted too, unless something else uses them: only the cloud knows that, and refuses it. An object
//! of the Service alone that something else uses holds its deletion up.

use std::collections::BTreeSet;

use ccm_provider::{ServiceAction, Verb};

use super::super::claim::{is_foreign, real_scheme};
use super::super::observed::Observed;
use super::super::step::{Act, FirewallWrite, Rank};
use super::{Draft, backend_name, users_of, what};
use crate::annotations::Scheme;
use crate::client::Write;
use crate::client::balancing::ForwardingRule;
use crate::client::operation::{
    BACKEND_SERVICE_DELETE, FORWARDING_RULE_DELETE, HEALTH_CHECK_DELETE, HTTP_HEALTH_CHECK_DELETE,
    INSTANCE_GROUP_DELETE, Operation, TARGET_POOL_DELETE,
};
use crate::client::resource::Scope;

const REASON: &str = "the Service has no load balancer of this kind any more";

impl<'a> Draft<'a> {
    /// Deletes the existing objects of one kind.
    pub(super) fn leave(&mut self, scheme: Scheme) {
        let (observed, names) = (self.observed, self.item.names.clone());
        let name = &names.balancer;
        let before = self.steps.len();
        // The other kind has a firewall rule and an address of the same names, which are used again.
        let is_replaced = self.item.action == ServiceAction::Ensure && self.item.settings.is_some() && self.is_ours();
        let rule = observed.rules.get(name).filter(|rule| real_scheme(rule) == scheme && !is_foreign(rule));
        if rule.is_some() {
            self.delete(Rank::GoRule, FORWARDING_RULE_DELETE, "ForwardingRule", REASON);
        }
        if !is_replaced {
            self.address_goes(scheme);
        }
        match scheme {
            Scheme::External => {
                if observed.pools.contains_key(name) {
                    self.delete(Rank::GoBehind, TARGET_POOL_DELETE, "TargetPool", REASON);
                }
                if self.env.options.removes_deny_rules && observed.firewalls.contains_key(&names.deny_firewall()) {
                    self.delete_firewall(Rank::GoBehind, &names.deny_firewall(), REASON);
                }
            }
            Scheme::Internal => {
                self.backends_go(rule, None, Rank::GoBehind, REASON);
                if observed.firewalls.contains_key(name) {
                    self.delete_firewall(Rank::GoBehind, name, REASON);
                }
            }
        }
        self.own_check_goes(scheme);
        if observed.firewalls.contains_key(&names.firewall()) && !is_replaced {
            self.delete_firewall(Rank::GoLast, &names.firewall(), REASON);
        }
        // If nothing of its own is left, an interrupted creation or deletion may have stopped here.
        let may_be_left = self.item.begun.contains(&scheme) || observed.unused.contains(&scheme);
        if self.steps.len() > before || may_be_left {
            self.shared_check_goes(scheme, Rank::GoChecks);
            if scheme == Scheme::Internal {
                self.groups_go();
            }
        } else if let Some(error) = observed.unread(users_of(scheme), "") {
            self.partly = Some(error.clone());
        }
        // A finalizer says that it is looked for until it is gone.
        let may_stay = is_replaced && self.item.begun.contains(&scheme);
        let behind = self.steps.iter_mut().skip(before).filter(|step| may_stay && step.rank != Rank::GoRule);
        behind.for_each(|step| (step.order, step.rank) = (u32::from(step.rank as u8), Rank::Former));
    }

    /// The rule of the former kind, which serves until it is replaced.
    pub(super) fn former(&self) -> Option<&'a ForwardingRule> {
        let observed: &'a Observed = self.observed;
        let rule = observed.rule(&self.item.names).filter(|rule| !is_foreign(rule))?;
        let kind = real_scheme(rule);
        (self.item.action == ServiceAction::Ensure && kind != self.item.scheme && self.item.begun.contains(&kind))
            .then_some(rule)
    }

    /// The members of the former kind follow the nodes while it serves. Those of its groups are planned with them.
    pub(super) fn former_hosts(&mut self) {
        let observed = self.observed;
        let Some(former) = self.former() else { return };
        match (real_scheme(former), backend_name(former)) {
            (Scheme::External, _) => {
                self.former_checks_follow(former);
                let pool = observed.pools.get(&self.item.names.balancer);
                // Without any instance nothing changes.
                pool.and_then(|pool| self.pool_members(pool).ok());
            }
            (Scheme::Internal, Some(name)) if self.has_former_groups() => {
                observed.backends.get(&name).into_iter().for_each(|found| self.change_backends(found));
            }
            _ => {}
        }
    }

    /// Whether the hosts of the former kind, which this is, are known.
    pub(super) fn has_former_hosts(&self, kind: Scheme) -> bool {
        self.former().is_some() && (kind == Scheme::External || self.has_former_groups())
    }

    /// Whether the groups of an internal balancer follow the nodes until it is replaced. The subnetwork, which may select
    /// among them, was not read.
    pub(super) fn has_former_groups(&self) -> bool {
        self.former().is_some_and(|rule| real_scheme(rule) == Scheme::Internal) && !self.item.hosts.are_selected()
    }

    /// Deletes the backend services that a rule of this Service had, except `kept`, that of its successor: its own and that
    /// of the rule. Without a rule or a successor, earlier rules may have left any of the shared ones.
    pub(super) fn backends_go(
        &mut self,
        rule: Option<&ForwardingRule>,
        kept: Option<&str>,
        rank: Rank,
        reason: &'static str,
    ) {
        let own = self.item.names.balancer.clone();
        let of_rule = rule.and_then(backend_name);
        let shared = self.cluster().shared_backend_services();
        let left = if rule.is_none() || kept.is_none() { &shared[..] } else { &[] };
        let (observed, needed) = (self.observed, self.needed);
        let old: BTreeSet<String> = left.iter().cloned().chain(of_rule.clone()).chain([own.clone()]).collect();
        let goes = |name: &&String| {
            Some(&***name) != kept && observed.backends.contains_key(*name) && !needed.backends.contains(*name)
        };
        for name in old.iter().filter(goes) {
            let act = self.own_deletion(*name == own, BACKEND_SERVICE_DELETE, name);
            let what = what(Verb::Delete, "BackendService", reason);
            let is_left = *name != own && of_rule.as_ref() != Some(name);
            self.push_as(is_left, rank, act, what);
        }
    }

    /// The deletion of an object. One that the Service leaves behind with its former kind stops nothing.
    fn own_deletion(&self, is_own: bool, operation: Operation, name: &str) -> Act {
        let write = self.write(operation, name);
        let is_final = is_own && self.item.action == ServiceAction::Delete;
        if is_final { Act::Send(write) } else { Act::DeleteUnlessUsed(write) }
    }

    fn address_goes(&mut self, scheme: Scheme) {
        let address = self.observed.addresses.get(&self.item.names.balancer).filter(|address| self.is_own(address));
        let is_of_kind = |internal: bool| internal == (scheme == Scheme::Internal);
        let is_planned = self.steps.iter().any(|step| step.kind == "Address");
        if address.is_some_and(|address| is_of_kind(address.is_internal())) && !is_planned {
            self.delete_address(Rank::GoBehind, REASON);
        }
    }

    fn own_check_goes(&mut self, scheme: Scheme) {
        let (observed, names) = (self.observed, self.item.names.clone());
        let (checks, firewall) = match scheme {
            Scheme::External => (&observed.http_checks, names.external_check_firewall()),
            Scheme::Internal => (&observed.checks, names.internal_check_firewall()),
        };
        if checks.contains_key(&names.balancer) {
            let (operation, kind) = deletion(scheme);
            let act = self.own_deletion(true, operation, &names.balancer);
            self.push(Rank::GoChecks, act, what(Verb::Delete, kind, REASON));
        }
        if observed.firewalls.contains_key(&firewall) {
            self.delete_firewall(Rank::GoCheckFirewalls, &firewall, REASON);
        }
    }

    /// Deletes the health check of the nodes, and then its firewall rule.
    pub(super) fn shared_check_goes(&mut self, scheme: Scheme, rank: Rank) {
        if self.needed.checks.contains(&scheme) {
            return;
        }
        let observed = self.observed;
        let (checks, firewall) = match scheme {
            Scheme::External => (&observed.http_checks, self.cluster().external_check_firewall()),
            Scheme::Internal => (&observed.checks, self.cluster().internal_check_firewall()),
        };
        let name = self.cluster().health_check();
        let has_check = checks.contains_key(&name);
        let (operation, kind) = deletion(scheme);
        if has_check {
            let act = Act::DeleteUnlessUsed(self.write(operation, &name));
            self.push_as(true, rank, act, what(Verb::Delete, kind, "no Service may need it any more"));
        }
        if observed.firewalls.contains_key(&firewall) {
            let unless_used = has_check.then_some((operation.collection, name));
            let rank = if rank == Rank::OldChecks { Rank::OldCheckFirewalls } else { Rank::GoCheckFirewalls };
            let act = Act::Firewall(Box::new(FirewallWrite { unless_used, ..self.firewall_deletion(&firewall) }));
            self.push_as(true, rank, act, what(Verb::Delete, "Firewall", "its health check is gone"));
        }
    }

    /// Deletes the instance groups of all zones.
    fn groups_go(&mut self) {
        if self.needed.groups || self.env.options.skips_groups {
            return;
        }
        let name = self.cluster().instance_group();
        let there = self.observed.groups.iter().filter(|(_, groups)| groups.contains_key(&name));
        // This pass may make some for the members of the former kind.
        let hosts = self.has_former_groups().then(|| super::group_hosts(self.observed, &self.item.hosts));
        let made = hosts.into_iter().flatten().map(|host| host.zone);
        let zones: BTreeSet<String> = there.map(|(zone, _)| zone.clone()).chain(made).collect();
        for zone in &zones {
            let write = Write::new(INSTANCE_GROUP_DELETE, Scope::zone(zone), &*name);
            let act = Act::DeleteUnlessUsed(write);
            let what = what(Verb::Delete, "InstanceGroup", "no Service may need it any more");
            self.push_as(true, Rank::GoGroups, act, what);
        }
    }
}

fn deletion(scheme: Scheme) -> (Operation, &'static str) {
    match scheme {
        Scheme::External => (HTTP_HEALTH_CHECK_DELETE, "HttpHealthCheck"),
        Scheme::Internal => (HEALTH_CHECK_DELETE, "HealthCheck"),
    }
}
