//! What cannot be read, a zone, an instance or a Service that the cloud refuses fails alone.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_cloudsim::gce::seed::{ClusterSeed, InstanceSeed};
use ccm_provider::{
    Finalizers, NodeRef, ProviderError, ProviderFactory as _, Scope, Service, ServiceAction, ServiceAnswer, ServiceWork,
};
use parking_lot::Mutex;
use serde_json::json;

use super::parts::reconcile;
use super::scene::{LB, Scene, internal, ports, service, texts, web};
use crate::bed::{CLUSTER, PROJECT, ZONE};

const OTHER_ZONE: &str = "us-central1-c";

fn code(status: u16, code: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: "not now".to_owned() }
}

/// A fault of the calls whose parameters contain a text.
fn about(text: &str, call: &str, fault: Fault) -> Rule {
    Rule { params: Some(text.to_owned()), ..Rule::every(fault).on("compute", call) }
}

fn node_in(scene: &Scene, zone: &str, name: &str) -> NodeRef {
    scene.bed.instance_in(zone, name, json!({}));
    let node = json!({"name": name, "providerId": format!("gce://{PROJECT}/{zone}/{name}")});
    serde_json::from_value::<ccm_provider::Node>(node).unwrap().into()
}

fn zones_behind(scene: &Scene) -> Vec<String> {
    let backends = scene.object("backendServices", "LB")["backends"].clone();
    let groups = backends.as_array().cloned().unwrap_or_default();
    groups.iter().map(|it| it["group"].as_str().unwrap().rsplit('/').nth(2).unwrap().to_owned()).collect()
}

fn with_status(services: &mut [Service], answers: &[ServiceAnswer]) {
    for (service, answer) in services.iter_mut().zip(answers) {
        service.status.load_balancer = answer.result.as_ref().unwrap().clone().unwrap();
    }
}

async fn with_three(kind: fn(Service) -> Service) -> (Scene, Vec<Service>) {
    let scene = Scene::with(&["n1"]).await;
    let mut services: Vec<Service> =
        [web(), service("one", json!({})), service("two", json!({}))].into_iter().map(kind).collect();
    let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
    with_status(&mut services, &answers);
    (scene, services)
}

/// Also if the objects of several Services are read with one list, which is refused for one of the names.
#[tokio::test]
async fn a_read_that_is_refused_for_one_service_fails_that_service_only() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        for call in ["forwardingRules.*", "firewalls.*", "addresses.*", "healthChecks.*"] {
            let (mut scene, services) = with_three(kind).await;
            scene.restart().await;
            let node = scene.bed.node("n2");
            scene.nodes.push(node);
            let mark = scene.cloud().mark();
            scene.cloud().fault(Rule { mutating: Some(false), ..about(LB, call, code(400, "invalid")) });
            let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
            let is_struck = scene.cloud().faults(|faults| faults.rules().any(|(_, times)| times > 0));
            assert!(answers[1].result.is_ok() && answers[2].result.is_ok(), "{call}: {answers:?}");
            assert_eq!(answers[0].result.is_err(), is_struck, "{call}: {answers:?}");
            // Its hosts follow the nodes; nothing is created or deleted that may exist.
            assert_eq!(scene.members(), 2, "{call}");
            let writes = scene.writes(mark);
            let are_members = |write: &String| write.ends_with("addInstance") || write.ends_with("addInstances");
            assert!(writes.iter().all(are_members), "{call}: {writes:?}");
            if is_struck {
                assert_eq!(answers[0].status.as_ref().unwrap().ingress.len(), 1, "{call}");
            }
            scene.cloud().faults(Faults::clear);
            let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
            assert!(answers.iter().all(|answer| answer.result.is_ok()), "{call}: {answers:?}");
            scene.is_correct();
        }
    }
}

