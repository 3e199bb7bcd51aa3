//! Deletion of managed groups, and of the rules that refer to them.
//!
//! EC2 deletes no group that a rule of another group refers to. So those rules are revoked first: all of them in groups
//! of the cluster, elsewhere only the one that this program writes itself. Other rules belong to somebody else; a
//! finding names their group.

use std::collections::BTreeMap;

use ccm_provider::{Finding, Verb};

use super::steps;
use crate::annotations::Kind;
use crate::client::ec2::SecurityGroup;
use crate::client::write::Ec2Write;
use crate::client::{Id, Write};
use crate::loadbalancer::claim::{self, Claim};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::rules::{Rule, split};
use crate::loadbalancer::step::{Kind as PartOf, Step};
use crate::loadbalancer::wanted::Wanted;
use crate::ownership::service_tag;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Tags groups before the balancer loses them.
    pub(crate) mark: Vec<Step>,
    /// Revokes rules that refer to the groups: before the balancer is deleted, or after a remaining balancer changed
    /// its groups.
    pub(crate) revoke: Vec<Step>,
    /// Deletes the groups, after the balancer no longer has them.
    pub(crate) delete: Vec<Step>,
    /// Rules of others that block the deletion.
    pub(crate) findings: Vec<Finding>,
}

/// Deletes the groups that were created for a balancer of this kind and are not in `keep`. `attached` are the
/// balancer's groups; managed groups that are no longer attached are found as well, which completes an interrupted
/// deletion.
pub(crate) fn unneeded(
    kind: Kind,
    desired: &Wanted,
    attached: &[String],
    keep: &[Id],
    observed: &Observed,
    env: &Env,
) -> Removal {
    let mut removal = Removal::default();
    for group in observed.groups.values() {
        if keep.iter().any(|id| id.known() == Some(&group.id)) {
            continue;
        }
        match claim::security_group(kind, desired, attached, group, env) {
            Claim::Own => {}
            Claim::FormerName => removal.mark.extend(mark(group, desired)),
            Claim::HalfMade => {
                removal.findings.extend(env.ownership.cluster_key().map(|key| stays(group, &key)));
                continue;
            }
            _ => continue,
        }
        let (revoke, findings) = revoke_references(group, observed, env);
        removal.revoke.extend(revoke);
        removal.findings.extend(findings);
        let write = Ec2Write::DeleteSecurityGroup { group: group.id.clone().into() };
        let reason = "the group was created for this load balancer, which no longer needs it";
        let step = Step::new(Verb::Delete, "SecurityGroup", &*group.id, reason, Write::Ec2(write));
        let step = step.change("name", Some(group.name.clone()), None);
        removal.delete.push(step.part(PartOf::Release, ""));
    }
    removal
}

/// Tags a group of which nothing else shows, without its balancer, whose it is: EC2 may refuse its deletion for minutes.
fn mark(group: &SecurityGroup, desired: &Wanted) -> Option<Step> {
    let (key, value) = service_tag(&desired.service);
    if group.tags.contains_key(&key) {
        return None;
    }
    let tags = [(key.clone(), value.clone())].into();
    let write = Ec2Write::CreateTags { resources: vec![group.id.clone().into()], tags };
    let reason = "its name is from before a change of --cluster-name";
    let step = Step::new(Verb::Update, "SecurityGroup", &*group.id, reason, Write::Ec2(write));
    Some(step.change(format!("tag {key}"), None, Some(value)).part(PartOf::Claim, ""))
}

/// The rules in other groups that refer to a group.
pub(crate) fn references<'a>(to: &str, observed: &'a Observed) -> BTreeMap<&'a str, (&'a SecurityGroup, Vec<Rule>)> {
    let mut references = BTreeMap::new();
    for group in observed.groups.values().filter(|group| group.id != to) {
        let mut rules = split(&group.ingress);
        rules.retain(|rule| rule.is_from(to));
        if !rules.is_empty() {
            references.insert(&*group.id, (group, rules));
        }
    }
    references
}

/// Whether a rule may be the one that lets a classic balancer reach the nodes: this program and upstream describe none.
pub(super) fn is_of_program(rule: &Rule) -> bool {
    rule.is_all_traffic() && rule.description.is_empty()
}

/// Revokes the node rule of a user's group: only all traffic from it, and only in groups of the cluster.
pub(crate) fn main_group_rule(group: &str, observed: &Observed, env: &Env) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, (holder, mut rules)) in references(group, observed) {
        rules.retain(is_of_program);
        if may_be_changed(id, env) && env.ownership.is_member(&holder.tags) {
            steps.extend(steps::revoke(&id.into(), rules, "the load balancer no longer uses that group"));
        }
    }
    steps
}

/// Revokes the rules that refer to a group about to be deleted; findings name those that stay.
pub(crate) fn revoke_references(group: &SecurityGroup, observed: &Observed, env: &Env) -> (Vec<Step>, Vec<Finding>) {
    let (mut steps, mut findings) = (Vec::new(), Vec::new());
    for (id, (holder, rules)) in references(&group.id, observed) {
        let ours = |rule: &Rule| env.ownership.is_member(&holder.tags) || is_of_program(rule);
        let (revoke, stay): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rule| may_be_changed(id, env) && ours(rule));
        steps.extend(steps::revoke(&id.into(), revoke, "the group that it lets in is about to be deleted"));
        findings.extend(stay.iter().map(|rule| blocked(group, holder, rule)));
    }
    (steps, findings)
}

fn stays(group: &SecurityGroup, key: &str) -> Finding {
    Finding::warning("security group", format!(
            "not deleted: {} has the name of a group of this load balancer, but is not tagged {key} = owned; delete it if \
             it is not needed",
            group.name
        )).value(group.id.clone())
}

fn blocked(group: &SecurityGroup, holder: &SecurityGroup, rule: &Rule) -> Finding {
    Finding::warning(
        "security group",
        format!(
            "its rule {rule:?} keeps {} ({}) from being deleted; this program did not create the rule; remove it",
            group.id,
            group.name,
            rule = rule.to_string()
        ),
    )
    .value(holder.id.clone())
}

/// Whether this program manages the rules of a group: not with `DisableSecurityGroupIngress`, and not those of
/// `ElbSecurityGroup`.
pub(crate) fn may_be_changed(group: &str, env: &Env) -> bool {
    !env.node_groups_untouched && env.shared_group.as_deref() != Some(group)
}
