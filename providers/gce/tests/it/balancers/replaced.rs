//! Forwarding rules that are deleted for a successor, of which something is refused.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use ccm_cloudsim::gce::Options;
use ccm_provider::Service;
use serde_json::{Value, json};

use super::scene::{LB, Scene, internal, local, ports, service, set, texts, web};

const FIELDS: [&str; 7] =
    ["IPAddress", "IPProtocol", "ports", "portRange", "target", "backendService", "loadBalancingScheme"];

fn refusal(status: u16, code: &str) -> Fault {
    Fault::Code { status, code: code.to_owned(), message: "no".to_owned() }
}

/// What of the rule of [`web`] its clients see.
fn served(scene: &Scene) -> Vec<Value> {
    let rule = scene.object("forwardingRules", "LB");
    FIELDS.map(|field| rule[field].clone()).into()
}

/// Another port, and another backend service or settings of it.
fn shares(service: &mut Service) {
    service.spec.ports = ports("TCP", &[81]);
    set(service, "alpha.cloud.google.com/load-balancer-backend-share", "true");
}

fn sticks(service: &mut Service) {
    service.spec.ports = ports("TCP", &[81]);
    service.spec.session_affinity = "ClientIP".to_owned();
}

/// Nothing of it needs the rule to be gone.
#[tokio::test]
async fn a_rule_stays_until_the_backend_service_of_its_successor_is_ready() {
    for (call, change) in [
        ("regionBackendServices.patch", sticks as fn(&mut Service)),
        ("regionBackendServices.insert", shares as fn(&mut Service)),
    ] {
        for fault in [refusal(400, "invalid"), refusal(403, "forbidden"), refusal(403, "quotaExceeded")] {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = internal(web());
            let ip = scene.ensure(&mut asked).await;
            let before = served(&scene);
            change(&mut asked);
            scene.cloud().fault(Rule::every(fault).on("compute", call));
            for _ in 0..2 {
                let mark = scene.cloud().mark();
                scene.refused(&mut asked).await;
                assert_eq!(served(&scene), before, "{call}");
                let writes = scene.writes(mark);
                assert!(!writes.iter().any(|write| write.starts_with("forwardingRules")), "{writes:?}");
            }
            scene.cloud().faults(Faults::clear);
            // A process remembers what was refused for good.
            scene.restart().await;
            assert_eq!(scene.ensure(&mut asked).await, ip);
            scene.is_steady(&mut asked).await;
            scene.is_correct();
        }
    }
}

/// What serves stays until the firewall admits its successor, which another role may never allow.
#[tokio::test]
async fn a_rule_stays_until_its_firewall_rule_admits_its_successor() {
    for begin in [web(), local(), internal(web())] {
        for (fault, takes_address) in
            [(refusal(403, "forbidden"), false), (refusal(400, "invalid"), false), (refusal(403, "forbidden"), true)]
        {
            let mut scene = Scene::with(&["n1"]).await;
            let mut asked = begin.clone();
            let ip = scene.ensure(&mut asked).await;
            let before = served(&scene);
            asked.spec.ports = ports("TCP", &[8080]);
            if takes_address {
                let kind = if asked.metadata.annotations.is_empty() { "EXTERNAL" } else { "INTERNAL" };
                let mine = json!({"name": "mine", "addressType": kind, "subnetwork": scene.bed.subnetwork});
                let mine = if kind == "EXTERNAL" { json!({"name": "mine"}) } else { mine };
                scene.cloud().by_hand("POST", "projects/p/regions/us-central1/addresses", &mine).unwrap();
                asked.spec.load_balancer_ip = scene.object("addresses", "mine")["address"].as_str().unwrap().to_owned();
            }
            scene.cloud().fault(Rule::every(fault).on("compute", "firewalls.patch"));
            for _ in 0..2 {
                let mark = scene.cloud().mark();
                scene.refused(&mut asked).await;
                let writes = scene.writes(mark);
                assert!(!writes.iter().any(|write| write.starts_with("forwardingRules")), "{writes:?}");
                assert_eq!(served(&scene), before);
                let firewall = scene.object("firewalls", "k8s-fw-LB");
                let admitted = (&firewall["allowed"][0]["ports"], &firewall["destinationRanges"]);
                assert_eq!(admitted, (&json!(["80"]), &json!([ip])));
            }
            scene.cloud().faults(Faults::clear);
            scene.restart().await;
            let next = scene.ensure(&mut asked).await;
            assert_eq!(next == ip, !takes_address);
            let firewall = scene.object("firewalls", "k8s-fw-LB");
            assert_eq!(firewall["allowed"][0]["ports"], json!(["8080"]));
            assert_eq!(texts(&firewall["destinationRanges"]), [next]);
            scene.is_steady(&mut asked).await;
            scene.is_correct();
        }
    }
}

