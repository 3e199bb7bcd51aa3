//! Nodes and the instances behind them: provider IDs and names, look-ups, zones and topology.

pub(crate) mod fargate;
pub(crate) mod fleet;
pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod topology;
pub(crate) mod zones;
