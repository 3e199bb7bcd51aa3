//! Initialization of nodes, addresses and labels.

mod addresses;
mod follow;
mod older_interface;
mod shared_cluster;

use std::time::Duration;

use ccm_provider::well_known::{
    LABEL_INSTANCE_TYPE, LABEL_INSTANCE_TYPE_BETA, LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA,
};
use ccm_test_apiserver::{Effect, Fault, Match, WriteEntry};
use ccm_test_suite::{Object, Rig, Running, node};
use serde_json::{Value, json};

const NODES: &str = "--controllers=cloud-node";
const MINUTE: Duration = Duration::from_secs(60);
const TAINT: &str = "node.cloudprovider.kubernetes.io/uninitialized";
/// The taint that the API server adds to each new node.
const NOT_READY: &str = r#"{"effect":"NoSchedule","key":"node.kubernetes.io/not-ready"}"#;

fn initialized(node: &Object) -> bool {
    !node.is_uninitialized()
}

/// A manager and a node `a` that waits for initialization.
async fn waiting(cloud: &str) -> (Rig, Running) {
    let rig = Rig::new(cloud).await;
    rig.create(node("a").uninitialized()).await;
    let manager = rig.start(&[NODES]).await;
    (rig, manager)
}

/// Subresource, content type and body of a write.
fn sent(write: &WriteEntry) -> (&str, &str, String) {
    (&write.subresource, &write.content_type, write.body.to_string())
}

const STRATEGIC: &str = "application/strategic-merge-patch+json";

