//! Services that change to the other kind of load balancer, of which something is refused.

use std::time::Duration;

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::{Service, ServiceAction};
use serde_json::{Value, json};

use super::scene::{LB, Scene, TYPE, internal, local, set, texts, web};

const SUBNET: &str = "networking.gke.io/internal-load-balancer-subnet";

fn refusal(status: u16, code: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: "no".to_owned() }
}

/// What of the load balancer its clients see.
fn served(scene: &Scene) -> Vec<Value> {
    let rule = scene.object("forwardingRules", "LB");
    let firewall = scene.object("firewalls", "k8s-fw-LB");
    let admits = texts(&firewall["destinationRanges"]).contains(&rule["IPAddress"].as_str().unwrap().to_owned());
    vec![rule["IPAddress"].clone(), rule["loadBalancingScheme"].clone(), json!(admits)]
}

/// The Service with the other kind.
fn other(service: &Service) -> Service {
    let mut other = service.clone();
    if other.metadata.annotations.remove(TYPE).is_none() {
        set(&mut other, TYPE, "Internal");
    }
    other
}

/// Its hosts follow the nodes meanwhile.
#[tokio::test]
async fn a_load_balancer_serves_until_everything_that_the_other_kind_needs_is_there() {
    let external = || (web(), internal(web()));
    for ((mut before, _), call) in [
        (external(), "addresses.insert"),
        (external(), "healthChecks.insert"),
        (external(), "regionBackendServices.insert"),
        (external(), "firewalls.patch"),
        ((internal(web()), web()), "httpHealthChecks.insert"),
        ((internal(web()), web()), "targetPools.insert"),
    ] {
        for fault in [refusal(400, "invalid"), refusal(403, "forbidden"), refusal(403, "quotaExceeded")] {
            let mut scene = Scene::with(&["n1"]).await;
            let ip = scene.ensure(&mut before).await;
            let begun = before.metadata.finalizers.clone();
            let mut after = other(&before);
            let was = served(&scene);
            scene.cloud().fault(Rule::every(fault.clone()).on("compute", call));
            for _ in 0..2 {
                let mark = scene.cloud().mark();
                scene.refused(&mut after).await;
                assert_eq!((served(&scene), &was[0]), (was.clone(), &json!(ip)), "{call} {fault:?}");
                assert_eq!(scene.find("addresses", LB), None, "{call} {fault:?}");
                let writes = scene.writes(mark);
                assert!(!writes.iter().any(|write| write.starts_with("forwardingRules")), "{call}: {writes:?}");
            }
            scene.nodes.push(scene.bed.node("n2"));
            scene.refused(&mut after).await;
            assert_eq!(scene.members(), 2, "{call} {fault:?}");
            scene.cloud().faults(Faults::clear);
            scene.restart().await;
            assert_ne!(scene.ensure(&mut after).await, ip);
            scene.is_steady(&mut after).await;
            scene.delete(&mut after).await;
            assert_eq!(scene.names(), [] as [&str; 0], "{call}");
            scene.is_correct();
            before.metadata.finalizers = begun;
            before.metadata.finalizers.clear();
        }
    }
}

#[tokio::test]
async fn an_external_load_balancer_serves_if_the_internal_one_cannot_have_its_address() {
    let unknown = |service: &mut Service, _: &Scene| set(service, SUBNET, "nosuch");
    let used = |service: &mut Service, scene: &Scene| {
        let instances = scene.cloud().objects("instances");
        let n1 = instances.iter().find(|instance| instance["name"] == "n1").unwrap();
        service.spec.load_balancer_ip = n1["networkInterfaces"][0]["networkIP"].as_str().unwrap().to_owned();
    };
    for change in [unknown as fn(&mut Service, &Scene), used] {
        let scene = Scene::with(&["n1"]).await;
        let mut before = web();
        scene.ensure(&mut before).await;
        let was = served(&scene);
        let mut after = other(&before);
        change(&mut after, &scene);
        for _ in 0..2 {
            scene.refused(&mut after).await;
            assert_eq!(served(&scene), was);
        }
        // Taken back, nothing of the internal one stays.
        let mut back = other(&after);
        back.metadata.annotations.clear();
        back.spec.load_balancer_ip.clear();
        scene.ensure(&mut back).await;
        assert_eq!(served(&scene), was);
        assert_eq!(scene.cloud().objects("instanceGroups").len(), 0);
        scene.delete(&mut back).await;
        assert_eq!(scene.names(), [] as [&str; 0]);
    }
}

