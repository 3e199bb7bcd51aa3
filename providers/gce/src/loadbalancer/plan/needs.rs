//! The objects that a plan needs, by name. Pure.
//!
//! They are read before the plan is made, and the plan follows from them only if that succeeded: what was not read may
//! exist.

use std::collections::BTreeSet;

use ccm_provider::{ProviderError, ServiceAction};

use super::super::claim::real_scheme;
use super::super::env::Env;
use super::super::hosts::Host;
use super::super::observed::Observed;
use super::super::wanted::Item;
use super::{backend_name, group_hosts, leaving, left_check_firewall, replaces_shared, shared_backend_name};
use crate::annotations::Scheme;
use crate::client::balancing::ForwardingRule;
use crate::client::resource::Collection;
use crate::ownership::{ClusterNames, Names};

/// The objects to read, by name.
#[derive(Debug, Default)]
pub(in super::super) struct Needs {
    pub(in super::super) rules: BTreeSet<String>,
    pub(in super::super) addresses: BTreeSet<String>,
    pub(in super::super) pools: BTreeSet<String>,
    pub(in super::super) backends: BTreeSet<String>,
    pub(in super::super) firewalls: BTreeSet<String>,
    pub(in super::super) http_checks: BTreeSet<String>,
    pub(in super::super) checks: BTreeSet<String>,
    /// The zones whose groups are read with their members.
    pub(in super::super) members: BTreeSet<String>,
    /// Whether the groups of all zones may be deleted.
    pub(in super::super) all_groups: bool,
    pub(in super::super) tagged: BTreeSet<Host>,
}

impl Needs {
    /// Adds the objects that a plan for one item needs. A balancer without leftovers is settled: they are not looked for.
    pub(in super::super) fn add(&mut self, env: &Env, observed: &Observed, item: &Item, is_settled: bool) {
        let rule = observed.rule(&item.names);
        let is_unread = observed.unread(Collection::ForwardingRules, &item.names.balancer).is_some();
        if item.is_by_name() || is_unread && item.follows() {
            let kind = rule.map_or(item.scheme, real_scheme);
            return self.add_hosts(env, observed, item, kind);
        }
        for scheme in leaving(item, rule) {
            self.leave(env, observed, item, scheme);
        }
        let Some(settings) = &item.settings else { return };
        let cluster = ClusterNames(&observed.cluster_id);
        let names = &item.names;
        match item.scheme {
            Scheme::External => {
                self.pools.insert(names.balancer.clone());
                let check = settings.health_port.map(|_| names.external_check_firewall());
                self.firewalls.extend([names.firewall(), check.unwrap_or_else(|| cluster.external_check_firewall())]);
                let own = settings.health_port.is_some() || rule.is_none() || !is_settled;
                self.http_checks.extend(own.then(|| names.balancer.clone()));
                self.http_checks.extend(settings.health_port.is_none().then(|| cluster.health_check()));
                let deny = env.options.denies || env.options.removes_deny_rules;
                self.firewalls.extend(deny.then(|| names.deny_firewall()));
            }
            Scheme::Internal => {
                let shared = shared_backend_name(observed, settings);
                self.backends.insert(shared.unwrap_or_else(|| names.balancer.clone()));
                self.members.extend(group_hosts(observed, &item.hosts).into_iter().map(|host| host.zone));
                let check = settings.health_port.map(|_| names.internal_check_firewall());
                self.firewalls.extend([names.firewall(), check.unwrap_or_else(|| cluster.internal_check_firewall())]);
                let own = settings.health_port.is_some() || !is_settled;
                self.checks.extend(own.then(|| names.balancer.clone()));
                self.checks.extend(settings.health_port.is_none().then(|| cluster.health_check()));
                self.add_backends(rule, names, cluster);
                self.firewalls.extend((!is_settled).then(|| names.balancer.clone()));
            }
        }
        self.add_tagged(env, item);
        if !is_settled {
            self.addresses.insert(names.balancer.clone());
        }
    }

    /// Adds the objects that hold the hosts of a balancer of this kind, and follow their tags.
    pub(in super::super) fn add_hosts(&mut self, env: &Env, observed: &Observed, item: &Item, kind: Scheme) {
        let (cluster, names) = (ClusterNames(&observed.cluster_id), &item.names);
        let check_firewalls = match kind {
            Scheme::External => {
                self.pools.insert(names.balancer.clone());
                [names.external_check_firewall(), cluster.external_check_firewall()]
            }
            Scheme::Internal => {
                let of_rule = observed.rule(names).and_then(backend_name);
                let shared = || item.settings.as_ref().and_then(|it| shared_backend_name(observed, it));
                self.backends.insert(of_rule.or_else(shared).unwrap_or_else(|| names.balancer.clone()));
                self.members.extend(group_hosts(observed, &item.hosts).into_iter().map(|host| host.zone));
                [names.internal_check_firewall(), cluster.internal_check_firewall()]
            }
        };
        if env.node_tags.is_empty() {
            self.firewalls.extend([names.firewall()].into_iter().chain(check_firewalls));
        }
        self.add_tagged(env, item);
    }

