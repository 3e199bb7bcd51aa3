//! A network in another project, whose administrators manage the firewall rules.

use ccm_cloudsim::gce::Options;
use ccm_cloudsim::gce::seed::ClusterSeed;
use ccm_provider::ErrorClass;
use std::time::Duration;

use super::scene::{LB, Scene, internal, ports, texts, web};

/// The project `p` in the network of the project `host`, where writes of firewall rules are denied.
async fn scene(denied: &[&str]) -> Scene {
    let denied = denied.iter().map(|permission| format!("compute.firewalls.{permission}")).collect();
    let options = Options { denied: [("host".to_owned(), denied)].into(), ..Options::default() };
    Scene::in_cluster(options, &ClusterSeed { network_project: "host", ..Scene::seed() }, &["n1"]).await
}

#[tokio::test]
async fn without_rights_the_commands_are_shown_once_in_an_hour() {
    let scene = scene(&["create", "update", "delete"]).await;
    let mut web = web();
    let ip = scene.ensure(&mut web).await;
    assert!(!scene.names().iter().any(|name| name.contains("firewalls")));
    let mut events = scene.events();
    events.sort();
    assert_eq!(events.len(), 2, "{events:?}");
    let expected = format!(
        "LoadBalancerManualChange: Firewall change required by security admin: `gcloud compute firewall-rules create \
         k8s-fw-{LB} --network default --description \"{{\\\"kubernetes.io/service-name\\\":\\\"default/web\\\", \
         \\\"kubernetes.io/service-ip\\\":\\\"{ip}\\\"}}\" --allow tcp:80 --source-ranges 0.0.0.0/0 --destination-ranges {ip} \
         --target-tags k8s-node --priority 1000 --project host`"
    );
    assert!(
        events.iter().any(|event| event.ends_with(&expected) || event.contains(&expected)),
        "{events:#?}\n{expected}"
    );
    scene.ensure(&mut web).await;
    assert_eq!(scene.events(), [] as [&str; 0]);
    scene.cluster.advance(Duration::from_secs(3601));
    scene.ensure(&mut web).await;
    assert_eq!(scene.events().len(), 2);
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[tokio::test]
async fn the_commands_for_internal_load_balancers_have_no_priority() {
    let scene = scene(&["create", "update", "delete"]).await;
    let (mut before, mut after) = (web(), internal(web()));
    scene.ensure(&mut before).await;
    after.metadata.finalizers.clone_from(&before.metadata.finalizers);
    scene.events();
    scene.ensure(&mut after).await;
    let events = scene.events();
    let made: Vec<&String> = events.iter().filter(|event| event.contains("firewall-rules create")).collect();
    assert!(made.len() == 2 && made.iter().all(|event| !event.contains("--priority")), "{events:#?}");
    assert!(made.iter().any(|event| event.contains(r#"--description "" "#)), "{events:#?}");
}

#[tokio::test]
async fn a_rule_that_the_administrators_made_is_enough() {
    let scene = scene(&["create", "update", "delete"]).await;
    let mut web = internal(web());
    let ip = scene.ensure(&mut web).await;
    scene.events();
    let rule = |name: &str, ports: &[&str], destination: Option<&str>| {
        let mut rule = serde_json::json!({
            "name": name, "description": "by hand", "network": "https://www.googleapis.com/compute/v1/projects/host/global/networks/default",
            "sourceRanges": ["0.0.0.0/0"], "allowed": [{"IPProtocol": "tcp", "ports": ports}], "direction": "INGRESS",
        });
        if let Some(ip) = destination {
            rule["destinationRanges"] = serde_json::json!([ip]);
        }
        scene.cloud().world(|world| world.put(&format!("projects/host/global/firewalls/{name}"), rule));
    };
    rule(&format!("k8s-fw-{LB}"), &["1-1000"], Some(&ip));
    rule("k8s-cid-node-hc", &["10256"], None);
    scene.cluster.advance(Duration::from_secs(3601));
    scene.ensure(&mut web).await;
    assert_eq!(scene.events(), [] as [&str; 0]);
    // The rule does not admit other ports.
    web.spec.ports = ports("TCP", &[8080]);
    scene.ensure(&mut web).await;
    let events = scene.events();
    assert!(events.len() == 1 && events[0].contains("firewall-rules update"), "{events:?}");
    // The command of a deletion names the existing rule.
    scene.delete(&mut web).await;
    let events = scene.events();
    assert!(
        events.iter().any(|event| event.contains(&format!("firewall-rules delete k8s-fw-{LB} --project host"))),
        "{events:?}"
    );
}

#[tokio::test]
async fn without_the_right_to_read_rules_the_permission_is_named() {
    let scene = scene(&["get"]).await;
    let error = scene.try_ensure(&mut web()).await.unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Denied { .. }) && error.to_string().contains("compute.firewalls.get"));
}

#[tokio::test]
async fn rules_are_made_in_the_project_of_the_network() {
    let mut scene = scene(&[]).await;
    let mut web = web();
    scene.ensure(&mut web).await;
    assert_eq!(texts(&scene.object("firewalls", "k8s-fw-LB")["targetTags"]), ["k8s-node"]);
    assert!(scene.object("firewalls", "k8s-fw-LB")["selfLink"].as_str().unwrap().contains("/projects/host/"));
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
}

/// The administrators admit the traffic with a rule of their own.
#[tokio::test]
async fn firewall_rules_that_are_left_to_the_administrators_hold_nothing_else_back() {
    let mut scene = scene(&["create", "update", "delete"]).await;
    scene.restart_with(&["enable-l4-lb-annotations"]).await;
    for (mut service, key) in [(web(), "target-pool"), (internal(web()), "backend-service")] {
        scene.ensure(&mut service).await;
        let key = format!("networking.gke.io/{key}");
        assert_eq!(service.metadata.annotations.get(&key).map(String::as_str), Some(LB), "{key}");
        // What could be left of a change is looked for once.
        let (calls, _) = scene.calls(scene.ensure(&mut service)).await;
        assert!(!calls.iter().any(|call| call.starts_with("addresses")), "{calls:?}");
        scene.delete(&mut service).await;
    }
}
