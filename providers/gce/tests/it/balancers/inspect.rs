//! The output of the commands about load balancers.

use ccm_cloudsim::gce::{BALANCING, Options};
use ccm_provider::{
    Claims, Fact, FactState, FlagValues, LoadBalancerExt as _, ProviderFactory as _, Service, ServiceAction,
    ServiceWork,
};
use serde_json::json;

use super::scene::{LB, Scene, internal, service, web};
use crate::bed::CLUSTER;

async fn explain(scene: &Scene, service: &Service) -> Vec<String> {
    let facts = scene.provider().inspect().unwrap().explain_service(CLUSTER, service).await.unwrap();
    let line = |fact: &Fact| format!("{:?} {}: {}", fact.state, fact.about, fact.text).replace(LB, "LB");
    assert!(facts.iter().all(|fact| fact.state != FactState::Bad || fact.hint.is_some()));
    facts.iter().map(line).collect()
}

fn claims(scene: &Scene, services: &[&Service]) -> Claims {
    Claims { nodes: scene.nodes.clone(), services: services.iter().map(|service| (*service).clone().into()).collect() }
}

#[tokio::test]
async fn a_service_is_explained_from_the_rule_to_the_instances() {
    let scene = Scene::with(&["n1", "n2"]).await;
    scene.cluster.set_nodes(scene.nodes.clone());
    let mut web = web();
    let before = explain(&scene, &web).await;
    assert_eq!(before[0], "Good desired state: a load balancer LB, external: TCP 80");
    assert!(before[1].starts_with("Waiting forwarding rule LB: not made yet"), "{before:?}");
    assert_eq!(before.last().unwrap(), "Waiting plan: writes left: 5");
    let ip = scene.ensure(&mut web).await;
    web.status.load_balancer.ingress = vec![ccm_provider::LoadBalancerIngress { ip: ip.clone(), ..Default::default() }];
    let mark = scene.cloud().mark();
    assert_eq!(
        explain(&scene, &web).await,
        [
            "Good desired state: a load balancer LB, external: TCP 80".to_owned(),
            "Good forwarding rule LB: TCP ports 80-80 to LB".to_owned(),
            format!("Good address {ip}: network tier PREMIUM"),
            "Good target pool LB: instances: 2, in us-central1-b".to_owned(),
            "Good firewall rule k8s-fw-LB: lets 0.0.0.0/0 through to instances with the tag k8s-node".to_owned(),
            "Good plan: nothing is left to do in the cloud".to_owned(),
        ]
    );
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    let refused = explain(&scene, &service("web", json!({"ports": []}))).await;
    assert!(refused[0].starts_with("Bad desired state: no ports specified"), "{refused:?}");
    assert!(refused[1].starts_with("Good forwarding rule"), "{refused:?}");
    let elsewhere = explain(&scene, &service("web", json!({"loadBalancerClass": "foo.io/x"}))).await;
    assert!(elsewhere[0].contains("another controller"), "{elsewhere:?}");
    let other = explain(&scene, &internal(web)).await;
    assert!(other.iter().any(|line| line.contains("of the other kind (EXTERNAL)")), "{other:?}");
}

#[tokio::test]
async fn orphans_are_found_by_two_marks_and_deleted_whole() {
    let scene = Scene::with(&["n1"]).await;
    let (mut web, mut inner) = (web(), internal(service("inner", json!({}))));
    scene.ensure(&mut web).await;
    scene.ensure(&mut inner).await;
    let inspect = scene.provider().inspect().unwrap();
    assert_eq!(inspect.orphans(CLUSTER, &claims(&scene, &[&web, &inner])).await.unwrap(), []);
    let orphans = inspect.orphans(CLUSTER, &claims(&scene, &[])).await.unwrap();
    let owners: Vec<&str> = orphans.iter().map(|orphan| &*orphan.owner).collect();
    assert_eq!((owners.len(), orphans.iter().filter(|orphan| orphan.kept.is_some()).count()), (2, 0));
    assert!(owners.contains(&"service default/web") && owners.contains(&"service default/inner"));
    for orphan in &orphans {
        inspect.delete_orphan(CLUSTER, orphan).await.unwrap();
    }
    assert_eq!(scene.names(), [] as [&str; 0]);
    assert_eq!(inspect.orphans(CLUSTER, &claims(&scene, &[])).await.unwrap(), []);
    // Deleting a missing orphan is a success.
    inspect.delete_orphan(CLUSTER, &orphans[0]).await.unwrap();
}

