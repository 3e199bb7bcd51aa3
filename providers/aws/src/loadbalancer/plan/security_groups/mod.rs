//! Security groups of the balancers, and the rules in those of the nodes. Pure functions from desired state,
//! observation and [`Env`](crate::loadbalancer::env::Env) to writes.
//!
//! [`own`] plans the groups of a balancer, [`nodes`] the rules that let it reach the nodes, [`delete`] the deletion of
//! groups. A group is deleted only if tags, name and description show that this program created it. In groups that
//! others write to, only single rules change: those with this program's description, or whose source is a group of the
//! balancer.
//!
//! Upstream: `pkg/providers/v1/aws.go` and `aws_loadbalancer.go`.

pub(crate) mod delete;
pub(crate) mod nodes;
pub(crate) mod own;
pub(crate) mod steps;

#[cfg(test)]
#[cfg(feature = "sdk")]
pub(in crate::loadbalancer) mod tests;
