//! Explains a Service: its load balancer and why it is that one, its frontends and rules, the members, its addresses and
//! security rules.

use std::collections::BTreeSet;

use ccm_kit::inspect::service;
use ccm_provider::{Fact, NodeReader, ProviderError, Service};
use serde_json::Value;

use super::Inspector;
use crate::annotations::Scheme;
use crate::client::id::{ArmId, same};
use crate::loadbalancer::balancer::claimed;
use crate::loadbalancer::env::{Env, Several};
use crate::loadbalancer::json;
use crate::loadbalancer::members::{Members, scheme_of};
use crate::loadbalancer::names::{is_of, without_internal};
use crate::loadbalancer::observed::{Observed, Seen};
use crate::loadbalancer::plan::security::destinations;
use crate::loadbalancer::wanted::Item;

pub(super) async fn explain(azure: &Inspector, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
    let nodes = azure.shared.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    service::explain(azure.balancers.cloud(), cluster, service, &nodes).await
}

/// What a Service has on a load balancer; nothing if that is none.
pub(super) fn frontends(env: &Env, service: &Service, item: &Item, observed: &Observed, balancer: &Value) -> Vec<Fact> {
    let name = json::name(balancer);
    let there = Item { scheme: scheme_of(name), ..item.clone() };
    let found = claimed(observed, &there, balancer);
    if found.is_empty() {
        return Vec::new();
    }
    let (about, is_right) = (format!("load balancer {name}"), there.scheme == item.scheme);
    let mut facts = vec![match is_right {
        true => Fact::good(about, why(env, item, without_internal(name).0)),
        false => Fact::waiting(about, "of the other kind: the next sync moves the Service, which gets another address"),
    }];
    for (frontend, _) in found {
        facts.push(rules(item, balancer, frontend));
        facts.extend(address(service, observed, frontend));
    }
    if is_right && item.settings.is_some() {
        facts.push(match members(observed, balancer, |_| true).len() {
            0 => Fact::waiting(format!("pools of {name}"), "no member: no node may serve, or the next sync adds them"),
            count => Fact::good(format!("pools of {name}"), format!("members: {count}")),
        });
    }
    facts
}

/// Why the Service is on this load balancer.
fn why(env: &Env, item: &Item, plain: &str) -> String {
    let kind = if item.scheme == Scheme::Internal { "internal" } else { "external" };
    let is_it = |one: &&Several| same(&one.name, plain);
    let Some(one) = env.several.iter().find(is_it) else {
        return format!("all {kind} Services of the cluster share it");
    };
    let is_named = item.placing.named.as_ref().is_some_and(|names| names.iter().any(|name| same(name, plain)));
    match () {
        () if is_named => format!("the annotation {} names it", crate::annotations::LB_CONFIGURATIONS.row.key),
        () if item.placing.selected.contains(&one.name) => "its selectors choose the Service".to_owned(),
        () => "it takes Services that no selector chooses; a Service stays where its frontend is".to_owned(),
    }
}

/// A frontend with the rules of the Service.
fn rules(item: &Item, balancer: &Value, frontend: &Value) -> Fact {
    let id = json::text(frontend, &["id"]);
    let is_own = |rule: &&Value| {
        is_of(json::name(rule), &item.names.base) && same(json::reference(rule, "frontendIPConfiguration"), id)
    };
    let number = |rule: &Value, field: &str| json::number(rule, &["properties", field]).unwrap_or_default();
    let rule = |rule: &Value| {
        let (protocol, port, to) =
            (json::property(rule, "protocol"), number(rule, "frontendPort"), number(rule, "backendPort"));
        let probe = last(json::reference(rule, "probe"));
        let probe = json::named(json::items(balancer, "probes"), &probe).map_or_else(
            || "without a probe".to_owned(),
            |probe| {
                let path = json::property(probe, "requestPath");
                format!("probe {} {}{path}", json::property(probe, "protocol"), number(probe, "port"))
            },
        );
        format!("{protocol} {port} to {to}, {probe}")
    };
    let rules: Vec<String> = json::items(balancer, "loadBalancingRules").iter().filter(is_own).map(rule).collect();
    let about = format!("frontend {}", json::name(frontend));
    let owner =
        if item.names.own(json::name(frontend)) { "" } else { "; that of another Service, which this one shares" };
    match rules.is_empty() {
        true => Fact::waiting(about, format!("no rule of the Service yet{owner}")),
        false => Fact::good(about, format!("{}{owner}", rules.join("; "))),
    }
}

/// The address for clients, and whether the Service shows it.
fn address(service: &Service, observed: &Observed, frontend: &Value) -> Option<Fact> {
    let ip = observed.address(frontend)?.to_string();
    let public = json::reference(frontend, "publicIPAddress");
    let whose = match public {
        "" => format!("of the subnet {}", last(json::reference(frontend, "subnet"))),
        id => format!("of the public IP address {}", last(id)),
    };
    let about = format!("address {ip}");
    Some(match service.status.load_balancer.ingress.iter().any(|ingress| ingress.ip == ip) {
        true => Fact::good(about, whose),
        false => Fact::waiting(about, format!("{whose}; the status of the Service does not show it yet")),
    })
}

/// The rules of the security group for the addresses of the Service.
pub(super) fn security(env: &Env, item: &Item, observed: &Observed) -> Option<Fact> {
    let settings = item.settings.as_ref()?;
    let about = format!("security group {}", env.security_group);
    if settings.access.is_none() {
        return Some(Fact::good(about, "an annotation says that the Service needs no rules"));
    }
    if !item.access.has_floating_ip {
        return Some(Fact::good(about, "the destinations of its rules are the nodes: floating IP is disabled"));
    }
    Some(match observed.security_group.as_ref()? {
        Seen::Present(group) => {
            let frontends = observed.frontends();
            let own = frontends.filter(|frontend| item.names.own(json::name(frontend)));
            let own: Vec<String> = own.filter_map(|it| observed.address(it)).map(|ip| ip.to_string()).collect();
            let is_for = |(_, of): &(&str, Vec<String>)| own.iter().any(|ip| of.contains(ip));
            let rules: Vec<&str> = destinations(group).filter(is_for).map(|(name, _)| name).collect();
            match rules.is_empty() {
                true => Fact::waiting(about, "no rule has an address of the Service as its destination"),
                false => Fact::good(about, format!("rules for its addresses: {}", rules.join(", "))),
            }
        }
        Seen::Absent => {
            Fact::bad(about, "does not exist", "create it, or correct securityGroupName and securityGroupResourceGroup")
        }
        Seen::Unread(error) => super::unreadable(about, error.clone()),
    })
}

/// The members of the pools whose names are chosen: machines by ID in lower case, and addresses.
pub(super) fn members(observed: &Observed, balancer: &Value, is_chosen: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let mut all = BTreeSet::new();
    for pool in json::items(balancer, "backendAddressPools").iter().filter(|pool| is_chosen(json::name(pool))) {
        let Members { instances, interfaces } = Members::of(pool);
        all.extend(instances);
        all.extend(interfaces.iter().filter_map(|id| observed.interfaces.owners.get(id)).cloned());
        let addresses = json::items(pool, "loadBalancerBackendAddresses").iter();
        all.extend(addresses.map(|address| json::property(address, "ipAddress").to_owned()));
    }
    all.remove("");
    all
}

/// The name of an object by its ID.
pub(super) fn last(id: &str) -> String {
    ArmId::parse(id).map_or_else(|_| id.to_owned(), |id| id.name().to_owned())
}
