//! The last check before any write: refuses plans that look like a mistake.
//!
//! If a plan is wrong, at least no object of another owner is lost, and no Service loses all its targets at once.

use std::collections::BTreeSet;

use ccm_kit::balancer::Part;
use ccm_provider::ProviderError;

use super::claim::{self, Claim};
use super::env::Env;
use super::observed::{Observed, TargetGroup};
use super::step::Step;
use super::wanted::Wanted;
use crate::annotations::Kind;
use crate::client::elbv2::TargetHealth;
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};
use crate::client::{Id, Write};

const UNREAD: &str = "it was not read; this is a bug in this program, please report it";

#[derive(Debug, Clone, Copy)]
struct Check<'a> {
    desired: &'a Wanted,
    observed: &'a Observed,
    env: &'a Env,
    steps: &'a [Step],
}

/// The steps that look like a mistake, by index.
pub(crate) fn guard(desired: &Wanted, observed: &Observed, env: &Env, steps: &[Step]) -> Vec<(usize, ProviderError)> {
    let check = Check { desired, observed, env, steps };
    let refused = |(index, step): (usize, &Step)| {
        let (why, summary) = (check.objection(step)?, &step.summary);
        let message = format!("refused to {} {} {}: {why}", summary.verb.as_str(), summary.kind, summary.id);
        Some((index, ProviderError::unknown(message)))
    };
    steps.iter().enumerate().filter_map(refused).collect()
}

