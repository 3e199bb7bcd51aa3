//! Objects that are full: what fits is written, and the error names the rest.

use ccm_kit::split_refused;
use ccm_provider::ProviderError;

use super::{Outputs, send, targets};
use crate::client::write::{Ec2Write, ElbV2Write};
use crate::client::{ApiError, Write};
use crate::loadbalancer::desired::first_few;
use crate::loadbalancer::reads::Reads;
use crate::loadbalancer::rules::shared::{CLIENT, HEALTH};
use crate::loadbalancer::rules::{Rule, join, split};
use crate::loadbalancer::step::{Besides, Step};

/// The security group has no room for the rules.
pub(super) const FULL_GROUP: &[&str] = &["RulesPerSecurityGroupLimitExceeded"];
/// The target group has no room for the targets, or a target is in too many groups.
pub(super) const FULL_TARGETS: &[&str] = &["TooManyTargets", "TooManyRegistrationsForTargetId"];

/// Opens rules of a full group: after its surplus rules are closed, as many as fit, those for clients first.
pub(super) async fn rules(step: &Step, write: &Write, full: ApiError, reads: &Reads) -> Result<(), ProviderError> {
    let Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }) = write else {
        return Err(full.into());
    };
    if let Besides::Surplus(surplus) = &step.besides
        && !surplus.is_empty()
    {
        let (group, permissions) = (group.clone(), join(surplus.clone()));
        let revoke = Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions });
        match send(&revoke, reads).await {
            Err(error) if super::is_rule_of_several(&revoke, &error) => super::one_by_one(&revoke, reads).await?,
            answer => drop(answer?),
        }
    }
    let mut wanted = split(permissions);
    wanted.sort_by_key(rank);
    let open = |rules: Vec<Rule>| async move {
        let (group, permissions) = (group.clone(), join(rules));
        let write = Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions });
        match send(&write, reads).await {
            Err(error) if super::is_so_already(&write, &error) => Ok(()),
            answer => answer.map(drop),
        }
    };
    let mut left = Vec::new();
    let mut last = full;
    let is_refused = |error: &ApiError| error.is(FULL_GROUP) || error.is(&["InvalidPermission.Duplicate"]);
    for (rules, answer) in split_refused(wanted, is_refused, |_, _| false, open).await {
        match answer {
            Ok(()) => {}
            Err(error) if is_refused(&error) => {
                left.extend(rules.iter().map(Rule::to_string));
                last = error;
            }
            Err(error) => return Err(error.into()),
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    let error = ProviderError::from(last);
    Err(error
        .wrap(format!("security group {group} has no room for {}: remove rules or raise the quota", first_few(&left))))
}

/// Clients before health checks before everything else.
fn rank(rule: &Rule) -> usize {
    let kinds = [CLIENT, HEALTH];
    kinds.iter().position(|kind| rule.description.contains(kind)).unwrap_or(kinds.len())
}

/// Registers as many targets as fit. Those that are registered stay.
pub(super) async fn targets(write: Write, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    let Write::ElbV2(ElbV2Write::RegisterTargets { target_group, targets }) = write else {
        return Err(ProviderError::bug("not the registration of targets"));
    };
    let register = |targets| {
        let target_group = target_group.clone();
        async move { send(&Write::ElbV2(ElbV2Write::RegisterTargets { target_group, targets }), reads).await }
    };
    let is_refused = |error: &ApiError| error.is(FULL_TARGETS) || error.is(&["InvalidTarget"]);
    let names = |error: &ApiError, target: &crate::client::elbv2::Target| {
        !error.is(&["TooManyTargets"]) && crate::client::names(&error.message, &target.id)
    };
    for (some, answer) in split_refused(targets, is_refused, names, register).await {
        match answer {
            Ok(_) => {}
            Err(error) if is_refused(&error) => outputs.refused.extend(targets::refused(some, &error)),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