/// What was not read may exist: it is neither created nor taken for deleted.
#[tokio::test]
async fn half_of_a_list_is_no_reason_to_create_or_to_forget() {
    let (scene, services) = with_three(|service| service).await;
    scene.cloud().fault(Rule::every(Fault::Truncate).on("compute", "firewalls.list"));
    let mark = scene.cloud().mark();
    let answers = reconcile(&scene, &services, ServiceAction::Ensure).await;
    for answer in &answers {
        assert!(answer.result.is_err() && answer.status.is_some(), "{answer:?}");
    }
    // A deletion is not done before everything was looked for.
    let answers = reconcile(&scene, &services, ServiceAction::Delete).await;
    assert!(answers.iter().all(|answer| answer.result.is_err()), "{answers:?}");
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    scene.cloud().fault(Rule::every(code(503, "backendError")).on("compute", "forwardingRules.get"));
    assert!(scene.balancers().get(CLUSTER, &services[0]).await.is_err());
}

#[tokio::test]
async fn a_zone_whose_group_cannot_be_read_keeps_it_and_the_others_follow() {
    let mut scene = Scene::with(&["n1"]).await;
    let node = node_in(&scene, OTHER_ZONE, "o1");
    scene.nodes.push(node);
    let mut asked = [internal(web()), internal(service("new", json!({})))];
    let answers = reconcile(&scene, &asked[..1], ServiceAction::Ensure).await;
    with_status(&mut asked[..1], &answers);
    scene.cloud().fault(about(OTHER_ZONE, "instanceGroups.listInstances", code(503, "backendError")));
    for (zone, name) in [(ZONE, "n2"), (OTHER_ZONE, "o2")] {
        let node = node_in(&scene, zone, name);
        scene.nodes.push(node);
    }
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let answers = reconcile(&scene, &asked, action).await;
        assert!(answers.iter().all(|answer| answer.result.is_err()), "{answers:?}");
        assert_eq!((scene.group(ZONE).len(), scene.group(OTHER_ZONE).len()), (2, 1));
        assert_eq!(zones_behind(&scene).len(), 2);
        if action == ServiceAction::Ensure {
            assert!(answers.iter().all(|answer| answer.status.is_some()), "{answers:?}");
        }
    }
    scene.cloud().faults(Faults::clear);
    let answers = reconcile(&scene, &asked, ServiceAction::Ensure).await;
    assert!(answers.iter().all(|answer| answer.result.is_ok()), "{answers:?}");
    assert_eq!(scene.group(OTHER_ZONE).len(), 2);
    scene.is_steady(&mut asked[1]).await;
    scene.is_correct();
}

#[tokio::test]
async fn a_zone_whose_group_cannot_be_made_withholds_no_address_and_no_other_zone() {
    let mut scene = Scene::with(&["n1"]).await;
    let node = node_in(&scene, OTHER_ZONE, "o1");
    scene.nodes.push(node);
    scene.cloud().fault(about(OTHER_ZONE, "instanceGroups.insert", code(403, "quotaExceeded")));
    let mut asked = internal(web());
    for _ in 0..2 {
        let answer = reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::Ensure).await.remove(0);
        let error = answer.result.unwrap_err().to_string();
        assert!(error.contains("quota") && error.contains("not now"), "{error}");
        assert_eq!(answer.status.unwrap().ingress.len(), 1);
        assert_eq!((zones_behind(&scene), scene.group(ZONE)), (vec![ZONE.to_owned()], vec!["n1".to_owned()]));
    }
    // It follows in the pass that makes it.
    scene.cloud().faults(Faults::clear);
    scene.ensure(&mut asked).await;
    assert_eq!((zones_behind(&scene).len(), scene.group(OTHER_ZONE)), (2, vec!["o1".to_owned()]));
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// It is in another network, or in a group of another balancer.
#[tokio::test]
async fn an_instance_that_is_refused_is_left_out_and_named() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = internal(web());
    scene.ensure(&mut asked).await;
    let elsewhere = scene.cloud().world(|world| {
        let other = ClusterSeed {
            network: "other",
            subnetwork: "other",
            range: "10.9.0.0/16",
            pods: "10.192.0.0/12",
            zones: &[ZONE],
            nodes: 0,
            ..ClusterSeed::default()
        };
        world.cluster(&other).subnetwork
    });
    scene.cloud().world(|world| {
        let seed = InstanceSeed {
            project: PROJECT,
            zone: ZONE,
            name: "bad",
            subnetwork: &elsewhere,
            ..InstanceSeed::default()
        };
        world.instance(&seed).unwrap();
    });
    let bad = json!({"name": "bad", "providerId": format!("gce://{PROJECT}/{ZONE}/bad")});
    scene.nodes.push(serde_json::from_value::<ccm_provider::Node>(bad).unwrap().into());
    let node = scene.bed.node("n2");
    scene.nodes.push(node);
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let mark = scene.cloud().mark();
        let answer = reconcile(&scene, std::slice::from_ref(&asked), action).await.remove(0);
        let error = answer.result.unwrap_err().to_string();
        assert!(error.contains("instances/bad") && error.contains("network"), "{error}");
        assert_eq!(scene.group(ZONE), ["n1", "n2"]);
        assert_eq!(answer.status.is_some(), action == ServiceAction::Ensure);
        // It is not offered again at once.
        let writes = scene.writes(mark).len();
        assert_eq!(writes, if action == ServiceAction::Ensure { 0 } else { 2 });
    }
    // A new balancer has its address.
    let new = internal(service("new", json!({})));
    let answer = reconcile(&scene, std::slice::from_ref(&new), ServiceAction::Ensure).await.remove(0);
    assert_eq!(answer.status.unwrap().ingress.len(), 1);
}