#[tokio::test]
async fn a_balancer_that_may_be_another_clusters_is_kept() {
    let scene = Scene::with(&["n1"]).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    let pool = format!("projects/p/regions/us-central1/targetPools/{LB}");
    let mut fields = scene.object("targetPools", "LB");
    fields["healthChecks"] =
        json!(["https://www.googleapis.com/compute/v1/projects/p/global/httpHealthChecks/k8s-other-node"]);
    scene.cloud().world(|world| world.put(&pool, fields));
    let inspect = scene.provider().inspect().unwrap();
    // A node behind the balancer is enough.
    let ours = inspect.orphans(CLUSTER, &claims(&scene, &[])).await.unwrap();
    assert_eq!(ours[0].kept, None);
    let doubtful = inspect.orphans(CLUSTER, &Claims::default()).await.unwrap();
    assert!(doubtful[0].kept.as_ref().unwrap().contains("another cluster"), "{doubtful:?}");
    assert!(inspect.delete_orphan(CLUSTER, &doubtful[0]).await.is_err());
    assert!(scene.find("forwardingRules", LB).is_some());
}

#[tokio::test]
async fn a_snapshot_gives_the_same_plan_without_the_cloud() {
    let scene = Scene::of(Options::default(), &["n1"], "", &["enable-l4-lb-annotations"]).await;
    for service in [web(), internal(web())] {
        let work = ServiceWork::new(&service, &scene.nodes, ServiceAction::Ensure);
        let observed = scene.balancers().observe(CLUSTER, &work).await.unwrap();
        let here = scene.balancers().plan_observed(CLUSTER, &work, &observed).unwrap();
        let observed = serde_json::from_str(&observed.to_string()).unwrap();
        let facts = scene.provider().facts();
        let replay = scene.bed.factory().replay(&facts, &FlagValues::default()).unwrap().unwrap();
        assert_eq!(replay.plan_observed(CLUSTER, &work, &observed).unwrap(), here);
        assert!(!here.steps.is_empty());
    }
    assert!(scene.bed.factory().replay(&json!({"region": 1}), &FlagValues::default()).is_err());
}

#[tokio::test]
async fn descriptions_of_users_are_neither_in_snapshots_nor_in_plans() {
    const TEXT: &str = "call Bob Builder +49 30 4711";
    let mut scene = Scene::with(&["n1"]).await;
    let local = json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 32_000});
    let mut services = [service("web", local.clone()), internal(service("inner", local))];
    for service in &mut services {
        scene.ensure(service).await;
    }
    for object in BALANCING.iter().flat_map(|kind| scene.cloud().objects(kind)) {
        let path = object["selfLink"].as_str().unwrap().split_once("/v1/").unwrap().1.to_owned();
        let mut object = object;
        object["description"] = json!(TEXT);
        if let Some(backend) = object["backends"].get_mut(0) {
            backend["description"] = json!(TEXT);
        }
        scene.cloud().world(|world| world.put(&path, object));
    }
    scene.restart().await;
    for service in &services {
        let work = ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure);
        let observed = scene.balancers().observe(CLUSTER, &work).await.unwrap();
        let plan = scene.balancers().plan(CLUSTER, &work).await.unwrap();
        assert_eq!(scene.balancers().plan_observed(CLUSTER, &work, &observed).unwrap(), plan);
        let plan = serde_json::to_string(&plan).unwrap();
        assert!(plan.contains("(another text)"), "{plan}");
        assert!(!plan.contains("Bob") && !observed.to_string().contains("Bob"), "{observed}\n{plan}");
    }
}
