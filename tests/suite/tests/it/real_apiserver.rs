//! The same program with a real API server, in real time; some of it in separate processes.

mod aws;
mod azure;
mod conditions;
mod dry_run;
mod endpoints;
mod gce;
mod openstack;
mod pods;
mod reload;

use std::path::Path;
use std::time::Duration;

use ccm_runtime::client::{Call, ConnectOptions};
use ccm_runtime::{Client, GateError};
use ccm_test_suite::{Object, Process, Rig, deadline, node, service};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

const NODES: &str = "--controllers=cloud-node,cloud-node-lifecycle";
const LONG: Duration = Duration::from_secs(60);

/// Nodes of other tests have provider IDs of another cloud, so every node here has one from the start.
fn id(rig: &Rig, name: &str) -> String {
    format!("{}://{name}", rig.provider_name())
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_tainted_nodes_are_initialized_with_few_calls() {
    let cloud = "zone: {failureDomain: z1, region: r1}\nunlisted: invent";
    let Some(rig) = Rig::real("suite-hundred", cloud).await else { return };
    let names: Vec<String> = (0..100).map(|i| format!("hundred-{i}")).collect();
    let manager = rig.start(&[NODES]).await;
    for name in &names {
        rig.create(node(name).uninitialized().provider_id(&id(&rig, name)).annotation("note", "kept")).await;
    }
    let done = async |rig: &Rig| {
        let nodes = rig.list("nodes").await;
        let mine = nodes.into_iter().filter(|node| node.name().starts_with("hundred-"));
        let done: Vec<_> = mine.filter(|node| !node.is_uninitialized()).collect();
        (done.len() == 100).then_some(done)
    };
    for node in rig.until(LONG, "a hundred nodes initialized", done).await {
        assert_eq!(node.label("topology.kubernetes.io/zone"), "z1");
        assert_eq!(node.label("node.kubernetes.io/instance-type"), "fake.small");
        assert_eq!(node["metadata"]["annotations"]["note"], "kept");
    }
    rig.until_event("hundred-0", "Synced").await;
    let calls = rig.cloud.calls("InstanceMetadata").len();
    assert!(calls <= 40, "{calls} calls");
    manager.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_node_of_a_terminated_instance_is_deleted_and_an_unknown_one_is_not() {
    let cloud = "unlisted: missing\ninstances: [{name: real-stopped, shutdown: true}]\n\
                 faults: [{call: InstanceExists, node: real-unsure, error: throttled}]";
    let Some(rig) = Rig::real("suite-gone", cloud).await else { return };
    for name in ["real-gone", "real-unsure", "real-stopped"] {
        rig.create(node(name).provider_id(&id(&rig, name)).ready("Unknown")).await;
    }
    let manager = rig.start(&[NODES, "--node-monitor-period=500ms"]).await;
    rig.until_gone("real-gone").await;
    let shutdown = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
    let tainted = rig.until_node("real-stopped", "tainted", |node| node.taints() == [shutdown]).await;
    rig.until_event("real-gone", "DeletingNode").await;
    // A few more passes.
    let passes = rig.cloud.calls("InstanceExists").len();
    rig.until_calls("InstanceExists", passes + 4).await;
    assert_eq!(rig.node("real-unsure").await.unwrap().taints(), [""; 0]);
    assert_eq!(rig.node("real-stopped").await.unwrap().version(), tainted.version(), "no second patch");

    rig.set_ready("real-stopped", "True").await;
    rig.until_node("real-stopped", "not tainted", |node| node.taints().is_empty()).await;
    manager.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn addresses_of_one_type_are_replaced_and_not_merged() {
    let cloud = "instances: [{name: real-addresses, addresses: [{type: InternalIP, address: 10.0.0.2}, \
                 {type: InternalIP, address: 'fd00::2'}]}]";
    let Some(rig) = Rig::real("suite-addresses", cloud).await else { return };
    let name = "real-addresses";
    rig.create(
        node(name)
            .provider_id(&id(&rig, name))
            .address("InternalIP", "10.0.0.1")
            .address("InternalIP", "10.0.0.2")
            .address("Hostname", name),
    )
    .await;
    let manager = rig.start(&[NODES, "--node-status-update-frequency=500ms"]).await;
    let wanted = ["InternalIP=10.0.0.2", "InternalIP=fd00::2", "Hostname=real-addresses"];
    let done = rig.until_node(name, "both addresses", |node| node.addresses() == wanted).await;
    let looks = rig.cloud.calls_for("InstanceMetadata", name);
    rig.until(LONG, "two more periods", async |rig| {
        (rig.cloud.calls_for("InstanceMetadata", name) >= looks + 2).then_some(())
    })
    .await;
    assert_eq!(rig.node(name).await.unwrap().version(), done.version(), "a dual-stack node at rest is not written");
    manager.stop().await.unwrap();
}

/// The program in two processes, one of which leads.
struct Replicas<'a> {
    rig: &'a Rig,
    lease: &'a str,
}

impl Replicas<'_> {
    fn start(&self, name: &str) -> Process {
        let kubeconfig = format!("--kubeconfig={}", self.rig.bed().kubeconfig().display());
        let lease = format!("--leader-elect-resource-name={}", self.lease);
        let args = self.rig.args(&["--leader-elect=true", &lease, &kubeconfig, NODES, "-v=2"]);
        let output = self.rig.cloud.path(&format!("{name}.log"));
        Process::start(env!("CARGO_BIN_EXE_ccm-under-test"), &args, Path::new(&output))
    }

    /// The processes that initialized the provider, in order.
    fn leaders(&self) -> Vec<u64> {
        self.rig.cloud.calls("Initialize").iter().map(|line| line["pid"].as_u64().unwrap()).collect()
    }

    async fn until_leaders(&self, processes: &[&Process]) {
        let wanted: Vec<u64> = processes.iter().map(|process| u64::from(process.id())).collect();
        let explain = || {
            let outputs: Vec<String> = processes.iter().map(|process| process.output()).collect();
            format!("{:?} led, not {wanted:?}\n{}", self.leaders(), outputs.join("\n"))
        };
        deadline(LONG, explain, async || self.leaders() == wanted).await;
    }

    async fn lease(&self) -> Object {
        self.rig.get("leases", "kube-system", self.lease).await.unwrap()
    }

    async fn initialize(&self, name: &str) {
        self.rig.create(node(name).uninitialized().provider_id(&id(self.rig, name))).await;
        self.rig
            .until(LONG, "initialized", async |rig| {
                rig.node(name).await.filter(|node| !node.is_uninitialized()).map(|_| ())
            })
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_stops_releases_its_lease_and_its_follower_did_nothing_before() {
    let Some(rig) = Rig::real("suite-term", "").await else { return };
    let replicas = Replicas { rig: &rig, lease: "suite-term" };
    let mut first = replicas.start("first");
    replicas.until_leaders(&[&first]).await;
    let second = replicas.start("second");
    let stands_by = async || second.output().contains("attempting to acquire leader lease");
    deadline(LONG, || second.output(), stands_by).await;
    replicas.initialize("term-before").await;
    assert_eq!(replicas.leaders(), [u64::from(first.id())], "a follower does not initialize the provider");

    let holder = async || replicas.lease().await["spec"]["holderIdentity"].clone();
    let stopped = holder().await;
    first.terminate();
    let status = first.ended(LONG).await;
    assert!(status.success(), "{status}\n{}", first.output());
    // No holder, or already the follower.
    assert_ne!(holder().await, stopped, "the lease is held by a process that has ended");
    replicas.until_leaders(&[&first, &second]).await;
    replicas.initialize("term-after").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_leader_is_followed_after_its_lease() {
    let Some(rig) = Rig::real("suite-kill", "").await else { return };
    let replicas = Replicas { rig: &rig, lease: "suite-kill" };
    let mut first = replicas.start("first");
    replicas.until_leaders(&[&first]).await;
    let second = replicas.start("second");
    let stands_by = async || second.output().contains("attempting to acquire leader lease");
    deadline(LONG, || second.output(), stands_by).await;
    replicas.initialize("kill-before").await;
    first.kill();
    let time = |lease: &Object, field: &str| lease["spec"][field].as_str().unwrap().parse::<Timestamp>().unwrap();
    let renewed = time(&replicas.lease().await, "renewTime");
    replicas.initialize("kill-after").await;
    assert_eq!(replicas.leaders(), [u64::from(first.id()), u64::from(second.id())]);
    let acquired = time(&replicas.lease().await, "acquireTime");
    let wait = acquired.duration_since(renewed);
    assert!(wait >= SignedDuration::from_secs(15), "followed after {wait:?}\n{}", second.output());
}

/// The only test with load balancers on this server, because its manager handles every Service of the cluster.
#[tokio::test(flavor = "multi_thread")]
async fn a_service_gets_finalizer_and_address_and_goes_only_after_its_balancer() {
    let Some(rig) = Rig::real("suite-services", "loadBalancers: {ipMode: Proxy}").await else { return };
    let finalizer = "service.kubernetes.io/load-balancer-cleanup";
    rig.create(service("real-lb").finalizer("example.com/other")).await;
    let manager = rig.start(&["--controllers=service"]).await;
    let made = rig.until_service("real-lb", "has an address", |s| !s.ingress().is_empty()).await;
    assert_eq!(made.finalizers(), ["example.com/other", finalizer]);
    assert_eq!(made["status"]["loadBalancer"]["ingress"][0]["ipMode"], "Proxy");
    rig.until_event("real-lb", "EnsuredLoadBalancer").await;

    rig.patch_service("real-lb", json!({"spec": {"type": "ClusterIP"}})).await;
    let plain = rig.until_service("real-lb", "cleaned up", |s| s.finalizers() == ["example.com/other"]).await;
    assert_eq!(plain.ingress(), [""; 0]);
    rig.until_event("real-lb", "DeletedLoadBalancer").await;

    rig.patch_service("real-lb", json!({"spec": {"type": "LoadBalancer"}})).await;
    rig.until_service("real-lb", "has an address again", |s| !s.ingress().is_empty()).await;
    rig.delete("services", "default", "real-lb").await;
    rig.until_service("real-lb", "cleaned up", |s| s.finalizers() == ["example.com/other"]).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 2);
    let calls = rig.cloud.calls("EnsureLoadBalancer").len();

    // A Service that waits only for other finalizers is not changed.
    rig.patch_service("real-lb", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.create(service("real-lb-2")).await;
    rig.until_service("real-lb-2", "has an address", |s| !s.ingress().is_empty()).await;
    let ensured = rig.cloud.calls("EnsureLoadBalancer");
    let again = ensured.iter().skip(calls).filter(|call| call["args"]["service"] == "default/real-lb").count();
    assert_eq!((again, rig.count_events("real-lb", "SyncLoadBalancerFailed").await), (0, 0));

    rig.patch_service("real-lb", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "real-lb-2").await;
    for name in ["real-lb", "real-lb-2"] {
        rig.until(LONG, "gone", async |rig| rig.service(name).await.is_none().then_some(())).await;
    }
    manager.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn routes_are_made_and_the_condition_is_taken_over_beside_the_others() {
    let Some(rig) = Rig::real("suite-routes", "interfaces: {routes: true}").await else { return };
    let name = "real-routes";
    rig.create(node(name).provider_id(&id(&rig, name)).pod_cidr("10.88.1.0/24").with(|node| {
        let plugin = json!({"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"});
        node["status"]["conditions"].as_array_mut().unwrap().push(plugin);
    }))
    .await;
    let args = ["--controllers=route", "--configure-cloud-routes=true", "--cluster-cidr=10.88.0.0/16"];
    let manager = rig.start(&[&args[..], &["--route-reconciliation-period=500ms"]].concat()).await;
    let reported = rig
        .until_node(name, "reported", |node| {
            node.condition("NetworkUnavailable").is_some_and(|c| c["reason"] == "RouteCreated")
        })
        .await;
    assert_eq!(reported.condition("Ready").unwrap()["status"], "True");
    let lists = rig.cloud.calls("ListRoutes").len();
    rig.until_calls("ListRoutes", lists + 3).await;
    assert_eq!(rig.node(name).await.unwrap().version(), reported.version(), "at rest nothing is written");
    // Other tests have their own nodes on this server.
    let of_ours =
        |call: &str| rig.cloud.calls(call).iter().filter(|call| call.to_string().contains("10.88.1.0/24")).count();
    assert_eq!(of_ours("CreateRoute"), 1);
    rig.delete("nodes", "", name).await;
    rig.until(LONG, "its route is deleted", async |_| (of_ours("DeleteRoute") > 0).then_some(())).await;
    manager.stop().await.unwrap();
}

/// Writers rely on this to distinguish a recreated object from a conflict.
#[tokio::test(flavor = "multi_thread")]
async fn a_patch_for_another_uid_is_refused_in_words_that_say_so() {
    let Some(rig) = Rig::real("suite-uid", "").await else { return };
    rig.create(node("real-uid")).await;
    rig.create(service("real-uid").with(|s| s["spec"]["type"] = "ClusterIP".into())).await;
    let kubeconfig = rig.bed().kubeconfig().display().to_string();
    let options = ConnectOptions { kubeconfig, ..ConnectOptions::default() };
    let client = Client::connect(&options, ccm_runtime::Metrics::new()).await.unwrap();
    let patch = json!({"metadata": {"uid": "00000000-0000-0000-0000-000000000000"}, "status": {"conditions": [
        {"type": "Test", "status": "True", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-01T00:00:00Z"}]}});
    for path in ["nodes/real-uid", "nodes/real-uid/status", "namespaces/default/services/real-uid/status"] {
        let refused = client.send(&Call::strategic(format!("/api/v1/{path}"), &patch)).await.unwrap_err();
        assert!(GateError::Api(refused.clone()).is_other_object(), "{path}: {refused}");
    }
    rig.delete("nodes", "", "real-uid").await;
    rig.delete("services", "default", "real-uid").await;
}