#[tokio::test]
async fn a_zone_whose_tags_cannot_be_read_keeps_the_tags_of_rules_and_hosts_follow() {
    let mut scene = Scene::with(&["k8s-node-1"]).await;
    scene.untagged().await;
    let mut asked = web();
    scene.ensure(&mut asked).await;
    let before = scene.object("firewalls", "k8s-fw-LB");
    let node = node_in(&scene, OTHER_ZONE, "k8s-node-2");
    scene.nodes.push(node);
    scene.cloud().fault(about(OTHER_ZONE, "instances.list", code(400, "invalid")));
    for action in [ServiceAction::UpdateHosts, ServiceAction::Ensure] {
        let answer = reconcile(&scene, std::slice::from_ref(&asked), action).await.remove(0);
        assert!(answer.result.unwrap_err().to_string().contains("not now") && answer.status.is_some());
        assert_eq!(texts(&scene.object("targetPools", "LB")["instances"]).len(), 2);
        assert_eq!(scene.object("firewalls", "k8s-fw-LB"), before);
    }
    scene.cloud().faults(Faults::clear);
    scene.is_steady(&mut asked).await;
}

#[tokio::test]
async fn a_zone_whose_tags_cannot_be_read_withholds_no_new_balancer() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        let mut scene = Scene::with(&["k8s-node-1"]).await;
        scene.untagged().await;
        let node = node_in(&scene, OTHER_ZONE, "k8s-node-2");
        scene.nodes.push(node);
        scene.cloud().fault(about(OTHER_ZONE, "instances.list", code(400, "invalid")));
        let mut asked = kind(web());
        for round in 0..2 {
            let mark = scene.cloud().mark();
            let answer = reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::Ensure).await.remove(0);
            assert!(answer.result.unwrap_err().to_string().contains("not now"));
            assert_eq!(answer.status.unwrap().ingress.len(), 1);
            assert_eq!(scene.object("firewalls", "k8s-fw-LB")["targetTags"], json!(["k8s-node"]));
            assert_eq!(scene.writes(mark).is_empty(), round == 1);
        }
        // What the other zone's tags may be stays.
        let mut rule = scene.object("firewalls", "k8s-fw-LB");
        rule["targetTags"] = json!(["k8s-node", "other"]);
        scene.cloud().world(|world| world.put(&format!("projects/p/global/firewalls/k8s-fw-{LB}"), rule));
        asked.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
        reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::Ensure).await.remove(0).result.unwrap_err();
        let rule = scene.object("firewalls", "k8s-fw-LB");
        assert_eq!(
            (&rule["targetTags"], &rule["sourceRanges"]),
            (&json!(["k8s-node", "other"]), &json!(["10.0.0.0/8"]))
        );
        scene.cloud().faults(Faults::clear);
        scene.ensure(&mut asked).await;
        assert_eq!(scene.object("firewalls", "k8s-fw-LB")["targetTags"], json!(["k8s-node"]));
        scene.is_steady(&mut asked).await;
        scene.is_correct();
    }
}

