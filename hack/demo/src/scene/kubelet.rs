//! Simulates the rest of a cluster: the kubelet of each running machine, and the parts of kube-controller-manager that
//! allocate pod ranges and detect silent kubelets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_test_apiserver::{Patch, Store};
use serde_json::{Value, json};

use super::cloud::{self, Cloud};
use crate::args::Pace;
use crate::feed::{Feed, Source};
use crate::world::{NodeRow, Ready, World};

/// Taint that the API server adds to every new node; removed when the node is Ready.
const NOT_READY: &str = "node.kubernetes.io/not-ready";
/// Attempts of a write with conflicts.
const TRIES: usize = 10;

pub(crate) struct Kubelets {
    pub(crate) store: Store,
    pub(crate) world: Arc<World>,
    pub(crate) feed: Arc<Feed>,
    pub(crate) cloud: Arc<dyn Cloud>,
    pub(crate) nodes: usize,
    pub(crate) pace: Pace,
}

#[derive(Debug)]
struct Machine {
    index: usize,
    // Whether it has registered since the machine was started.
    registered: bool,
    heard: Instant,
    reported: Instant,
}

impl Kubelets {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        let mut machines: BTreeMap<String, Machine> = BTreeMap::new();
        loop {
            let now = Instant::now();
            for power in self.cloud.machines() {
                let next = machines.len();
                let machine = machines.entry(power.name.clone()).or_insert_with(|| Machine {
                    index: next,
                    registered: false,
                    heard: now,
                    reported: now,
                });
                self.look(&power, machine, now);
            }
            tokio::time::sleep(self.pace.tick).await;
        }
    }

    fn look(&self, power: &cloud::Machine, machine: &mut Machine, now: Instant) {
        let (name, on) = (&*power.name, power.on);
        let row = self.world.node(name);
        let heard = on && self.world.look(|state| state.cut_off.as_deref() != Some(name));
        if heard {
            machine.heard = now;
        }
        match row {
            // A kubelet registers when it starts; it does not recreate a Node that is deleted later.
            None if heard && !machine.registered => {
                machine.registered = self.register(power, machine.index);
                machine.reported = now;
            }
            None if !on => machine.registered = false,
            None => {}
            Some(row) if heard => self.report(&row, machine, now),
            Some(row) if now.duration_since(machine.heard) >= self.pace.grace && row.ready != Ready::Unknown => {
                self.write_ready(name, "Unknown", "NodeStatusUnknown", "Kubelet stopped posting node status.");
                self.feed.fact(Source::Kubelet, name, "silent; kube-controller-manager sets Ready=Unknown");
            }
            Some(_) => {}
        }
    }

    fn register(&self, power: &cloud::Machine, index: usize) -> bool {
        let name = &power.name;
        let cidr = cloud::pod_cidr(self.nodes, index);
        let mut addresses = vec![json!({"type": "Hostname", "address": name})];
        addresses.extend(power.node_ip.iter().map(|ip| json!({"type": "InternalIP", "address": ip})));
        let mut node = json!({
            "metadata": {"name": name, "labels": {
                "kubernetes.io/hostname": name, "kubernetes.io/os": "linux", "kubernetes.io/arch": "amd64",
            }},
            "spec": {
                "podCIDR": cidr, "podCIDRs": [cidr],
                "taints": [{"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"}],
            },
            "status": {
                "capacity": {"cpu": "4", "memory": "16Gi", "pods": "110"},
                "addresses": addresses,
                "nodeInfo": {"kubeletVersion": "v1.36.3", "osImage": "simulated by the demo", "operatingSystem": "linux"},
                "conditions": [ready("False", "KubeletNotReady", "container runtime network not ready: cni plugin not initialized")],
            },
        });
        if let (Some(id), Some(spec)) = (&power.provider_id, node.get_mut("spec").and_then(Value::as_object_mut)) {
            spec.insert("providerID".to_owned(), json!(id));
        }
        let made = self.store.create("nodes", "", node).is_ok();
        if made {
            self.feed.fact(Source::Kubelet, name, "registers a Node: NotReady, with the taint \"uninitialized\"");
        }
        made
    }

    /// One heartbeat: Ready when the node accepts pods and has its network.
    fn report(&self, row: &NodeRow, machine: &mut Machine, now: Instant) {
        // Fewer heartbeats in large clusters, to save CPU.
        let period =
            Duration::from_secs(10) + Duration::from_millis(10) * u32::try_from(self.nodes).unwrap_or(u32::MAX);
        let ready_now = !row.uninitialized && row.routed;
        let due = (row.ready == Ready::True) != ready_now || row.ready == Ready::Unknown;
        if !due && now.duration_since(machine.reported) < period {
            return;
        }
        machine.reported = now;
        match ready_now {
            true => self.write_ready(&row.name, "True", "KubeletReady", "kubelet is posting ready status"),
            false => self.write_ready(&row.name, "False", "KubeletNotReady", "cni plugin not initialized"),
        }
        if due && ready_now {
            self.feed.fact(Source::Kubelet, &row.name, "network available: Ready");
            remove_taint(&self.store, &row.name, NOT_READY);
        }
    }

    fn write_ready(&self, name: &str, status: &str, reason: &str, message: &str) {
        let change = json!({"status": {"conditions": [ready(status, reason, message)]}});
        // An error means that the Node has just been deleted.
        let _gone = self.store.patch_status("nodes", "", name, &Patch::Strategic(change));
    }
}

/// Removes a taint. The list of taints is replaced as a whole, with the version of the Node as a precondition.
fn remove_taint(store: &Store, name: &str, key: &str) {
    for _ in 0..TRIES {
        let Ok(node) = store.get("nodes", "", name) else { return };
        let taints = node.pointer("/spec/taints").and_then(Value::as_array).into_iter().flatten();
        let kept: Vec<&Value> = taints.filter(|taint| taint.get("key") != Some(&json!(key))).collect();
        let version = node.pointer("/metadata/resourceVersion");
        let change = json!({"metadata": {"resourceVersion": version}, "spec": {"taints": kept}});
        if store.patch("nodes", "", name, &Patch::Merge(change)).is_ok() {
            return;
        }
    }
}

fn ready(status: &str, reason: &str, message: &str) -> Value {
    let now = format!("{:.0}", jiff::Timestamp::now());
    json!({
        "type": "Ready", "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": now,
    })
}

#[cfg(test)]
mod tests {
    use ccm_test_apiserver::{ApiServer, Options};

    use super::*;

    #[tokio::test]
    async fn a_ready_node_loses_its_taint_and_keeps_the_others() {
        let server = ApiServer::start(Options::default()).await.unwrap();
        let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
        let node = json!({"metadata": {"name": "a"}, "spec": {"taints": [taint(NOT_READY), taint("x")]}});
        server.store().create("nodes", "", node).unwrap();
        remove_taint(server.store(), "a", NOT_READY);
        let node = server.store().get("nodes", "", "a").unwrap();
        assert_eq!(node.pointer("/spec/taints"), Some(&json!([taint("x")])));
    }
}
