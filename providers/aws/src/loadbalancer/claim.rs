//! Whose an object is: one answer for plans, the guard, deletions, `explain` and `orphans`.
//!
//! Names prove less than tags: a cluster that was restored from a backup has the Services, and so the names, of the
//! original. Where the role of this process may not read tags, or AWS does not know that operation, names decide, as in
//! the Go program.

use ccm_provider::{ErrorClass, Finding, ProviderError};

use super::env::Env;
pub(crate) use super::marks::{Marks, READS_TAGS, Unread};
use super::names::{self, NETWORK_KIND as KIND};
use super::observed::{Observed, TargetGroup};
use super::wanted::Wanted;
use crate::annotations::Kind;
use crate::client::Tags;
use crate::client::ec2::SecurityGroup;
use crate::ownership::{is_of_service, names_a_cluster, service_of};

/// A permission that classic balancers do not need.
const LISTS_TARGET_GROUPS: &str = "elasticloadbalancing:DescribeTargetGroups";

/// A permission that balancers without managed groups do not need if the groups of the nodes are left alone.
const LISTS_GROUPS: &str = "ec2:DescribeSecurityGroups";

/// Whether a finding is about a permission of the role.
pub(crate) fn is_of_role(finding: &Finding) -> bool {
    [READS_TAGS, LISTS_TARGET_GROUPS, LISTS_GROUPS].contains(&&*finding.key)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// The tags say so.
    Own,
    /// A part of an object of this Service that does not carry all tags of the owner: older versions created some
    /// without.
    HalfMade,
    /// A security group of this Service from before a change of `--cluster-name`, which is a part of its name.
    FormerName,
    /// Somebody else's, or used elsewhere.
    Foreign,
    Unread(Unread),
}

impl Claim {
    /// Whether this process may change the object.
    pub(crate) fn is_ours(self) -> bool {
        match self {
            Self::Own | Self::HalfMade | Self::FormerName | Self::Unread(Unread::Denied | Unread::Unsupported) => true,
            Self::Foreign | Self::Unread(Unread::NotShown | Unread::Hidden) => false,
        }
    }
}

/// The claim to a load balancer with the name of the Service, which contains its UID.
pub(crate) fn balancer(marks: &Marks, env: &Env) -> Claim {
    match marks {
        Marks::Read(tags) if env.ownership.is_member(tags) => Claim::Own,
        Marks::Read(_) => Claim::Foreign,
        Marks::Unread(why) => Claim::Unread(*why),
    }
}

/// The claim to a target group.
pub(crate) fn target_group(desired: &Wanted, observed: &Observed, found: &TargetGroup, env: &Env) -> Claim {
    if is_used_elsewhere(desired, observed, found, env).is_some() {
        return Claim::Foreign;
    }
    let own = own_balancer(observed, env);
    let behind = own.is_some_and(|arn| found.group.balancers.iter().any(|of| of == arn));
    let has_name = names::may_be_target_group_of(&found.group.name, &desired.service);
    match &found.tags {
        Marks::Read(tags) if env.ownership.is_member(tags) && is_of_service(tags, &desired.service) => Claim::Own,
        Marks::Read(tags) if behind && has_name && !names_another(tags, desired, env) => Claim::HalfMade,
        Marks::Read(_) => Claim::Foreign,
        Marks::Unread(why @ (Unread::NotShown | Unread::Hidden)) => Claim::Unread(*why),
        Marks::Unread(why) => {
            let former = found.group.balancers.iter().any(|arn| names::is_balancer(arn, &desired.name));
            let named = desired.target_groups.contains(&found.group.name);
            if behind || former || named || found.was_behind { Claim::Unread(*why) } else { Claim::Foreign }
        }
    }
}

