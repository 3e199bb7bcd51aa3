//! Writes of nodes.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_provider::well_known::{REASON_NO_ROUTE, REASON_ROUTE_CREATED};
use ccm_provider::{Node, NodeAddress, NodeRef, Taint};
use http::Method;
use serde_json::{Map, Value, json};

use super::body;
use crate::client::{Call, Urgency};
use crate::clock::rfc3339;
use crate::gate::{Gate, GateError};
use crate::store::{Store, version_of};

/// Changes of a node. Addresses and the condition are in its status, and are written separately.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodePatch {
    /// `spec.providerID`
    pub provider_id: Option<String>,
    /// Labels to set; others are kept.
    pub labels: BTreeMap<String, String>,
    /// The whole list of taints. The API server refuses the patch if the node changed since it was read.
    pub taints: Option<Vec<Taint>>,
    /// `spec.podCIDRs`, immutable once set.
    pub pod_cidrs: Vec<String>,
    /// The addresses, which replace the present ones.
    pub addresses: Vec<NodeAddress>,
    /// The condition `NetworkUnavailable`, and the time.
    pub network: Option<(Network, jiff::Timestamp)>,
}

/// The reachability of the pods of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Network {
    /// All its routes exist.
    Routed,
    /// A route is missing.
    Unrouted,
    /// The cloud knows its pod ranges, so that no routes are needed. `known`: the node has the condition, and keeps its
    /// times.
    Implicit {
        /// Whether the node has the condition.
        known: bool,
    },
}

/// The writer of nodes.
#[derive(Debug, Clone, Copy)]
pub struct NodeWriter<'a> {
    gate: &'a Gate,
    nodes: &'a Store<Node>,
}

impl<'a> NodeWriter<'a> {
    /// A writer for nodes of this store.
    pub fn new(gate: &'a Gate, nodes: &'a Store<Node>) -> Self {
        Self { gate, nodes }
    }

    /// Writes the changes that `decide` returns for the node, and decides again after a conflict. Returns the node
    /// after the write; `None` when nothing was to be written, or the node is gone or another one has its name.
    pub async fn write(
        &self,
        node: &NodeRef,
        mut decide: impl FnMut(&NodeRef) -> Option<NodePatch> + Send,
    ) -> Result<Option<NodeRef>, GateError> {
        let mut patch = NodePatch::default();
        let call = |node: &NodeRef| {
            patch = decide(node)?;
            Some(patch.call(node))
        };
        let written = super::write(self.gate, self.nodes, node.clone(), |node| &node.uid, call).await?;
        let Some((base, answer)) = written else { return Ok(None) };
        if patch.taints.is_some() {
            // The version of the base was the latest: the node is the base with these changes.
            self.nodes.apply_patch_response(&base, &answer, |node, version| patch.apply_to(node, version));
        }
        Ok(self.nodes.get(&base.name).or(Some(base)))
    }

    /// One attempt that ends after `limit`, at the API server too, and within the lease. Returns the new version of the
    /// node.
    pub async fn write_once(&self, node: &Node, patch: &NodePatch, limit: Duration) -> Result<String, GateError> {
        let mut call = Call { within_lease: true, ..patch.call(node).within(limit) };
        call.path = format!("{}?timeout={}ms", call.path, limit.as_millis().max(1)).into();
        let answer = self.gate.write(&call).await?;
        Ok(version_of(&answer).unwrap_or_default())
    }

    /// Deletes this node, and no other one with its name. Returns whether it existed.
    pub async fn delete(&self, node: &Node) -> Result<bool, GateError> {
        let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": node.uid}});
        let call = Call { yields: true, ..Call::json(Method::DELETE, path(node), &body) };
        match self.gate.write(&call).await {
            Ok(_) => Ok(true),
            Err(error) if error.is_not_found() => Ok(false),
            Err(error) if error.is_conflict() => {
                tracing::info!(node = %node.name, "a new node has the name of the one that is gone: left as it is");
                Ok(false)
            }
            Err(error) => Err(error),
        }
    }
}

fn path(node: &Node) -> String {
    format!("/api/v1/nodes/{}", node.name)
}

