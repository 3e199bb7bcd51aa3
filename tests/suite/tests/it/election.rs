//! Several replicas.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm::Exit;
use ccm_provider::{
    CloudProvider, LoadBalancer, LoadBalancerStatus, ProviderContext, ProviderError, Scope, Service, ServiceAnswer,
    ServiceWork,
};
use ccm_test_apiserver::{Fault, Match};
use ccm_test_suite::{Rig, Running, node, service};
use parking_lot::Mutex;
use serde_json::json;
use tokio::time::Instant;

const ELECT: &str = "--leader-elect=true";
const MINUTE: Duration = Duration::from_secs(60);

async fn holder(rig: &Rig) -> String {
    let lease = rig.get("leases", "kube-system", "cloud-controller-manager").await;
    lease.map(|lease| lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()).unwrap_or_default()
}

/// Starts a manager and waits until it leads.
async fn leader(rig: &Rig) -> Running {
    let initialized = rig.cloud.calls("Initialize").len();
    let leader = rig.start(&[ELECT]).await;
    rig.until_calls("Initialize", initialized + 1).await;
    leader
}

/// The time until a node that is created now is initialized.
async fn time_to_initialize(rig: &Rig, name: &str, limit: Duration) -> Duration {
    let began = Instant::now();
    rig.create(node(name).uninitialized()).await;
    let done = async |rig: &Rig| rig.node(name).await.filter(|node| !node.is_uninitialized()).map(|_| ());
    rig.until(limit, "initialized", done).await;
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_follower_neither_initializes_the_provider_nor_writes() {
    let rig = Rig::new("").await;
    let _leader = leader(&rig).await;
    let follower = rig.start(&[ELECT]).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.cloud.calls("Initialize").len(), 1);
    assert!(follower.is_running());
    assert_eq!(follower.metric("running_managed_controllers"), None);
    assert_eq!(follower.metric("leader_election_master_status{name=\"cloud-controller-manager\"}"), Some(0.0));
}

/// A cloud that cannot be used.
struct Unusable;

#[async_trait]
impl CloudProvider for Unusable {
    fn name(&self) -> &str {
        "unusable"
    }