#[tokio::test(start_paused = true)]
async fn initialization_is_two_patches_and_one_event() {
    let rig = Rig::new(
        "zone: {failureDomain: z1, region: r1}\n\
         instances: [{name: a, type: large, labels: {rack: r7}, addresses: [{type: InternalIP, address: 10.0.0.1}]}]",
    )
    .await;
    let made = rig.create(node("a").uninitialized().taint("own", "NoExecute").address("Hostname", "a")).await;
    let manager = rig.start(&[NODES]).await;
    rig.until_event("a", "Synced").await;

    let writes = rig.writes();
    let [init, addresses] = &writes[..] else { panic!("{writes:?}") };
    let labels = format!(
        r#"{{"{LABEL_INSTANCE_TYPE_BETA}":"large","{LABEL_REGION_BETA}":"r1","{LABEL_ZONE_BETA}":"z1","{LABEL_INSTANCE_TYPE}":"large","rack":"r7","{LABEL_REGION}":"r1","{LABEL_ZONE}":"z1"}}"#
    );
    let version = made.version();
    let taints = format!(r#"[{{"effect":"NoExecute","key":"own"}},{NOT_READY}]"#);
    let body = format!(
        r#"{{"metadata":{{"labels":{labels},"resourceVersion":"{version}"}},"spec":{{"providerID":"fake://a","taints":{taints}}}}}"#
    );
    assert_eq!(sent(init), ("", STRATEGIC, body));
    let uid = made.uid();
    let body = format!(
        r#"{{"metadata":{{"uid":"{uid}"}},"status":{{"addresses":[{{"address":"10.0.0.1","type":"InternalIP"}},{{"address":"a","type":"Hostname"}},{{"$patch":"replace"}}]}}}}"#
    );
    assert_eq!(sent(addresses), ("status", STRATEGIC, body));
    assert_eq!(rig.events("a").await, ["Normal Synced: Node synced successfully"]);
    let events = rig.list("events").await;
    let about = json!({"kind": "Node", "name": "a", "apiVersion": "v1", "uid": made.uid(), "resourceVersion": version});
    assert_eq!(events[0]["involvedObject"], about);
    assert_eq!(events[0]["source"]["component"], "cloud-node-controller");
    assert_eq!(events[0]["metadata"]["namespace"], "default");
    for metric in ["cloud_provider_taint_removal_delay_seconds", "initial_node_sync_delay_seconds"] {
        assert_eq!(manager.metric(&format!("node_controller_{metric}_count")), Some(1.0), "{metric}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_over_initialized_nodes_writes_nothing() {
    let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
    rig.create(node("a").uninitialized()).await;
    let manager = rig.start(&[]).await;
    rig.until_event("a", "Synced").await;
    manager.stop().await.unwrap();
    let before = rig.node("a").await;
    rig.store().log().clear();

    let manager = rig.start(&[]).await;
    rig.pass(15 * MINUTE).await;
    assert!(manager.is_running());
    assert_eq!(rig.store().log().remote_writes(), []);
    assert_eq!(rig.node("a").await, before);
}

#[tokio::test(start_paused = true)]
async fn without_any_provider_id_the_taint_stays_and_the_node_is_tried_again() {
    let (rig, _manager) = waiting("instances: [{name: a, providerID: ''}]").await;
    rig.until_calls("InstanceMetadata", 4).await;
    assert_eq!(rig.node("a").await.unwrap().taints(), [format!("{TAINT}:NoSchedule")]);
    assert_eq!(rig.writes(), []);
    let event = rig.until_event("a", "FailedToInitializeNode").await;
    assert!(event.contains("cloud provider does not set node provider ID for node a"), "{event}");
    assert!(event.contains("takes no pods until this is resolved"), "{event}");

    rig.cloud.write("instances: [{name: a}]");
    rig.until_node("a", "initialized", initialized).await;
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_of_the_kubelet_stays_as_it_is() {
    let rig = Rig::new("instances: [{name: a, providerID: '', type: large}]").await;
    rig.create(node("a").uninitialized().provider_id("fake://zone/own")).await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!(done.provider_id(), "fake://zone/own");
    assert_eq!(done.label(LABEL_INSTANCE_TYPE), "large");
    assert_eq!(rig.writes_of("nodes", "a")[0].body["spec"].get("providerID"), None);
}

#[tokio::test(start_paused = true)]
async fn metadata_of_nothing_is_no_error_and_only_the_next_node_event_tries_again() {
    let (rig, _manager) = waiting("instances: [{name: a, noMetadata: true}]").await;
    rig.until_calls("InstanceMetadata", 1).await;
    rig.pass(20 * MINUTE).await;
    // There is no retry, and the periodic loop skips nodes that still wait for initialization.
    assert_eq!(rig.cloud.calls_for("InstanceMetadata", "a"), 1);
    assert_eq!((rig.writes(), rig.events("a").await), (vec![], vec![]));
    assert!(rig.node("a").await.unwrap().is_uninitialized());

    rig.cloud.write("instances: [{name: a}]");
    rig.patch_node("a", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_node("a", "initialized", initialized).await;
}

#[tokio::test(start_paused = true)]
async fn reserved_additional_labels_are_discarded_and_present_ones_kept() {
    let rig = Rig::new(
        "instances:\n- name: a\n  labels: {topology.kubernetes.io/x: v, k8s.io/x: v, a.k8s.io/x: v, kubernetes.io/x: v, \
         topology.kubernetes.io/zone: v, app.k8snio/x: v, topology.k8s.cp/x: v, k8s.io: v, xk8s.io/x: v, own: theirs}",
    )
    .await;
    rig.create(node("a").uninitialized().label("own", "mine")).await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "initialized", initialized).await;
    let wanted = json!({"kubernetes.io/hostname": "a", "own": "mine", "app.k8snio/x": "v", "topology.k8s.cp/x": "v",
        "k8s.io": "v", "xk8s.io/x": "v"});
    assert_eq!(done["metadata"]["labels"], wanted);
}

#[tokio::test(start_paused = true)]
async fn labels_and_type_are_set_once_and_never_corrected_or_restored() {
    let (rig, _manager) = waiting("instances: [{name: a, type: large, labels: {rack: r1, row: '1'}}]").await;
    rig.until_node("a", "initialized", initialized).await;
    rig.patch_node("a", json!({"metadata": {"labels": {"row": null}}})).await;
    rig.cloud.write(
        "instances: [{name: a, type: huge, labels: {rack: r2, row: '1'}, addresses: [{type: InternalIP, address: 10.0.0.1}]}]",
    );
    // The addresses prove that the periodic loop ran.
    rig.pass(6 * MINUTE).await;
    let later = rig.node("a").await.unwrap();
    assert_eq!(later.addresses(), ["InternalIP=10.0.0.1"]);
    assert_eq!((later.label("rack"), later.label("row"), later.label(LABEL_INSTANCE_TYPE)), ("r1", "", "large"));
}

#[tokio::test(start_paused = true)]
async fn the_stable_label_follows_the_beta_label_with_an_exact_patch() {
    let rig = Rig::new("").await;
    rig.create(node("a").provider_id("fake://a").label(LABEL_ZONE_BETA, "a").label(LABEL_ZONE, "b")).await;
    rig.create(node("b").provider_id("fake://b").label(LABEL_REGION, "r")).await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "stable label", |node| node.label(LABEL_ZONE) == "a").await;
    assert_eq!(done.label(LABEL_ZONE_BETA), "a");
    rig.pass(MINUTE).await;
    let writes = rig.writes();
    assert_eq!(writes.len(), 1, "{writes:?}");
    let body = format!(r#"{{"metadata":{{"labels":{{"{LABEL_ZONE}":"a"}},"uid":"{}"}}}}"#, done.uid());
    assert_eq!(sent(&writes[0]), ("", STRATEGIC, body));
    // A change of the stable label by another client is reverted, also later.
    rig.patch_node("a", json!({"metadata": {"labels": {(LABEL_ZONE): "c"}}})).await;
    rig.until_node("a", "stable label again", |node| node.label(LABEL_ZONE) == "a").await;
}

#[tokio::test(start_paused = true)]
async fn both_uninitialized_taints_go_and_the_others_stay_in_order() {
    let rig = Rig::new("").await;
    rig.create(node("a").taint("z", "NoSchedule").uninitialized().taint("a", "NoExecute").taint(TAINT, "NoExecute"))
        .await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!(done.taints(), ["z:NoSchedule", "a:NoExecute"]);
}

#[tokio::test(start_paused = true)]
async fn a_concurrent_change_of_the_user_survives_the_conflict() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, hold: gate}]").await;
    let release = rig.cloud.hold("gate");
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_calls("InstanceMetadata", 1).await;
    // The manager's store is stale: its writes are rejected until it catches up.
    rig.faults().freeze_watches(Some("nodes"));
    rig.patch_node(
        "a",
        json!({"metadata": {"labels": {"mine": "1"}, "annotations": {"note": "kept"}},
               "spec": {"taints": [{"key": "mine", "effect": "NoSchedule"}, {"key": TAINT, "effect": "NoSchedule"}]}}),
    )
    .await;
    release();
    let refused = |rig: &Rig| rig.writes().iter().filter(|write| write.status == 409).count();
    rig.until(MINUTE, "three conflicts", async |rig| (refused(rig) >= 3).then_some(())).await;
    rig.faults().thaw_watches(Some("nodes"));
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!((done.label("mine"), done.taints()), ("1", vec!["mine:NoSchedule".into()]));
    assert_eq!(done["metadata"]["annotations"]["note"], "kept");
    // A conflict causes no further lookup.
    assert_eq!(rig.cloud.calls("InstanceMetadata").len(), 1);
    assert_eq!(rig.events("a").await, ["Normal Synced: Node synced successfully"]);
}

#[tokio::test(start_paused = true)]
async fn a_new_node_of_a_used_name_is_initialized_with_its_own_metadata() {
    let cloud = |zone: &str| {
        format!("zone: {{failureDomain: {zone}, region: r}}\nfaults: [{{call: InstanceMetadata, hold: gate}}]")
    };
    let rig = Rig::new(&cloud("old")).await;
    let release = rig.cloud.hold("gate");
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_calls("InstanceMetadata", 1).await;
    rig.faults().freeze_watches(Some("nodes"));
    rig.delete("nodes", "", "a").await;
    let new = rig.create(node("a").uninitialized()).await;
    release();
    let refused = |rig: &Rig| rig.writes().iter().filter(|write| write.status == 409).count();
    rig.until(MINUTE, "a conflict", async |rig| (refused(rig) >= 1).then_some(())).await;
    rig.cloud.write(&cloud("new"));
    rig.faults().thaw_watches(Some("nodes"));
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!((done.uid(), done.label(LABEL_ZONE)), (new.uid(), "new"));
}

#[tokio::test(start_paused = true)]
async fn metadata_that_the_cloud_calls_invalid_is_asked_for_again_soon() {
    let (rig, _manager) =
        waiting("faults: [{call: InstanceMetadata, kind: Invalid, error: no such topology, times: 8}]").await;
    rig.until_node("a", "initialized", initialized).await;
    assert!(rig.count_events("a", "FailedToInitializeNode").await <= 8);
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_shows_late_is_found_within_a_minute() {
    let (rig, _manager) = waiting("unlisted: missing").await;
    rig.pass(30 * MINUTE).await;
    rig.cloud.write("unlisted: missing\ninstances: [{name: a}]");
    rig.until(MINUTE + Duration::from_secs(2), "initialized", async |rig| rig.node("a").await.filter(initialized))
        .await;
}

#[tokio::test(start_paused = true)]
async fn the_next_node_of_a_name_does_not_wait_for_the_failures_of_the_last() {
    let (rig, _manager) = waiting("unlisted: missing").await;
    rig.pass(30 * MINUTE).await;
    rig.delete("nodes", "", "a").await;
    rig.pass(2 * MINUTE).await;
    rig.create(node("a").uninitialized()).await;
    rig.pass(Duration::from_secs(1)).await;
    rig.cloud.write("unlisted: missing\ninstances: [{name: a}]");
    rig.until(Duration::from_secs(3), "initialized", async |rig| rig.node("a").await.filter(initialized)).await;
}

#[tokio::test(start_paused = true)]
async fn initialization_keeps_annotations_images_and_unknown_fields() {
    let rig = Rig::new("").await;
    let annotations = json!({"example.com/big": "x".repeat(5000), "volumes.kubernetes.io/x": "true"});
    let images = json!([{"names": ["registry/image:1"], "sizeBytes": 5}]);
    let made = rig
        .create(node("a").uninitialized().with(|object| {
            object["metadata"]["annotations"] = annotations.clone();
            object["status"]["images"] = images.clone();
            object["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.33.0"});
            object["spec"]["configSource"] = json!({"x": 1});
        }))
        .await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_event("a", "Synced").await;
    let done = rig.node("a").await.unwrap();
    assert!(initialized(&done));
    assert_eq!(done["metadata"]["annotations"], annotations);
    assert_eq!(done["status"]["images"], images);
    for part in ["status", "metadata"] {
        let keys = |object: &Object| -> Vec<String> { object[part].as_object().unwrap().keys().cloned().collect() };
        assert_eq!(keys(&done), keys(&made));
    }
    assert_eq!(done["spec"]["configSource"], made["spec"]["configSource"]);
}

#[tokio::test(start_paused = true)]
async fn a_provider_without_instances_leaves_the_process_running() {
    let rig = Rig::new("interfaces: {instancesV2: false}").await;
    rig.create(node("a").uninitialized()).await;
    rig.create(node("b").provider_id("fake://b").ready("Unknown")).await;
    let manager = rig.start(&[]).await;
    rig.pass(10 * MINUTE).await;
    assert!(manager.is_running());
    assert!(rig.node("a").await.unwrap().is_uninitialized());
    assert_eq!(rig.writes(), []);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn metadata_of_nothing_in_the_periodic_loop_skips_the_node_and_serves_the_others() {
    let rig = Rig::new(
        "instances: [{name: a, noMetadata: true}, {name: b, addresses: [{type: InternalIP, address: 10.0.0.2}]}]",
    )
    .await;
    rig.create(node("a").provider_id("fake://a").address("InternalIP", "10.0.0.1")).await;
    rig.create(node("b").provider_id("fake://b").address("InternalIP", "10.0.0.1")).await;
    let manager = rig.start(&[NODES]).await;
    rig.pass(11 * MINUTE).await;
    assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.1"]);
    assert_eq!(rig.node("b").await.unwrap().addresses(), ["InternalIP=10.0.0.2"]);
    assert!(rig.cloud.calls_for("InstanceMetadata", "a") >= 3);
    assert!(manager.is_running());
}

#[tokio::test(start_paused = true)]
async fn the_provider_is_initialized_once_then_offered_informers_and_only_then_asked() {
    let rig = Rig::new("").await;
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[]).await;
    rig.until_event("a", "Synced").await;
    rig.pass(10 * MINUTE).await;
    let began: Vec<Value> = rig.cloud.log().into_iter().filter(|line| line["phase"] == "start").collect();
    let names: Vec<&str> = began.iter().map(|line| line["call"].as_str().unwrap()).collect();
    assert_eq!(names[..2], ["Initialize", "SetInformers"]);
    assert!(names[2..].iter().all(|name| !matches!(*name, "Initialize" | "SetInformers")), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn a_node_deleted_while_the_cloud_is_asked_ends_quietly() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, hold: gate, times: 1}]").await;
    let release = rig.cloud.hold("gate");
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_calls("InstanceMetadata", 1).await;
    rig.delete("nodes", "", "a").await;
    release();
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.cloud.calls("InstanceMetadata").len(), 1);
    assert_eq!(rig.events("a").await, [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_refused_initialization_is_tried_again_with_the_taint_still_there() {
    let rig = Rig::new("").await;
    let patches = Match::on("patch", "nodes").subresource("");
    let fault = rig.faults().add(Fault::status(422).on(patches).times(3));
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_node("a", "initialized", initialized).await;
    assert_eq!(rig.faults().fired(fault), 3);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_an_answer_calls_missing_is_initialized_while_it_is_known() {
    let rig = Rig::new("").await;
    let fault = rig.faults().add(Fault::status(404).on(Match::on("patch", "nodes").subresource("")).times(3));
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_node("a", "initialized", initialized).await;
    assert_eq!(rig.faults().fired(fault), 3);
}

#[tokio::test(start_paused = true)]
async fn a_thousand_new_nodes_are_few_questions_to_the_cloud() {
    let rig = Rig::new("").await;
    let manager = rig.start(&[NODES]).await;
    for burst in 0..10 {
        for i in 0..100 {
            rig.create(node(&format!("n{burst}-{i}")).uninitialized()).await;
        }
        rig.pass(Duration::from_secs(1)).await;
    }
    rig.until(MINUTE, "all initialized", async |rig| rig.list("nodes").await.iter().all(initialized).then_some(()))
        .await;
    let calls = rig.cloud.calls("InstanceMetadata");
    assert!(calls.len() <= 30, "{} calls", calls.len());
    let asked: usize = calls.iter().map(|call| call["args"]["nodes"].as_array().unwrap().len()).sum();
    assert_eq!(asked, 1000, "each node once");
    manager.stop().await.unwrap();
    assert_eq!(rig.writes().len(), 1000, "one write per node where there are no addresses");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_plans_every_change_and_makes_none() {
    let rig = Rig::new(
        "zone: {failureDomain: z, region: r}\nunlisted: missing\n\
         instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]",
    )
    .await;
    let before = rig.create(node("a").uninitialized()).await;
    rig.create(node("gone").provider_id("fake://gone").ready("Unknown")).await;
    let manager = rig.start(&["--dry-run"]).await;
    let plan = rig.until(MINUTE, "a is planned", async |_| manager.plan("node a")).await;
    for part in ["spec.providerID", "fake://a", LABEL_ZONE, TAINT, "InternalIP=10.0.0.1"] {
        assert!(plan.contains(part), "{part} is not in: {plan}");
    }
    rig.until(MINUTE, "gone is planned", async |_| manager.plan("node gone")).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.store().log().remote_writes(), [], "not even an event or a lease");
    assert_eq!(rig.node("a").await.unwrap(), before);
    assert!(rig.node("gone").await.is_some());
}

#[tokio::test(start_paused = true)]
async fn a_node_of_another_cloud_is_never_touched_or_asked_about() {
    let rig = Rig::new("unlisted: missing").await;
    let before = [
        rig.create(node("new").uninitialized().provider_id("other://new")).await,
        rig.create(node("down").provider_id("other://down").ready("Unknown")).await,
        rig.create(node("labels").provider_id("other://labels").label(LABEL_ZONE_BETA, "x")).await,
    ];
    let manager = rig.start(&[]).await;
    rig.pass(30 * MINUTE).await;
    for node in before {
        assert_eq!(rig.node(node.name()).await.as_ref(), Some(&node));
    }
    assert_eq!((rig.writes(), rig.cloud.calls("Lookup")), (vec![], vec![]));
    assert_eq!(manager.metric("ccm_foreign_nodes"), Some(3.0));
}
