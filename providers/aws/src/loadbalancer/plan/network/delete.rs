//! Deletion of a network balancer, from whatever state an earlier attempt left.

use ccm_provider::{Finding, ProviderError, Risk, Verb};

use super::security::of_group;
use super::{KIND, group, step};
use crate::annotations::Kind as BalancerKind;
use crate::client::write::ElbV2Write;
use crate::loadbalancer::claim::{self, Claim, Unread};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{Observed, TargetGroup};
use crate::loadbalancer::plan::security_groups::{delete, nodes};
use crate::loadbalancer::step::{Kind, Planned};
use crate::loadbalancer::wanted::Wanted;

/// The writes that delete everything of this Service's network balancer: the balancer, its target groups, the rules in
/// the nodes' groups, its own group. All but the first are also found without the balancer, so that an interrupted
/// deletion continues.
///
/// Objects without this cluster's ownership tags stay, with a finding.
pub(crate) fn delete(desired: &Wanted, observed: &Observed, env: &Env, reason: &str) -> Result<Planned, ProviderError> {
    let mut planned = Planned::default();
    let mut attached: &[String] = &[];
    let mut is_foreign = false;
    let mut groups: Vec<&TargetGroup> = Vec::new();
    if let Some(existing) = &observed.network {
        let balancer = &existing.balancer;
        is_foreign = balancer.kind == KIND && !claim::check_deletion(desired, &existing.tags, env)?;
        if balancer.kind == KIND && !is_foreign {
            let write = ElbV2Write::DeleteLoadBalancer { balancer: balancer.arn.clone() };
            let delete = step(Verb::Delete, "LoadBalancer", &balancer.name, reason, write);
            planned.steps.push(delete.risk(Risk::Disruptive).part(Kind::Retire, ""));
            attached = &balancer.security_groups;
            groups.extend(&existing.target_groups);
        } else {
            planned.findings.push(kept("load balancer", &balancer.name));
        }
    }
    groups.extend(&observed.unattached_target_groups);
    for found in groups {
        let name = &found.group.name;
        match claim::target_group(desired, observed, found, env) {
            Claim::Unread(why @ (Unread::NotShown | Unread::Hidden)) => return Err(claim::group_not_shown(found, why)),
            claim if claim.is_ours() => {
                let delete = group::delete(found, reason).part(Kind::Retire, name.clone());
                planned.steps.push(delete.needs(&[Kind::Retire]));
            }
            _ if found.tags.are_refused() => {
                let text = "not deleted: its tags cannot be read, and nothing else shows whether it was created for \
                            this Service; delete it if no Service needs it";
                planned.findings.push(Finding::warning("target group", text).value(name));
            }
            _ => planned.findings.push(kept("target group", name)),
        }
    }
    let rule = |step| of_group(Kind::Rules, step).needs(&[Kind::Retire]);
    // A balancer that stays keeps its rules.
    if !is_foreign {
        let nodes::NetworkRules { steps, findings, errors } = nodes::network(desired, None, observed, env);
        let steps = steps.into_iter().map(rule).collect();
        planned.extend(Planned { steps, findings, errors });
    }
    let removal = delete::unneeded(BalancerKind::Network, desired, attached, &[], observed, env);
    planned.steps.splice(..0, removal.mark);
    planned.steps.extend(removal.revoke.into_iter().map(rule));
    planned.steps.extend(removal.delete);
    planned.findings.extend(removal.findings);
    Ok(planned)
}

fn kept(kind: &str, name: &str) -> Finding {
    Finding::warning(
        kind,
        "not deleted: it is not tagged as created for this Service of this cluster, or is used elsewhere; delete it if \
                  it is not needed",
    )
    .value(name)
}
