//! The balancer's own security groups and the rules of the nodes' groups, as steps around those of the balancer.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError};

use super::Context;
use crate::annotations::Kind as BalancerKind;
use crate::client::write::Ec2Write;
use crate::client::{Id, Write};
use crate::loadbalancer::plan::security_groups::{delete, nodes, own};
use crate::loadbalancer::step::{Kind, Step};

#[derive(Debug, Default)]
pub(super) struct Security {
    /// The groups of the balancer, in order; empty if it has none.
    pub(super) wanted: Vec<Id>,
    /// Before the balancer is changed: groups created, rules opened.
    pub(super) open: Vec<Step>,
    /// After its listeners are changed: rules closed, groups deleted.
    pub(super) close: Vec<Step>,
    pub(super) findings: Vec<Finding>,
    pub(super) errors: Vec<ProviderError>,
}

/// The groups of the balancer and the rules of the nodes. `current` are the subnets of the balancer.
pub(super) fn plan(context: &Context<'_>, current: &[String]) -> Result<Security, ProviderError> {
    let Context { desired, network, observed, env, .. } = *context;
    let own::Groups { ids, before, rules } = own::network(desired, network, observed, env)?;
    let subnets: BTreeSet<String> = current.iter().cloned().collect();
    let nodes::NetworkRules { steps: at_nodes, findings, errors } =
        nodes::network(desired, Some((network, &subnets)), observed, env);
    let attached = context.existing().map(|existing| &*existing.balancer.security_groups).unwrap_or_default();
    let unneeded = delete::unneeded(BalancerKind::Network, desired, attached, &ids, observed, env);

    let frame = if context.existing().is_some() { "own group" } else { "" };
    let mut open: Vec<Step> = before.into_iter().map(|step| step.part(Kind::Frame, frame)).collect();
    let mut close = Vec::new();
    for steps in [rules, at_nodes] {
        let (opens, closes) = split(steps);
        open.extend(opens.into_iter().map(|step| of_group(Kind::Rules, step)));
        close.extend(closes.into_iter().map(|step| step.part(Kind::Release, "")));
    }
    close.extend(unneeded.revoke.into_iter().map(|step| step.part(Kind::Release, "")));
    close.extend(unneeded.delete);
    let findings = findings.into_iter().chain(unneeded.findings).collect();
    Ok(Security { wanted: ids, open, close, findings, errors })
}

/// The rules of each group are a part.
pub(super) fn of_group(kind: Kind, step: Step) -> Step {
    let of = step.summary.id.clone();
    step.part(kind, of).needs(&[Kind::Frame])
}

/// Splits the steps into those that open rules and the rest, each in order.
fn split(steps: Vec<Step>) -> (Vec<Step>, Vec<Step>) {
    let opens = |step: &Step| matches!(step.write, Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }));
    steps.into_iter().partition(opens)
}
