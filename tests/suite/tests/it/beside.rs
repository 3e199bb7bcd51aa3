//! Together with a kube-controller-manager with `--cloud-provider=external`, which allocates pod ranges and monitors
//! the kubelets. The program writes routes, conditions, addresses, load balancers; neither reverts the other's writes.

mod kubelets;
mod long_lane;

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use ccm_test_bed::{AuditEntry, AuditLog, CONTROLLER_MANAGER_USER, ControllerManager, Options};
use ccm_test_suite::{Make, Object, Process, Rig, node};
use parking_lot::Mutex;
use serde_json::Value;

use kubelets::Kubelets;

/// The user of our manager in the audit log.
const US: &str = "ccm";
const RANGE: &str = "--cluster-cidr=10.90.0.0/16";
/// Routes and load balancers survive a restart of our manager.
const CLOUD: &str = "interfaces: {routes: true}\nstateFile: state.json";
const OUR_LEASE: &str = "cloud-controller-manager";
const THEIR_LEASE: &str = "kube-controller-manager";
const LONG: Duration = Duration::from_secs(60);

/// One API server, one kube-controller-manager, kubelets, and the cloud for our manager.
struct World {
    kubelets: Kubelets,
    // `None` only while none is running.
    controller_manager: Option<ControllerManager>,
    /// All requests since the start or the last [`World::forget`].
    asked: Mutex<(AuditLog, Vec<AuditEntry>)>,
    rig: Rig,
}

impl World {
    /// `None` if the programs are missing. `args` are additional flags of the kube-controller-manager.
    async fn start(provider_name: &str, cloud: &str, args: &[&str]) -> Option<Self> {
        let rig = Rig::real_alone(Options::default().audit_bodies(), provider_name, cloud).await?;
        let controller_manager = Some(controller_manager(&rig, args).await?);
        let kubelets = Kubelets::start(&rig.bed().kubeconfig_for_user("kubelets", &["system:masters"]).unwrap()).await;
        let asked = Mutex::new((rig.bed().audit(), Vec::new()));
        Some(Self { kubelets, controller_manager, asked, rig })
    }

    /// Kills the kube-controller-manager.
    fn kill_controller_manager(&mut self) {
        self.controller_manager = None;
    }

    /// Starts another one and waits until it leads.
    async fn start_controller_manager(&mut self, args: &[&str]) {
        let before = self.holder(THEIR_LEASE).await;
        self.controller_manager = controller_manager(&self.rig, args).await;
        self.until("another one leads", async |_| (self.holder(THEIR_LEASE).await != before).then_some(())).await;
    }

