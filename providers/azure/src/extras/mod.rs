//! Parts that only some clouds have.

pub(crate) mod out_of_service;
pub(crate) mod volumes;
