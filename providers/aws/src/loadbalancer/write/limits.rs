//! Objects that are full: what fits is written, and the error names the rest.

use ccm_kit::split_refused;
use ccm_provider::ProviderError;

use super::{Outputs, send, targets};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};
use crate::client::{self, ApiError, Write};
use crate::loadbalancer::reads::Reads;
use crate::loadbalancer::rules::shared::HEALTH;
use crate::loadbalancer::rules::{Rule, join, split};
use crate::loadbalancer::step::{Besides, Step};
use crate::loadbalancer::wanted::first_few;

/// The security group has no room for the rules.
pub(super) const FULL_GROUP: &[&str] = &["RulesPerSecurityGroupLimitExceeded"];
/// The target group has no room for the targets, or a target is in too many groups.
const FULL_TARGETS: &[&str] = &["TooManyTargets", "TooManyRegistrationsForTargetId"];

/// A limit of the balancer or the account: AWS refuses every other creation of the kind, too.
pub(super) const EXHAUSTED: &[&str] = &[
    "TooManyLoadBalancers",
    "TooManyListeners",
    "TooManyTargetGroups",
    "TooManyUniqueTargetGroupsPerLoadBalancer",
    "TooManyPolicies",
];

/// The target cannot be registered.
const UNFIT: &[&str] = &["InvalidTarget", "InvalidInstance", "InvalidEndPoint"];

/// Whether AWS may refuse only some of the targets of a registration. (It has no code for a full classic balancer.)
pub(super) fn concerns_some_targets(write: &Write, error: &ApiError) -> bool {
    let registers = matches!(
        write,
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { .. })
            | Write::ElbV2(ElbV2Write::RegisterTargets { .. })
    );
    let codes = [FULL_TARGETS, UNFIT, &["InvalidConfigurationRequest", "ValidationError"]];
    registers && codes.iter().any(|codes| error.is(codes))
}

/// Opens rules of a full group: after its surplus rules are closed, as many as fit, those for clients first.
pub(super) async fn rules(step: &Step, write: &Write, full: ApiError, reads: &Reads) -> Result<(), ProviderError> {
    let Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }) = write else {
        return Err(full.into());
    };
    let surplus = match &step.besides {
        Besides::Surplus(surplus) => surplus.clone(),
        Besides::Shared(rules) => super::surplus_at_nodes(rules, group, reads).await?,
        _ => Vec::new(),
    };
    if !surplus.is_empty() {
        let (group, permissions) = (group.clone(), join(surplus));
        let revoke = Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions });
        match send(&revoke, reads).await {
            Err(error) if super::is_rule_of_several(&revoke, &error) => super::one_by_one(&revoke, reads).await?,
            answer => drop(answer?),
        }
    }
    let mut left = split(permissions);
    left.sort_by_key(rank);
    let open = |rules: &[Rule]| {
        let (group, permissions) = (group.clone(), join(rules.to_vec()));
        let write = Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions });
        async move {
            match send(&write, reads).await {
                Err(error) if super::is_so_already(&write, &error) => Ok(()),
                answer => answer.map(drop),
            }
        }
    };
    // One rule shows whether there is any room: most often there is none, at each attempt of each Service. A refusal shows
    // how many more can fit at most.
    let (mut last, mut count, mut most) = (full, 1, None);
    while count > 0 && !left.is_empty() {
        let (some, rest) = left.split_at(count.min(left.len()));
        match open(some).await {
            Ok(()) => {
                most = most.map(|most: usize| most.saturating_sub(some.len()));
                count = most.map_or(some.len() * 2, |most| most.div_ceil(2));
                left = rest.to_vec();
            }
            Err(error) if error.is(FULL_GROUP) => {
                let fewer = some.len() - 1;
                (last, count, most) = (error, fewer.div_ceil(2), Some(fewer));
            }
            // Sent alone, a rule that exists is no error; it takes no room.
            Err(error) if error.is(&["InvalidPermission.Duplicate"]) => (count, most) = (1, None),
            Err(error) => return Err(error.into()),
        }
    }
    if left.is_empty() {
        return Ok(());
    }
    let left: Vec<String> = left.iter().map(Rule::to_string).collect();
    let left: Vec<&str> = left.iter().map(String::as_str).collect();
    let error = ProviderError::from(last);
    Err(error
        .wrap(format!("security group {group} has no room for {}: remove rules or raise the quota", first_few(&left))))
}

/// Clients, whose rules have no description in the group of a balancer, before health checks; ICMP last.
fn rank(rule: &Rule) -> usize {
    match &*rule.description {
        _ if rule.protocol.starts_with("icmp") => 2,
        text => usize::from(text.contains(HEALTH)),
    }
}

/// Registers the targets that AWS takes. Those that are registered stay.
pub(super) async fn targets(
    write: Write,
    error: &ApiError,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    let ids: Vec<String> = match &write {
        Write::ElbV2(ElbV2Write::RegisterTargets { targets, .. }) => targets.iter().map(|one| one.id.clone()).collect(),
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. }) => instances.clone(),
        _ => return Err(ProviderError::bug("not the registration of targets")),
    };
    let register = |ids: Vec<String>| {
        let part = targets::only(write.clone(), &ids);
        async move { send(&part, reads).await }
    };
    let is_unfit = |error: &ApiError| error.is(UNFIT);
    let is_refused = |error: &ApiError| concerns_some_targets(&write, error);
    if ids.len() == 1 {
        outputs.refused.extend(targets::refused(ids, error, !is_unfit(error)));
        return Ok(());
    }
    let names = |error: &ApiError, id: &String| !error.is(&["TooManyTargets"]) && client::names(&error.message, id);
    for (some, answer) in split_refused(ids, is_refused, names, register).await {
        match answer {
            Ok(_) => {}
            Err(error) if is_refused(&error) => {
                outputs.refused.extend(targets::refused(some, &error, !is_unfit(&error)));
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}