    /// Adds the objects to delete with a balancer of this kind.
    fn leave(&mut self, env: &Env, observed: &Observed, item: &Item, scheme: Scheme) {
        let (cluster, names) = (ClusterNames(&observed.cluster_id), &item.names);
        self.addresses.insert(names.balancer.clone());
        self.firewalls.insert(names.firewall());
        match scheme {
            Scheme::External => {
                self.pools.insert(names.balancer.clone());
                self.http_checks.extend([names.balancer.clone(), cluster.health_check()]);
                self.firewalls.extend([names.external_check_firewall(), cluster.external_check_firewall()]);
                self.firewalls.extend(env.options.removes_deny_rules.then(|| names.deny_firewall()));
            }
            Scheme::Internal => {
                self.backends.insert(names.balancer.clone());
                self.backends.extend(observed.rule(names).and_then(backend_name));
                // The deletion of the one before that of the rule may have failed.
                self.backends.extend(cluster.shared_backend_services());
                self.checks.extend([names.balancer.clone(), cluster.health_check()]);
                self.firewalls.extend([
                    names.balancer.clone(),
                    names.internal_check_firewall(),
                    cluster.internal_check_firewall(),
                ]);
                self.all_groups |= !env.options.skips_groups;
                if item.action == ServiceAction::Ensure && observed.rule(names).is_some() {
                    self.members.extend(group_hosts(observed, &item.hosts).into_iter().map(|host| host.zone));
                }
            }
        }
    }

    /// Adds the health check that a Service replaces, and its firewall rule: the shared ones by its own, or vice versa.
    pub(in super::super) fn add_replaced(&mut self, observed: &Observed, item: &Item) {
        let cluster = ClusterNames(&observed.cluster_id);
        if replaces_shared(observed, item) {
            let (checks, firewall) = match item.scheme {
                Scheme::External => (&mut self.http_checks, cluster.external_check_firewall()),
                Scheme::Internal => (&mut self.checks, cluster.internal_check_firewall()),
            };
            checks.insert(cluster.health_check());
            self.firewalls.insert(firewall);
        }
        self.firewalls.extend(left_check_firewall(observed, item));
    }

    /// The hosts whose tags firewall rules are for, unless the tags are configured.
    fn add_tagged(&mut self, env: &Env, item: &Item) {
        if env.node_tags.is_empty() {
            self.tagged.extend(item.hosts.all());
        }
    }

    /// The backend services of an internal balancer: that of its rule, or without a rule all that it may have had.
    fn add_backends(&mut self, rule: Option<&ForwardingRule>, names: &Names, cluster: ClusterNames<'_>) {
        match rule.filter(|rule| real_scheme(rule) == Scheme::Internal) {
            Some(rule) => self.backends.extend(backend_name(rule)),
            None => {
                self.backends.insert(names.balancer.clone());
                self.backends.extend(cluster.shared_backend_services());
            }
        }
    }

    /// Removes what is known.
    pub(in super::super) fn without(mut self, observed: &Observed) -> Self {
        self.firewalls.retain(|name| !observed.firewalls.contains_key(name));
        self.http_checks.retain(|name| !observed.http_checks.contains_key(name));
        self.checks.retain(|name| !observed.checks.contains_key(name));
        self
    }

    /// The reason why one of the objects is not known. Zones are independent: see [`Needs::unread_zone`].
    pub(in super::super) fn unread<'o>(&self, observed: &'o Observed) -> Option<&'o ProviderError> {
        let kinds = [
            (Collection::ForwardingRules, &self.rules),
            (Collection::Addresses, &self.addresses),
            (Collection::TargetPools, &self.pools),
            (Collection::BackendServices, &self.backends),
            (Collection::Firewalls, &self.firewalls),
            (Collection::HttpHealthChecks, &self.http_checks),
            (Collection::HealthChecks, &self.checks),
        ];
        let mut all = kinds.into_iter().flat_map(|(kind, names)| names.iter().map(move |name| (kind, name)));
        all.find_map(|(kind, name)| observed.unread(kind, name))
    }

    /// The reason why the groups of a zone are not known.
    pub(in super::super) fn unread_zone<'o>(&self, observed: &'o Observed) -> Option<&'o ProviderError> {
        let mut zones = self.members.iter();
        let of_zones = zones.find_map(|zone| observed.unread(Collection::InstanceGroups, zone));
        of_zones.or_else(|| observed.unread_of(Collection::InstanceGroups).filter(|_| self.all_groups))
    }
}

/// An update of hosts needs the forwarding rule only for the address in firewall rules, and where one of two backend
/// services can be behind it.
pub(in super::super) fn needs_rule(env: &Env, item: &Item) -> bool {
    let shares = || item.settings.as_ref().is_some_and(|settings| settings.shares_backend);
    match item.action {
        _ if item.is_by_name() => env.node_tags.is_empty() || shares(),
        _ if item.is_refused() => false,
        ServiceAction::UpdateHosts | ServiceAction::Ensure | ServiceAction::Delete => true,
    }
}
