//! Instances of a cloud (upstream: `InstancesV2`).

use std::collections::BTreeMap;
use std::ops::Bound;
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
    /// and once per address refresh: never once per node. The number of nodes in one call is not limited.
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup>;

    /// All instances of this cluster in one complete read, if the cloud has a cheap one; otherwise `None`.
    ///
    /// The core prefers it to [`InstancesV2::lookup`] for a large share of the cluster, and treats absence from it as
    /// evidence. A read that may be incomplete must be an error.
    async fn list(&self) -> Option<Result<Snapshot, ProviderError>> {
        None
    }

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
    /// Labels set once, at initialization, if the node does not have the key. Keys under `kubernetes.io` and `k8s.io`
    /// are rejected.
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
    /// The instance is missing from a complete list. Must be confirmed by a second list.
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

/// A complete read of all instances.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Snapshot {
    /// The start of the read: it contains every instance that existed before.
    pub began: SystemTime,
    /// See [`Evidence::grace`].
    pub grace: Duration,
    /// The instances by provider ID. The value of a terminated instance is [`Lookup::Gone`].
    pub by_provider_id: BTreeMap<String, Lookup>,
    /// The provider IDs by node name, for nodes without a provider ID.
    pub by_name: BTreeMap<String, String>,
}

impl Snapshot {
    /// The answer for one node. A node without provider ID that is not found by name is [`Lookup::Unknown`]: it may
    /// have another name in the cloud.
    ///
    /// The caller filters out nodes of other clouds with [`crate::Node::provider_scheme`]. As a second safeguard, an ID
    /// whose scheme no listed instance has is never considered gone, nor is a malformed provider ID.
    pub fn find(&self, name: &str, provider_id: Option<&str>) -> Lookup {
        let Some(id) = provider_id else { return self.find_by_name(name) };
        if let Some(answer) = self.by_provider_id.get(id) {
            return answer.clone();
        }
        let Some((scheme, _)) = id.split_once("://") else {
            return Lookup::Unknown(ProviderError::unknown(format!(
                "{id:?} is no provider ID of the form scheme://id"
            )));
        };
        if !self.by_provider_id.is_empty() && !self.has_scheme(scheme) {
            return Lookup::Foreign;
        }
        Lookup::Gone(Evidence { kind: EvidenceKind::Unlisted, read_began: self.began, grace: self.grace })
    }

    fn find_by_name(&self, name: &str) -> Lookup {
        match self.by_name.get(name) {
            None => Lookup::Unknown(ProviderError::InstanceNotFound),
            Some(id) => self.by_provider_id.get(id).cloned().unwrap_or_else(|| {
                Lookup::Unknown(ProviderError::bug(format!("the list names {id} for node {name} but does not hold it")))
            }),
        }
    }

    fn has_scheme(&self, scheme: &str) -> bool {
        let start = format!("{scheme}://");
        let at_or_after = (Bound::Included(&*start), Bound::Unbounded);
        self.by_provider_id.range::<str, _>(at_or_after).next().is_some_and(|(id, _)| id.starts_with(&start))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn snapshot(ids: &[&str], names: &[(&str, &str)]) -> Snapshot {
        let found = |id: &&str| {
            let metadata = InstanceMetadata { provider_id: (*id).to_owned(), ..InstanceMetadata::default() };
            ((*id).to_owned(), Lookup::found(metadata))
        };
        Snapshot {
            began: SystemTime::UNIX_EPOCH,
            grace: Duration::from_secs(60),
            by_provider_id: ids.iter().map(found).collect(),
            by_name: names.iter().map(|(name, id)| ((*name).to_owned(), (*id).to_owned())).collect(),
        }
    }

    fn id_of(answer: &Lookup) -> &str {
        match answer {
            Lookup::Found(instance) => &instance.metadata.as_ref().unwrap().as_ref().unwrap().provider_id,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn the_provider_id_is_looked_up_before_the_name() {
        let snapshot = snapshot(&["fake://1", "fake://2"], &[("n", "fake://2")]);
        assert_eq!(id_of(&snapshot.find("n", Some("fake://1"))), "fake://1");
        assert_eq!(id_of(&snapshot.find("n", None)), "fake://2");
    }

    #[test]
    fn absence_from_a_complete_list_carries_its_time_and_grace() {
        let snapshot = snapshot(&["fake://1"], &[("n", "fake://1")]);
        let Lookup::Gone(evidence) = snapshot.find("n", Some("fake://9")) else { panic!("not gone") };
        assert_eq!(
            evidence,
            Evidence {
                kind: EvidenceKind::Unlisted,
                read_began: SystemTime::UNIX_EPOCH,
                grace: Duration::from_secs(60)
            }
        );
    }

    #[test]
    fn a_listed_terminated_instance_keeps_its_own_evidence() {
        let mut snapshot = snapshot(&[], &[("n", "fake://1")]);
        let state = EvidenceKind::Terminated { state: "terminated".into() };
        let gone = Evidence { kind: state.clone(), read_began: SystemTime::UNIX_EPOCH, grace: Duration::ZERO };
        snapshot.by_provider_id.insert("fake://1".into(), Lookup::Gone(gone));
        for id in [None, Some("fake://1")] {
            assert!(matches!(snapshot.find("n", id), Lookup::Gone(evidence) if evidence.kind == state));
        }
    }

    #[test]
    fn an_unknown_name_is_no_evidence() {
        let snapshot = snapshot(&["fake://1"], &[]);
        assert!(matches!(snapshot.find("n", None), Lookup::Unknown(ProviderError::InstanceNotFound)));
    }

    #[test]
    fn a_node_of_another_cloud_is_never_gone() {
        let snapshot = snapshot(&["fake://1", "zeta://1"], &[]);
        for foreign in ["alpha://1", "fak://1", "fakes://1", "zz://1", "://1"] {
            assert!(matches!(snapshot.find("n", Some(foreign)), Lookup::Foreign), "{foreign}");
        }
        assert!(matches!(snapshot.find("n", Some("fake://2")), Lookup::Gone(_)));
        assert!(matches!(snapshot.find("n", Some("zeta://2")), Lookup::Gone(_)));
    }

    #[test]
    fn a_malformed_provider_id_is_never_gone() {
        for odd in ["", "i-1", "fake:/1"] {
            assert!(matches!(snapshot(&["fake://1"], &[]).find("n", Some(odd)), Lookup::Unknown(_)), "{odd}");
        }
    }

    #[test]
    fn a_list_that_contradicts_itself_is_no_evidence() {
        let answer = snapshot(&["fake://1"], &[("n", "fake://2")]).find("n", None);
        assert!(matches!(answer, Lookup::Unknown(error) if error.class() == crate::ErrorClass::Bug));
    }

    #[test]
    fn evidence_reads_as_a_sentence() {
        let text = |kind| Evidence { kind, read_began: SystemTime::UNIX_EPOCH, grace: Duration::ZERO }.to_string();
        assert_eq!(
            text(EvidenceKind::Terminated { state: "shutting-down".into() }),
            "the cloud shows the instance as shutting-down"
        );
        assert_eq!(text(EvidenceKind::Absent), "the cloud says that the instance does not exist");
    }
}
