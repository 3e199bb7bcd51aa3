//! Mistakes of users, and missing permissions: each error names key, value and remedy, and other Services continue. The
//! core shows the error of a Service as its event.

use ccm_cloudsim::core::faults::{Fault, Faults, Rule};
use serde_json::{Value, json};

use super::scene::{LB, Scene, internal, service, web};

const SUBNET: &str = "networking.gke.io/internal-load-balancer-subnet";

fn put(scene: &Scene, path: &str, object: Value) {
    scene.cloud().world(|world| world.put(&format!("projects/p/{path}"), object));
}

/// The error of a Service contains all of this, and another Service gets its balancer.
async fn says(scene: &Scene, mut wrong: ccm_provider::Service, all: &[&str]) {
    let error = scene.refused(&mut wrong).await;
    assert!(all.iter().all(|text| error.contains(text)), "{all:?}: {error}");
    scene.cloud().faults(Faults::clear);
    let mut good = service("good", json!({}));
    scene.ensure(&mut good).await;
    scene.delete(&mut good).await;
}

#[tokio::test]
async fn a_policy_of_the_organization_is_named_with_what_can_be_done() {
    let scene = Scene::with(&["n1"]).await;
    let message = "Constraint constraints/compute.restrictLoadBalancerCreationForTypes violated for projects/p. Forwarding Rule \
                   projects/p/regions/us-central1/forwardingRules/x of type EXTERNAL_NETWORK_TCP_UDP is not allowed.";
    let refused = Fault::Code { status: 412, code: "conditionNotMet".to_owned(), message: message.to_owned() };
    let failed = Fault::Operation { status: 403, code: "FORBIDDEN".to_owned(), message: message.to_owned() };
    for fault in [refused, failed] {
        scene.cloud().fault(Rule::every(fault).on("compute", "forwardingRules.insert"));
        let constraint = "constraints/compute.restrictLoadBalancerCreationForTypes";
        let all = ["compute.forwardingRules.create: a policy of the organization forbids it", "exception", constraint];
        says(&scene, web(), &all).await;
    }
}

#[tokio::test]
async fn an_exhausted_quota_is_named_with_what_can_be_done() {
    let scene = Scene::with(&["n1"]).await;
    let message = "Quota 'FORWARDING_RULES' exceeded. Limit: 15.0 in region us-central1.".to_owned();
    let fault = Fault::Operation { status: 403, code: "QUOTA_EXCEEDED".to_owned(), message };
    scene.cloud().fault(Rule::every(fault).on("compute", "forwardingRules.insert"));
    says(&scene, web(), &["Quota 'FORWARDING_RULES' exceeded. Limit: 15.0", "ask for more or remove"]).await;
}

#[tokio::test]
async fn a_subnetwork_without_free_addresses_is_named_with_what_can_be_done() {
    let scene = Scene::with(&["n1"]).await;
    let message = "IP space of 'projects/p/regions/us-central1/subnetworks/sub' is exhausted.".to_owned();
    let refused = Fault::Code { status: 403, code: "ipSpaceExhausted".to_owned(), message: message.clone() };
    let failed = Fault::Operation { status: 403, code: "IP_SPACE_EXHAUSTED_WITH_DETAILS".to_owned(), message };
    for fault in [refused, failed] {
        scene.cloud().fault(Rule::every(fault).on("compute", "forwardingRules.insert"));
        says(&scene, internal(web()), &["subnetworks/sub' is exhausted", "free addresses or use a larger subnetwork"])
            .await;
    }
}

#[tokio::test]
async fn a_firewall_rule_of_our_name_in_another_network_is_named() {
    let scene = Scene::with(&["n1"]).await;
    let name = format!("k8s-fw-{LB}");
    let theirs = json!({"name": name, "network": "https://www.googleapis.com/compute/v1/projects/p/global/networks/other",
        "sourceRanges": ["0.0.0.0/0"], "allowed": [{"IPProtocol": "tcp"}], "direction": "INGRESS", "priority": 1000});
    put(&scene, &format!("global/firewalls/{name}"), theirs.clone());
    says(&scene, web(), &[&name, "belongs to the network", "networks/other", "delete it"]).await;
    assert_eq!(scene.object("firewalls", &name)["network"], theirs["network"]);
}

#[tokio::test]
async fn an_address_that_something_else_uses_is_named_with_its_user() {
    let scene = Scene::with(&["n1"]).await;
    let user = "https://www.googleapis.com/compute/v1/projects/p/zones/us-central1-b/instances/shop";
    let address = json!({"name": "mine", "address": "198.51.100.7", "addressType": "EXTERNAL", "networkTier": "PREMIUM",
        "status": "IN_USE", "users": [user]});
    put(&scene, "regions/us-central1/addresses/mine", address);
    let wrong = service("web", json!({"loadBalancerIP": "198.51.100.7"}));
    says(&scene, wrong, &["spec.loadBalancerIP", "198.51.100.7", "mine", "shop", "use another one or free it"]).await;
}

