//! The program with the shipped service account, roles and arguments: no request is rejected, and every granted
//! permission is used.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::time::Duration;

use ccm_runtime::client::{ApiError, Call, ConnectOptions};
use ccm_runtime::permission::BORN_WITH_ROLES;
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{AuditEntry, Bed, Options, Reused};
use ccm_test_suite::{Process, deadline};
use serde_json::{Value, json};

use super::accepted::apply;
use crate::alerts;
use crate::rendered::{args, documents, with_components, workload};
use crate::tools::kubectl;

const LONG: Duration = Duration::from_secs(90);
const ACCOUNT: &str = "system:serviceaccount:kube-system:cloud-controller-manager";

/// A permission that the run does not use: account, resource, verb.
type Unused<'a> = (&'a str, &'a str, &'a str);
/// Node IPAM is enabled too; it is off by default.
const IPAM: &[&str] = &["--controllers=*,node-ipam-controller", "--allocate-node-cidrs=true"];

const CLOUD: &str = r#"
zone: {region: here, failureDomain: here-a}
unlisted: missing
interfaces: {routes: true, pvLabels: true}
volumes: [{id: vol-1, labels: {topology.kubernetes.io/zone: here-a, topology.kubernetes.io/region: here}}]
instances:
- {name: new, type: large, addresses: [{type: InternalIP, address: 10.0.0.1}]}
- {name: stopped, shutdown: true}
faults:
# A repeated event is a patch of the first one. Events on routes name the time that it took, so each is another one until
# more than ten are counted as one.
- {call: InstanceMetadata, node: new, times: 3, error: busy}
- {call: EnsureLoadBalancer, service: "*/failing", times: 2, error: quota}
- {call: GetLabelsForVolume, volume: data, times: 3, error: busy}
- {call: CreateRoute, node: new, times: 14, error: full}
"#;

/// A cluster with the manifests applied, and the program as a process.
struct Scene {
    bed: Reused,
    documents: Vec<Value>,
    folder: tempfile::TempDir,
    kubeconfig: PathBuf,
}