impl NodePatch {
    fn call(&self, node: &Node) -> Call<'static> {
        let subresource = if self.addresses.is_empty() && self.network.is_none() { "" } else { "/status" };
        // Pods wait for the taint of a new node to be removed, but not for its addresses.
        let urgency = match self {
            Self { addresses, .. } if !addresses.is_empty() => Urgency::CanWait,
            Self { taints: Some(_), .. } => Urgency::Urgent,
            _ => Urgency::Normal,
        };
        let call = Call::strategic(format!("{}{subresource}", path(node)), &self.body(node));
        // Keep little: a node is about 20 KB, and hundreds of writes may be waiting in a burst.
        Call { urgency, yields: true, ..call.metadata_only() }
    }

    fn body(&self, node: &Node) -> Value {
        let (mut metadata, mut spec, mut status) = (Map::new(), Map::new(), Map::new());
        let set = |part: &mut Map<String, Value>, key: &str, value: Value| drop(part.insert(key.to_owned(), value));
        match &self.taints {
            Some(taints) => {
                set(&mut metadata, "resourceVersion", json!(node.resource_version));
                set(&mut spec, "taints", if taints.is_empty() { Value::Null } else { json!(taints) });
            }
            None => set(&mut metadata, "uid", json!(node.uid)),
        }
        if !self.labels.is_empty() {
            set(&mut metadata, "labels", json!(self.labels));
        }
        if let Some(id) = &self.provider_id {
            set(&mut spec, "providerID", json!(id));
        }
        if let Some(first) = self.pod_cidrs.first() {
            set(&mut spec, "podCIDR", json!(first));
            set(&mut spec, "podCIDRs", json!(self.pod_cidrs));
        }
        if !self.addresses.is_empty() {
            // The directive keeps the API server from merging them by type into the present ones.
            let list = self.addresses.iter().map(|a| json!({"type": a.kind.as_str(), "address": &*a.address}));
            set(&mut status, "addresses", list.chain([json!({"$patch": "replace"})]).collect());
        }
        if let Some((network, now)) = self.network {
            set(&mut status, "conditions", json!([network_condition(network, now)]));
        }
        body(metadata, spec, status)
    }

    /// The node after this write, which gave it this version.
    fn apply_to(&self, node: &mut Node, version: &str) {
        node.resource_version = version.into();
        let present = node.labels.iter().map(|(key, value)| (key.to_owned(), value.to_owned()));
        node.labels = present.chain(self.labels.clone()).collect();
        if let Some(taints) = &self.taints {
            node.taints = taints.clone().into();
        }
        if let Some(id) = &self.provider_id {
            node.provider_id = Some(id.as_str().into());
        }
        if !self.pod_cidrs.is_empty() {
            node.pod_cidrs = self.pod_cidrs.iter().map(|range| range.as_str().into()).collect();
        }
    }
}

fn network_condition(network: Network, now: jiff::Timestamp) -> Value {
    let (status, reason, message) = match network {
        Network::Routed => ("False", REASON_ROUTE_CREATED, "RouteController created a route"),
        Network::Unrouted => ("True", REASON_NO_ROUTE, "RouteController failed to create a route"),
        Network::Implicit { .. } => ("False", REASON_ROUTE_CREATED, "NodeController create implicit route"),
    };
    let mut condition = Map::new();
    let mut set = |key: &str, value: &str| drop(condition.insert(key.to_owned(), value.into()));
    for (key, value) in [("type", "NetworkUnavailable"), ("status", status), ("reason", reason), ("message", message)] {
        set(key, value);
    }
    if network != (Network::Implicit { known: true }) {
        let now = rfc3339(now);
        set("lastHeartbeatTime", &now);
        set("lastTransitionTime", &now);
    }
    condition.into()
}

#[cfg(test)]
mod tests {
    use ccm_provider::AddressType;

    use super::super::taint::shutdown_taint;
    use super::*;

    fn body_of(patch: &NodePatch) -> Value {
        patch.body(&Node { name: "n".into(), uid: "u".into(), resource_version: "7".into(), ..Node::default() })
    }

