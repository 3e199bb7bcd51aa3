//! Beside a kube-controller-manager that runs with `--cloud-provider=external`: it hands out pod ranges and judges the
//! kubelets, we make routes, conditions, addresses and balancers, and neither undoes what the other did.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, Metrics};
use ccm_test_bed::{AuditEntry, AuditLog, CONTROLLER_MANAGER_USER, ControllerManager, Options};
use ccm_test_suite::{Make, Object, Process, Rig, node, service};
use http::Method;
use jiff::Timestamp;
use serde_json::{Value, json};
use tokio::task::JoinHandle;

/// Whom the audit log knows our manager as.
const US: &str = "ccm";
const RANGE: &str = "--cluster-cidr=10.90.0.0/16";
/// Routes and balancers outlive a restart of ours.
const CLOUD: &str = "interfaces: {routes: true}\nstateFile: state.json";
const LONG: Duration = Duration::from_secs(60);
/// How often a kubelet renews its lease: well below every `--node-monitor-grace-period` here.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// One API server, one kube-controller-manager, kubelets, and the cloud for our manager.
struct World {
    kubelets: Kubelets,
    // None only between two of them.
    controller_manager: Option<ControllerManager>,
    /// Everything that was asked since the beginning or the last [`World::forget`].
    asked: Mutex<(AuditLog, Vec<AuditEntry>)>,
    rig: Rig,
}

impl World {
    /// `None` where the programs are missing. `args` are more flags of the kube-controller-manager.
    async fn start(provider_name: &str, cloud: &str, args: &[&str]) -> Option<Self> {
        let rig = Rig::real_alone(Options::default().audit_bodies(), provider_name, cloud).await?;
        let controller_manager = Some(controller_manager(&rig, args).await?);
        let kubelets = Kubelets::start(&rig.bed().kubeconfig_for_user("kubelets", &["system:masters"]).unwrap()).await;
        let asked = Mutex::new((rig.bed().audit(), Vec::new()));
        Some(Self { kubelets, controller_manager, asked, rig })
    }

    /// Kills the kube-controller-manager, starts another and waits until it leads.
    async fn restart_controller_manager(&mut self, args: &[&str]) {
        let before = self.holders().await;
        self.controller_manager = None;
        self.controller_manager = controller_manager(&self.rig, args).await;
        self.until("another one leads", async |_| (self.holders().await[1] != before[1]).then_some(())).await;
    }

