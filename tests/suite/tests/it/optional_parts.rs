//! Optional parts of a provider: pod ranges of the cloud, a service controller for classes, nodes that another program
//! manages.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{
    CloudConfig, CloudProvider, FlagValues, LoadBalancer, LoadBalancerIngress, LoadBalancerStatus, NodeRef,
    OneByOneBalancers, PodInterface, PodRanges, ProviderError, ProviderFactory, Service, ServiceControllerSpec,
    SingleLoadBalancer,
};
use ccm_test_apiserver::{Fault, Match};
use ccm_test_suite::{Make, Object, Rig, Running, node, service};
use parking_lot::Mutex;
use serde_json::{Value, json};

const CLASS: &str = "example.com/l4";
const UNMANAGED: (&str, &str) = ("example.com/unmanaged", "true");
const BOTH: &str = "--controllers=service,x-service";
const CLOUD: [&str; 2] = ["--allocate-node-cidrs=true", "--cidr-allocator-type=CloudAllocator"];
const MINUTE: Duration = Duration::from_secs(60);

/// A cloud. Every call takes some time.
#[derive(Clone, Default)]
struct Cloud(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The ranges of the only interface of each instance.
    ranges: BTreeMap<String, Vec<String>>,
    /// Nodes in each read of ranges.
    reads: Vec<usize>,
    /// The load balancers, by UID.
    made: Vec<String>,
    /// The work in progress, by name.
    at_work: Vec<String>,
    calls: Vec<String>,
    node_selector: Option<&'static str>,
    /// The node at which a read of ranges hangs.
    hangs_at: Option<&'static str>,
}

#[async_trait]
impl ProviderFactory for Cloud {
    fn name(&self) -> &'static str {
        "x"
    }

    fn service_controllers(&self) -> &'static [ServiceControllerSpec] {
        &[ServiceControllerSpec {
            name: "x-service-lb-controller",
            aliases: &["x-service"],
            client_name: "x-service-controller",
            classes: &[CLASS],
            metrics_prefix: "x",
        }]
    }

    fn on_by_default(&self) -> &'static [&'static str] {
        &["node-ipam-controller"]
    }

    async fn build(&self, _: Option<CloudConfig>, _: &FlagValues) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        Ok(Arc::new(self.clone()))
    }
}

impl CloudProvider for Cloud {
    fn name(&self) -> &str {
        "x"
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(OneByOneBalancers(self.clone())))
    }

    fn pod_ranges(&self) -> Option<Arc<dyn PodRanges>> {
        Some(Arc::new(self.clone()))
    }

    fn unmanaged_label(&self) -> Option<(&str, &str)> {
        Some(UNMANAGED)
    }

    fn node_selector(&self) -> Option<&str> {
        self.0.lock().node_selector
    }
}

#[async_trait]
impl PodRanges for Cloud {
    async fn pod_ranges(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let hangs_at = self.0.lock().hangs_at;
        if nodes.iter().any(|node| Some(&*node.name) == hangs_at) {
            std::future::pending::<()>().await;
        }
        let mut state = self.0.lock();
        state.reads.push(nodes.len());
        let interfaces = |ranges: &Vec<String>| vec![PodInterface { primary: true, ranges: ranges.clone() }];
        let one = |node: &NodeRef| state.ranges.get(&*node.name).map(interfaces).ok_or(ProviderError::InstanceNotFound);
        nodes.iter().map(one).collect()
    }
}

impl Cloud {
    async fn work(&self, verb: &str, service: &Service) {
        let (uid, name) = (service.metadata.uid.to_string(), service.metadata.name.to_string());
        {
            let mut state = self.0.lock();
            state.calls.push(format!("{verb} {name}"));
            assert!(!state.at_work.contains(&name), "two calls for {name} at once: {:?}", state.calls);
            state.at_work.push(name.clone());
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
        let mut state = self.0.lock();
        state.at_work.retain(|other| *other != name);
        state.made.retain(|other| *other != uid);
        if verb != "delete" {
            state.made.push(uid);
        }
    }

    /// The calls for a Service since the previous call of this function.
    fn calls(&self, name: &str) -> Vec<String> {
        let mut state = self.0.lock();
        let (of, others) = std::mem::take(&mut state.calls).into_iter().partition(|call| call.ends_with(name));
        state.calls = others;
        of
    }

    fn set_ranges(&self, node: &str, ranges: &[&str]) {
        let ranges = ranges.iter().map(ToString::to_string).collect();
        self.0.lock().ranges.insert(node.to_owned(), ranges);
    }
}

#[async_trait]
impl SingleLoadBalancer for Cloud {
    async fn get(&self, _: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let made = self.0.lock().made.iter().any(|uid| **uid == *service.metadata.uid);
        Ok(made.then(LoadBalancerStatus::default))
    }

