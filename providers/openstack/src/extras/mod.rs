//! Functions that only some clouds have.

pub(crate) mod volumes;