/// Another balancer that forwards to the group. AWS may show a deleted balancer for a while: one with the Service's name
/// is not another.
pub(crate) fn is_used_elsewhere<'a>(
    desired: &Wanted,
    observed: &Observed,
    found: &'a TargetGroup,
    env: &Env,
) -> Option<&'a str> {
    let own = own_balancer(observed, env);
    let is_former = |arn: &str| observed.network.is_none() && names::is_balancer(arn, &desired.name);
    let balancers = found.group.balancers.iter().map(String::as_str);
    balancers.into_iter().find(|arn| own != Some(*arn) && !is_former(arn))
}

/// The claim to a security group as the managed group of the Service's balancer of a kind: by name, description and
/// tags. (Upstream checks less, and deletes groups of the user that carry the cluster's tag.) `attached` are the
/// balancer's groups.
pub(crate) fn security_group(
    kind: Kind,
    desired: &Wanted,
    attached: &[String],
    group: &SecurityGroup,
    env: &Env,
) -> Claim {
    let named = desired.named_groups.instead.iter().chain(&desired.named_groups.extra).chain(&env.shared_group);
    if group.vpc != env.vpc || named.into_iter().any(|id| *id == group.id) {
        return Claim::Foreign;
    }
    let (name, description) = match kind {
        Kind::Classic => {
            (names::classic_group(&desired.name), names::classic_group_description(&desired.name, &desired.service))
        }
        Kind::Network => (
            names::network_group(&desired.cluster_name, &desired.service, &desired.uid),
            names::NETWORK_GROUP_DESCRIPTION.to_owned(),
        ),
    };
    // The last ten digits depend on --cluster-name; after a change the balancer still has the previous group, which is
    // tagged before it loses it.
    let is_former = kind == Kind::Network
        && (attached.contains(&group.id) || is_of_service(&group.tags, &desired.service))
        && group.name.len() == name.len()
        && group.name.get(..name.len() - 10) == name.get(..name.len() - 10);
    match (group.description == description, group.name == name) {
        (true, is_same) if is_same || is_former => match (env.ownership.is_owned(&group.tags), is_same) {
            (false, _) => Claim::HalfMade,
            (true, false) => Claim::FormerName,
            (true, true) => Claim::Own,
        },
        _ => Claim::Foreign,
    }
}

fn own_balancer<'a>(observed: &'a Observed, env: &Env) -> Option<&'a str> {
    let network = observed.network.as_ref()?;
    (network.balancer.kind == KIND && balancer(&network.tags, env).is_ours()).then_some(&*network.balancer.arn)
}

/// Whether an object is tagged for another Service or another cluster.
pub(crate) fn names_another(tags: &Tags, desired: &Wanted, env: &Env) -> bool {
    let of_another_cluster = !env.ownership.is_member(tags) && names_a_cluster(tags);
    of_another_cluster || service_of(tags).is_some_and(|service| service != desired.service.to_string())
}

/// The error if a balancer of the Service's name is not ours, or AWS does not show whose it is.
pub(crate) fn check(desired: &Wanted, marks: &Marks, env: &Env) -> Result<(), ProviderError> {
    match balancer(marks, env) {
        Claim::Unread(why @ (Unread::NotShown | Unread::Hidden)) => Err(balancer_not_shown(desired, why)),
        claim if claim.is_ours() => Ok(()),
        _ => Err(not_tagged(desired, env, "delete it or the Service")),
    }
}

fn not_tagged(desired: &Wanted, env: &Env, otherwise: &str) -> ProviderError {
    let (name, key) = (&desired.name, env.ownership.cluster_key().unwrap_or_default());
    ProviderError::unknown(format!(
        "load balancer {name} is not tagged as belonging to this cluster; if it does, tag it {key} = owned, otherwise \
         {otherwise}"
    ))
}

/// Whether a balancer of the Service's name may be deleted; an error if AWS does not show whose it is. The name contains
/// the UID of the Service, so one that no cluster has tagged is probably ours: it is neither deleted nor forgotten.
/// (Upstream deletes by name alone.)
pub(crate) fn check_deletion(desired: &Wanted, marks: &Marks, env: &Env) -> Result<bool, ProviderError> {
    match balancer(marks, env) {
        Claim::Unread(why @ (Unread::NotShown | Unread::Hidden)) => Err(balancer_not_shown(desired, why)),
        Claim::Foreign if !marks.read().is_some_and(names_a_cluster) => Err(not_tagged(desired, env, "delete it")),
        claim => Ok(claim.is_ours()),
    }
}

