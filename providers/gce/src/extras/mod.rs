//! Features that only some clouds have.

pub(crate) mod balancer_metrics;
pub(crate) mod volumes;
