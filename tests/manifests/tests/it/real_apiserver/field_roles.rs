//! The program with the roles that the Go programs have in the field: what works with them, and what `migrate-check`
//! reports.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::{Duration, Instant};

use ccm_runtime::client::ConnectOptions;
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{Bed, Options};
use ccm_test_manifests::field::{FIELD, Field, GCP, Rule};
use ccm_test_suite::{Process, deadline};
use serde_json::{Value, json};

const LONG: Duration = Duration::from_secs(90);
/// The wait for something that the account may not do.
const SHORT: Duration = Duration::from_secs(8);
const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

/// A role that nobody publishes: the check must find what it lacks.
const LACKING: Field = Field {
    program: "the manifest of cloud-provider-gcp with one account",
    own_accounts: false,
    tokens: &[],
    rules: &[GCP],
    fails: &["nodes", "services/status"],
    lacks: &[],
};

struct Scene {
    bed: Bed,
    folder: tempfile::TempDir,
}

impl Scene {
    async fn send(&self, method: &str, path: &str, object: &Value) -> Value {
        let (status, body) = self.bed.request(method, path, &self.bed.token, Some(object)).await.unwrap();
        assert!((200..300).contains(&status), "{method} {path}: {status} {body}");
        serde_json::from_str(&body).unwrap()
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (status, body) = self.bed.get(path).await.unwrap();
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    /// Binds the role to a new account; returns its name.
    async fn bind(&self, number: usize, field: &Field) -> String {
        let (name, api) = (format!("field-{number}"), "rbac.authorization.k8s.io/v1");
        let rule =
            |(group, resources, verbs): &Rule| json!({"apiGroups": [group], "resources": resources, "verbs": verbs});
        let mut rules: Vec<Value> = field.rules.iter().copied().flatten().map(rule).collect();
        if !field.tokens.is_empty() {
            rules.push(json!({"apiGroups": [""], "resources": ["serviceaccounts/token"], "verbs": ["create"],
                "resourceNames": field.tokens}));
        }
        let role = json!({"apiVersion": api, "kind": "ClusterRole", "metadata": {"name": name}, "rules": rules});
        self.send("POST", &format!("{RBAC}/clusterroles"), &role).await;
        let subject = json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"});
        let reader = ("rolebindings", "RoleBinding", "Role", "extension-apiserver-authentication-reader");
        for (path, kind, role_kind, role) in
            [("clusterrolebindings", "ClusterRoleBinding", "ClusterRole", &*name), reader]
        {
            let place = if kind == "RoleBinding" { "/namespaces/kube-system" } else { "" };
            let binding = json!({"apiVersion": api, "kind": kind, "metadata": {"name": name}, "subjects": [subject],
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": role_kind, "name": role}});
            self.send("POST", &format!("{RBAC}{place}/{path}"), &binding).await;
        }
        name
    }

    fn flags(&self, field: &Field) -> Vec<String> {
        vec![
            "--cloud-provider=fake".into(),
            format!("--cloud-config={}", self.folder.path().join("cloud.conf").display()),
            format!("--use-service-account-credentials={}", field.own_accounts),
            "--node-monitor-period=500ms".into(),
            "--cluster-cidr=10.244.0.0/16".into(),
            "--route-reconciliation-period=1s".into(),
        ]
    }

    /// The resources of the errors and of the warnings about permissions.
    fn check(&self, name: &str, field: &Field) -> [BTreeSet<String>; 2] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_ccm-as-shipped"));
        command.arg("migrate-check").args(self.flags(field)).args(["-o", "json"]);
        command.arg(format!("--account=system:serviceaccount:kube-system:{name}"));
        command.arg(format!("--kubeconfig={}", self.bed.kubeconfig().display()));
        let output = command.output().unwrap();
        let found: Value = serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("{error}: {}", String::from_utf8_lossy(&output.stderr)));
        ["error", "warning"].map(|severity| {
            let checks = found["checks"].as_array().unwrap().iter();
            let of = checks.filter(|check| check["severity"] == severity && check["check"] == "rbac");
            of.map(|check| check["subject"].as_str().unwrap().to_owned()).collect()
        })
    }

    /// A node and a Service for every part of the program.
    async fn create(&self, number: usize) {
        for (name, spec, ready) in [
            (
                format!("new-{number}"),
                json!({"podCIDR": format!("10.244.{number}.0/24"), "podCIDRs": [format!("10.244.{number}.0/24")],
                    "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]}),
                "True",
            ),
            (format!("gone-{number}"), json!({"providerID": format!("fake://gone-{number}")}), "Unknown"),
        ] {
            // With the status, as kubelets do: a node without it counts as not ready, and may be gone before another request.
            let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
            let node =
                json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status});
            self.send("POST", "/api/v1/nodes", &node).await;
        }
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": format!("web-{number}")},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": "web"}}});
        self.send("POST", "/api/v1/namespaces/default/services", &service).await;
    }

    /// Waits until `is_so`, or adds the resource that prevents it to `failed`.
    async fn wait(
        &self,
        field: &Field,
        (resource, what): (&'static str, &str),
        process: &Process,
        failed: &mut BTreeSet<String>,
        is_so: impl AsyncFn() -> bool,
    ) {
        if !field.fails.contains(&resource) {
            let explain = || format!("{}: {what}\n{}", field.program, process.output());
            return deadline(LONG, explain, is_so).await;
        }
        let begin = Instant::now();
        while begin.elapsed() < SHORT {
            if is_so().await {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        failed.insert(resource.to_owned());
    }

    /// Runs the program as this account. Returns the resources without which something failed.
    async fn run(&self, number: usize, name: &str, field: &Field) -> BTreeSet<String> {
        let kubeconfig = self.bed.kubeconfig_for_service_account("kube-system", name).await.unwrap();
        let mut args = self.flags(field);
        args.push("--secure-port=0".into());
        args.push(format!("--kubeconfig={}", kubeconfig.display()));
        let log = self.folder.path().join(format!("{name}.log"));
        let mut process = Process::start(env!("CARGO_BIN_EXE_ccm-as-shipped"), &args, &log);
        let mut failed = BTreeSet::new();
        let node = format!("/api/v1/nodes/new-{number}");
        let initialized = async || {
            let node = self.get(&node).await.unwrap();
            let is_routed = node["status"]["conditions"]
                .as_array()
                .unwrap()
                .iter()
                .any(|condition| condition["type"] == "NetworkUnavailable" && condition["status"] == "False");
            !node["spec"].to_string().contains(UNINITIALIZED)
                && node["status"]["addresses"][0]["address"] == format!("10.0.0.{number}")
                && is_routed
        };
        let explain = || format!("{}: the node is not initialized\n{}", field.program, process.output());
        deadline(LONG, explain, initialized).await;
        let gone = format!("/api/v1/nodes/gone-{number}");
        let is_gone = async || self.get(&gone).await.is_none();
        self.wait(field, ("nodes", "the node is still there"), &process, &mut failed, is_gone).await;
        let service = format!("/api/v1/namespaces/default/services/web-{number}");
        let is_served = async || self.get(&service).await.unwrap()["status"]["loadBalancer"]["ingress"].is_array();
        self.wait(field, ("services/status", "no address"), &process, &mut failed, is_served).await;
        if !failed.contains("services/status") {
            // Without the finalizer the object is gone before its load balancer.
            self.send("PATCH", &service, &json!({"metadata": {"finalizers": null}})).await;
            self.send("DELETE", &service, &json!({})).await;
            let events = format!("/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dweb-{number}");
            let is_deleted = async || self.get(&events).await.unwrap().to_string().contains("DeletedLoadBalancer");
            let explain = || format!("{}: the load balancer is still there\n{}", field.program, process.output());
            deadline(LONG, explain, is_deleted).await;
        }
        process.terminate();
        assert!(process.ended(LONG).await.success(), "{}", process.output());
        failed
    }
}

fn set(resources: &[&str]) -> BTreeSet<String> {
    resources.iter().map(|&resource| resource.to_owned()).collect()
}

/// Two processes would hide the failures of one: there is one lease.
#[tokio::test(flavor = "multi_thread")]
async fn the_roles_of_the_go_programs_suffice_and_the_check_before_a_migration_agrees() {
    let Some(bed) = Bed::start_with(Options::default()).await.unwrap() else { return };
    let scene = Scene { bed, folder: tempfile::tempdir().unwrap() };
    let instance =
        |number| format!("- {{name: new-{number}, addresses: [{{type: InternalIP, address: 10.0.0.{number}}}]}}\n");
    let instances: String = (0..=FIELD.len()).map(instance).collect();
    let cloud = format!("unlisted: missing\ninterfaces: {{routes: true, pvLabels: true}}\ninstances:\n{instances}");
    std::fs::write(scene.folder.path().join("cloud.conf"), cloud).unwrap();
    let uid =
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "ingress-uid"}, "data": {"uid": "x"}});
    scene.send("POST", "/api/v1/namespaces/kube-system/configmaps", &uid).await;
    let mut seen = Vec::new();
    for (number, field) in FIELD.iter().chain([&LACKING]).enumerate() {
        let name = scene.bind(number, field).await;
        scene.create(number).await;
        let [reported, lacking] = scene.check(&name, field);
        let failed = scene.run(number, &name, field).await;
        assert_eq!(reported, failed, "{}", field.program);
        assert_eq!(failed, set(field.fails), "{}", field.program);
        seen.push((field.program, lacking));
        if field.program.contains("Google") || field.program.contains("gcp") {
            scene.reads_cluster_id(&name).await;
        }
        // Work that is left would be that of the next account.
        for path in ["nodes/gone", "nodes/new", "namespaces/default/services/web"] {
            let path = format!("/api/v1/{path}-{number}");
            if let Some(mut object) = scene.get(&path).await {
                object["metadata"]["finalizers"] = Value::Null;
                scene.send("PUT", &path, &object).await;
                scene.send("DELETE", &path, &json!({})).await;
            }
        }
    }
    seen.pop();
    let listed: Vec<_> = FIELD.iter().map(|field| (field.program, set(field.lacks))).collect();
    assert_eq!(seen, listed);
}

impl Scene {
    /// The ID of the cluster is in a ConfigMap that the account may only list.
    async fn reads_cluster_id(&self, name: &str) {
        let kubeconfig = self.bed.kubeconfig_for_service_account("kube-system", name).await.unwrap();
        let options = ConnectOptions { kubeconfig: kubeconfig.display().to_string(), ..ConnectOptions::default() };
        let client = Client::connect(&options, Metrics::new()).await.unwrap();
        let maps = "/api/v1/namespaces/kube-system/configmaps";
        let found: Option<Value> = client.read_named(maps, "ingress-uid").await.unwrap();
        assert_eq!(found.unwrap()["data"]["uid"], "x");
        assert_eq!(client.read_named::<Value>(maps, "other").await.unwrap(), None);
    }
}