    /// Starts our manager as a process, with every controller and short periods.
    fn manager(&self, name: &str, more: &[&str]) -> Process {
        let kubeconfig = self.rig.bed().kubeconfig_for_user(US, &["system:masters"]).unwrap();
        let kubeconfig = format!("--kubeconfig={}", kubeconfig.display());
        let args = ["--leader-elect=true", "--configure-cloud-routes=true", "-v=2", RANGE, &kubeconfig];
        // As many manifests have it, whoever gives out the ranges: ours doesn't unless its controller is named too.
        let routes = ["--allocate-node-cidrs=true", "--route-reconciliation-period=1s"];
        let nodes = ["--node-monitor-period=1s", "--node-status-update-frequency=1s"];
        let args = self.rig.args(&[&args[..], &routes, &nodes, more].concat());
        let output = self.rig.cloud.path(&format!("{name}.log"));
        Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &args, Path::new(&output))
    }

    /// Kubelets register nodes `<prefix>-0` and so on, and begin to renew their leases.
    async fn register(&self, prefix: &str, count: usize) -> Vec<String> {
        let names: Vec<String> = (0..count).map(|i| format!("{prefix}-{i}")).collect();
        for name in &names {
            let made = self.rig.create(kubelets_node(name)).await;
            self.kubelets.add(&made).await;
        }
        names
    }

    /// Waits until every one of these nodes is ready for pods; answers in the order of their names.
    async fn until_usable(&self, names: &[String]) -> Vec<Object> {
        let usable = async |rig: &Rig| {
            let mut nodes = rig.list("nodes").await;
            nodes.retain(|node| names.iter().any(|name| name == node.name()) && is_usable(node));
            (nodes.len() == names.len()).then_some(nodes)
        };
        self.until(&format!("{names:?} are usable"), usable).await
    }

    /// Waits until a node has these taints and no other.
    async fn until_taints(&self, name: &str, wanted: &[&str]) {
        let has = async |rig: &Rig| rig.node(name).await.filter(|node| taints(node) == wanted);
        self.until(&format!("{name} has the taints {wanted:?}"), has).await;
    }

    async fn until<T>(&self, what: &str, look: impl AsyncFnMut(&Rig) -> Option<T>) -> T {
        self.rig.until(LONG, what, look).await
    }

    /// Who holds our lease and who theirs.
    async fn holders(&self) -> [String; 2] {
        let mut holders = [String::new(), String::new()];
        for (name, holder) in ["cloud-controller-manager", "kube-controller-manager"].iter().zip(&mut holders) {
            let lease = self.rig.get("leases", "kube-system", name).await;
            *holder = lease.and_then(|l| l["spec"]["holderIdentity"].as_str().map(str::to_owned)).unwrap_or_default();
        }
        holders
    }

    /// What was asked so far.
    fn asked(&self) -> Vec<AuditEntry> {
        let mut asked = self.asked.lock().unwrap();
        let new = asked.0.read().unwrap();
        asked.1.extend(new);
        asked.1.clone()
    }

    /// Begins anew with [`World::asked`].
    fn forget(&self) {
        self.asked();
        self.asked.lock().unwrap().1.clear();
    }

    /// What our manager wrote, leases and events left out, and what the other one wrote of nodes and Services.
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

    /// Lets both look at everything a few times: three passes of each of our loops, and three renewals of their lease.
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

