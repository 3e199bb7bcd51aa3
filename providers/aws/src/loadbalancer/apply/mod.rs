//! Sends one write, and judges what AWS says of it.
//!
//! Repeats are harmless: what is there already, or gone already, is what was wanted. What must wait for something else comes
//! back as an error that says when to try again, and names what it waits for; no worker sleeps meanwhile.

mod targets;

#[cfg(test)]
mod tests;

use std::time::Duration;

use ccm_provider::{ErrorClass, ProviderError};

use super::plan::{Recheck, Step};
use super::reads::Reads;
use super::security_groups::nodes::SharedRules;
use crate::client::ec2::Permission;
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite, Made};
use crate::client::{ApiError, Query, Write};
use crate::node::identity::InstanceId;

/// When a deletion that something else holds up is tried again.
const HELD: Duration = Duration::from_secs(5);

/// What came out of the writes of one plan.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    made: Made,
    /// What went wrong without keeping the rest from being done.
    refused: Vec<targets::Refused>,
    /// Not all is shown yet: it must be looked at again.
    pub(super) recheck: Option<Recheck>,
}

impl Outputs {
    /// The write as it is sent, with the IDs of what earlier ones made.
    pub(super) fn completed(&self, write: &Write) -> Write {
        write.complete(&self.made).unwrap_or_else(|_| write.clone())
    }

    /// What is to be told after the last write.
    ///
    /// # Errors
    ///
    /// AWS refused some targets, or does not show everything yet; it is tried again.
    pub(crate) fn finish(self) -> Result<(), ProviderError> {
        match targets::summary(&self.refused) {
            None => self.recheck.map_or(Ok(()), |recheck| Err(recheck.into())),
            Some(message) => Err(ProviderError::new(ErrorClass::Transient { after: None }, message)),
        }
    }
}

/// Does one write.
///
/// # Errors
///
/// AWS refused it, or an earlier write of the plan did not make what it names.
pub(crate) async fn apply(step: &Step, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    match (&step.shared, &step.write) {
        (Some(rules), Write::Ec2(write)) => at_nodes(rules, write, outputs, reads).await,
        _ => single(step, outputs, reads).await,
    }
}

/// A part of the change of a group of the nodes, which other balancers change too: one at a time, from what it has now.
async fn at_nodes(
    rules: &SharedRules,
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
    let _turn = reads.at_nodes.turn().await?;
    let found = reads.api.security_groups(&Query::by("group-id", [id])).await?;
    let steps = match found.first() {
        Some(group) => rules.steps(group, opens, &reads.at_nodes.recent(id)),
        None if opens => {
            return Err(ProviderError::unknown(format!("EC2 does not show security group {id} of the nodes")));
        }
        None => Vec::new(),
    };
    for step in steps {
        single(&step, outputs, reads).await?;
    }
    Ok(())
}

async fn single(step: &Step, outputs: &mut Outputs, reads: &Reads) -> Result<(), ProviderError> {
    let missing = |object| ProviderError::bug(format!("{object} was to be made before {}", step.summary.id));
    let write = step.write.complete(&outputs.made).map_err(missing)?;
    let Some(write) = targets::without(write, &outputs.refused) else { return Ok(()) };
    let answer = send(&write, reads).await;
    match answer {
        Ok(made) => {
            if let Some(object) = write.makes() {
                let none = || ProviderError::bug(format!("AWS made {object} and gave no ID"));
                outputs.made.insert(object.clone(), made.ok_or_else(none)?);
            }
            Ok(())
        }
        Err(error) if is_so_already(&write, &error) => Ok(()),
        Err(error) if is_held(&write, &error) => Err(held(&write, error, reads).await),
        Err(error) if is_rule_of_several(&write, &error) => one_by_one(&write, reads).await,
        Err(error) if targets::is_about_targets(&write, &error) => without_refused(write, error, outputs, reads).await,
        Err(error) => Err(error.into()),
    }
}

/// A write of targets without those that AWS refuses. Each round leaves out at least one, so this ends.
async fn without_refused(
    mut write: Write,
    mut error: ApiError,
    outputs: &mut Outputs,
    reads: &Reads,
) -> Result<(), ProviderError> {
    loop {
        let named = if targets::is_about_targets(&write, &error) { targets::named(&write, &error) } else { Vec::new() };
        if named.is_empty() {
            return Err(error.into());
        }
        for id in named.iter().filter_map(|refused| InstanceId::parse(&refused.id)) {
            // Its state is not what it was.
            reads.fleet.forget(&id);
        }
        let rest = targets::without(write, &named);
        outputs.refused.extend(named);
        let Some(rest) = rest else { return Ok(()) };
        write = rest;
        error = match send(&write, reads).await {
            Ok(_) => return Ok(()),
            Err(error) => error,
        };
    }
}

/// What was remembered is out of date, whatever came of the write: a lost answer may hide a success.
async fn send(write: &Write, reads: &Reads) -> Result<Option<String>, ApiError> {
    let answer = reads.api.write(write).await;
    reads.wrote(write);
    if let (Write::Ec2(write), Ok(_)) = (write, &answer) {
        reads.at_nodes.wrote(write);
    }
    answer
}

