//! Accessors of an object for tests.
#![allow(clippy::indexing_slicing, reason = "missing keys of JSON are null")]

use serde_json::Value;

/// An object from the API server.
#[derive(Debug, Clone, PartialEq)]
pub struct Object(pub Value);

impl std::ops::Deref for Object {
    type Target = Value;
    fn deref(&self) -> &Value {
        &self.0
    }
}

impl Object {
    fn text(&self, pointer: &str) -> &str {
        self.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    fn list(&self, pointer: &str) -> Vec<&Value> {
        self.pointer(pointer).and_then(Value::as_array).map(|list| list.iter().collect()).unwrap_or_default()
    }

    /// Name.
    pub fn name(&self) -> &str {
        self.text("/metadata/name")
    }

    /// UID.
    pub fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    /// Resource version.
    pub fn version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }

    /// A label; empty if there is none.
    pub fn label(&self, key: &str) -> &str {
        self["metadata"]["labels"][key].as_str().unwrap_or_default()
    }

    /// Finalizers.
    pub fn finalizers(&self) -> Vec<String> {
        self.list("/metadata/finalizers").iter().map(|f| f.as_str().unwrap_or_default().to_owned()).collect()
    }

    /// `spec.providerID`; empty if there is none.
    pub fn provider_id(&self) -> &str {
        self.text("/spec/providerID")
    }

    /// Taints as `key:effect`, without those of the kubelet's conditions.
    pub fn taints(&self) -> Vec<String> {
        let taints = self.list("/spec/taints");
        let text = |t: &&Value| format!("{}:{}", t["key"].as_str().unwrap_or(""), t["effect"].as_str().unwrap_or(""));
        taints.iter().map(text).filter(|t| !t.starts_with("node.kubernetes.io/")).collect()
    }

    /// Whether the node waits for initialization.
    pub fn is_uninitialized(&self) -> bool {
        self.taints().iter().any(|taint| taint.starts_with("node.cloudprovider.kubernetes.io/uninitialized"))
    }

    /// Addresses as `Type=address`.
    pub fn addresses(&self) -> Vec<String> {
        let addresses = self.list("/status/addresses");
        let text = |a: &Value, key: &str| a[key].as_str().unwrap_or_default().to_owned();
        addresses.iter().map(|a| format!("{}={}", text(a, "type"), text(a, "address"))).collect()
    }

    /// A condition.
    pub fn condition(&self, kind: &str) -> Option<Value> {
        self.list("/status/conditions").into_iter().find(|c| c["type"] == kind).cloned()
    }

    /// IPs and host names of a Service's load balancer.
    pub fn ingress(&self) -> Vec<String> {
        let one = |i: &&Value| i["ip"].as_str().or(i["hostname"].as_str()).unwrap_or_default().to_owned();
        self.list("/status/loadBalancer/ingress").iter().map(one).collect()
    }

    /// An event in one line: `Warning Reason: message`.
    pub fn event_line(&self) -> String {
        format!("{} {}: {}", self.text("/type"), self.text("/reason"), self.text("/message"))
    }
}
