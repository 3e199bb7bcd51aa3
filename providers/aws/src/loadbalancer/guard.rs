//! The last check before any write: refuses plans that look like a mistake.
//!
//! If a plan is wrong, at least no object of another owner is lost, and no Service loses all its targets at once.

use std::collections::BTreeSet;

use ccm_provider::{ErrorClass, ProviderError};

use super::desired::Desired;
use super::env::Env;
use super::observed::Observed;
use super::security_groups::delete::is_ours;
use super::step::Step;
use crate::annotations::Kind;
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};
use crate::client::{Id, Write};
use crate::ownership::is_of_service;

const UNREAD: &str = "it was not read; this is a bug in this program, please report it";

#[derive(Debug, Clone, Copy)]
struct Check<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    env: &'a Env,
    steps: &'a [Step],
}

/// Refuses the first step that looks like a mistake.
pub(crate) fn guard(desired: &Desired, observed: &Observed, env: &Env, steps: &[Step]) -> Result<(), ProviderError> {
    let check = Check { desired, observed, env, steps };
    for step in steps {
        if let Some(why) = check.objection(&step.write) {
            let summary = &step.summary;
            let message = format!("refused to {} {} {}: {why}", summary.verb.as_str(), summary.kind, summary.id);
            return Err(ProviderError::new(ErrorClass::Unknown, message));
        }
    }
    Ok(())
}

impl Check<'_> {
    fn objection(&self, write: &Write) -> Option<String> {
        match write {
            Write::Elb(write) => self.of_classic(write),
            Write::ElbV2(write) => self.of_network(write),
            Write::Ec2(write) => self.of_group(write),
        }
    }

    /// An objection unless the tags are those of this cluster. A balancer's name contains the Service's UID, so the
    /// Service's own tag is not required.
    fn check_tags(&self, tags: Option<&crate::client::Tags>) -> Option<String> {
        let key = self.env.ownership.cluster_key().unwrap_or_default();
        match tags {
            Some(tags) if self.env.ownership.is_member(tags) => None,
            _ => Some(format!(
                "it is not tagged as this cluster's; if it is, tag it {key} = owned, otherwise remove it by hand"
            )),
        }
    }

    fn of_classic(&self, write: &ElbWrite) -> Option<String> {
        let tags = self.observed.classic.as_ref().map(|classic| &classic.tags);
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
            _ if self.observed.classic.is_none() => None,
            _ => self.check_tags(tags),
        }
    }

    fn of_network(&self, write: &ElbV2Write) -> Option<String> {
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
                let found = self.observed.network.as_ref().filter(|network| network.balancer.arn == *balancer);
                self.check_tags(found.map(|network| &network.tags))
            }
            ElbV2Write::ModifyListener { .. } | ElbV2Write::DeleteListener { .. } => {
                self.check_tags(self.observed.network.as_ref().map(|network| &network.tags))
            }
            ElbV2Write::DeleteTargetGroup { target_group } => self.check_group_tags(target_group),
            ElbV2Write::ModifyTargetGroup { target_group, .. }
            | ElbV2Write::ModifyTargetGroupAttributes { target_group: Id::Known(target_group), .. }
            | ElbV2Write::RegisterTargets { target_group: Id::Known(target_group), .. } => {
                self.check_used_group_tags(target_group)
            }
            ElbV2Write::DeregisterTargets { target_group, .. } => {
                self.check_used_group_tags(target_group).or_else(|| self.emptied_group(target_group))
            }
        }
    }

    /// A target group behind this Service's balancer counts by the balancer's tags: older versions created some without
    /// tags.
    fn check_used_group_tags(&self, arn: &str) -> Option<String> {
        let network = self.observed.network.as_ref();
        let behind = network.filter(|network| network.target_groups.iter().any(|group| group.group.arn == arn));
        behind.map_or_else(|| self.check_group_tags(arn), |network| self.check_tags(Some(&network.tags)))
    }

    /// As [`Self::check_tags`] for a target group, which must also carry the tag of this Service.
    fn check_group_tags(&self, arn: &str) -> Option<String> {
        let found = self.observed.target_groups().find(|group| group.group.arn == arn);
        let ours = found.filter(|group| is_of_service(&group.tags, &self.desired.service));
        self.check_tags(ours.map(|group| &group.tags))
    }

    /// Counts all writes of the plan: removals and additions come in parts.
    fn emptied_group(&self, arn: &str) -> Option<String> {
        let group = self.observed.target_groups().find(|group| group.group.arn == arn)?;
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
        let targets = &self.desired.goal.common()?.targets;
        (!targets.is_empty()).then(|| {
            format!(
                "no target would be left although {} nodes are wanted; check that the instances of the nodes exist and that \
                 their spec.providerID is right",
                targets.len()
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
                let is_of = |kind| is_ours(kind, self.desired, attached, group, self.env);
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
