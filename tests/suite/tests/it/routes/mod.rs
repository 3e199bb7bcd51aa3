//! Routes to the pods of each node.

mod conditions;
mod watched;

use std::time::Duration;

use ccm_test_apiserver::{Fault, Match, WriteEntry};
use ccm_test_suite::{Object, Rig, Running, node};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
/// More than one period.
const PERIOD: Duration = Duration::from_secs(11);
const ON: &str = "interfaces: {routes: true}\n";
const WATCH: &str = "--feature-gates=CloudControllerManagerWatchBasedRoutesReconciliation=true";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

async fn start(rig: &Rig, more: &[&str]) -> Running {
    let fixed = ["--controllers=route", "--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/14,fd00:8::/48"];
    rig.start(&[&fixed[..], more].concat()).await
}

/// A node with a pod range.
async fn add(rig: &Rig, name: &str, cidrs: &[&str]) -> Object {
    let make = node(name).provider_id(&format!("fake://{name}")).address("InternalIP", "192.0.2.1");
    rig.create(cidrs.iter().fold(make, |make, cidr| make.pod_cidr(cidr))).await
}

/// `status reason` of the condition.
fn network(node: &Object) -> Option<String> {
    let condition = node.condition("NetworkUnavailable")?;
    Some(format!("{} {}", condition["status"].as_str()?, condition["reason"].as_str()?))
}

async fn until_network(rig: &Rig, name: &str, wanted: &str) -> Object {
    rig.until_node(name, wanted, |node| network(node).as_deref() == Some(wanted)).await
}

/// `cidr>node` of each call.
fn routes(rig: &Rig, call: &str) -> Vec<String> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of = |line: Value| {
        let route = &line["args"]["route"];
        format!("{}>{}", text(&route["destinationCIDR"]), text(&route["targetNode"]))
    };
    let mut routes: Vec<String> = rig.cloud.calls(call).into_iter().map(of).collect();
    routes.sort();
    routes
}

#[tokio::test(start_paused = true)]
async fn each_pod_range_gets_a_route_and_the_node_its_condition() {
    let rig = Rig::new(ON).await;
    let made = add(&rig, "a", &["10.8.1.0/24", "fd00:8:0:1::/64"]).await;
    add(&rig, "b", &["10.8.2.0/24"]).await;
    let manager = start(&rig, &[]).await;
    let done = until_network(&rig, "a", "False RouteCreated").await;
    until_network(&rig, "b", "False RouteCreated").await;
    assert_eq!(routes(&rig, "CreateRoute"), ["10.8.1.0/24>a", "10.8.2.0/24>b", "fd00:8:0:1::/64>a"]);
    let created = &rig.cloud.calls("CreateRoute")[0]["args"];
    assert_eq!((&created["cluster"], &created["nameHint"]), (&json!("kubernetes"), &json!(made.uid())));
    assert_eq!(created["route"]["targetNodeAddresses"], json!([{"type": "InternalIP", "address": "192.0.2.1"}]));

    let condition = done.condition("NetworkUnavailable").unwrap();
    assert_eq!(condition["message"], "RouteController created a route");
    let (now, write) = (condition["lastTransitionTime"].as_str().unwrap(), &rig.writes_of("nodes", "a")[0]);
    let body = format!(
        r#"{{"metadata":{{"uid":"{}"}},"status":{{"conditions":[{{"lastHeartbeatTime":"{now}","lastTransitionTime":"{now}","message":"RouteController created a route","reason":"RouteCreated","status":"False","type":"NetworkUnavailable"}}]}}}}"#,
        done.uid()
    );
    assert_eq!((&*write.subresource, &*write.content_type, write.body.to_string()), ("status", STRATEGIC, body));

    // In the steady state: one list per period, counted from start to start, and no write.
    rig.store().log().clear();
    let before = rig.cloud.calls("ListRoutes").len();
    rig.pass(10 * MINUTE).await;
    let lists = rig.cloud.calls("ListRoutes").len() - before;
    assert!((59..=61).contains(&lists), "{lists}");
    assert_eq!((rig.writes(), rig.cloud.calls("CreateRoute").len()), (vec![], 3));
    let syncs = |outcome: &str| {
        let name = format!("route_controller_route_sync_total{{outcome=\"{outcome}\",trigger=\"periodic\"}}");
        manager.metric(&name).unwrap_or_default()
    };
    assert_eq!((syncs("changed"), syncs("error")), (1.0, 0.0));
    assert_eq!((syncs("changed") + syncs("noop")).to_string(), (before + lists).to_string());
}