fn balancer_not_shown(desired: &Wanted, why: Unread) -> ProviderError {
    not_shown(&format!("load balancer {}", desired.name), why)
}

pub(crate) fn group_not_shown(found: &TargetGroup, why: Unread) -> ProviderError {
    not_shown(&format!("target group {}", found.group.name), why)
}

/// The answer while AWS shows an object without its tags.
fn not_shown(object: &str, why: Unread) -> ProviderError {
    match why {
        Unread::Hidden => ProviderError::retry(
            format!(
                "AWS has not shown the tags of {object} for a minute: nothing else says whose it is, so it is left alone; \
                 look at them in the console, and tag it if it has none"
            ),
            super::reads::SHORT,
        ),
        _ => ProviderError::in_progress(format!("AWS does not show the tags of {object} yet"), super::settling::AGAIN),
    }
}

/// A finding if names decide.
fn without_tags(observed: &Observed) -> Option<Finding> {
    let classic = observed.classic.iter().map(|found| &found.tags);
    let network = observed.network.iter().map(|found| &found.tags);
    let mut marks = classic.chain(network).chain(observed.target_groups().map(|found| &found.tags));
    let (why, remedy) = match marks.find(|marks| marks.are_refused())? {
        Marks::Unread(Unread::Unsupported) => ("AWS does not know this operation", ""),
        _ => ("not granted", ". Add it to the policy of the role (manifests/aws/iam)"),
    };
    let text = format!(
        "{why}: names show which load balancers are this cluster's, as in aws-cloud-controller-manager; a cluster that was \
         restored from a backup would take those of the original{remedy}"
    );
    Some(Finding::warning(READS_TAGS, text))
}

/// A finding for each permission that is missing and not needed, and for other failed reads that nothing needs.
pub(crate) fn denied_reads(observed: &Observed) -> impl Iterator<Item = Finding> {
    let groups = observed.groups_denied.then(|| {
        let text = "not granted: managed security groups that a load balancer had before are not found. Add it to the \
                    policy of the role (manifests/aws/iam) if there may be any";
        Finding::warning(LISTS_GROUPS, text)
    });
    let target_groups = observed.target_groups_denied.then(|| {
        let text = "not granted: target groups that a network load balancer of the same Service has left are not found. \
                    Add it to the policy of the role (manifests/aws/iam) if there may be any";
        Finding::warning(LISTS_TARGET_GROUPS, text)
    });
    let other_kinds = [("classic", &observed.unread_classic), ("network", &observed.unread_network)];
    let other_kinds = other_kinds.into_iter().filter_map(|(kind, error)| {
        let text = format!("not known whether a {kind} one is left from an earlier annotation: {}", error.as_ref()?);
        Some(Finding::warning("load balancer", text))
    });
    without_tags(observed).into_iter().chain(target_groups).chain(groups).chain(other_kinds)
}

/// The error of commands that need the tags.
pub(crate) fn refused(marks: &Marks) -> Option<ProviderError> {
    let (class, why, remedy) = match marks {
        Marks::Unread(Unread::Denied) => (
            ErrorClass::Denied { action: READS_TAGS.to_owned() },
            "ccm lacks",
            "; add it to the policy of its role (manifests/aws/iam)",
        ),
        Marks::Unread(Unread::Unsupported) => (ErrorClass::Unsupported, "AWS does not know", ""),
        Marks::Read(_) | Marks::Unread(Unread::NotShown | Unread::Hidden) => return None,
    };
    let text = "the tags of load balancers cannot be read, so nothing shows what was left over";
    Some(ProviderError::new(class, format!("{why} {READS_TAGS}: {text}{remedy}")))
}
