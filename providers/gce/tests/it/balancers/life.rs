//! The life cycle of each kind of load balancer, with every call.

use ccm_cloudsim::gce::Options;
use ccm_provider::{LoadBalancerExt as _, Service, ServiceAction};
use serde_json::json;

use super::scene::{LB, Scene, internal, local, ports, service, set, texts, web};
use crate::bed::CLUSTER;

#[tokio::test]
async fn an_external_balancer_lives_and_leaves_nothing() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let before = scene.names();
    let mut web = web();
    let mark = scene.cloud().mark();
    let ip = scene.ensure(&mut web).await;
    assert_eq!(
        scene.writes(mark),
        [
            "httpHealthChecks.insert",
            "firewalls.insert",
            "targetPools.insert",
            "forwardingRules.insert",
            "firewalls.insert"
        ]
    );
    assert_eq!(web.metadata.finalizers, ["gke.networking.io/l4-netlb-v1"]);
    let rule = scene.object("forwardingRules", "LB");
    assert_eq!((&rule["IPAddress"], &rule["portRange"]), (&json!(ip), &json!("80-80")));
    assert_eq!(texts(&scene.object("targetPools", "LB")["instances"]).len(), 2);
    assert_eq!(
        scene.names(),
        [
            "firewalls k8s-cid-node-http-hc",
            "firewalls k8s-fw-LB",
            "forwardingRules LB",
            "httpHealthChecks k8s-cid-node",
            "targetPools LB"
        ]
    );
    scene.is_steady(&mut web).await;
    // A node is removed, another one is added.
    scene.nodes = vec![scene.nodes[0].clone(), scene.bed.node("n3")];
    let (calls, ()) = scene.calls(scene.update(&mut web)).await;
    assert_eq!(calls, ["targetPools.get", "targetPools.addInstance", "targetPools.removeInstance"]);
    assert!(texts(&scene.object("targetPools", "LB")["instances"])[1].ends_with("/n3"));
    scene.is_steady(&mut web).await;
    // Other ports: the same address.
    web.spec.ports = ports("TCP", &[80, 443]);
    assert_eq!(scene.ensure(&mut web).await, ip);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), before);
    assert!(web.metadata.finalizers.is_empty());
    let left = scene.balancers().get(CLUSTER, &web).await.unwrap();
    assert_eq!(left, None);
    scene.is_correct();
}

#[tokio::test]
async fn an_internal_balancer_lives_and_leaves_nothing() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let mut web = internal(web());
    let mark = scene.cloud().mark();
    let ip = scene.ensure(&mut web).await;
    let mut writes = scene.writes(mark);
    writes.sort();
    assert_eq!(
        writes,
        [
            "firewalls.insert",
            "firewalls.insert",
            "forwardingRules.insert",
            "healthChecks.insert",
            "instanceGroups.addInstances",
            "instanceGroups.insert",
            "regionBackendServices.insert"
        ]
    );
    assert!(ip.starts_with("10."), "{ip}");
    assert_eq!(web.metadata.finalizers, ["gke.networking.io/l4-ilb-v1"]);
    assert_eq!(
        scene.names(),
        [
            "backendServices LB",
            "firewalls k8s-cid-node-hc",
            "firewalls k8s-fw-LB",
            "forwardingRules LB",
            "healthChecks k8s-cid-node",
            "instanceGroups k8s-ig--cid"
        ]
    );
    scene.is_steady(&mut web).await;
    scene.nodes = vec![scene.nodes[0].clone(), scene.bed.node("n3")];
    scene.update(&mut web).await;
    scene.is_steady(&mut web).await;
    // Another protocol: the rule is created again with the same address.
    web.spec.ports = ports("UDP", &[80]);
    assert_eq!(scene.ensure(&mut web).await, ip);
    scene.is_steady(&mut web).await;
    set(&mut web, "networking.gke.io/internal-load-balancer-allow-global-access", "true");
    assert_eq!(scene.writes_to_ensure(&mut web).await, ["forwardingRules.patch"]);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
    scene.is_correct();
}

