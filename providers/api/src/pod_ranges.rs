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
    /// The network interfaces of the instance of each node, in the order of the nodes. The number of answers must equal the
    /// number of nodes; anything else is an error for all of them.
    ///
    /// `Ok` means that the instance was read and that these are all of its interfaces: an instance without ranges is not an
    /// error. An error says that the ranges are not known; the core tries again with back-off, and writes nothing.
    ///
    /// All nodes have a provider ID, and none belongs to another cloud. Called once for all nodes that are due: for all
    /// nodes of the cluster when the process begins to lead, then for new nodes and for those that failed. Calls do not
    /// overlap, and begin at least a second apart; nodes that become due in the meantime are in the next call. A call
    /// may take at most [`crate::deadline::READ_DEADLINE`].
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>>;
}

/// A network interface of an instance, and its ranges for pods.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PodInterface {
    /// Whether it is the default interface of the instance. If none is, the first one counts. All others are ignored.
    pub primary: bool,
    /// CIDR addresses of both families, as the cloud writes them. The first of each family counts.
    pub ranges: Vec<String>,
}