#[tokio::test(start_paused = true)]
async fn the_routes_of_a_deleted_node_go_and_those_of_others_stay() {
    let rig = Rig::new(ON).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    add(&rig, "b", &["10.8.2.0/24"]).await;
    let _manager = start(&rig, &[]).await;
    until_network(&rig, "a", "False RouteCreated").await;
    rig.delete("nodes", "", "a").await;
    rig.pass(2 * PERIOD).await;
    assert_eq!(routes(&rig, "DeleteRoute"), ["10.8.1.0/24>a"]);
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn without_pod_ranges_the_process_ends_with_a_clear_message_unless_routes_are_off() {
    let rig = Rig::new(ON).await;
    for (args, part) in [
        (vec!["--configure-cloud-routes=true"], "--cluster-cidr is empty"),
        (vec!["--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/33"], "invalid CIDR address"),
        (
            vec!["--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/16,10.9.0.0/16"],
            "not configured as dual stack",
        ),
    ] {
        let mut manager = rig.start(&args).await;
        let failure = manager.ended().await.unwrap_err();
        assert_eq!(failure.exit.code(), 255, "{args:?}");
        assert!(failure.message.contains(part), "{}", failure.message);
    }
    let manager = rig.start(&["--configure-cloud-routes=false"]).await;
    rig.pass(MINUTE).await;
    assert!(manager.is_running());
    assert!(rig.cloud.calls("ListRoutes").is_empty());
    // With a provider without routes, the program does not exit either.
    let rig = Rig::new("").await;
    let manager = rig.start(&["--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/14"]).await;
    rig.pass(MINUTE).await;
    assert!(manager.is_running());
}

#[tokio::test(start_paused = true)]
async fn only_routes_within_the_pod_ranges_are_deleted() {
    let initial = "routes:\n  initial:\n  - {destinationCIDR: 10.8.9.0/24, blackhole: true}\n  - {destinationCIDR: 172.16.0.0/24, blackhole: true}\n  \
                   - {destinationCIDR: 172.16.1.0/24, targetNode: gone}\n  - {destinationCIDR: nonsense, targetNode: a}\n  \
                   - {destinationCIDR: 10.8.1.0/24, targetNode: a}\n  - {destinationCIDR: 10.8.7.0/24, targetNode: a}\n  \
                   - {destinationCIDR: 10.8.8.0/24, targetNode: gone}\n";
    let rig = Rig::new(&format!("{ON}{initial}")).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &[]).await;
    rig.pass(MINUTE).await;
    assert_eq!(routes(&rig, "DeleteRoute"), ["10.8.7.0/24>a", "10.8.8.0/24>gone", "10.8.9.0/24>"]);
    assert!(rig.cloud.calls("CreateRoute").is_empty());
    until_network(&rig, "a", "False RouteCreated").await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_one_look_missed_keeps_its_routes() {
    // The store receives the node late; the cloud already has its route.
    let initial = "routes: {initial: [{destinationCIDR: 10.8.1.0/24, targetNode: a}]}";
    let rig = Rig::new(&format!("{ON}{initial}")).await;
    let _manager = start(&rig, &[]).await;
    rig.until_calls("ListRoutes", 1).await;
    rig.pass(Duration::from_secs(2)).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    rig.pass(MINUTE).await;
    assert!(rig.cloud.calls("DeleteRoute").is_empty() && rig.cloud.calls("CreateRoute").is_empty());
}

#[tokio::test(start_paused = true)]
async fn changed_addresses_replace_the_route_only_where_the_cloud_reports_addresses() {
    for (reported, replaced) in [(false, 0), (true, 1)] {
        let rig =
            Rig::new(&format!("{ON}routes: {{nodeAddresses: {reported}}}\nfaults: [{{call: DeleteRoute, delay: 2s}}]"))
                .await;
        add(&rig, "a", &["10.8.1.0/24"]).await;
        add(&rig, "b", &["10.8.2.0/24"]).await;
        let _manager = start(&rig, &[]).await;
        until_network(&rig, "b", "False RouteCreated").await;
        let change = json!({"status": {"addresses": [{"type": "InternalIP", "address": "192.0.2.9"}]}});
        rig.patch("nodes", "", "a", "status", change).await;
        rig.pass(2 * PERIOD).await;
        assert_eq!(rig.cloud.calls("DeleteRoute").len(), replaced);
        assert_eq!(rig.cloud.calls("CreateRoute").len(), 2 + replaced);
        if replaced == 1 {
            // In this order.
            let log = rig.cloud.log();
            let at =
                |call: &str, phase: &str| log.iter().rposition(|l| l["call"] == call && l["phase"] == phase).unwrap();
            assert!(at("DeleteRoute", "end") < at("CreateRoute", "start"));
        }
        assert_eq!(network(&rig.node("a").await.unwrap()).as_deref(), Some("False RouteCreated"));
        assert_eq!(rig.count_events("a", "FailedToCreateRoute").await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_without_pod_range_is_reported_only_where_a_route_was_left_over() {
    let rig = Rig::new(&format!("{ON}routes: {{initial: [{{destinationCIDR: 10.8.5.0/24, targetNode: left}}]}}")).await;
    add(&rig, "left", &[]).await;
    let plain = add(&rig, "plain", &[]).await;
    let _manager = start(&rig, &[]).await;
    let left = until_network(&rig, "left", "True NoRouteCreated").await;
    assert_eq!(left.condition("NetworkUnavailable").unwrap()["message"], "RouteController failed to create a route");
    rig.pass(MINUTE).await;
    assert_eq!(routes(&rig, "DeleteRoute"), ["10.8.5.0/24>left"]);
    assert_eq!(rig.node("plain").await.unwrap(), plain);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_nodes_are_at_most_two_hundred_calls_at_once() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: [CreateRoute, DeleteRoute], delay: 500ms}}]")).await;
    for i in 0..1000 {
        add(&rig, &format!("n{i}"), &[&format!("10.{}.{}.0/24", 8 + i / 256, i % 256)]).await;
    }
    let _manager = start(&rig, &[]).await;
    rig.until(5 * MINUTE, "a thousand routes", async |rig| {
        (rig.cloud.ended("CreateRoute").len() == 1000).then_some(())
    })
    .await;
    let mut open = 0_i32;
    let mut most = 0;
    for line in rig.cloud.log().iter().filter(|line| line["call"] == "CreateRoute") {
        open += if line["phase"] == "start" { 1 } else { -1 };
        most = most.max(open);
    }
    assert!((20..=200).contains(&most), "{most} at once");
    rig.pass(MINUTE).await;
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 1000);
    let reported =
        rig.list("nodes").await.iter().filter(|node| network(node).as_deref() == Some("False RouteCreated")).count();
    assert_eq!(reported, 1000);
}

