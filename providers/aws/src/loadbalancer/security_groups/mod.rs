//! Security groups: those of the balancers and the rules on those of the nodes. Pure functions over wish, observation and
//! ground that give the writes.
//!
//! [`own`] is about the groups a balancer has, [`nodes`] about what lets it reach the nodes, [`delete`] about groups that have
//! had their time. A group is ours, and may be deleted, only where tags, name and description say so; of a rule set that
//! others write to, only single rules are touched: those with our description, or whose source is a group of the balancer.
//!
//! Upstream: `pkg/providers/v1/aws.go` and `aws_loadbalancer.go`.

pub(crate) mod delete;
pub(crate) mod nodes;
pub(crate) mod own;
pub(crate) mod permissions;

#[cfg(all(test, feature = "sdk"))]
pub(in crate::loadbalancer) mod tests;
