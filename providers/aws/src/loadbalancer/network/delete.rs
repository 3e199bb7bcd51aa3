//! The end of a network balancer, from whatever state an earlier attempt left.

use ccm_provider::{Finding, ProviderError, Risk, Severity, Verb};

use super::super::desired::Desired;
use super::super::observe::{Observed, TargetGroup};
use super::super::plan::{Env, Planned};
use super::super::security_groups::{delete, nodes};
use super::plan::{is_marked, step};
use super::{KIND, group};
use crate::annotations::Kind;
use crate::client::write::ElbV2Write;

/// The writes that leave nothing of this Service's network balancer: the balancer, then its target groups, then the rules on
/// the nodes' groups, then its own group. All but the first are found without the balancer too, so that a deletion that died
/// in between goes on where it ended.
///
/// What lacks our marks stays, with a finding.
///
/// # Errors
///
/// As [`nodes::network`].
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
            planned
                .steps
                .push(step(Verb::Delete, "LoadBalancer", &balancer.name, reason, write).risk(Risk::Disruptive));
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
        if is_marked(desired, env, &found.tags) && !elsewhere {
            planned.steps.push(group::delete(found, reason));
        } else {
            planned.findings.push(kept("target group", &found.group.name));
        }
    }
    let (rules, findings) = nodes::network(desired, None, observed, env)?;
    planned.steps.extend(rules);
    planned.findings.extend(findings);
    let removal = delete::unneeded(Kind::Network, desired, attached, &[], observed, env);
    planned.steps.extend(removal.cut);
    planned.steps.extend(removal.delete);
    planned.findings.extend(removal.findings);
    Ok(planned)
}

fn kept(kind: &str, name: &str) -> Finding {
    Finding {
        severity: Severity::Warning,
        key: kind.to_owned(),
        value: Some(name.to_owned()),
        message: "not deleted: it is not marked as made for this Service of this cluster, or is used elsewhere; delete it if \
                  it is not needed"
            .to_owned(),
    }
}
