//! Plans from an observation, in this or another process.

use async_trait::async_trait;
use ccm_kit::inspect::replay::no_cloud;
use ccm_provider::{
    Change, ErrorClass, Finding, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, Plan, ProviderError, Risk,
    Scope, Service, ServiceAction, ServiceAnswer, ServiceWork, Severity, Step, Verb,
};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use super::{Offer, names_of};
use crate::state::Balancer;

/// The state of the cloud that a plan for one Service needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Observed {
    /// The load balancer, if there is one.
    pub(crate) balancer: Option<Balancer>,
    /// The inputs of its addresses.
    pub(crate) offer: Offer,
}

impl Observed {
    /// The form in a snapshot.
    pub(super) fn to_json(&self) -> Result<Json, ProviderError> {
        serde_json::to_value(self)
            .map_err(|error| ProviderError::bug(format!("the observed state is not JSON: {error}")))
    }

    /// Parses the form in a snapshot.
    pub(super) fn read(service: &Service, json: &Json) -> Result<Self, ProviderError> {
        Self::deserialize(json).map_err(|error| {
            let text = format!("the observed state for the Service {} cannot be read: {error}", service.key());
            ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
        })
    }
}

/// The changes that the calls of the service controller would make in the table. `name` is that of the load balancer.
pub(crate) fn plan(name: String, item: &ServiceWork, observed: &Observed) -> Result<Plan, ProviderError> {
    let mut plan = Plan::new(format!("service {}", item.service.key()));
    let balancer = observed.balancer.as_ref();
    let step = match (item.action, balancer) {
        (ServiceAction::Delete, None) => None,
        (ServiceAction::Delete, Some(balancer)) => {
            Some(deletion(name, balancer, "the Service wants no load balancer any more"))
        }
        (ServiceAction::UpdateHosts, None) => {
            let text = "load balancer not found: an update fails, and an ensure would make it";
            plan.findings.push(Finding::new(Severity::Error, "load balancer", text));
            None
        }
        (ServiceAction::UpdateHosts, Some(balancer)) => {
            let changes = hosts(item, Some(balancer)).into_iter().collect();
            update(name, changes, "the set of nodes changed", Risk::None)
        }
        (ServiceAction::Ensure, _) => {
            let wanted = observed.offer.ingress(balancer, &item.service)?;
            if wanted.is_none() {
                let text = "the file answers without a status (missing: true), which the controller takes for an error";
                plan.findings.push(Finding::new(Severity::Warning, "loadBalancers.statuses", text));
            }
            let wanted = Wanted { ingress: wanted.unwrap_or_default(), fresh: observed.offer.is_fresh(balancer) };
            match balancer {
                None => Some(creation(name, item, &wanted)),
                Some(balancer) => changed(name, item, balancer, &wanted),
            }
        }
    };
    plan.steps.extend(step);
    Ok(plan)
}

/// The ingress list after an ensure.
struct Wanted {
    ingress: Vec<LoadBalancerIngress>,
    /// Whether the address is a new one from the pool: another Service may get it first.
    fresh: bool,
}

impl Wanted {
    fn words(&self) -> Option<String> {
        let words = words(&self.ingress)?;
        Some(if self.fresh { format!("{words} or the next free address") } else { words })
    }
}

fn step(verb: Verb, name: String, changes: Vec<Change>, reason: &str, risk: Risk) -> Step {
    Step { verb, kind: "LoadBalancer".into(), id: name, changes, reason: reason.to_owned(), risk }
}

fn update(name: String, changes: Vec<Change>, reason: &str, risk: Risk) -> Option<Step> {
    (!changes.is_empty()).then(|| step(Verb::Update, name, changes, reason, risk))
}

fn creation(name: String, item: &ServiceWork, wanted: &Wanted) -> Step {
    let ingress = change("ingress", None, wanted.words());
    let changes = ingress.into_iter().chain(hosts(item, None)).collect();
    step(Verb::Create, name, changes, "the Service wants a load balancer", Risk::None)
}

/// The deletion of a load balancer.
pub(crate) fn deletion(name: String, balancer: &Balancer, reason: &str) -> Step {
    let changes = change("ingress", words(&balancer.ingress), None);
    step(Verb::Delete, name, changes.into_iter().collect(), reason, Risk::Disruptive)
}

/// The changes of a load balancer by an ensure.
fn changed(name: String, item: &ServiceWork, balancer: &Balancer, wanted: &Wanted) -> Option<Step> {
    let some = |text: &str| (!text.is_empty()).then(|| text.to_owned());
    let called = change("name", some(&balancer.name), some(&name));
    let ingress = if balancer.ingress == wanted.ingress {
        None
    } else {
        Some(Change { field: "ingress".into(), before: words(&balancer.ingress), after: wanted.words() })
    };
    let kept =
        |old: &LoadBalancerIngress| wanted.ingress.iter().any(|new| new.ip == old.ip && new.hostname == old.hostname);
    let risk = if balancer.ingress.iter().all(kept) { Risk::None } else { Risk::Disruptive };
    let changes = [called, ingress, hosts(item, Some(balancer))].into_iter().flatten().collect();
    update(name, changes, "the load balancer is not as the Service wants it", risk)
}

/// The change of the hosts, whose order does not matter.
fn hosts(item: &ServiceWork, balancer: Option<&Balancer>) -> Option<Change> {
    let sorted = |mut names: Vec<String>| {
        names.sort_unstable();
        names
    };
    let before = sorted(balancer.map(|balancer| balancer.nodes.clone()).unwrap_or_default());
    let after = sorted(names_of(&item.nodes));
    let words = |names: Vec<String>| (!names.is_empty()).then(|| names.join(" "));
    if before == after { None } else { change("hosts", words(before), words(after)) }
}

fn change(field: &'static str, before: Option<String>, after: Option<String>) -> Option<Change> {
    (before != after).then(|| Change { field: field.into(), before, after })
}

/// An ingress list as text; `None` for an empty one.
pub(crate) fn words(ingress: &[LoadBalancerIngress]) -> Option<String> {
    let word = |one: &LoadBalancerIngress| {
        let mut text =
            [&*one.ip, &*one.hostname].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" ");
        if let Some(mode) = &one.ip_mode {
            text = format!("{text} ({mode})");
        }
        let ports: Vec<String> = one.ports.iter().map(|port| format!("{}/{}", port.port, port.protocol)).collect();
        if ports.is_empty() { text } else { format!("{text} {}", ports.join(",")) }
    };
    (!ingress.is_empty()).then(|| ingress.iter().map(word).collect::<Vec<_>>().join(", "))
}

/// The load balancers of a process with a snapshot instead of the cloud.
#[derive(Debug)]
pub(crate) struct Replayed;

#[async_trait]
impl LoadBalancer for Replayed {
    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Err(no_cloud("the cloud"))
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], _: &Scope) -> Vec<ServiceAnswer> {
        work.iter().map(|_| Err(no_cloud("the cloud")).into()).collect()
    }

    async fn observe(&self, _: &str, _: &ServiceWork) -> Result<Json, ProviderError> {
        Err(no_cloud("the cloud"))
    }

    fn plan_observed(&self, cluster: &str, item: &ServiceWork, observed: &Json) -> Result<Plan, ProviderError> {
        plan(self.name(cluster, &item.service), item, &Observed::read(&item.service, observed)?)
    }
}
