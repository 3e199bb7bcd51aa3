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
    /// Gives them to the balancer, where it has others.
    pub(super) change: Option<Change>,
    /// Removes those that had been made for it and that it has no more.
    pub(super) removed: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn plan(context: &Context<'_>, balancer: Option<&LoadBalancer>) -> Result<Groups, ProviderError> {
    let Context { desired, classic, observed, env } = context;
    let own::Groups { ids, before, rules } = own::classic(desired, classic, observed, env)?;
    let attached = balancer.map(|balancer| &*balancer.security_groups).unwrap_or_default();
    let removal = delete::unneeded(Kind::Classic, desired, attached, &ids, observed, env);
    let made = before.into_iter().chain(rules).collect();
    let change = balancer.and_then(|balancer| change(context, balancer, &ids));
    let removed = removal.cut.into_iter().chain(removal.delete).collect();
    Ok(Groups { ids, made, change, removed, findings: removal.findings })
}

/// The change from one set to another.
#[derive(Debug)]
pub(super) struct Change {
    /// Old and new groups together; `None` where AWS has no room for them, or they are together already.
    both: Option<Step>,
    /// Whether old and new groups stand together for a while.
    gradual: bool,
    /// Takes the way to the nodes from groups of the user's that go.
    cuts: Vec<Step>,
    last: Step,
}

impl Change {
    /// The writes, with those that open the way for the new main group. Nothing but the balancer tells which ways were opened
    /// for groups of the user's; so it has a group as long as the way of that group is open, from before to after. And it
    /// reaches the nodes all the time.
    pub(super) fn steps(self, open: Vec<Step>) -> Vec<Step> {
        let Self { both, gradual, cuts, last } = self;
        if !gradual {
            return std::iter::once(last).chain(open).chain(cuts).collect();
        }
        let first = both.filter(|_| !open.is_empty() || !cuts.is_empty());
        first.into_iter().chain(open).chain(cuts).chain([last]).collect()
    }
}

fn change(context: &Context<'_>, balancer: &LoadBalancer, ids: &[Id]) -> Option<Change> {
    let attached: BTreeSet<&str> = balancer.security_groups.iter().map(String::as_str).collect();
    let wanted: BTreeSet<&str> = ids.iter().filter_map(Id::known).collect();
    let none_made = wanted.len() == ids.len();
    if attached == wanted && none_made {
        return None;
    }
    let old = attached.difference(&wanted).map(|group| Id::from(*group));
    let both: Vec<Id> = ids.iter().cloned().chain(old).collect();
    let room = both.len() <= GROUPS_PER_BALANCER;
    let together = none_made && wanted.is_subset(&attached);
    let all_new = both.len() == ids.len();
    Some(Change {
        both: Some(set(context, balancer, both)).filter(|_| room && !together && !all_new),
        // Where none leaves, the last step is that already.
        gradual: (room && !all_new) || together,
        cuts: cuts(context, balancer, ids),
        last: set(context, balancer, ids.to_vec()),
    })
}

/// Takes the way to the nodes from groups of the user's that leave the balancer. Which of them was the main group is told
/// nowhere, so each loses the rule that the main group has; as upstream, which takes all rules that name them.
fn cuts(context: &Context<'_>, balancer: &LoadBalancer, ids: &[Id]) -> Vec<Step> {
    let Context { desired, observed, env, .. } = context;
    // Those of ours are deleted with all that refers to them, and found by name even when the balancer has let go.
    let name = names::classic_group(&desired.name);
    let is_managed = |id: &str| observed.groups.get(id).is_some_and(|group| group.name == name);
    let stays = |id: &str| ids.iter().any(|wanted| wanted.known() == Some(id));
    let attached: BTreeSet<&String> = balancer.security_groups.iter().collect();
    let leaving = attached.into_iter().filter(|id| !stays(id) && !is_managed(id));
    leaving.flat_map(|id| delete::cut_group_that_stays(id, observed, env)).collect()
}

fn set(context: &Context<'_>, balancer: &LoadBalancer, ids: Vec<Id>) -> Step {
    let before = balancer.security_groups.join(" ");
    let after: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let write = ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer: context.name(), security_groups: ids };
    step(Verb::Update, "LoadBalancer", &context.desired.name, "other security groups are wanted", write)
        .change("security groups", Some(before), Some(after.join(" ")))
        .risk(Risk::Brief)
}
