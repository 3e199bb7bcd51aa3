//! The number of calls for each task.

use std::time::Duration;

use ccm_cloudsim::core::latency::Latency;
use ccm_cloudsim::gce::Options;
use ccm_provider::{Aspects, Lookup, Scope, ServiceAction, ServiceWork};
use serde_json::json;

use super::scene::{Scene, internal, local, service, web};
use crate::bed::{CLUSTER, PROJECT};

#[tokio::test]
async fn a_sync_of_what_is_as_desired_reads_little_and_writes_nothing() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    for (mut service, reads, first) in
        [(web(), 5, 2), (local(), 5, 1), (internal(web()), 6, 1), (internal(local()), 6, 0)]
    {
        scene.ensure(&mut service).await;
        let (calls, _) = scene.calls(scene.ensure(&mut service)).await;
        assert_eq!(calls.len(), reads, "{calls:?}");
        // Leftovers of an interrupted change are looked for once in the lifetime of a process.
        scene.restart().await;
        let (calls, _) = scene.calls(scene.ensure(&mut service)).await;
        assert_eq!(calls.len(), reads + first, "{calls:?}");
        assert_eq!(scene.writes_to_ensure(&mut service).await, [] as [&str; 0]);
        scene.delete(&mut service).await;
    }
}

/// The core processes Services with the same groups concurrently; those that share only some wait for each other.
#[tokio::test]
async fn services_of_a_kind_are_worked_on_together() {
    let scene = Scene::with(&["n1"]).await;
    let groups = |service| scene.balancers().groups(&service);
    let others = || (service("a", json!({})), service("b", json!({"externalTrafficPolicy": "Local"})));
    assert_eq!(groups(others().0), groups(others().1));
    assert_eq!(groups(internal(others().0)), groups(internal(others().1)));
    assert!(groups(web()).is_disjoint(&groups(internal(web()))));
}

#[tokio::test]
async fn each_zone_of_an_internal_balancer_costs_one_read() {
    let mut scene = Scene::of(Options::default(), &["n1"], "multizone", &[]).await;
    for zone in ["us-central1-a", "us-central1-c"] {
        scene.bed.instance_in(zone, &format!("n-{zone}"), json!({}));
        let node = json!({"name": format!("n-{zone}"), "providerId": format!("gce://p/{zone}/n-{zone}")});
        scene.nodes.push(serde_json::from_value::<ccm_provider::Node>(node).unwrap().into());
    }
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    let (calls, _) = scene.calls(scene.ensure(&mut web)).await;
    assert!(calls.len() <= 5 + 3, "{calls:?}");
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_new_node_costs_one_call_for_each_external_balancer_and_one_list_of_pools() {
    let mut scene = Scene::with(&["n1"]).await;
    let services: Vec<_> = (0..20).map(|number| service(&format!("s{number}"), json!({}))).collect();
    let work = |scene: &Scene, action| -> Vec<ServiceWork> {
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, action)).collect()
    };
    all(&scene, &work(&scene, ServiceAction::Ensure)).await;
    scene.nodes.push(scene.bed.node("n2"));
    let (mut calls, ()) = scene.calls(all(&scene, &work(&scene, ServiceAction::UpdateHosts))).await;
    calls.sort();
    assert_eq!(calls, [vec!["targetPools.addInstance"; 20], vec!["targetPools.list"]].concat());
    // A restart costs one list of each kind.
    scene.restart().await;
    let (calls, ()) = scene.calls(all(&scene, &work(&scene, ServiceAction::Ensure))).await;
    assert_eq!(calls.len(), 5, "{calls:?}");
    // Without the permission to list, each object is read.
    let lists = ["forwardingRules", "targetPools", "firewalls", "httpHealthChecks", "addresses"];
    let lists = lists.map(|kind| format!("compute.{kind}.list")).into();
    scene.cloud().change(|options| options.denied = [("*".to_owned(), lists)].into());
    scene.restart().await;
    let mark = scene.cloud().mark();
    all(&scene, &work(&scene, ServiceAction::Ensure)).await;
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
}

/// Reads that wait for their turn take the time that they have for their answer, and the turns of other calls.
#[tokio::test]
async fn a_new_node_does_not_wait_for_all_services_that_are_read_one_by_one() {
    const SERVICES: usize = 60;
    let mut scene = Scene::with(&["n1"]).await;
    let services: Vec<_> = (0..SERVICES).map(|number| service(&format!("s{number}"), json!({}))).collect();
    let work: Vec<ServiceWork> =
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure)).collect();
    all(&scene, &work).await;
    scene.cloud().change(|options| {
        options.denied = [(PROJECT.to_owned(), vec!["compute.forwardingRules.list".to_owned()])].into();
        options.latency = Latency { read: Duration::from_millis(50), ..Latency::default() };
    });
    scene.restart().await;
    let new = scene.bed.node("n2");
    let mark = scene.cloud().mark();
    let look_up = async {
        while !scene.bed.calls(mark).contains(&"forwardingRules.get".to_owned()) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        scene.provider().instances().unwrap().lookup(std::slice::from_ref(&new), Aspects::METADATA).await.remove(0)
    };
    let ((), found) = futures::join!(all(&scene, &work), look_up);
    assert!(matches!(found, Lookup::Found(_)), "{found:?}");
    let calls = scene.bed.calls(mark);
    let gets = calls.iter().filter(|call| *call == "forwardingRules.get").count();
    let before = calls.iter().take_while(|call| *call != "instances.get");
    let before = before.filter(|call| *call == "forwardingRules.get").count();
    assert!(gets == SERVICES && before < SERVICES / 2, "{before} of {gets}");
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
}

#[tokio::test]
async fn a_permission_to_list_that_is_granted_later_is_used_after_ten_minutes() {
    let scene = Scene::with(&["n1"]).await;
    let services: Vec<_> = (0..3).map(|number| service(&format!("s{number}"), json!({}))).collect();
    let work: Vec<ServiceWork> =
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure)).collect();
    let lists = async || {
        let (calls, ()) = scene.calls(all(&scene, &work)).await;
        calls.iter().filter(|call| *call == "forwardingRules.list").count()
    };
    let denied = [(PROJECT.to_owned(), vec!["compute.forwardingRules.list".to_owned()])].into();
    scene.cloud().change(|options| options.denied = denied);
    lists().await;
    scene.cloud().change(|options| options.denied.clear());
    assert_eq!(lists().await, 0);
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(601)).await;
    tokio::time::resume();
    assert_eq!(lists().await, 1);
}

async fn all(scene: &Scene, work: &[ServiceWork]) {
    let balancers = scene.balancers();
    assert_eq!(ccm_provider::batches(&*balancers, work).len(), 1);
    loop {
        let answers = balancers.reconcile(CLUSTER, work, &Scope::default()).await;
        let failed = answers.into_iter().find_map(|answer| answer.result.err());
        match failed {
            None => return,
            Some(error) if error.is_in_progress() => tokio::time::sleep(Duration::from_millis(5)).await,
            Some(error) => panic!("{error}"),
        }
    }
}
