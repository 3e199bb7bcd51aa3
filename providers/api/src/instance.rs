//! Instances of a cloud (upstream: `InstancesV2`).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::address::NodeAddress;
use crate::error::ProviderError;
use crate::node::NodeRef;

/// The instances of the cloud, queried in batches.
///
/// The only caller is the core's instance view, which joins the lookups of all controllers: initialization of new
/// nodes, the lifecycle pass over nodes that are not Ready, and the periodic refresh of addresses. Calls may overlap.
#[async_trait]
pub trait InstancesV2: Send + Sync {
    /// Returns one answer per node, in the order of the nodes. If the number of answers differs from the number of
    /// nodes, all of them count as [`Lookup::Unknown`].
    ///
    /// The instance is found by `provider_id` first, else by name, labels or annotations. `aspects` lists the parts
    /// that the caller reads; a provider may omit the others if they cost extra calls.
    ///
    /// Called once per window of about 100 ms while nodes join, once per lifecycle pass while some node is not Ready,
    /// and once per address refresh: never once per node. The number of nodes in one call is not limited: a provider
    /// that has a cheap complete list uses it for a large share of the cluster.
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup>;

    /// Whether a lookup consists of separate calls for each node, each with its own deadline. Then the core asks for
    /// each node alone, so that none waits for the others, and limits nothing as a whole. True for
    /// [`crate::OneByOne`].
    fn is_one_by_one(&self) -> bool {
        false
    }

    /// Whether a node keeps its uninitialized taint until it has a provider ID. True for all but
    /// [`crate::LegacyInstances`].
    fn provider_id_required(&self) -> bool {
        true
    }
}

/// The parts of an instance that the caller of [`InstancesV2::lookup`] will read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Aspects {
    /// Existence.
    pub existence: bool,
    /// Whether the instance is stopped.
    pub shutdown: bool,
    /// The addresses only.
    pub addresses: bool,
    /// All of [`InstanceMetadata`].
    pub metadata: bool,
}

impl Aspects {
    /// All aspects.
    pub const ALL: Self = Self { existence: true, shutdown: true, addresses: true, metadata: true };
    /// Existence and whether it is stopped, for the lifecycle controller.
    pub const LIFECYCLE: Self = Self { existence: true, shutdown: true, addresses: false, metadata: false };
    /// Addresses, for the periodic refresh.
    pub const ADDRESSES: Self = Self { existence: false, shutdown: false, addresses: true, metadata: false };
    /// The aspects that initialization needs.
    pub const METADATA: Self = Self { existence: false, shutdown: false, addresses: true, metadata: true };
}

/// The answer for one node.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Lookup {
    /// The instance exists.
    Found(Arc<Instance>),
    /// The instance no longer exists. The lifecycle controller deletes the node if the evidence is sufficient for the
    /// node's age, the node is not Ready, and the deletion budget allows it.
    Gone(Evidence),
    /// The node belongs to another cloud: counted, never modified.
    Foreign,
    /// The state is unknown: initialization is retried with back-off; no node is deleted or tainted.
    Unknown(ProviderError),
}

impl Lookup {
    /// The result of a lookup that requested only the metadata.
    pub fn found(metadata: InstanceMetadata) -> Self {
        Self::Found(Arc::new(Instance { shutdown: Ok(false), metadata: Ok(Some(metadata)) }))
    }
}

/// An existing instance. An aspect that was not requested may have any value.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Instance {
    /// Whether it is stopped: if so, the node has the shutdown taint while it is not Ready. An error leaves the taints
    /// unchanged; [`ProviderError::NotImplemented`] means "not stopped".
    pub shutdown: Result<bool, ProviderError>,
    /// The values to write to the node; `Ok(None)` skips the node silently.
    pub metadata: Result<Option<InstanceMetadata>, ProviderError>,
}

/// Metadata that a node gets from its instance. Every field may be empty, which means "do not set".
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct InstanceMetadata {
    /// `spec.providerID` with its scheme: `aws:///eu-west-1a/i-0123`.
    pub provider_id: String,
    /// Label `node.kubernetes.io/instance-type`.
    pub instance_type: String,
    /// `status.addresses`, in this order.
    pub node_addresses: Vec<NodeAddress>,
    /// Label `topology.kubernetes.io/zone`.
    pub zone: String,
    /// Label `topology.kubernetes.io/region`.
    pub region: String,
    /// Labels set at initialization, if the node does not have the key. With the feature gate
    /// `CloudNodeAdditionalLabelsReconciliation` they are also set later, over other values; none is ever removed. Keys
    /// under `kubernetes.io` and `k8s.io` are rejected.
    pub additional_labels: BTreeMap<String, String>,
}

/// The reason why an instance is considered gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Evidence {
    /// The kind of observation.
    pub kind: EvidenceKind,
    /// The start of the read that shows it.
    pub read_began: SystemTime,
    /// Clouds list new instances late: absence is ignored for a node younger than this at [`Evidence::read_began`].
    pub grace: Duration,
}

/// The kind of evidence that an instance is gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum EvidenceKind {
    /// The instance is in a final state.
    Terminated {
        /// The state in the cloud's spelling.
        state: String,
    },
    /// A lookup of this instance returned that it does not exist.
    Absent,
    /// The instance is missing from a complete answer. Must be confirmed by a second one.
    Unlisted,
}

impl std::fmt::Display for Evidence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.kind {
            EvidenceKind::Terminated { state } => write!(f, "the cloud shows the instance as {state}"),
            EvidenceKind::Absent => f.write_str("the cloud says that the instance does not exist"),
            EvidenceKind::Unlisted => f.write_str("the instance is missing from a complete list of the cloud"),
        }
    }
}
