//! Explains a Service: its owner, its forwarding rule, the instances behind it, health check and firewall rules.

use std::collections::BTreeSet;

use ccm_kit::inspect::service;
use ccm_provider::{Fact, FactState, NodeReader, ProviderError, Service};

use super::Inspector;
use crate::annotations::Scheme;
use crate::client::balancing::ForwardingRule;
use crate::client::resource::last_part;
use crate::loadbalancer::claim::real_scheme;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::hosts::Host;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::wanted::Item;

pub(super) async fn explain(gce: &Inspector, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
    let nodes = gce.shared.cluster.nodes().map(NodeReader::list).unwrap_or_default();
    service::explain(gce.balancers.cloud(), cluster, service, &nodes).await
}

pub(super) fn parts(env: &Env, service: &Service, item: &Item, observed: &Observed) -> Vec<Fact> {
    let mut facts = Vec::new();
    match observed.rule(&item.names) {
        Some(found) => {
            facts.push(rule(item, found));
            facts.push(address(service, found));
        }
        None if item.settings.is_some() => {
            let about = format!("forwarding rule {}", item.names.balancer);
            facts.push(Fact::waiting(about, "not made yet: it comes last, when everything behind it is there"));
        }
        None => {}
    }
    facts.extend(members(item, observed));
    facts.extend(firewalls(env, item, observed));
    // What was not read may exist.
    if let Some(error) = observed.unread.values().next() {
        facts.retain(|fact| fact.state != FactState::Waiting);
        let hint = "explain it again, or grant the missing permission";
        facts.push(Fact::bad("reads", format!("not everything could be read: {error}"), hint));
    }
    facts
}

fn rule(item: &Item, rule: &ForwardingRule) -> Fact {
    let about = format!("forwarding rule {}", rule.name);
    let ports = match (&*rule.port_range, &*rule.ports) {
        ("", []) => "all ports".to_owned(),
        ("", ports) => format!("ports {}", ports.join(", ")),
        (range, _) => format!("ports {range}"),
    };
    let behind = if rule.target.is_empty() { &rule.backend_service } else { &rule.target };
    let text = format!("{} {ports} to {}", rule.ip_protocol, last_part(behind));
    match real_scheme(rule) == item.scheme {
        true => Fact::good(about, text),
        false => {
            let text = format!("{text}, of the other kind ({})", rule.load_balancing_scheme);
            Fact::waiting(about, format!("{text}: the next sync replaces it, with another address"))
        }
    }
}

/// The address that clients use, and whether the Service shows it.
fn address(service: &Service, rule: &ForwardingRule) -> Fact {
    let about = format!("address {}", rule.ip_address);
    let tier = if rule.network_tier.is_empty() { "PREMIUM" } else { &rule.network_tier };
    match service.status.load_balancer.ingress.iter().any(|ingress| ingress.ip == rule.ip_address) {
        true => Fact::good(about, format!("network tier {tier}")),
        false => Fact::waiting(about, "the status of the Service does not show it yet"),
    }
}

/// The instances behind the balancer.
pub(super) fn hosts(item: &Item, observed: &Observed) -> BTreeSet<Host> {
    let pool = observed.pools.get(&item.names.balancer).into_iter();
    let of_pool = pool.flat_map(|pool| pool.instances.iter().filter_map(|url| Host::of_url(url)));
    let of_groups = observed.groups.values().flat_map(|zone| zone.values()).flatten().cloned();
    of_pool.chain(of_groups).collect()
}

fn members(item: &Item, observed: &Observed) -> Option<Fact> {
    item.settings.as_ref()?;
    let members = hosts(item, observed);
    let about = match item.scheme {
        Scheme::External => format!("target pool {}", item.names.balancer),
        Scheme::Internal => "instance groups".to_owned(),
    };
    Some(match members.len() {
        0 => Fact::waiting(about, "no instance: no node is a host, or the next sync adds them"),
        count => {
            let zones: BTreeSet<&str> = members.iter().map(|host| &*host.zone).collect();
            let zones: Vec<&str> = zones.into_iter().collect();
            Fact::good(about, format!("instances: {count}, in {}", zones.join(", ")))
        }
    })
}

fn firewalls(env: &Env, item: &Item, observed: &Observed) -> Option<Fact> {
    item.settings.as_ref()?;
    let name = item.names.firewall();
    let about = format!("firewall rule {name}");
    Some(match observed.firewalls.get(&name) {
        Some(rule) if rule.disabled => Fact::bad(
            about,
            "is disabled: no client gets through",
            "enable it, or delete it: the next sync makes it again",
        ),
        Some(rule) => {
            let (from, to) = (rule.source_ranges.join(", "), rule.target_tags.join(", "));
            Fact::good(about, format!("lets {from} through to instances with the tag {to}"))
        }
        None if env.links.is_shared_vpc() => Fact::waiting(
            about,
            "does not exist; on a shared VPC its administrators may have to make it: an event on the Service has the command",
        ),
        None => Fact::waiting(about, "not made yet"),
    })
}