#[tokio::test]
async fn what_services_share_lives_as_long_as_one_of_them() {
    let mut scene = Scene::with(&["n1"]).await;
    for kind in [|service| service, internal] {
        let (mut web, mut other) = (kind(web()), kind(service("other", json!({}))));
        scene.ensure(&mut web).await;
        scene.ensure(&mut other).await;
        scene.is_steady(&mut web).await;
        let with_both = scene.names();
        scene.delete(&mut other).await;
        assert!(scene.names().iter().any(|name| name.ends_with("ealthChecks k8s-cid-node")));
        scene.is_steady(&mut web).await;
        scene.ensure(&mut other).await;
        assert_eq!(scene.names(), with_both);
        scene.delete(&mut web).await;
        scene.delete(&mut other).await;
        assert_eq!(scene.names(), [] as [&str; 0]);
    }
    scene.is_correct();
}

#[tokio::test]
async fn a_change_of_the_scheme_replaces_everything_and_the_finalizer() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let external = scene.names();
    set(&mut web, super::scene::TYPE, "Internal");
    assert!(scene.ensure(&mut web).await.starts_with("10."));
    assert_eq!(web.metadata.finalizers, ["gke.networking.io/l4-ilb-v1"]);
    assert!(
        !scene.names().iter().any(|name| name.contains("targetPools") || name.contains("http")),
        "{:?}",
        scene.names()
    );
    scene.is_steady(&mut web).await;
    web.metadata.annotations.clear();
    scene.ensure(&mut web).await;
    assert_eq!(web.metadata.finalizers, ["gke.networking.io/l4-netlb-v1"]);
    assert_eq!(scene.names(), external);
    scene.is_steady(&mut web).await;
    // Changed again between two processes, and deleted immediately.
    set(&mut web, super::scene::TYPE, "Internal");
    scene.restart().await;
    scene.delete(&mut web).await;
    assert_eq!((scene.names(), web.metadata.finalizers), (Vec::new(), Vec::new()));
    scene.is_correct();
}

#[tokio::test]
async fn result_annotations_are_written_where_they_are_asked_for() {
    let scene = Scene::of(Options::default(), &["n1"], "", &["enable-l4-lb-annotations"]).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    assert_eq!(web.metadata.annotations, [("networking.gke.io/target-pool".to_owned(), LB.to_owned())].into());
    set(&mut web, super::scene::TYPE, "Internal");
    scene.ensure(&mut web).await;
    assert_eq!(web.metadata.annotations.get("networking.gke.io/backend-service").map(String::as_str), Some(LB));
    assert_eq!(web.metadata.annotations.get("networking.gke.io/target-pool"), None);
    let plain = Scene::with(&["n1"]).await;
    let mut other = service("other", json!({}));
    plain.ensure(&mut other).await;
    assert!(other.metadata.annotations.is_empty());
}

