//! Guards syncs against AWS's eventual consistency.
//!
//! A read may miss a write that AWS has acknowledged, and the next sync may be far away. A deletion that does not see
//! an object leaks it; a node that was added and removed stays a target; a rule for a security group that the balancer
//! had briefly stays open. So a deletion is planned only from an observation that shows everything that this process
//! just created for the Service, and any other change from one that shows its rules and targets, or that began so late
//! that AWS must show them. What the process that led before has created is not known: see [`Settling::former`].

use std::collections::BTreeSet;
use std::time::Duration;

use super::observed::Observed;
use super::reads::SETTLED;
use super::rules::{Tuple, split};
use super::wanted::first_few;
use crate::client::ec2::SecurityGroup;
use crate::client::elbv2::{Target, TargetHealth};
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};
use crate::client::{Id, Tags, Write};
use ccm_kit::Cluster;
use ccm_kit::balancer::Journal;
use ccm_provider::ProviderError;

#[cfg(test)]
mod tests;

/// Interval between reads of what is not shown yet.
pub(super) const AGAIN: Duration = Duration::from_secs(2);

/// The recent writes, with the names of their balancers.
#[derive(Debug)]
pub(crate) struct Settling(Journal<(String, Trace)>);

/// The visible effect of a write: a deletion must see it to delete it or what depends on it; any other change must see
/// rules and targets.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Trace {
    Balancer,
    Attached(BTreeSet<Id>),
    TargetGroup(String),
    /// By name, with the tags of its creation: the group alone is not taken for this program's.
    SecurityGroup(String, Tags),
    Rule(String, Tuple),
    Tags(String, Tags),
    /// Whether an instance is registered: in a target group, by ARN, or in the classic balancer, with empty ARN and
    /// port 0.
    Target(String, Target, bool),
}

impl Settling {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self(Journal::new(cluster, SETTLED))
    }

    /// The time until reads show what the process that led before has written.
    pub(crate) fn former(&self) -> Option<Duration> {
        self.0.former()
    }

    /// Records that something was, or may have been, written for a balancer. Returns the effects that were not recorded
    /// before.
    pub(crate) fn wrote(&self, balancer: &str, write: &Write) -> Vec<(String, Trace)> {
        let (left, removed) = traces(write);
        self.0.forget(|(of, trace)| {
            let is_replaced = is_attached(trace) && left.iter().any(is_attached);
            of == balancer && (is_replaced || removed.contains(trace) || goes_with(trace, write))
        });
        self.0.wrote(left.into_iter().map(|trace| (balancer.to_owned(), trace)))
    }

    /// Forgets the effects of a write that was refused. An earlier write may have had the same, and is not shown yet.
    pub(crate) fn refused(&self, new: &[(String, Trace)]) {
        self.0.forget(|effect| new.contains(effect));
    }

    /// The same where only rules for "fragmentation needed" were not written.
    pub(crate) fn refused_icmp(&self, new: &[(String, Trace)]) {
        let is_icmp = |trace: &Trace| matches!(trace, Trace::Rule(_, rule) if rule.is_icmp());
        self.0.forget(|effect| is_icmp(&effect.1) && new.contains(effect));
    }

    /// Forgets the registration of targets that AWS refused, and the removal of those that stay.
    pub(crate) fn refused_targets<'a>(
        &self,
        balancer: &str,
        writes: impl Iterator<Item = &'a Write>,
        ids: &BTreeSet<String>,
    ) {
        if ids.is_empty() {
            return;
        }
        let left: Vec<Trace> = writes.flat_map(|write| traces(write).0).collect();
        let is_refused = |trace: &Trace| matches!(trace, Trace::Target(_, target, _) if ids.contains(&target.id));
        self.0.forget(|(of, trace)| of == balancer && is_refused(trace) && left.contains(trace));
    }

    /// The delay of the next read, if the observation does not show all relevant writes for a balancer.
    pub(crate) fn left(&self, balancer: &str, observed: &Observed, deleting: bool) -> Option<Duration> {
        let matters = |trace: &Trace| match trace {
            Trace::Target(..) => !deleting,
            // Without the groups, no rule is planned.
            Trace::Rule(..) => observed.unread.is_none() && observed.unread_groups.is_none(),
            _ => deleting,
        };
        let is_hidden = |(of, trace): &(String, Trace)| of == balancer && matters(trace) && !is_shown(trace, observed);
        self.0.hidden(is_hidden).map(|left| left.min(AGAIN))
    }
}

/// Whether a write deletes what a trace is about. Only a deletion of the balancer deletes its managed group.
fn goes_with(trace: &Trace, write: &Write) -> bool {
    let Write::Ec2(Ec2Write::DeleteSecurityGroup { group: Id::Known(id) }) = write else { return false };
    match trace {
        Trace::Rule(group, _) | Trace::Tags(group, _) => group == id,
        Trace::SecurityGroup(..) => true,
        Trace::Balancer | Trace::Attached(_) | Trace::TargetGroup(_) | Trace::Target(..) => false,
    }
}

fn is_attached(trace: &Trace) -> bool {
    matches!(trace, Trace::Attached(_))
}

