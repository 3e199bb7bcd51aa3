//! A real API server and a cloud in a file, for one test; and requests for the setup.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use ccm_test_bed::{AuditEntry, Bed, Options, Reused};
use serde_json::{Value, json};

use crate::process::{Ended, Process, run};

pub(crate) const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";
pub(crate) const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const SERVICES: &str = "/api/v1/namespaces/default/services";

/// The taint of a new node.
pub(crate) fn taint() -> Value {
    json!({"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"})
}

/// Sends a request that must succeed; returns the response.
pub(crate) async fn send(bed: &Bed, method: &str, path: &str, object: &Value) -> Value {
    let (status, body) = bed.request(method, path, &bed.token, Some(object)).await.unwrap();
    assert!((200..300).contains(&status), "{method} {path}: {status} {body}");
    serde_json::from_str(&body).unwrap()
}

/// Sends a request that may fail; returns the status and the response.
pub(crate) async fn post(bed: &Bed, path: &str, object: &Value) -> (u16, Value) {
    let (status, body) = bed.request("POST", path, &bed.token, Some(object)).await.unwrap();
    (status, serde_json::from_str(&body).unwrap())
}

pub(crate) async fn create(bed: &Bed, path: &str, object: Value) -> Value {
    send(bed, "POST", path, &object).await
}

pub(crate) async fn create_node(bed: &Bed, name: &str, spec: Value) -> Value {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec});
    create(bed, "/api/v1/nodes", node).await
}

/// Registers a node like a kubelet: the program finds it only if it can watch, and initializes it only if it can write.
pub(crate) async fn register(bed: &Bed, name: &str) {
    create_node(bed, name, json!({"taints": [taint()]})).await;
}

/// Creates a Service of type LoadBalancer, with additional fields in its spec.
pub(crate) async fn create_service(bed: &Bed, name: &str, spec: Value) -> Value {
    let mut all = json!({"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "a"}});
    all.as_object_mut().unwrap().extend(spec.as_object().unwrap().clone());
    let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": all});
    create(bed, SERVICES, service).await
}

pub(crate) async fn set_ready(bed: &Bed, node: &str, status: &str) {
    let status = json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
    send(bed, "PATCH", &format!("/api/v1/nodes/{node}/status"), &status).await;
}

pub(crate) async fn create_role(bed: &Bed, name: &str, rules: Value) {
    let (api, kind) = ("rbac.authorization.k8s.io/v1", "ClusterRole");
    let role = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "rules": rules});
    create(bed, &format!("{RBAC}/clusterroles"), role).await;
}

/// Binds a ClusterRole to a subject; `kind` is `User` or `Group`.
pub(crate) async fn bind(bed: &Bed, role: &str, kind: &str, name: &str) {
    let group = "rbac.authorization.k8s.io";
    let binding = json!({"apiVersion": format!("{group}/v1"), "kind": "ClusterRoleBinding",
        "metadata": {"generateName": "test-"}, "subjects": [{"apiGroup": group, "kind": kind, "name": name}],
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role}});
    create(bed, &format!("{RBAC}/clusterrolebindings"), binding).await;
}

/// Waits until the condition is met, with a long timeout for busy machines.
pub(crate) async fn until(what: &str, mut is_so: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(90);
    while !is_so().await {
        assert!(Instant::now() < deadline, "never: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

pub(crate) async fn until_initialized(bed: &Bed, name: &str) {
    until(&format!("node {name} is initialized"), async || {
        let (_, node) = bed.get(&format!("/api/v1/nodes/{name}")).await.unwrap();
        node.contains("providerID") && !node.contains(UNINITIALIZED)
    })
    .await;
}

/// The writes among these requests as text, without those of the API server, which renews its own lease.
pub(crate) fn writes(entries: &[AuditEntry]) -> Vec<String> {
    let is_write = |entry: &&AuditEntry| {
        entry.is_write() && !entry.is_about("subjectaccessreviews") && entry.user != "system:apiserver"
    };
    entries.iter().filter(is_write).map(ToString::to_string).collect()
}

pub(crate) struct Scene {
    pub(crate) bed: Reused,
    folder: tempfile::TempDir,
    flags: Vec<String>,
}

impl Scene {
    /// A scene with an audit log. `flags` are passed to every run of the program.
    pub(crate) async fn new(cloud: &str, flags: &[&str]) -> Option<Self> {
        let bed = Bed::reused(Options::default().audit()).await.unwrap()?;
        let flags = flags.iter().map(|flag| (*flag).to_owned()).collect();
        let scene = Self { bed, folder: tempfile::tempdir().unwrap(), flags };
        scene.cloud(cloud);
        Some(scene)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }

    /// Replaces the cloud. Its state is in `state.json`, its calls are in `calls.jsonl`.
    pub(crate) fn cloud(&self, yaml: &str) {
        let files = "callLog: calls.jsonl\nstateFile: state.json\n";
        std::fs::write(self.path("next.yaml"), format!("{files}{yaml}\n")).unwrap();
        std::fs::rename(self.path("next.yaml"), self.path("cloud.yaml")).unwrap();
    }

    pub(crate) fn calls(&self) -> String {
        std::fs::read_to_string(self.path("calls.jsonl")).unwrap_or_default()
    }

    pub(crate) fn assert_no_writes_to_the_cloud(&self) {
        let calls = self.calls();
        for write in ["Ensure", "Update", "CreateRoute", "DeleteRoute"] {
            assert!(!calls.contains(&format!("\"call\":\"{write}")), "{calls}");
        }
    }

    pub(crate) fn args(&self, kubeconfig: &Path) -> Vec<String> {
        let config = format!("--cloud-config={}", self.text("cloud.yaml"));
        let own = ["--cloud-provider=fake".to_owned(), config, format!("--kubeconfig={}", kubeconfig.display())];
        [&own, &self.flags[..]].concat()
    }

    /// Runs a command with these flags after its words.
    pub(crate) fn ccm_as(&self, kubeconfig: &Path, words: &[&str]) -> Ended {
        let args = self.args(kubeconfig);
        run(&words.iter().copied().chain(args.iter().map(String::as_str)).collect::<Vec<_>>())
    }

    pub(crate) fn ccm(&self, words: &[&str]) -> Ended {
        self.ccm_as(&self.bed.kubeconfig(), words)
    }

    pub(crate) fn start_as(&self, kubeconfig: &Path, more: &[&str]) -> Process {
        let args = self.args(kubeconfig);
        Process::start(&args.iter().map(String::as_str).chain(more.iter().copied()).collect::<Vec<_>>())
    }

    pub(crate) fn start(&self, more: &[&str]) -> Process {
        self.start_as(&self.bed.kubeconfig(), more)
    }
}