/// Whether AWS refuses because it is so already.
fn is_so_already(write: &Write, error: &ApiError) -> bool {
    let codes: &[&str] = match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) => &["InvalidGroup.NotFound", "InvalidGroupId.NotFound"],
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { permissions, .. }) if is_one(permissions) => {
            &["InvalidPermission.Duplicate"]
        }
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { permissions, .. }) if is_one(permissions) => {
            &["InvalidPermission.NotFound", "InvalidGroup.NotFound"]
        }
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) => &["LoadBalancerNotFound", "AccessPointNotFound"],
        Write::Elb(ElbWrite::CreateLoadBalancerPolicy { .. }) => &["DuplicatePolicyName"],
        Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => &["LoadBalancerNotFound"],
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => &["TargetGroupNotFound"],
        Write::ElbV2(ElbV2Write::DeleteListener { .. }) => &["ListenerNotFound"],
        _ => &[],
    };
    error.is(codes)
}

fn is_one(permissions: &[Permission]) -> bool {
    matches!(permissions, [one] if one.sources.len() == 1)
}

/// Whether EC2 refuses a whole list of rules because one of them is there, or isn't.
fn is_rule_of_several(write: &Write, error: &ApiError) -> bool {
    match write {
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { .. }) => error.is(&["InvalidPermission.Duplicate"]),
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { .. }) => error.is(&["InvalidPermission.NotFound"]),
        _ => false,
    }
}

/// Rules one at a time, so that one that is there already doesn't keep the others out.
async fn one_by_one(write: &Write, reads: &Reads) -> Result<(), ProviderError> {
    for single in singles(write) {
        match send(&single, reads).await {
            Ok(_) => {}
            Err(error) if is_so_already(&single, &error) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

fn singles(write: &Write) -> Vec<Write> {
    let split = |permissions: &[Permission]| -> Vec<Vec<Permission>> {
        let sources =
            permissions.iter().flat_map(|permission| permission.sources.iter().map(move |from| (permission, from)));
        sources
            .map(|(permission, from)| vec![Permission { sources: vec![from.clone()], ..permission.clone() }])
            .collect()
    };
    let Write::Ec2(write) = write else { return Vec::new() };
    match write {
        Ec2Write::AuthorizeSecurityGroupIngress { group, permissions } => split(permissions)
            .into_iter()
            .map(|permissions| Ec2Write::AuthorizeSecurityGroupIngress { group: group.clone(), permissions })
            .map(Write::Ec2)
            .collect(),
        Ec2Write::RevokeSecurityGroupIngress { group, permissions } => split(permissions)
            .into_iter()
            .map(|permissions| Ec2Write::RevokeSecurityGroupIngress { group: group.clone(), permissions })
            .map(Write::Ec2)
            .collect(),
        _ => Vec::new(),
    }
}

/// Whether something else must end before it can be.
fn is_held(write: &Write, error: &ApiError) -> bool {
    match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { .. }) => error.is(&["DependencyViolation", "InvalidGroup.InUse"]),
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { .. }) => error.is(&["ResourceInUse"]),
        // Made a moment ago by an attempt that died or whose answer was lost.
        Write::Ec2(Ec2Write::CreateSecurityGroup { .. }) => error.is(&["InvalidGroup.Duplicate"]),
        _ => false,
    }
}

/// The error that says what holds the deletion up and when it is tried again.
async fn held(write: &Write, error: ApiError, reads: &Reads) -> ProviderError {
    let message = match write {
        Write::Ec2(Ec2Write::DeleteSecurityGroup { group }) => {
            let blocking = blocking(&group.to_string(), reads).await;
            format!("security group {group} cannot be deleted yet: {blocking}; tried again ({})", error.code)
        }
        Write::Ec2(Ec2Write::CreateSecurityGroup { name, .. }) => {
            format!(
                "security group {name} is there already, but EC2 does not show it yet; looked for again ({})",
                error.code
            )
        }
        _ => format!(
            "{} is not possible yet: a listener still leads to the target group, or did a moment ago; tried again ({}: {})",
            error.operation.name, error.code, error.message
        ),
    };
    ProviderError::retry(message, HELD)
}

/// What refers to a group, in words.
async fn blocking(group: &str, reads: &Reads) -> String {
    let referring = reads.api.security_groups(&Query::by("ip-permission.group-id", [group])).await;
    let names: Vec<String> = match &referring {
        Ok(groups) => groups
            .iter()
            .filter(|other| other.id != group)
            .map(|other| format!("{} ({})", other.id, other.name))
            .collect(),
        Err(_) => Vec::new(),
    };
    if names.is_empty() {
        return "something still uses it, most likely network interfaces of the load balancer, which go some time after it"
            .to_owned();
    }
    format!("rules of {} refer to it; remove them if they are not to go by themselves", names.join(", "))
}