/// Its tag is not the beginning of its name.
#[tokio::test]
async fn a_node_without_a_tag_withholds_nothing_from_a_balancer_that_exists() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        let mut scene = Scene::with(&["k8s-node-1"]).await;
        scene.untagged().await;
        let mut asked = kind(web());
        scene.ensure(&mut asked).await;
        let before = scene.object("firewalls", "k8s-fw-LB");
        let node = scene.bed.node("worker");
        scene.nodes.push(node);
        scene.restart().await;
        scene.events();
        scene.ensure(&mut asked).await;
        assert_eq!((scene.members(), scene.object("firewalls", "k8s-fw-LB")), (2, before));
        let events = scene.events();
        assert!(events.iter().any(|event| event.contains("instance worker in us-central1-b")), "{events:?}");
        scene.is_steady(&mut asked).await;
        // The Service changes, and another node has another tag.
        let node = scene.bed.node("pool-1");
        scene.bed.retag("pool-1", "pool");
        scene.nodes.push(node);
        scene.restart().await;
        asked.spec.ports = ports("TCP", &[8080]);
        asked.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
        scene.ensure(&mut asked).await;
        let rule = scene.object("firewalls", "k8s-fw-LB");
        assert_eq!(rule["allowed"], json!([{"IPProtocol": "tcp", "ports": ["8080"]}]));
        assert_eq!(
            (&rule["targetTags"], &rule["sourceRanges"]),
            (&json!(["k8s-node", "pool"]), &json!(["10.0.0.0/8"]))
        );
        // A new rule would not be for all nodes.
        assert!(scene.refused(&mut kind(service("new", json!({})))).await.contains("instance worker"));
        // It is looked at again, also when its tags were just read, until the user gives the instance a tag.
        for _ in 0..2 {
            let work = [ServiceWork::new(&asked, &scene.nodes, ServiceAction::Ensure)];
            let answer = scene.balancers().reconcile(CLUSTER, &work, &Scope::default()).await.remove(0);
            tokio::time::pause();
            tokio::time::advance(answer.again.unwrap()).await;
            tokio::time::resume();
        }
        scene.bed.retag("worker", "work");
        scene.ensure(&mut asked).await;
        assert_eq!(scene.object("firewalls", "k8s-fw-LB")["targetTags"], json!(["k8s-node", "pool", "work"]));
        scene.is_correct();
    }
}

/// In the only zone, which has all tags.
#[tokio::test]
async fn a_balancer_that_exists_changes_while_no_tag_can_be_read() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        let mut scene = Scene::with(&["k8s-node-1"]).await;
        scene.untagged().await;
        let mut asked = kind(web());
        scene.ensure(&mut asked).await;
        scene.restart().await;
        scene.cloud().fault(about(ZONE, "instances.list", code(400, "invalid")));
        asked.spec.load_balancer_source_ranges = Some(vec!["10.0.0.0/8".to_owned()]);
        assert!(scene.refused(&mut asked).await.contains("not now"));
        let rule = scene.object("firewalls", "k8s-fw-LB");
        assert_eq!((&rule["targetTags"], &rule["sourceRanges"]), (&json!(["k8s-node"]), &json!(["10.0.0.0/8"])));
        scene.cloud().faults(Faults::clear);
        scene.is_steady(&mut asked).await;
        scene.is_correct();
    }
}

/// The objects show what became of the writes.
#[tokio::test]
async fn without_the_right_to_read_operations_the_right_is_named_and_the_balancer_is_made() {
    let denied = ["compute.regionOperations.get".to_owned(), "compute.globalOperations.get".to_owned()];
    let denied = [("*".to_owned(), denied.into())].into();
    let operation = Duration::from_millis(300);
    let scene = Scene::of(Options { denied, operation, ..Options::default() }, &["n1"], "", &[]).await;
    let asked = web();
    for action in [ServiceAction::Ensure, ServiceAction::Delete] {
        let answer = reconcile(&scene, std::slice::from_ref(&asked), action).await.remove(0);
        let status = answer.result.unwrap();
        assert_eq!(status.map(|status| status.ingress.len()), (action == ServiceAction::Ensure).then_some(1));
    }
    assert_eq!(scene.names(), [] as [&str; 0]);
    let events = scene.events();
    assert!(
        events.len() == 1 && events[0].contains("lacks compute.") && events[0].contains("Operations.get"),
        "{events:?}"
    );
}

