//! Leader migration: controllers under a second lease.

use std::time::Duration;

use ccm_test_suite::{Make, Rig, Running, node, service};

const MINUTE: Duration = Duration::from_secs(60);
const MAIN: &str = "cloud-controller-manager";
const MIGRATION: &str = "cloud-provider-extraction-migration";
const MIGRATING: [&str; 4] = [
    "--leader-elect=true",
    "--enable-leader-migration",
    "--configure-cloud-routes=true",
    "--cluster-cidr=10.244.0.0/16",
];

/// Another process, such as a kube-controller-manager, acquires the lease of the migration, or releases it (`""`).
async fn held_by(rig: &Rig, holder: &str) {
    if rig.get("leases", "kube-system", MIGRATION).await.is_none() {
        let now = "2026-01-01T00:00:00.000000Z";
        let body = serde_json::json!({
            "apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
            "metadata": {"name": MIGRATION, "namespace": "kube-system"},
            "spec": {"holderIdentity": holder, "leaseDurationSeconds": 3600, "acquireTime": now, "renewTime": now,
                     "leaseTransitions": 0},
        });
        rig.create(Make { resource: "leases", object: body }).await;
        return;
    }
    taken_by(rig, MIGRATION, holder).await;
}

/// Another process takes a lease.
async fn taken_by(rig: &Rig, lease: &str, holder: &str) {
    let change = serde_json::json!({"spec": {"holderIdentity": holder}});
    rig.patch("leases", "kube-system", lease, "", change).await;
}

async fn holder(rig: &Rig, lease: &str) -> String {
    rig.get("leases", "kube-system", lease).await.unwrap()["spec"]["holderIdentity"].as_str().unwrap().to_owned()
}

fn running(manager: &Running, label: &str) -> bool {
    let line = format!("running_managed_controllers{{manager=\"cloud-controller-manager\",name=\"{label}\"}}");
    manager.metric(&line) == Some(1.0)
}

async fn until_running(rig: &Rig, manager: &Running, label: &str) {
    rig.until(MINUTE, label, async |_| running(manager, label).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_shows_the_plans_under_either_lease_and_takes_none() {
    let rig = Rig::new("interfaces: {routes: true}").await;
    held_by(&rig, "kube-controller-manager").await;
    let manager = rig.start(&[&MIGRATING[..], &["--dry-run"]].concat()).await;
    rig.create(node("a").uninitialized().pod_cidr("10.244.1.0/24")).await;
    rig.create(service("web")).await;
    for subject in ["node a", "service default/web", "routes"] {
        rig.until(MINUTE, subject, async |_| manager.plan(subject)).await;
    }
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.store().log().remote_writes(), []);
    assert!(rig.get("leases", "kube-system", "cloud-controller-manager").await.is_none());
    let began = tokio::time::Instant::now();
    manager.stop().await.unwrap();
    assert!(began.elapsed() < Duration::from_secs(1), "it holds nothing that would have to be given back");
}

#[tokio::test(start_paused = true)]
async fn without_a_file_services_routes_and_lifecycle_wait_for_the_second_lease() {
    let rig = Rig::new("interfaces: {routes: true}").await;
    held_by(&rig, "kube-controller-manager").await;
    let manager = rig.start(&MIGRATING).await;
    rig.create(node("a").uninitialized()).await;
    rig.until_node("a", "initialized", |node| !node.is_uninitialized()).await;
    rig.create(service("web")).await;
    rig.pass(10 * MINUTE).await;
    assert!(running(&manager, "cloud-node"));
    for label in ["service", "route", "cloud-node-lifecycle"] {
        assert!(!running(&manager, label), "{label} runs beside its old leader");
    }
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 0);

    held_by(&rig, "").await;
    for label in ["service", "route", "cloud-node-lifecycle"] {
        until_running(&rig, &manager, label).await;
    }
    rig.until_service("web", "provided", |service| !service.ingress().is_empty()).await;
    assert_eq!(
        rig.cloud.calls("Initialize").len(),
        1,
        "the provider is initialized once, whatever the number of leases"
    );
    manager.stop().await.unwrap();
    for lease in [MIGRATION, MAIN] {
        assert_eq!(holder(&rig, lease).await, "", "{lease} is not given back");
    }
}

