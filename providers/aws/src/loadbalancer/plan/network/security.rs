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
    let rules = rules.into_iter().flat_map(|step| by_port(network, step));
    let of_nodes = |step: Step| {
        let narrows = matches!(&step.besides, Besides::Shared(rules) if rules.keeps_ports);
        (step, narrows)
    };
    for (step, narrows) in rules.chain(at_nodes.into_iter().map(of_nodes)) {
        match opens(&step) {
            true => open.push(of_group(Kind::Rules, step)),
            // The balancer keeps the ports: nothing else needs the rules.
            false if narrows => close.push(of_group(Kind::Rules, step)),
            // What could not be changed may still need them.
            false => close.push(step.part(Kind::Release, "")),
        }
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

fn opens(step: &Step) -> bool {
    matches!(step.write, Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }))
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
        rule.protocol.starts_with("icmp") || network.ports.iter().any(is_same)
    };
    let (kept, rest): (Vec<Rule>, Vec<Rule>) = split(permissions).into_iter().partition(is_kept);
    let revoke = |rules, narrows| Some((steps::revoke(group, rules, &step.summary.reason)?, narrows));
    revoke(kept, true).into_iter().chain(revoke(rest, false)).collect()
}
