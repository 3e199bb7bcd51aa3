//! Refuses what looks like a mistake, whatever made the plan: the last look before anything is written.
//!
//! A plan is made from what was seen. Should it be wrong, then at least nothing of somebody else's is lost, and no Service all
//! its targets at once.

use std::collections::BTreeSet;

use ccm_provider::{ErrorClass, ProviderError};

use super::desired::{Desired, Goal};
use super::observe::{Observed, TargetGroup};
use super::plan::{Env, Step};
use super::security_groups::delete::is_ours;
use crate::annotations::Kind;
use crate::client::Write;
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite, Id};
use crate::ownership::is_of_service;

/// What is looked at.
#[derive(Debug, Clone, Copy)]
struct Look<'a> {
    desired: &'a Desired,
    observed: &'a Observed,
    env: &'a Env,
    steps: &'a [Step],
}

/// Refuses the plan.
///
/// # Errors
///
/// The first step that looks like a mistake, with the way out.
pub(crate) fn guard(desired: &Desired, observed: &Observed, env: &Env, steps: &[Step]) -> Result<(), ProviderError> {
    let look = Look { desired, observed, env, steps };
    for step in steps {
        if let Some(why) = look.objection(&step.write) {
            let summary = &step.summary;
            let message = format!("refused to {} {} {}: {why}", summary.verb.as_str(), summary.kind, summary.id);
            return Err(ProviderError::new(ErrorClass::Unknown, message));
        }
    }
    Ok(())
}

impl Look<'_> {
    fn objection(&self, write: &Write) -> Option<String> {
        match write {
            Write::Elb(write) => self.of_classic(write),
            Write::ElbV2(write) => self.of_network(write),
            Write::Ec2(write) => self.of_group(write),
        }
    }

    /// The marks that a balancer of this Service has. A balancer's name has the Service's UID in it, so the cluster's mark is
    /// enough where the Service's is missing.
    fn unmarked(&self, tags: Option<&crate::client::Tags>) -> Option<String> {
        let key = self.env.ownership.cluster_key().unwrap_or_default();
        match tags {
            Some(tags) if self.env.ownership.is_member(tags) => None,
            _ => Some(format!(
                "it is not marked as this cluster's; if it is, tag it {key} = owned, otherwise remove it by hand"
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
                let added = self
                    .steps
                    .iter()
                    .any(|step| matches!(&step.write, Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { .. })));
                if left.is_empty() && !added { self.emptied() } else { None }
            }
            _ if self.observed.classic.is_none() => None,
            _ => self.unmarked(tags),
        }
    }

    fn of_network(&self, write: &ElbV2Write) -> Option<String> {
        match write {
            // Nothing is there before; what the same plan made carries our marks.
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
                self.unmarked(found.map(|network| &network.tags))
            }
            ElbV2Write::ModifyListener { .. } | ElbV2Write::DeleteListener { .. } => {
                self.unmarked(self.observed.network.as_ref().map(|network| &network.tags))
            }
            ElbV2Write::DeleteTargetGroup { target_group } => self.unmarked_group(target_group),
            ElbV2Write::ModifyTargetGroup { target_group, .. }
            | ElbV2Write::ModifyTargetGroupAttributes { target_group: Id::Known(target_group), .. }
            | ElbV2Write::RegisterTargets { target_group: Id::Known(target_group), .. } => {
                self.unmarked_in_use(target_group)
            }
            ElbV2Write::DeregisterTargets { target_group, .. } => {
                self.unmarked_in_use(target_group).or_else(|| self.emptied_group(target_group))
            }
        }
    }

    /// A target group behind our balancer goes by the marks of that: older versions made some without any.
    fn unmarked_in_use(&self, arn: &str) -> Option<String> {
        let network = self.observed.network.as_ref();
        let behind = network.filter(|network| network.target_groups.iter().any(|group| group.group.arn == arn));
        behind.map_or_else(|| self.unmarked_group(arn), |network| self.unmarked(Some(&network.tags)))
    }

    /// The marks of a target group, which must be made for this Service.
    fn unmarked_group(&self, arn: &str) -> Option<String> {
        let found = self.target_groups().find(|group| group.group.arn == arn);
        let ours = found.filter(|group| is_of_service(&group.tags, &self.desired.service));
        self.unmarked(ours.map(|group| &group.tags))
    }

    fn target_groups(&self) -> impl Iterator<Item = &TargetGroup> {
        self.observed
            .network
            .iter()
            .flat_map(|network| &network.target_groups)
            .chain(&self.observed.unattached_target_groups)
    }

    /// All writes of the plan to the group count: leaving and joining come in parts.
    fn emptied_group(&self, arn: &str) -> Option<String> {
        let group = self.target_groups().find(|group| group.group.arn == arn)?;
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

    /// Whether nodes are wanted: then having none must be a mistake.
    fn emptied(&self) -> Option<String> {
        let targets = match &self.desired.goal {
            Goal::Absent => return None,
            Goal::Classic(classic) => &classic.common.targets,
            Goal::Network(network) => &network.common.targets,
        };
        (!targets.is_empty()).then(|| {
            format!(
                "no target would be left though {} nodes are wanted; see that the instances of the nodes exist and that \
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
                    return Some("it was not looked at; this is a slip of ours, please report it".to_owned());
                };
                let network = self.observed.network.as_ref();
                let attached = network.map(|network| &*network.balancer.security_groups).unwrap_or_default();
                let kinds = [Kind::Classic, Kind::Network];
                let ours = kinds.iter().any(|kind| is_ours(*kind, self.desired, attached, group, self.env));
                let named = &self.desired.named_groups;
                if shared(id) || named.instead.contains(id) || named.extra.contains(id) {
                    return Some("annotations or the cloud config name it, so it is not ours to delete".to_owned());
                }
                if !ours {
                    return Some("it was not made for this Service by this cluster; remove it by hand".to_owned());
                }
                None
            }
            Ec2Write::AuthorizeSecurityGroupIngress { group, .. }
            | Ec2Write::RevokeSecurityGroupIngress { group, .. }
            | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, .. } => {
                let id = group.known()?;
                if shared(id) {
                    return Some(
                        "ElbSecurityGroup of the cloud config names it, so its rules are left alone".to_owned(),
                    );
                }
                let seen = self.observed.groups.contains_key(id);
                (!seen).then(|| "it was not looked at; this is a slip of ours, please report it".to_owned())
            }
            _ => None,
        }
    }
}
