//! By meaning: what is opened, what is closed, and what is left alone.

pub(in crate::loadbalancer) mod model;

mod balancers;
mod deletion;
mod nodes;
mod permissions;
