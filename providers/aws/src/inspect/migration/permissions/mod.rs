//! What the identity may do.
//!
//! Reads are made, of objects that are there or cannot be there. Writes of EC2 are asked with `DryRun`, and of such a kind that
//! nothing would change even at an endpoint that does not know it: a rule that is there is opened, a route that is not there
//! is deleted. Elastic Load Balancing has no such question, and its policies look at the tags of the object, so that a call for
//! an object that is not there would say nothing about one that is: its writes are not asked.

mod asked;

use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::call::{ErrorKind, Meaning};
use ccm_provider::{Check, Claims, ProviderError, Service};

use super::nodes::Read;
use crate::client::operation::Operation;
use crate::client::{Answer, ApiError};
use crate::inspect::Inspector;
use crate::permissions::{LOAD_BALANCER, NODE, ROUTE, balancer_writes, granted_by};

const CHECK: &str = "permissions";

/// What an answer says of a permission.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Verdict {
    Granted,
    Unclear(ApiError),
    Denied(ApiError),
}

/// Refusals that come only after the permission was looked at, because they are about what was chosen so that nothing changes.
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
        // Who may not read is told so whatever is asked for; a write is judged by the tags of its object, which must be found.
        Meaning::NotFound | Meaning::Unsupported if !error.operation.is_mutating() => Verdict::Granted,
        // The world is in the way, not the policy.
        Meaning::Conflict | Meaning::Passing => Verdict::Granted,
        _ if after => Verdict::Granted,
        _ => Verdict::Unclear(error.clone()),
    }
}

pub(super) async fn checks(of: &Inspector, cluster: &str, claims: &Claims, read: Option<&Read>) -> Vec<Check> {
    let asked = asked::ask(of, cluster, read).await;
    let mut verdicts: BTreeMap<String, Verdict> = BTreeMap::new();
    for (operation, answer) in &asked.answers {
        let verdict = verdict(answer);
        let known = verdicts.entry(operation.permission()).or_insert(Verdict::Granted);
        if rank(&verdict) > rank(known) {
            *known = verdict;
        }
    }
    let needs = Needs {
        balancers: claims.services.iter().any(|service| Service::wants_load_balancer(service)),
        routes: asked.routes,
    };
    let mut checks: Vec<Check> =
        verdicts.iter().filter_map(|(permission, verdict)| summary(permission, verdict, &needs)).collect();
    let granted: Vec<&str> = verdicts
        .iter()
        .filter(|(_, verdict)| **verdict == Verdict::Granted)
        .map(|(permission, _)| &**permission)
        .collect();
    if !granted.is_empty() {
        checks.push(Check::good(CHECK, "", format!("asked and granted: {}", granted.join(", "))));
    }
    checks.push(Check::good(
        CHECK,
        "Elastic Load Balancing",
        format!(
            "has no dry run, so these were not asked; compare the policy with manifests/aws/iam/{LOAD_BALANCER}: {}",
            balancer_writes().into_iter().collect::<Vec<_>>().join(", ")
        ),
    ));
    checks.extend(
        asked
            .left_out
            .iter()
            .map(|(operation, why)| Check::good(CHECK, operation.permission(), format!("was not asked: {why}"))),
    );
    checks
}

fn rank(verdict: &Verdict) -> u8 {
    match verdict {
        Verdict::Granted => 0,
        Verdict::Unclear(_) => 1,
        Verdict::Denied(_) => 2,
    }
}

/// What the cluster uses.
#[derive(Debug)]
struct Needs {
    balancers: bool,
    routes: bool,
}

fn summary(permission: &str, verdict: &Verdict, needs: &Needs) -> Option<Check> {
    let files: BTreeSet<&str> = granted_by(permission);
    let named = files.iter().map(|file| format!("manifests/aws/iam/{file}")).collect::<Vec<_>>().join(" or ");
    match verdict {
        Verdict::Granted => None,
        Verdict::Unclear(error) => {
            let error = ProviderError::from(error.clone());
            let text = format!("it cannot be told whether it is granted: {error}");
            Some(Check::warning(CHECK, permission, text, format!("compare the policy with {named}")))
        }
        Verdict::Denied(error) => {
            let text = ProviderError::from(error.clone()).to_string();
            let fix = format!(
                "grant {permission} as in {named}; where the policy has it, the object lacks the cluster's tag"
            );
            let needed = files.contains(NODE)
                || (needs.balancers && files.contains(LOAD_BALANCER))
                || (needs.routes && files.contains(ROUTE));
            Some(match needed {
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
            // A region without it.
            (Of::Ec2, "DescribeInstanceTopology", "UnsupportedOperation", "granted"),
            (Of::Ec2, "CreateSecurityGroup", "InvalidGroup.Duplicate", "granted"),
            (Of::Ec2, "DeleteSecurityGroup", "DependencyViolation", "granted"),
            (Of::Ec2, "RevokeSecurityGroupIngress", "InvalidPermission.NotFound", "granted"),
            (Of::Ec2, "DeleteRoute", "InvalidRoute.NotFound", "granted"),
            (Of::Ec2, "ReplaceRoute", "InvalidParameterValue", "granted"),
            // The policy looks at the tags of an object that was not found.
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
    fn what_cannot_be_told_is_a_warning_that_names_the_policy() {
        let needs = Needs { balancers: true, routes: true };
        let answer = refused(Of::Ec2, "CreateTags", "SomethingNew");
        let check = summary("ec2:CreateTags", &verdict(&answer), &needs).unwrap();
        assert_eq!(check.severity, ccm_provider::Severity::Warning);
        assert!(check.message.contains("it cannot be told") && check.message.contains("SomethingNew"), "{check:?}");
        assert!(check.fix.contains("load-balancer.json or manifests/aws/iam/tagging.json"), "{check:?}");
    }
}