    /// Starts our manager as a process, with all controllers and short periods.
    fn manager(&self, name: &str, more: &[&str]) -> Process {
        let kubeconfig = self.rig.bed().kubeconfig_for_user(US, &["system:masters"]).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let args = ["--leader-elect=true", "--configure-cloud-routes=true", "-v=2", RANGE, &kubeconfig];
        // Many manifests set this flag, whichever program allocates the ranges. Ours allocates only if its controller
        // is also enabled.
        let routes = ["--allocate-node-cidrs=true", "--route-reconciliation-period=1s"];
        let nodes = ["--node-monitor-period=1s", "--node-status-update-frequency=1s"];
        let args = self.rig.args(&[&args[..], &routes, &nodes, more].concat());
        let output = self.rig.cloud.path(&format!("{name}.log"));
        Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &args, Path::new(&output))
    }

    /// Kubelets register nodes `<prefix>-0` and so on, and start to renew their leases.
    async fn register(&self, prefix: &str, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|i| format!("{prefix}-{i}")).collect();
        for name in &names {
            let made = self.rig.create(kubelets_node(name)).await;
            self.kubelets.add(&made).await;
        }
        names
    }

    /// Waits until all these nodes are ready for pods; returns them sorted by name.
    async fn until_usable(&self, names: &[String]) -> Vec<Object> {
        let usable = async |rig: &Rig| {
            let mut nodes = rig.list("nodes").await;
            nodes.retain(|node| names.iter().any(|name| name == node.name()) && is_usable(node));
            (nodes.len() == names.len()).then_some(nodes)
        };
        self.until(&format!("{names:?} are usable"), usable).await
    }

    /// Waits until a node has exactly these taints.
    async fn until_taints(&self, name: &str, wanted: &[&str]) {
        let has = async |rig: &Rig| rig.node(name).await.filter(|node| taints(node) == wanted);
        self.until(&format!("{name} has the taints {wanted:?}"), has).await;
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFnMut(&Rig) -> Option<T>) -> T {
        self.rig.until(LONG, what, look).await
    }

    /// The holder of a lease; empty if there is none.
    async fn holder(&self, lease: &str) -> String {
        let lease = self.rig.get("leases", "kube-system", lease).await;
        lease.and_then(|l| l["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default()
    }

    /// The requests so far.
    fn asked(&self) -> Vec<AuditEntry> {
        let mut asked = self.asked.lock();
        let new = asked.0.read().unwrap();
        asked.1.extend(new);
        asked.1.clone()
    }

    /// Clears the requests that [`World::asked`] returns.
    fn forget(&self) {
        self.asked();
        self.asked.lock().1.clear();
    }

    /// The writes of our manager, without leases and events, and the writes of the other one to nodes and Services.
    fn writes(&self) -> (Vec<AuditEntry>, Vec<AuditEntry>) {
        let writes = self.asked().into_iter().filter(AuditEntry::is_write);
        let matter = |entry: &AuditEntry| match &*entry.resource {
            "leases" | "events" => false,
            "nodes" | "services" => is_ours(entry) || is_theirs(entry),
            _ => is_ours(entry),
        };
        writes.filter(matter).partition(is_ours)
    }

    fn assert_no_writes(&self, when: &str) {
        let (ours, theirs) = self.writes();
        assert!(ours.is_empty() && theirs.is_empty(), "{when}:\n{}{}", lines(&ours), lines(&theirs));
    }

    /// Waits for a few passes of both: three of each of our loops, and three renewals of the other's lease.
    async fn let_both_look(&self) {
        let begin = self.asked().len();
        let calls = ["ListRoutes", "InstanceMetadata"];
        let before = calls.map(|call| self.rig.cloud.calls(call).len());
        self.until("a few passes of both", async |rig| {
            let ours = calls.iter().zip(before).all(|(call, before)| rig.cloud.calls(call).len() >= before + 3);
            let renewals = self.asked().into_iter().skip(begin).filter(|e| is_theirs(e) && is_renewal(e)).count();
            (ours && renewals >= 3).then_some(())
        })
        .await;
    }

    /// Waits until a few passes of both have written nothing.
    async fn until_at_rest(&self) {
        let mut rounds = 0;
        loop {
            let before = self.writes();
            self.let_both_look().await;
            if self.writes() == before {
                return;
            }
            rounds += 1;
            assert!(rounds < 10, "no rest:\n{}{}", lines(&before.0), lines(&before.1));
        }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(controller_manager) = self.controller_manager.as_ref().filter(|_| std::thread::panicking()) {
            let log = std::fs::read_to_string(controller_manager.log()).unwrap_or_default();
            let last: Vec<_> = log.lines().rev().take(10).collect();
            eprintln!("--- the kube-controller-manager, last line first\n{}", last.join("\n"));
        }
    }
}

/// Starts a kube-controller-manager with `--cloud-provider=external` and all controllers.
async fn controller_manager(rig: &Rig, more: &[&str]) -> Option<ControllerManager> {
    let args = ["--cloud-provider=external", "--allocate-node-cidrs=true", "--configure-cloud-routes=false", RANGE];
    let pace = ["--node-monitor-period=1s", "--node-eviction-rate=10", "--leader-elect-lease-duration=12s"];
    let election = ["--leader-elect-renew-deadline=10s", "--leader-elect-retry-period=1s"];
    rig.bed().start_controller_manager(&[&args[..], &pace, &election, more].concat()).await.unwrap()
}

fn is_ours(entry: &AuditEntry) -> bool {
    entry.user == US
}

fn is_theirs(entry: &AuditEntry) -> bool {
    entry.user == CONTROLLER_MANAGER_USER || entry.user.starts_with("system:serviceaccount:kube-system:")
}

fn is_renewal(entry: &AuditEntry) -> bool {
    entry.is_about("leases") && entry.namespace == "kube-system" && entry.is_write()
}

/// Whether it writes the list of taints, even an empty one.
fn sets_taints(entry: &AuditEntry) -> bool {
    entry.body.as_ref().is_some_and(|body| body["spec"].get("taints").is_some())
}

/// Every write of the taint list must contain the resource version.
fn assert_no_taint_can_get_lost(writes: &[AuditEntry]) {
    let version = |entry: &AuditEntry| entry.body.as_ref().map(|body| body["metadata"]["resourceVersion"].clone());
    let blind = writes.iter().filter(|entry| sets_taints(entry) && version(entry).is_none_or(|v| !v.is_string()));
    let blind: Vec<_> = blind.cloned().collect();
    assert!(blind.is_empty(), "{}", lines(&blind));
}

fn lines(entries: &[AuditEntry]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// A node as a kubelet registers it: not Ready, because its network plugin needs a range.
fn kubelets_node(name: &str) -> Make {
    node(name).uninitialized().ready("False").address("Hostname", name)
}

/// All taints as `key:effect`.
fn taints(node: &Object) -> Vec<String> {
    let taints = node["spec"]["taints"].as_array().cloned().unwrap_or_default();
    let mut taints: Vec<_> = taints
        .iter()
        .map(|t| format!("{}:{}", t["key"].as_str().unwrap_or_default(), t["effect"].as_str().unwrap_or_default()))
        .collect();
    taints.sort();
    taints
}

/// Whether the node has a range with a route, a provider ID, and no taint.
fn is_usable(node: &Object) -> bool {
    let condition = |kind: &str| node.condition(kind).map_or(Value::Null, |c| c["status"].clone());
    let ready = condition("Ready") == "True" && condition("NetworkUnavailable") == "False";
    ready && taints(node).is_empty() && !node.provider_id().is_empty()
}

fn range(node: &Object) -> &str {
    node["spec"]["podCIDR"].as_str().unwrap_or_default()
}

/// Range and node of a route.
fn target(args: &Value) -> (String, String) {
    let text = |key: &str| args["route"][key].as_str().unwrap_or_default().to_owned();
    (text("destinationCIDR"), text("targetNode"))
}

/// Field owners in `managedFields`: the manager's name and paths such as `status.conditions.Ready`.
fn fields(object: &Object, manager: &str) -> Vec<String> {
    let entries = object["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
    let of = entries.iter().filter(|entry| entry["manager"].as_str().is_some_and(|m| m.starts_with(manager)));
    let mut paths = Vec::new();
    for entry in of {
        collect(&entry["fieldsV1"], "", &mut paths);
    }
    paths.sort();
    paths.dedup();
    paths
}

/// Leaves of a `fieldsV1`; for list items only the item.
fn collect(fields: &Value, path: &str, paths: &mut Vec<String>) {
    let Some(members) = fields.as_object().filter(|members| !members.is_empty()) else {
        paths.push(path.to_owned());
        return;
    };
    for (key, below) in members {
        match key.split_once(':') {
            Some(("f", name)) => collect(below, format!("{path}.{name}").trim_start_matches('.'), paths),
            Some(("k", item)) => {
                let item: BTreeMap<String, Value> = serde_json::from_str(item).unwrap();
                let names: Vec<_> = item.values().map(|v| v.as_str().map_or(v.to_string(), str::to_owned)).collect();
                paths.push(format!("{path}.{}", names.join("/")));
            }
            Some(("v", item)) => paths.push(format!("{path}.{item}")),
            _ => {}
        }
    }
}
