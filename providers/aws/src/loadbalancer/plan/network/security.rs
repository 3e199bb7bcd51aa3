//! The balancer's own security groups and the rules of the nodes' groups, as steps around those of the balancer.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError};

use super::Context;
use crate::annotations::Kind as BalancerKind;
use crate::client::Id;
use crate::loadbalancer::plan::security_groups::own::{self, transport};
use crate::loadbalancer::plan::security_groups::steps::{by_port, divide};
use crate::loadbalancer::plan::security_groups::{delete, nodes};
use crate::loadbalancer::step::{Besides, Kind, Step};

/// The part of an existing balancer that consists of its groups, their rules, and which of them it has.
pub(super) const PART: &str = "security groups";

#[derive(Debug, Default)]
pub(super) struct Security {
    /// The groups of the balancer, in order; empty if it has none.
    pub(super) wanted: Vec<Id>,
    /// Before the balancer is changed: its groups created, their rules opened.
    pub(super) open: Vec<Step>,
    /// Rules opened in the groups of the nodes, before a listener is changed.
    pub(super) at_nodes: Vec<Step>,
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
    let nodes::NetworkRules { steps: of_nodes, findings, errors } =
        nodes::network(desired, Some((network, &subnets)), observed, env);
    let attached = context.existing().map(|existing| &*existing.balancer.security_groups).unwrap_or_default();
    let unneeded = delete::unneeded(BalancerKind::Network, desired, attached, &ids, observed, env);

    let frame = if context.existing().is_some() { PART } else { "" };
    let before = before.into_iter().map(|step| step.part(Kind::Frame, frame));
    let mut open: Vec<Step> = unneeded.mark.into_iter().chain(before).collect();
    let ports = network.ports.iter().map(|port| (transport(&port.protocol), port.port)).collect();
    let own = rules.into_iter().flat_map(|step| by_port(&ports, step));
    let own = own.map(|(step, narrows)| (step.part(Kind::Rules, PART).needs(&[Kind::Frame]), narrows));
    let of_nodes = of_nodes.into_iter().map(|step| {
        let narrows = matches!(&step.besides, Besides::Shared(rules) if rules.keeps_ports);
        (of_group(Kind::Rules, step), narrows)
    });
    let (own, mut close) = divide(own);
    let (at_nodes, later) = divide(of_nodes);
    open.extend(own);
    close.extend(later);
    close.extend(unneeded.revoke.into_iter().map(|step| step.part(Kind::Release, "")));
    close.extend(unneeded.delete);
    let findings = findings.into_iter().chain(unneeded.findings).collect();
    Ok(Security { wanted: ids, open, at_nodes, close, findings, errors })
}

/// The rules of each group are a part.
pub(super) fn of_group(kind: Kind, step: Step) -> Step {
    let of = step.summary.id.clone();
    step.part(kind, of).needs(&[Kind::Frame])
}
