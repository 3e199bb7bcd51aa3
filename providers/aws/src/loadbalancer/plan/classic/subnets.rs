//! Subnets of a classic balancer. AWS allows one subnet per zone and requires at least one, so a subnet can replace
//! another of its zone only after that one is detached. The zones change one after the other, and each fails alone.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::{Finding, Risk, Verb};

use super::Context;
use crate::annotations::SUBNETS;
use crate::client::Write;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::step::{Kind, Planned, Step};

type Ids<'a> = BTreeSet<&'a str>;

pub(super) fn sync(context: &Context<'_>, balancer: &LoadBalancer, wanted: &[String]) -> Planned {
    let current: Ids<'_> = balancer.subnets.iter().map(String::as_str).collect();
    let wanted: Ids<'_> = wanted.iter().map(String::as_str).collect();
    let mut moves = Planned::default();
    if wanted.is_empty() {
        return moves;
    }
    let zone = |id: &str| context.observed.subnets.get(id).map(|subnet| &*subnet.zone);
    let of_zone = |ids: &Ids<'_>, name: &str| ids.iter().any(|id| zone(id) == Some(name));
    let mut old: Ids<'_> = current.difference(&wanted).copied().collect();
    let mut early = Ids::new();
    let mut late: BTreeMap<&str, Ids<'_>> = BTreeMap::new();
    for id in wanted.difference(&current) {
        match zone(id).filter(|zone| of_zone(&current, zone)) {
            Some(zone) => drop(late.entry(zone).or_default().insert(id)),
            None => drop(early.insert(id)),
        }
    }
    moves.steps.extend(attach(context, &early).map(|step| step.part(Kind::Settings, "subnets")));
    let is_only = current.len() == 1;
    if is_only && early.is_empty() && !late.is_empty() {
        moves.findings.extend(old.first().map(|last| cannot(&wanted, last)));
        return moves;
    }
    for (name, new) in &late {
        let (leaving, rest): (Ids<'_>, Ids<'_>) = old.into_iter().partition(|id| zone(id) == Some(*name));
        old = rest;
        // The only subnet waits for the first new one.
        let of = if is_only { "subnets".to_owned() } else { format!("subnets of {name}") };
        let again = listed(&leaving).map(|(subnets, _)| attachment(context, subnets));
        let attach = attach(context, new).map(|step| Step { restore: again, ..step });
        let steps = detach(context, &leaving).into_iter().chain(attach);
        moves.steps.extend(steps.map(|step| step.part(Kind::Settings, of.clone())));
    }
    moves.steps.extend(detach(context, &old).map(|step| step.part(Kind::Settings, "subnets")));
    moves
}

fn cannot(wanted: &Ids<'_>, last: &str) -> Finding {
    Finding::warning(
        SUBNETS.row.key,
        format!(
            "the load balancer stays in {last}: it is in no other zone, and AWS neither takes a second subnet of a zone nor \
             leaves a load balancer without any; add a subnet of another zone first"
        ),
    )
    .value(wanted.iter().copied().collect::<Vec<_>>().join(","))
}

fn listed(ids: &Ids<'_>) -> Option<(Vec<String>, String)> {
    let subnets: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let summary = subnets.join(" ");
    (!ids.is_empty()).then_some((subnets, summary))
}

fn attachment(context: &Context<'_>, subnets: Vec<String>) -> Write {
    Write::Elb(ElbWrite::AttachLoadBalancerToSubnets { balancer: context.name(), subnets })
}

fn attach(context: &Context<'_>, ids: &Ids<'_>) -> Option<Step> {
    let (subnets, summary) = listed(ids)?;
    let (id, reason) = (&*context.desired.name, "the Service wants these subnets");
    let step = Step::new(Verb::Attach, "LoadBalancer", id, reason, attachment(context, subnets));
    Some(step.change("subnets", None, Some(summary)))
}

fn detach(context: &Context<'_>, ids: &Ids<'_>) -> Option<Step> {
    let (subnets, summary) = listed(ids)?;
    let write = ElbWrite::DetachLoadBalancerFromSubnets { balancer: context.name(), subnets };
    let reason = "the Service no longer asks for these subnets";
    let step = context.step(Verb::Detach, "LoadBalancer", reason, write);
    Some(step.change("subnets", Some(summary), None).risk(Risk::Brief))
}
