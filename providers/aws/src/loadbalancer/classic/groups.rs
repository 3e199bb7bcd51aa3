//! The balancer's security groups, and the change from one set to another.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError, Risk, Verb};

use super::plan::Context;
use super::step;
use crate::annotations::Kind;
use crate::client::Id;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::names;
use crate::loadbalancer::plan::Step;
use crate::loadbalancer::security_groups::{delete, own};

/// AWS gives a balancer so many groups at most.
const GROUPS_PER_BALANCER: usize = 5;

/// What is done about the balancer's groups.
#[derive(Debug, Default)]
pub(super) struct Groups {
    /// What it shall have, in order.
    pub(super) ids: Vec<Id>,
    /// Makes them and sets their rules.
    pub(super) made: Vec<Step>,
    /// Gives them to the balancer.
    pub(super) applied: Vec<Step>,
    /// Removes those that had been made for it and that it has no more.
    pub(super) removed: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn plan(context: &Context<'_>, balancer: Option<&LoadBalancer>) -> Result<Groups, ProviderError> {
    let Context { wish, classic, observed, ground } = context;
    let own::Groups { ids, before, rules } = own::classic(wish, classic, observed, ground)?;
    let attached = balancer.map(|balancer| &*balancer.security_groups).unwrap_or_default();
    let removal = delete::unneeded(Kind::Classic, wish, attached, &ids, observed, ground);
    let made = before.into_iter().chain(rules).collect();
    let applied = balancer.map(|balancer| apply(context, balancer, &ids)).unwrap_or_default();
    let removed = removal.cut.into_iter().chain(removal.delete).collect();
    Ok(Groups { ids, made, applied, removed, findings: removal.findings })
}

/// Replaces the groups, and takes the way to the nodes from those that go. While a group still is on the balancer it is known
/// that it goes; so where one of the user's goes, the balancer has old and new groups together until its way is cut.
fn apply(context: &Context<'_>, balancer: &LoadBalancer, ids: &[Id]) -> Vec<Step> {
    let attached: BTreeSet<&str> = balancer.security_groups.iter().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = ids.iter().filter_map(Id::known).collect();
    if attached == wanted && wanted.len() == ids.len() {
        return Vec::new();
    }
    let cuts = cuts(context, balancer, ids);
    let both: Vec<Id> = ids.iter().cloned().chain(attached.difference(&wanted).map(|group| Id::from(*group))).collect();
    let last = set(context, balancer, ids.to_vec());
    if cuts.is_empty() || both.len() > GROUPS_PER_BALANCER {
        return std::iter::once(last).chain(cuts).collect();
    }
    let all_there = wanted.len() == ids.len() && wanted.is_subset(&attached);
    let first = Some(set(context, balancer, both)).filter(|_| !all_there);
    first.into_iter().chain(cuts).chain([last]).collect()
}

/// Takes the way to the nodes from groups of the user's that leave the balancer. Which of them was the main group is told
/// nowhere, so each loses the rule that the main group has; as upstream, which takes all rules that name them.
fn cuts(context: &Context<'_>, balancer: &LoadBalancer, ids: &[Id]) -> Vec<Step> {
    let Context { wish, observed, ground, .. } = context;
    // Those of ours are deleted with all that refers to them, and found by name even when the balancer has let go.
    let name = names::classic_group(&wish.name);
    let is_managed = |id: &str| observed.groups.get(id).is_some_and(|group| group.name == name);
    let stays = |id: &str| ids.iter().any(|wanted| wanted.known() == Some(id));
    let attached: BTreeSet<&String> = balancer.security_groups.iter().collect();
    let leaving = attached.into_iter().filter(|id| !stays(id) && !is_managed(id));
    leaving.flat_map(|id| delete::cut_group_that_stays(id, observed, ground)).collect()
}

fn set(context: &Context<'_>, balancer: &LoadBalancer, ids: Vec<Id>) -> Step {
    let before = balancer.security_groups.join(" ");
    let after: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let write = ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer: context.name(), security_groups: ids };
    step(Verb::Update, "LoadBalancer", &context.wish.name, "other security groups are wanted", write)
        .change("security groups", Some(before), Some(after.join(" ")))
        .risk(Risk::Brief)
}
