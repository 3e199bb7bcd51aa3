//! Deletion of a network balancer, from whatever state an earlier attempt left.

use ccm_provider::{Finding, ProviderError, Risk, Verb};

use super::super::desired::Desired;
use super::super::env::Env;
use super::super::observed::{Observed, TargetGroup};
use super::super::security_groups::{delete, nodes};
use super::super::step::Planned;
use super::{KIND, group, is_tagged, step};
use crate::annotations::Kind;
use crate::client::write::ElbV2Write;

/// The writes that delete everything of this Service's network balancer: the balancer, its target groups, the rules in
/// the nodes' groups, its own group. All but the first are also found without the balancer, so that an interrupted
/// deletion continues.
///
/// Objects without this cluster's ownership tags stay, with a finding.
pub(crate) fn delete(
    desired: &Desired,
    observed: &Observed,
    env: &Env,
    reason: &str,
) -> Result<Planned, ProviderError> {
    let mut planned = Planned::default();
    let mut own = None;
    let mut attached: &[String] = &[];
    let mut groups: Vec<&TargetGroup> = Vec::new();
    if let Some(existing) = &observed.network {
        let balancer = &existing.balancer;
        if balancer.kind == KIND && env.ownership.is_member(&existing.tags) {
            let write = ElbV2Write::DeleteLoadBalancer { balancer: balancer.arn.clone() };
            let delete = step(Verb::Delete, "LoadBalancer", &balancer.name, reason, write);
            planned.steps.push(delete.risk(Risk::Disruptive));
            own = Some(&*balancer.arn);
            attached = &balancer.security_groups;
            groups.extend(&existing.target_groups);
        } else {
            planned.findings.push(kept("load balancer", &balancer.name));
        }
    }
    groups.extend(&observed.unattached_target_groups);
    for found in groups {
        let elsewhere = found.group.balancers.iter().any(|arn| Some(&**arn) != own);
        if is_tagged(desired, env, &found.tags) && !elsewhere {
            planned.steps.push(group::delete(found, reason));
        } else {
            planned.findings.push(kept("target group", &found.group.name));
        }
    }
    let (rules, findings) = nodes::network(desired, None, observed, env)?;
    planned.steps.extend(rules);
    planned.findings.extend(findings);
    let removal = delete::unneeded(Kind::Network, desired, attached, &[], observed, env);
    planned.steps.extend(removal.revoke);
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
