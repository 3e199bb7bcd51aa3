//! Addresses that are reserved while a rule is replaced: none stays that nothing needs.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_provider::{Claims, Service};
use serde_json::{Value, json};

use super::alone::later;
use super::scene::{LB, Scene, internal, ports, service, set, texts, web};
use crate::bed::CLUSTER;

const ADDRESSES: &str = "projects/p/regions/us-central1/addresses";
/// The description of what is made for [`web`].
const OURS: &str = r#"{"kubernetes.io/service-name":"default/web"}"#;

/// Reserves an address under the name of the balancer, as another client; `null`: any.
fn reserve(scene: &Scene, ip: &Value, description: &str) {
    let address = json!({"name": LB, "address": ip, "networkTier": "PREMIUM", "description": description});
    scene.cloud().by_hand("POST", ADDRESSES, &address).unwrap();
}

fn refusal(status: u16, code: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: "no".to_owned() }
}

fn udp(service: &mut Service) {
    service.spec.ports = ports("UDP", &[80]);
}

fn other_port(service: &mut Service) {
    service.spec.ports = ports("TCP", &[8080]);
}

fn standard(service: &mut Service) {
    set(service, "cloud.google.com/network-tier", "Standard");
}

/// The internal address of an instance.
fn address_of(scene: &Scene, name: &str) -> String {
    let instances = scene.cloud().objects("instances");
    let instance = instances.iter().find(|instance| instance["name"] == name).unwrap();
    instance["networkInterfaces"][0]["networkIP"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn the_address_of_a_replacement_whose_firewall_rule_is_refused_is_released() {
    for (begin, change) in [
        (web(), other_port as fn(&mut Service)),
        (web(), udp),
        (web(), standard),
        (internal(web()), other_port),
        (internal(web()), udp),
    ] {
        for fault in [refusal(403, "forbidden"), refusal(400, "invalid"), refusal(403, "quotaExceeded")] {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = begin.clone();
            let ip = scene.ensure(&mut asked).await;
            change(&mut asked);
            let is_remembered = matches!(&fault, Fault::Code { code, .. } if code != "quotaExceeded");
            scene.cloud().fault(Rule::every(fault).on("compute", "firewalls.patch"));
            for round in 0..3 {
                let mark = scene.cloud().mark();
                scene.refused(&mut asked).await;
                assert_eq!(scene.find("addresses", LB), None);
                assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
                let writes = scene.writes(mark);
                assert!(round == 0 || !is_remembered || writes.is_empty(), "{writes:?}");
            }
            scene.cloud().faults(Faults::clear);
            scene.restart().await;
            scene.ensure(&mut asked).await;
            scene.is_steady(&mut asked).await;
            assert_eq!(scene.find("addresses", LB), None);
            scene.is_correct();
        }
    }
}

/// Each trial would reserve an address and release it again.
#[tokio::test]
async fn without_a_permission_a_replacement_is_tried_every_ten_minutes_and_writes_nothing_meanwhile() {
    for lacks in ["compute.firewalls.update", "compute.forwardingRules.delete"] {
        for mut asked in [web(), internal(web())] {
            let mut scene = Scene::with(&["n1"]).await;
            let ip = scene.ensure(&mut asked).await;
            other_port(&mut asked);
            scene.cloud().change(|options| options.denied = [("*".to_owned(), vec![lacks.to_owned()])].into());
            for round in 0..4 {
                let mark = scene.cloud().mark();
                let error = scene.refused(&mut asked).await;
                assert!(error.contains(lacks), "{error}");
                let writes = scene.writes(mark);
                let tried = writes.iter().filter(|write| write.starts_with("addresses.")).count();
                assert_eq!(tried, if round == 0 { 2 } else { 0 }, "{lacks}: {writes:?}");
                assert!(round == 0 || writes.is_empty(), "{lacks}: {writes:?}");
                assert_eq!(scene.find("addresses", LB), None);
                assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
            }
            // The members do not wait for it.
            let node = scene.bed.node("n2");
            scene.nodes.push(node);
            scene.refused(&mut asked).await;
            assert_eq!(scene.members(), 2, "{lacks}");
            scene.cloud().change(|options| options.denied.clear());
            later(601).await;
            assert_eq!(scene.ensure(&mut asked).await, ip);
            assert_eq!(scene.find("addresses", LB), None);
            scene.is_steady(&mut asked).await;
            scene.is_correct();
        }
    }
}

/// A process does not look for one that it has seen to be absent.
#[tokio::test]
async fn an_address_that_somebody_else_has_just_reserved_is_compared() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    scene.ensure(&mut asked).await;
    // Another process of ours, that leads no more.
    reserve(&scene, &json!(ip), OURS);
    other_port(&mut asked);
    let (calls, now) = scene.calls(scene.ensure(&mut asked)).await;
    let tried = |calls: &[String]| calls.iter().filter(|call| *call == "addresses.insert").count();
    assert_eq!((tried(&calls), now), (1, ip.clone()), "{calls:?}");
    assert_eq!(scene.object("forwardingRules", "LB")["portRange"], "8080-8080");
    assert_eq!(scene.find("addresses", LB), None);
    scene.is_steady(&mut asked).await;
    // Another one of a user.
    reserve(&scene, &Value::Null, "theirs");
    let (theirs, rule) = (scene.object("addresses", "LB"), scene.object("forwardingRules", "LB"));
    asked.spec.ports = ports("TCP", &[8081]);
    for attempts in [1, 0] {
        let (calls, error) = scene.calls(scene.refused(&mut asked)).await;
        assert!(error.contains("the forwarding rule is not replaced") && error.contains(LB), "{error}");
        assert_eq!(tried(&calls), attempts, "{calls:?}");
        assert_eq!(
            (scene.object("addresses", "LB"), scene.object("forwardingRules", "LB")),
            (theirs.clone(), rule.clone())
        );
    }
    let node = scene.bed.node("n2");
    scene.nodes.push(node);
    scene.update(&mut asked).await;
    assert_eq!(scene.members(), 2);
    scene.delete(&mut asked).await;
    assert_eq!(scene.names(), ["addresses LB"]);
    scene.is_correct();
}

#[tokio::test]
async fn an_address_that_an_earlier_process_has_reserved_is_released_if_the_replacement_is_refused() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    reserve(&scene, &json!(ip), OURS);
    scene.cloud().fault(Rule::every(refusal(403, "forbidden")).on("compute", "firewalls.patch"));
    other_port(&mut asked);
    scene.restart().await;
    scene.refused(&mut asked).await;
    assert_eq!(scene.find("addresses", LB), None);
    assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
}

