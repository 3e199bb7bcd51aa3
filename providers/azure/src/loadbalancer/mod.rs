//! Load balancers for Services.

mod claim;
pub(crate) mod env;
mod json;
pub(crate) mod members;
pub(crate) mod names;
pub(crate) mod observed;
mod plan;
mod step;
pub(crate) mod tags;
pub(crate) mod wanted;
