//! What only some clouds do.

pub(crate) mod balancer_metrics;
pub(crate) mod volumes;