    async fn ensure(
        &self,
        _: &str,
        service: &Service,
        _: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.work("ensure", service).await;
        let ingress = LoadBalancerIngress { ip: "203.0.113.1".into(), ..LoadBalancerIngress::default() };
        Ok(Some(LoadBalancerStatus { ingress: vec![ingress] }))
    }

    async fn update(&self, _: &str, service: &Service, _: &[NodeRef]) -> Result<(), ProviderError> {
        self.work("update", service).await;
        Ok(())
    }

    async fn ensure_deleted(&self, _: &str, service: &Service) -> Result<(), ProviderError> {
        self.work("delete", service).await;
        Ok(())
    }
}

fn of_class(name: &str) -> Make {
    service(name).with(|object| object["spec"]["loadBalancerClass"] = json!(CLASS))
}

fn has_address(service: &Object) -> bool {
    !service.ingress().is_empty()
}

/// A manager, and a Service `s` of the class with its load balancer.
async fn balanced() -> (Rig, Running, Cloud) {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    rig.create(of_class("s")).await;
    let manager = rig.start_of(Arc::new(cloud.clone()), &[BOTH]).await;
    rig.until_service("s", "has an address", has_address).await;
    assert_eq!(cloud.calls("s"), ["ensure s"]);
    (rig, manager, cloud)
}

async fn until_gone(rig: &Rig, name: &str) {
    rig.until(MINUTE, "the Service is gone", async |rig| rig.service(name).await.is_none().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_service_of_a_class_is_made_and_deleted_by_the_controller_of_the_class_alone() {
    let (rig, manager, cloud) = balanced().await;
    rig.create(service("plain")).await;
    rig.create(of_class("other").with(|object| object["spec"]["loadBalancerClass"] = json!("example.com/else"))).await;
    rig.until_service("plain", "has an address", has_address).await;
    rig.delete("services", "default", "s").await;
    until_gone(&rig, "s").await;
    rig.delete("services", "default", "plain").await;
    until_gone(&rig, "plain").await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls("s"), ["delete s"]);
    assert_eq!(cloud.calls("plain"), ["ensure plain", "delete plain"]);
    assert_eq!(cloud.calls("other"), [""; 0]);
    assert_eq!(rig.count_events("s", "DeletedLoadBalancer").await, 1);
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 0);
    let running = |name: &str| {
        manager.metric(&format!("running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{name}\"}}"))
    };
    assert_eq!((running("service"), running("x-service")), (Some(1.0), Some(1.0)));
    assert!(manager.metrics().contains("\nx_service_controller_loadbalancer_sync_total 0\n"));
}

#[tokio::test(start_paused = true)]
async fn a_service_whose_class_goes_with_its_type_is_cleaned_up_once() {
    let (rig, _manager, cloud) = balanced().await;
    // While the controller of the class ensures it again.
    rig.patch_service("s", json!({"metadata": {"annotations": {"x": "1"}}})).await;
    rig.pass(Duration::from_secs(1)).await;
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP", "loadBalancerClass": null}})).await;
    let clean = |service: &Object| service.finalizers().is_empty() && !has_address(service);
    rig.until_service("s", "is cleaned up", clean).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls("s"), ["ensure s", "delete s"]);
    assert_eq!(rig.count_events("s", "DeletedLoadBalancer").await, 1);
    // Without a class it belongs to the standard controller.
    rig.patch_service("s", json!({"spec": {"type": "LoadBalancer"}})).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    rig.until_service("s", "is cleaned up", clean).await;
    assert_eq!(cloud.calls("s"), ["ensure s", "delete s"]);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_the_running_controller_deletes_the_balancer_of_a_class() {
    for (args, on) in [(BOTH, true), ("--controllers=service", false)] {
        let (rig, manager, cloud) = balanced().await;
        manager.stop().await.unwrap();
        rig.delete("services", "default", "s").await;
        let manager = rig.start_of(Arc::new(cloud.clone()), &[args]).await;
        until_gone(&rig, "s").await;
        assert_eq!(cloud.calls("s"), ["delete s"], "{args}");
        assert_eq!(manager.metrics().contains("x_service_controller_"), on, "{args}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_controller_for_classes_is_off_unless_it_is_named() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    rig.create(of_class("s")).await;
    let _manager = rig.start_of(Arc::new(cloud.clone()), &[]).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls("s"), [""; 0]);
    assert_eq!(rig.service("s").await.unwrap().finalizers(), [""; 0]);
}

fn cidrs(node: &Object) -> String {
    let list = node["spec"]["podCIDRs"].as_array().cloned().unwrap_or_default();
    assert_eq!(list.first().and_then(Value::as_str), node["spec"]["podCIDR"].as_str());
    list.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(",")
}

fn is_reachable(node: &Object) -> bool {
    node.condition("NetworkUnavailable").is_some_and(|condition| condition["status"] == "False")
}

fn instance(name: &str) -> Make {
    node(name).provider_id(&format!("x://{name}"))
}

/// Writes to nodes, as `status name/subresource`.
fn writes(rig: &Rig) -> Vec<String> {
    let nodes = rig.writes().into_iter().filter(|write| write.resource == "nodes");
    nodes.map(|write| format!("{} {}/{}", write.status, write.name, write.subresource)).collect()
}

#[tokio::test(start_paused = true)]
async fn nodes_get_the_ranges_of_their_instances_by_default_and_then_nothing_is_written_or_asked() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    for name in ["a", "b"] {
        cloud.set_ranges(name, &[&format!("10.0.{}.0/24", u8::from(name == "b")), "fd00:1::/112"]);
        rig.create(instance(name)).await;
    }
    rig.create(instance("theirs").label(UNMANAGED.0, UNMANAGED.1)).await;
    rig.create(node("foreign").provider_id("other://1")).await;
    let services = "--service-cluster-ip-range=fd01::/112,10.96.0.0/20";
    let manager = rig.start_of(Arc::new(cloud.clone()), &[&CLOUD[..], &[services]].concat()).await;
    let began = tokio::time::Instant::now();
    let b = rig.until_node("b", "is reachable", is_reachable).await;
    rig.until_node("a", "is reachable", is_reachable).await;
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
    assert_eq!(cidrs(&b), "fd00:1::/112,10.0.1.0/24");
    let condition = b.condition("NetworkUnavailable").unwrap();
    assert_eq!(condition["reason"], "RouteCreated");
    assert_eq!(condition["message"], "NodeController create implicit route");
    let mut written = writes(&rig);
    written.sort();
    assert_eq!(written, ["200 a/", "200 a/status", "200 b/", "200 b/status"]);

    rig.store().log().clear();
    for beat in 0..20 {
        rig.patch_node("a", json!({"metadata": {"annotations": {"beat": beat.to_string()}}})).await;
        rig.pass(MINUTE).await;
    }
    assert_eq!(writes(&rig), [""; 0]);
    assert_eq!(cloud.0.lock().reads, [2], "one read for both nodes");
    // The label is removed, so the program manages the node.
    cloud.set_ranges("theirs", &["fd00:3::/112", "10.0.3.0/24"]);
    rig.patch_node("theirs", json!({"metadata": {"labels": {(UNMANAGED.0): null}}})).await;
    rig.until_node("theirs", "is reachable", is_reachable).await;
    assert_eq!(cidrs(&rig.node("foreign").await.unwrap()), "");
    assert!(manager.is_running());
}

#[tokio::test(start_paused = true)]
async fn nodes_that_the_selector_does_not_match_do_not_exist() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    cloud.0.lock().node_selector = Some("pool!=other,pool");
    for (name, pool) in [("a", "x"), ("b", "other"), ("c", "y")] {
        cloud.set_ranges(name, &[&format!("10.0.{}.0/24", name.as_bytes()[0])]);
        rig.create(instance(name).label("pool", pool)).await;
    }
    let _manager = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    rig.until_node("a", "is reachable", is_reachable).await;
    rig.until_node("c", "is reachable", is_reachable).await;
    rig.pass(MINUTE).await;
    assert_eq!(cidrs(&rig.node("b").await.unwrap()), "");
    rig.patch_node("b", json!({"metadata": {"labels": {"pool": "x"}}})).await;
    rig.until_node("b", "is reachable", is_reachable).await;
}