#[tokio::test]
async fn deleting_what_is_gone_succeeds_and_writes_nothing() {
    let scene = Scene::with(&["n1"]).await;
    for mut service in [web(), internal(web()), local(), internal(local())] {
        let mark = scene.cloud().mark();
        scene.delete(&mut service).await;
        assert_eq!(scene.writes(mark), [] as [&str; 0]);
        assert_eq!(scene.balancers().get(CLUSTER, &service).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_service_of_another_controller_costs_no_call() {
    let scene = Scene::with(&["n1"]).await;
    let mut rbs = web();
    set(&mut rbs, "cloud.google.com/l4-rbs", "enabled");
    let classed = service("web", json!({"loadBalancerClass": "foo.io/x"}));
    let taken = service("web", json!({"loadBalancerClass": "networking.gke.io/l4-regional-external"}));
    for mut service in [rbs, classed, taken] {
        let (calls, ()) = scene
            .calls(async {
                for action in [ServiceAction::Ensure, ServiceAction::UpdateHosts, ServiceAction::Delete] {
                    let answer = scene.ask(&mut service, action).await.0;
                    assert!(answer.unwrap_err().is_implemented_elsewhere());
                }
                assert_eq!(scene.balancers().get(CLUSTER, &service).await.unwrap(), None);
            })
            .await;
        assert_eq!(calls, [] as [&str; 0]);
        assert!(service.metadata.finalizers.is_empty());
    }
    // The legacy classes are made here.
    let mut legacy = service("web", json!({"loadBalancerClass": "networking.gke.io/l4-regional-internal-legacy"}));
    assert!(scene.ensure(&mut legacy).await.starts_with("10."));
}

/// It had a load balancer of the other kind here before.
#[tokio::test]
async fn a_service_that_becomes_another_controllers_leaves_only_what_others_use() {
    let rbs = |service: &mut Service| {
        service.metadata.annotations.clear();
        set(service, "cloud.google.com/l4-rbs", "enabled");
    };
    let plain = |service: &mut Service| service.metadata.annotations.clear();
    let inner = |service: &mut Service| set(service, super::scene::TYPE, "Internal");
    let as_it_is = |service| service;
    for (kind, change, more, flags) in [
        (internal as fn(Service) -> Service, rbs as fn(&mut Service), "", &[][..]),
        (internal, plain, "", &["enable-rbs-default-l4-netlb"]),
        (as_it_is, inner, "alpha-features = ILBSubsets", &[]),
    ] {
        let mut scene = Scene::of(Options::default(), &["n1"], more, flags).await;
        let (mut stays, mut moves) = (kind(service("stays", json!({}))), kind(web()));
        scene.ensure(&mut stays).await;
        let before = scene.names();
        scene.ensure(&mut moves).await;
        change(&mut moves);
        let error = scene.try_ensure(&mut moves).await.unwrap_err();
        assert!(error.is_implemented_elsewhere(), "{error}");
        assert_eq!((scene.names(), moves.metadata.finalizers.clone()), (before, Vec::new()));
        let mark = scene.cloud().mark();
        assert!(scene.try_ensure(&mut moves).await.unwrap_err().is_implemented_elsewhere());
        assert_eq!(scene.writes(mark), [] as [&str; 0]);
        scene.is_steady(&mut stays).await;
        scene.is_correct();
    }
}

/// The next controller has made its rule, and a process died before everything behind the former one was gone.
#[tokio::test]
async fn what_is_left_of_a_former_kind_goes_beside_the_rule_of_another_controller() {
    let scene = Scene::with(&["n1"]).await;
    let mut web = internal(web());
    scene.ensure(&mut web).await;
    web.metadata.annotations.clear();
    set(&mut web, "cloud.google.com/l4-rbs", "enabled");
    let theirs = json!({"name": LB, "IPAddress": "198.51.100.1", "IPProtocol": "TCP", "loadBalancingScheme": "EXTERNAL",
        "backendService": "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/backendServices/x"});
    scene.cloud().world(|world| world.put(&format!("projects/p/regions/us-central1/forwardingRules/{LB}"), theirs));
    assert!(scene.try_ensure(&mut web).await.unwrap_err().is_implemented_elsewhere());
    assert_eq!(scene.names(), ["forwardingRules LB"]);
    assert_eq!(web.metadata.finalizers, [] as [&str; 0]);
}

#[tokio::test]
async fn a_plan_says_what_will_be_written_and_writes_nothing() {
    let scene = Scene::with(&["n1"]).await;
    let mark = scene.cloud().mark();
    let work = ccm_provider::ServiceWork::new(&web(), &scene.nodes, ServiceAction::Ensure);
    let plan = scene.balancers().plan(CLUSTER, &work).await.unwrap();
    assert_eq!((plan.steps.len(), scene.writes(mark).len()), (5, 0));
    let mut service = web();
    scene.ensure(&mut service).await;
    let work = ccm_provider::ServiceWork::new(&service, &scene.nodes, ServiceAction::Ensure);
    assert!(scene.balancers().plan(CLUSTER, &work).await.unwrap().is_silent());
}