/// The protocol of a backend service changes only while no rule uses it.
#[tokio::test]
async fn a_rule_whose_successor_has_another_protocol_comes_back_if_something_is_refused() {
    for (call, fault) in [
        ("forwardingRules.insert", refusal(400, "invalid")),
        ("regionBackendServices.patch", refusal(400, "invalid")),
        ("regionBackendServices.patch", refusal(403, "forbidden")),
    ] {
        let mut scene = Scene::with(&["n1"]).await;
        let mut asked = internal(web());
        let ip = scene.ensure(&mut asked).await;
        let before = served(&scene);
        asked.spec.ports = ports("UDP", &[80]);
        // What comes back is sent with the same calls.
        scene.cloud().fault(Rule::every(fault).on("compute", call).window(0, 1));
        scene.refused(&mut asked).await;
        for _ in 0..2 {
            assert_eq!(served(&scene), before, "{call}");
            assert_eq!(scene.object("backendServices", "LB")["protocol"], "TCP", "{call}");
            let mark = scene.cloud().mark();
            scene.refused(&mut asked).await;
            assert_eq!(scene.writes(mark), [] as [&str; 0], "{call}");
        }
        scene.restart().await;
        assert_eq!(scene.ensure(&mut asked).await, ip);
        scene.is_steady(&mut asked).await;
        scene.is_correct();
    }
}

#[tokio::test]
async fn a_rule_comes_back_if_a_policy_of_the_organization_forbids_its_successor() {
    let message =
        "Constraint constraints/compute.restrictLoadBalancerCreationForTypes violated for projects/p.".to_owned();
    for fault in [
        Fault::Code { status: 412, code: "conditionNotMet".to_owned(), message: message.clone() },
        Fault::Operation { status: 403, code: "FORBIDDEN".to_owned(), message },
    ] {
        let mut scene = Scene::with(&["n1"]).await;
        let mut asked = web();
        let ip = scene.ensure(&mut asked).await;
        let before = served(&scene);
        asked.spec.ports = ports("TCP", &[8080]);
        scene.cloud().fault(Rule::every(fault).on("compute", "forwardingRules.insert").window(0, 1));
        for _ in 0..2 {
            assert!(scene.refused(&mut asked).await.contains("a policy of the organization forbids it"));
            assert_eq!(served(&scene), before);
        }
        scene.restart().await;
        assert_eq!(scene.ensure(&mut asked).await, ip);
        scene.is_steady(&mut asked).await;
        scene.is_correct();
    }
}

/// A user's rule leads to the same pool.
#[tokio::test]
async fn a_rule_comes_back_if_its_pool_cannot_be_replaced() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    let before = served(&scene);
    let rules = "projects/p/regions/us-central1/forwardingRules";
    let target = scene.object("forwardingRules", "LB")["target"].clone();
    let theirs = json!({"name": "theirs", "target": target, "IPProtocol": "TCP", "portRange": "8443"});
    scene.cloud().by_hand("POST", rules, &theirs).unwrap();
    asked.spec.session_affinity = "ClientIP".to_owned();
    let mark = scene.cloud().mark();
    assert!(scene.refused(&mut asked).await.contains("being used by"));
    let writes = scene.writes(mark);
    assert!(!writes.iter().any(|write| write.starts_with("targetPools.insert")), "it is still there: {writes:?}");
    for _ in 0..2 {
        assert_eq!(served(&scene), before);
        let mark = scene.cloud().mark();
        scene.refused(&mut asked).await;
        assert_eq!(scene.writes(mark), [] as [&str; 0]);
    }
    scene.cloud().by_hand("DELETE", &format!("{rules}/theirs"), &json!({})).unwrap();
    scene.restart().await;
    assert_eq!(scene.ensure(&mut asked).await, ip);
    assert_eq!(scene.object("targetPools", "LB")["sessionAffinity"], "CLIENT_IP");
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