/// An operation whose end nobody sees.
fn fails_at_its_end() -> Fault {
    Fault::Operation { status: 503, code: "UNAVAILABLE".to_owned(), message: "not now".to_owned() }
}

#[tokio::test]
async fn a_change_of_hosts_whose_end_cannot_be_read_is_looked_at_again() {
    let lost = code(404, "notFound");
    for (kind, call, scope) in [
        ((|service| service) as fn(Service) -> Service, "targetPools.addInstance", "regionOperations"),
        (internal, "instanceGroups.addInstances", "zoneOperations"),
    ] {
        for is_denied in [true, false] {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = kind(web());
            scene.ensure(&mut asked).await;
            if is_denied {
                let denied = vec![format!("compute.{scope}.get")];
                scene.cloud().change(|options| options.denied = [("*".to_owned(), denied)].into());
            } else {
                scene.cloud().fault(Rule::every(lost.clone()).on("compute", &format!("{scope}.wait")));
            }
            scene.cloud().change(|options| options.operations = [(call.to_owned(), 300)].into());
            scene.cloud().fault(Rule::every(fails_at_its_end()).on("compute", call).window(0, 1));
            let node = scene.bed.node("n2");
            scene.nodes.push(node);
            let update =
                async || reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::UpdateHosts).await.remove(0);
            let mut answer = update().await;
            assert_eq!((answer.result.is_ok(), scene.members()), (true, 1), "{call}");
            assert!(answer.again.is_some(), "{call}, denied: {is_denied}");
            // The next ones end at once. None is sent before the time for another look.
            assert_eq!((update().await.result.is_ok(), scene.members()), (true, 1), "{call}");
            tokio::time::pause();
            tokio::time::advance(answer.again.unwrap()).await;
            tokio::time::resume();
            scene.cloud().change(|options| options.operations = [(call.to_owned(), 0)].into());
            for _ in 0..2 {
                answer = update().await;
                assert!(answer.result.is_ok(), "{call}: {answer:?}");
                assert_eq!(scene.members(), 2, "{call}");
            }
            assert!(answer.again.is_none(), "{call}, denied: {is_denied}");
        }
    }
}

/// The last object of a deletion is not looked for afterwards.
#[tokio::test]
async fn a_deletion_whose_operation_is_not_known_any_more_waits_until_the_object_is_gone() {
    let scene = Scene::with(&["n1"]).await;
    let services = [web(), service("other", json!({}))];
    assert!(reconcile(&scene, &services, ServiceAction::Ensure).await.iter().all(|answer| answer.result.is_ok()));
    scene.cloud().change(|options| options.operations = [(format!("firewalls.delete k8s-fw-{LB}"), 4_000)].into());
    scene.cloud().fault(Rule::every(code(404, "notFound")).on("compute", "globalOperations.wait"));
    let is_there = || {
        let path = format!("projects/p/global/firewalls/k8s-fw-{LB}");
        scene.cloud().by_hand("GET", &path, &json!({})).is_ok()
    };
    let answers = reconcile(&scene, &services, ServiceAction::Delete).await;
    assert!(answers[1].result.is_ok(), "{answers:?}");
    let mut deleted = answers.into_iter().next().unwrap().result;
    assert!(deleted.is_err() && is_there());
    while let Err(error) = deleted {
        assert!(error.is_in_progress() && error.to_string().contains("deleting Firewall"), "{error}");
        deleted = reconcile(&scene, &services[..1], ServiceAction::Delete).await.remove(0).result;
    }
    assert!(!is_there());
}

/// The names of shared objects contain the ID.
#[tokio::test]
async fn a_deleted_cluster_id_is_stored_again_and_names_stay() {
    let mut scene = Scene::with(&["n1"]).await;
    let (mut first, mut second) = (internal(web()), internal(service("other", json!({}))));
    scene.ensure(&mut first).await;
    scene.ensure(&mut second).await;
    let uid = scene.bed.factory().config_maps()[0];
    scene.cluster.remove_config_map(&uid);
    later(61).await;
    assert_eq!(scene.writes_to_ensure(&mut first).await, [] as [&str; 0]);
    assert_eq!(scene.cluster.config_map(&uid).unwrap()["uid"], "cid");
    scene.is_steady(&mut second).await;
    // Without its keys, it says nothing about the ID, which external balancers' hosts do not need.
    scene.cluster.set_config_map(&uid, BTreeMap::new());
    let mut outer = service("outer", json!({}));
    scene.ensure(&mut outer).await;
    let node = scene.bed.node("n2");
    scene.nodes.push(node);
    later(61).await;
    scene.update(&mut outer).await;
    scene.update(&mut first).await;
    assert_eq!(scene.members(), 2);
}

