//! Network balancers.
//!
//! Each Service port has a listener, and each listener a target group of its own. Upstream: `ensureLoadBalancerv2` and
//! its callees in `pkg/providers/v1/aws_loadbalancer.go`.

mod delete;
mod group;
mod plan;
mod port;
mod security;
mod warn;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

use std::collections::BTreeSet;

use ccm_provider::{LoadBalancerStatus, ProviderError, Verb};

pub(crate) use delete::delete;
pub(crate) use plan::plan;

use crate::client::elbv2::LoadBalancer;
use crate::client::write::ElbV2Write;
use crate::client::{Id, Object, Tags, Write};
use crate::loadbalancer::claim;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::names::TARGET_TYPE;
use crate::loadbalancer::observed::{self, Observed, TargetGroup};
use crate::loadbalancer::step::Step;
use crate::loadbalancer::subnets::wanted;
use crate::loadbalancer::wanted::{Network, Port, Wanted};

pub(crate) use crate::loadbalancer::names::NETWORK_KIND as KIND;

#[derive(Debug)]
struct Context<'a> {
    desired: &'a Wanted,
    network: &'a Network,
    observed: &'a Observed,
    env: &'a Env,
    tags: Tags,
}

impl<'a> Context<'a> {
    fn existing(&self) -> Option<&'a observed::Network> {
        self.observed.network.as_ref()
    }

    /// The target groups that serve, and get the nodes: all that the balancer forwards to, except those of others that
    /// no port needs.
    fn hosts(&self) -> Vec<&'a TargetGroup> {
        let Self { desired, network, observed, env, .. } = *self;
        let Some(existing) = self.existing() else { return Vec::new() };
        let leads = |port: &Port, found: &TargetGroup| {
            let current = port::find(&existing.listeners, port).and_then(|listener| listener.target_group.as_deref());
            current == Some(&*found.group.arn) && group::fits(port, found)
        };
        let gets_nodes = |found: &&TargetGroup| {
            found.group.target_type == TARGET_TYPE
                && !observed.unread_targets.contains(&found.group.arn)
                && (claim::target_group(desired, observed, found, env).is_ours()
                    || network.ports.iter().any(|port| leads(port, found)))
        };
        existing.target_groups.iter().filter(gets_nodes).collect()
    }

    fn balancer(&self) -> Id {
        match self.existing() {
            Some(existing) => Id::Known(existing.balancer.arn.clone()),
            None => Id::Made(Object::Balancer(self.desired.name.clone())),
        }
    }

    /// The IDs of the subnets of a new balancer, in order.
    fn subnets(&self) -> Result<Vec<String>, ProviderError> {
        let common = &self.network.common;
        wanted(&common.subnets, common.internal, &BTreeSet::new(), self.observed, self.env)
    }

    fn vpc(&self) -> &'a str {
        let existing = self.existing().map(|existing| &*existing.balancer.vpc);
        existing.filter(|vpc| !vpc.is_empty()).unwrap_or(&self.env.vpc)
    }
}

/// The status of the Service: empty until the balancer has a DNS name, or if AWS could not create it.
pub(crate) fn status(balancer: &LoadBalancer) -> LoadBalancerStatus {
    // An `active_impaired` balancer works but cannot grow, so its hostname stays (upstream removes it).
    let usable = ["active", "provisioning", "active_impaired"].contains(&&*balancer.state);
    crate::loadbalancer::status(if usable { &balancer.dns_name } else { "" })
}

fn step(verb: Verb, kind: &'static str, id: &str, reason: impl Into<String>, write: ElbV2Write) -> Step {
    Step::new(verb, kind, id, reason, Write::ElbV2(write))
}
