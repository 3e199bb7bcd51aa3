//! Subnets of a classic balancer. AWS allows one subnet per zone and requires at least one, so a subnet can replace
//! another of its zone only after that one is detached.

use std::collections::BTreeSet;

use ccm_provider::{Finding, Risk, Verb};

use super::Context;
use crate::annotations::SUBNETS;
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
    let taken =
        |id: &str, by: &Ids<'_>| zone(id).is_some_and(|zone_of| by.iter().any(|other| zone(other) == Some(zone_of)));
    let new: Ids<'_> = wanted.difference(&current).copied().collect();
    let mut old: Ids<'_> = current.difference(&wanted).copied().collect();
    let (late, early): (Ids<'_>, Ids<'_>) = new.into_iter().partition(|id| taken(id, &current));

    let stays = !early.is_empty() || old.len() < current.len();
    moves.steps.extend(attach(context, &early));
    if stays {
        moves.steps.extend(detach(context, &old));
        moves.steps.extend(attach(context, &late));
        return moves;
    }
    // Every zone changes its subnet: one old subnet stays until the first new one is attached.
    let Some(last) = old.pop_first() else { return moves };
    let (very_late, late): (Ids<'_>, Ids<'_>) = late.into_iter().partition(|id| taken(id, &Ids::from([last])));
    if late.is_empty() {
        moves.findings.push(cannot(&wanted, last));
    } else {
        moves.steps.extend(detach(context, &old));
        moves.steps.extend(attach(context, &late));
        moves.steps.extend(detach(context, &Ids::from([last])));
        moves.steps.extend(attach(context, &very_late));
    }
    moves
}

fn cannot(wanted: &Ids<'_>, last: &str) -> Finding {
    Finding::warning(
        SUBNETS.row.key,
        format!(
            "the balancer stays in {last}: it is in no other zone, and AWS neither takes a second subnet of a zone nor \
             leaves a balancer without any; add a subnet of another zone first"
        ),
    )
    .value(wanted.iter().copied().collect::<Vec<_>>().join(","))
}

fn listed(ids: &Ids<'_>) -> Option<(Vec<String>, String)> {
    let subnets: Vec<String> = ids.iter().map(|id| (*id).to_owned()).collect();
    let summary = subnets.join(" ");
    (!ids.is_empty()).then_some((subnets, summary))
}

fn attach(context: &Context<'_>, ids: &Ids<'_>) -> Option<Step> {
    let (subnets, summary) = listed(ids)?;
    let write = ElbWrite::AttachLoadBalancerToSubnets { balancer: context.name(), subnets };
    let step = context.step(Verb::Attach, "LoadBalancer", "the Service wants these subnets", write);
    Some(step.change("subnets", None, Some(summary)).part(Kind::Settings, "subnets"))
}

fn detach(context: &Context<'_>, ids: &Ids<'_>) -> Option<Step> {
    let (subnets, summary) = listed(ids)?;
    let write = ElbWrite::DetachLoadBalancerFromSubnets { balancer: context.name(), subnets };
    let reason = "the Service does not want these subnets any more";
    let step = context.step(Verb::Detach, "LoadBalancer", reason, write);
    Some(step.change("subnets", Some(summary), None).risk(Risk::Brief).part(Kind::Settings, "subnets"))
}