pub(super) async fn later(seconds: u64) {
    tokio::time::pause();
    tokio::time::advance(Duration::from_secs(seconds)).await;
    tokio::time::resume();
}

/// The finalizers that are added, or not.
#[derive(Debug, Default)]
struct Marks {
    added: Mutex<Vec<String>>,
    refused: Option<&'static str>,
}

#[async_trait]
impl Finalizers for Marks {
    async fn add(&self, service: &Service, names: &[&'static str]) -> Result<(), ProviderError> {
        if self.refused == Some(&*service.metadata.name) {
            return Err(ProviderError::unknown("the API server refuses"));
        }
        self.added.lock().extend(names.iter().map(|name| format!("{} {name}", service.metadata.name)));
        Ok(())
    }
}

async fn marked(scene: &Scene, services: &[Service], marks: &Arc<Marks>) -> Vec<ServiceAnswer> {
    let work: Vec<ServiceWork> =
        services.iter().map(|service| ServiceWork::new(service, &scene.nodes, ServiceAction::Ensure)).collect();
    let scope = Scope::default().with_finalizers(marks.clone());
    scene.balancers().reconcile(CLUSTER, &work, &scope).await
}

/// The finalizer of this provider would make the Service ours for ever.
#[tokio::test]
async fn finalizers_are_added_once_it_is_known_that_something_is_made() {
    let mut scene = Scene::with(&["n1"]).await;
    let marks = Arc::<Marks>::default();
    // The rule shows that another controller made the balancer.
    let path = format!("projects/p/regions/us-central1/forwardingRules/{LB}");
    let theirs = json!({"name": LB, "IPAddress": "198.51.100.1", "IPProtocol": "TCP", "loadBalancingScheme": "EXTERNAL",
        "backendService": "https://www.googleapis.com/compute/v1/projects/p/regions/us-central1/backendServices/x"});
    scene.cloud().world(|world| world.put(&path, theirs));
    let answers = marked(&scene, &[web()], &marks).await;
    assert!(answers[0].result.as_ref().unwrap_err().is_implemented_elsewhere());
    scene.cloud().world(|world| world.remove(&path));
    // Refused before anything is made.
    let mut mixed = web();
    mixed.spec.ports = [ports("TCP", &[80]), ports("UDP", &[80])].concat();
    assert!(marked(&scene, &[mixed], &marks).await[0].result.is_err());
    let nodes = std::mem::take(&mut scene.nodes);
    let answers = marked(&scene, &[web()], &marks).await;
    assert!(answers[0].result.as_ref().unwrap_err().to_string().contains("no hosts"));
    // Nothing exists, so nothing has to be deleted, and no hosts are missing.
    assert_eq!(scene.balancers().get(CLUSTER, &web()).await.unwrap(), None);
    assert_eq!(*marks.added.lock(), [] as [&str; 0]);
    scene.nodes = nodes;
    // Nothing is written for a Service that cannot have it.
    let marks = Arc::new(Marks { refused: Some("web"), ..Marks::default() });
    let answers = marked(&scene, &[web(), service("other", json!({}))], &marks).await;
    assert!(answers[0].result.as_ref().unwrap_err().to_string().contains("API server refuses"));
    assert!(answers[1].result.is_ok(), "{answers:?}");
    assert_eq!(*marks.added.lock(), ["other gke.networking.io/l4-netlb-v1"]);
    assert!(!scene.names().iter().any(|name| name.contains("LB")), "{:?}", scene.names());
    let marks = Arc::<Marks>::default();
    marked(&scene, &[internal(web())], &marks).await;
    assert_eq!(*marks.added.lock(), ["web gke.networking.io/l4-ilb-v1"]);
}
