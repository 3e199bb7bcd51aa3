//! Load balancers that another client changed: reported, and repaired with the next change of the Service or at once.

use super::*;

const CHECK: &str = "--drift-check-period=20s";
const STEPS: &str = "ccm_drift_steps{controller=\"service-lb-controller\"}";
const TOTAL: &str = "ccm_drift_steps_total{controller=\"service-lb-controller\"}";

#[tokio::test(start_paused = true)]
async fn a_balancer_that_another_client_removed_is_reported_once_and_nothing_is_written() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    rig.create(service("other").with(|s| s["spec"]["loadBalancerClass"] = json!("example.com/theirs"))).await;
    let manager = rig.start(&[SERVICES, CHECK]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!((manager.metric(STEPS), manager.metric(TOTAL)), (Some(0.0), Some(0.0)));
    rig.store().log().clear();
    // The file replaces the whole table.
    rig.cloud.write("loadBalancers: {initial: [{service: default/unrelated, ingress: [{ip: 203.0.113.77}]}]}");
    let event = rig.until_event("s", "LoadBalancerDrift").await;
    assert!(event.contains("create LoadBalancer"), "{event}");
    let steps = manager.metric(STEPS).unwrap();
    assert!(steps > 0.0);
    rig.pass(30 * MINUTE).await;
    assert_eq!((manager.metric(STEPS), manager.metric(TOTAL)), (Some(steps), Some(steps)), "each is counted once");
    assert_eq!(rig.count_events("s", "LoadBalancerDrift").await, 1);
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
    let written = rig.writes().into_iter().filter(|write| write.resource != "events").count();
    assert_eq!(written, 0);
    // A check without an answer changes nothing: the findings stay, and are not reported again afterwards.
    let cloud = |faults: &str| {
        rig.cloud.write(&format!(
            "loadBalancers: {{initial: [{{service: default/unrelated, ingress: [{{ip: 203.0.113.77}}]}}]}}\n{faults}"
        ));
    };
    cloud("faults: [{call: GetLoadBalancer, error: no answer}]");
    rig.pass(5 * MINUTE).await;
    assert_eq!((manager.metric(STEPS), manager.metric(TOTAL)), (Some(steps), Some(steps)));
    cloud("");
    rig.pass(5 * MINUTE).await;
    assert_eq!((manager.metric(STEPS), manager.metric(TOTAL)), (Some(steps), Some(steps)));
    assert_eq!(rig.count_events("s", "LoadBalancerDrift").await, 1);
    // The next change repairs it.
    rig.patch_service("s", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(2 * MINUTE).await;
    assert_eq!(manager.metric(STEPS), Some(0.0));
}

#[tokio::test(start_paused = true)]
async fn without_the_flag_the_cloud_is_not_asked() {
    let (rig, manager) = balanced("").await;
    let before = rig.cloud.calls("GetLoadBalancer").len();
    rig.cloud.write("loadBalancers: {initial: [{service: default/unrelated, ingress: [{ip: 203.0.113.77}]}]}");
    rig.pass(600 * MINUTE).await;
    assert_eq!(rig.cloud.calls("GetLoadBalancer").len(), before);
    assert_eq!(manager.metric(STEPS), None, "nobody looked");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_change_during_an_ensure_are_no_drift() {
    let cloud = "faults: [{call: EnsureLoadBalancer, delay: 15s}, {call: UpdateLoadBalancer, delay: 60s}]";
    let rig = Rig::new(cloud).await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, "--drift-check-period=1s"]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.pass(Duration::from_secs(5)).await;
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    rig.pass(3 * MINUTE).await;
    assert_eq!((hosts(&rig, "UpdateLoadBalancer", "s"), manager.metric(TOTAL)), (vec!["m n".to_owned()], Some(0.0)));
}

#[tokio::test(start_paused = true)]
async fn a_host_update_after_a_failed_ensure_hides_nothing_and_is_no_drift() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, "--drift-check-period=1s"]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, error: broken}]");
    rig.patch_service("s", json!({"spec": {"externalTrafficPolicy": "Local"}})).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    // The changes of that ensure.
    rig.cloud.write(
        "loadBalancers: {statuses: [{ingress: [{ip: 203.0.113.77}]}]}\nfaults: [{call: EnsureLoadBalancer, error: broken}]",
    );
    add_node(&rig, "m").await;
    rig.until_event("s", "UpdatedLoadBalancer").await;
    rig.pass(MINUTE / 4).await;
    assert_eq!(manager.metric(TOTAL), Some(0.0));
    assert_eq!(rig.count_events("s", "LoadBalancerDrift").await, 0);
}

#[tokio::test(start_paused = true)]
async fn work_in_progress_and_failures_are_no_drift() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, error: broken}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, CHECK]).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(manager.metric(TOTAL), Some(0.0));
    assert_eq!(rig.count_events("s", "LoadBalancerDrift").await, 0);
}

#[tokio::test(start_paused = true)]
async fn with_repair_each_check_that_finds_a_difference_syncs_the_service_once() {
    const GONE: &str = "loadBalancers: {initial: [{service: default/unrelated, ingress: [{ip: 203.0.113.77}]}]}";
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, CHECK, "--drift-repair"]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1, "nothing differs");
    rig.cloud.write(GONE);
    let event = rig.until_event("s", "LoadBalancerDrift").await;
    assert!(event.contains("create LoadBalancer") && event.contains("It is corrected now."), "{event}");
    rig.until_calls("EnsureLoadBalancer", 2).await;
    let found = manager.metric(TOTAL).unwrap();
    // Removed again before the next check, which finds the same.
    rig.pass(Duration::from_secs(1)).await;
    // The fake replaces its table only by another one.
    rig.cloud.write(&GONE.replace("113.77", "113.78"));
    rig.until_calls("EnsureLoadBalancer", 3).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 3, "one sync for each check that found something");
    assert_eq!((manager.metric(STEPS), manager.metric(TOTAL)), (Some(0.0), Some(2.0 * found)));
}
