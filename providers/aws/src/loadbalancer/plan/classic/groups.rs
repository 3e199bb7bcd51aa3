//! The balancer's security groups, and the transition from one set to another.

use std::collections::BTreeSet;

use ccm_provider::{Finding, ProviderError, Risk, Verb};

use super::Context;
use crate::annotations::Kind as BalancerKind;
use crate::client::Id;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::names;
use crate::loadbalancer::plan::security_groups::steps::{by_port, divide};
use crate::loadbalancer::plan::security_groups::{delete, own};
use crate::loadbalancer::step::{AFTER_RULES, Besides, Kind, Step};

const GROUPS_PER_BALANCER: usize = 5;
/// The part of an existing balancer that consists of its groups, their rules, and which of them it has.
const PART: &str = "security groups";

#[derive(Debug, Default)]
pub(super) struct Groups {
    pub(super) ids: Vec<Id>,
    /// Creates managed groups and opens their rules.
    pub(super) made: Vec<Step>,
    /// Attaches them to the balancer, if it has others.
    pub(super) change: Option<Change>,
    /// After its listeners are changed: rules closed, groups deleted.
    pub(super) removed: Vec<Step>,
    pub(super) findings: Vec<Finding>,
}

pub(super) fn plan(context: &Context<'_>, balancer: Option<&LoadBalancer>) -> Result<Groups, ProviderError> {
    let Context { desired, classic, observed, env } = context;
    let own::Groups { ids, before, rules } = own::classic(desired, classic, observed, env)?;
    let attached = balancer.map(|balancer| &*balancer.security_groups).unwrap_or_default();
    let removal = delete::unneeded(BalancerKind::Classic, desired, attached, &ids, observed, env);
    // A new balancer cannot do without its group.
    let before = before.into_iter().map(|step| step.part(Kind::Frame, if balancer.is_some() { PART } else { "" }));
    let ports = classic.open_ports.iter().map(|(protocol, port)| (&**protocol, *port)).collect();
    let rules = rules.into_iter().flat_map(|step| by_port(&ports, step));
    let (open, close) =
        divide(rules.map(|(step, narrows)| (step.part(Kind::Rules, PART).needs(&[Kind::Frame]), narrows)));
    let made = before.chain(open).collect();
    let change = balancer.and_then(|balancer| change(context, balancer, &ids));
    let revoke = removal.revoke.into_iter().map(|step| step.part(Kind::Release, ""));
    let removed = close.into_iter().chain(revoke).chain(removal.delete).collect();
    Ok(Groups { ids, made, change, removed, findings: removal.findings })
}

#[derive(Debug)]
pub(super) struct Change {
    /// Attaches old and new groups together; `None` if AWS has no room for both, or they are together already.
    both: Option<Step>,
    /// Whether old and new groups are attached together for a while.
    gradual: bool,
    /// Whether a group leaves the balancer.
    takes_away: bool,
    /// Closes the node rules of user groups that leave.
    close: Vec<Step>,
    last: Step,
    /// The same for groups that other balancers have, which may leave at the same time.
    later: Vec<Step>,
}

impl Change {
    /// The writes, including those that open the node rules for the new main group. Only the balancer's list of groups
    /// records which rules were opened for groups of the user. So a group is attached from before its rule is opened
    /// until after it is closed. The balancer reaches the nodes all the time, and no group leaves before the rules for
    /// clients are open in the others.
    pub(super) fn steps(self, open: Vec<Step>) -> Vec<Step> {
        let Self { both, gradual, takes_away, close, last, later } = self;
        let both = both.filter(|_| gradual && !(open.is_empty() && close.is_empty()));
        let rest: Vec<Step> = match gradual {
            false => std::iter::once(last).chain(open).chain(close).collect(),
            true => open.into_iter().chain(close).chain([last]).collect(),
        };
        let both = both.map(|step| step.part(Kind::Settings, PART));
        // A group that is only added may admit the clients whose rules cannot be opened.
        let needs = takes_away.then_some(AFTER_RULES);
        let rest = rest.into_iter().chain(later).map(|step| Step { needs, ..step.part(Kind::Settings, PART) });
        both.into_iter().chain(rest).collect()
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
    let (close, later) = close(context, balancer, ids);
    Some(Change {
        both: Some(set(context, balancer, both)).filter(|_| room && !together && !all_new),
        // If none leaves, the last step does the same.
        gradual: (room && !all_new) || together,
        takes_away: !all_new,
        close,
        last: set(context, balancer, ids.to_vec()),
        later,
    })
}

/// Closes the node rules of user groups that leave the balancer, and of those that other balancers have. Which of them was
/// the main group is not recorded, so each loses the rule of a main group. Upstream removes all rules that name them.
fn close(context: &Context<'_>, balancer: &LoadBalancer, ids: &[Id]) -> (Vec<Step>, Vec<Step>) {
    let Context { observed, env, .. } = context;
    // Managed groups are deleted with all rules that refer to them, and are found by name even after the balancer no
    // longer has them.
    let stays = |id: &str| ids.iter().any(|wanted| wanted.known() == Some(id));
    let attached: BTreeSet<&String> = balancer.security_groups.iter().collect();
    let leaving = attached.into_iter().filter(|id| !stays(id) && !is_managed(context, id));
    // Another balancer may get the group meanwhile.
    let close = |id: &String| {
        let besides = Besides::Users { group: id.clone(), close: Vec::new() };
        let steps = delete::main_group_rule(id, observed, env).into_iter();
        steps.map(move |step| Step { besides: besides.clone(), ..step })
    };
    let (shared, own): (Vec<_>, Vec<_>) = leaving.partition(|id| observed.shared_groups.contains(*id));
    let later = shared.into_iter().flat_map(close).map(|mut step| {
        step.summary.reason.push_str(", unless another load balancer has it then");
        step
    });
    (own.into_iter().flat_map(close).collect(), later.collect())
}

pub(super) fn is_managed(context: &Context<'_>, id: &str) -> bool {
    let name = names::classic_group(&context.desired.name);
    context.observed.groups.get(id).is_some_and(|group| group.name == name)
}

fn set(context: &Context<'_>, balancer: &LoadBalancer, ids: Vec<Id>) -> Step {
    let before = balancer.security_groups.join(" ");
    let after: Vec<String> = ids.iter().map(ToString::to_string).collect();
    let write = ElbWrite::ApplySecurityGroupsToLoadBalancer { balancer: context.name(), security_groups: ids };
    context
        .step(Verb::Update, "LoadBalancer", "other security groups are wanted", write)
        .change("security groups", Some(before), Some(after.join(" ")))
        .risk(Risk::Brief)
}
