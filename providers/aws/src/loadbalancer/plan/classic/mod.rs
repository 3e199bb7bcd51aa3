//! Classic balancers.
//!
//! One balancer per Service, with a listener per port and the instances of the nodes behind all of them. Upstream:
//! `ensureLoadBalancer` and its callees in `pkg/providers/v1/aws_loadbalancer.go`.

mod delete;
mod groups;
mod hosts;
mod listeners;
mod plan;
mod settings;
mod subnets;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

use ccm_provider::{ProviderError, Verb};

pub(crate) use delete::delete;
pub(crate) use plan::plan;

use crate::client::Write;
use crate::client::write::ElbWrite;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::step::Step;
use crate::loadbalancer::subnets::{is_internal, wanted};
use crate::loadbalancer::wanted::{Classic, Wanted};

#[derive(Debug)]
struct Context<'a> {
    desired: &'a Wanted,
    classic: &'a Classic,
    observed: &'a Observed,
    env: &'a Env,
}

impl Context<'_> {
    fn name(&self) -> String {
        self.desired.name.clone()
    }

    /// The IDs of the wanted subnets, in order.
    fn subnets(&self) -> Result<Vec<String>, ProviderError> {
        let common = &self.classic.common;
        let current = self.observed.classic.as_ref().map(|classic| classic.balancer.subnets.clone());
        let internal = is_internal(common, self.observed);
        wanted(&common.subnets, internal, &current.unwrap_or_default(), self.observed, self.env)
    }

    fn step(&self, verb: Verb, kind: &'static str, reason: &str, write: ElbWrite) -> Step {
        Step::new(verb, kind, &*self.desired.name, reason, Write::Elb(write))
    }
}
