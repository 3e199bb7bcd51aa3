//! Pod ranges that the cloud assigns to its instances, for `--cidr-allocator-type=CloudAllocator`.
//!
//! The core chooses the ranges of a node, writes them, and emits the events; the provider only reads.

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::ProviderError;
use crate::node::NodeRef;

/// Pod ranges of instances, read in batches. The only caller is `node-ipam-controller`.
#[async_trait]
pub trait PodRanges: Send + Sync {
    /// The network interfaces of each node's instance, in the order of the nodes. If the number of answers differs from
    /// the number of nodes, all nodes count as failed.
    ///
    /// `Ok` means that the instance was read and these are all its interfaces: an instance without ranges is not an
    /// error. An error means that the ranges are unknown; the core retries with back-off and writes nothing.
    ///
    /// All nodes have a provider ID of this cloud. Called once for all pending nodes: for all nodes of the cluster when
    /// the process becomes leader, then for new nodes and for failed ones. Calls do not overlap and start at least one
    /// second apart; nodes that become pending in the meantime are in the next call. A call is limited to
    /// [`crate::deadline::READ_DEADLINE`]. The nodes of a call that took longer are asked about in several calls at once, so
    /// that the others do not wait for the one that hangs.
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>>;
}

/// A network interface of an instance, and its ranges for pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodInterface {
    /// Whether it is the instance's default interface. If none is, the first one is used. All others are ignored.
    pub primary: bool,
    /// CIDRs of both families in the cloud's spelling. The first of each family is used.
    pub ranges: Vec<String>,
}
