//! Objects for tests.
#![allow(clippy::unwrap_used, clippy::panic, clippy::indexing_slicing, reason = "fails a test, as the test would")]

use serde_json::{Value, json};

/// An object to create.
#[derive(Debug, Clone)]
pub struct Make {
    /// Plural name of the resource.
    pub resource: &'static str,
    /// The object.
    pub object: Value,
}

/// A node that is Ready.
pub fn node(name: &str) -> Make {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": {},
        "status": {"conditions": []},
    });
    Make { resource: "nodes", object }.ready("True")
}

/// A Service of type LoadBalancer with one port, in the namespace `default`.
pub fn service(name: &str) -> Make {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"type": "LoadBalancer", "selector": {"app": name}, "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    });
    Make { resource: "services", object }
}

/// A Service with these TCP ports, and with annotations whose keys start with `prefix`.
pub fn service_with(name: &str, prefix: &str, annotations: &[(&str, &str)], ports: &[u16]) -> Make {
    let start = service(name).with(|service| service["spec"]["ports"] = tcp_ports(ports));
    annotations.iter().fold(start, |make, (key, value)| make.annotation(&format!("{prefix}{key}"), value))
}

/// `spec.ports` of a Service.
pub fn tcp_ports(ports: &[u16]) -> Value {
    let one = |port: &u16| json!({"name": format!("p{port}"), "port": port, "protocol": "TCP"});
    ports.iter().map(one).collect()
}

/// A PersistentVolume with this source: `volume("pv", "hostPath", json!({"path": "/x"}))`.
pub fn volume(name: &str, source: &str, of: Value) -> Make {
    let mut object = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"]},
    });
    object["spec"][source] = of;
    Make { resource: "persistentvolumes", object }
}

impl Make {
    /// Changes the object.
    #[must_use]
    pub fn with(mut self, change: impl FnOnce(&mut Value)) -> Self {
        change(&mut self.object);
        self
    }

    fn push(self, pointer: [&str; 2], item: Value) -> Self {
        self.with(|object| match &mut object[pointer[0]][pointer[1]] {
            Value::Array(list) => list.push(item),
            empty => *empty = json!([item]),
        })
    }

    /// In this namespace.
    #[must_use]
    pub fn namespace(self, namespace: &str) -> Self {
        self.with(|object| object["metadata"]["namespace"] = namespace.into())
    }

    /// With the taint of a new node.
    #[must_use]
    pub fn uninitialized(self) -> Self {
        self.taint("node.cloudprovider.kubernetes.io/uninitialized", "NoSchedule")
    }

    /// With one more taint.
    #[must_use]
    pub fn taint(self, key: &str, effect: &str) -> Self {
        self.push(["spec", "taints"], json!({"key": key, "effect": effect}))
    }

    /// With this provider ID.
    #[must_use]
    pub fn provider_id(self, id: &str) -> Self {
        self.with(|object| object["spec"]["providerID"] = id.into())
    }

    /// With this pod range, in addition to earlier ones.
    #[must_use]
    pub fn pod_cidr(self, cidr: &str) -> Self {
        let first = self.object["spec"]["podCIDR"].is_null();
        let made = self.push(["spec", "podCIDRs"], cidr.into());
        if first { made.with(|object| object["spec"]["podCIDR"] = cidr.into()) } else { made }
    }

    /// With this status of the Ready condition.
    #[must_use]
    pub fn ready(self, status: &str) -> Self {
        self.with(|object| object["status"]["conditions"] = json!([{"type": "Ready", "status": status}]))
    }

    /// Without conditions.
    #[must_use]
    pub fn no_conditions(self) -> Self {
        self.with(|object| object["status"]["conditions"] = json!([]))
    }

    /// With one more address.
    #[must_use]
    pub fn address(self, kind: &str, address: &str) -> Self {
        self.push(["status", "addresses"], json!({"type": kind, "address": address}))
    }

    /// With this label.
    #[must_use]
    pub fn label(self, key: &str, value: &str) -> Self {
        self.with(|object| object["metadata"]["labels"][key] = value.into())
    }

    /// With this annotation.
    #[must_use]
    pub fn annotation(self, key: &str, value: &str) -> Self {
        self.with(|object| object["metadata"]["annotations"][key] = value.into())
    }

    /// With this finalizer.
    #[must_use]
    pub fn finalizer(self, name: &str) -> Self {
        self.push(["metadata", "finalizers"], name.into())
    }

    /// With the `--node-ip` of the kubelet.
    #[must_use]
    pub fn provided_ip(self, ips: &str) -> Self {
        self.annotation("alpha.kubernetes.io/provided-node-ip", ips)
    }
}
