//! Kubelets, as far as they are visible to the two managers.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_suite::Object;
use http::Method;
use jiff::Timestamp;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// The interval of lease renewals: well below every `--node-monitor-grace-period` in these tests.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// Kubelets of nodes: each renews its lease, and reports Ready as soon as the node has a pod range.
pub(super) struct Kubelets {
    client: Client,
    /// Node names, and whether the node was reported Ready.
    alive: Arc<Mutex<BTreeMap<String, bool>>>,
    task: JoinHandle<()>,
}

impl Kubelets {
    pub(super) async fn start(kubeconfig: &Path) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let options = ConnectOptions { kubeconfig, user_agent: "kubelet/test".into(), ..ConnectOptions::default() };
        let client = Client::connect(&options, Metrics::new()).await.unwrap();
        let alive = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(Self::beat(client.clone(), alive.clone()));
        Self { client, alive, task }
    }

    pub(super) async fn add(&self, node: &Object) {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid()}]);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node.name(), "ownerReferences": owner},
            "spec": {"holderIdentity": node.name(), "leaseDurationSeconds": 40, "renewTime": now()}});
        self.client.send(&Call::json(Method::POST, leases(""), &lease)).await.unwrap();
        self.alive.lock().insert(node.name().to_owned(), false);
    }

    /// Stops a kubelet, as if its machine had failed.
    pub(super) fn stop(&self, name: &str) {
        self.alive.lock().remove(name).unwrap();
    }

    /// Starts it again.
    pub(super) fn resume(&self, name: &str) {
        self.alive.lock().insert(name.to_owned(), false);
    }

    async fn beat(client: Client, alive: Arc<Mutex<BTreeMap<String, bool>>>) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        loop {
            ticks.tick().await;
            let nodes = alive.lock().clone();
            for (name, reported) in nodes {
                let renewal = json!({"spec": {"renewTime": now()}});
                // The next renewal compensates for a failed one.
                let _answer = client.send(&Call::strategic(leases(&name), &renewal)).await;
                if !reported
                    && Self::report(&client, &name).await
                    && let Some(reported) = alive.lock().get_mut(&name)
                {
                    *reported = true;
                }
            }
        }
    }

    /// Reports the node as Ready if it has a range; returns whether it did.
    async fn report(client: &Client, name: &str) -> bool {
        let path = format!("/api/v1/nodes/{name}");
        let Ok(node) = client.read::<Value>(&Call::get(&path)).await else { return false };
        if !node["spec"]["podCIDR"].is_string() {
            return false;
        }
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
            "lastHeartbeatTime": format!("{:.0}", Timestamp::now()), "lastTransitionTime": format!("{:.0}", Timestamp::now())});
        let reported = json!({"status": {"conditions": [ready]}});
        client.send(&Call::strategic(format!("{path}/status"), &reported)).await.is_ok()
    }
}

impl Drop for Kubelets {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn leases(name: &str) -> String {
    let path = format!("/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{name}");
    path.trim_end_matches('/').to_owned()
}

fn now() -> String {
    format!("{:.6}", Timestamp::now())
}
