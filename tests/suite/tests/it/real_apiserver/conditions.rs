//! Conditions of Services, merged by a real API server.

use ccm_test_bed::Options;
use ccm_test_suite::Object;

use super::*;

const ARGS: [&str; 2] = ["--controllers=service", "--feature-gates=ServiceLoadBalancerConditions=true"];
const OTHER: &str = "example.com/Checked";

/// `Type=Status/Reason`, in alphabetical order.
fn conditions(service: &Object) -> Vec<String> {
    let line = |c: &serde_json::Value| {
        assert!(c["lastTransitionTime"].is_string(), "{c}");
        let text = |key: &str| c[key].as_str().unwrap_or_default().to_owned();
        format!("{}={}/{}", text("type"), text("status"), text("reason"))
    };
    let mut lines: Vec<String> = service["status"]["conditions"].as_array().into_iter().flatten().map(line).collect();
    lines.sort();
    lines
}

fn since(service: &Object, kind: &str) -> String {
    service.condition(kind).unwrap()["lastTransitionTime"].as_str().unwrap().to_owned()
}

const SERVES: [&str; 3] =
    ["LoadBalancerProvisioning=False/Complete", "LoadBalancerServing=True/Serving", "example.com/Checked=True/Checked"];

#[tokio::test(flavor = "multi_thread")]
async fn conditions_are_merged_by_type_and_go_with_the_balancer() {
    let bed = Options::default().audit_bodies();
    let faults = "stateFile: state.json\nfaults: [{call: EnsureLoadBalancer, error: quota}]";
    let Some(rig) = Rig::real_alone(bed, "suite-conditions", faults).await else { return };
    rig.create(node("n").provider_id(&id(&rig, "n"))).await;
    rig.create(service("web")).await;
    let status = json!({"status": {"conditions": [{"type": OTHER, "status": "True", "reason": "Checked", "message": "",
        "lastTransitionTime": "2020-01-01T00:00:00Z"}]}});
    rig.patch("services", "default", "web", "status", status).await;

    let manager = rig.start(&ARGS).await;
    let failed =
        rig.until_service("web", "has failed", |s| conditions(s).iter().any(|c| c.contains("Infrastructure"))).await;
    assert_eq!(
        conditions(&failed),
        ["LoadBalancerProvisioning=False/Complete", "LoadBalancerServing=False/Infrastructure", SERVES[2]]
    );
    let message = failed.condition("LoadBalancerServing").unwrap()["message"].as_str().unwrap().to_owned();
    assert_eq!(
        rig.until_event("web", "SyncLoadBalancerFailed").await,
        format!("Warning SyncLoadBalancerFailed: {message}")
    );
    rig.cloud.write("stateFile: state.json");
    let done = rig.until_service("web", "serves", |s| !s.ingress().is_empty()).await;
    assert_eq!(conditions(&done), SERVES);
    assert_eq!(since(&done, OTHER), "2020-01-01T00:00:00Z");
    assert_eq!(since(&done, "LoadBalancerProvisioning"), since(&failed, "LoadBalancerProvisioning"));
    manager.stop().await.unwrap();

    // A new leader ensures once and writes nothing.
    let ensured = rig.cloud.calls("EnsureLoadBalancer").len();
    let manager = rig.start(&ARGS).await;
    rig.until(LONG, "ensured again", async |rig| (rig.cloud.ended("EnsureLoadBalancer").len() > ensured).then_some(()))
        .await;
    rig.until_event("web", "EnsuredLoadBalancer").await;
    manager.stop().await.unwrap();
    assert_eq!(rig.service("web").await.unwrap().version(), done.version());

    // A real server keeps the conditions when the type changes; ours are removed with the finalizer.
    let manager = rig.start(&ARGS).await;
    rig.patch_service("web", json!({"spec": {"type": "ClusterIP"}})).await;
    let plain = rig.until_service("web", "no finalizer", |s| s.finalizers().is_empty()).await;
    assert_eq!((conditions(&plain), plain.ingress()), (vec![SERVES[2].to_owned()], vec![]));
    rig.patch_service("web", json!({"spec": {"type": "LoadBalancer"}})).await;
    rig.until_service("web", "serves again", |s| conditions(s) == SERVES).await;
    rig.delete("services", "default", "web").await;
    rig.until(LONG, "gone", async |rig| rig.service("web").await.is_none().then_some(())).await;
    manager.stop().await.unwrap();

    let (mut writes, mut log) = (Vec::new(), rig.bed().audit());
    let all = async || {
        let patches =
            log.read().unwrap().into_iter().filter(|entry| entry.verb == "patch" && entry.is_about("services/status"));
        writes.extend(patches.filter(|entry| !entry.to_string().contains(OTHER)));
        // The address of a Service that was deleted together with its finalizer.
        writes.iter().any(|entry| entry.code == 404)
    };
    deadline(LONG, || "the audit log lacks the last patch".into(), all).await;
    // Finalizer added, failure, address; finalizer removed; finalizer added, address; finalizer removed.
    let with = |what: &str| writes.iter().filter(|entry| entry.to_string().contains(what)).count();
    let bodies: String = writes.iter().map(|entry| format!("\n{entry}")).collect();
    assert_eq!(
        (writes.len(), with("finalizers"), with("\"conditions\""), with("\"loadBalancer\"")),
        (8, 4, 7, 3),
        "{bodies}"
    );
}
