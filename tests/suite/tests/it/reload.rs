//! A provider configuration that changes while the program runs.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm::Failure;
use ccm_provider::{
    CloudConfig, CloudProvider, ConfigSource, FlagValues, InstanceMetadata, InstancesV2, LoadBalancer,
    LoadBalancerIngress, LoadBalancerStatus, Node, NodeRef, OneByOne, OneByOneBalancers, ProviderContext,
    ProviderError, ProviderFactory, Service, SingleInstances, SingleLoadBalancer,
};
use ccm_test_suite::{Object, Rig, Running, node, service};
use parking_lot::Mutex;
use tokio::time::Instant;

const ELECT: &str = "--leader-elect=true";
const LEASE: &str = "cloud-controller-manager";
const MINUTE: Duration = Duration::from_secs(60);

/// A cloud whose configuration is one word: its region. With `bad` the factory fails, with `closed` the initialization,
/// and with `late` the factory for the first few times.
#[derive(Clone)]
struct Cloud {
    calls: Arc<Mutex<Vec<String>>>,
    /// Why the factory fails with `late`, the next reason last.
    failures: Arc<Mutex<Vec<&'static str>>>,
    reloads: bool,
    region: String,
    /// The duration of the creation of a load balancer.
    takes: Duration,
}

impl Cloud {
    fn new() -> Self {
        let (calls, failures) = Default::default();
        Self { calls, failures, reloads: true, region: String::new(), takes: Duration::from_secs(5) }
    }

    fn note(&self, what: &str) {
        self.calls.lock().push(format!("{} {what}", self.region));
    }

    fn calls(&self) -> Vec<String> {
        self.calls.lock().clone()
    }

    async fn until(&self, rig: &Rig, call: &str) {
        let seen = async |_: &Rig| self.calls().iter().any(|seen| seen == call).then_some(());
        rig.until(MINUTE, &format!("{call:?} in {:?}", self.calls()), seen).await;
    }
}

#[async_trait]
impl ProviderFactory for Cloud {
    fn name(&self) -> &'static str {
        "x"
    }

    fn config_source(&self, _: &FlagValues) -> ConfigSource {
        ConfigSource { secret: None, reload: self.reloads }
    }

    async fn build(
        &self,
        config: Option<CloudConfig>,
        _: &FlagValues,
    ) -> Result<Arc<dyn CloudProvider>, ProviderError> {
        match config.unwrap().text.trim() {
            "bad" => Err(ProviderError::unknown("\"bad\" is no region")),
            "panic" => panic!("thirteen"),
            region => match self.failures.lock().pop().filter(|_| region == "late") {
                Some(failure) => Err(ProviderError::unknown(failure)),
                None => Ok(Arc::new(Self { region: region.to_owned(), ..self.clone() })),
            },
        }
    }
}

#[async_trait]
impl CloudProvider for Cloud {
    fn name(&self) -> &str {
        "x"
    }

    async fn initialize(&self, context: ProviderContext) -> Result<(), ProviderError> {
        if self.region == "closed" {
            return Err(ProviderError::unknown("the account is closed"));
        }
        self.note("initialized");
        let cloud = self.clone();
        tokio::spawn(async move {
            context.leader.lost().await;
            cloud.note("is to end");
        });
        Ok(())
    }

    fn instances(&self) -> Option<Arc<dyn InstancesV2>> {
        Some(Arc::new(OneByOne::new(self.clone(), 8)))
    }

    fn load_balancer(&self) -> Option<Arc<dyn LoadBalancer>> {
        Some(Arc::new(OneByOneBalancers(self.clone())))
    }
}

#[async_trait]
impl SingleInstances for Cloud {
    async fn exists(&self, _: &Node) -> Result<bool, ProviderError> {
        Ok(true)
    }

    async fn shutdown(&self, _: &Node) -> Result<bool, ProviderError> {
        Ok(false)
    }

    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        let (provider_id, region) = (format!("x://{}", node.name), self.region.clone());
        Ok(Some(InstanceMetadata { provider_id, region, ..InstanceMetadata::default() }))
    }
}

/// Records a dropped call.
struct InFlight<'a>(&'a Cloud, bool);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.note(if self.1 { "made" } else { "dropped" });
    }
}

#[async_trait]
impl SingleLoadBalancer for Cloud {
    async fn get(&self, _: &str, _: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        Ok(None)
    }

