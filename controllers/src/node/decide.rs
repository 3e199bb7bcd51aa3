//! The changes to a node that follow from its instance. Pure.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use ccm_provider::well_known::{
    ANNOTATION_PROVIDED_NODE_IP, LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION, LABEL_REGION_BETA,
    LABEL_ZONE, LABEL_ZONE_BETA, TAINT_UNINITIALIZED,
};
use ccm_provider::{Change, InstanceMetadata, Lookup, Node, NodeAddress, Plan, ProviderError, Step, address};
use ccm_runtime::writer::NodePatch;
use ccm_runtime::writer::taint;
use regex::Regex;

use crate::preview::node_update;

/// Beta and stable spelling of the labels that the core keeps equal.
const PAIRS: [(&str, &str); 3] =
    [(LABEL_ZONE_BETA, LABEL_ZONE), (LABEL_REGION_BETA, LABEL_REGION), (LABEL_INSTANCE_TYPE_BETA, LABEL_INSTANCE_TYPE)];

// `None` only if the pattern were malformed; then every key counts as reserved.
static RESERVED: LazyLock<Option<Regex>> = LazyLock::new(|| Regex::new(r"(^|\.)(kubernetes|k8s)\.io/").ok());

/// The changes by an initialization.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Initialization {
    /// The write: provider ID where the node has none, labels that differ from the node's, and the taints that remain.
    pub(super) patch: NodePatch,
    /// Messages about additional labels that were skipped.
    pub(super) left_out: Vec<String>,
}

