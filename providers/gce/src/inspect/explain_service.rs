//! Explains a Service: whose it is, its forwarding rule, the instances behind it, health check and firewall rules.

use ccm_provider::{Fact, ProviderError, Service, ServiceAction, Severity};

use super::current::{self, Current};
use super::{Inspector, remediation};
use crate::annotations::Scheme;
use crate::client::balancing::ForwardingRule;
use crate::client::resource::last_part;
use crate::loadbalancer::desired::Item;
use crate::loadbalancer::plan::real_scheme;

/// The remedy for what is not as written.
const FIX: &str = "correct the Service, or leave it if this is what you want";

pub(super) async fn explain(gce: &Inspector, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
    if current::is_of_others(gce, service) {
        let text = "its class, an annotation or a finalizer leaves the load balancer to another controller";
        return Ok(vec![Fact::good("desired state", text)]);
    }
    let action = current::action(service);
    match current::load(gce, cluster, service, action).await {
        Ok(current) => Ok(facts(gce, service, &current)),
        // Nothing was called if the Service itself is refused: what it has is shown as for a deletion.
        Err(error) if action == ServiceAction::Ensure => {
            let there = current::load(gce, cluster, service, ServiceAction::Delete).await?;
            let refused = Fact::bad("desired state", error.to_string(), remediation(&error));
            Ok([refused].into_iter().chain(parts(gce, service, &there)).collect())
        }
        Err(error) => Err(error),
    }
}

fn facts(gce: &Inspector, service: &Service, current: &Current) -> Vec<Fact> {
    let mut facts = vec![desired(&current.item)];
    facts.extend(parts(gce, service, current));
    if let Ok((_, findings)) = &current.plan {
        let doubts = findings.iter().filter(|finding| finding.severity > Severity::Info);
        facts.extend(doubts.map(|finding| Fact::bad(&*finding.key, &*finding.message, FIX)));
    }
    facts.push(match &current.plan {
        Err(error) if error.is_implemented_elsewhere() => {
            Fact::good("plan", "another controller makes the load balancer: there is no forwarding rule of this one")
        }
        Err(error) => Fact::bad("plan", error.to_string(), remediation(error)),
        // The command that asks for the plan prints steps and findings.
        Ok((steps, _)) => match steps.len() {
            0 => Fact::good("plan", "nothing is left to do in the cloud"),
            left => Fact::waiting("plan", format!("writes left: {left}")),
        },
    });
    facts
}

fn desired(item: &Item) -> Fact {
    let Some(settings) = &item.settings else { return Fact::good("desired state", "no load balancer (any more)") };
    let ports: Vec<String> = settings.ports.iter().map(ToString::to_string).collect();
    let scheme = match item.scheme {
        Scheme::External => "external",
        Scheme::Internal => "internal",
    };
    let text = format!("a load balancer {}, {scheme}: {} {}", item.names.balancer, settings.protocol, ports.join(", "));
    Fact::good("desired state", text)
}

fn parts(gce: &Inspector, service: &Service, current: &Current) -> Vec<Fact> {
    let (item, observed) = (&current.item, &current.observed);
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
    facts.extend(members(current));
    facts.extend(firewalls(gce, current));
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

fn members(current: &Current) -> Option<Fact> {
    let (item, observed) = (&current.item, &current.observed);
    item.settings.as_ref()?;
    let members = current::members(item, observed);
    let about = match item.scheme {
        Scheme::External => format!("target pool {}", item.names.balancer),
        Scheme::Internal => "instance groups".to_owned(),
    };
    Some(match members.len() {
        0 => Fact::waiting(about, "no instance: no node is a host, or the next sync adds them"),
        count => {
            let zones: std::collections::BTreeSet<&str> = members.iter().map(|host| &*host.zone).collect();
            let zones: Vec<&str> = zones.into_iter().collect();
            Fact::good(about, format!("instances: {count}, in {}", zones.join(", ")))
        }
    })
}

fn firewalls(gce: &Inspector, current: &Current) -> Option<Fact> {
    let item = &current.item;
    item.settings.as_ref()?;
    let name = item.names.firewall();
    let about = format!("firewall rule {name}");
    Some(match current.observed.firewalls.get(&name) {
        Some(rule) if rule.disabled => Fact::bad(
            about,
            "is disabled: no client gets through",
            "enable it, or delete it: the next sync makes it again",
        ),
        Some(rule) => {
            let (from, to) = (rule.source_ranges.join(", "), rule.target_tags.join(", "));
            Fact::good(about, format!("lets {from} through to instances with the tag {to}"))
        }
        None if gce.site.client.links().is_shared_vpc() => Fact::waiting(
            about,
            "does not exist; on a shared VPC its administrators may have to make it: an event on the Service has the command",
        ),
        None => Fact::waiting(about, "not made yet"),
    })
}
