//! Nodes and their instances: provider IDs and names, lookups, zones and topology.

pub(crate) mod fargate;
pub(crate) mod fleet;
pub(crate) mod identity;
pub(crate) mod instances;
pub(crate) mod topology;
pub(crate) mod zones;

use std::time::{Duration, SystemTime};

use ccm_kit::Cluster;
use ccm_provider::Node;

/// The time since the creation of a node, if known.
pub(crate) fn age(node: &Node, cluster: &Cluster) -> Option<Duration> {
    let created = SystemTime::from(node.created?);
    Some(cluster.wall().duration_since(created).unwrap_or_default())
}