    fn labels(labels: &[(&str, &str)]) -> BTreeMap<String, String> {
        labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn addresses_replace_the_present_ones() {
        let addresses = vec![NodeAddress::new(AddressType::InternalIp, "10.0.0.1")];
        let list = json!([{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}]);
        let patch = NodePatch { addresses, ..NodePatch::default() };
        assert_eq!(body_of(&patch), json!({"metadata": {"uid": "u"}, "status": {"addresses": list}}));
        assert_eq!(patch.call(&Node { name: "n".into(), ..Node::default() }).path, "/api/v1/nodes/n/status");
    }

    #[test]
    fn labels_are_set_one_by_one_on_this_node() {
        let patch = NodePatch { labels: labels(&[("topology.kubernetes.io/zone", "a")]), ..NodePatch::default() };
        let wanted = json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}, "uid": "u"}});
        assert_eq!(body_of(&patch), wanted);
    }

    #[test]
    fn pod_ranges_are_written_in_both_fields() {
        let patch = NodePatch { pod_cidrs: vec!["fd00::/80".into(), "10.0.0.0/24".into()], ..NodePatch::default() };
        let spec = json!({"podCIDR": "fd00::/80", "podCIDRs": ["fd00::/80", "10.0.0.0/24"]});
        assert_eq!(body_of(&patch), json!({"metadata": {"uid": "u"}, "spec": spec}));
    }

    #[test]
    fn taints_are_written_whole_under_the_resource_version() {
        let timed = Taint {
            key: "k".into(),
            value: "v".into(),
            effect: "NoExecute".into(),
            time_added: Some("2026-01-01T00:00:00Z".into()),
        };
        let patch = NodePatch { taints: Some(vec![shutdown_taint(), timed]), ..NodePatch::default() };
        let wanted = json!({"metadata": {"resourceVersion": "7"}, "spec": {"taints": [
            {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
            {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
        ]}});
        assert_eq!(body_of(&patch), wanted);
        let last = NodePatch { taints: Some(Vec::new()), ..NodePatch::default() };
        assert_eq!(body_of(&last).to_string(), r#"{"metadata":{"resourceVersion":"7"},"spec":{"taints":null}}"#);
    }

    #[test]
    fn initialization_is_one_write() {
        let patch = NodePatch {
            provider_id: Some("fake://1".into()),
            labels: labels(&[("b", "2"), ("a", "1")]),
            taints: Some(vec![shutdown_taint()]),
            ..NodePatch::default()
        };
        let taints = json!([{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]);
        let wanted = json!({
            "metadata": {"resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
            "spec": {"providerID": "fake://1", "taints": taints},
        });
        assert_eq!(body_of(&patch), wanted);
    }

    #[test]
    fn a_node_after_a_write_has_all_that_was_written() {
        let patch = NodePatch {
            provider_id: Some("fake://1".into()),
            labels: labels(&[("a", "1")]),
            taints: Some(vec![shutdown_taint()]),
            pod_cidrs: vec!["10.0.0.0/24".into()],
            ..NodePatch::default()
        };
        let mut node = Node::default();
        patch.apply_to(&mut node, "7");
        assert_eq!((node.labels.get("a"), node.provider_id_or_empty()), (Some("1"), "fake://1"));
        assert_eq!(&*node.resource_version, "7");
        assert_eq!((&*node.taints, &*node.pod_cidrs), (&[shutdown_taint()][..], &["10.0.0.0/24".into()][..]));
    }

    #[test]
    fn the_network_condition_has_whole_seconds() {
        let now = "2026-02-03T04:05:06.789Z".parse().unwrap();
        let written = |network| body_of(&NodePatch { network: Some((network, now)), ..NodePatch::default() });
        let wanted = json!({"type": "NetworkUnavailable", "status": "False", "lastHeartbeatTime": "2026-02-03T04:05:06Z",
            "lastTransitionTime": "2026-02-03T04:05:06Z", "reason": "RouteCreated",
            "message": "RouteController created a route"});
        assert_eq!(written(Network::Routed)["status"], json!({"conditions": [wanted]}));
        let missing = &written(Network::Unrouted)["status"]["conditions"][0];
        assert_eq!((&missing["status"], &missing["reason"]), (&json!("True"), &json!("NoRouteCreated")));
        assert_eq!(missing["message"], "RouteController failed to create a route");
    }

    #[test]
    fn an_implicit_route_leaves_the_times_of_a_condition_that_is_there() {
        let now = "2026-02-03T04:05:06Z".parse().unwrap();
        let written = |known| {
            let network = Some((Network::Implicit { known }, now));
            body_of(&NodePatch { network, ..NodePatch::default() })["status"]["conditions"][0].clone()
        };
        let known = json!({"type": "NetworkUnavailable", "status": "False", "reason": "RouteCreated",
            "message": "NodeController create implicit route"});
        assert_eq!(written(true), known);
        assert_eq!(written(false)["lastTransitionTime"], json!("2026-02-03T04:05:06Z"));
    }
}