/// The effects that a write adds and removes. Rules of a group that the same plan creates are left out.
fn traces(write: &Write) -> (Vec<Trace>, Vec<Trace>) {
    let one = |trace| (vec![trace], Vec::new());
    let rules = |group: &Id, permissions| -> Vec<Trace> {
        let group = group.known().map(str::to_owned);
        let rules = split(permissions).into_iter();
        rules.filter_map(|rule| Some(Trace::Rule(group.clone()?, rule.tuple()))).collect()
    };
    match write {
        Write::Ec2(Ec2Write::CreateSecurityGroup { name, tags, .. }) => {
            one(Trace::SecurityGroup(name.clone(), tags.clone()))
        }
        Write::Ec2(Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }) => {
            (rules(group, permissions), Vec::new())
        }
        Write::Ec2(Ec2Write::RevokeSecurityGroupIngress { group, permissions }) => {
            (Vec::new(), rules(group, permissions))
        }
        Write::Ec2(Ec2Write::CreateTags { resources, tags }) => {
            let known = resources.iter().filter_map(Id::known);
            (known.map(|id| Trace::Tags(id.to_owned(), tags.clone())).collect(), Vec::new())
        }
        Write::Elb(ElbWrite::CreateLoadBalancer { .. }) | Write::ElbV2(ElbV2Write::CreateLoadBalancer { .. }) => {
            one(Trace::Balancer)
        }
        Write::Elb(ElbWrite::DeleteLoadBalancer { .. }) | Write::ElbV2(ElbV2Write::DeleteLoadBalancer { .. }) => {
            (Vec::new(), vec![Trace::Balancer])
        }
        Write::Elb(ElbWrite::ApplySecurityGroupsToLoadBalancer { security_groups, .. })
        | Write::ElbV2(ElbV2Write::SetSecurityGroups { security_groups, .. }) => {
            one(Trace::Attached(security_groups.iter().cloned().collect()))
        }
        Write::ElbV2(ElbV2Write::CreateTargetGroup { name, .. }) => one(Trace::TargetGroup(name.clone())),
        // arn:…:targetgroup/<name>/<ID>
        Write::ElbV2(ElbV2Write::DeleteTargetGroup { target_group }) => {
            let name = target_group.split('/').nth(1).map(str::to_owned);
            (Vec::new(), name.into_iter().map(Trace::TargetGroup).collect())
        }
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. }) => {
            targets("", hosts(instances), true)
        }
        Write::Elb(ElbWrite::DeregisterInstancesFromLoadBalancer { instances, .. }) => {
            targets("", hosts(instances), false)
        }
        Write::ElbV2(ElbV2Write::RegisterTargets { target_group, targets: some }) => {
            targets(target_group.known().unwrap_or_default(), some.clone(), true)
        }
        Write::ElbV2(ElbV2Write::DeregisterTargets { target_group, targets: some }) => {
            targets(target_group, some.clone(), false)
        }
        _ => Default::default(),
    }
}

fn hosts(instances: &[String]) -> Vec<Target> {
    instances.iter().map(|id| Target { id: id.clone(), port: 0 }).collect()
}

fn targets(of: &str, targets: Vec<Target>, registered: bool) -> (Vec<Trace>, Vec<Trace>) {
    let trace = |target: Target, registered| Trace::Target(of.to_owned(), target, registered);
    targets.into_iter().map(|target| (trace(target.clone(), registered), trace(target, !registered))).unzip()
}

fn is_shown(trace: &Trace, observed: &Observed) -> bool {
    let (classic, network) = (observed.classic.as_ref(), observed.network.as_ref());
    match trace {
        Trace::Balancer => classic.is_some() || network.is_some(),
        Trace::Attached(wanted) => {
            let classic = classic.map(|classic| &classic.balancer.security_groups);
            let found = classic.or_else(|| network.map(|network| &network.balancer.security_groups));
            found.is_none_or(|found| found.iter().cloned().map(Id::Known).collect::<BTreeSet<Id>>() == *wanted)
        }
        Trace::TargetGroup(name) => observed.target_groups().any(|found| found.group.name == *name),
        Trace::SecurityGroup(name, tags) => {
            observed.groups.values().any(|group| group.name == *name && has_all(group, tags))
        }
        Trace::Rule(group, tuple) => {
            let found = observed.groups.get(group).map(|group| split(&group.ingress));
            found.is_some_and(|found| found.iter().any(|rule| rule.tuple() == *tuple))
        }
        Trace::Tags(group, tags) => observed.groups.get(group).is_some_and(|group| has_all(group, tags)),
        Trace::Target(of, target, registered) if of.is_empty() => {
            classic.is_none_or(|classic| classic.balancer.instances.contains(&target.id) == *registered)
        }
        Trace::Target(of, target, registered) => {
            let group = network.and_then(|network| network.target_groups.iter().find(|found| found.group.arn == *of));
            let is_in = |health: &TargetHealth| health.target == *target && !health.is_leaving();
            let is_unread = observed.unread_targets.contains(of);
            is_unread || group.is_none_or(|found| found.targets.iter().any(is_in) == *registered)
        }
    }
}

fn has_all(group: &SecurityGroup, tags: &Tags) -> bool {
    tags.iter().all(|(key, value)| group.tags.get(key) == Some(value))
}

pub(crate) fn recheck(after: Duration) -> ProviderError {
    ProviderError::in_progress("AWS does not show yet what was just written for the load balancer", after)
}

pub(crate) fn recheck_instances(observed: &Observed, after: Duration) -> ProviderError {
    let late = observed.missing_instances.iter().chain(&observed.foreign_instances);
    let late: Vec<&str> = late.map(String::as_str).collect();
    let reason = format!("EC2 does not show the instances {} of new nodes, or their tags, yet", first_few(&late));
    ProviderError::in_progress(reason, after)
}
