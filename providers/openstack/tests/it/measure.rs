//! The cost of the usual life of Services. Prints a table; the bounds make increases visible.

use std::time::{Duration, Instant};

use ccm_cloudsim::openstack::Options;
use ccm_provider::Service;
use futures::future::join_all;
use serde_json::json;

use crate::scene::{Calls, Scene, annotation, id, service, simulated_with};

ccm_test_openstack::cases! { [crate::scene]
    both:
        the_usual_life_costs_little;
    simulated:
        services_that_restart_in_waves_share_a_list;
}

/// A restart syncs more Services than run concurrently.
async fn services_that_restart_in_waves_share_a_list(scene: &mut Scene) {
    let mut all: Vec<Service> = (0..12).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    join_all(all.iter_mut().map(|web| scene.ensure(web))).await;
    scene.restart().await;
    let waves = async {
        for wave in all.chunks_mut(4) {
            join_all(wave.iter_mut().map(|web| scene.ensure(web))).await;
        }
    };
    let calls = scene.counted(waves).await.0;
    assert_eq!((calls.of("loadbalancer_list"), calls.of("loadbalancer_get"), calls.written()), (1, 0, 0), "{calls:?}");
    // Balancers that were written since are read again.
    all[0].spec.ports[0].node_port = 30081;
    let calls = scene.counted(scene.ensure(&mut all[0])).await.0;
    assert_eq!(calls.writes(), "loadbalancer_members_update 1");
    let calls = scene.counted(join_all(all.iter_mut().map(|web| scene.ensure(web)))).await.0;
    assert_eq!((calls.of("loadbalancer_list"), calls.written()), (1, 0), "{calls:?}");
}

/// Prints `what: seconds / calls / writes`.
async fn shown<T>(scene: &Scene, what: &str, work: impl Future<Output = T>) -> Calls {
    let begin = Instant::now();
    let (calls, _) = scene.counted(work).await;
    let seconds = begin.elapsed().as_secs_f64();
    println!("{what}: {seconds:.2} s / {} calls / {} writes", calls.total(), calls.written());
    calls
}

async fn the_usual_life_costs_little(scene: &mut Scene) {
    // Changes take varying times on the real services, so some requests are too early.
    let most = if scene.cloud.simulation().is_some() { 18 } else { 20 };
    for count in [1, 10] {
        let ports: Vec<(i32, i32)> = (0..count).map(|n| (8000 + n, 31000 + n)).collect();
        let mut web = service("web", &ports, json!({}));
        let created = shown(scene, &format!("{count} ports, create"), scene.ensure(&mut web)).await;
        // The number of polls depends on the duration, and a list serves for two seconds.
        let calls = created.total() - created.of("loadbalancer_get") - created.of("loadbalancer_list");
        assert!(calls <= 13 && created.written() == 2, "{created:?}");
        // Soon after a change, everything is read once more.
        scene.process.cluster.advance(Duration::from_secs(3));
        let checked = shown(scene, &format!("{count} ports, checked"), scene.ensure(&mut web)).await;
        assert!(checked.total() <= 7 && checked.written() == 0, "{checked:?}");
        let steady = shown(scene, &format!("{count} ports, steady"), scene.ensure(&mut web)).await;
        assert!(steady.total() <= 3 && steady.written() == 0, "{steady:?}");
        let node = scene.node(&format!("new-{count}")).await;
        scene.nodes.push(node.clone());
        let added = shown(scene, &format!("{count} ports, member added"), scene.update_hosts(&mut web)).await;
        assert!(added.written() == i64::from(count) && added.total() <= most, "{added:?}");
        scene.nodes.pop();
        let removed = shown(scene, &format!("{count} ports, member removed"), scene.update_hosts(&mut web)).await;
        assert!(removed.written() == i64::from(count) && removed.total() <= most, "{removed:?}");
        scene.restart().await;
        shown(scene, &format!("{count} ports, restart"), scene.ensure(&mut web)).await;
        scene.nodes.push(node);
        let added = shown(scene, &format!("{count} ports, member added then"), scene.update_hosts(&mut web)).await;
        assert!(added.written() == i64::from(count) && added.total() <= 26, "{added:?}");
        scene.nodes.pop();
        let deleted = shown(scene, &format!("{count} ports, delete"), scene.delete(&mut web)).await;
        assert_eq!(deleted.written(), 2, "{deleted:?}");
    }
    let mut all: Vec<Service> = (0..5).map(|n| service(&format!("web-{n}"), &[(80, 30080)], json!({}))).collect();
    let work = join_all(all.iter_mut().map(|web| scene.ensure(web)));
    let created = shown(scene, "five Services, create", work).await;
    assert_eq!(created.written(), 10, "{created:?}");
    scene.restart().await;
    let work = join_all(all.iter_mut().map(|web| scene.ensure(web)));
    let restarted = shown(scene, "five Services, restart", work).await;
    assert!(restarted.total() <= 15 && restarted.written() == 0, "{restarted:?}");
}

#[tokio::test]
async fn a_node_behind_ten_ports_costs_its_ten_writes_and_few_other_calls() {
    let options = Options { provisioning: Duration::from_millis(300), ..Options::default() };
    simulated_with(options, async |scene: &mut Scene| {
        let ports: Vec<(i32, i32)> = (0..10).map(|n| (8000 + n, 31000 + n)).collect();
        let mut web = service("web", &ports, json!({}));
        scene.ensure(&mut web).await;
        for round in 0..4 {
            let node = scene.node(&format!("new-{round}")).await;
            scene.nodes.push(node);
            let calls = shown(scene, "member added", scene.update_hosts(&mut web)).await;
            assert_eq!(calls.writes(), "loadbalancer_members_update 10");
            // The balancer and its status, before and after; other lists are those of the creation.
            let lists = calls.of("loadbalancer_listener_list") + calls.of("loadbalancer_pool_list");
            assert!(lists == 0 && calls.total() <= 18, "round {round}: {calls:?}");
        }
    })
    .await;
}

#[tokio::test]
async fn listeners_and_pools_are_read_again_once_another_program_changed_the_balancer() {
    simulated_with(Options::default(), async |scene: &mut Scene| {
        let mut web = service("web", &[(80, 30080), (81, 30081)], json!({}));
        scene.ensure(&mut web).await;
        let lb = annotation(&web, "load-balancer-id").unwrap().to_owned();
        let pools = scene.list(&format!("/v2.0/lbaas/pools?loadbalancer_id={lb}")).await;
        scene.simulation().clock().step(Duration::from_secs(2));
        scene.write("DELETE", &format!("/v2.0/lbaas/pools/{}", id(&pools[0])), json!(null)).await;
        scene.nodes.pop();
        let (calls, ()) = scene.counted(scene.update_hosts(&mut web)).await;
        assert_eq!((calls.of("loadbalancer_listener_list"), calls.of("loadbalancer_pool_list")), (1, 1), "{calls:?}");
        assert_eq!(
            (calls.of("loadbalancer_pool_create"), calls.of("loadbalancer_members_update")),
            (1, 2),
            "{calls:?}"
        );
        scene.is_steady(&mut web).await;
    })
    .await;
}
