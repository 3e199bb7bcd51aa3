//! Groups that have had their time, and the rules that refer to them.
//!
//! EC2 deletes no group that a rule of another group refers to. So the references go first: in groups of the cluster all that
//! name the group, elsewhere only the one that this program writes itself. Whatever is left is somebody's own rule, and its
//! group is named to the user.

use std::collections::BTreeMap;

use ccm_provider::{Finding, Severity, Verb};

use super::permissions::{self, Rule};
use crate::annotations::Kind;
use crate::client::ec2::SecurityGroup;
use crate::client::write::Ec2Write;
use crate::client::{Id, Write};
use crate::loadbalancer::desired::Desired;
use crate::loadbalancer::names;
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::plan::{Env, Step};

/// What removes groups of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Removal {
    /// Takes the references away; before the balancer lets go of the groups when it is deleted, after it when it stays.
    pub(crate) cut: Vec<Step>,
    /// Deletes the groups; after the balancer has let go of them.
    pub(crate) delete: Vec<Step>,
    /// Rules of others that keep EC2 from deleting.
    pub(crate) findings: Vec<Finding>,
}

/// Removes the groups that were made for a balancer of this kind and are not in `keep`. `attached` are the groups that the
/// balancer has; groups of our name that it doesn't have (any more) are found as well, so that an interrupted removal is
/// completed.
pub(crate) fn unneeded(
    kind: Kind,
    desired: &Desired,
    attached: &[String],
    keep: &[Id],
    observed: &Observed,
    env: &Env,
) -> Removal {
    let mut removal = Removal::default();
    for group in observed.groups.values() {
        let kept = keep.iter().any(|id| id.known() == Some(&group.id));
        if kept || !was_made_for(kind, desired, attached, group, env) {
            continue;
        }
        if !env.ownership.is_owned(&group.tags) {
            removal.findings.extend(env.ownership.cluster_key().map(|mark| stays(group, &mark)));
            continue;
        }
        let (cut, findings) = revoke_references(group, observed, env);
        removal.cut.extend(cut);
        removal.findings.extend(findings);
        let write = Ec2Write::DeleteSecurityGroup { group: group.id.clone().into() };
        let reason = "the group was made for this balancer, which doesn't need it any more";
        let step = Step::new(Verb::Delete, "SecurityGroup", &*group.id, reason, Write::Ec2(write));
        removal.delete.push(step.change("name", Some(group.name.clone()), None));
    }
    removal
}

/// Whether a group was made for this Service's balancer and may go with it. (Upstream asks less, and deletes groups of the
/// user that carry the cluster's tag.)
pub(crate) fn is_ours(kind: Kind, desired: &Desired, attached: &[String], group: &SecurityGroup, env: &Env) -> bool {
    env.ownership.is_owned(&group.tags) && was_made_for(kind, desired, attached, group, env)
}

/// Whether name and description of a group that nobody names are those of a group of this Service's balancer.
fn was_made_for(kind: Kind, desired: &Desired, attached: &[String], group: &SecurityGroup, env: &Env) -> bool {
    let named = desired.named_groups.instead.iter().chain(&desired.named_groups.extra).chain(&env.shared_group);
    if group.vpc != env.vpc || named.into_iter().any(|id| *id == group.id) {
        return false;
    }
    match kind {
        Kind::Classic => {
            group.name == names::classic_group(&desired.name)
                && group.description == names::classic_group_description(&desired.name, &desired.service)
        }
        Kind::Network => {
            let name = names::network_group(&desired.cluster_name, &desired.service, &desired.uid);
            // The last ten digits change with --cluster-name; the balancer then still has the former group.
            let former = attached.contains(&group.id)
                && group.name.len() == name.len()
                && group.name.get(..name.len() - 10) == name.get(..name.len() - 10);
            group.description == names::NETWORK_GROUP_DESCRIPTION && (group.name == name || former)
        }
    }
}

/// The rules of each group that refer to a group; those of the group itself are not among them.
pub(crate) fn references<'a>(to: &str, observed: &'a Observed) -> BTreeMap<&'a str, (&'a SecurityGroup, Vec<Rule>)> {
    let mut references = BTreeMap::new();
    for group in observed.groups.values().filter(|group| group.id != to) {
        let mut rules = permissions::split(&group.ingress);
        rules.retain(|rule| rule.is_from(to));
        if !rules.is_empty() {
            references.insert(&*group.id, (group, rules));
        }
    }
    references
}

/// Takes away the rule by which a group that stays reached the nodes: our pair only, and only in groups of the cluster.
pub(crate) fn cut_group_that_stays(group: &str, observed: &Observed, env: &Env) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, (holder, mut rules)) in references(group, observed) {
        rules.retain(Rule::is_all_traffic);
        if may_be_changed(id, env) && env.ownership.is_member(&holder.tags) {
            steps.extend(permissions::revoke(&id.into(), rules, "the balancer doesn't come from that group any more"));
        }
    }
    steps
}

/// Takes away what refers to a group that is about to be deleted, and tells what stays.
pub(crate) fn revoke_references(group: &SecurityGroup, observed: &Observed, env: &Env) -> (Vec<Step>, Vec<Finding>) {
    let (mut steps, mut findings) = (Vec::new(), Vec::new());
    for (id, (holder, rules)) in references(&group.id, observed) {
        let ours = |rule: &Rule| env.ownership.is_member(&holder.tags) || rule.is_all_traffic();
        let (cut, stay): (Vec<_>, Vec<_>) = rules.into_iter().partition(|rule| may_be_changed(id, env) && ours(rule));
        steps.extend(permissions::revoke(&id.into(), cut, "the group that it lets in is about to be deleted"));
        findings.extend(stay.iter().map(|rule| blocked(group, holder, rule)));
    }
    (steps, findings)
}

fn stays(group: &SecurityGroup, mark: &str) -> Finding {
    Finding {
        severity: Severity::Warning,
        key: "security group".to_owned(),
        value: Some(group.id.clone()),
        message: format!(
            "not deleted: {} has the name of a group of this load balancer, but is not tagged {mark} = owned; delete it if \
             it is not needed",
            group.name
        ),
    }
}

fn blocked(group: &SecurityGroup, holder: &SecurityGroup, rule: &Rule) -> Finding {
    Finding {
        severity: Severity::Warning,
        key: "security group".to_owned(),
        value: Some(holder.id.clone()),
        message: format!(
            "its rule {rule:?} keeps {} ({}) from being deleted; the rule is not ours, remove it",
            group.id,
            group.name,
            rule = rule.to_string()
        ),
    }
}

/// `DisableSecurityGroupIngress`, and the configured group: rules are the user's business.
pub(crate) fn may_be_changed(group: &str, env: &Env) -> bool {
    !env.node_groups_untouched && env.shared_group.as_deref() != Some(group)
}
