//! Creates and deletes nodes and Services, and checks the result.

use std::collections::{BTreeMap, BTreeSet};

use ccm_test_suite::{Make, Object, Rig, node, service};
use rand::Rng;
use rand::rngs::StdRng;
use rand::seq::IteratorRandom;
use serde_json::{Value, json};

/// The desired state of the test.
#[derive(Clone, Default)]
struct Wanted {
    /// Nodes with an instance: UID by name.
    nodes: BTreeMap<String, String>,
    /// Nodes whose instance is deleted.
    dead: BTreeSet<String>,
    services: BTreeSet<String>,
}

pub(super) struct Churn<'a> {
    rig: &'a Rig,
    rng: StdRng,
    number: u32,
    wanted: Wanted,
    /// Services that the user deleted or a restored etcd does not contain: their load balancers may be deleted.
    deleted: BTreeSet<String>,
    backup: Wanted,
}

impl<'a> Churn<'a> {
    pub(super) fn new(rig: &'a Rig, rng: StdRng) -> Self {
        Self { rig, rng, number: 0, wanted: Wanted::default(), deleted: BTreeSet::new(), backup: Wanted::default() }
    }

    async fn request(&self, method: &str, path: &str, body: Option<&Value>) -> Option<Object> {
        let bed = self.rig.bed();
        let (status, body) = bed.request(method, path, &bed.token, body).await.ok()?;
        (status < 300).then(|| Object(serde_json::from_str(&body).unwrap()))
    }

    async fn create(&self, path: &str, make: Make) -> Option<Object> {
        self.request("POST", path, Some(&make.object)).await
    }

    /// Makes one change, if the API server accepts it.
    pub(super) async fn act(&mut self) {
        self.number += 1;
        let number = self.number;
        match self.rng.random_range(0..100) {
            0..45 => {
                let name = format!("n{number}");
                // The lifecycle controller looks up the instance of a node that is not Ready; the instance exists.
                let ready = if self.rng.random_bool(0.3) { "Unknown" } else { "True" };
                if let Some(made) = self.create("/api/v1/nodes", node(&name).uninitialized().ready(ready)).await {
                    self.wanted.nodes.insert(name, made.uid().to_owned());
                }
            }
            45..60 => {
                if let Some(name) = self.wanted.nodes.keys().choose(&mut self.rng).cloned() {
                    self.wanted.nodes.remove(&name);
                    self.wanted.dead.insert(name.clone());
                    self.write_cloud();
                    self.silence(&name).await;
                }
            }
            60..85 => {
                let name = format!("s{number}");
                if self.create("/api/v1/namespaces/default/services", service(&name)).await.is_some() {
                    self.wanted.services.insert(name);
                }
            }
            _ => {
                if let Some(name) = self.wanted.services.iter().choose(&mut self.rng).cloned() {
                    let path = format!("/api/v1/namespaces/default/services/{name}");
                    // Recorded before the request: the balancer may be deleted before the answer arrives.
                    self.deleted.insert(name.clone());
                    if self.request("DELETE", &path, None).await.is_some() {
                        self.wanted.services.remove(&name);
                    }
                }
            }
        }
    }

    /// Stops the heartbeats of this node's kubelet.
    async fn silence(&self, name: &str) {
        let status = json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}});
        self.request("PATCH", &format!("/api/v1/nodes/{name}/status"), Some(&status)).await;
    }

    fn write_cloud(&self) {
        let gone: Vec<Value> = self.wanted.dead.iter().map(|name| json!({"name": name, "exists": false})).collect();
        self.rig.cloud.write(&format!("zone: {{failureDomain: z, region: r}}\ninstances: {}", Value::from(gone)));
    }

    pub(super) async fn back_up(&mut self) {
        self.rig.bed().back_up().await.unwrap();
        self.backup = self.wanted.clone();
    }

    /// Restores the state of the cluster at the backup; the cloud keeps its state.
    pub(super) async fn restore(&mut self) {
        self.rig.bed().restore().await.unwrap();
        let mut before = std::mem::replace(&mut self.wanted, self.backup.clone());
        self.deleted.extend(before.services.difference(&self.wanted.services).cloned());
        // Instances that were deleted since then.
        before.dead.retain(|name| self.wanted.nodes.remove(name).is_some());
        self.wanted.dead.extend(before.dead.iter().cloned());
        self.write_cloud();
        for name in &before.dead {
            self.silence(name).await;
        }
    }

    async fn list(&self, path: &str) -> Option<BTreeMap<String, Object>> {
        let list = self.request("GET", path, None).await?;
        let items = list["items"].as_array().unwrap().iter().cloned().map(Object);
        Some(items.map(|object| (object.name().to_owned(), object)).collect())
    }

    /// The number of nodes and Services in the API server.
    pub(super) async fn counts(&self) -> Option<[usize; 2]> {
        Some([self.list("/api/v1/nodes").await?.len(), self.list("/api/v1/services").await?.len()])
    }

    /// The parts that have not converged yet. Panics if an existing object lost its counterpart.
    pub(super) async fn unsettled(&self) -> Option<String> {
        let Some(nodes) = self.list("/api/v1/nodes").await else { return Some("nodes cannot be listed".into()) };
        for (name, uid) in &self.wanted.nodes {
            let node = nodes.get(name).unwrap_or_else(|| panic!("the node {name} was deleted, and its instance lives"));
            assert_eq!(node.uid(), uid, "the node {name} was replaced");
            if node.is_uninitialized() {
                return Some(format!("the node {name} is not initialized"));
            }
        }
        if let Some(name) = self.wanted.dead.iter().find(|name| nodes.contains_key(*name)) {
            return Some(format!("the node {name} is there, and its instance is gone"));
        }
        let path = "/api/v1/namespaces/default/services";
        let Some(services) = self.list(path).await else { return Some("Services cannot be listed".into()) };
        let balancers = self.balancers();
        for name in &self.wanted.services {
            let service = services.get(name).unwrap_or_else(|| panic!("the Service {name} was deleted"));
            if service.ingress().is_empty() || balancers.get(name) != Some(&true) {
                return Some(format!("the Service {name} has no balancer"));
            }
        }
        for name in self.deleted.difference(&self.wanted.services) {
            // An object that a restored etcd does not contain has no finalizer to wait for.
            if services.contains_key(name) {
                return Some(format!("the Service {name} is deleted and there"));
            }
        }
        None
    }

    /// Whether the last write of each Service's load balancer created it (and did not delete it). Panics if one was
    /// deleted while its Service existed.
    fn balancers(&self) -> BTreeMap<String, bool> {
        let mut balancers = BTreeMap::new();
        for line in self.rig.cloud.log() {
            let made = match (line["call"].as_str(), line["phase"].as_str()) {
                (Some("EnsureLoadBalancer"), Some("start")) => true,
                (Some("EnsureLoadBalancerDeleted"), Some("start")) => false,
                _ => continue,
            };
            let name = line["args"]["service"].as_str().unwrap().trim_start_matches("default/").to_owned();
            assert!(
                made || self.deleted.contains(&name),
                "the balancer of the living Service {name} was deleted: {line}"
            );
            balancers.insert(name, made);
        }
        balancers
    }
}