    async fn ensure(&self, _: &str, _: &Service, _: &[NodeRef]) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.note("making");
        let mut call = InFlight(self, false);
        tokio::time::sleep(self.takes).await;
        call.1 = true;
        let ingress = LoadBalancerIngress { hostname: self.region.clone(), ..LoadBalancerIngress::default() };
        Ok(Some(LoadBalancerStatus { ingress: vec![ingress] }))
    }

    async fn update(&self, _: &str, _: &Service, _: &[NodeRef]) -> Result<(), ProviderError> {
        Ok(())
    }

    async fn ensure_deleted(&self, _: &str, _: &Service) -> Result<(), ProviderError> {
        Ok(())
    }
}

/// Replaces the file atomically.
fn write(rig: &Rig, text: &str) {
    rig.cloud.write_raw(text);
}

async fn started(cloud: Cloud) -> (Rig, Running, Cloud) {
    started_with(cloud, &[ELECT]).await
}

async fn started_with(cloud: Cloud, args: &[&str]) -> (Rig, Running, Cloud) {
    let rig = Rig::new("").await;
    write(&rig, "a");
    rig.create(node("host").provider_id("x://host")).await;
    let manager = rig.start_of(Arc::new(cloud.clone()), args).await;
    cloud.until(&rig, "a initialized").await;
    (rig, manager, cloud)
}

/// The region of a node that is created now.
async fn region(rig: &Rig, name: &str) -> String {
    rig.create(node(name).uninitialized()).await;
    let node = rig.until_node(name, "initialized", |node| !node.is_uninitialized()).await;
    node.label("topology.kubernetes.io/region").to_owned()
}

fn reloads(manager: &Running, outcome: &str) -> Option<f64> {
    manager.metric(&format!("ccm_cloud_config_reloads_total{{outcome=\"{outcome}\"}}"))
}

async fn lease(rig: &Rig) -> Object {
    rig.get("leases", "kube-system", LEASE).await.unwrap()
}

/// Whether a lease was held without interruption.
fn is_held(before: &Object, now: &Object) -> bool {
    ["holderIdentity", "leaseTransitions", "acquireTime"]
        .iter()
        .all(|field| now["spec"][*field] == before["spec"][*field])
}