#[tokio::test(start_paused = true)]
async fn a_failed_list_changes_nothing() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: ListRoutes, error: throttled}}]")).await;
    let before = add(&rig, "a", &["10.8.1.0/24"]).await;
    let manager = start(&rig, &[]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.node("a").await.unwrap(), before);
    assert!(rig.cloud.calls("CreateRoute").is_empty());
    assert!(manager.is_running());
    rig.cloud.write(ON);
    until_network(&rig, "a", "False RouteCreated").await;
}

#[tokio::test(start_paused = true)]
async fn a_range_that_moves_to_another_node_is_never_without_a_right_route_for_long() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: DeleteRoute, delay: 2s}}]")).await;
    add(&rig, "old", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &[]).await;
    until_network(&rig, "old", "False RouteCreated").await;
    rig.delete("nodes", "", "old").await;
    add(&rig, "new", &["10.8.1.0/24"]).await;
    until_network(&rig, "new", "False RouteCreated").await;
    rig.pass(PERIOD).await;
    let log = rig.cloud.log();
    let at = |call: &str, phase: &str| log.iter().rposition(|l| l["call"] == call && l["phase"] == phase).unwrap();
    assert!(at("DeleteRoute", "end") < at("CreateRoute", "start"), "a cloud has one route per destination");
    assert_eq!(routes(&rig, "CreateRoute"), ["10.8.1.0/24>new", "10.8.1.0/24>old"]);
}

