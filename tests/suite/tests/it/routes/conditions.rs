//! Conditions and events of nodes for their routes.

use super::*;

#[tokio::test(start_paused = true)]
async fn one_of_two_ranges_that_fails_makes_the_node_unavailable_and_the_other_stays() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, cidr: 'fd00*', error: quota}}]")).await;
    let made = add(&rig, "a", &["10.8.1.0/24", "fd00:8:0:1::/64"]).await;
    let _manager = start(&rig, &[]).await;
    until_network(&rig, "a", "True NoRouteCreated").await;
    let event = rig.until_event("a", "FailedToCreateRoute").await;
    let start_of =
        format!("Warning FailedToCreateRoute: Could not create route {} fd00:8:0:1::/64 for node a after ", made.uid());
    assert!(event.starts_with(&start_of) && event.ends_with(": quota"), "{event}");
    assert!(rig.cloud.calls("DeleteRoute").is_empty());
    rig.cloud.write(ON);
    until_network(&rig, "a", "False RouteCreated").await;
    let of = |cidr: &str| routes(&rig, "CreateRoute").iter().filter(|route| route.starts_with(cidr)).count();
    assert_eq!(of("10.8"), 1);
}

#[tokio::test(start_paused = true)]
async fn the_condition_of_a_network_plugin_is_taken_over_once() {
    let rig = Rig::new(ON).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    let condition = json!({"type": "NetworkUnavailable", "status": "False", "reason": "CalicoIsUp"});
    rig.patch(
        "nodes",
        "",
        "a",
        "status",
        json!({"status": {"conditions": [condition, {"type": "Ready", "status": "True"}]}}),
    )
    .await;
    let _manager = start(&rig, &[]).await;
    let done = until_network(&rig, "a", "False RouteCreated").await;
    assert_eq!(done.condition("Ready").unwrap()["status"], "True", "the other conditions stay");
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_condition_patch_is_made_up_for_in_the_next_period() {
    let rig = Rig::new(ON).await;
    rig.faults().add(Fault::status(500).on(Match::on("patch", "nodes")).times(1));
    add(&rig, "a", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &[]).await;
    until_network(&rig, "a", "False RouteCreated").await;
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_route_is_reported_on_its_node_in_upstreams_words() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, delay: 1500ms, error: quota}}]")).await;
    let made = add(&rig, "a", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &[]).await;
    let event = rig.until_event("a", "FailedToCreateRoute").await;
    let uid = made.uid();
    assert_eq!(
        event,
        format!("Warning FailedToCreateRoute: Could not create route {uid} 10.8.1.0/24 for node a after 1.5s: quota")
    );
    let events = rig.list("events").await;
    let about = json!({"kind": "Node", "name": "a", "apiVersion": "v1", "uid": uid});
    assert_eq!(events[0]["involvedObject"], about);
    assert_eq!(events[0]["source"]["component"], "route_controller");
    assert_eq!(events[0]["metadata"]["namespace"], "default");
}

#[tokio::test(start_paused = true)]
async fn a_condition_patch_that_meets_a_conflict_is_tried_again_at_once() {
    let rig = Rig::new(ON).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    let fault = rig.faults().add(Fault::status(409).on(Match::on("patch", "nodes").subresource("status")).times(2));
    let _manager = start(&rig, &[]).await;
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(rig.faults().fired(fault), 2);
    assert_eq!(network(&rig.node("a").await.unwrap()).as_deref(), Some("False RouteCreated"));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_takes_long_holds_up_no_other_node() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, node: slow, hold: gate}}]")).await;
    let release = rig.cloud.hold("gate");
    for (name, range) in [("slow", "10.8.1.0/24"), ("a", "10.8.2.0/24"), ("b", "10.8.3.0/24")] {
        add(&rig, name, &[range]).await;
    }
    let _manager = start(&rig, &[]).await;
    rig.lap();
    until_network(&rig, "a", "False RouteCreated").await;
    until_network(&rig, "b", "False RouteCreated").await;
    let took = rig.lap();
    assert!(took < Duration::from_secs(2), "{took:?}");
    // One that joins later gets its route too.
    add(&rig, "c", &["10.8.4.0/24"]).await;
    let made = async |rig: &Rig| {
        let node = rig.node("c").await?;
        (network(&node).as_deref() == Some("False RouteCreated")).then_some(())
    };
    rig.until(MINUTE, "c has its route", made).await;
    assert_eq!(network(&rig.node("slow").await.unwrap()), None, "its route is neither there nor refused");
    release();
    until_network(&rig, "slow", "False RouteCreated").await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 4, "no route is made twice");
    assert!(rig.cloud.calls("DeleteRoute").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_route_that_never_ends_fails_alone_and_is_tried_again() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, node: slow, hold: gate, times: 1}}]")).await;
    let _release = rig.cloud.hold("gate");
    add(&rig, "slow", &["10.8.1.0/24"]).await;
    add(&rig, "a", &["10.8.2.0/24"]).await;
    let _manager = start(&rig, &[WATCH]).await;
    rig.pass(3 * MINUTE).await;
    let event = rig.until_event("slow", "FailedToCreateRoute").await;
    assert!(event.contains("did not answer within 2m0s"), "{event}");
    rig.until(10 * MINUTE, "it is tried again", async |rig| {
        (network(&rig.node("slow").await?).as_deref() == Some("False RouteCreated")).then_some(())
    })
    .await;
    assert_eq!(rig.count_events("a", "FailedToCreateRoute").await, 0);
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 3);
}
