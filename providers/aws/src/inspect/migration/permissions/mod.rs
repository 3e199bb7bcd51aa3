//! Checks the permissions of the identity.
//!
//! Reads are called for objects that exist or cannot exist. Writes of EC2 are called with `DryRun`, with arguments that
//! would change nothing even if an endpoint ignored it: an existing rule is opened, a route that does not exist is
//! deleted. Elastic Load Balancing has no dry run, and its policies depend on the tags of the object, so a call for a
//! nonexistent object would prove nothing: its writes are not checked.

mod calls;
mod needs;

use std::collections::BTreeMap;

use ccm_kit::call::{ErrorKind, Meaning, Operation as _};
use ccm_provider::{Check, Claims, ProviderError};

use self::needs::Needs;
use super::nodes::NodeInstances;
use crate::client::operation::Operation;
use crate::client::{Answer, ApiError};
use crate::inspect::Inspector;
use crate::permissions::{LOAD_BALANCER, OPTIONAL, TAGGING, balancer_writes, granted_by};

pub(super) const CHECK: &str = "permissions";
/// The permission of the tagging controller, apart from that for security groups.
const INSTANCE_TAGS: &str = "ec2:CreateTags for instances";

/// The result of a call about a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Granted,
    Unclear(ApiError),
    Denied(ApiError),
}

/// Errors that AWS returns only after the permission check: they concern arguments chosen so that nothing changes.
const AFTER_PERMISSION: &[(&str, &str)] = &[
    ("RevokeSecurityGroupIngress", "InvalidPermission.NotFound"),
    ("DeleteRoute", "InvalidRoute.NotFound"),
    ("ReplaceRoute", "InvalidRoute.NotFound"),
    ("ReplaceRoute", "InvalidParameterValue"),
];

fn verdict(answer: &Answer<()>) -> Verdict {
    let Err(error) = answer else { return Verdict::Granted };
    let Operation { name, .. } = error.operation;
    let after = AFTER_PERMISSION.iter().any(|(operation, code)| *operation == name && error.is(&[code]));
    match error.meaning() {
        Meaning::Denied => Verdict::Denied(error.clone()),
        _ if error.kind != ErrorKind::Refused => Verdict::Unclear(error.clone()),
        // A denied read fails for any object; a write is authorized by the tags of its object, which must exist.
        Meaning::NotFound | Meaning::Unsupported if !error.operation.is_mutating() => Verdict::Granted,
        // The state of the cloud prevents the call, not the policy.
        Meaning::Conflict | Meaning::Passing => Verdict::Granted,
        _ if after => Verdict::Granted,
        _ => Verdict::Unclear(error.clone()),
    }
}

/// # Errors
///
/// AWS does not take the credentials, or there are none: every call fails in the same way.
pub(super) async fn checks(
    aws: &Inspector,
    cluster: &str,
    claims: &Claims,
    read: Option<&NodeInstances>,
) -> Result<Vec<Check>, ApiError> {
    let calls = calls::make(aws, cluster, read).await;
    let without = |(_, answer): &(_, Answer<()>)| matches!(answer, Err(error) if error.kind == ErrorKind::Credentials);
    if let Some((_, Err(error))) = calls.answers.first().filter(|_| calls.answers.iter().all(without)) {
        return Err(error.clone());
    }
    let mut verdicts: BTreeMap<String, Verdict> = BTreeMap::new();
    let answers = calls.answers.iter().map(|(operation, answer)| (operation.permission(), answer));
    for (permission, answer) in answers.chain(calls.instance_tags.iter().map(|it| (INSTANCE_TAGS.to_owned(), it))) {
        let verdict = verdict(answer);
        let known = verdicts.entry(permission).or_insert(Verdict::Granted);
        if rank(&verdict) > rank(known) {
            *known = verdict;
        }
    }
    let needs = Needs::of(aws, cluster, claims, read, calls.routes);
    let mut checks: Vec<Check> =
        verdicts.iter().filter_map(|(permission, verdict)| summary(permission, verdict, &needs)).collect();
    let granted: Vec<&str> = verdicts
        .iter()
        .filter(|(_, verdict)| **verdict == Verdict::Granted)
        .map(|(permission, _)| &**permission)
        .collect();
    if !granted.is_empty() {
        checks.push(Check::good(CHECK, "", format!("checked and granted: {}", granted.join(", "))));
    }
    checks.push(Check::good(
        CHECK,
        "Elastic Load Balancing",
        format!(
            "has no dry run, so these were not checked; compare the policy with manifests/aws/iam/{LOAD_BALANCER}: {}",
            balancer_writes().into_iter().collect::<Vec<_>>().join(", ")
        ),
    ));
    checks.extend(
        calls
            .skipped
            .iter()
            .map(|(operation, why)| Check::good(CHECK, operation.permission(), format!("not checked: {why}"))),
    );
    Ok(checks)
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Granted => 0,
        Verdict::Unclear(_) => 1,
        Verdict::Denied(_) => 2,
    }
}

