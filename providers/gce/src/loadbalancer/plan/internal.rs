//! Internal load balancers: instance groups, health check, backend service, forwarding rule, firewall rules. Pure.

use std::collections::BTreeSet;

use ccm_provider::{Change, ProviderError, Verb};
use serde_json::{Value, json};

use super::super::claim::real_scheme;
use super::super::env::Env;
use super::super::observed::Observed;
use super::super::ports;
use super::super::step::{Act, Rank};
use super::super::wanted::{Item, MOST_PORTS, OPTIONS_IGNORED, Settings, refused};
use super::address::Kind;
use super::checks::Check;
use super::{Draft, change, groups, put, shared_backend_name, update, what};
use crate::annotations::{SUBNET, Scheme, Tier};
use crate::client::balancing::{BackendService, ForwardingRule, group_of};
use crate::client::operation::{
    BACKEND_SERVICE_CREATE, BACKEND_SERVICE_UPDATE, FORWARDING_RULE_PATCH, HEALTH_CHECK_DELETE,
};
use crate::client::resource::{Collection, ResourceId, Scope, last_part, same_url};

const RULE: &str = "ForwardingRule";
const BACKEND: &str = "BackendService";

/// The subnetwork that the address must be in: that of the annotation, else that of the cluster, unless it is only that
/// of some nodes.
fn subnetwork(env: &Env, observed: &Observed, settings: &Settings) -> Option<String> {
    if observed.network.is_legacy {
        return None;
    }
    let named = settings.internal.subnet.as_ref();
    let named = named.map(|name| env.links.of(Collection::Subnetworks, &env.region(), name));
    named.or_else(|| observed.network.subnetwork.clone().filter(|_| !observed.network.is_of_nodes))
}

/// The subnetwork of a new rule: the same, else that of the rule which is replaced, else that of some nodes.
fn subnetwork_of_rule(
    env: &Env,
    observed: &Observed,
    settings: &Settings,
    rule: Option<&ForwardingRule>,
) -> Option<String> {
    let of_rule = || rule.filter(|rule| real_scheme(rule) == Scheme::Internal).map(|rule| rule.subnetwork.clone());
    let of_rule = || of_rule().filter(|url| !url.is_empty());
    subnetwork(env, observed, settings).or_else(of_rule).or_else(|| observed.network.subnetwork.clone())
}

/// The region of a subnetwork, if it differs from that of the balancers.
fn other_region(env: &Env, url: &str) -> Option<String> {
    match ResourceId::parse(url)?.scope {
        Scope::Region(region) if *region != *env.region => Some(region.to_string()),
        _ => None,
    }
}

fn has_global_access(observed: &Observed, settings: &Settings) -> bool {
    settings.internal.has_global_access && !observed.network.is_legacy
}

/// Whether a rule is in the wanted subnetwork. A rule that names none is in that of the cluster.
fn is_in_subnetwork(env: &Env, observed: &Observed, settings: &Settings, rule: &ForwardingRule) -> bool {
    let wanted = subnetwork(env, observed, settings);
    wanted.is_none_or(|wanted| rule.subnetwork.is_empty() || same_url(&wanted, &rule.subnetwork))
}

/// The requested address: that of the spec, else that of the rule if it is in this subnetwork. `None`: any.
pub(super) fn ip(env: &Env, observed: &Observed, settings: &Settings, rule: Option<&ForwardingRule>) -> Option<String> {
    let of_rule =
        rule.filter(|rule| is_in_subnetwork(env, observed, settings, rule)).map(|rule| rule.ip_address.clone());
    settings.ip.clone().or(of_rule).filter(|ip| !ip.is_empty())
}

/// The ports of a new rule; `None`: all of them.
fn rule_ports(settings: &Settings) -> Option<BTreeSet<u16>> {
    Some(settings.ports.clone()).filter(|ports| ports.len() <= MOST_PORTS)
}

/// The name of the backend service.
fn wanted_backend(observed: &Observed, item: &Item, settings: &Settings) -> String {
    shared_backend_name(observed, settings).unwrap_or_else(|| item.names.balancer.clone())
}

/// Whether a rule will be created, because there is none or the existing one cannot be updated.
pub(super) fn makes_rule(
    env: &Env,
    observed: &Observed,
    item: &Item,
    settings: &Settings,
    rule: Option<&ForwardingRule>,
) -> bool {
    rule.is_none_or(|rule| !differences(env, observed, item, settings, rule).is_empty())
}

