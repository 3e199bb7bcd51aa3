//! The instances behind a balancer.

use std::collections::BTreeSet;

use ccm_provider::{Risk, Verb};

use super::Context;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::{Besides, Kind, Step, abbreviated};

fn wanted<'a>(context: &'a Context<'_>, is: fn(&Observed, &str) -> bool) -> BTreeSet<&'a String> {
    context.classic.common.targets.keys().filter(|id| is(context.observed, id)).collect()
}

/// Those to register; with `None` all, for a new balancer.
fn joining(context: &Context<'_>, balancer: Option<&LoadBalancer>) -> Vec<String> {
    let mut new = wanted(context, Observed::can_join);
    new.retain(|id| balancer.is_none_or(|balancer| !balancer.instances.contains(*id)));
    new.into_iter().cloned().collect()
}

pub(super) fn register(context: &Context<'_>, balancer: Option<&LoadBalancer>) -> Option<Step> {
    let instances = joining(context, balancer);
    let summary = Some(abbreviated(&instances, String::clone)).filter(|_| !instances.is_empty())?;
    let write = ElbWrite::RegisterInstancesWithLoadBalancer { balancer: context.name(), instances };
    let step = context.step(Verb::Attach, "LoadBalancer", "these nodes get traffic", write);
    Some(step.change("instances", None, Some(summary)).part(Kind::Members, "new"))
}

/// Deregisters surplus instances, after the new ones are registered. If all leave, they do not before one has come.
pub(super) fn deregister(context: &Context<'_>, balancer: &LoadBalancer) -> Option<Step> {
    let wanted = wanted(context, Observed::may_stay);
    let instances: Vec<String> = balancer.instances.iter().filter(|id| !wanted.contains(id)).cloned().collect();
    let summary = Some(abbreviated(&instances, String::clone)).filter(|_| !instances.is_empty())?;
    let stays = instances.len() < balancer.instances.len();
    let write = ElbWrite::DeregisterInstancesFromLoadBalancer { balancer: context.name(), instances };
    let reason = "these nodes get no traffic any more";
    let step = context.step(Verb::Detach, "LoadBalancer", reason, write);
    let mut step = step.change("instances", Some(summary), None).risk(Risk::Brief).part(Kind::Members, "former");
    let successors = joining(context, Some(balancer));
    if !stays && !successors.is_empty() {
        step = step.part(Kind::Members, "new");
        step.besides = Besides::Successors { ids: successors, waits: false };
    }
    Some(step)
}