impl Scene {
    async fn new(options: Options, components: &[&str]) -> Option<Self> {
        let bed = Bed::reused(options.audit()).await.unwrap()?;
        let (kubectl, text) = (kubectl()?, with_components(components)?);
        apply(&bed, &kubectl, &["apply", "--validate=strict", "-f", "-"], &text).unwrap();
        let kubeconfig = bed.kubeconfig_for_service_account("kube-system", "cloud-controller-manager").await.unwrap();
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("cloud.conf"), CLOUD).unwrap();
        Some(Self { documents: documents(&text), bed, folder, kubeconfig })
    }

    /// The cluster decides who may read the metrics, so this role is not part of the base.
    async fn ship_reader(&self) {
        let reader = documents(&crate::tools::read("components/metrics/reader.yaml"));
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterroles", &reader[0]).await;
    }

    fn start(&self, name: &str, port: u16) -> Process {
        self.start_with(name, port, &[])
    }

    /// Starts the program with the arguments of the manifest. Only settings that a pod would supply differ.
    fn start_with(&self, name: &str, port: u16, more: &[&str]) -> Process {
        let mut args = args(workload(&self.documents));
        for arg in &mut args {
            *arg = arg.replace("/etc/cloud/", &format!("{}/", self.folder.path().display()));
        }
        let kubeconfig = self.kubeconfig.display();
        args.extend(
            ["kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig"]
                .map(|f| format!("--{f}={kubeconfig}")),
        );
        args.push("--cloud-provider=fake".into());
        args.push(format!("--secure-port={port}"));
        // Shorter than the default.
        args.extend(["--node-monitor-period=500ms", "--route-reconciliation-period=1s"].map(str::to_owned));
        args.extend(more.iter().map(|&flag| flag.to_owned()));
        Process::start(env!("CARGO_BIN_EXE_ccm-as-shipped"), &args, &self.folder.path().join(name))
    }

    async fn create(&self, path: &str, object: &Value) {
        let (status, body) = self.bed.request("POST", path, &self.bed.token, Some(object)).await.unwrap();
        assert_eq!(status, 201, "{body}");
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let (status, body) = self.bed.get(path).await.unwrap();
        (status == 200).then(|| serde_json::from_str(&body).unwrap())
    }

    async fn until(&self, process: &Process, what: &str, path: &str, is_so: impl Fn(&Value) -> bool) {
        let explain = || format!("{path} is not {what}\n{}", process.output());
        let is_so = async || self.get(path).await.is_some_and(|object| is_so(&object));
        deadline(LONG, explain, is_so).await;
    }

    /// A node as registered by a kubelet.
    async fn new_node(&self, name: &str, pod_cidr: &str) {
        let taint =
            json!({"key": "node.cloudprovider.kubernetes.io/uninitialized", "value": "true", "effect": "NoSchedule"});
        let spec = json!({"taints": [taint], "podCIDR": pod_cidr, "podCIDRs": [pod_cidr]});
        self.node(name, &spec, "True").await;
    }

    /// An initialized node with a silent kubelet.
    async fn silent_node(&self, name: &str) {
        self.node(name, &json!({"providerID": format!("fake://{name}")}), "Unknown").await;
    }

    async fn node(&self, name: &str, spec: &Value, ready: &str) {
        // With the status, as kubelets do: a node without it counts as not ready, and may be gone before another request.
        let status = json!({"conditions": [{"type": "Ready", "status": ready}]});
        let node =
            json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}, "spec": spec, "status": status});
        self.create("/api/v1/nodes", &node).await;
    }

    async fn service(&self, name: &str) {
        let service = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": name},
            "spec": {"type": "LoadBalancer", "ports": [{"port": 80}], "selector": {"app": name}}});
        self.create("/api/v1/namespaces/default/services", &service).await;
    }

    async fn volume(&self, name: &str) {
        let volume = json!({"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
            "spec": {"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
                "csi": {"driver": "disk.example.com", "volumeHandle": "vol-1"}}});
        self.create("/api/v1/persistentvolumes", &volume).await;
    }

    /// Creates work for every controller, and waits until it is done.
    async fn work(&self, process: &Process) {
        self.volume("data").await;
        self.new_node("new", "10.244.1.0/24").await;
        self.silent_node("stopped").await;
        self.silent_node("gone").await;
        self.service("web").await;
        self.service("failing").await;
        self.service("torn").await;
        let node = |name: &str| format!("/api/v1/nodes/{name}");
        let conditions = |node: &Value| node["status"]["conditions"].as_array().cloned().unwrap_or_default();
        self.until(process, "initialized", &node("new"), |node| {
            !node["spec"]["taints"].to_string().contains("uninitialized")
                && node["status"]["addresses"][0]["address"] == "10.0.0.1"
                && conditions(node).iter().any(|c| c["type"] == "NetworkUnavailable" && c["status"] == "False")
        })
        .await;
        self.until(process, "tainted", &node("stopped"), |node| {
            node["spec"]["taints"].to_string().contains("node.cloudprovider.kubernetes.io/shutdown")
        })
        .await;
        let gone = async || self.get(&node("gone")).await.is_none();
        deadline(LONG, || format!("the node is still there\n{}", process.output()), gone).await;
        for name in ["web", "failing", "torn"] {
            let path = format!("/api/v1/namespaces/default/services/{name}");
            self.until(process, "served", &path, |service| service["status"]["loadBalancer"]["ingress"].is_array())
                .await;
        }
        self.until(process, "labeled", "/api/v1/persistentvolumes/data", |volume| {
            volume["metadata"]["labels"]["topology.kubernetes.io/zone"] == "here-a"
        })
        .await;
        // A user removes the finalizer: the Service is deleted at once, and its load balancer afterwards.
        let torn = "/api/v1/namespaces/default/services/torn";
        let bare = json!({"metadata": {"finalizers": null}});
        for (method, body) in [("PATCH", Some(&bare)), ("DELETE", None)] {
            let (status, answer) = self.bed.request(method, torn, &self.bed.token, body).await.unwrap();
            assert_eq!(status, 200, "{answer}");
        }
        let events = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dtorn";
        self.until(process, "without its balancer", events, |events| {
            events["items"].as_array().into_iter().flatten().any(|event| event["reason"] == "DeletedLoadBalancer")
        })
        .await;
        let repeated = "/api/v1/namespaces/default/events?fieldSelector=involvedObject.name%3Dfailing";
        self.until(process, "counted twice in one event", repeated, |events| {
            events["items"].as_array().into_iter().flatten().any(|event| event["count"].as_u64() > Some(1))
        })
        .await;
    }

    /// Requests the metrics without credentials, with an invalid token, as an unauthorized user, and as an authorized
    /// Prometheus. Returns the metrics.
    async fn scrape(&self, port: u16) -> String {
        let path = "/metrics";
        let ask = async |token: Option<&str>| self.own_port(port, token).await.send(&Call::get(path)).await;
        let code = |answer: Result<_, ApiError>| match answer {
            Err(ApiError::Status { code, .. }) => code,
            other => panic!("{other:?}"),
        };
        assert_eq!(code(ask(None).await.map(|_| ())), 403);
        assert_eq!(code(ask(Some("nonsense")).await.map(|_| ())), 401);
        let stranger = self.bed.service_account_token("monitoring", "stranger").await.unwrap();
        assert_eq!(code(ask(Some(&stranger)).await.map(|_| ())), 403);

        let prometheus = self.bed.service_account_token("monitoring", "prometheus").await.unwrap();
        let role = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
            "name": "cloud-controller-manager:metrics-reader"});
        let binding = json!({"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": "prometheus"}, "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "namespace": "monitoring", "name": "prometheus"}]});
        self.create("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", &binding).await;
        let answer = ask(Some(&prometheus)).await.unwrap();
        String::from_utf8(answer.to_vec()).unwrap()
    }

    async fn own_port(&self, port: u16, token: Option<&str>) -> Client {
        let user = token.map_or(json!({}), |token| json!({"token": token}));
        let config = json!({"apiVersion": "v1", "kind": "Config", "current-context": "own",
            "clusters": [{"name": "own", "cluster": {"server": format!("https://127.0.0.1:{port}"), "insecure-skip-tls-verify": true}}],
            "users": [{"name": "own", "user": user}],
            "contexts": [{"name": "own", "context": {"cluster": "own", "user": "own"}}]});
        let path = self.folder.path().join("own.kubeconfig");
        std::fs::write(&path, config.to_string()).unwrap();
        let options = ConnectOptions { kubeconfig: path.display().to_string(), ..ConnectOptions::default() };
        Client::connect(&options, Metrics::new()).await.unwrap()
    }

    async fn holder(&self) -> String {
        let lease =
            self.get("/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/cloud-controller-manager").await;
        lease.map_or(String::new(), |lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned())
    }

    /// All requests to the API server, after the log is complete.
    async fn asked(&self) -> Vec<AuditEntry> {
        let mut log = self.bed.audit();
        let mut entries = Vec::new();
        self.bed.get("/api/v1/namespaces/default/configmaps/the-last-request").await.unwrap();
        let last = async || {
            entries.extend(log.read().unwrap());
            entries.iter().any(|entry: &AuditEntry| entry.name == "the-last-request")
        };
        deadline(LONG, || "the audit log does not end".into(), last).await;
        entries
    }
}

