//! Nodes whose instance is deleted or stopped.

use std::time::Duration;

use ccm_test_apiserver::{Fault, Match};
use ccm_test_suite::{Object, Rig, node};
use serde_json::json;
use tokio::time::Instant;

const LIFECYCLE: &str = "--controllers=cloud-node-lifecycle";
const MINUTE: Duration = Duration::from_secs(60);
/// More than one pass.
const PASS: Duration = Duration::from_secs(6);
const SHUTDOWN: &str = "node.cloudprovider.kubernetes.io/shutdown:NoSchedule";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test(start_paused = true)]
async fn a_node_of_a_gone_instance_is_deleted_once_it_is_not_ready() {
    let rig = Rig::new("unlisted: missing").await;
    rig.create(node("a").provider_id("fake://a")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!((rig.cloud.calls("Lookup"), rig.writes()), (vec![], vec![]), "nobody asks about a Ready node");
    rig.set_ready("a", "Unknown").await;
    rig.pass(PASS).await;
    assert!(rig.node("a").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_node_without_any_ready_condition_counts_as_not_ready() {
    let rig = Rig::new("instances: [{name: a, exists: false}]").await;
    rig.create(node("a").provider_id("fake://a").no_conditions()).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_gone("a").await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_names_the_uid_and_is_reported_in_an_event() {
    let rig = Rig::new("unlisted: missing").await;
    let made = rig.create(node("a").provider_id("fake://a").ready("False")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_gone("a").await;
    let event = rig.until_event("a", "DeletingNode").await;
    assert_eq!(event, "Normal DeletingNode: Deleting node a because it does not exist in the cloud provider");
    let events = rig.list("events").await;
    assert_eq!(events[0]["involvedObject"]["uid"], made.uid());
    assert_eq!(events[0]["source"]["component"], "cloud-node-lifecycle-controller");
    let writes = rig.writes();
    let [write] = &writes[..] else { panic!("{writes:?}") };
    assert_eq!((write.verb, &*write.name, &*write.content_type), ("delete", "a", "application/json"));
    let body = json!({"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": {"uid": made.uid()}});
    assert_eq!(write.body, body);
}

#[tokio::test(start_paused = true)]
async fn a_cloud_error_deletes_nothing_and_taints_nothing() {
    let rig = Rig::new(
        "unlisted: missing\nfaults:\n- {call: InstanceExists, node: 'unsure*', error: throttled}\n\
         - {call: InstanceShutdown, node: half, error: throttled}\ninstances: [{name: half, shutdown: true}]",
    )
    .await;
    for name in ["unsure-1", "unsure-2", "half", "gone"] {
        rig.create(node(name).provider_id(&format!("fake://{name}")).ready("Unknown")).await;
    }
    let manager = rig.start(&[LIFECYCLE]).await;
    // One node's failure does not block others.
    rig.until_gone("gone").await;
    rig.pass(30 * MINUTE).await;
    for name in ["unsure-1", "unsure-2", "half"] {
        assert_eq!(rig.node(name).await.unwrap().taints(), [""; 0], "{name}");
    }
    assert_eq!(rig.writes().len(), 1);
    assert!(manager.is_running());
}

#[tokio::test(start_paused = true)]
async fn a_stopped_instance_taints_its_node_once_until_the_node_is_ready() {
    let rig = Rig::new("instances: [{name: a, shutdown: true}]").await;
    let made = rig.create(node("a").provider_id("fake://a").taint("own", "NoExecute").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_node("a", "tainted", |node| node.taints() == ["own:NoExecute", SHUTDOWN]).await;
    // Several passes, without a second patch.
    rig.pass(5 * MINUTE).await;
    let writes = rig.writes();
    let [write] = &writes[..] else { panic!("{writes:?}") };
    let not_ready = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    let taint = json!({"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"});
    let own = json!({"key": "own", "effect": "NoExecute"});
    let body = json!({"metadata": {"resourceVersion": made.version()}, "spec": {"taints": [own, not_ready, taint]}});
    assert_eq!((write.verb, &*write.subresource, &*write.content_type), ("patch", "", STRATEGIC));
    assert_eq!(write.body, body);

    // Restarted, but not Ready yet.
    rig.cloud.write("instances: [{name: a}]");
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.node("a").await.unwrap().taints(), ["own:NoExecute", SHUTDOWN]);

    rig.set_ready("a", "True").await;
    rig.until_node("a", "not tainted", |node| node.taints() == ["own:NoExecute"]).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.writes().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_last_taint_is_removed_with_null() {
    let rig = Rig::new("").await;
    rig.create(node("a").provider_id("fake://a").taint("node.cloudprovider.kubernetes.io/shutdown", "NoSchedule"))
        .await;
    let only =
        json!({"spec": {"taints": [{"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]}});
    let made = rig.patch_node("a", only).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_node("a", "not tainted", |node| node.taints().is_empty()).await;
    let body = format!(r#"{{"metadata":{{"resourceVersion":"{}"}},"spec":{{"taints":null}}}}"#, made.version());
    assert_eq!(rig.writes()[0].body.to_string(), body);
    assert!(rig.cloud.calls("Lookup").is_empty(), "a Ready node is not asked about");
}

#[tokio::test(start_paused = true)]
async fn a_failed_deletion_is_reported_and_tried_again_in_the_next_pass() {
    let rig = Rig::new("unlisted: missing").await;
    let fault = rig.faults().add(Fault::status(500).on(Match::on("delete", "nodes")).times(1));
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    let event = rig.until_event("a", "DeletingNodeFailed").await;
    assert!(event.starts_with("Warning DeletingNodeFailed: Failed deleting node a: "), "{event}");
    rig.pass(PASS).await;
    assert!(rig.node("a").await.is_none());
    assert_eq!((rig.faults().fired(fault), rig.count_events("a", "DeletingNode").await), (1, 2));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_recreated_under_the_same_name_survives() {
    let rig = Rig::new("faults: [{call: InstanceExists, hold: gate, times: 1}]\nunlisted: missing").await;
    let release = rig.cloud.hold("gate");
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_calls("InstanceExists", 1).await;
    // The manager does not receive the new node until it has deleted the old one.
    rig.faults().freeze_watches(Some("nodes"));
    rig.delete("nodes", "", "a").await;
    let new = rig.create(node("a").provider_id("fake://new")).await;
    release();
    rig.pass(PASS).await;
    rig.faults().thaw_watches(Some("nodes"));
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.node("a").await.unwrap().uid(), new.uid());
    let refused: Vec<u16> = rig.writes().iter().map(|write| write.status).collect();
    assert!(!refused.is_empty() && refused.iter().all(|status| *status == 409), "{refused:?}");
    assert_eq!(rig.count_events("a", "DeletingNodeFailed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_kubelet_died_is_left_as_it_is() {
    let rig = Rig::new("instances: [{name: a}]").await;
    let made = rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[]).await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.node("a").await.unwrap(), made);
    assert_eq!((rig.writes(), rig.events("a").await), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn a_node_counts_as_missing_only_from_a_certain_age_on_and_is_reported_once() {
    let rig = Rig::new("unlisted: missing\nabsenceGrace: 5m").await;
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.pass(5 * MINUTE - PASS).await;
    assert!(rig.node("a").await.is_some());
    let reported = rig.events("a").await;
    rig.pass(2 * PASS).await;
    assert!(rig.node("a").await.is_none());
    let [reported] = &reported[..] else { panic!("{reported:?}") };
    let reason = "the cloud says that the instance does not exist; but the node was younger than 5m0s then, and clouds show \
                  new instances late";
    assert!(reported.contains(reason), "{reported}");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_jumps_makes_no_node_old() {
    let rig = Rig::new("unlisted: missing\nabsenceGrace: 5m").await;
    let manager = rig.start(&[LIFECYCLE]).await;
    rig.pass(Duration::from_secs(1)).await;
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    manager.jump(3600);
    rig.pass(4 * MINUTE).await;
    assert!(rig.node("a").await.is_some());
    manager.jump(-7200);
    rig.pass(2 * MINUTE).await;
    assert!(rig.node("a").await.is_none(), "it is old enough by the clock that did not jump");
}

#[tokio::test(start_paused = true)]
async fn one_pass_deletes_no_more_than_its_budget_and_says_so() {
    let rig = Rig::new("unlisted: missing").await;
    for i in 0..25 {
        rig.create(node(&format!("n{i:02}")).provider_id(&format!("fake://n{i}")).ready("Unknown")).await;
    }
    for i in 0..5 {
        rig.create(node(&format!("well{i}")).provider_id(&format!("fake://well{i}"))).await;
    }
    let manager = rig.start(&[LIFECYCLE]).await;
    rig.until_calls("InstanceExists", 1).await;
    let mut left = Vec::new();
    for _ in 0..3 {
        rig.pass(Duration::from_secs(2)).await;
        left.push(rig.list("nodes").await.len());
        if left.len() == 1 {
            assert_eq!(manager.metric("ccm_nodes_deletion_deferred"), Some(15.0));
        }
        rig.pass(Duration::from_millis(3050)).await;
    }
    assert_eq!(left, [20, 10, 5]);
    assert_eq!(manager.metric("ccm_nodes_deletion_deferred"), Some(0.0));
    let events: Vec<String> = rig.list("events").await.iter().map(Object::event_line).collect();
    let reported = |text: &str| events.iter().filter(|event| event.contains(text)).count();
    assert_eq!((reported("at most 10 of 30 nodes"), reported("at most 10 of 20 nodes")), (15, 5), "{events:?}");
    assert_eq!((reported("--node-deletion-budget raises"), reported("DeletingNode:")), (20, 25), "{events:?}");
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_amid_many_deletions_begins_no_more() {
    let rig = Rig::new("unlisted: missing").await;
    for number in 0..200 {
        rig.create(node(&format!("n{number}")).provider_id(&format!("fake://n{number}")).ready("Unknown")).await;
    }
    rig.faults().add(Fault::latency(Duration::from_secs(2)).on(Match::on("delete", "nodes")));
    let manager = rig.start(&[LIFECYCLE, "--node-deletion-budget-percent=100"]).await;
    let begun = || usize::try_from(rig.store().log().count_of("delete", "nodes")).unwrap();
    rig.until(MINUTE, "deletions", async |_| (begun() > 0).then_some(())).await;
    let (before, asked) = (begun(), Instant::now());
    manager.stop().await.unwrap();
    assert!(asked.elapsed() < Duration::from_secs(4), "{:?}", asked.elapsed());
    // The maximum number of writes in flight.
    assert!(begun() - before <= 32, "{before} before and {} after", begun());
}

#[tokio::test(start_paused = true)]
async fn nodes_that_are_being_deleted_already_take_nothing_of_the_budget() {
    let rig = Rig::new("unlisted: missing").await;
    for name in ["a", "b"] {
        let kept = node(name).finalizer("example.com/other");
        rig.create(kept.provider_id(&format!("fake://{name}")).ready("Unknown")).await;
    }
    rig.create(node("c").provider_id("fake://c").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE, "--node-deletion-budget=1", "--node-deletion-budget-percent=0"]).await;
    rig.until_gone("c").await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.store().log().count_of("delete", "nodes"), 3, "each is deleted once: {:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn refused_deletions_keep_no_other_node_from_its_turn() {
    let rig = Rig::new("unlisted: missing").await;
    for i in 0..9 {
        rig.create(node(&format!("n{i}")).provider_id(&format!("fake://n{i}")).ready("Unknown")).await;
    }
    let webhook = |name: &str| Fault::status(403).on(Match::on("delete", "nodes").named(name));
    for i in 0..7 {
        rig.faults().add(webhook(&format!("n{i}")));
    }
    let _manager = rig.start(&[LIFECYCLE, "--node-deletion-budget=2", "--node-deletion-budget-percent=0"]).await;
    rig.until_gone("n7").await;
    rig.until_gone("n8").await;
    // Four attempts per pass.
    assert!(rig.store().log().count_of("delete", "nodes") <= 12, "{:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn a_budget_of_zero_deletes_nothing() {
    let rig = Rig::new("unlisted: missing").await;
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE, "--node-deletion-budget=0", "--node-deletion-budget-percent=0"]).await;
    rig.until_event("a", "NodeDeletionDeferred").await;
    rig.pass(30 * MINUTE).await;
    assert!(rig.node("a").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_pass_over_many_nodes_that_are_down_is_one_question_per_aspect() {
    let rig = Rig::new("").await;
    for i in 0..300 {
        rig.create(node(&format!("n{i}")).provider_id(&format!("fake://n{i}")).ready("Unknown")).await;
    }
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.pass(10 * MINUTE).await;
    let (exists, shutdown) = (rig.cloud.calls("InstanceExists"), rig.cloud.calls("InstanceShutdown"));
    assert!((110..=121).contains(&exists.len()), "{}", exists.len());
    assert_eq!(exists.len(), shutdown.len());
    assert!(exists.iter().all(|call| call["args"]["nodes"].as_array().unwrap().len() == 300));
    assert_eq!(rig.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn with_the_older_interface_a_missing_id_is_gone_and_an_error_is_not() {
    let rig = Rig::new(
        "interfaces: {instancesV2: false, instances: true}\nunlisted: missing\n\
         instances: [{name: lives}, {name: stopped, shutdown: true}, {name: unsure}]\n\
         faults: [{call: InstanceID, node: unsure, error: broken}]",
    )
    .await;
    for name in ["lives", "stopped", "unsure", "gone"] {
        rig.create(node(name).ready("Unknown")).await;
    }
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_gone("gone").await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.node("lives").await.unwrap().taints(), [""; 0]);
    assert_eq!(rig.node("stopped").await.unwrap().taints(), [SHUTDOWN]);
    assert_eq!(rig.node("unsure").await.unwrap().taints(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn taints_of_others_survive_a_conflict() {
    let rig =
        Rig::new("instances: [{name: a, shutdown: true}]\nfaults: [{call: InstanceShutdown, hold: gate, times: 1}]")
            .await;
    let release = rig.cloud.hold("gate");
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let _manager = rig.start(&[LIFECYCLE]).await;
    rig.until_calls("InstanceShutdown", 1).await;
    rig.faults().freeze_watches(Some("nodes"));
    rig.patch_node("a", json!({"spec": {"taints": [{"key": "other", "effect": "NoExecute"}]}})).await;
    release();
    rig.until(MINUTE, "a conflict", async |rig| rig.writes().iter().any(|w| w.status == 409).then_some(())).await;
    rig.faults().thaw_watches(Some("nodes"));
    rig.until_node("a", "both taints", |node| node.taints() == ["other:NoExecute", SHUTDOWN]).await;
}

#[tokio::test(start_paused = true)]
async fn a_manager_killed_at_any_moment_is_continued_by_the_next_one() {
    let cloud = "unlisted: missing\ninstances: [{name: stopped, shutdown: true}, {name: new, type: large}]\n\
                 faults: [{call: '*', delay: 200ms}]";
    for moment in (0..24).map(|i| Duration::from_millis(i * 50)) {
        let rig = Rig::new(cloud).await;
        rig.faults().add(Fault::latency(Duration::from_millis(70)));
        rig.create(node("gone").provider_id("fake://gone").ready("Unknown")).await;
        rig.create(node("stopped").provider_id("fake://stopped").ready("Unknown")).await;
        rig.create(node("new").uninitialized().ready("Unknown")).await;
        let first = rig.start(&[]).await;
        rig.pass(moment).await;
        first.kill();
        rig.pass(Duration::from_secs(1)).await;
        let _second = rig.start(&[]).await;
        rig.until_gone("gone").await;
        rig.until_node("stopped", "tainted", |node| node.taints() == [SHUTDOWN]).await;
        rig.until_node("new", "initialized", |node| node.taints().is_empty() && node.provider_id() == "fake://new")
            .await;
        rig.pass(MINUTE).await;
        let wrote = |name: &str| rig.writes_of("nodes", name).len();
        assert_eq!((wrote("gone"), wrote("stopped"), wrote("new")), (1, 1, 1), "killed after {moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_answers_of_the_cloud_and_the_passes_are_counted() {
    let rig = Rig::new(
        "unlisted: missing\ninstances: [{name: on}, {name: off, shutdown: true}]\n\
         faults: [{call: InstanceExists, node: unsure, error: throttled}]",
    )
    .await;
    for name in ["on", "off", "unsure", "gone"] {
        rig.create(node(name).provider_id(&format!("fake://{name}")).ready("Unknown")).await;
    }
    let manager = rig.start(&[LIFECYCLE, "--node-monitor-period=1h"]).await;
    rig.pass(MINUTE).await;
    let calls = |operation: &str, result: &str| {
        let labels = format!("{{operation=\"{operation}\",result=\"{result}\"}}");
        manager.metric(&format!("cloud_node_lifecycle_controller_cloud_provider_calls_total{labels}"))
    };
    assert_eq!(calls("instance_exists", "success"), Some(2.0));
    assert_eq!(calls("instance_exists", "error"), Some(1.0));
    assert_eq!(calls("instance_exists", "instance_not_found"), Some(1.0));
    assert_eq!(calls("instance_shutdown", "success"), Some(2.0));
    assert_eq!(manager.metric("cloud_node_lifecycle_controller_monitor_nodes_duration_seconds_count"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn one_pass_writes_as_many_nodes_at_once_as_the_flag_says() {
    for (args, seconds) in [(&[][..], 0..=0), (&["--concurrent-node-lifecycle-syncs=2"][..], 3..=3)] {
        let rig = Rig::new("unlisted: missing").await;
        for number in 0..8 {
            let name = format!("n{number}");
            rig.create(node(&name).provider_id(&format!("fake://{name}")).ready("Unknown")).await;
        }
        rig.faults().add(Fault::latency(Duration::from_secs(1)).on(Match::on("delete", "nodes")));
        let _manager = rig.start(&[&[LIFECYCLE], args].concat()).await;
        let began = rig.until(MINUTE, "a deletion", async |rig| (!rig.writes().is_empty()).then(Instant::now)).await;
        rig.until(MINUTE, "all are gone", async |rig| rig.list("nodes").await.is_empty().then_some(())).await;
        assert!(seconds.contains(&began.elapsed().as_secs()), "{args:?}: {:?}", began.elapsed());
    }
}