/// The former one is gone with its rule.
#[tokio::test]
async fn a_rule_comes_back_at_another_address_if_one_of_another_tier_is_refused() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    standard(&mut asked);
    let next = Rule { params: Some("STANDARD".to_owned()), ..Rule::every(refusal(403, "quotaExceeded")) };
    scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
    for _ in 0..2 {
        scene.refused(&mut asked).await;
        assert_eq!(scene.find("addresses", LB), None);
    }
    let rule = scene.object("forwardingRules", "LB");
    assert_eq!(rule["networkTier"], "PREMIUM");
    assert_ne!(rule["IPAddress"], ip);
    let admitted = texts(&scene.object("firewalls", "k8s-fw-LB")["destinationRanges"]);
    assert!(admitted.contains(&rule["IPAddress"].as_str().unwrap().to_owned()), "{admitted:?}");
    scene.cloud().faults(Faults::clear);
    scene.restart().await;
    scene.ensure(&mut asked).await;
    assert_eq!(scene.object("forwardingRules", "LB")["networkTier"], "STANDARD");
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// A reservation would promote it, and cannot be deleted for as long as the instance has it.
#[tokio::test]
async fn the_address_of_an_instance_is_refused_without_a_reservation() {
    let scene = Scene::with(&["n1"]).await;
    let mut asked = internal(web());
    let ip = scene.ensure(&mut asked).await;
    asked.spec.load_balancer_ip = address_of(&scene, "n1");
    let mark = scene.cloud().mark();
    let error = scene.refused(&mut asked).await;
    assert!(error.contains("is in use by n1"), "{error}");
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    // Without the right to list instances, the reservation shows it.
    scene.cloud().fault(Rule::every(refusal(403, "forbidden")).on("compute", "instances.list"));
    assert!(scene.refused(&mut asked).await.contains("is in use by n1"));
    assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
    assert_eq!(scene.object("addresses", "LB")["address"], address_of(&scene, "n1"));
    // Its name is taken by now, and other changes do without.
    asked.spec.load_balancer_ip.clear();
    other_port(&mut asked);
    assert_eq!(scene.ensure(&mut asked).await, ip);
    assert_eq!(scene.object("forwardingRules", "LB")["ports"], json!(["8080"]));
    scene.is_correct();
}

