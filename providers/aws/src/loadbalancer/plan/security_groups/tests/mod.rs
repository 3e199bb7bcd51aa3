//! Tests the opened, closed and unchanged rules.

pub(in crate::loadbalancer) mod model;

mod balancers;
mod deletion;
mod nodes;
mod permissions;