#[tokio::test(start_paused = true)]
async fn losing_the_second_lease_ends_the_process_before_another_may_write() {
    let rig = Rig::new("interfaces: {routes: true}").await;
    let mut manager = rig.start(&MIGRATING).await;
    until_running(&rig, &manager, "service").await;
    held_by(&rig, "kube-controller-manager").await;
    let failure = manager.ended().await.unwrap_err();
    assert_eq!(failure.message, "migration leaderelection lost");
    assert_eq!(failure.exit.code(), 1);
}

/// A manager whose load balancer, under the second lease, is being created, and another replica.
async fn ensuring() -> (Rig, Running, Running, impl FnOnce()) {
    let rig = Rig::new("interfaces: {routes: true}\nfaults: [{call: EnsureLoadBalancer, hold: gate, times: 1}]").await;
    let release = rig.cloud.hold("gate");
    rig.create(service("web")).await;
    let first = rig.start(&MIGRATING).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    let second = rig.start(&MIGRATING).await;
    (rig, first, second, release)
}

#[tokio::test(start_paused = true)]
async fn writes_that_the_loss_of_one_lease_drops_settle_before_the_other_one_is_free() {
    for (lost, message, kept) in
        [(MIGRATION, "migration leaderelection lost", MAIN), (MAIN, "leaderelection lost", MIGRATION)]
    {
        let (rig, mut first, _second, _release) = ensuring().await;
        let leader = holder(&rig, kept).await;
        taken_by(&rig, lost, "another").await;
        assert_eq!(first.ended().await.unwrap_err().message, message);
        assert_eq!(rig.cloud.ended("EnsureLoadBalancer").len(), 1, "dropped");
        rig.pass(Duration::from_secs(4)).await;
        assert_eq!((holder(&rig, kept).await, rig.cloud.calls("Initialize").len()), (leader, 1), "{lost} was lost");
        rig.until_calls("Initialize", 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn writes_that_a_lost_lease_drops_while_a_failure_ends_the_process_settle_too() {
    let (rig, mut first, _second, _release) = ensuring().await;
    let leader = holder(&rig, MAIN).await;
    first.panic_in_watches();
    rig.create(node("a").uninitialized()).await;
    rig.pass(Duration::from_secs(5)).await;
    assert!(first.is_running(), "it waits for the load balancer");
    taken_by(&rig, MIGRATION, "another").await;
    assert_eq!(first.ended().await.unwrap_err().message, "the watch of nodes panicked: the test wants this panic");
    rig.pass(Duration::from_secs(4)).await;
    assert_eq!((holder(&rig, MAIN).await, rig.cloud.calls("Initialize").len()), (leader, 1));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_finishes_work_in_flight_although_another_process_holds_the_second_lease() {
    let rig = Rig::new("interfaces: {routes: true}\nfaults: [{call: EnsureLoadBalancer, delay: 5s}]").await;
    held_by(&rig, "kube-controller-manager").await;
    let (_file, config) = file("- {name: route-controller, component: cloud-controller-manager}", MIGRATION);
    let manager = rig.start(&[&MIGRATING[..], &[&config]].concat()).await;
    rig.create(service("web")).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    manager.stop().await.unwrap();
    assert!(!rig.service("web").await.unwrap().ingress().is_empty());
    assert_eq!(holder(&rig, MAIN).await, "");
}

/// A file with these controllers, and the flag for it.
fn file(leaders: &str, lease: &str) -> (tempfile::NamedTempFile, String) {
    let file = tempfile::NamedTempFile::new().unwrap();
    let text = format!(
        "kind: LeaderMigrationConfiguration
apiVersion: controllermanager.config.k8s.io/v1
leaderName: {lease}
controllerLeaders:
{leaders}
"
    );
    std::fs::write(file.path(), text).unwrap();
    let flag = format!("--leader-migration-config={}", file.path().display());
    (file, flag)
}

#[tokio::test(start_paused = true)]
async fn a_file_says_which_controllers_are_ours() {
    let rig = Rig::new("interfaces: {routes: true}").await;
    let leaders = "- {name: service, component: kube-controller-manager}
- {name: route-controller, component: cloud-controller-manager}";
    let (_file, config) = file(leaders, "my-migration");
    let manager = rig.start(&[&MIGRATING[..], &[&config]].concat()).await;
    for label in ["cloud-node", "cloud-node-lifecycle", "route"] {
        until_running(&rig, &manager, label).await;
    }
    rig.pass(10 * MINUTE).await;
    assert!(!running(&manager, "service"), "it is left to kube-controller-manager");
    assert!(rig.get("leases", "kube-system", "my-migration").await.is_some());
}