#[tokio::test(start_paused = true)]
async fn a_changed_file_takes_effect_with_lease_and_stores_kept() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    assert_eq!(region(&rig, "before").await, "a");
    let log = rig.store().log();
    let reads = || ["list", "watch"].map(|verb| log.count_of(verb, "nodes") + log.count_of(verb, "services"));
    let (held, read) = (lease(&rig).await, reads());
    write(&rig, "b");
    cloud.until(&rig, "b initialized").await;
    assert_eq!(region(&rig, "after").await, "b");
    assert_eq!(rig.node("before").await.unwrap().label("topology.kubernetes.io/region"), "a");
    assert_eq!(cloud.calls(), ["a initialized", "a is to end", "b initialized"]);

    assert!(is_held(&held, &lease(&rig).await));
    assert_eq!(reads(), read);
    rig.until_event(LEASE, "CloudConfigReloaded").await;
    assert_eq!((reloads(&manager, "applied"), reloads(&manager, "refused")), (Some(1.0), None));
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(0.0));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn work_in_flight_ends_before_the_next_provider_begins() {
    let (rig, manager, cloud) = started(Cloud { takes: Duration::from_secs(18), ..Cloud::new() }).await;
    write(&rig, "b");
    // The change is detected after 11 s.
    rig.pass(Duration::from_secs(5)).await;
    rig.create(service("s")).await;
    cloud.until(&rig, "b made").await;
    assert_eq!(
        cloud.calls(),
        ["a initialized", "a making", "a is to end", "a made", "b initialized", "b making", "b made"]
    );
    rig.until_service("s", "has the address of b", |service| service.ingress() == ["b"]).await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_does_not_end_is_dropped_at_the_deadline() {
    let (rig, manager, cloud) = started(Cloud { takes: 2 * MINUTE, ..Cloud::new() }).await;
    rig.create(service("s")).await;
    cloud.until(&rig, "a making").await;
    let began = Instant::now();
    write(&rig, "b");
    cloud.until(&rig, "b making").await;
    assert_eq!(cloud.calls()[1..5], ["a making", "a is to end", "a dropped", "b initialized"]);
    assert!(began.elapsed() < Duration::from_secs(35), "{:?}", began.elapsed());
    drop(manager);
}

#[tokio::test(start_paused = true)]
async fn a_bad_configuration_is_reported_once_and_changes_nothing() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    write(&rig, "bad");
    let event = rig.until_event(LEASE, "CloudConfigRefused").await;
    assert!(event.contains("\"bad\" is no region"), "{event}");
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.count_events(LEASE, "CloudConfigRefused").await, 1);
    assert_eq!((reloads(&manager, "refused"), manager.metric("ccm_cloud_config_refused")), (Some(1.0), Some(1.0)));
    assert_eq!(region(&rig, "still").await, "a");

    // A panic does not end the process either.
    write(&rig, "panic");
    rig.pass(MINUTE).await;
    assert_eq!(reloads(&manager, "refused"), Some(2.0));
    write(&rig, "a");
    rig.pass(MINUTE).await;
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(0.0), "as it was");
    assert_eq!(cloud.calls(), ["a initialized"]);

    write(&rig, "b");
    cloud.until(&rig, "b initialized").await;
    assert_eq!(region(&rig, "good").await, "b");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_be_read_is_reported_after_five_minutes_and_never_as_refused() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    fs::remove_file(rig.cloud.file()).unwrap();
    rig.pass(4 * MINUTE).await;
    write(&rig, "a");
    rig.pass(MINUTE).await;
    fs::remove_file(rig.cloud.file()).unwrap();
    rig.pass(4 * MINUTE).await;
    assert_eq!(rig.count_events(LEASE, "CloudConfigUnreadable").await, 0, "a short interruption is no news");
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.count_events(LEASE, "CloudConfigUnreadable").await, 1);
    assert_eq!((reloads(&manager, "refused"), manager.metric("ccm_cloud_config_refused")), (None, Some(1.0)));
    write(&rig, "a");
    rig.pass(MINUTE).await;
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(0.0));
    assert_eq!(cloud.calls(), ["a initialized"]);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_cannot_be_initialized_gives_way_to_the_previous_one() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    write(&rig, "closed");
    let event = rig.until_event(LEASE, "CloudConfigRefused").await;
    assert!(event.contains("the account is closed"), "{event}");
    assert_eq!(region(&rig, "still").await, "a");
    rig.pass(60 * MINUTE).await;
    assert_eq!(
        cloud.calls(),
        ["a initialized", "a is to end", "a initialized"],
        "tried once: it stops the controllers"
    );
    assert_eq!((reloads(&manager, "refused"), reloads(&manager, "applied")), (Some(1.0), None));
    assert_eq!(rig.count_events(LEASE, "CloudConfigRefused").await, 1);
    write(&rig, "b");
    cloud.until(&rig, "b initialized").await;
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(0.0));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_configuration_that_cannot_be_used_yet_is_used_later() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    *cloud.failures.lock() = vec!["no such secret", "no such secret", "the login does not answer"];
    write(&rig, "late");
    rig.until_event(LEASE, "CloudConfigRefused").await;
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(1.0));
    rig.pass(8 * MINUTE).await;
    assert_eq!(cloud.calls(), ["a initialized", "a is to end", "late initialized"]);
    assert_eq!(region(&rig, "after").await, "late");
    assert_eq!((reloads(&manager, "refused"), reloads(&manager, "applied")), (Some(1.0), Some(1.0)));
    assert_eq!(manager.metric("ccm_cloud_config_refused"), Some(0.0));
    assert_eq!(rig.count_events(LEASE, "CloudConfigRefused").await, 2, "one for each reason");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_file_that_is_still_being_written_is_not_used() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    // The content changes continuously, like that of a file that is written slowly.
    for step in 0..50 {
        write(&rig, &format!("part {step}"));
        rig.pass(Duration::from_millis(900)).await;
    }
    write(&rig, "b");
    cloud.until(&rig, "b initialized").await;
    assert_eq!(cloud.calls(), ["a initialized", "a is to end", "b initialized"]);
    manager.stop().await.unwrap();
}

