//! Who may connect: the balancer's own groups and the rules of those of the nodes, as steps around those of the balancer.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError};

use super::super::plan::Step;
use super::super::security_groups::{delete, nodes, own};
use super::plan::Context;
use crate::annotations::Kind;
use crate::client::Write;
use crate::client::write::{Ec2Write, Id};

/// What is done about security groups around the balancer's own steps.
#[derive(Debug, Default)]
pub(super) struct Security {
    /// What the balancer shall have, in order; empty where it keeps being without.
    pub(super) wanted: Vec<Id>,
    /// Before the balancer is touched: groups made, rules opened.
    pub(super) open: Vec<Step>,
    /// After its listeners are right: rules closed, groups deleted.
    pub(super) close: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

/// The groups of the balancer and the rules of the nodes. `standing` are the subnets that the balancer is in.
///
/// # Errors
///
/// It cannot be told which group is meant.
pub(super) fn plan(context: &Context<'_>, current: &[String]) -> Result<Security, ProviderError> {
    let Context { desired, network, observed, env, .. } = *context;
    let own::Groups { ids, before, rules } = own::network(desired, network, observed, env)?;
    let subnets: BTreeSet<String> = current.iter().cloned().collect();
    let (at_nodes, findings) = nodes::network(desired, Some((network, &subnets)), observed, env)?;
    let attached = context.existing().map(|existing| &*existing.balancer.security_groups).unwrap_or_default();
    let unneeded = delete::unneeded(Kind::Network, desired, attached, &ids, observed, env);

    let (mut open, mut close) = (before, Vec::new());
    for steps in [rules, at_nodes] {
        let (opens, closes) = part(steps);
        open.extend(opens);
        close.extend(closes);
    }
    close.extend(unneeded.cut);
    close.extend(unneeded.delete);
    let findings = findings.into_iter().chain(unneeded.findings).collect();
    Ok(Security { wanted: ids, open, close, findings })
}

/// What can be opened before traffic comes, and the rest, each in its order. Where a rule has to go before another can come,
/// because a group is full or knows a rule under one name only, both are left to the rest.
fn part(steps: Vec<Step>) -> (Vec<Step>, Vec<Step>) {
    let mut closed = BTreeSet::new();
    steps.into_iter().partition(|step| match &step.write {
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, .. }) => !closed.contains(group),
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, .. }) => {
            closed.insert(group.clone());
            false
        }
        _ => false,
    })
}