#[tokio::test(start_paused = true)]
async fn a_blackhole_of_a_living_node_is_replaced_in_one_go() {
    let initial = "routes: {initial: [{destinationCIDR: 10.8.1.0/24, targetNode: a, blackhole: true}]}";
    for gate in [&[][..], &[WATCH]] {
        let rig = Rig::new(&format!("{ON}{initial}")).await;
        add(&rig, "a", &["10.8.1.0/24"]).await;
        let _manager = start(&rig, gate).await;
        until_network(&rig, "a", "False RouteCreated").await;
        assert_eq!(
            (routes(&rig, "DeleteRoute"), routes(&rig, "CreateRoute")),
            (vec!["10.8.1.0/24>a".into()], vec!["10.8.1.0/24>a".into()])
        );
        rig.pass(30 * MINUTE).await;
        assert_eq!((rig.cloud.calls("DeleteRoute").len(), rig.cloud.calls("CreateRoute").len()), (1, 1));
    }
}

#[tokio::test(start_paused = true)]
async fn nodes_of_another_cloud_get_no_routes_and_lose_none() {
    let rig =
        Rig::new(&format!("{ON}routes: {{initial: [{{destinationCIDR: 10.8.3.0/24, targetNode: other}}]}}")).await;
    let before = rig.create(node("other").provider_id("other://other").pod_cidr("10.8.1.0/24")).await;
    let _manager = start(&rig, &[]).await;
    rig.pass(5 * MINUTE).await;
    assert!(rig.cloud.calls("CreateRoute").is_empty() && rig.cloud.calls("DeleteRoute").is_empty());
    assert_eq!(rig.node("other").await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn a_manager_killed_while_it_makes_routes_is_continued_by_the_next_one() {
    for moment in (0..16).map(|i| Duration::from_millis(i * 50)) {
        let rig = Rig::new(&format!(
            "{ON}stateFile: state.json\nroutes: {{initial: [{{destinationCIDR: 10.8.9.0/24, blackhole: true}}]}}\n\
             faults: [{{call: '*', delay: 100ms}}]"
        ))
        .await;
        add(&rig, "a", &["10.8.1.0/24", "fd00:8:0:1::/64"]).await;
        add(&rig, "b", &["10.8.2.0/24"]).await;
        let first = start(&rig, &[]).await;
        rig.pass(moment).await;
        first.kill();
        rig.pass(Duration::from_secs(1)).await;
        let _second = start(&rig, &[]).await;
        until_network(&rig, "a", "False RouteCreated").await;
        until_network(&rig, "b", "False RouteCreated").await;
        rig.pass(MINUTE).await;
        let good = |call: &str| rig.cloud.ended(call).iter().filter(|line| line.get("error").is_none()).count();
        assert_eq!((good("CreateRoute"), good("DeleteRoute")), (3, 1), "killed after {moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_makes_no_route() {
    let rig = Rig::new(&format!("{ON}routes: {{initial: [{{destinationCIDR: 10.8.9.0/24, blackhole: true}}]}}")).await;
    let before = add(&rig, "a", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &["--dry-run"]).await;
    rig.pass(10 * MINUTE).await;
    assert!(rig.cloud.calls("ListRoutes").len() > 1);
    assert!(rig.cloud.calls("CreateRoute").is_empty() && rig.cloud.calls("DeleteRoute").is_empty());
    assert_eq!(rig.node("a").await.unwrap(), before);
}

#[tokio::test(start_paused = true)]
async fn pod_ranges_in_another_order_keep_their_routes() {
    for gate in [&[][..], &[WATCH]] {
        let rig = Rig::new(&format!("{ON}stateFile: state.json")).await;
        add(&rig, "a", &["10.8.1.0/24", "fd00:8:0:1::/64"]).await;
        let manager = start(&rig, gate).await;
        until_network(&rig, "a", "False RouteCreated").await;
        manager.stop().await.unwrap();
        // The API server rejects a reordering of a node's ranges: the node registers again with the same ranges.
        rig.delete("nodes", "", "a").await;
        add(&rig, "a", &["fd00:8:0:1::/64", "10.8.1.0/24"]).await;
        let _manager = start(&rig, gate).await;
        until_network(&rig, "a", "False RouteCreated").await;
        rig.pass(MINUTE).await;
        assert_eq!((rig.cloud.calls("CreateRoute").len(), rig.cloud.calls("DeleteRoute").len()), (2, 0), "{gate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn periods_count_from_start_to_start_and_a_long_run_is_followed_at_once() {
    for (takes, apart) in [("3s", 10), ("15s", 15)] {
        let rig = Rig::new(&format!("{ON}faults: [{{call: ListRoutes, delay: {takes}}}]")).await;
        let _manager = start(&rig, &[]).await;
        let moments = rig.moments("ListRoutes", 2 * MINUTE).await;
        assert!(moments.len() >= 7, "{moments:?}");
        for pair in moments.windows(2) {
            let gap = (pair[1] - pair[0]).as_secs_f64();
            assert!((gap - f64::from(apart)).abs() < 0.2, "{takes}: {moments:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_holds_up_no_shutdown() {
    for call in ["ListRoutes", "CreateRoute", "DeleteRoute"] {
        for gate in [&[][..], &[WATCH]] {
            let rig = Rig::new(&format!(
                "{ON}routes: {{initial: [{{destinationCIDR: 10.8.9.0/24, blackhole: true}}]}}\nfaults: [{{call: {call}, hold: gate}}]"
            ))
            .await;
            let release = rig.cloud.hold("gate");
            let before = add(&rig, "a", &["10.8.1.0/24"]).await;
            let manager = start(&rig, gate).await;
            rig.until_calls(call, 1).await;
            rig.pass(MINUTE).await;
            rig.lap();
            manager.stop().await.unwrap();
            let took = rig.lap();
            assert!(took < Duration::from_secs(30), "{call} {gate:?}: {took:?}");
            // The call in flight is dropped, and no unconfirmed condition is written.
            let after = rig.node("a").await.unwrap();
            match call {
                // That of another node's range: the route of this one was made.
                "DeleteRoute" => assert_eq!(network(&after).as_deref(), Some("False RouteCreated"), "{gate:?}"),
                _ => assert_eq!(after, before, "{call} {gate:?}"),
            }
            release();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_and_creations_share_the_two_hundred_calls() {
    let initial: Vec<String> =
        (0..150).map(|i| format!("{{destinationCIDR: 10.9.{i}.0/24, blackhole: true}}")).collect();
    let rig = Rig::new(&format!(
        "{ON}routes: {{initial: [{}]}}\nfaults: [{{call: [CreateRoute, DeleteRoute], delay: 2s}}]",
        initial.join(", ")
    ))
    .await;
    for i in 0..150 {
        add(&rig, &format!("n{i}"), &[&format!("10.8.{i}.0/24")]).await;
    }
    let _manager = start(&rig, &[]).await;
    rig.pass(MINUTE).await;
    let log = rig.cloud.log();
    let (mut open, mut most, mut done) = ((0_i32, 0_i32), 0, 0);
    for line in &log {
        let change = if line["phase"] == "start" { 1 } else { -1 };
        match line["call"].as_str() {
            Some("CreateRoute") => open.0 += change,
            Some("DeleteRoute") => open.1 += change,
            _ => continue,
        }
        done += i32::from(change == -1);
        most = most.max(open.0 + open.1);
    }
    assert_eq!((most, done, open), (200, 300, (0, 0)));
}

#[tokio::test(start_paused = true)]
async fn the_route_of_a_node_that_failed_is_made_up_for_while_others_are_untouched() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, node: bad, error: quota, times: 2}}]")).await;
    for (name, cidr) in [("bad", "10.8.1.0/24"), ("good", "10.8.2.0/24")] {
        add(&rig, name, &[cidr]).await;
    }
    let _manager = start(&rig, &[]).await;
    until_network(&rig, "good", "False RouteCreated").await;
    until_network(&rig, "bad", "True NoRouteCreated").await;
    rig.pass(MINUTE).await;
    assert_eq!(
        routes(&rig, "CreateRoute"),
        ["10.8.1.0/24>bad", "10.8.1.0/24>bad", "10.8.1.0/24>bad", "10.8.2.0/24>good"]
    );
    assert_eq!(rig.count_events("bad", "FailedToCreateRoute").await, 2);
    assert_eq!(rig.count_events("good", "FailedToCreateRoute").await, 0);
    let reported = |name: &str| -> Vec<Value> {
        let status = |write: WriteEntry| write.body["status"]["conditions"][0]["status"].clone();
        rig.writes_of("nodes", name).into_iter().map(status).collect()
    };
    // One condition for the failure and one for the success.
    assert_eq!((reported("bad"), reported("good")), (vec![json!("True"), json!("False")], vec![json!("False")]));
}

#[tokio::test(start_paused = true)]
async fn a_route_that_another_client_removed_is_drift_and_is_created_again() {
    let rig = Rig::new(ON).await;
    add(&rig, "a", &["10.8.0.0/24"]).await;
    let manager = start(&rig, &[]).await;
    until_network(&rig, "a", "False RouteCreated").await;
    rig.pass(3 * PERIOD).await;
    let total = || manager.metric("ccm_drift_steps_total{controller=\"node-route-controller\"}");
    assert_eq!(total(), Some(0.0), "the first route is no drift");
    // The file replaces the table: our route is missing.
    rig.cloud.write(&format!("{ON}routes: {{initial: [{{name: x, destinationCIDR: 192.168.0.0/16, targetNode: x}}]}}"));
    rig.until_calls("CreateRoute", 2).await;
    assert_eq!(total(), Some(1.0));
    rig.pass(3 * PERIOD).await;
    assert_eq!(total(), Some(1.0));
    // A new node is not drift.
    add(&rig, "b", &["10.8.1.0/24"]).await;
    until_network(&rig, "b", "False RouteCreated").await;
    rig.pass(3 * PERIOD).await;
    assert_eq!(total(), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_amid_many_routes_ends_the_writes_in_flight_and_begins_no_more() {
    let stored = |n: usize| format!("{{destinationCIDR: 10.9.{n}.0/24, blackhole: true}}");
    let stale: Vec<String> = (0..250).map(stored).collect();
    for (call, initial) in [("CreateRoute", String::new()), ("DeleteRoute", stale.join(", "))] {
        let rig =
            Rig::new(&format!("{ON}routes: {{initial: [{initial}]}}\nfaults: [{{call: {call}, delay: 2s}}]")).await;
        if call == "CreateRoute" {
            for n in 0..250 {
                add(&rig, &format!("n{n}"), &[&format!("10.8.{n}.0/24")]).await;
            }
        }
        let manager = start(&rig, &[]).await;
        rig.until_calls(call, 1).await;
        rig.pass(Duration::from_secs(1)).await;
        let begun = rig.cloud.calls(call).len();
        assert!(begun < 250, "{begun}");
        rig.lap();
        manager.stop().await.unwrap();
        let took = rig.lap();
        assert!(took < Duration::from_secs(4), "{call}: {took:?}");
        assert_eq!(rig.cloud.calls(call).len(), begun, "{call}");
        assert_eq!(rig.list("events").await.len(), 0, "{call}: what is left to the next leader is no failure");
    }
}