fn summary(permission: &str, verdict: &Verdict, needs: &Needs) -> Option<Check> {
    let files = if permission == INSTANCE_TAGS { [TAGGING].into() } else { granted_by(permission) };
    let named = files.iter().map(|file| format!("manifests/aws/iam/{file}")).collect::<Vec<_>>().join(" or ");
    match verdict {
        Verdict::Granted => None,
        Verdict::Unclear(error) => {
            let error = ProviderError::from(error.clone());
            let text = format!("cannot determine whether it is granted: {error}");
            Some(Check::warning(CHECK, permission, text, format!("compare the policy with {named}")))
        }
        Verdict::Denied(error) => {
            let text = ProviderError::from(error.clone()).to_string();
            let fix = format!(
                "grant {permission} as in {named}; where the policy has it, the object lacks the cluster's tag"
            );
            if let Some((_, effect)) = OPTIONAL.iter().find(|(optional, _)| *optional == permission) {
                return Some(Check::warning(CHECK, permission, format!("{text}; without it {effect}"), fix));
            }
            Some(match needs.include(permission, &files) {
                true => Check::error(CHECK, permission, text, fix),
                false => Check::warning(CHECK, permission, format!("{text}; nothing in the cluster needs it yet"), fix),
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::operation::Service as Of;

    fn refused(service: Of, name: &'static str, code: &str) -> Answer<()> {
        Err(ApiError::refused(Operation::new(service, name), code, "text"))
    }

    fn word(answer: &Answer<()>) -> &'static str {
        match verdict(answer) {
            Verdict::Granted => "granted",
            Verdict::Unclear(_) => "unclear",
            Verdict::Denied(_) => "denied",
        }
    }

    #[test]
    fn only_what_comes_after_the_permission_says_that_it_is_there() {
        for (service, name, code, wanted) in [
            (Of::Ec2, "DescribeInstances", "UnauthorizedOperation", "denied"),
            (Of::Elb, "DescribeTags", "AccessDenied", "denied"),
            (Of::Elb, "DescribeTags", "LoadBalancerNotFound", "granted"),
            // The region lacks the operation.
            (Of::Ec2, "DescribeInstanceTopology", "UnsupportedOperation", "granted"),
            (Of::Ec2, "CreateSecurityGroup", "InvalidGroup.Duplicate", "granted"),
            (Of::Ec2, "DeleteSecurityGroup", "DependencyViolation", "granted"),
            (Of::Ec2, "RevokeSecurityGroupIngress", "InvalidPermission.NotFound", "granted"),
            (Of::Ec2, "DeleteRoute", "InvalidRoute.NotFound", "granted"),
            (Of::Ec2, "ReplaceRoute", "InvalidParameterValue", "granted"),
            // The policy depends on the tags of an object that was not found.
            (Of::Ec2, "DeleteSecurityGroup", "InvalidGroup.NotFound", "unclear"),
            (Of::Ec2, "CreateTags", "InvalidParameterValue", "unclear"),
            (Of::Ec2, "CreateTags", "RequestLimitExceeded", "unclear"),
            (Of::Ec2, "CreateTags", "AuthFailure", "unclear"),
            (Of::Ec2, "CreateTags", "SomethingNew", "unclear"),
        ] {
            assert_eq!(word(&refused(service, name, code)), wanted, "{name} {code}");
        }
        let operation = Operation::new(Of::Ec2, "CreateTags");
        assert_eq!(word(&Err(ApiError::of_kind(operation, ErrorKind::NoAnswer, "x"))), "unclear");
        assert_eq!(word(&Ok(())), "granted");
    }

    #[test]
    fn what_cannot_be_checked_is_a_warning_that_names_the_policy() {
        let needs = Needs::default();
        let answer = refused(Of::Ec2, "CreateTags", "SomethingNew");
        let check = summary("ec2:CreateTags", &verdict(&answer), &needs).unwrap();
        assert_eq!(check.severity, ccm_provider::Severity::Warning);
        assert!(check.message.contains("cannot determine") && check.message.contains("SomethingNew"), "{check:?}");
        assert!(check.fix.contains("load-balancer.json or manifests/aws/iam/tagging.json"), "{check:?}");
    }
}
