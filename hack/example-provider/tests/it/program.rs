//! The program as a process.

use std::process::Stdio;
use std::time::Duration;

use ccm_test_apiserver::{ApiServer, Options};
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::harness::Rack;

const PROGRAM: &str = env!("CARGO_BIN_EXE_example-ccm");
const UNINITIALIZED: &str = "node.cloudprovider.kubernetes.io/uninitialized";

async fn until(server: &ApiServer, resource: &str, name: &str, what: &str, look: impl Fn(&Value) -> bool) {
    let namespace = if resource == "nodes" { "" } else { "default" };
    let seen = || server.store().get(resource, namespace, name).is_ok_and(|object| look(&object));
    let limit = tokio::time::timeout(Duration::from_secs(60), async {
        while !seen() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    let object = || server.store().get(resource, namespace, name);
    assert!(limit.await.is_ok(), "{resource} {name} never was: {what}: {:?}", object());
}

/// Stopped with SIGTERM, as by a kubelet: it shuts down gracefully.
async fn stop(mut program: Child) {
    let pid = program.id().unwrap();
    let signalled = std::process::Command::new("kill").args(["-TERM", &pid.to_string()]).status().unwrap();
    assert!(signalled.success());
    let status = tokio::time::timeout(Duration::from_secs(30), program.wait()).await.unwrap().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[tokio::test(flavor = "multi_thread")]
async fn nodes_services_routes_and_the_own_controller_work_in_a_process() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let rack = Rack::new();
    std::fs::write(rack.path("kubeconfig"), server.kubeconfig()).unwrap();
    let machine = json!({"serial": "sn-1", "addresses": ["10.0.0.1"], "zone": "rack-1", "maintenance": true});
    rack.write("machines/worker", &machine);
    let node = json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": "worker"},
        "spec": {"podCIDR": "10.244.1.0/24", "podCIDRs": ["10.244.1.0/24"],
            "taints": [{"key": UNINITIALIZED, "value": "true", "effect": "NoSchedule"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    });
    server.store().create("nodes", "", node).unwrap();
    let service = json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"},
        "spec": {"type": "LoadBalancer", "ports": [{"port": 80, "protocol": "TCP"}]},
    });
    server.store().create("services", "default", service).unwrap();

    let program = Command::new(PROGRAM)
        .args(["--cloud-provider=example", "--cluster-cidr=10.244.0.0/16", "--secure-port=0", "--leader-elect=false"])
        .args(["--example-maintenance-period=200ms", "--route-reconciliation-period=1s"])
        .arg(format!("--cloud-config={}", rack.path("cloud.yaml").display()))
        .arg(format!("--kubeconfig={}", rack.path("kubeconfig").display()))
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .unwrap();

    until(&server, "nodes", "worker", "initialized", |node| {
        let taints = node["spec"]["taints"].as_array();
        let waits = taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == UNINITIALIZED));
        !waits && node["spec"]["providerID"] == "example://sn-1"
    })
    .await;
    until(&server, "nodes", "worker", "under maintenance", |node| {
        node["metadata"]["labels"]["example.com/maintenance"] == "true"
    })
    .await;
    until(&server, "services", "web", "balanced", |web| {
        web["status"]["loadBalancer"]["ingress"][0]["ip"] == "192.0.2.1"
    })
    .await;
    until(&server, "nodes", "worker", "routed", |node| {
        let conditions = node["status"]["conditions"].as_array();
        conditions.is_some_and(|all| all.iter().any(|c| c["type"] == "NetworkUnavailable" && c["status"] == "False"))
    })
    .await;
    assert_eq!((rack.objects("routes").len(), rack.objects("balancers").len()), (1, 1));

    let well = json!({"serial": "sn-1", "addresses": ["10.0.0.1"], "zone": "rack-1"});
    rack.write("machines/worker", &well);
    until(&server, "nodes", "worker", "no longer under maintenance", |node| {
        node["metadata"]["labels"].get("example.com/maintenance").is_none()
    })
    .await;
    stop(program).await;
}

#[test]
fn flags_of_provider_and_controller_stand_in_the_help_and_are_checked() {
    let run = |args: &[&str]| std::process::Command::new(PROGRAM).args(args).output().unwrap();
    let help = String::from_utf8(run(&["--help"]).stdout).unwrap();
    for flag in ["--example-directory", "--example-maintenance-period", "--cloud-provider"] {
        assert!(help.contains(flag), "{flag} is not in the help");
    }
    let refused = run(&["--cloud-provider=example", "--example-maintenance-period=0s"]);
    let text = String::from_utf8(refused.stderr).unwrap();
    assert!(text.contains("--example-maintenance-period must be greater than 0"), "{text}");
    assert!(!refused.status.success());
    let off = ["--cloud-provider=example", "--example-maintenance-period=0s", "--controllers=*,-maintenance"];
    let text = String::from_utf8(run(&off).stderr).unwrap();
    assert!(!text.contains("must be greater than 0"), "a controller that is off was checked: {text}");
}