impl Check<'_> {
    fn objection(&self, step: &Step) -> Option<String> {
        match &step.write {
            Write::Elb(write) => self.of_classic(write),
            Write::ElbV2(write) => self.of_network(write, &step.part),
            Write::Ec2(write) => self.of_group(write),
        }
    }

    /// An objection unless the object is this cluster's.
    fn check(&self, claim: Option<Claim>) -> Option<String> {
        let key = self.env.ownership.cluster_key().unwrap_or_default();
        (!claim.is_some_and(Claim::is_ours)).then(|| {
            format!("it is not tagged as this cluster's; if it is, tag it {key} = owned, otherwise remove it by hand")
        })
    }

    fn network_claim(&self) -> Option<Claim> {
        self.observed.network.as_ref().map(|network| claim::balancer(&network.tags, self.env))
    }

    fn of_classic(&self, write: &ElbWrite) -> Option<String> {
        match write {
            ElbWrite::CreateLoadBalancer { .. } => None,
            ElbWrite::DeregisterInstancesFromLoadBalancer { instances, .. } => {
                let present = self.observed.classic.iter().flat_map(|classic| &classic.balancer.instances);
                let left: BTreeSet<&String> = present.filter(|id| !instances.contains(id)).collect();
                let adds =
                    |write: &Write| matches!(write, Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { .. }));
                let added = self.steps.iter().any(|step| adds(&step.write));
                if left.is_empty() && !added { self.emptied() } else { None }
            }
            _ => {
                let classic = self.observed.classic.as_ref()?;
                self.check(Some(claim::balancer(&classic.tags, self.env)))
            }
        }
    }

    fn of_network(&self, write: &ElbV2Write, part: &Part) -> Option<String> {
        match write {
            // The same plan creates the object, with the ownership tags.
            ElbV2Write::CreateLoadBalancer { .. } | ElbV2Write::CreateTargetGroup { .. } => None,
            ElbV2Write::ModifyLoadBalancerAttributes { balancer: Id::Made(_), .. }
            | ElbV2Write::CreateListener { balancer: Id::Made(_), .. }
            | ElbV2Write::ModifyTargetGroupAttributes { target_group: Id::Made(_), .. }
            | ElbV2Write::RegisterTargets { target_group: Id::Made(_), .. } => None,
            ElbV2Write::DeleteLoadBalancer { balancer }
            | ElbV2Write::SetSecurityGroups { balancer, .. }
            | ElbV2Write::ModifyLoadBalancerAttributes { balancer: Id::Known(balancer), .. }
            | ElbV2Write::CreateListener { balancer: Id::Known(balancer), .. } => {
                let found = self.observed.network.as_ref().is_some_and(|network| network.balancer.arn == *balancer);
                self.check(self.network_claim().filter(|_| found))
            }
            ElbV2Write::ModifyListener { desired, .. } => self
                .check(self.network_claim())
                .or_else(|| self.emptied().filter(|_| self.is_empty(&desired.target_group))),
            ElbV2Write::DeleteListener { .. } => self
                .check(self.network_claim())
                .or_else(|| self.emptied().filter(|_| self.successor(part).is_some_and(|group| self.is_empty(group)))),
            ElbV2Write::DeleteTargetGroup { target_group } => self.check_group(target_group),
            ElbV2Write::ModifyTargetGroup { target_group, .. }
            | ElbV2Write::ModifyTargetGroupAttributes { target_group: Id::Known(target_group), .. }
            | ElbV2Write::RegisterTargets { target_group: Id::Known(target_group), .. } => self.check_use(target_group),
            ElbV2Write::DeregisterTargets { target_group, .. } => {
                self.check_use(target_group).or_else(|| self.emptied_group(target_group))
            }
        }
    }

    fn group(&self, arn: &str) -> Option<&TargetGroup> {
        self.observed.target_groups().find(|group| group.group.arn == arn)
    }

    fn check_group(&self, arn: &str) -> Option<String> {
        let claim = |found| claim::target_group(self.desired, self.observed, found, self.env);
        self.check(self.group(arn).map(claim))
    }

    /// A group of another name may serve a port too: the listener decides.
    fn check_use(&self, arn: &str) -> Option<String> {
        let network = self.observed.network.as_ref();
        let behind = network.filter(|network| network.target_groups.iter().any(|group| group.group.arn == arn));
        behind.map_or_else(|| self.check_group(arn), |_| self.check(self.network_claim()))
    }

    /// The target group of the listener that the same part creates.
    fn successor(&self, part: &Part) -> Option<&Id> {
        self.steps.iter().filter(|step| step.part == *part).find_map(|step| match &step.write {
            Write::ElbV2(ElbV2Write::CreateListener { listener, .. }) => Some(&listener.target_group),
            _ => None,
        })
    }

    /// Whether a target group serves nobody yet, is empty, and the plan registers nothing there.
    fn is_empty(&self, group: &Id) -> bool {
        let is_left = |found: &TargetGroup| found.targets.iter().all(TargetHealth::is_leaving);
        let mut unattached = self.observed.unattached_target_groups.iter();
        let is_new = group.known().is_none_or(|arn| unattached.any(|found| found.group.arn == arn && is_left(found)));
        let registers = |step: &Step| matches!(&step.write, Write::ElbV2(ElbV2Write::RegisterTargets { target_group, .. }) if target_group == group);
        is_new && !self.steps.iter().any(registers)
    }

    /// Counts all writes of the plan: removals and additions come in parts.
    fn emptied_group(&self, arn: &str) -> Option<String> {
        let group = self.group(arn)?;
        let leaving = self.steps.iter().flat_map(|step| match &step.write {
            Write::ElbV2(ElbV2Write::DeregisterTargets { target_group, targets }) if target_group == arn => {
                targets.as_slice()
            }
            _ => &[],
        });
        let leaving: BTreeSet<_> = leaving.collect();
        let stays = group.targets.iter().any(|health| !leaving.contains(&health.target) && health.state != "draining");
        let joins = self.steps.iter().any(|step| {
            matches!(&step.write, Write::ElbV2(ElbV2Write::RegisterTargets { target_group, .. }) if target_group.known() == Some(arn))
        });
        if stays || joins { None } else { self.emptied() }
    }

    /// An objection if nodes are wanted: an empty balancer is then a mistake.
    fn emptied(&self) -> Option<String> {
        let common = self.desired.goal.common()?;
        let nodes = common.targets.len() + common.wrong_ids;
        (nodes > 0).then(|| {
            format!(
                "no target would be left although {nodes} nodes are wanted; check that the instances of the nodes exist and \
                 have the cluster's tag, and that their spec.providerID is right"
            )
        })
    }

    fn of_group(&self, write: &Ec2Write) -> Option<String> {
        let shared = |id: &str| self.env.shared_group.as_deref() == Some(id);
        match write {
            Ec2Write::DeleteSecurityGroup { group: Id::Known(id) } => {
                let Some(group) = self.observed.groups.get(id) else {
                    return Some(UNREAD.to_owned());
                };
                let network = self.observed.network.as_ref();
                let attached = network.map(|network| &*network.balancer.security_groups).unwrap_or_default();
                let is_of = |kind| {
                    let claim = claim::security_group(kind, self.desired, attached, group, self.env);
                    matches!(claim, Claim::Own | Claim::FormerName)
                };
                let named = &self.desired.named_groups;
                if shared(id) || named.instead.contains(id) || named.extra.contains(id) {
                    return Some("annotations or the cloud config name it, so it is not deleted".to_owned());
                }
                let ours = is_of(Kind::Classic) || is_of(Kind::Network);
                (!ours).then(|| "it was not created for this Service by this cluster; remove it by hand".to_owned())
            }
            Ec2Write::AuthorizeSecurityGroupIngress { group, .. }
            | Ec2Write::RevokeSecurityGroupIngress { group, .. }
            | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, .. } => match group.known()? {
                id if shared(id) => {
                    Some("ElbSecurityGroup of the cloud config names it, so its rules are left alone".to_owned())
                }
                id if self.observed.groups.contains_key(id) => None,
                _ => Some(UNREAD.to_owned()),
            },
            _ => None,
        }
    }
}
