//! Cases that both servers must pass.

pub(crate) mod misc;
pub(crate) mod nodes;
pub(crate) mod patches;
pub(crate) mod reads;
pub(crate) mod services;
pub(crate) mod watches;
pub(crate) mod writes;
