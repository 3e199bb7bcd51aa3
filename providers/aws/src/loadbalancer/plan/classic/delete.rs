//! Deletion of a classic balancer, from whatever state an earlier attempt left.

use ccm_provider::{Finding, ProviderError, Risk, Verb};

use crate::annotations::Kind as BalancerKind;
use crate::client::write::ElbWrite;
use crate::client::{Id, Write};
use crate::loadbalancer::claim::{self, Claim};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{Classic, Observed};
use crate::loadbalancer::plan::security_groups::{delete as groups, nodes};
use crate::loadbalancer::step::{Besides, Kind, Planned, Step};
use crate::loadbalancer::wanted::Wanted;

/// The writes that delete everything of this Service's classic balancer: the rule for a group of the user, which is found
/// only through the balancer, the balancer, the rules that refer to its own group, that group. Group and rules are also
/// found without the balancer, so that an interrupted deletion or creation leaves nothing.
///
/// Objects without this cluster's ownership tags stay, with a finding.
pub(crate) fn delete(desired: &Wanted, observed: &Observed, env: &Env, reason: &str) -> Result<Planned, ProviderError> {
    if let Some(found) = &observed.classic
        && !claim::check_deletion(desired, &found.tags, env)?
    {
        return Ok(Planned { findings: vec![kept(found)], ..Planned::default() });
    }
    let attached = observed.classic.as_ref().map(|found| &*found.balancer.security_groups).unwrap_or_default();
    let removal = groups::unneeded(BalancerKind::Classic, desired, attached, &[], observed, env);
    let mut steps = Vec::new();
    let mut later = None;
    for (group, close) in close_main_groups(desired, attached, observed, env) {
        // Others that have the group may go at the same time.
        if later.is_none() && !close.is_empty() && observed.shared_groups.contains(&group) {
            later = Some(Besides::Users { group, close });
            continue;
        }
        let users = Besides::Users { group: group.clone(), close: Vec::new() };
        steps.extend(
            close.into_iter().map(|step| Step { besides: users.clone(), ..step.part(Kind::Rules, group.clone()) }),
        );
    }
    if let Some(found) = &observed.classic {
        let balancer = found.balancer.name.clone();
        let write = ElbWrite::DeleteLoadBalancer { balancer };
        let delete = Step::new(Verb::Delete, "LoadBalancer", &*found.balancer.name, reason, Write::Elb(write));
        let mut delete = delete.risk(Risk::Disruptive).part(Kind::Retire, "").needs(&[Kind::Rules]);
        delete.besides = later.unwrap_or(delete.besides);
        steps.push(delete);
    }
    let reference = |step: Step| {
        let of = step.summary.id.clone();
        step.part(Kind::Rules, of).needs(&[Kind::Retire])
    };
    steps.extend(removal.revoke.into_iter().map(reference));
    steps.extend(removal.delete);
    Ok(Planned { steps, findings: removal.findings, errors: Vec::new() })
}

/// The groups of the user whose node rules are closed, and the steps for that. (A managed group is deleted with all rules
/// that refer to it.) After an interrupted change of groups, they are beside the managed one, and no annotation names them.
///
/// One that somebody attached by hand looks the same, and leaves with the same rule as in a sync, where upstream takes every
/// rule that names it. Upstream keeps them in a deletion, but it never has both groups on a balancer itself. Rules with a
/// description, with ports or in groups without the cluster's tag stay.
fn close_main_groups(
    desired: &Wanted,
    attached: &[String],
    observed: &Observed,
    env: &Env,
) -> Vec<(String, Vec<Step>)> {
    let ids: Vec<Id> = attached.iter().cloned().map(Id::Known).collect();
    let Some(main) = nodes::main_group(&ids, desired, observed, env).and_then(Id::known) else { return Vec::new() };
    let is_managed = |id: &str| {
        let claim = |group| claim::security_group(BalancerKind::Classic, desired, attached, group, env);
        observed.groups.get(id).map(claim).is_some_and(|claim| matches!(claim, Claim::Own | Claim::FormerName))
    };
    let is_left = |id: &&str| !is_managed(id) && !desired.named_groups.extra.iter().any(|extra| extra == id);
    let groups: Vec<&str> = match is_managed(main) {
        true => attached.iter().map(String::as_str).filter(is_left).collect(),
        false => vec![main],
    };
    groups.into_iter().map(|group| (group.to_owned(), groups::main_group_rule(group, observed, env))).collect()
}

fn kept(found: &Classic) -> Finding {
    Finding::warning(
        "load balancer",
        "not deleted: it is not tagged as belonging to this cluster; delete it if it is not needed",
    )
    .value(found.balancer.name.clone())
}