#[tokio::test]
async fn an_internal_address_outside_of_the_subnetwork_is_named_with_its_range() {
    let scene = Scene::with(&["n1"]).await;
    let range = scene.cloud().objects("subnetworks")[0]["ipCidrRange"].as_str().unwrap().to_owned();
    let wrong = internal(service("web", json!({"loadBalancerIP": "10.99.0.5"})));
    says(&scene, wrong, &["spec.loadBalancerIP", "10.99.0.5", &range, SUBNET]).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[tokio::test]
async fn a_subnetwork_of_another_region_is_named_with_its_key() {
    let mut scene = Scene::with(&["n1"]).await;
    let mut named = internal(web());
    super::scene::set(&mut named, SUBNET, "far");
    put(
        &scene,
        "regions/europe-west1/subnetworks/far",
        json!({"name": "far", "ipCidrRange": "10.9.0.0/16",
        "network": "https://www.googleapis.com/compute/v1/projects/p/global/networks/default"}),
    );
    says(&scene, named, &[SUBNET, "\"far\"", "subnetwork", "region"]).await;
    let far = "projects/p/regions/europe-west1/subnetworks/far";
    scene.reconfigure(&format!("subnetwork-name = {far}")).await;
    says(&scene, internal(web()), &["subnetwork-name", far, "europe-west1", "us-central1", SUBNET]).await;
}

#[tokio::test]
async fn a_tier_and_protocols_that_do_not_exist_are_named_with_those_that_do() {
    let scene = Scene::with(&["n1"]).await;
    let mut tier = web();
    super::scene::set(&mut tier, "cloud.google.com/network-tier", "standard");
    says(&scene, tier, &["cloud.google.com/network-tier", "\"standard\"", "Premium or Standard"]).await;
    let mixed = json!({"ports": [{"port": 53, "protocol": "TCP"}, {"port": 53, "protocol": "UDP"}]});
    says(&scene, service("web", mixed), &["mixed protocol", "spec.ports", "a Service for each"]).await;
    let sctp = json!({"ports": [{"port": 53, "protocol": "SCTP"}]});
    says(&scene, service("web", sctp), &["protocol SCTP", "only TCP and UDP"]).await;
}

/// A wrong value of each annotation, and whether the load balancer is internal.
const WRONG: &[(bool, &str, &str)] = &[
    (false, "networking.gke.io/load-balancer-type", "Intern"),
    (false, "cloud.google.com/load-balancer-type", "Intern"),
    (true, "networking.gke.io/internal-load-balancer-allow-global-access", "yes"),
    (true, SUBNET, "no-such-subnetwork"),
    (true, SUBNET, "No such name"),
    (false, "cloud.google.com/network-tier", "gold"),
    (false, "cloud.google.com/l4-rbs", "on"),
    (true, "alpha.cloud.google.com/load-balancer-backend-share", "yes"),
    (true, "cloud.google.com/load-balancer-backend-share", "yes"),
];

/// Those that are written, and not read.
const WRITTEN: [&str; 2] = ["networking.gke.io/backend-service", "networking.gke.io/target-pool"];

#[test]
fn each_annotation_has_a_wrong_value_here() {
    let reference = ccm_provider_gce::reference("annotations").unwrap();
    let keys = reference.lines().filter_map(|line| line.strip_prefix("| `")?.split('`').next());
    let is_common = |key: &&str| *key == "service.beta.kubernetes.io/load-balancer-source-ranges";
    let here = |key: &str| WRITTEN.contains(&key) || WRONG.iter().any(|(_, here, _)| key == *here);
    let missing: Vec<&str> = keys.filter(|key| !is_common(key) && !here(key)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[tokio::test]
async fn a_wrong_value_is_named_with_its_key_and_other_services_go_on() {
    let mut unnamed = Vec::new();
    for (is_internal, key, value) in WRONG {
        let scene = Scene::with(&["n1"]).await;
        let mut wrong = if *is_internal { internal(web()) } else { web() };
        super::scene::set(&mut wrong, key, value);
        let answer = scene.try_ensure(&mut wrong).await.map_err(|error| error.to_string());
        let said = format!("{:?} {answer:?}", scene.events());
        if !said.contains(key) || !said.contains(value) {
            unnamed.push((key, value, said));
        }
        let mut good = service("good", json!({}));
        scene.ensure(&mut good).await;
        scene.delete(&mut good).await;
        scene.delete(&mut wrong).await;
        assert_eq!(scene.names(), [] as [&str; 0], "{key} {value}");
    }
    assert!(unnamed.is_empty(), "{unnamed:#?}");
}
