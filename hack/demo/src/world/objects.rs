//! Nodes, Services and events, from watches of the store.

use std::sync::Arc;

use ccm_test_apiserver::{EventType, Store};
use serde_json::Value;

use super::World;
use crate::feed::{Feed, Source};

const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown";

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Ready {
    True,
    #[default]
    False,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct NodeRow {
    pub(crate) name: String,
    pub(crate) provider_id: String,
    pub(crate) instance_type: String,
    pub(crate) zone: String,
    /// `Type=address`
    pub(crate) addresses: Vec<String>,
    pub(crate) pod_cidr: String,
    pub(crate) uninitialized: bool,
    pub(crate) shutdown: bool,
    pub(crate) ready: Ready,
    /// NetworkUnavailable=False
    pub(crate) routed: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ServiceRow {
    pub(crate) uid: String,
    pub(crate) address: String,
    pub(crate) ports: String,
    pub(crate) finalizer: bool,
    pub(crate) deleting: bool,
}

fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}

/// IP address or host name.
fn address(ingress: &Value) -> &str {
    let ip = text(ingress, "/ip");
    if ip.is_empty() { text(ingress, "/hostname") } else { ip }
}

fn list<'a>(object: &'a Value, pointer: &str) -> &'a [Value] {
    object.pointer(pointer).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

impl NodeRow {
    fn read(node: &Value) -> Self {
        let tainted = |key: &str| list(node, "/spec/taints").iter().any(|taint| text(taint, "/key") == key);
        let condition = |kind: &str| {
            let found = list(node, "/status/conditions").iter().find(|c| text(c, "/type") == kind);
            found.map(|c| text(c, "/status")).unwrap_or_default()
        };
        let address = |a: &Value| format!("{}={}", text(a, "/type"), text(a, "/address"));
        Self {
            name: text(node, "/metadata/name").to_owned(),
            provider_id: text(node, "/spec/providerID").to_owned(),
            instance_type: text(node, "/metadata/labels/node.kubernetes.io~1instance-type").to_owned(),
            zone: text(node, "/metadata/labels/topology.kubernetes.io~1zone").to_owned(),
            addresses: list(node, "/status/addresses").iter().map(address).collect(),
            pod_cidr: text(node, "/spec/podCIDR").to_owned(),
            uninitialized: tainted(UNINITIALIZED),
            shutdown: tainted(SHUTDOWN),
            ready: match condition("Ready") {
                "True" => Ready::True,
                "Unknown" => Ready::Unknown,
                _ => Ready::False,
            },
            routed: condition("NetworkUnavailable") == "False",
        }
    }

    /// The address of this type; empty if there is none.
    pub(crate) fn address(&self, kind: &str) -> &str {
        let of = |a: &'_ String| a.split_once('=').is_some_and(|(k, _)| k == kind);
        self.addresses.iter().find(|a| of(a)).and_then(|a| a.split_once('=')).map_or("", |(_, address)| address)
    }

    /// The changes from the old state, as text.
    fn changes(&self, old: &Self) -> Vec<&'static str> {
        let mut changes = Vec::new();
        if old.uninitialized && !self.uninitialized {
            changes.push("taint \"uninitialized\" gone; provider ID and labels set");
        }
        if self.addresses != old.addresses {
            changes.push("addresses set");
        }
        if self.routed && !old.routed {
            changes.push("NetworkUnavailable=False: the route exists");
        }
        if self.shutdown && !old.shutdown {
            changes.push("taint \"shutdown\" set: the cloud says that the machine is stopped");
        }
        if !self.shutdown && old.shutdown {
            changes.push("taint \"shutdown\" gone");
        }
        changes
    }
}

impl ServiceRow {
    /// `None` if it needs no load balancer.
    fn read(service: &Value) -> Option<Self> {
        let ingress = list(service, "/status/loadBalancer/ingress");
        let finalizers = list(service, "/metadata/finalizers");
        let port = |port: &Value| {
            let number = port.get("port").and_then(Value::as_u64).unwrap_or_default();
            format!("{number}/{}", text(port, "/protocol"))
        };
        let row = Self {
            uid: text(service, "/metadata/uid").to_owned(),
            address: ingress.first().map(address).unwrap_or_default().to_owned(),
            ports: list(service, "/spec/ports").iter().map(port).collect::<Vec<_>>().join(","),
            finalizer: finalizers.iter().any(|f| f.as_str() == Some("service.kubernetes.io/load-balancer-cleanup")),
            deleting: !text(service, "/metadata/deletionTimestamp").is_empty(),
        };
        (text(service, "/spec/type") == "LoadBalancer" || row.finalizer).then_some(row)
    }

