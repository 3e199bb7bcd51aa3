//! The conditions of a Service, and the number of their writes.

use super::*;

const GATE: &str = "--feature-gates=ServiceLoadBalancerConditions=true";

/// All conditions, as `Serving=True/Serving: message`, in alphabetical order.
fn conditions(service: &Object) -> Vec<String> {
    let text = |condition: &Value, key: &str| condition[key].as_str().unwrap_or_default().to_owned();
    let line = |c: &Value| {
        let kind = text(c, "type").replace("LoadBalancer", "");
        format!("{kind}={}/{}: {}", text(c, "status"), text(c, "reason"), text(c, "message"))
    };
    let mut lines: Vec<String> = service["status"]["conditions"].as_array().into_iter().flatten().map(line).collect();
    lines.sort();
    lines
}

const SERVES: [&str; 2] =
    ["Provisioning=False/Complete: Ensured load balancer", "Serving=True/Serving: Ensured load balancer"];

fn serves(service: &Object) -> bool {
    has_address(service) && conditions(service) == SERVES
}

async fn start(rig: &Rig) -> Running {
    rig.start(&[SERVICES, GATE]).await
}

/// Adds a condition of another program.
async fn add_condition(rig: &Rig, kind: &str) {
    let other = json!({"type": kind, "status": "True", "lastTransitionTime": "2020-01-01T00:00:00Z", "reason": "Checked",
        "message": "by another program"});
    let mut all = rig.service("s").await.unwrap()["status"]["conditions"].as_array().cloned().unwrap_or_default();
    all.push(other);
    rig.patch("services", "default", "s", "status", json!({"status": {"conditions": all}})).await;
}

#[tokio::test(start_paused = true)]
async fn conditions_go_with_the_finalizer_and_with_the_address() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, delay: 30s}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = start(&rig).await;
    let working = rig.until_service("s", "has conditions", |s| !conditions(s).is_empty()).await;
    let text = "Ensuring load balancer";
    assert_eq!(
        conditions(&working),
        [format!("Provisioning=True/Provisioning: {text}"), format!("Serving=False/Provisioning: {text}")]
    );
    assert_eq!(working.finalizers(), [FINALIZER]);
    let done = rig.until_service("s", "serves", serves).await;
    let since =
        |service: &Object| service["status"]["conditions"][0]["lastTransitionTime"].as_str().unwrap().to_owned();
    assert!(since(&done) > since(&working), "{done:?}");
    let writes = bodies(&rig, "s");
    assert_eq!(writes.len(), 2, "no write of their own: {writes:?}");
    // No writes in the steady state and with other hosts.
    rig.store().log().clear();
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_reported_once_with_its_reason_and_removed_when_it_is_over() {
    for (kind, reason) in [("NotImplemented", "Unsupported"), ("Other", "Infrastructure")] {
        let rig = Rig::new(&format!("faults: [{{call: EnsureLoadBalancer, kind: {kind}, error: broken}}]")).await;
        add_node(&rig, "n").await;
        rig.create(service("s")).await;
        let _manager = start(&rig).await;
        rig.until_calls("EnsureLoadBalancer", 3).await;
        rig.pass(Duration::from_secs(1)).await;
        let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
        let text = event.strip_prefix("Warning SyncLoadBalancerFailed: ").unwrap();
        assert_eq!(
            conditions(&rig.service("s").await.unwrap()),
            [format!("Provisioning=False/Complete: {text}"), format!("Serving=False/{reason}: {text}")]
        );
        assert_eq!(bodies(&rig, "s").len(), 2, "the finalizer, and the failure once");
        rig.cloud.write("");
        rig.until(10 * MINUTE, "serves", async |rig| rig.service("s").await.filter(serves)).await;
        assert_eq!(bodies(&rig, "s").len(), 3);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_needs_time_is_still_provisioning() {
    let rig =
        Rig::new("faults: [{call: EnsureLoadBalancer, times: 3, kind: Retry, error: soon, retryAfter: 20s}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = start(&rig).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(Duration::from_secs(1)).await;
    let text = "Error syncing load balancer: failed to ensure load balancer: soon";
    assert_eq!(
        conditions(&rig.service("s").await.unwrap()),
        [format!("Provisioning=True/Provisioning: {text}"), format!("Serving=False/Provisioning: {text}")]
    );
    rig.until(10 * MINUTE, "serves", async |rig| rig.service("s").await.filter(serves)).await;
    assert_eq!(bodies(&rig, "s").len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_wants_no_balancer_any_more_loses_its_conditions_with_its_finalizer() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = start(&rig).await;
    rig.until_service("s", "serves", serves).await;
    add_condition(&rig, "example.com/Checked").await;
    rig.store().log().clear();
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    let plain = rig.until_service("s", "no finalizer", |s| s.finalizers().is_empty()).await;
    assert_eq!(conditions(&plain), ["example.com/Checked=True/Checked: by another program"]);
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), [""; 0]);
    // The address, if the API server has not removed it with the type.
    let writes = bodies(&rig, "s");
    assert!(
        writes.len() <= 2 && writes.iter().filter(|(_, body)| body.contains("conditions")).count() == 1,
        "{writes:?}"
    );
    // And changed back.
    rig.patch_service("s", json!({"spec": {"type": "LoadBalancer"}})).await;
    rig.until_service("s", "serves again", |s| has_address(s) && conditions(s).len() == 3).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_writes_no_condition_that_is_there() {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = start(&rig).await;
    rig.until_service("s", "serves", serves).await;
    manager.stop().await.unwrap();
    rig.store().log().clear();
    let manager = start(&rig).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.writes(), []);
    manager.stop().await.unwrap();
    // Without the gate they stay unchanged.
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 3).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn without_the_gate_there_are_no_conditions() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, error: broken}]");
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    rig.pass(MINUTE).await;
    assert_eq!(conditions(&rig.service("s").await.unwrap()), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn conditions_stay_as_they_are_when_the_gate_is_switched_off_again() {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = start(&rig).await;
    let before = conditions(&rig.until_service("s", "serves", serves).await);
    manager.stop().await.unwrap();
    rig.store().log().clear();
    rig.cloud.write("stateFile: state.json\nfaults: [{call: EnsureLoadBalancer, times: 2, error: quota}]");
    let manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 4).await;
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    let plain = rig.until_service("s", "no finalizer", |s| s.finalizers().is_empty()).await;
    assert_eq!(conditions(&plain), before);
    assert!(bodies(&rig, "s").iter().all(|(_, body)| !body.contains("conditions")), "{:?}", bodies(&rig, "s"));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_balancer_of_another_controller_keeps_the_conditions_of_that_controller() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, kind: ImplementedElsewhere}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    add_condition(&rig, "LoadBalancerServing").await;
    let _manager = start(&rig).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.pass(10 * MINUTE).await;
    let theirs = ["Serving=True/Checked: by another program"];
    assert_eq!(conditions(&rig.service("s").await.unwrap()), theirs);
    assert_eq!(bodies(&rig, "s").len(), 1, "the finalizer");
    // The earlier condition is removed.
    rig.create(service("t")).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(conditions(&rig.service("t").await.unwrap()), [""; 0]);
    assert_eq!(bodies(&rig, "t").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn conditions_that_cannot_be_written_hold_nothing_up() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, times: 1, error: broken}]").await;
    add_node(&rig, "n").await;
    rig.faults().add(Fault::status(500).on(Match::on("patch", "services").subresource("status")).skip(1).times(1));
    rig.create(service("s")).await;
    let _manager = start(&rig).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    rig.until(MINUTE, "serves", async |rig| rig.service("s").await.filter(serves)).await;
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 1);
}