#[tokio::test(start_paused = true)]
async fn five_hundred_nodes_that_join_cost_a_read_a_second_at_most() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    let _manager = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    let began = tokio::time::Instant::now();
    for index in 0..500 {
        let name = format!("n{index}");
        cloud.set_ranges(&name, &[&format!("10.{}.{}.0/24", index / 256, index % 256)]);
        rig.create(instance(&name)).await;
        rig.pass(Duration::from_millis(20)).await;
    }
    let all = async |rig: &Rig| rig.list("nodes").await.iter().all(is_reachable).then_some(());
    rig.until(MINUTE, "all nodes are reachable", all).await;
    let reads = cloud.0.lock().reads.len();
    assert!(reads as u64 <= began.elapsed().as_secs() + 2, "{reads} reads in {:?}", began.elapsed());
    assert_eq!(writes(&rig).len(), 1000);
}

#[tokio::test(start_paused = true)]
async fn a_node_at_which_the_cloud_hangs_does_not_hold_up_others() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    cloud.0.lock().hangs_at = Some("n7");
    for index in 0..40 {
        let name = format!("n{index}");
        cloud.set_ranges(&name, &[&format!("10.0.{index}.0/24")]);
        rig.create(instance(&name)).await;
    }
    let _manager = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    let lacking = async |rig: &Rig| rig.list("nodes").await.iter().filter(|node| !is_reachable(node)).count();
    // Some share its part at first.
    rig.until(3 * MINUTE, "nearly all", async |rig| (lacking(rig).await <= 3).then_some(())).await;
    rig.until(3 * MINUTE, "all others", async |rig| (lacking(rig).await == 1).then_some(())).await;
    // It hangs on; nodes that come now do not wait.
    cloud.set_ranges("late", &["10.1.0.0/24"]);
    rig.create(instance("late")).await;
    rig.until(Duration::from_secs(5), "the late one", async |rig| (lacking(rig).await == 1).then_some(())).await;
    assert!(!is_reachable(&rig.node("n7").await.unwrap()));
    cloud.0.lock().hangs_at = None;
    rig.until(5 * MINUTE, "the last one", async |rig| (lacking(rig).await == 0).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_read_of_pod_ranges() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    cloud.0.lock().hangs_at = Some("n");
    rig.create(instance("n")).await;
    let manager = rig.start_of(Arc::new(cloud), &CLOUD).await;
    rig.pass(Duration::from_secs(5)).await;
    rig.lap();
    manager.stop().await.unwrap();
    let took = rig.lap();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_dies_between_the_two_writes_leaves_the_second_to_the_next() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    cloud.set_ranges("a", &["10.0.0.0/24"]);
    rig.create(instance("a")).await;
    let status = Fault::status(500).on(Match::on("patch", "nodes").subresource("status"));
    let fault = rig.faults().add(status);
    let manager = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    rig.until_node("a", "has a range", |node| !cidrs(node).is_empty()).await;
    rig.pass(MINUTE).await;
    assert!(!is_reachable(&rig.node("a").await.unwrap()));
    manager.kill();
    rig.faults().remove(fault);
    let _next = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    rig.until_node("a", "is reachable", is_reachable).await;
}