/// They are sent to its address.
#[tokio::test]
async fn health_checks_reach_a_former_rule_at_the_address_with_which_it_has_come_back() {
    let scene = Scene::with(&["n1"]).await;
    let mut before = local();
    let ip = scene.ensure(&mut before).await;
    let next = Rule { params: Some("backendServices/".to_owned()), ..Rule::every(refusal(403, "quotaExceeded")) };
    scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
    let mut after = other(&before);
    for _ in 0..2 {
        scene.refused(&mut after).await;
    }
    let now = served(&scene)[0].clone();
    assert_ne!(now, json!(ip));
    assert_eq!(scene.object("firewalls", "k8s-LB-http-hc")["destinationRanges"], json!([now]));
    let mark = scene.cloud().mark();
    scene.refused(&mut after).await;
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    // Taken back, it stays.
    let mut back = other(&after);
    assert_eq!(json!(scene.ensure(&mut back).await), now);
    for name in ["k8s-fw-LB", "k8s-LB-http-hc"] {
        assert_eq!(scene.object("firewalls", name)["destinationRanges"], json!([now]), "{name}");
    }
    scene.is_correct();
}

/// An external address that nobody reserved is gone with its rule.
#[tokio::test]
async fn the_former_rule_comes_back_if_that_of_the_other_kind_is_refused() {
    for mut before in [web(), internal(web())] {
        for fault in [refusal(400, "invalid"), refusal(403, "quotaExceeded")] {
            let mut scene = Scene::with(&["n1"]).await;
            before.metadata.finalizers.clear();
            let ip = scene.ensure(&mut before).await;
            let was = served(&scene);
            let is_internal = was[1] == "INTERNAL";
            let mut after = other(&before);
            let next = if is_internal { "EXTERNAL" } else { "INTERNAL" };
            let params = if is_internal { "targetPools/" } else { "backendServices/" };
            let rule = Rule { params: Some(params.to_owned()), ..Rule::every(fault) };
            scene.cloud().fault(rule.on("compute", "forwardingRules.insert"));
            scene.refused(&mut after).await;
            for _ in 0..2 {
                // The firewall rule admits the traffic to its new address.
                let (answer, _) = scene.ask(&mut after, ServiceAction::Ensure).await;
                assert!(answer.is_err(), "{next}");
                let now = served(&scene);
                assert_eq!(now[1..], was[1..], "{next}");
                assert_eq!(now[0] == json!(ip), is_internal, "{next}");
                assert_eq!(scene.find("addresses", LB), None, "{next}");
            }
            scene.cloud().faults(Faults::clear);
            scene.restart().await;
            scene.ensure(&mut after).await;
            scene.is_steady(&mut after).await;
            scene.delete(&mut after).await;
            assert_eq!(scene.names(), [] as [&str; 0], "{next}");
            scene.is_correct();
        }
    }
}

/// Its operation is done at once, so that its address is read within the write.
#[tokio::test]
async fn a_rule_that_is_made_and_may_not_be_read_is_not_taken_for_refused() {
    let operation = Duration::ZERO;
    let scene = Scene::of(Options { operation, ..Options::default() }, &["n1"], "", &[]).await;
    let mut service = internal(web());
    scene.ensure(&mut service).await;
    let mut service = other(&service);
    scene.cloud().fault(Rule::every(Fault::Deny).on("compute", "forwardingRules.get").window(1, 1));
    let mark = scene.cloud().mark();
    let error = scene.refused(&mut service).await;
    assert!(error.contains("ccm lacks compute.forwardingRules.get"), "{error}");
    let made = || scene.writes(mark).into_iter().filter(|write| write == "forwardingRules.insert").count();
    assert_eq!(made(), 1, "the former one does not come back");
    let ip = scene.ensure(&mut service).await;
    assert_eq!(served(&scene), [json!(ip), json!("EXTERNAL"), json!(true)]);
    assert_eq!(made(), 1);
    scene.is_correct();
}