#[tokio::test]
async fn a_pool_and_its_rule_come_back_if_the_next_pool_is_refused() {
    let mut scene = Scene::with(&["n1", "n2"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    let before = served(&scene);
    asked.spec.session_affinity = "ClientIP".to_owned();
    let next = Rule { params: Some("CLIENT_IP".to_owned()), ..Rule::every(refusal(400, "invalid")) };
    scene.cloud().fault(next.on("compute", "targetPools.insert"));
    for _ in 0..2 {
        scene.refused(&mut asked).await;
        assert_eq!((served(&scene), scene.members()), (before.clone(), 2));
        assert_eq!(scene.find("targetPools", LB).unwrap()["sessionAffinity"], "NONE");
    }
    scene.cloud().faults(Faults::clear);
    scene.restart().await;
    assert_eq!(scene.ensure(&mut asked).await, ip);
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// The pool has its successor, the rule has none.
#[tokio::test]
async fn a_rule_comes_back_if_its_successor_fails_after_the_pool_was_replaced_and_is_refused_then() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    let ip = scene.ensure(&mut asked).await;
    let before = served(&scene);
    sticks(&mut asked);
    scene.cloud().fault(Rule::every(refusal(503, "backendError")).on("compute", "forwardingRules.insert"));
    scene.refused(&mut asked).await;
    assert_eq!(scene.object("targetPools", "LB")["sessionAffinity"], "CLIENT_IP");
    scene.cloud().faults(Faults::clear);
    scene.cloud().fault(Rule::every(refusal(400, "invalid")).on("compute", "forwardingRules.insert").window(0, 1));
    scene.refused(&mut asked).await;
    assert_eq!(served(&scene), before);
    scene.restart().await;
    assert_eq!(scene.ensure(&mut asked).await, ip);
    scene.is_steady(&mut asked).await;
    scene.is_correct();
}

/// A new pool takes 200 instances at once.
#[tokio::test]
async fn a_pool_that_comes_back_has_all_present_nodes() {
    let names: Vec<String> = (0..250).map(|number| format!("n{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut scene = Scene::with(&names).await;
    let mut asked = web();
    let new = scene.nodes.split_off(248);
    scene.ensure(&mut asked).await;
    scene.nodes.extend(new);
    asked.spec.session_affinity = "ClientIP".to_owned();
    let next = Rule { params: Some("CLIENT_IP".to_owned()), ..Rule::every(refusal(400, "invalid")) };
    scene.cloud().fault(next.on("compute", "targetPools.insert"));
    scene.refused(&mut asked).await;
    assert_eq!(scene.members(), 250);
    assert_eq!(scene.find("targetPools", LB).unwrap()["sessionAffinity"], "NONE");
    scene.is_correct();
}

/// Each reservation counts, and a region has few.
#[tokio::test]
async fn the_address_of_a_rule_that_has_come_back_is_released() {
    for kind in [(|service| service) as fn(Service) -> Service, internal] {
        let mut scene = Scene::with(&["n1"]).await;
        let mut asked = kind(web());
        let ip = scene.ensure(&mut asked).await;
        let before = served(&scene);
        asked.spec.ports = ports("TCP", &[8080]);
        let next = Rule { params: Some("8080".to_owned()), ..Rule::every(refusal(403, "quotaExceeded")) };
        scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
        for round in 0..3 {
            let mark = scene.cloud().mark();
            scene.refused(&mut asked).await;
            assert_eq!(served(&scene), before);
            assert_eq!(scene.find("addresses", LB), None);
            // Nothing is reserved for a rule that is not tried.
            let is_tried = scene.writes(mark).iter().any(|write| write == "addresses.insert");
            assert_eq!(is_tried, round == 0);
        }
        scene.cloud().faults(Faults::clear);
        scene.restart().await;
        assert_eq!(scene.ensure(&mut asked).await, ip);
        scene.is_steady(&mut asked).await;
        scene.is_correct();
    }
}

/// More Services than a region has addresses to reserve.
#[tokio::test]
async fn refused_replacements_leave_reservations_for_others() {
    let quotas = [("STATIC_ADDRESSES".to_owned(), 8)].into();
    let scene = Scene::of(Options { quotas, ..Options::default() }, &["n1"], "", &[]).await;
    let next = Rule { params: Some("8080".to_owned()), ..Rule::every(refusal(403, "quotaExceeded")) };
    scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
    for number in 0..9 {
        let mut asked = service(&format!("s{number}"), json!({}));
        scene.ensure(&mut asked).await;
        asked.spec.ports = ports("TCP", &[8080]);
        scene.refused(&mut asked).await;
    }
    let mut other = web();
    let ip = scene.ensure(&mut other).await;
    other.spec.ports = ports("TCP", &[81]);
    assert_eq!(scene.ensure(&mut other).await, ip);
}

/// Each trial deletes what serves.
#[tokio::test]
async fn an_annotation_of_others_is_no_reason_to_try_a_refused_replacement_again() {
    let scene = Scene::with(&["n1"]).await;
    let mut asked = web();
    scene.ensure(&mut asked).await;
    asked.spec.ports = ports("TCP", &[8080]);
    let next = Rule { params: Some("8080".to_owned()), ..Rule::every(refusal(400, "invalid")) };
    scene.cloud().fault(next.on("compute", "forwardingRules.insert"));
    scene.refused(&mut asked).await;
    for (key, is_tried) in [
        ("team.example/owner", false),
        ("argocd.argoproj.io/tracking-id", false),
        ("cloud.google.com/network-tier", true),
    ] {
        set(&mut asked, key, "Premium");
        let mark = scene.cloud().mark();
        scene.refused(&mut asked).await;
        let writes = scene.writes(mark);
        assert_eq!(writes.iter().any(|write| write == "forwardingRules.delete"), is_tried, "{key}: {writes:?}");
    }
}
