//! Nodes and the servers behind them: provider IDs and names, look-ups, ports.

pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod labels;
pub(crate) mod ports;
