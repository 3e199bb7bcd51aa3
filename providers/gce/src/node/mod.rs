//! Nodes in the cloud: identity, instances, zones, network.

pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod network;
pub(crate) mod zones;
