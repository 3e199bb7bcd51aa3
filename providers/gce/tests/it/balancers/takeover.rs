//! The objects of the Go program are taken over.

use serde_json::{Value, json};

use super::scene::{LB, Scene, internal, ports, texts, web};

const WWW: &str = "https://www.googleapis.com/compute/v1/projects/p";
const SERVICE: &str = r#"{"kubernetes.io/service-name":"default/web"}"#;

fn put(scene: &Scene, place: &str, object: Value) {
    let name = object["name"].as_str().unwrap().to_owned();
    scene.cloud().world(|world| world.put(&format!("projects/p/{place}/{name}"), object));
}

#[allow(clippy::needless_pass_by_value)] // literals at all callers
fn firewall(name: &str, description: &str, more: Value) -> Value {
    let mut rule = json!({
        "name": name, "description": description, "network": format!("{WWW}/global/networks/default"),
        "targetTags": ["k8s-node"], "priority": 1000, "direction": "INGRESS",
    });
    for (key, value) in more.as_object().unwrap() {
        rule[key] = value.clone();
    }
    rule
}

fn checks(name: &str, description: &str) -> Value {
    let sources = json!(["130.211.0.0/22", "35.191.0.0/16", "209.85.152.0/22", "209.85.204.0/22"]);
    let allowed = json!([{"IPProtocol": "tcp", "ports": ["10256"]}]);
    firewall(name, description, json!({"sourceRanges": sources, "allowed": allowed}))
}

fn traffic(ip: &str) -> Value {
    let description = format!(r#"{{"kubernetes.io/service-name":"default/web", "kubernetes.io/service-ip":"{ip}"}}"#);
    let allowed = json!([{"IPProtocol": "tcp", "ports": ["80", "443"]}]);
    let more = json!({"sourceRanges": ["0.0.0.0/0"], "destinationRanges": [ip], "allowed": allowed});
    firewall(&format!("k8s-fw-{LB}"), &description, more)
}

fn external(scene: &Scene) {
    let region = "regions/us-central1";
    let numbers = json!({"checkIntervalSec": 8, "timeoutSec": 1, "healthyThreshold": 1, "unhealthyThreshold": 3});
    let mut check = json!({"name": "k8s-cid-node", "description": r#"{"kubernetes.io/service-name":"k8s-cid-node"}"#,
        "port": 10256, "requestPath": "/healthz"});
    check.as_object_mut().unwrap().extend(numbers.as_object().unwrap().clone());
    put(scene, "global/httpHealthChecks", check);
    put(scene, "global/firewalls", traffic("203.0.113.7"));
    put(scene, "global/firewalls", checks("k8s-cid-node-http-hc", r#"{"kubernetes.io/cluster-id":"cid"}"#));
    let pool = json!({"name": LB, "description": SERVICE, "sessionAffinity": "NONE",
        "instances": [format!("{WWW}/zones/us-central1-b/instances/n1")],
        "healthChecks": [format!("{WWW}/global/httpHealthChecks/k8s-cid-node")]});
    put(scene, &format!("{region}/targetPools"), pool);
    let rule = json!({"name": LB, "description": SERVICE, "IPAddress": "203.0.113.7", "IPProtocol": "TCP",
        "portRange": "80-443", "target": format!("{WWW}/{region}/targetPools/{LB}"), "networkTier": "PREMIUM",
        "loadBalancingScheme": "EXTERNAL"});
    put(scene, &format!("{region}/forwardingRules"), rule);
}

#[tokio::test]
async fn an_external_balancer_of_the_go_program_costs_no_write() {
    let mut scene = Scene::with(&["n1"]).await;
    external(&scene);
    let mut web = web();
    web.spec.ports = ports("TCP", &[80, 443]);
    assert_eq!(scene.ensure(&mut web).await, "203.0.113.7");
    scene.is_steady(&mut web).await;
    assert_eq!(scene.writes(0), [] as [&str; 0]);
    // A setting of other releases is removed with one patch.
    let path = "projects/p/global/firewalls/k8s-cid-node-http-hc";
    let mut pinned = scene.object("firewalls", "k8s-cid-node-http-hc");
    pinned["destinationRanges"] = json!(["203.0.113.6"]);
    scene.cloud().world(|world| world.put(path, pinned));
    assert_eq!(scene.writes_to_ensure(&mut web).await, ["firewalls.patch"]);
    assert_eq!(texts(&scene.object("firewalls", "k8s-cid-node-http-hc")["destinationRanges"]), [] as [&str; 0]);
    scene.is_steady(&mut web).await;
    scene.delete(&mut web).await;
    assert_eq!(scene.names(), [] as [&str; 0]);
}

#[tokio::test]
async fn an_internal_balancer_of_the_go_program_costs_no_write() {
    let mut scene = Scene::with(&["n1"]).await;
    let region = "regions/us-central1";
    // The group has to know its members, so another Service creates it.
    let mut other = internal(super::scene::service("other", json!({})));
    scene.ensure(&mut other).await;
    let group = format!("{WWW}/zones/us-central1-b/instanceGroups/k8s-ig--cid");
    let backend = json!({"name": LB, "description": SERVICE, "protocol": "TCP", "sessionAffinity": "NONE",
        "loadBalancingScheme": "INTERNAL", "healthChecks": [format!("{WWW}/global/healthChecks/k8s-cid-node")],
        "backends": [{"group": group, "balancingMode": "CONNECTION"}], "fingerprint": "abc=",
        "connectionDraining": {"drainingTimeoutSec": 60}});
    put(&scene, &format!("{region}/backendServices"), backend);
    let rule = json!({"name": LB, "description": SERVICE, "IPAddress": "10.128.0.200", "IPProtocol": "TCP", "ports": ["80", "443"],
        "backendService": format!("{WWW}/{region}/backendServices/{LB}"), "loadBalancingScheme": "INTERNAL",
        "subnetwork": format!("https://www.googleapis.com/compute/v1/{}", scene.bed.subnetwork),
        "network": format!("{WWW}/global/networks/default"), "networkTier": "PREMIUM"});
    put(&scene, &format!("{region}/forwardingRules"), rule);
    put(&scene, "global/firewalls", traffic("10.128.0.200"));
    let mark = scene.cloud().mark();
    let mut web = internal(web());
    web.spec.ports = ports("TCP", &[80, 443]);
    assert_eq!(scene.ensure(&mut web).await, "10.128.0.200");
    scene.is_steady(&mut web).await;
    assert_eq!(scene.writes(mark), [] as [&str; 0]);
    // User settings stay when something else changes.
    web.spec.session_affinity = "ClientIP".to_owned();
    assert_eq!(scene.writes_to_ensure(&mut web).await, ["regionBackendServices.patch"]);
    let backend = scene.object("backendServices", "LB");
    assert_eq!(
        (&backend["connectionDraining"]["drainingTimeoutSec"], &backend["sessionAffinity"]),
        (&json!(60), &json!("CLIENT_IP"))
    );
}
