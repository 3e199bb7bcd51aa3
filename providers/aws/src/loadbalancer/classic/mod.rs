//! Classic balancers.
//!
//! One balancer per Service, with a listener per port and the instances of the nodes behind all of them. Upstream:
//! `ensureLoadBalancer` and what it calls in `pkg/providers/v1/aws_loadbalancer.go`.

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

use ccm_provider::Verb;

pub(crate) use delete::delete;
pub(crate) use plan::plan;

use super::desired::{Classic, Desired};
use super::env::Env;
use super::observed::Observed;
use super::step::Step;
use crate::client::Write;
use crate::client::write::ElbWrite;

/// What the plan of one balancer is computed from.
#[derive(Debug)]
struct Context<'a> {
    desired: &'a Desired,
    classic: &'a Classic,
    observed: &'a Observed,
    env: &'a Env,
}

impl Context<'_> {
    fn name(&self) -> String {
        self.desired.name.clone()
    }
}

fn step(verb: Verb, kind: &'static str, balancer: &str, reason: impl Into<String>, write: ElbWrite) -> Step {
    Step::new(verb, kind, balancer, reason, Write::Elb(write))
}
