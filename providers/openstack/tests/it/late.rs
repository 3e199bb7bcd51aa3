//! Reads that show an older state of the cloud.

use std::time::Duration;

use ccm_cloudsim::openstack::Options;
use ccm_provider::{LoadBalancerStatus, Service, ServiceAction};
use serde_json::{Value, json};

use crate::scene::{INTERNAL, Scene, annotation, id, service, set, simulated_with};

const LATE: Duration = Duration::from_secs(1);
const CONF: &str = "[LoadBalancer]\nmanage-security-groups = true\n";

/// A scene whose reads are late from the start.
async fn late(case: impl AsyncFnOnce(&mut Scene)) {
    simulated_with(Options::default(), async |scene: &mut Scene| {
        scene.configure(CONF).await;
        scene.simulation().change(|options| options.stale_reads = LATE);
        case(scene).await;
        scene.simulation().change(|options| options.stale_reads = Duration::ZERO);
    })
    .await;
}

/// Retries until success while time passes, as the controller does.
async fn done(scene: &Scene, service: &mut Service, action: ServiceAction) -> Option<LoadBalancerStatus> {
    for _ in 0..100 {
        match scene.process.ask(service, &scene.nodes, action).await {
            Ok(status) => return status,
            Err(_) => pass(scene, Duration::from_millis(250)),
        }
    }
    panic!("{action:?} does not succeed")
}

/// Advances the clocks of cloud and process.
fn pass(scene: &Scene, time: Duration) {
    scene.simulation().clock().step(time);
    scene.process.cluster.advance(time);
}

/// Ensures a Service and returns its address.
async fn reached(scene: &Scene, service: &mut Service) -> String {
    done(scene, service, ServiceAction::Ensure).await.unwrap().ingress[0].ip.clone()
}

fn web() -> Service {
    service("web", &[(80, 30080), (443, 30443)], json!({}))
}

/// The current number of objects, regardless of late reads.
fn present(scene: &Scene) -> Vec<usize> {
    let ours = |object: &Value| object["name"] != "default";
    let count = |kind| scene.simulation().resources(kind).iter().filter(|object| ours(object)).count();
    ["loadbalancer", "listener", "pool", "floatingip", "security_group"].map(count).to_vec()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_made_twice_and_a_second_sync_writes_nothing() {
    late(async |scene| {
        let mut web = web();
        let address = reached(scene, &mut web).await;
        assert_eq!(present(scene), [1, 2, 2, 1, 1]);
        assert_eq!(scene.simulation().resources("floatingip")[0]["floating_ip_address"], address);
        let (calls, again) = scene.counted(reached(scene, &mut web)).await;
        assert_eq!((calls.writes(), again), (String::new(), address));
        web.spec.ports[0].node_port = 30081;
        reached(scene, &mut web).await;
        pass(scene, LATE);
        let (calls, _) = scene.counted(reached(scene, &mut web)).await;
        assert_eq!(calls.writes(), "");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_deleted_right_after_it_was_made_leaves_nothing() {
    late(async |scene| {
        for tries in 1..=3 {
            let mut web = web();
            for _ in 0..tries {
                let _ = scene.process.ask(&mut web, &scene.nodes, ServiceAction::Ensure).await;
            }
            done(scene, &mut web, ServiceAction::Delete).await;
            assert_eq!(present(scene), [0; 5], "after {tries} tries");
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_address_before_a_change_is_not_published() {
    late(async |scene| {
        let mut web = web();
        let before = reached(scene, &mut web).await;
        set(&mut web, INTERNAL, "true");
        let inside = reached(scene, &mut web).await;
        assert_ne!(inside, before);
        assert_eq!(present(scene)[3], 0);
        set(&mut web, INTERNAL, "false");
        let outside = reached(scene, &mut web).await;
        assert_eq!(scene.simulation().resources("floatingip")[0]["floating_ip_address"], outside);
        assert_eq!(annotation(&web, "load-balancer-id"), Some(id(&scene.simulation().balancers()[0])));
    })
    .await;
}
