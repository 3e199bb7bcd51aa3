//! Balancers for Services: observe, desired, plan, guard, apply.
//!
//! One Service is one group: nothing but the security groups of the nodes is shared. [`desired`] reads the Service and its
//! annotations without any call; [`observe`] reads what AWS has that carries our marks or that the wish names; [`plan`] is
//! the difference as writes in an order of which any prefix is safe to die after; [`guard`] refuses what looks like a
//! mistake; [`apply`] sends the writes.

pub(crate) mod classic;
pub(crate) mod desired;
pub(crate) mod names;
pub(crate) mod network;
pub(crate) mod observe;
pub(crate) mod plan;
pub(crate) mod security_groups;