/// A rule does not hold the reservation of its address.
#[tokio::test]
async fn the_address_of_another_rule_is_refused_and_not_kept_reserved() {
    let scene = Scene::with(&["n1"]).await;
    let (mut asked, mut other) = (internal(web()), internal(service("other", json!({}))));
    let ip = scene.ensure(&mut asked).await;
    asked.spec.load_balancer_ip = scene.ensure(&mut other).await;
    for _ in 0..2 {
        assert!(scene.refused(&mut asked).await.contains("is in use by"));
        assert_eq!(scene.find("addresses", LB), None);
        assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
    }
    scene.is_correct();
}

#[tokio::test]
async fn a_reservation_that_a_deleted_service_has_left_is_an_orphan() {
    let scene = Scene::with(&["n1"]).await;
    let description = r#"{"kubernetes.io/service-name":"default/web"}"#;
    for left in [
        json!({"name": LB, "networkTier": "PREMIUM", "description": description}),
        json!({"name": "mine", "networkTier": "PREMIUM"}),
    ] {
        scene.cloud().by_hand("POST", ADDRESSES, &left).unwrap();
    }
    let inspect = scene.provider().inspect().unwrap();
    let claims = |services: &[Service]| Claims {
        nodes: scene.nodes.clone(),
        services: services.iter().map(|service| service.clone().into()).collect(),
    };
    let orphans = inspect.orphans(CLUSTER, &claims(&[])).await.unwrap();
    assert_eq!(orphans.len(), 1, "{orphans:?}");
    assert!(orphans[0].owner == "service default/web" && orphans[0].kept.is_some(), "{orphans:?}");
    assert_eq!(inspect.orphans(CLUSTER, &claims(&[web()])).await.unwrap(), []);
}

mod long_lane {
    use std::time::{Duration, Instant};

    use ccm_provider::ServiceAction;

    use super::super::parts::reconcile;
    use super::*;

    /// A call waits twenty seconds for it.
    #[tokio::test]
    async fn the_address_of_a_rule_that_comes_back_late_is_released() {
        let scene = Scene::with(&["n1"]).await;
        let mut asked = web();
        let ip = scene.ensure(&mut asked).await;
        other_port(&mut asked);
        let next = Rule { params: Some("8080".to_owned()), ..Rule::every(refusal(403, "forbidden")) };
        scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
        scene.cloud().change(|options| options.operations = [(format!("forwardingRules.insert {LB}"), 25_000)].into());
        let began = Instant::now();
        let ask =
            async || reconcile(&scene, std::slice::from_ref(&asked), ServiceAction::Ensure).await.remove(0).result;
        let mut error = ask().await.unwrap_err();
        assert!(error.is_in_progress(), "{error}");
        while error.is_in_progress() {
            assert!(began.elapsed() < Duration::from_secs(60));
            error = ask().await.unwrap_err();
        }
        assert_eq!(scene.find("addresses", LB), None);
        assert_eq!(scene.object("forwardingRules", "LB")["IPAddress"], ip);
        scene.is_correct();
    }

    /// A region has eight.
    #[tokio::test]
    async fn the_reservations_of_operations_that_go_on_count() {
        let scene = Scene::with(&["n1"]).await;
        let mut services: Vec<Service> = (0..6).map(|number| service(&format!("s{number}"), json!({}))).collect();
        for service in &mut services {
            scene.ensure(service).await;
            other_port(service);
        }
        scene.cloud().change(|options| options.operations = [("forwardingRules.insert*".to_owned(), 3_600_000)].into());
        for work in [&services[..4], &services[4..]] {
            let answers = reconcile(&scene, work, ServiceAction::Ensure).await;
            assert!(answers.iter().all(|answer| answer.result.as_ref().unwrap_err().is_in_progress()), "{answers:?}");
        }
        assert_eq!(scene.cloud().objects("addresses").len(), 4);
    }
}