fn free_port() -> u16 {
    ccm_test_bed::free_port().unwrap()
}

/// One verb of one rule, granted to a user by the shipped roles.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Grant {
    user: String,
    group: String,
    resource: String,
    verb: String,
    names: Vec<String>,
    namespace: Option<String>,
}

impl Grant {
    fn covers(&self, entry: &AuditEntry) -> bool {
        let resource = if entry.subresource.is_empty() {
            entry.resource.clone()
        } else {
            format!("{}/{}", entry.resource, entry.subresource)
        };
        // The name of a created object is in the body, which RBAC does not read.
        self.user == entry.user
            && self.group == entry.api_group
            && self.resource == resource
            && self.verb == entry.verb
            && (self.names.is_empty() || self.names.contains(&entry.name))
            && self.namespace.as_ref().is_none_or(|namespace| *namespace == entry.namespace)
    }
}

fn texts(value: &Value) -> Vec<String> {
    value.as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The permissions that the roles among the documents grant to service accounts.
fn grants(documents: &[Value]) -> Vec<Grant> {
    let mut grants = Vec::new();
    let bindings = documents.iter().filter(|d| d["kind"].as_str().is_some_and(|kind| kind.ends_with("RoleBinding")));
    for binding in bindings {
        let role = documents.iter().find(|role| {
            role["kind"] == binding["roleRef"]["kind"]
                && role["metadata"]["name"] == binding["roleRef"]["name"]
                && (role["kind"] == "ClusterRole" || role["metadata"]["namespace"] == binding["metadata"]["namespace"])
        });
        // A default role of the cluster.
        let Some(role) = role else { continue };
        let namespace = binding["metadata"]["namespace"].as_str().map(str::to_owned);
        for subject in binding["subjects"].as_array().unwrap() {
            let account = (subject["namespace"].as_str().unwrap(), subject["name"].as_str().unwrap());
            let user = format!("system:serviceaccount:{}:{}", account.0, account.1);
            for rule in role["rules"].as_array().unwrap() {
                for (group, resource, verb) in combinations(rule) {
                    let (user, namespace) = (user.clone(), namespace.clone());
                    grants.push(Grant { user, group, resource, verb, names: texts(&rule["resourceNames"]), namespace });
                }
            }
        }
    }
    grants
}

fn combinations(rule: &Value) -> Vec<(String, String, String)> {
    let mut all = Vec::new();
    for group in texts(&rule["apiGroups"]) {
        for resource in texts(&rule["resources"]) {
            all.extend(texts(&rule["verbs"]).into_iter().map(|verb| (group.clone(), resource.clone(), verb)));
        }
    }
    all
}

/// A standby watches the lease, and acquires it when the leader gets SIGTERM; then it exits too.
async fn hand_over(scene: &Scene, mut leader: Process, start: impl Fn(&str) -> Process) {
    let mut standby = start("standby.log");
    deadline(LONG, || standby.output(), async || standby.output().contains("attempting to acquire leader lease")).await;
    // It has read the lease; next it opens the watch.
    deadline(LONG, || standby.output(), async || standby.output().contains("new leader elected")).await;
    let holder = scene.holder().await;
    leader.terminate();
    assert!(leader.ended(LONG).await.success(), "{}", leader.output());
    deadline(LONG, || standby.output(), async || !["", &holder].contains(&&*scene.holder().await)).await;
    standby.terminate();
    assert!(standby.ended(LONG).await.success(), "{}", standby.output());
}

/// Compares the granted permissions with the requests.
fn compare(documents: &[Value], asked: &[AuditEntry], unused: &[Unused<'_>]) {
    let grants = grants(documents);
    assert!(grants.len() > 15, "{grants:?}");
    let users: Vec<&String> = grants.iter().map(|grant| &grant.user).collect();
    let ours: Vec<&AuditEntry> = asked.iter().filter(|entry| users.contains(&&entry.user)).collect();
    assert!(ours.len() > 30, "{}", ours.len());
    let refused: Vec<String> = ours
        .iter()
        .filter(|entry| matches!(entry.code, 401 | 403))
        .map(|entry| format!("{} {} {}", entry.user, entry.verb, entry.request_uri))
        .collect();
    assert!(refused.is_empty(), "refused: {refused:#?}");

    for grant in &grants {
        let used = ours.iter().any(|entry| grant.covers(entry));
        let excused = unused.contains(&(&*grant.user, &*grant.resource, &*grant.verb));
        assert!(used || excused, "granted and never used: {grant:?}");
        assert!(!(used && excused), "listed as unused, and used: {grant:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn one_service_account_for_all_uses_all_it_is_granted_and_is_refused_nothing() {
    let options = Options::default();
    let Some(scene) = Scene::new(options, &["cloud-config", "routes"]).await else { return };
    let port = free_port();
    let first = scene.start("first.log", port);
    scene.ship_reader().await;
    scene.work(&first).await;
    let metrics = scene.scrape(port).await;
    check_labels(&metrics);

    hand_over(&scene, first, |name| scene.start(name, free_port())).await;

    let asked = scene.asked().await;
    // Lists are streamed through a watch if the API server supports that, as this one does; `list` is for older ones.
    let streamed = ["nodes", "services", "persistentvolumes"].map(|resource| (ACCOUNT, resource, "list"));
    compare(&scene.documents, &asked, &streamed);
    let trusted = |entry: &AuditEntry| entry.user == ACCOUNT && entry.name == "extension-apiserver-authentication";
    assert!(asked.iter().any(trusted), "the binding to the authentication reader is of no use");
}

fn check_labels(metrics: &str) {
    let mut checked = 0;
    for (name, labels) in alerts::expressions().iter().flat_map(|expression| alerts::selectors(expression)) {
        let Some(line) =
            metrics.lines().find(|line| line.strip_prefix(&*name).is_some_and(|rest| rest.starts_with(['{', ' '])))
        else {
            continue;
        };
        checked += 1;
        // Prometheus adds these two when it scrapes.
        for label in labels.iter().filter(|label| !["job", "instance"].contains(&label.as_str())) {
            assert!(line.contains(&format!("{label}=\"")), "{name} has no label {label}: {line}");
        }
    }
    assert!(checked > 15, "only {checked} of the metrics in alerts and dashboard have samples:\n{metrics}");
}

/// Removes the default bindings of these accounts, so that only the shipped roles remain.
async fn unbind(bed: &Bed, clients: &[&str]) {
    for client in clients {
        let path = format!("/apis/rbac.authorization.k8s.io/v1/clusterrolebindings/system:controller:{client}");
        let (status, body) = bed.request("DELETE", &path, &bed.token, None).await.unwrap();
        assert_eq!(status, 200, "{body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_account_for_each_controller_uses_all_it_is_granted_and_is_refused_nothing() {
    // An API server without streaming lists.
    let options = Options::default().apiserver_arg("--feature-gates=WatchList=false");
    let components = ["cloud-config", "routes", "service-account-credentials", "controller-roles"];
    let Some(scene) = Scene::new(options, &components).await else { return };
    unbind(&scene.bed, BORN_WITH_ROLES).await;
    let port = free_port();
    let manager = scene.start_with("manager.log", port, IPAM);
    scene.ship_reader().await;
    scene.work(&manager).await;
    scene.scrape(port).await;
    hand_over(&scene, manager, |name| scene.start_with(name, free_port(), IPAM)).await;
    let asked = scene.asked().await;
    // The process itself emits only events of the lease, which never repeat, and those of a provider; the fake one
    // emits none.
    compare(&scene.documents, &asked, &[(ACCOUNT, "events", "patch")]);

    // The account of the process made no write to a Node or a Service.
    let by_process = asked.iter().filter(|entry| entry.user == ACCOUNT && entry.is_write());
    let written: BTreeSet<&str> = by_process.map(|entry| entry.resource.as_str()).collect();
    assert!(!written.contains("nodes") && !written.contains("services"), "{written:?}");
}

/// According to `manifests/`, the cluster's default roles suffice for the accounts of the controllers.
#[tokio::test(flavor = "multi_thread")]
async fn the_default_roles_of_clusters_cover_the_controllers() {
    let Some(bed) = Bed::shared().await.unwrap() else { return };
    let documents = documents(&crate::tools::read("components/controller-roles/rbac.yaml"));
    let mut covered = 0;
    for grant in grants(&documents) {
        let (_, client) = grant.user.rsplit_once(':').unwrap();
        let name = format!("system:controller:{client}");
        let read = async |kind: &str| -> Value {
            let (status, body) = bed.get(&format!("/apis/rbac.authorization.k8s.io/v1/{kind}/{name}")).await.unwrap();
            assert_eq!(status, 200, "{body}");
            serde_json::from_str(&body).unwrap()
        };
        let (role, binding) = (read("clusterroles").await, read("clusterrolebindings").await);
        let subject = json!({"kind": "ServiceAccount", "name": client, "namespace": "kube-system"});
        assert_eq!(binding["subjects"], json!([subject]));
        let wanted = (grant.group.clone(), grant.resource.clone(), grant.verb.clone());
        let covers = |rule: &Value| rule["resourceNames"].is_null() && combinations(rule).contains(&wanted);
        assert!(role["rules"].as_array().unwrap().iter().any(covers), "{name} lacks {wanted:?}");
        covered += 1;
    }
    assert!(covered >= 10, "{covered}");
}