/// Updates a ConfigMap volume like the kubelet: a new folder, and a renamed link.
fn swap(mount: &Path, version: &str, text: &str) {
    let folder = mount.join(version);
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("cloud.conf"), text).unwrap();
    std::os::unix::fs::symlink(version, mount.join("..data_tmp")).unwrap();
    fs::rename(mount.join("..data_tmp"), mount.join("..data")).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_mounted_config_map_is_followed() {
    let (rig, cloud) = (Rig::new("").await, Cloud::new());
    let mount = rig.cloud.path("mount");
    fs::create_dir(&mount).unwrap();
    swap(&mount, "..v1", "a");
    std::os::unix::fs::symlink("..data/cloud.conf", mount.join("cloud.conf")).unwrap();
    let file = format!("--cloud-config={}", mount.join("cloud.conf").display());
    let manager = rig.start_of(Arc::new(cloud.clone()), &[&file]).await;
    cloud.until(&rig, "a initialized").await;
    swap(&mount, "..v2", "b");
    fs::remove_dir_all(mount.join("..v1")).unwrap();
    cloud.until(&rig, "b initialized").await;
    swap(&mount, "..v3", "b");
    rig.pass(10 * MINUTE).await;
    assert_eq!(reloads(&manager, "applied"), Some(1.0), "the same content again is no change");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_standby_only_takes_note() {
    let (rig, leader, cloud) = started(Cloud::new()).await;
    let standby_cloud = Cloud::new();
    let standby = rig.start_of(Arc::new(standby_cloud.clone()), &[ELECT]).await;
    write(&rig, "b");
    cloud.until(&rig, "b initialized").await;
    let noted = async |_: &Rig| (reloads(&standby, "applied") == Some(1.0)).then_some(());
    rig.until(MINUTE, "the standby has seen it", noted).await;
    assert_eq!(standby_cloud.calls(), Vec::<String>::new());
    leader.stop().await.unwrap();
    standby_cloud.until(&rig, "b initialized").await;
    assert_eq!(standby_cloud.calls(), ["b initialized"], "never with the old one");
    standby.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_signal_during_a_reload_ends_the_process_and_gives_the_lease_back() {
    let (rig, manager, cloud) = started(Cloud { takes: Duration::from_secs(18), ..Cloud::new() }).await;
    write(&rig, "b");
    rig.pass(Duration::from_secs(5)).await;
    rig.create(service("s")).await;
    cloud.until(&rig, "a is to end").await;
    let began = Instant::now();
    let ended: Result<(), Failure> = manager.stop().await;
    ended.unwrap();
    assert_eq!(cloud.calls(), ["a initialized", "a making", "a is to end", "a made"]);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    assert_eq!(lease(&rig).await["spec"]["holderIdentity"], "");
}

#[tokio::test(start_paused = true)]
async fn controllers_under_a_second_lease_are_restarted_with_both_leases_kept() {
    let (rig, manager, cloud) = started_with(Cloud::new(), &[ELECT, "--enable-leader-migration"]).await;
    rig.create(service("s")).await;
    rig.until_service("s", "has an address", |service| service.ingress() == ["a"]).await;
    let second = async || rig.get("leases", "kube-system", "cloud-provider-extraction-migration").await.unwrap();
    let held = (lease(&rig).await, second().await);
    write(&rig, "b");
    rig.until_service("s", "has the address of b", |service| service.ingress() == ["b"]).await;
    assert_eq!(region(&rig, "after").await, "b");
    assert!(is_held(&held.0, &lease(&rig).await) && is_held(&held.1, &second().await));
    assert_eq!(cloud.calls().iter().filter(|call| call.ends_with("initialized")).count(), 2);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_providers_consent_the_file_is_read_once() {
    let (rig, manager, cloud) = started(Cloud { reloads: false, ..Cloud::new() }).await;
    write(&rig, "b");
    rig.pass(10 * MINUTE).await;
    assert_eq!(cloud.calls(), ["a initialized"]);
    assert!(!manager.metrics().contains("ccm_cloud_config"));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn many_reloads_leave_nothing_behind() {
    let (rig, manager, cloud) = started(Cloud::new()).await;
    rig.create(service("s")).await;
    rig.until_service("s", "has an address", |service| service.ingress() == ["a"]).await;
    let names = |text: &str| -> Vec<String> {
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")).map(str::to_owned).collect()
    };
    let reload = async |text: &str| {
        write(&rig, text);
        rig.until_service("s", "follows", |service| service.ingress() == [text]).await;
    };
    reload("b").await;
    let before = names(&manager.metrics());
    for number in 0..20 {
        reload(&format!("c{number}")).await;
    }
    assert_eq!(names(&manager.metrics()), before);
    assert_eq!(
        manager.metric("running_managed_controllers{manager=\"cloud-controller-manager\",name=\"service\"}"),
        Some(1.0)
    );
    // One handler of one controller: a change is one call.
    let calls = cloud.calls().len();
    rig.patch_service("s", serde_json::json!({"spec": {"externalTrafficPolicy": "Local"}})).await;
    rig.pass(MINUTE).await;
    assert_eq!(cloud.calls()[calls..], ["c19 making", "c19 made"]);
    assert_eq!(reloads(&manager, "applied"), Some(21.0));
    manager.stop().await.unwrap();
}