/// The differences of a rule that require its replacement.
fn differences(env: &Env, observed: &Observed, item: &Item, settings: &Settings, rule: &ForwardingRule) -> Vec<Change> {
    let mut changes = Vec::new();
    if let Some(ip) = settings.ip.as_ref().filter(|ip| !rule.ip_address.is_empty() && **ip != rule.ip_address) {
        changes.push(change("IPAddress", &rule.ip_address, ip));
    }
    if rule.ip_protocol != settings.protocol {
        changes.push(change("IPProtocol", &rule.ip_protocol, &settings.protocol));
    }
    let all = settings.ports.len() > MOST_PORTS;
    let is_same = rule.all_ports == all && (all || ports::expanded(&rule.ports).as_ref() == Some(&settings.ports));
    if !is_same {
        let shown = |all: bool, ports: String| if all { "all".to_owned() } else { ports };
        let before = shown(rule.all_ports, rule.ports.join(","));
        changes.push(change("ports", &before, &shown(all, ports::merged(&settings.ports).join(","))));
    }
    let backend = env.links.of(Collection::BackendServices, &env.region(), &wanted_backend(observed, item, settings));
    if !same_url(&rule.backend_service, &backend) {
        changes.push(change("backendService", last_part(&rule.backend_service), last_part(&backend)));
    }
    if !is_in_subnetwork(env, observed, settings, rule) {
        let wanted = subnetwork(env, observed, settings).unwrap_or_default();
        changes.push(change("subnetwork", last_part(&rule.subnetwork), last_part(&wanted)));
    }
    changes
}

/// Whether a plan depends on the network: on its subnetwork, from which a new rule has its address, or whether it has any.
pub(super) fn needs_network(env: &Env, observed: &Observed, item: &Item) -> bool {
    let Some(settings) = item.settings.as_ref().filter(|_| item.scheme == Scheme::Internal) else { return false };
    let rule = observed.rule(&item.names).filter(|rule| real_scheme(rule) == Scheme::Internal);
    let is_of_network = !settings.internal.is_plain() || item.hosts.are_selected();
    is_of_network || makes_rule(env, observed, item, settings, rule)
}