#[tokio::test(start_paused = true)]
async fn an_instance_without_range_is_an_event_and_its_node_is_served_once_it_has_one() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    cloud.set_ranges("a", &[]);
    rig.create(instance("a")).await;
    let manager = rig.start_of(Arc::new(cloud.clone()), &CLOUD).await;
    let event = rig.until_event("a", "CIDRNotAvailable").await;
    let text = "Node a status is now: CIDRNotAvailable (failed to allocate cidr: Node a has no ranges from which CIDRs can be \
                allocated";
    assert!(event.contains(text), "{event}");
    rig.pass(10 * MINUTE).await;
    assert_eq!(manager.metric("workqueue_dropped_objects{name=\"cloudCIDRAllocator\"}"), Some(1.0));
    assert_eq!(cloud.0.lock().reads.len(), 21);
    cloud.set_ranges("a", &["10.0.0.0/24"]);
    // The next report of its kubelet.
    rig.set_ready("a", "False").await;
    rig.until_node("a", "is reachable", is_reachable).await;
}

#[tokio::test(start_paused = true)]
async fn without_allocate_node_cidrs_the_others_run_and_without_ranges_of_the_cloud_nothing_does() {
    let (rig, cloud) = (Rig::new("").await, Cloud::default());
    rig.create(service("s")).await;
    let _manager = rig.start_of(Arc::new(cloud.clone()), &["--allocate-node-cidrs=false"]).await;
    rig.until_service("s", "has an address", has_address).await;
    // The fake cloud has no ranges for instances.
    let mut manager = rig.start(&[&CLOUD[..], &["--controllers=nodeipam"]].concat()).await;
    let failure = manager.ended().await.unwrap_err();
    let text = "cloudCIDRAllocator does not support fake provider";
    assert!(failure.message.starts_with(text), "{}", failure.message);
}
