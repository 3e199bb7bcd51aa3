//! What only some clouds do.

pub(crate) mod volumes;
