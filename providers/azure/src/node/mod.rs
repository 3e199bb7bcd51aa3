//! Nodes and their machines.

pub(crate) mod fleet;
pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod machine;
pub(crate) mod zones;