impl Draft<'_> {
    pub(super) fn internal(&mut self, settings: &Settings, rule: Option<&ForwardingRule>) -> Result<(), ProviderError> {
        let observed = self.observed;
        if observed.network.is_legacy && !settings.internal.is_plain() {
            let text = "Internal LoadBalancer options are not supported with Legacy Networks.";
            self.findings.push(self.item.finding(OPTIONS_IGNORED, text));
        }
        let backend = wanted_backend(observed, self.item, settings);
        let check = self.wanted_check(settings);
        let makes_rule = makes_rule(self.env, observed, self.item, settings, rule);
        let address = match rule.filter(|_| !makes_rule) {
            Some(rule) => rule.ip_address.clone(),
            None => self.hold_internal(settings, rule)?,
        };
        self.check(&check);
        if let Some(rule) = rule {
            self.change_rule(settings, rule, makes_rule);
        }
        self.backend(settings, &backend, &check)?;
        if makes_rule {
            self.make_internal_rule(settings, &backend, &address);
        }
        self.firewalls(settings, &address, &check, rule.filter(|_| makes_rule).or(self.former()))?;
        self.release_address();
        self.old_internal(rule, makes_rule, &backend, &check);
        Ok(())
    }

    /// The address for a new rule. Networks without subnetworks have no addresses to reserve: the rule gets one.
    fn hold_internal(&mut self, settings: &Settings, rule: Option<&ForwardingRule>) -> Result<String, ProviderError> {
        let wanted = ip(self.env, self.observed, settings, rule);
        if self.observed.network.is_legacy {
            return Ok(wanted.unwrap_or_default());
        }
        let subnetwork = subnetwork_of_rule(self.env, self.observed, settings, rule);
        if let (None, Some(problem)) = (&subnetwork, &self.observed.network.problem) {
            return Err(ProviderError::unknown(format!(
                "the subnetwork of the cluster is not known: {problem}; set subnetwork-name in [global] of gce.conf, or name one \
                 in the annotation {}",
                SUBNET.row.key
            )));
        }
        if let Some(region) = subnetwork.as_deref().and_then(|url| other_region(self.env, url)) {
            return Err(refused(format!(
                "subnetwork-name in [global] of gce.conf is {:?}, in the region {region}, and load balancers are in {}: name a \
                 subnetwork of that region there or in the annotation {}",
                subnetwork.unwrap_or_default(),
                self.env.region,
                SUBNET.row.key
            )));
        }
        let kind = Kind {
            scheme: Scheme::Internal,
            tier: Tier::Premium,
            subnetwork: subnetwork.as_deref(),
            ports: rule_ports(settings),
        };
        self.hold_address(settings, rule, wanted, &kind)
    }

    /// Deletes a rule that cannot be updated, before the objects behind it change; or updates it.
    fn change_rule(&mut self, settings: &Settings, rule: &ForwardingRule, makes_rule: bool) {
        let access = has_global_access(self.observed, settings);
        if makes_rule {
            self.delete_rule(differences(self.env, self.observed, self.item, settings, rule));
        } else if rule.allow_global_access != access {
            let changes = vec![change("allowGlobalAccess", &rule.allow_global_access.to_string(), &access.to_string())];
            let body = json!({"allowGlobalAccess": access, "fingerprint": rule.fingerprint});
            let write = self.write(FORWARDING_RULE_PATCH, &self.item.names.balancer).body(body);
            self.push(Rank::Rules, Act::Send(write), update(RULE, changes, "the annotation says so"));
        }
    }

    fn make_internal_rule(&mut self, settings: &Settings, backend: &str, address: &str) {
        let mut body = json!({
            "description": self.item.names.description(),
            "backendService": self.env.links.of(Collection::BackendServices, &self.env.region(), backend),
            "IPProtocol": settings.protocol,
            "loadBalancingScheme": "INTERNAL",
            "network": self.env.network,
        });
        if !address.is_empty() {
            put(&mut body, "IPAddress", json!(address));
        }
        let rule = self.observed.rule(&self.item.names);
        if let Some(subnetwork) = subnetwork_of_rule(self.env, self.observed, settings, rule) {
            put(&mut body, "subnetwork", json!(subnetwork));
        }
        if has_global_access(self.observed, settings) {
            put(&mut body, "allowGlobalAccess", json!(true));
        }
        match settings.ports.len() > MOST_PORTS {
            true => put(&mut body, "allPorts", json!(true)),
            false => put(&mut body, "ports", json!(settings.ports.iter().map(ToString::to_string).collect::<Vec<_>>())),
        }
        self.insert_rule(body, !address.is_empty());
    }

    /// Creates or updates the backend service.
    fn backend(&mut self, settings: &Settings, name: &str, check: &Check) -> Result<(), ProviderError> {
        let is_shared = name != self.item.names.balancer;
        let description = if is_shared { String::new() } else { self.item.names.description() };
        let check = self.env.links.of(Collection::HealthChecks, &Scope::Global, &check.name);
        let Some(found) = self.observed.backends.get(name) else {
            let groups = groups::urls(self.env, self.observed, &self.item.hosts, None);
            let backends: Vec<Value> = groups.iter().map(|group| json!({"group": group})).collect();
            let body = json!({
                "description": description, "protocol": settings.protocol, "healthChecks": [check], "backends": backends,
                "sessionAffinity": settings.api_affinity(), "loadBalancingScheme": "INTERNAL",
            });
            let write = self.write(BACKEND_SERVICE_CREATE, name).body(body);
            let what = what(Verb::Create, BACKEND, "the instance groups behind the load balancer");
            self.push_as(is_shared, Rank::Backends, Act::Send(write), what);
            return Ok(());
        };
        if !found.load_balancing_scheme.is_empty() && found.load_balancing_scheme != "INTERNAL" {
            return Err(ProviderError::unknown(format!(
                "the backend service {name} has the scheme {}, which cannot be changed: delete it: it is created again",
                found.load_balancing_scheme
            )));
        }
        let (mut body, mut changes) = (json!({"fingerprint": found.fingerprint}), Vec::new());
        let texts = [
            ("protocol", &*found.protocol, &*settings.protocol),
            ("description", &*found.description, &*description),
            ("sessionAffinity", &*found.session_affinity, settings.api_affinity()),
        ];
        for (field, before, after) in texts.into_iter().filter(|(_, before, after)| before != after) {
            changes.push(change(field, before, after));
            put(&mut body, field, json!(after));
        }
        if !matches!(&*found.health_checks, [one] if same_url(one, &check)) {
            let before: Vec<&str> = found.health_checks.iter().map(|check| last_part(check)).collect();
            changes.push(change("healthChecks", &before.join(","), last_part(&check)));
            put(&mut body, "healthChecks", json!([check]));
        }
        // The hosts do not wait for the settings. A second patch conflicts, after which everything is read again.
        self.change_backends(found);
        if !changes.is_empty() {
            let write = self.write(BACKEND_SERVICE_UPDATE, name).body(body);
            let what = update(BACKEND, changes, "it differs from what is needed");
            // The protocol is that of all rules which use it.
            let rank = if found.protocol == settings.protocol { Rank::Backends } else { Rank::Pools };
            self.push_as(is_shared, rank, Act::Send(write), what);
        }
        Ok(())
    }

    /// Whether an external group is no longer used.
    fn leaves_groups(&self, found: &BackendService, groups: &[String]) -> bool {
        let own = self.cluster().instance_group();
        found.groups().any(|group| last_part(group) != own && !groups.iter().any(|wanted| same_url(wanted, group)))
    }

    /// Updates only the list of groups.
    pub(super) fn change_backends(&mut self, found: &BackendService) {
        let groups = groups::urls(self.env, self.observed, &self.item.hosts, Some(found));
        let Some((backends, difference)) = backends(found, &groups) else { return };
        let body = json!({"fingerprint": found.fingerprint, "backends": backends});
        let write = self.write(BACKEND_SERVICE_UPDATE, &found.name).body(body);
        let is_shared = found.name != self.item.names.balancer;
        let rank = if self.leaves_groups(found, &groups) { Rank::LeaveBackends } else { Rank::JoinBackends };
        let what = update(BACKEND, vec![difference], "the groups of the nodes have changed");
        self.push_as(is_shared, rank, Act::Send(write), what);
    }

    /// Deletes the objects that are no longer used.
    fn old_internal(&mut self, rule: Option<&ForwardingRule>, makes_rule: bool, backend: &str, check: &Check) {
        let (observed, names) = (self.observed, &self.item.names);
        let own = names.balancer.clone();
        if makes_rule {
            let reason = "the forwarding rule uses another one";
            self.backends_go(rule, Some(backend), Rank::ReplacedBackends, reason);
        }
        if check.is_shared && observed.checks.contains_key(&own) {
            let reason = "the nodes' own health check is used";
            let firewall = names.internal_check_firewall();
            if observed.firewalls.contains_key(&firewall) {
                self.delete_firewall(Rank::OldFirewalls, &firewall, reason);
            }
            let act = Act::DeleteUnlessUsed(self.write(HEALTH_CHECK_DELETE, &own));
            self.push(Rank::OldChecks, act, what(Verb::Delete, "HealthCheck", reason));
        }
        self.replaced_check(check);
        // Before 1.17, firewall rules had the name of the balancer. The rule with the newer name has to exist first.
        if observed.firewalls.contains_key(&own) && observed.firewalls.contains_key(&names.firewall()) {
            self.delete_firewall(Rank::OldFirewalls, &own, "the rule with the newer name is there");
        }
    }
}

/// The backends of a service with these groups, if they differ. User settings of a group are kept.
fn backends(found: &BackendService, groups: &[String]) -> Option<(Value, Change)> {
    let is_wanted = |url: &str| groups.iter().any(|group| same_url(group, url));
    let missing: Vec<&String> =
        groups.iter().filter(|group| !found.groups().any(|present| same_url(group, present))).collect();
    let kept: Vec<&Value> = found.backends.iter().filter(|backend| group_of(backend).is_some_and(is_wanted)).collect();
    if missing.is_empty() && kept.len() == found.backends.len() {
        return None;
    }
    let shown = |urls: Vec<&str>| {
        let scope = |url: &str| ResourceId::parse(url).map(|id| id.to_string());
        urls.into_iter().map(|url| scope(url).unwrap_or_else(|| url.to_owned())).collect::<Vec<_>>().join(" ")
    };
    let difference =
        change("backends", &shown(found.groups().collect()), &shown(groups.iter().map(String::as_str).collect()));
    let added = missing.into_iter().map(|group| json!({"group": group}));
    Some((kept.into_iter().cloned().chain(added).collect(), difference))
}