/// Decides the writes of an initialization. The uninitialized taint is removed whatever its value and effect.
///
/// Source: `kubernetes/cloud-provider` `controllers/node/node_controller.go`.
pub(super) fn initialize(
    node: &Node,
    metadata: &InstanceMetadata,
    needs_provider_id: bool,
) -> Result<Initialization, String> {
    if needs_provider_id && metadata.provider_id.is_empty() && node.provider_id.is_none() {
        return Err(format!("cloud provider does not set node provider ID for node {}", node.name));
    }
    check_provided_ip(node, &metadata.node_addresses)?;
    let mut labels = BTreeMap::new();
    let fixed = [
        (&metadata.instance_type, LABEL_INSTANCE_TYPE_BETA, LABEL_INSTANCE_TYPE),
        (&metadata.zone, LABEL_ZONE_BETA, LABEL_ZONE),
        (&metadata.region, LABEL_REGION_BETA, LABEL_REGION),
    ];
    for (value, beta, stable) in fixed {
        if !value.is_empty() {
            labels.insert(beta.to_owned(), value.clone());
            labels.insert(stable.to_owned(), value.clone());
        }
    }
    let mut left_out = Vec::new();
    for (key, value) in &metadata.additional_labels {
        if is_reserved(key) {
            left_out.push(format!("label {key}={value} of the cloud is left out: its prefix is reserved"));
        } else if let Some(present) = node.labels.get(key) {
            if present != value {
                left_out.push(format!("label {key}={value} of the cloud is left out: the node has {key}={present}"));
            }
        } else {
            labels.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    labels.retain(|key, value| node.labels.get(key) != Some(value));
    let provider_id = Some(metadata.provider_id.clone()).filter(|id| !id.is_empty() && node.provider_id.is_none());
    let taints = Some(taint::without_key(&node.taints, TAINT_UNINITIALIZED));
    Ok(Initialization { patch: NodePatch { provider_id, labels, taints, ..NodePatch::default() }, left_out })
}

/// Whether the cloud has no instance of the node.
pub(super) fn is_unknown(lookup: &Lookup) -> bool {
    match lookup {
        Lookup::Gone(_) => true,
        Lookup::Found(instance) => instance.metadata.as_ref().is_err_and(ProviderError::is_instance_not_found),
        Lookup::Unknown(error) => error.is_instance_not_found(),
        Lookup::Foreign => false,
    }
}

fn is_reserved(key: &str) -> bool {
    RESERVED.as_ref().is_none_or(|reserved| reserved.is_match(key))
}

/// The additional labels of the cloud that the node lacks, or has with another value.
pub(super) fn changed_additional_labels(node: &Node, metadata: &InstanceMetadata) -> BTreeMap<String, String> {
    let labels = metadata.additional_labels.iter();
    let changed = labels.filter(|(key, value)| !is_reserved(key) && node.labels.get(key) != Some(value));
    changed.map(|(key, value)| (key.clone(), value.clone())).collect()
}

/// Labels to set as changes of a plan.
pub(super) fn label_changes(node: &Node, labels: &BTreeMap<String, String>) -> Vec<Change> {
    let change = |(key, value): (&String, &String)| Change {
        field: format!("label {key}").into(),
        before: node.labels.get(key).map(str::to_owned),
        after: Some(value.clone()),
    };
    labels.iter().map(change).collect()
}

fn check_provided_ip(node: &Node, cloud: &[NodeAddress]) -> Result<(), String> {
    let Some(provided) = node.annotations.get(ANNOTATION_PROVIDED_NODE_IP) else { return Ok(()) };
    address::filter_by_node_ips(cloud, provided).map(drop).map_err(|error| {
        format!(
            "failed to get node modifiers from cloud provider: provided node ip for node {:?} is not valid: {error}",
            node.name.as_str()
        )
    })
}

/// The addresses to write to the node; `None` if nothing needs to be written.
pub(super) fn addresses(node: &Node, cloud: &[NodeAddress]) -> Result<Option<Vec<NodeAddress>>, String> {
    if cloud.is_empty() {
        return Ok(None);
    }
    let wanted = address::with_hostname(cloud.to_vec(), &node.addresses);
    let wanted = match node.annotations.get(ANNOTATION_PROVIDED_NODE_IP) {
        Some(provided) => address::filter_by_node_ips(&wanted, provided)?,
        None => wanted,
    };
    Ok((!address::same_addresses(&node.addresses, &wanted)).then_some(wanted))
}

/// Labels whose stable spelling must follow the beta spelling.
pub(super) fn label_fixes(node: &Node) -> BTreeMap<&'static str, String> {
    let fix = |(beta, stable): (&str, &'static str)| {
        let value = node.labels.get(beta)?;
        (node.labels.get(stable) != Some(value)).then(|| (stable, value.to_owned()))
    };
    PAIRS.into_iter().filter_map(fix).collect()
}

impl Initialization {
    /// The writes as plan steps.
    pub(super) fn plan(&self, node: &Node, addresses: Option<&[NodeAddress]>) -> Plan {
        let labels = label_changes(node, &self.patch.labels);
        let id = self.patch.provider_id.iter().map(|id| Change {
            field: "spec.providerID".into(),
            before: None,
            after: Some(id.clone()),
        });
        let taint = Change { field: "taint".into(), before: Some(TAINT_UNINITIALIZED.into()), after: None };
        let changes = id.chain(labels).chain([taint]).collect();
        let step = node_update(node, changes, "the node waits for initialization");
        let mut plan = Plan::new(format!("node {}", node.name)).with(step);
        if let Some(addresses) = addresses {
            plan = plan.with(address_step(node, addresses));
        }
        plan
    }
}

/// The write of new addresses as a plan step.
pub(super) fn address_step(node: &Node, addresses: &[NodeAddress]) -> Step {
    let print = |list: &[NodeAddress]| {
        list.iter().map(|a| format!("{}={}", a.kind.as_str(), a.address)).collect::<Vec<_>>().join(" ")
    };
    let change = Change {
        field: "status.addresses".into(),
        before: Some(print(&node.addresses)).filter(|list| !list.is_empty()),
        after: Some(print(addresses)),
    };
    node_update(node, vec![change], "the cloud shows other addresses")
}
