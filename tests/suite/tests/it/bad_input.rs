//! Invalid objects, an invalid cloud file, a broken cloud and a broken API server: all other parts still work.

use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, Match};
use ccm_test_suite::{Object, Rig, node};
use serde_json::json;

const NODES: &str = "--controllers=cloud-node";
const MINUTE: Duration = Duration::from_secs(60);

async fn create_new(rig: &Rig, names: impl IntoIterator<Item = String>) {
    for name in names {
        rig.create(node(&name).uninitialized()).await;
    }
}

fn names(prefix: &str, count: usize) -> impl Iterator<Item = String> {
    (0..count).map(move |i| format!("{prefix}{i}"))
}

/// Names of the nodes that wait for initialization.
async fn waiting(rig: &Rig) -> Vec<String> {
    let nodes = rig.list("nodes").await;
    nodes.iter().filter(|node| node.is_uninitialized()).map(|node| node.name().to_owned()).collect()
}

async fn until_waiting(rig: &Rig, limit: Duration, wanted: &[&str]) {
    let what = format!("only {wanted:?} wait");
    rig.until(limit, &what, async |rig| (waiting(rig).await == wanted).then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn one_node_with_a_broken_provided_ip_holds_up_no_other() {
    let rig = Rig::new("").await;
    let broken = ["nonsense", "10.0.0.1,10.0.0.2", "10.0.0.1, fd00::1", "::,0.0.0.0"];
    for (i, broken) in broken.iter().enumerate() {
        rig.create(node(&format!("bad{i}")).uninitialized().provided_ip(broken)).await;
    }
    create_new(&rig, names("n", 30)).await;
    let _manager = rig.start(&[NODES]).await;
    until_waiting(&rig, Duration::from_secs(10), &["bad0", "bad1", "bad2", "bad3"]).await;
    for (i, broken) in broken.iter().enumerate() {
        let event = rig.until_event(&format!("bad{i}"), "FailedToInitializeNode").await;
        assert!(event.contains(&format!("failed to parse node IP {broken:?}")), "{event}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_label_value_that_the_api_server_refuses_holds_up_no_other_node() {
    let rig = Rig::new(
        "instances: [{name: bad, labels: {rack: 'not a label value!'}}, {name: long, zone: 'a zone with blanks'}]",
    )
    .await;
    create_new(&rig, names("n", 10).chain(["bad".into(), "long".into()])).await;
    let manager = rig.start(&[NODES]).await;
    until_waiting(&rig, Duration::from_secs(10), &["bad", "long"]).await;
    rig.pass(10 * MINUTE).await;
    assert!(manager.is_running());
    // Back-off: not many requests, since they are rejected anyway.
    let refused = rig.writes().iter().filter(|write| write.name == "bad").count();
    assert!((10..40).contains(&refused), "{refused}");
    for (name, field) in [("bad", "metadata.labels"), ("long", "metadata.labels")] {
        let event = rig.until_event(name, "FailedToInitializeNode").await;
        assert!(event.contains(field), "{event}");
    }
    rig.cloud.write("");
    rig.pass(20 * MINUTE).await;
    assert_eq!(waiting(&rig).await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_patch_is_forbidden_has_an_event_and_one_that_meets_a_conflict_has_none() {
    let rig = Rig::new("").await;
    rig.faults().add(Fault::status(403).on(Match::on("patch", "nodes").named("forbidden")));
    rig.faults().add(Fault::status(409).on(Match::on("patch", "nodes").named("busy")).times(20));
    create_new(&rig, ["busy".into(), "forbidden".into()]).await;
    let _manager = rig.start(&[NODES]).await;
    let event = rig.until_event("forbidden", "FailedToInitializeNode").await;
    assert!(event.contains("failed to initialize node: "), "{event}");
    until_waiting(&rig, 5 * MINUTE, &["forbidden"]).await;
    assert_eq!(rig.count_events("busy", "FailedToInitializeNode").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_file_that_turns_into_garbage_leaves_the_last_good_content_in_force() {
    let rig = Rig::new("instances: [{name: a, type: large}]\nunlisted: missing").await;
    create_new(&rig, ["a".into()]).await;
    rig.create(node("down").provider_id("fake://a").ready("Unknown")).await;
    let manager = rig.start(&[]).await;
    until_waiting(&rig, Duration::from_secs(10), &[]).await;

    for garbage in ["", "}{", "unlisted: missing\nnoSuchKey: 1", "\0\0\0", "instances: 7"] {
        // An empty file would be valid (all defaults), so this case removes the file.
        if garbage.is_empty() {
            std::fs::remove_file(rig.cloud.file()).unwrap();
        } else {
            rig.cloud.write_raw(garbage);
        }
        rig.pass(MINUTE).await;
        assert!(manager.is_running(), "{garbage:?}");
        assert!(rig.node("down").await.is_some(), "the instance of the last good content is there: {garbage:?}");
    }
    let refused =
        rig.cloud.log().iter().filter(|line| line["event"] == "reload" && line.get("error").is_some()).count();
    assert_eq!(refused, 5, "once for each state of the file");

    rig.cloud.write("instances: [{name: b, type: huge}]\nunlisted: missing");
    create_new(&rig, ["b".into()]).await;
    rig.until_node("b", "initialized", |node| node.label("node.kubernetes.io/instance-type") == "huge").await;
    rig.until_gone("down").await;
}

#[tokio::test(start_paused = true)]
async fn a_look_up_that_hangs_for_one_node_holds_up_no_node_that_comes_later() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, node: stuck, hold: gate}]").await;
    let release = rig.cloud.hold("gate");
    create_new(&rig, ["stuck".into()]).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_calls("InstanceMetadata", 1).await;
    rig.pass(Duration::from_secs(2)).await;
    create_new(&rig, names("n", 30)).await;
    until_waiting(&rig, Duration::from_secs(5), &["stuck"]).await;
    rig.pass(5 * MINUTE).await;
    let event = rig.until_event("stuck", "FailedToInitializeNode").await;
    assert!(event.contains("stuck"), "{event}");
    release();
    until_waiting(&rig, 5 * MINUTE, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn of_many_nodes_in_one_question_only_the_one_that_hangs_waits_in_the_end() {
    let rig = Rig::new("faults: [{call: Lookup, node: n7, hold: gate}]").await;
    let release = rig.cloud.hold("gate");
    create_new(&rig, names("n", 64)).await;
    let _manager = rig.start(&[NODES]).await;
    // Each halving costs one deadline of two minutes.
    rig.pass(3 * MINUTE).await;
    let left = waiting(&rig).await;
    assert!(left.contains(&"n7".to_owned()) && left.len() <= 32, "{left:?}");
    rig.pass(7 * MINUTE).await;
    assert_eq!(waiting(&rig).await, ["n7"]);
    release();
    until_waiting(&rig, 10 * MINUTE, &[]).await;
}

#[tokio::test(start_paused = true)]
async fn a_hanging_look_up_of_the_lifecycle_does_not_hold_up_initialization() {
    let rig = Rig::new("faults: [{call: [InstanceExists, InstanceShutdown], hold: gate}]").await;
    let release = rig.cloud.hold("gate");
    rig.create(node("down").provider_id("fake://down").ready("Unknown")).await;
    let _manager = rig.start(&[]).await;
    rig.until_calls("InstanceExists", 1).await;
    rig.pass(Duration::from_secs(3)).await;
    create_new(&rig, names("n", 5)).await;
    until_waiting(&rig, Duration::from_secs(5), &[]).await;
    release();
    rig.pass(5 * MINUTE).await;
    assert!(rig.node("down").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn an_api_server_that_is_gone_for_a_minute_is_caught_up_with() {
    let rig = Rig::new("unlisted: missing\ninstances: [{name: a}, {name: b}]").await;
    create_new(&rig, ["a".into()]).await;
    rig.create(node("gone").provider_id("fake://gone")).await;
    let manager = rig.start(&[]).await;
    until_waiting(&rig, Duration::from_secs(10), &[]).await;

    rig.set_api_gone(true);
    rig.pass(MINUTE / 2).await;
    create_new(&rig, ["b".into()]).await;
    rig.set_ready("gone", "Unknown").await;
    rig.delete("nodes", "", "a").await;
    rig.pass(MINUTE / 2).await;
    assert_eq!(waiting(&rig).await, ["b"]);
    rig.set_api_gone(false);
    until_waiting(&rig, MINUTE, &[]).await;
    rig.until_gone("gone").await;
    assert!(manager.is_running());
    // The node that was deleted meanwhile is not looked up any more.
    let asked = rig.cloud.calls_for("InstanceMetadata", "a");
    rig.pass(20 * MINUTE).await;
    assert_eq!(rig.cloud.calls_for("InstanceMetadata", "a"), asked);
}

#[tokio::test(start_paused = true)]
async fn each_way_in_which_the_api_server_fails_is_waited_out() {
    let message = Some("no".to_owned());
    let effects = [
        Effect::Status { code: 429, reason: None, message: message.clone(), retry_after: Some(3) },
        Effect::Status { code: 500, reason: None, message: message.clone(), retry_after: None },
        Effect::Status { code: 503, reason: None, message: message.clone(), retry_after: Some(1) },
        Effect::Status { code: 401, reason: None, message: message.clone(), retry_after: None },
        Effect::Status { code: 403, reason: None, message, retry_after: None },
        Effect::HtmlPage { code: 502 },
        Effect::HtmlPage { code: 200 },
        Effect::HtmlPage { code: 404 },
        Effect::LoseRequest,
        Effect::LoseAnswer,
        Effect::FailAfterEffect { code: 504 },
        Effect::Latency { millis: 45_000 },
    ];
    for effect in effects {
        let rig =
            Rig::new("unlisted: missing\ninstances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]")
                .await;
        create_new(&rig, ["a".into()]).await;
        rig.create(node("gone").provider_id("fake://gone").ready("Unknown")).await;
        let manager = rig.start(&[]).await;
        // Everything except the health check at the start, for a minute and a half.
        for resource in ["nodes", "services", "events"] {
            let matching = Match::of(resource);
            rig.faults().add(Fault::new(effect.clone()).on(matching));
        }
        rig.pass(3 * MINUTE / 2).await;
        assert!(manager.is_running(), "{effect:?}");
        rig.faults().clear();
        let done = |node: &Object| !node.is_uninitialized() && node.provider_id() == "fake://a";
        rig.until(3 * MINUTE, &format!("{effect:?}: initialized"), async |rig| {
            rig.node("a").await.filter(done).map(|_| ())
        })
        .await;
        rig.until(3 * MINUTE, &format!("{effect:?}: deleted"), async |rig| {
            rig.node("gone").await.is_none().then_some(())
        })
        .await;
        rig.pass(6 * MINUTE).await;
        assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.1"], "{effect:?}");
        manager.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_always_throttled_is_not_hammered() {
    let rig = Rig::new("").await;
    create_new(&rig, names("n", 10)).await;
    let manager = rig.start(&[NODES]).await;
    rig.faults().add(Fault::too_many_requests(10).on(Match::on("patch", "nodes")));
    rig.pass(10 * MINUTE).await;
    let refused = rig.store().log().count_of("patch", "nodes");
    // Ten nodes, ten minutes, at most one attempt in ten seconds each.
    assert!((300..=610).contains(&refused), "{refused}");
    rig.faults().clear();
    until_waiting(&rig, MINUTE, &[]).await;
    drop(manager);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_watch_goes_on_from_the_last_version_without_a_new_list() {
    let rig = Rig::new("").await;
    create_new(&rig, names("n", 50)).await;
    let _manager = rig.start(&[NODES]).await;
    until_waiting(&rig, MINUTE, &[]).await;
    rig.store().log().clear();
    for round in 0..20 {
        rig.faults().drop_watches(Some("nodes"));
        create_new(&rig, [format!("late{round}")]).await;
        until_waiting(&rig, Duration::from_secs(5), &[]).await;
    }
    // One check of the server's version for each watch; two pages would be a list.
    let watches = rig.store().log().count_of("watch", "nodes");
    assert!((20..=25).contains(&watches), "{watches}");
    assert_eq!(rig.store().log().count_of("list", "nodes"), watches);
}

#[tokio::test(start_paused = true)]
async fn an_expired_version_causes_a_new_list_that_detects_deletions() {
    let rig = Rig::new("").await;
    create_new(&rig, names("n", 10)).await;
    let _manager = rig.start(&[NODES, "--node-status-update-frequency=1m"]).await;
    until_waiting(&rig, MINUTE, &[]).await;
    rig.set_api_gone(true);
    create_new(&rig, ["late".into()]).await;
    rig.delete("nodes", "", "n0").await;
    rig.store().compact("nodes").unwrap();
    rig.set_api_gone(false);
    until_waiting(&rig, MINUTE, &[]).await;
    let asked = rig.cloud.calls_for("InstanceMetadata", "n0");
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.cloud.calls_for("InstanceMetadata", "n0"), asked, "n0 is still believed to exist");
    assert!(rig.cloud.calls_for("InstanceMetadata", "n1") > asked);
}

#[tokio::test(start_paused = true)]
async fn events_that_cannot_be_written_hold_up_nothing() {
    let rig = Rig::new("").await;
    let matching = Match::of("events");
    rig.faults().add(Fault::latency(10 * MINUTE).on(matching));
    create_new(&rig, names("n", 500)).await;
    let manager = rig.start(&[NODES]).await;
    until_waiting(&rig, Duration::from_secs(10), &[]).await;
    rig.lap();
    manager.stop().await.unwrap();
    let took = rig.lap();
    assert!(took < Duration::from_secs(5), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_to_the_initialization_is_no_second_write() {
    let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
    rig.faults().add(Fault::new(Effect::LoseAnswer).on(Match::on("patch", "nodes").subresource("")).times(1));
    create_new(&rig, ["a".into()]).await;
    let _manager = rig.start(&[NODES]).await;
    until_waiting(&rig, Duration::from_secs(10), &[]).await;
    rig.pass(6 * MINUTE).await;
    let writes = rig.writes_of("nodes", "a");
    assert_eq!(writes.iter().filter(|write| write.subresource.is_empty()).count(), 1);
    assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.1"]);
}

#[tokio::test(start_paused = true)]
async fn many_nodes_that_fail_back_off_and_are_done_soon_after_the_cloud_is_mended() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, kind: Retry, error: slow down, retryAfter: 20s}]").await;
    create_new(&rig, names("n", 100)).await;
    let _manager = rig.start(&[NODES]).await;
    rig.pass(2 * MINUTE).await;
    let calls = rig.cloud.calls("InstanceMetadata").len();
    assert!(calls <= 10, "{calls} calls in two minutes of throttling");
    rig.cloud.write("");
    until_waiting(&rig, Duration::from_secs(25), &[]).await;
    // Events for the user, but a limited number.
    let events = rig.list("events").await;
    assert!(events.iter().all(|event| event["count"].as_u64().unwrap() <= 25));
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_fails_for_every_unknown_instance_deletes_none() {
    let rig = Rig::new("unlisted: error").await;
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[]).await;
    rig.pass(30 * MINUTE).await;
    assert!(rig.node("a").await.is_some());
    assert_eq!(rig.patch_node("a", json!({})).await.taints(), [""; 0]);
}
