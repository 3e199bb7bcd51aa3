//! Changes of the nodes' security groups, which load balancers share.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{ErrorClass, ProviderError};

use super::super::neighbors;
use super::super::observed::Neighbors;
use super::super::plan::security_groups::steps;
use super::super::reads::Reads;
use super::super::rules::shared::{Change, MTU, SharedRules, is_for, is_for_clients};
use super::super::rules::{Rule, port, split};
use super::super::step::{Besides, Room, Step};
use super::{Outputs, of_read, single};
use crate::client::ec2::SecurityGroup;
use crate::client::write::Ec2Write;
use crate::client::{Id, Query, Write};

/// Changes the rules of a node security group, which several balancers share: one change at a time, from the group's
/// current state.
pub(super) async fn change(
    rules: &Arc<SharedRules>,
    write: &Ec2Write,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let (Ec2Write::AuthorizeSecurityGroupIngress { group, .. }
    | Ec2Write::RevokeSecurityGroupIngress { group, .. }
    | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, .. }) = write
    else {
        return Err(ProviderError::bug(format!("{} changes no rules", write.name())));
    };
    let id = group.known().unwrap_or_default();
    let opens = matches!(write, Ec2Write::AuthorizeSecurityGroupIngress { .. });
    if opens || rules.wanted.is_empty() {
        reads.at_nodes.incomplete(group, rules.balancer(), BTreeSet::new());
    }
    let mut known = None;
    let (_turn, change) = loop {
        let turn = reads.at_nodes.turn().await?;
        let found = of_read(reads.api.security_groups(&Query::by("group-id", [id])).await)?;
        let change = match found.first() {
            // It needs nothing of Elastic Load Balancing.
            Some(group) if opens => Some(rules.change_now(group, true, &reads.at_nodes.recent(id))),
            Some(group) => among(rules, group, known.take(), reads),
            None if opens => {
                return Err(ProviderError::unknown(format!("EC2 does not show security group {id} of the nodes")));
            }
            None => return Ok(()),
        };
        if let Some(change) = change {
            break (turn, change);
        }
        // That takes several calls, for which others do not wait.
        drop(turn);
        known = Some(neighbors_of(rules, reads).await?);
    };
    let clients: Vec<Rule> = change.relabeled.iter().filter(|rule| is_for_clients(rule)).cloned().collect();
    for step in steps::of_change(id, change) {
        // Rules are opened first: whether EC2 has room for old and new ones is not known.
        let step = Step { besides: Besides::Shared(rules.clone()), ..step };
        match single(&step, outputs, reads).await {
            // Only the description is wrong then; upstream changes none. But nobody would close a rule for clients that
            // keeps the name.
            Err(error)
                if is_description(&step.write)
                    && matches!(error.class(), ErrorClass::Denied { .. } | ErrorClass::Unsupported) =>
            {
                tracing::warn!(%error, "rules for health checks keep the name of another load balancer");
                let close = steps::revoke(group, clients.clone(), "the load balancer no longer needs it");
                let open = steps::authorize(group, clients.clone(), "another load balancer needs it");
                for step in close.iter().chain(&open) {
                    single(step, outputs, reads).await?;
                }
            }
            answer => answer?,
        }
    }
    Ok(())
}

async fn neighbors_of(rules: &SharedRules, reads: &Reads) -> Result<Neighbors, ProviderError> {
    of_read(neighbors::read(rules.balancer(), &BTreeMap::new(), reads).await)
}

/// The whole change of a node group; `None` if it needs the neighbors. Balancers that need the same rules may have come
/// since the plan was made, and since the neighbors were read: those have said so.
fn among(rules: &SharedRules, group: &SecurityGroup, known: Option<Neighbors>, reads: &Reads) -> Option<Change> {
    let recent = reads.at_nodes.recent(&group.id);
    let closed = rules.change_now(group, false, &recent).close;
    let rules = rules.beside(reads.at_nodes.clients(&closed, rules.balancer()));
    let change = rules.change_now(group, false, &recent);
    if !change.takes_probes_away() {
        return Some(change);
    }
    let known = known?.with_probed(reads.at_nodes.probed(), rules.balancer());
    Some(rules.among(known).change_now(group, false, &recent))
}

/// The rules of a full group that may be closed to make room; with `rules` also those that their balancer gives up.
pub(super) async fn room(rules: Option<&SharedRules>, group: &Id, reads: &Reads) -> Result<Room, ProviderError> {
    let found = of_read(reads.api.security_groups(&Query::by("group-id", group.known())).await)?;
    let Some(found) = found.first() else { return Ok(Room::default()) };
    let surplus = match rules.map(|rules| (rules, among(rules, found, None, reads))) {
        None => Vec::new(),
        Some((_, Some(change))) => change.close,
        Some((rules, None)) => {
            among(rules, found, Some(neighbors_of(rules, reads).await?), reads).unwrap_or_default().close
        }
    };
    let incomplete = reads.at_nodes.all_incomplete(group, rules.map(SharedRules::balancer));
    let is_incomplete =
        |rule: &&Rule| incomplete.iter().any(|(name, ports)| is_for(rule, name) && ports.contains(&port(rule)));
    let found = split(&found.ingress);
    let spare = found.iter().filter(|rule| rule.description == MTU).chain(found.iter().filter(is_incomplete));
    let spare = spare.filter(|rule| !surplus.contains(rule)).cloned().collect();
    Ok(Room { surplus, spare })
}

fn is_description(write: &Write) -> bool {
    matches!(write, Write::Ec2(Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { .. }))
}
