//! The start, before the first controller runs: the configuration, the cloud and its endpoints, the identity.

pub(crate) mod cloud;
pub(crate) mod config;
mod endpoints;
pub(crate) mod identity;
pub(crate) mod selector;