    async fn initialize(&self, _: ProviderContext) -> Result<(), ProviderError> {
        Err(ProviderError::unknown("the account is closed"))
    }
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_initialized_ends_the_process_and_gives_the_lease_back() {
    let rig = Rig::new("").await;
    let mut manager = rig.start_with(Arc::new(Unusable), &[ELECT]).await;
    let failure = manager.ended().await.unwrap_err();
    assert_eq!(failure.message, "the cloud provider could not be initialized: the account is closed");
    assert_eq!(holder(&rig).await, "");
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_stopped_hands_over_at_once() {
    let rig = Rig::new("").await;
    let first = leader(&rig).await;
    let second = rig.start(&[ELECT]).await;
    rig.pass(MINUTE).await;
    let before = holder(&rig).await;
    first.stop().await.unwrap();
    assert_ne!(holder(&rig).await, before, "the lease was not given back");
    let gap = time_to_initialize(&rig, "a", MINUTE).await;
    assert!(gap < Duration::from_secs(1), "{gap:?}");
    assert!(second.is_running());
    let lease = rig.get("leases", "kube-system", "cloud-controller-manager").await.unwrap();
    let reported =
        async |text: &str| rig.events(lease.name()).await.iter().filter(|event| event.contains(text)).count();
    rig.until(MINUTE, "both are reported", async |_| (reported("became leader").await == 2).then_some(())).await;
    assert_eq!(reported("stopped leading").await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_that_is_cut_off_stops_before_the_other_begins_and_ends_with_an_error() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, delay: 100ms}]").await;
    let mut first = leader(&rig).await;
    let second = rig.start(&[ELECT]).await;
    rig.pass(MINUTE).await;
    first.set_cut_off(true);
    let cut = Instant::now();
    let failure = first.ended().await.unwrap_err();
    assert_eq!((failure.message.as_str(), failure.exit.code()), ("leaderelection lost", 1));
    let ended = cut.elapsed();
    assert_eq!(rig.cloud.calls("Initialize").len(), 1, "the other one leads already after {ended:?}");
    assert!(ended <= Duration::from_secs(15), "{ended:?}");
    let gap = time_to_initialize(&rig, "a", MINUTE).await;
    assert!(ended + gap < Duration::from_secs(20), "{ended:?} {gap:?}");
    assert!(second.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_work_in_flight_before_the_lease_is_released() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, delay: 5s}]").await;
    let first = leader(&rig).await;
    let _second = rig.start(&[ELECT]).await;
    rig.create(service("slow")).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    first.ask_to_stop();
    rig.pass(Duration::from_secs(3)).await;
    assert_eq!(rig.cloud.calls("Initialize").len(), 1, "the first one still works");
    first.stop().await.unwrap();
    let ingress = &rig.service("slow").await.unwrap()["status"]["loadBalancer"]["ingress"];
    assert!(ingress.is_array(), "the work in flight was done: {ingress}");
    rig.until_calls("Initialize", 2).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_leaves_a_node_whose_instance_is_being_read_to_the_next_leader() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, node: slow, delay: 5s}]").await;
    let first = leader(&rig).await;
    let _second = rig.start(&[ELECT]).await;
    rig.create(node("slow").uninitialized()).await;
    rig.until_calls("InstanceMetadata", 1).await;
    let asked = Instant::now();
    first.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(1), "{:?}", asked.elapsed());
    assert_eq!(rig.writes_of("nodes", "slow").len(), 0);
    rig.until_node("slow", "is initialized", |node| !node.is_uninitialized()).await;
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_list() {
    for fault in [Fault::status(403), Fault::latency(MINUTE)] {
        for kind in ["nodes", "services"] {
            let rig = Rig::new("interfaces: {routes: true}").await;
            rig.faults().add(fault.clone().on(Match::of(kind)));
            let routes = ["--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/14"];
            let leader = rig.start(&[&[ELECT], &routes[..]].concat()).await;
            rig.until_calls("Initialize", 1).await;
            rig.pass(Duration::from_secs(10)).await;
            rig.lap();
            leader.stop().await.unwrap();
            let took = rig.lap();
            assert!(took < Duration::from_secs(1), "{kind}, {fault:?}: {took:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_read_about_a_service() {
    for read in
        ["before a clean-up", "of a Service that is gone", "of hosts that may go", "after a host update", "of drift"]
    {
        let rig = Rig::new("").await;
        rig.create(node("n").provider_id("fake://n")).await;
        rig.create(service("s")).await;
        let leader = rig.start(&[ELECT, "--controllers=service", "--drift-check-period=1m"]).await;
        rig.until_event("s", "EnsuredLoadBalancer").await;
        let _release = rig.cloud.hold("gate");
        rig.cloud.write("faults: [{call: [GetLoadBalancer, InstanceExists, Lookup], hold: gate}]");
        match read {
            "before a clean-up" => rig.delete("services", "default", "s").await,
            "of a Service that is gone" => {
                rig.faults().add(Fault::latency(MINUTE).on(Match::on("get", "services")));
                rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
                rig.delete("services", "default", "s").await;
            }
            "of hosts that may go" => {
                rig.delete("nodes", "", "n").await;
                rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
            }
            "after a host update" => {
                rig.cloud
                    .write("faults: [{call: GetLoadBalancer, hold: gate}, {call: UpdateLoadBalancer, error: broken}]");
                rig.create(node("m").provider_id("fake://m")).await;
            }
            _ => rig.pass(MINUTE).await,
        }
        rig.pass(Duration::from_secs(5)).await;
        rig.lap();
        leader.stop().await.unwrap();
        let took = rig.lap();
        assert!(took < Duration::from_secs(1), "{read}: {took:?}");
        assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 0, "{read}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_amid_many_new_nodes_ends_the_writes_in_flight_and_begins_no_more_before_the_lease_goes() {
    let rig = Rig::new("").await;
    let first = leader(&rig).await;
    rig.faults().add(Fault::latency(Duration::from_secs(2)).on(Match::on("patch", "nodes")));
    for number in 0..200 {
        rig.create(node(&format!("n{number}")).uninitialized()).await;
    }
    let requests = || rig.store().log().count_of("patch", "nodes");
    rig.until(MINUTE, "writes of nodes", async |rig| (!rig.writes().is_empty()).then_some(())).await;
    let (asked, written) = (Instant::now(), rig.writes().len());
    first.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(3), "{:?}", asked.elapsed());
    let log = rig.store().log().remote_writes();
    let after = log.split(|write| write.resource == "leases").next_back().unwrap();
    assert!(after.iter().all(|write| write.resource == "events"), "written after the lease was given back: {after:?}");
    // The maximum number of writes in flight.
    assert!(rig.writes().len() - written <= 32, "{written} before and {} after", rig.writes().len());
    assert!(rig.writes().iter().all(|write| write.status == 200));
    let ended = requests();
    rig.pass(MINUTE).await;
    assert_eq!((requests(), holder(&rig).await), (ended, String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_call_that_never_ends_holds_up_a_shutdown_for_a_limited_time_only() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, hold: gate, times: 1}]").await;
    let _release = rig.cloud.hold("gate");
    let first = leader(&rig).await;
    let _second = rig.start(&[ELECT]).await;
    rig.create(service("stuck")).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.lap();
    first.stop().await.unwrap();
    let took = rig.lap();
    assert!(took < Duration::from_secs(25), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_shutdown_drops_settles_before_another_process_leads() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, hold: gate, times: 1}]").await;
    let _release = rig.cloud.hold("gate");
    let first = leader(&rig).await;
    let _second = rig.start(&[ELECT]).await;
    rig.create(service("stuck")).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    first.ask_to_stop();
    rig.until(MINUTE, "dropped", async |rig| (rig.cloud.ended("EnsureLoadBalancer").len() == 1).then_some(())).await;
    rig.lap();
    rig.until_calls("Initialize", 2).await;
    let took = rig.lap();
    assert!(took >= Duration::from_secs(4), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_write_that_a_failed_start_drops_settles_before_another_process_leads() {
    let rig = Rig::new("interfaces: {routes: true}\nfaults: [{call: EnsureLoadBalancer, hold: gate, times: 1}]").await;
    let _release = rig.cloud.hold("gate");
    rig.create(service("stuck")).await;
    // The route controller, which starts last, has no pod ranges.
    let args =
        [ELECT, "--controllers=service,route", "--controller-start-interval=2s", "--configure-cloud-routes=true"];
    let mut first = rig.start(&args).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    let _second = rig.start(&[ELECT]).await;
    rig.until(MINUTE, "dropped", async |rig| (rig.cloud.ended("EnsureLoadBalancer").len() == 1).then_some(())).await;
    rig.lap();
    rig.until_calls("Initialize", 2).await;
    let took = rig.lap();
    assert!(took >= Duration::from_secs(4), "{took:?}");
    let failure = first.ended().await.unwrap_err();
    assert!(failure.message.contains("--cluster-cidr is empty"), "{}", failure.message);
}

#[tokio::test(start_paused = true)]
async fn the_events_of_work_that_ends_during_a_shutdown_are_written() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, delay: 2s}]").await;
    let names: Vec<String> = (0..30).map(|number| format!("s{number}")).collect();
    for name in &names {
        rig.create(service(name)).await;
    }
    let first = leader(&rig).await;
    rig.until_calls("EnsureLoadBalancer", names.len()).await;
    rig.faults().add(Fault::latency(Duration::from_millis(200)).on(Match::on("create", "events")));
    first.stop().await.unwrap();
    for name in &names {
        assert_eq!(rig.count_events(name, "EnsuredLoadBalancer").await, 1, "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restarted_leader_is_another_candidate_and_waits() {
    let rig = Rig::new("").await;
    let first = leader(&rig).await;
    rig.pass(MINUTE).await;
    let before = holder(&rig).await;
    first.kill();
    let _again = rig.start(&[ELECT]).await;
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.cloud.calls("Initialize").len(), 1, "the lease of the dead one still runs");
    rig.until_calls("Initialize", 2).await;
    assert_ne!(holder(&rig).await, before);
}

#[tokio::test(start_paused = true)]
async fn five_replicas_that_come_and_go_never_lead_together() {
    let rig = Rig::new("").await;
    let mut replicas = Vec::new();
    for _ in 0..5 {
        replicas.push(rig.start(&[ELECT]).await);
    }
    rig.until_calls("Initialize", 1).await;
    for round in 1..=8 {
        let leads = |replica: &Running| {
            replica.metric("leader_election_master_status{name=\"cloud-controller-manager\"}") == Some(1.0)
        };
        rig.pass(Duration::from_secs(20)).await;
        let leading: Vec<usize> = (0..replicas.len()).filter(|i| leads(&replicas[*i])).collect();
        let [at] = leading[..] else { panic!("{leading:?} lead") };
        let old = replicas.remove(at);
        if round % 2 == 0 {
            old.kill();
        } else {
            old.stop().await.unwrap();
        }
        replicas.push(rig.start(&[ELECT]).await);
        rig.until_calls("Initialize", round + 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_jumps_never_makes_two_leaders() {
    for (who, seconds) in [("leader", 3600), ("leader", -3600), ("follower", 3600), ("follower", -3600)] {
        let rig = Rig::new("").await;
        let first = leader(&rig).await;
        let second = rig.start(&[ELECT]).await;
        rig.pass(MINUTE).await;
        if who == "leader" {
            first.jump(seconds);
        } else {
            second.jump(seconds);
        };
        rig.pass(10 * MINUTE).await;
        assert_eq!(rig.cloud.calls("Initialize").len(), 1, "{who} by {seconds} s");
        assert!(first.is_running() && second.is_running());
        // The follower still takes over.
        first.kill();
        let gap = time_to_initialize(&rig, "a", MINUTE).await;
        assert!(gap < Duration::from_secs(20), "{who} by {seconds} s: {gap:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_leader_whose_watch_panics_gives_the_lease_back_and_ends_with_code_1() {
    let rig = Rig::new("").await;
    let mut first = leader(&rig).await;
    let _second = rig.start(&[ELECT]).await;
    first.panic_in_watches();
    rig.create(node("a").uninitialized()).await;
    let failure = tokio::time::timeout(MINUTE, first.ended()).await.expect("it leads on, blind").unwrap_err();
    assert_eq!(
        (failure.exit, &*failure.message),
        (Exit::Error, "the watch of nodes panicked: the test wants this panic")
    );
    rig.until(Duration::from_secs(2), "the other one leads", async |rig| {
        rig.node("a").await.filter(|node| !node.is_uninitialized()).map(|_| ())
    })
    .await;
}

/// Load balancers of two writes, with a minute of the cloud's work between them.
#[derive(Clone, Default)]
struct TwoWrites(Arc<Mutex<Vec<&'static str>>>);

impl TwoWrites {
    fn log(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }

    fn note(&self, what: &'static str) {
        self.0.lock().push(what);
    }
}

#[async_trait]
impl CloudProvider for TwoWrites {
    fn name(&self) -> &str {
        "two-writes"
    }

    async fn initialize(&self, _: ProviderContext) -> Result<(), ProviderError> {
        self.note("initialize");
        Ok(())
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(self.clone()))
    }
}

#[async_trait]
impl LoadBalancer for TwoWrites {
    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn reconcile(&self, _: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer> {
        let both = async {
            scope.may_write()?;
            self.note("first write");
            scope.waiting(tokio::time::sleep(MINUTE)).await?;
            scope.may_write()?;
            self.note("second write");
            Ok(Some(LoadBalancerStatus::default()))
        };
        let result: Result<_, ProviderError> = both.await;
        work.iter().map(|_| result.clone().into()).collect()
    }
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_a_wait_for_the_cloud_and_no_write_follows_it() {
    let (rig, cloud) = (Rig::new("").await, TwoWrites::default());
    rig.create(node("n").provider_id("two-writes://n")).await;
    let args = [ELECT, "--controllers=service"];
    let first = rig.start_with(Arc::new(cloud.clone()), &args).await;
    rig.until(MINUTE, "it leads", async |_| (cloud.log() == ["initialize"]).then_some(())).await;
    let _second = rig.start_with(Arc::new(cloud.clone()), &args).await;
    rig.create(service("slow")).await;
    rig.until(MINUTE, "the first write", async |_| (cloud.log().len() == 2).then_some(())).await;
    rig.pass(Duration::from_secs(5)).await;
    rig.lap();
    first.stop().await.unwrap();
    let took = rig.lap();
    assert!(took < Duration::from_secs(2), "{took:?}");
    rig.pass(2 * MINUTE).await;
    // The next leader finds the work by itself.
    assert_eq!(cloud.log(), ["initialize", "first write", "initialize", "first write", "second write"]);
    assert_eq!(rig.count_events("slow", "SyncLoadBalancerFailed").await, 0);
}