    fn changes(&self, old: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        if self.finalizer && !old.finalizer {
            changes.push("finalizer set: the Service cannot go before its load balancer".to_owned());
        }
        if !self.finalizer && old.finalizer {
            changes.push("finalizer removed: no load balancer is left".to_owned());
        }
        if self.address != old.address && !self.address.is_empty() {
            changes.push(format!("address {}", self.address));
        }
        if self.deleting && !old.deleting {
            changes.push("is being deleted; the finalizer holds it".to_owned());
        }
        changes
    }
}

/// Watches a kind until the store is dropped.
pub(super) async fn follow(kind: &'static str, store: Store, world: Arc<World>, feed: Arc<Feed>) {
    let Ok(mut watch) = store.watch(kind) else { return };
    while let Some(event) = watch.next().await {
        let object = event.value();
        match kind {
            "nodes" => node(event.event, &object, &world, &feed),
            "services" => service(event.event, &object, &world, &feed),
            _ => kube_event(event.event, &object, &feed),
        }
    }
}

fn node(event: EventType, object: &Value, world: &World, feed: &Feed) {
    let row = NodeRow::read(object);
    let name = row.name.clone();
    let mut state = world.lock();
    match event {
        EventType::Added | EventType::Modified => {
            state.joined.insert(name.clone());
            if !row.uninitialized {
                state.initialized.insert(name.clone());
            }
            let changes = state.nodes.get(&name).map(|old| row.changes(old)).unwrap_or_default();
            state.nodes.insert(name.clone(), row);
            for change in changes {
                feed.fact(Source::Cluster, &name, change);
            }
        }
        EventType::Deleted => {
            state.nodes.remove(&name);
            feed.fact(Source::Cluster, &name, "the Node is deleted");
        }
        EventType::Bookmark | EventType::Error => {}
    }
}

fn service(event: EventType, object: &Value, world: &World, feed: &Feed) {
    let key = format!("{}/{}", text(object, "/metadata/namespace"), text(object, "/metadata/name"));
    let mut state = world.lock();
    match (event, ServiceRow::read(object)) {
        (EventType::Added | EventType::Modified, Some(row)) => {
            let old = state.services.get(&key).cloned().unwrap_or_default();
            for change in row.changes(&old) {
                feed.fact(Source::Cluster, &key, change);
            }
            state.services.insert(key, row);
        }
        (EventType::Bookmark | EventType::Error, _) => {}
        _ => {
            if let Some(old) = state.services.remove(&key) {
                if let (true, Some(row)) = (old.finalizer, ServiceRow::read(object).filter(|row| !row.finalizer)) {
                    row.changes(&old).into_iter().for_each(|change| feed.fact(Source::Cluster, &key, change));
                }
                feed.fact(Source::Cluster, &key, "the Service is gone");
            }
        }
    }
}

/// Logs an event, except those of leader election.
fn kube_event(event: EventType, object: &Value, feed: &Feed) {
    let reason = text(object, "/reason");
    if event != EventType::Added || reason == "LeaderElection" {
        return;
    }
    let (kind, name) = (text(object, "/involvedObject/kind"), text(object, "/involvedObject/name"));
    let namespace = text(object, "/involvedObject/namespace");
    let subject = if kind == "Service" { format!("{namespace}/{name}") } else { name.to_owned() };
    feed.fact(Source::Event, &subject, format!("{reason}: {}", text(object, "/message")));
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_node_is_read_and_its_changes_are_reported() {
        let tainted = json!({
            "metadata": {"name": "a"},
            "spec": {"podCIDR": "10.244.0.0/24", "taints": [{"key": UNINITIALIZED, "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": "Unknown"}]},
        });
        let ready = json!({
            "metadata": {"name": "a", "labels": {"topology.kubernetes.io/zone": "z"}},
            "spec": {"providerID": "fake://a"},
            "status": {
                "addresses": [{"type": "InternalIP", "address": "172.16.0.1"}],
                "conditions": [{"type": "Ready", "status": "True"}, {"type": "NetworkUnavailable", "status": "False"}],
            },
        });
        let (old, new) = (NodeRow::read(&tainted), NodeRow::read(&ready));
        assert!(old.uninitialized && old.ready == Ready::Unknown && !old.routed);
        assert_eq!((new.zone.as_str(), new.address("InternalIP"), new.address("ExternalIP")), ("z", "172.16.0.1", ""));
        assert_eq!(new.changes(&old).len(), 3);
        assert!(new.changes(&new).is_empty());
    }
}
