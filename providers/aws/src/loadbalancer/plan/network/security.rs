//! The balancer's own security groups and the rules of the nodes' groups, as steps around those of the balancer.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError};

use super::Context;
use crate::annotations::Kind as BalancerKind;
use crate::client::write::Ec2Write;
use crate::client::{Id, Write};
use crate::loadbalancer::plan::security_groups::own::{self, transport};
use crate::loadbalancer::plan::security_groups::{delete, nodes, steps};
use crate::loadbalancer::rules::{Rule, split};
use crate::loadbalancer::step::{Besides, Kind, Step};
use crate::loadbalancer::wanted::{Network, Port};

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
    let mut open: Vec<Step> = before.into_iter().map(|step| step.part(Kind::Frame, frame)).collect();
    let own = rules.into_iter().flat_map(|step| by_port(network, step));
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

/// Divides steps into those that open rules and those that close some. The second of a pair is whether the balancer keeps
/// the ports of what is closed: then nothing else needs it. Otherwise, what could not be changed may still need it.
fn divide(steps: impl Iterator<Item = (Step, bool)>) -> (Vec<Step>, Vec<Step>) {
    let opens = |step: &Step| matches!(step.write, Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }));
    let (open, close): (Vec<_>, Vec<_>) = steps.partition(|(step, _)| opens(step));
    let released = |step: Step| Step { needs: None, ..step.part(Kind::Release, "") };
    let close = close.into_iter().map(|(step, narrows)| if narrows { step } else { released(step) });
    (open.into_iter().map(|(step, _)| step).collect(), close.collect())
}

/// Divides the closing of rules of the balancer's own group: those of ports that it keeps, of which only the sources
/// have changed (`true`), and the rest.
fn by_port(network: &Network, step: Step) -> Vec<(Step, bool)> {
    let Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions }) = &step.write else {
        return vec![(step, false)];
    };
    let is_kept = |rule: &Rule| {
        let is_same = |port: &Port| {
            let number = Some(port.port);
            rule.protocol == transport(&port.protocol) && (rule.from_port, rule.to_port) == (number, number)
        };
        rule.is_icmp() || network.ports.iter().any(is_same)
    };
    let (kept, rest): (Vec<Rule>, Vec<Rule>) = split(permissions).into_iter().partition(is_kept);
    let revoke = |rules, narrows| Some((steps::revoke(group, rules, &step.summary.reason)?, narrows));
    revoke(kept, true).into_iter().chain(revoke(rest, false)).collect()
}