/// Starts one with `--cloud-provider=external` and every controller.
async fn controller_manager(rig: &Rig, more: &[&str]) -> Option<ControllerManager> {
    let args = ["--cloud-provider=external", "--allocate-node-cidrs=true", "--configure-cloud-routes=false", RANGE];
    let pace = ["--node-monitor-period=1s", "--node-eviction-rate=10", "--leader-elect-lease-duration=6s"];
    let election = ["--leader-elect-renew-deadline=4s", "--leader-elect-retry-period=1s"];
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

/// Whether it writes the list of taints, be it empty.
fn sets_taints(entry: &AuditEntry) -> bool {
    entry.body.as_ref().is_some_and(|body| body["spec"].get("taints").is_some())
}

/// Whoever writes the list of taints says which one it has seen.
fn assert_no_taint_can_get_lost(writes: &[AuditEntry]) {
    let version = |entry: &AuditEntry| entry.body.as_ref().map(|body| body["metadata"]["resourceVersion"].clone());
    let blind = writes.iter().filter(|entry| sets_taints(entry) && version(entry).is_none_or(|v| !v.is_string()));
    let blind: Vec<_> = blind.cloned().collect();
    assert!(blind.is_empty(), "{}", lines(&blind));
}

fn lines(entries: &[AuditEntry]) -> String {
    entries.iter().map(|entry| format!("{entry}\n")).collect()
}

/// As a kubelet with `--cloud-provider=external` registers itself: not ready, because its network plugin waits for a range.
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

/// Has a range, a route to it, an identity, and no taint.
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

/// Who made which fields, from the object's own account: manager's name and paths such as `status.conditions.Ready`.
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

/// Leaves of a `fieldsV1`; below an item of a list only the item.
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

/// What kubelets do for their nodes: each renews its lease, and tells that it is ready as soon as there is a pod range.
struct Kubelets {
    client: Client,
    /// Node names, and whether the node is told to be ready.
    alive: Arc<Mutex<BTreeMap<String, bool>>>,
    task: JoinHandle<()>,
}

impl Kubelets {
    async fn start(kubeconfig: &Path) -> Self {
        let kubeconfig = kubeconfig.display().to_string();
        let options = ConnectOptions { kubeconfig, user_agent: "kubelet/test".into(), ..ConnectOptions::default() };
        let client = Client::connect(&options, Metrics::new()).await.unwrap();
        let alive = Arc::new(Mutex::new(BTreeMap::new()));
        let task = tokio::spawn(Self::beat(client.clone(), alive.clone()));
        Self { client, alive, task }
    }

    async fn add(&self, node: &Object) {
        let owner = json!([{"apiVersion": "v1", "kind": "Node", "name": node.name(), "uid": node.uid()}]);
        let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": node.name(), "ownerReferences": owner},
            "spec": {"holderIdentity": node.name(), "leaseDurationSeconds": 40, "renewTime": now()}});
        self.client.send(&Call::json(Method::POST, leases(""), &lease)).await.unwrap();
        self.alive.lock().unwrap().insert(node.name().to_owned(), false);
    }

    /// Stops one, as if its machine had been lost.
    fn stop(&self, name: &str) {
        self.alive.lock().unwrap().remove(name).unwrap();
    }

    /// It is there again.
    fn resume(&self, name: &str) {
        self.alive.lock().unwrap().insert(name.to_owned(), false);
    }

    async fn beat(client: Client, alive: Arc<Mutex<BTreeMap<String, bool>>>) {
        let mut ticks = tokio::time::interval(HEARTBEAT);
        loop {
            ticks.tick().await;
            let nodes = alive.lock().unwrap().clone();
            for (name, told) in nodes {
                let renewal = json!({"spec": {"renewTime": now()}});
                // A failed one is made up for by the next.
                let _answer = client.send(&Call::strategic(leases(&name), &renewal)).await;
                if !told
                    && Self::tell(&client, &name).await
                    && let Some(told) = alive.lock().unwrap().get_mut(&name)
                {
                    *told = true;
                }
            }
        }
    }

    /// Says that the node is ready, if it has a range; the answer is whether it was said.
    async fn tell(client: &Client, name: &str) -> bool {
        let path = format!("/api/v1/nodes/{name}");
        let Ok(node) = client.read::<Value>(&Call::get(&path)).await else { return false };
        if !node["spec"]["podCIDR"].is_string() {
            return false;
        }
        let ready = json!({"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "ready",
            "lastHeartbeatTime": format!("{:.0}", Timestamp::now()), "lastTransitionTime": format!("{:.0}", Timestamp::now())});
        let told = json!({"status": {"conditions": [ready]}});
        client.send(&Call::strategic(format!("{path}/status"), &told)).await.is_ok()
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

mod real_apiserver {
    use super::*;

    #[tokio::test(flavor = "multi_thread")]
    async fn one_gives_ranges_and_the_other_makes_the_routes_and_they_share_no_field_but_the_taints() {
        let Some(world) = World::start("beside-nodes", CLOUD, &[]).await else { return };
        let _manager = world.manager("manager", &[]);
        let names = world.register("both", 6).await;
        let nodes = world.until_usable(&names).await;
        world.let_both_look().await;

        let routes = world.rig.cloud.calls("CreateRoute");
        let mut made: Vec<_> = routes.iter().map(|call| target(&call["args"])).collect();
        made.sort();
        let mut wanted: Vec<_> = nodes.iter().map(|node| (range(node).to_owned(), node.name().to_owned())).collect();
        wanted.sort();
        assert_eq!(made, wanted, "one route for each node and no second attempt");

        for node in &nodes {
            let ours = fields(node, "ccm");
            let theirs = fields(node, "kube-controller-manager");
            let of_type = ["beta.kubernetes.io/instance-type", "node.kubernetes.io/instance-type"];
            let mut wanted = of_type.map(|label| format!("metadata.labels.{label}")).to_vec();
            wanted.extend(["spec.providerID", "status.conditions.NetworkUnavailable"].map(str::to_owned));
            assert_eq!(ours, wanted);
            let ranges = ["spec.podCIDR".to_owned(), format!("spec.podCIDRs.{:?}", range(node))];
            assert!(ranges.iter().all(|field| theirs.contains(field)), "{theirs:?}");
            assert!(theirs.iter().all(|field| !ours.contains(field)), "{ours:?} {theirs:?}");
        }
        let (ours, theirs) = world.writes();
        assert_no_taint_can_get_lost(&[&ours[..], &theirs].concat());
        // Both write the taints of a new node, so one of them may have to try again, but not for ever.
        let conflicts: Vec<_> = ours.iter().filter(|entry| entry.code == 409).cloned().collect();
        assert!(conflicts.len() <= 2 * names.len(), "{}", lines(&conflicts));
        let unexpected = |entry: &&AuditEntry| is_ours(entry) && entry.code >= 400 && entry.code != 409;
        let refused: Vec<_> = world.asked().iter().filter(unexpected).cloned().collect();
        // The first look for a lease that nobody has made yet.
        assert!(refused.iter().all(|entry| entry.is_about("leases") && entry.code == 404), "{}", lines(&refused));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_ranges_of_our_own_allocator_are_left_alone_by_the_other() {
        let Some(world) = World::start("beside-ipam", CLOUD, &["--allocate-node-cidrs=false"]).await else { return };
        let _manager = world.manager("manager", &["--controllers=*,node-ipam-controller"]);
        let names = world.register("ours", 4).await;
        let nodes = world.until_usable(&names).await;
        world.until_at_rest().await;
        let mut ranges: Vec<_> = nodes.iter().map(range).collect();
        ranges.sort_unstable();
        assert_eq!(ranges, ["10.90.0.0/24", "10.90.1.0/24", "10.90.2.0/24", "10.90.3.0/24"]);
        assert!(nodes.iter().all(|node| fields(node, "ccm").contains(&"spec.podCIDR".to_owned())));
        assert_eq!(world.rig.cloud.calls("CreateRoute").len(), 4);
        let (_, theirs) = world.writes();
        let of_ranges =
            |entry: &&AuditEntry| entry.body.as_ref().is_some_and(|body| !body["spec"]["podCIDR"].is_null());
        assert_eq!(theirs.iter().filter(of_ranges).count(), 0, "{}", lines(&theirs));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn each_range_of_a_dual_stack_node_gets_its_route() {
        let ranges = "--cluster-cidr=10.90.0.0/16,fd00:90::/56";
        let Some(world) = World::start("beside-dual", CLOUD, &[ranges]).await else { return };
        let _manager = world.manager("manager", &[ranges]);
        let names = world.register("dual", 2).await;
        let nodes = world.until_usable(&names).await;
        world.until_at_rest().await;
        let text = |range: &Value| range.as_str().unwrap().to_owned();
        let ranges = |node: &Object| node["spec"]["podCIDRs"].as_array().unwrap().iter().map(text).collect::<Vec<_>>();
        let of_node = |node: &Object| ranges(node).into_iter().map(|range| (range, node.name().to_owned())).collect();
        let mut wanted: Vec<(String, String)> = nodes.iter().flat_map::<Vec<_>, _>(of_node).collect();
        wanted.sort();
        let mut made: Vec<_> = world.rig.cloud.calls("CreateRoute").iter().map(|call| target(&call["args"])).collect();
        made.sort();
        assert_eq!(made, wanted);
        assert_eq!(made.len(), 4);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn at_rest_neither_writes_and_a_restart_of_either_changes_nothing() {
        let Some(mut world) = World::start("beside-rest", CLOUD, &[]).await else { return };
        let mut manager = world.manager("first", &[]);
        let names = world.register("rest", 4).await;
        world.rig.create(service("rest")).await;
        world.until_usable(&names).await;
        world.rig.until_service("rest", "has an address", |service| !service.ingress().is_empty()).await;
        world.until_at_rest().await;
        world.forget();

        let holders = world.holders().await;
        manager.terminate();
        assert!(manager.ended(LONG).await.success(), "{}", manager.output());
        manager = world.manager("second", &[]);
        world.let_both_look().await;
        world.assert_no_writes("after a restart of ours");
        assert!(world.asked().iter().any(|entry| is_ours(entry) && is_renewal(entry)), "is it under another name?");

        world.restart_controller_manager(&[]).await;
        world.let_both_look().await;
        world.assert_no_writes("after a restart of theirs");
        let now = world.holders().await;
        assert!(now.iter().zip(&holders).all(|(now, before)| now != before), "{now:?} after {holders:?}");
        assert!(now[0] != now[1] && now.iter().all(|holder| !holder.is_empty()), "{now:?}");

        // What a user changes is theirs, and wakes nobody for long.
        world.rig.patch_node(&names[0], json!({"metadata": {"labels": {"mine": "1"}}})).await;
        world.rig.patch_service("rest", json!({"metadata": {"annotations": {"mine": "1"}}})).await;
        world.let_both_look().await;
        world.assert_no_writes("after a change of a user");
        assert_eq!(world.rig.cloud.calls("CreateRoute").len(), names.len());
        drop(manager);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_silent_kubelet_is_tainted_by_one_and_its_node_goes_only_when_the_cloud_says_so() {
        let Some(world) = World::start("beside-silent", CLOUD, &["--node-monitor-grace-period=10s"]).await else {
            return;
        };
        let _manager = world.manager("manager", &[]);
        let well = world.register("well", 4).await;
        let silent = world.register("silent", 4).await;
        let [kept, stopped, gone, unsure] = [0, 1, 2, 3].map(|i: usize| silent[i].as_str());
        world.until_usable(&[well.clone(), silent.clone()].concat()).await;
        world.until_at_rest().await;
        world.forget();

        let lost = format!(
            "{CLOUD}\ninstances: [{{name: {stopped}, shutdown: true}}, {{name: {gone}, exists: false}}]\n\
             faults: [{{call: InstanceExists, node: {unsure}, error: throttled}}]"
        );
        world.rig.cloud.write(&lost);
        silent.iter().for_each(|name| world.kubelets.stop(name));
        let unreachable = ["node.kubernetes.io/unreachable:NoExecute", "node.kubernetes.io/unreachable:NoSchedule"];
        let both = [&["node.cloudprovider.kubernetes.io/shutdown:NoSchedule"], &unreachable[..]].concat();
        for (name, wanted) in [(kept, &unreachable[..]), (unsure, &unreachable), (stopped, &both)] {
            world.until_taints(name, wanted).await;
        }
        world.until("gone", async |rig| rig.node(gone).await.is_none().then_some(())).await;
        world.rig.until_event(gone, "DeletingNode").await;
        world.rig.until_calls("DeleteRoute", 1).await;
        world.until_at_rest().await;
        let about_kept = |entry: &AuditEntry| is_ours(entry) && [kept, unsure].contains(&&*entry.name);
        let ours: Vec<_> = world.asked().into_iter().filter(|e| e.is_write() && about_kept(e)).collect();
        assert!(ours.is_empty(), "{}", lines(&ours));
        assert_eq!(world.rig.cloud.calls("DeleteRoute").len(), 1, "a silent node keeps its route");

        world.rig.cloud.write(CLOUD);
        let back = [kept, stopped, unsure].map(str::to_owned);
        back.iter().for_each(|name| world.kubelets.resume(name));
        world.until_usable(&[&well[..], &back].concat()).await;
        world.until_at_rest().await;
        let (ours, theirs) = world.writes();
        assert_no_taint_can_get_lost(&[&ours[..], &theirs].concat());
        // The shutdown taint came and went.
        assert_eq!(ours.iter().filter(|e| sets_taints(e) && e.code == 200).count(), 2, "{}", lines(&ours));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_node_without_its_route_is_tainted_by_the_other_until_the_route_is_made() {
        let faults = format!("{CLOUD}\nfaults: [{{call: CreateRoute, node: routeless-0, error: route table full}}]");
        let Some(world) = World::start("beside-routeless", &faults, &[]).await else { return };
        let _manager = world.manager("manager", &[]);
        let names = world.register("routeless", 3).await;
        world.until_usable(&names[1..]).await;
        world.until_taints(&names[0], &["node.kubernetes.io/network-unavailable:NoSchedule"]).await;
        world.rig.cloud.write(CLOUD);
        world.until_usable(&names).await;
        world.until_at_rest().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_range_that_passes_to_another_node_takes_its_route_along() {
        let small = "--cluster-cidr=10.90.0.0/23";
        let Some(world) = World::start("beside-ranges", CLOUD, &[small]).await else { return };
        let _manager = world.manager("manager", &[small]);
        let first = world.register("first", 2).await;
        let nodes = world.until_usable(&first).await;
        let next = world.register("next", 1).await;
        world.rig.until_event(&next[0], "CIDRNotAvailable").await;
        let routes = world.rig.cloud.calls("CreateRoute").len();
        assert_eq!(routes, 2, "no route for a node without range");

        world.kubelets.stop(&first[0]);
        world.rig.delete("nodes", "", &first[0]).await;
        let heirs = world.until_usable(&next).await;
        assert_eq!(range(&heirs[0]), range(&nodes[0]));
        let created = world.rig.cloud.calls("CreateRoute");
        assert_eq!(target(&created[routes]["args"]), (range(&nodes[0]).to_owned(), next[0].clone()));
        assert_eq!((created.len(), world.rig.cloud.calls("DeleteRoute").len()), (3, 1));
        world.until_at_rest().await;
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn a_balancer_is_made_once_and_goes_with_its_namespace() {
        let Some(world) = World::start("beside-services", CLOUD, &[]).await else { return };
        let _manager = world.manager("manager", &[]);
        let names = world.register("host", 2).await;
        world.until_usable(&names).await;
        let namespace = json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}});
        world.rig.create(Make { resource: "namespaces", object: namespace }).await;
        world.rig.create(service("web").namespace("shop")).await;
        let served = async |rig: &Rig| rig.get("services", "shop", "web").await.filter(|s| !s.ingress().is_empty());
        world.until("an address", served).await;
        let slices = "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices";
        world
            .until("an endpoint slice", async |rig| {
                rig.bed().get(slices).await.unwrap().1.contains("web-").then_some(())
            })
            .await;
        world.register("late", 1).await;
        world.rig.until_calls("UpdateLoadBalancer", 1).await;
        world.until_at_rest().await;
        let (ours, theirs) = world.writes();
        let bodies = ours.iter().filter(|entry| entry.resource == "services").filter_map(|entry| entry.body.as_ref());
        let has =
            |body: &Value| (body["metadata"]["finalizers"].is_array(), body["status"]["loadBalancer"].is_object());
        let bodies: Vec<_> = bodies.map(has).collect();
        assert_eq!(bodies, [(true, false), (false, true)], "the finalizer, then the address\n{}", lines(&ours));
        assert!(theirs.iter().all(|entry| entry.resource != "services"), "{}", lines(&theirs));

        world.rig.delete("namespaces", "", "shop").await;
        world.until("gone", async |rig| rig.get("namespaces", "", "shop").await.is_none().then_some(())).await;
        assert_eq!(world.rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
        assert_eq!(world.rig.cloud.calls("EnsureLoadBalancer").len(), 1);
    }
}
