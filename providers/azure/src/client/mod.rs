//! The calls of Azure Resource Manager.

pub(crate) mod id;
