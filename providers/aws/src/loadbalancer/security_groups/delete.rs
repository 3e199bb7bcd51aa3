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
use crate::loadbalancer::desired::Wish;
use crate::loadbalancer::names;
use crate::loadbalancer::observe::Observed;
use crate::loadbalancer::plan::{Ground, Step};

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
    wish: &Wish,
    attached: &[String],
    keep: &[Id],
    observed: &Observed,
    ground: &Ground,
) -> Removal {
    let mut removal = Removal::default();
    for group in observed.groups.values() {
        let kept = keep.iter().any(|id| id.known() == Some(&group.id));
        if kept || !was_made_for(kind, wish, attached, group, ground) {
            continue;
        }
        if !ground.ownership.is_owned(&group.tags) {
            removal.findings.extend(ground.ownership.cluster_key().map(|mark| stays(group, &mark)));
            continue;
        }
        let (cut, findings) = cut_before_deletion(group, observed, ground);
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
pub(crate) fn is_ours(kind: Kind, wish: &Wish, attached: &[String], group: &SecurityGroup, ground: &Ground) -> bool {
    ground.ownership.is_owned(&group.tags) && was_made_for(kind, wish, attached, group, ground)
}

/// Whether name and description of a group that nobody names are those of a group of this Service's balancer.
fn was_made_for(kind: Kind, wish: &Wish, attached: &[String], group: &SecurityGroup, ground: &Ground) -> bool {
    let named = wish.named_groups.instead.iter().chain(&wish.named_groups.extra).chain(&ground.shared_group);
    if group.vpc != ground.vpc || named.into_iter().any(|id| *id == group.id) {
        return false;
    }
    match kind {
        Kind::Classic => {
            group.name == names::classic_group(&wish.name)
                && group.description == names::classic_group_description(&wish.name, &wish.service)
        }
        Kind::Network => {
            let name = names::network_group(&wish.cluster_name, &wish.service, &wish.uid);
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
pub(crate) fn cut_group_that_stays(group: &str, observed: &Observed, ground: &Ground) -> Vec<Step> {
    let mut steps = Vec::new();
    for (id, (holder, mut rules)) in references(group, observed) {
        rules.retain(Rule::is_all_traffic);
        if may_be_changed(id, ground) && ground.ownership.is_member(&holder.tags) {
            steps.extend(permissions::revoke(&id.into(), rules, "the balancer doesn't come from that group any more"));
        }
    }
    steps
}

/// Takes away what refers to a group that is about to be deleted, and tells what stays.
pub(crate) fn cut_before_deletion(
    group: &SecurityGroup,
    observed: &Observed,
    ground: &Ground,
) -> (Vec<Step>, Vec<Finding>) {
    let (mut steps, mut findings) = (Vec::new(), Vec::new());
    for (id, (holder, rules)) in references(&group.id, observed) {
        let ours = |rule: &Rule| ground.ownership.is_member(&holder.tags) || rule.is_all_traffic();
        let (cut, stay): (Vec<_>, Vec<_>) =
            rules.into_iter().partition(|rule| may_be_changed(id, ground) && ours(rule));
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
pub(crate) fn may_be_changed(group: &str, ground: &Ground) -> bool {
    !ground.node_groups_untouched && ground.shared_group.as_deref() != Some(group)
}
