//! Load balancers for Services.

use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, Match, WriteEntry};
use ccm_test_suite::{Object, Rig, Running, node, service};
use serde_json::{Value, json};

const SERVICES: &str = "--controllers=service";
const FINALIZER: &str = "service.kubernetes.io/load-balancer-cleanup";
const MINUTE: Duration = Duration::from_secs(60);
const EXCLUDE: &str = "node.kubernetes.io/exclude-from-external-load-balancers";
const STRATEGIC: &str = "application/strategic-merge-patch+json";

fn has_address(service: &Object) -> bool {
    !service.ingress().is_empty()
}

/// A node that may stand behind balancers.
async fn add_node(rig: &Rig, name: &str) {
    rig.create(node(name).provider_id(&format!("fake://{name}"))).await;
}

/// A manager, a node `n`, and a Service `s` that has its balancer.
async fn balanced(cloud: &str) -> (Rig, Running) {
    let rig = Rig::new(cloud).await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    (rig, manager)
}

/// Bodies of the writes to a Service, with the subresource.
fn bodies(rig: &Rig, name: &str) -> Vec<(String, String)> {
    let writes = rig.writes_of("services", name);
    writes.into_iter().map(|write| (write.subresource, write.body.to_string())).collect()
}

/// The hosts of each call, in order.
fn hosts(rig: &Rig, call: &str, service: &str) -> Vec<String> {
    let calls =
        rig.cloud.calls(call).into_iter().filter(|call| call["args"]["service"] == format!("default/{service}"));
    let names = |call: Value| {
        let names: Vec<&str> = call["args"]["nodes"].as_array().unwrap().iter().map(|n| n.as_str().unwrap()).collect();
        names.join(" ")
    };
    calls.map(names).collect()
}

async fn reasons(rig: &Rig, name: &str) -> Vec<String> {
    let events = rig.events(name).await;
    events.iter().map(|event| event.split([' ', ':']).nth(1).unwrap_or_default().to_owned()).collect()
}

/// Whether each moment is within a second of what is wanted.
#[track_caller]
fn assert_moments(moments: &[Duration], wanted: &[u64]) {
    let close = |(moment, wanted): (&Duration, &u64)| moment.as_secs_f64() - (*wanted as f64);
    let off: Vec<f64> = moments.iter().zip(wanted).map(close).collect();
    assert!(moments.len() == wanted.len() && off.iter().all(|off| off.abs() < 1.0), "{moments:?}, not {wanted:?}");
}

#[tokio::test(start_paused = true)]
async fn a_new_service_is_a_finalizer_then_a_balancer_then_a_status() {
    let (rig, manager) = balanced("loadBalancers: {ipMode: VIP}").await;
    let made = rig.service("s").await.unwrap();
    assert_eq!(made.ingress(), ["203.0.113.1"]);
    assert_eq!(made.finalizers(), [FINALIZER]);
    let finalizer = format!(r#"{{"metadata":{{"finalizers":["{FINALIZER}"]}}}}"#);
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1","ipMode":"VIP"}]}}}"#;
    assert_eq!(bodies(&rig, "s"), [("status".into(), finalizer), ("status".into(), status.into())]);
    assert!(rig.writes().iter().all(|write| write.content_type == STRATEGIC && write.verb == "patch"));
    rig.until_event("s", "EnsuredLoadBalancer").await;
    let mut events = rig.events("s").await;
    events.sort();
    assert_eq!(
        events,
        ["Normal EnsuredLoadBalancer: Ensured load balancer", "Normal EnsuringLoadBalancer: Ensuring load balancer"]
    );
    assert_eq!(rig.list("events").await[0]["source"]["component"], "service-controller");
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"]);
    let args = &rig.cloud.calls("EnsureLoadBalancer")[0]["args"];
    assert_eq!((&args["cluster"], &args["uid"]), (&json!("kubernetes"), &json!(made.uid())));
    // At rest: nothing.
    rig.store().log().clear();
    rig.pass(60 * MINUTE).await;
    assert_eq!((rig.writes(), rig.cloud.calls("EnsureLoadBalancer").len()), (vec![], 1));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_service_with_a_class_is_never_touched() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s").with(|s| s["spec"]["loadBalancerClass"] = "example.com/other".into())).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(MINUTE).await;
    let before = rig
        .patch_service("s", json!({"metadata": {"annotations": {"a": "b"}}, "spec": {"externalIPs": ["1.2.3.4"]}}))
        .await;
    add_node(&rig, "m").await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap(), before);
    assert_eq!((rig.writes(), rig.events("s").await), (vec![], vec![]));
    let calls = rig.cloud.log();
    assert!(calls.iter().all(|line| line["args"].get("service").is_none()), "{calls:?}");
}

#[tokio::test(start_paused = true)]
async fn a_class_does_not_keep_our_balancer_from_being_cleaned_up() {
    let rig = Rig::new("loadBalancers: {initial: [{service: default/s, ingress: [{ip: 203.0.113.9}]}]}").await;
    rig.create(service("s").finalizer(FINALIZER).with(|s| s["spec"]["loadBalancerClass"] = "example.com/other".into()))
        .await;
    rig.delete("services", "default", "s").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until(MINUTE, "s is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
    assert!(rig.cloud.calls("EnsureLoadBalancer").is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_change_of_type_removes_balancer_finalizer_and_status() {
    let (rig, _manager) = balanced("").await;
    let seen = rig.events("s").await.len();
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    let done = rig.until_service("s", "no finalizer", |s| s.finalizers().is_empty()).await;
    assert_eq!(done.ingress(), [""; 0]);
    rig.until_event("s", "DeletedLoadBalancer").await;
    let mut new = rig.events("s").await.split_off(seen);
    new.sort();
    assert_eq!(
        new,
        ["Normal DeletedLoadBalancer: Deleted load balancer", "Normal DeletingLoadBalancer: Deleting load balancer"]
    );
    assert_eq!((rig.cloud.calls("GetLoadBalancer").len(), rig.cloud.calls("EnsureLoadBalancerDeleted").len()), (1, 1));
    let removal = format!(r#"{{"metadata":{{"$deleteFromPrimitiveList/finalizers":["{FINALIZER}"]}}}}"#);
    assert_eq!(bodies(&rig, "s")[2], ("status".to_owned(), removal));
    // And back again.
    rig.patch_service("s", json!({"spec": {"type": "LoadBalancer"}})).await;
    rig.until_service("s", "has an address again", has_address).await;
}

#[tokio::test(start_paused = true)]
async fn a_deletion_without_any_balancer_skips_the_delete_call() {
    let rig = Rig::new("").await;
    rig.create(service("s").finalizer(FINALIZER)).await;
    rig.delete("services", "default", "s").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until(MINUTE, "s is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
    rig.until_event("s", "DeletedLoadBalancer").await;
    assert_eq!(reasons(&rig, "s").await, ["DeletedLoadBalancer"]);
    assert!(rig.cloud.calls("EnsureLoadBalancerDeleted").is_empty());
    assert_eq!(rig.writes().len(), 1, "the status patch of an object that is gone is no error: {:?}", rig.writes());
}

#[tokio::test(start_paused = true)]
async fn a_clean_up_that_cannot_look_keeps_the_finalizer_and_backs_off_from_five_seconds() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: GetLoadBalancer, error: broken}]");
    rig.delete("services", "default", "s").await;
    let moments = rig.moments("GetLoadBalancer", Duration::from_secs(1300)).await;
    assert_moments(&moments, &[0, 5, 15, 35, 75, 155, 315, 615, 915, 1215]);
    assert_eq!(rig.service("s").await.unwrap().finalizers(), [FINALIZER]);
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    let text = "Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to check if load balancer exists before cleanup: broken";
    assert_eq!(event, text);
    assert!(rig.cloud.calls("EnsureLoadBalancerDeleted").is_empty());
    rig.cloud.write("");
    rig.pass(6 * MINUTE).await;
    assert!(rig.service("s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_balancer_that_is_provided_elsewhere_is_left_alone_with_its_finalizer() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, kind: ImplementedElsewhere}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1, "no retry");
    let left = rig.service("s").await.unwrap();
    assert_eq!((left.finalizers(), left.ingress()), (vec![FINALIZER.to_owned()], vec![]));
    assert_eq!(reasons(&rig, "s").await, ["EnsuringLoadBalancer"]);
}

#[tokio::test(start_paused = true)]
async fn a_wrapped_retry_comes_back_once_after_its_delay_and_counts_no_failure() {
    let rig = Rig::new(
        "faults:\n- {call: EnsureLoadBalancer, times: 2, kind: Retry, error: quota, retryAfter: 42s, wrap: outer}\n\
         - {call: EnsureLoadBalancer, times: 1, error: broken}",
    )
    .await;
    add_node(&rig, "n").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(Duration::from_secs(2)).await;
    rig.create(service("s")).await;
    let moments = rig.moments("EnsureLoadBalancer", Duration::from_secs(200)).await;
    // Twice as asked; then the first counted failure, at its shortest delay.
    assert_moments(&moments, &[0, 42, 84, 89]);
    assert!(rig.events("s").await.contains(
        &"Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: outer: quota".into()
    ));
    assert!(has_address(&rig.service("s").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_ensure_without_status_is_an_error_and_tried_again() {
    let rig = Rig::new("loadBalancers: {statuses: [{missing: true}]}").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    let text = "Warning SyncLoadBalancerFailed: Error syncing load balancer: service status returned by EnsureLoadBalancer is nil";
    assert_eq!(event, text);
    assert_eq!(rig.count_events("s", "EnsuredLoadBalancer").await, 0);
    rig.cloud.write("");
    rig.until_service("s", "has an address", has_address).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_of_only_the_ip_mode_is_one_status_patch() {
    let (rig, _manager) = balanced("loadBalancers: {ipMode: VIP}").await;
    let touch = |value: &str| json!({"metadata": {"annotations": {"touched": value}}});
    rig.cloud.write("loadBalancers: {ipMode: Proxy}");
    rig.store().log().clear();
    rig.patch_service("s", touch("1")).await;
    rig.until_service("s", "Proxy", |s| s["status"]["loadBalancer"]["ingress"][0]["ipMode"] == "Proxy").await;
    rig.patch_service("s", touch("2")).await;
    rig.until_calls("EnsureLoadBalancer", 3).await;
    rig.pass(MINUTE).await;
    let status = r#"{"status":{"loadBalancer":{"ingress":[{"ip":"203.0.113.1","ipMode":"Proxy"}]}}}"#;
    assert_eq!(bodies(&rig, "s"), [("status".into(), status.into())]);
}

#[tokio::test(start_paused = true)]
async fn an_ip_mode_that_the_server_filled_in_is_no_change() {
    let (rig, _manager) = balanced("").await;
    assert_eq!(rig.service("s").await.unwrap()["status"]["loadBalancer"]["ingress"][0]["ipMode"], "VIP");
    rig.store().log().clear();
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_cannot_be_set_means_no_call_to_the_cloud() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.faults().add(Fault::status(500).on(Match::on("patch", "services")).times(2));
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(Duration::from_secs(12)).await;
    assert!(rig.cloud.calls("EnsureLoadBalancer").is_empty());
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    assert!(event.contains("failed to add load balancer cleanup finalizer: "), "{event}");
    rig.until_service("s", "has an address", has_address).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
}

/// Lets the finalizer pass and then hits so many status patches.
fn on_status(code: u16, times: u64) -> Fault {
    Fault::status(code).on(Match::on("patch", "services").subresource("status")).skip(1).times(times)
}

#[tokio::test(start_paused = true)]
async fn a_status_patch_that_finds_no_object_is_no_error() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.faults().add(on_status(404, 1));
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_status_patch_that_meets_a_conflict_is_tried_again() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.faults().add(on_status(409, 1));
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    assert!(event.contains("failed to update load balancer status: "), "{event}");
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 2);
    assert_eq!(rig.service("s").await.unwrap().ingress(), ["203.0.113.1"], "the balancer keeps its address");
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_others_survive_status_and_clean_up_also_when_we_have_not_seen_them() {
    let rig = Rig::new("faults: [{call: '*LoadBalancer*', hold: gate}]").await;
    add_node(&rig, "n").await;
    let release = rig.cloud.hold("gate");
    rig.create(service("s").finalizer("example.com/first")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    // Behind the back of the manager.
    rig.faults().freeze_watches(Some("services"));
    let all = ["example.com/first", FINALIZER, "example.com/late"];
    rig.patch_service("s", json!({"metadata": {"finalizers": all, "labels": {"late": "1"}}})).await;
    release();
    let done = rig.until_service("s", "has an address", has_address).await;
    assert_eq!((done.finalizers(), done.label("late")), (all.map(String::from).to_vec(), "1"));
    rig.faults().thaw_watches(Some("services"));

    let release = rig.cloud.hold("gate");
    rig.delete("services", "default", "s").await;
    rig.until_calls("GetLoadBalancer", 1).await;
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("s", json!({"metadata": {"finalizers": ["example.com/first", FINALIZER, "example.com/late"], "annotations": {"x": "y"}}})).await;
    release();
    let left = rig.until_service("s", "without our finalizer", |s| !s.finalizers().contains(&FINALIZER.into())).await;
    assert_eq!(left.finalizers(), ["example.com/first", "example.com/late"]);
    assert_eq!(left["metadata"]["annotations"]["x"], "y");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_waits_for_other_finalizers_gets_no_new_balancer() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s").finalizer("example.com/other")).await;
    let manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.delete("services", "default", "s").await;
    rig.until_service("s", "cleaned up", |s| s.finalizers() == ["example.com/other"]).await;
    let calls = rig.cloud.calls("EnsureLoadBalancer").len();
    let events = rig.events("s").await.len();
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.pass(10 * MINUTE).await;
    // Nor after a restart.
    manager.stop().await.unwrap();
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), calls);
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 0, "{:?}", rig.events("s").await);
    assert!(rig.events("s").await.len() <= events + 1);
}

#[tokio::test(start_paused = true)]
async fn what_asks_for_an_ensure_and_what_does_not() {
    let (rig, _manager) = balanced("").await;
    let mut wanted = 1;
    for (change, ensures) in [
        (json!({"metadata": {"annotations": {"any": "1"}}}), true),
        (json!({"metadata": {"annotations": {"any": "1", "other": "2"}}}), true),
        (json!({"metadata": {"labels": {"any": "1"}}}), false),
        (json!({"spec": {"selector": {"app": "other"}}}), false),
        (json!({"spec": {"sessionAffinity": "ClientIP"}}), true),
        (json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}}), true),
        (json!({"spec": {"loadBalancerSourceRanges": null}}), true),
        (json!({"spec": {"externalIPs": ["1.2.3.4"]}}), true),
        (json!({"spec": {"loadBalancerIP": "1.2.3.4"}}), true),
        (json!({"spec": {"externalTrafficPolicy": "Local"}}), true),
        (json!({"spec": {"internalTrafficPolicy": "Local"}}), false),
        (json!({"spec": {"publishNotReadyAddresses": true}}), false),
        (json!({"spec": {"ports": [{"name": "http", "port": 81, "protocol": "TCP"}]}}), true),
        (json!({"spec": {"ports": [{"name": "web", "port": 81, "protocol": "TCP"}]}}), true),
        (json!({"spec": {"ipFamilyPolicy": "PreferDualStack"}}), true),
    ] {
        rig.patch_service("s", change.clone()).await;
        rig.pass(Duration::from_secs(3)).await;
        wanted += usize::from(ensures);
        assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), wanted, "{change}");
    }
    assert_eq!(rig.service("s").await.unwrap()["spec"]["ipFamilies"].as_array().unwrap().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_service_deleted_without_its_finalizer_is_cleaned_up_from_memory() {
    let (rig, manager) = balanced("").await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
    // By hand, in one go: the manager never sees the finalizer missing.
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "s").await;
    assert!(rig.service("s").await.is_none());
    rig.faults().thaw_watches(Some("services"));
    let deleted = rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    assert_eq!(deleted[0]["args"]["service"], "default/s");
    rig.until_event("s", "DeletedLoadBalancer").await;

    // A new process knows nothing of the other one.
    manager.stop().await.unwrap();
    rig.patch_service("t", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "t").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn under_a_reused_name_the_old_balancer_goes_first() {
    let (rig, _manager) = balanced("").await;
    let old = rig.service("s").await.unwrap();
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "s").await;
    let new = rig.create(service("s")).await;
    rig.faults().thaw_watches(Some("services"));
    rig.until_service("s", "has an address", has_address).await;
    let of = |name: &str| rig.cloud.calls(name).last().unwrap().clone();
    let (deleted, ensured) = (of("EnsureLoadBalancerDeleted"), of("EnsureLoadBalancer"));
    assert_eq!((&deleted["args"]["uid"], &ensured["args"]["uid"]), (&json!(old.uid()), &json!(new.uid())));
    assert!(deleted["id"].as_u64() < ensured["id"].as_u64());
}

#[tokio::test(start_paused = true)]
async fn without_any_node_the_balancer_is_made_all_the_same_with_a_warning() {
    let rig = Rig::new("").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), [""]);
    let event = rig.until_event("s", "UnAvailableLoadBalancer").await;
    assert_eq!(event, "Warning UnAvailableLoadBalancer: There are no available nodes for LoadBalancer");
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_each_service_is_ensured_once_and_nothing_is_written() {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    for i in 0..20 {
        rig.create(service(&format!("s{i}"))).await;
    }
    rig.create(service("plain").with(|s| s["spec"]["type"] = "ClusterIP".into())).await;
    let manager = rig.start(&[SERVICES]).await;
    let all =
        async |rig: &Rig| (rig.list("services").await.iter().filter(|s| has_address(s)).count() == 20).then_some(());
    rig.until(MINUTE, "twenty addresses", all).await;
    manager.stop().await.unwrap();
    rig.store().log().clear();
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 40).await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 40);
    assert_eq!(rig.writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_the_deletion_asks_for_is_honoured() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancerDeleted, times: 2, kind: Retry, error: busy, retryAfter: 33s}]");
    rig.delete("services", "default", "s").await;
    let moments = rig.moments("EnsureLoadBalancerDeleted", 2 * MINUTE).await;
    assert_moments(&moments, &[0, 33, 66]);
    assert!(rig.service("s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn each_of_two_failing_services_has_its_own_back_off() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, service: '*/late', error: broken}, {call: EnsureLoadBalancer, service: '*/early', error: broken}]").await;
    add_node(&rig, "n").await;
    rig.create(service("early")).await;
    let _manager = rig.start(&[SERVICES]).await;
    // The early one is at a delay of 40 s by now.
    rig.pass(MINUTE).await;
    rig.create(service("late")).await;
    rig.pass(Duration::from_secs(17)).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "late").len(), 3, "at 0, 5 and 15 s");
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "early").len(), 5, "at 0, 5, 15, 35 and 75 s");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_events_is_cut_and_slows_nothing() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, error: broken}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(Duration::from_secs(1)).await;
    let events = Match { resource: Some("events".into()), ..Match::any() };
    rig.faults().add(Fault::latency(Duration::from_secs(8)).on(events));
    for i in 0..30 {
        rig.patch_service("s", json!({"metadata": {"annotations": {"touched": i.to_string()}}})).await;
        rig.pass(Duration::from_secs(2)).await;
    }
    let calls = rig.cloud.calls("EnsureLoadBalancer").len();
    assert!(calls >= 31, "{calls}");
    rig.faults().clear();
    rig.pass(2 * MINUTE).await;
    let told = rig.events("s").await.len();
    // The count of an event goes on while it is cut, and is told when one passes again.
    let requests = rig.store().log().count_of("create", "events") + rig.store().log().count_of("patch", "events");
    assert!(requests <= 26, "{requests} requests for events, {told} told");
}

// Hosts.

#[tokio::test(start_paused = true)]
async fn readiness_cordons_and_roles_change_no_hosts() {
    let (rig, _manager) = balanced("").await;
    for policy in ["Cluster", "Local"] {
        rig.patch_service("s", json!({"spec": {"externalTrafficPolicy": policy}})).await;
        rig.pass(Duration::from_secs(5)).await;
        for ready in ["False", "Unknown", "True"] {
            rig.set_ready("n", ready).await;
            rig.pass(Duration::from_secs(5)).await;
        }
    }
    rig.patch_node(
        "n",
        json!({"spec": {"unschedulable": true}, "metadata": {"labels": {"node-role.kubernetes.io/control-plane": ""}}}),
    )
    .await;
    rig.pass(MINUTE).await;
    assert!(rig.cloud.calls("UpdateLoadBalancer").is_empty());
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n"]);
    let event = rig.until_event("s", "UpdatedLoadBalancer").await;
    assert_eq!(event, "Normal UpdatedLoadBalancer: Updated load balancer with new hosts");
}

#[tokio::test(start_paused = true)]
async fn the_autoscalers_taint_and_a_pending_deletion_count_at_the_next_pass_only() {
    let rig = Rig::new("").await;
    for name in ["a", "tainted", "leaving"] {
        rig.create(node(name).provider_id(&format!("fake://{name}")).finalizer("example.com/wait")).await;
    }
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    // The pass that the new nodes asked for.
    rig.pass(Duration::from_secs(5)).await;
    rig.patch_node(
        "tainted",
        json!({"spec": {"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}}),
    )
    .await;
    rig.delete("nodes", "", "leaving").await;
    rig.pass(10 * MINUTE).await;
    assert!(rig.cloud.calls("UpdateLoadBalancer").is_empty());
    add_node(&rig, "b").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["a b"]);
}

#[tokio::test(start_paused = true)]
async fn the_exclusion_label_counts_unless_its_value_reads_as_false() {
    let (rig, _manager) = balanced("").await;
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    let mut wanted = vec!["m n".to_owned()];
    for (value, out) in
        [(json!(""), true), (json!("false"), false), (json!("true"), true), (json!("0"), false), (json!("foo"), true)]
    {
        rig.patch_node("n", json!({"metadata": {"labels": {(EXCLUDE): value}}})).await;
        rig.pass(Duration::from_secs(5)).await;
        wanted.push(if out { "m" } else { "m n" }.to_owned());
        assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), wanted, "{value}");
    }
    // From one excluding value to another: no change.
    rig.patch_node("n", json!({"metadata": {"labels": {(EXCLUDE): "bar"}}})).await;
    rig.pass(MINUTE).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), wanted);
}

#[tokio::test(start_paused = true)]
async fn a_provider_id_that_appears_updates_the_hosts_under_the_same_names() {
    let rig = Rig::new("").await;
    rig.create(node("n")).await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.patch_node("n", json!({"spec": {"providerID": "fake://n"}})).await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["n"]);
}

#[tokio::test(start_paused = true)]
async fn a_failed_host_update_becomes_an_ensure_and_is_not_repeated_by_the_next_pass() {
    let (rig, manager) = balanced("faults: [{call: UpdateLoadBalancer, error: broken, times: 1}]").await;
    add_node(&rig, "m").await;
    let event = rig.until_event("s", "UpdateLoadBalancerFailed").await;
    let text = "Warning UpdateLoadBalancerFailed: Error updating load balancer with new hosts [m n] [node names limited, \
                total number of nodes: 2], error: broken";
    assert_eq!(event, text);
    rig.until_calls("EnsureLoadBalancer", 2).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", "m n"]);
    // A pass that finds nothing new.
    rig.create(node("excluded").label(EXCLUDE, "")).await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(rig.cloud.calls("UpdateLoadBalancer").len(), 1);
    assert_eq!(manager.metric("service_controller_nodesync_error_total"), Some(1.0));
    assert_eq!(manager.metric("service_controller_loadbalancer_sync_total"), Some(1.0));
}

#[tokio::test(start_paused = true)]
async fn a_failed_host_update_of_a_balancer_that_is_gone_is_a_success() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write(
        "faults: [{call: UpdateLoadBalancer, error: not found}, {call: GetLoadBalancer, result: {exists: false}}]",
    );
    add_node(&rig, "m").await;
    rig.until_calls("GetLoadBalancer", 1).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.count_events("s", "UpdateLoadBalancerFailed").await, 0);
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_slow_host_update_never_overwrites_newer_hosts_of_another_service() {
    let (rig, _manager) = balanced("faults: [{call: UpdateLoadBalancer, service: '*/s', hold: gate}]").await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
    let release = rig.cloud.hold("gate");
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 2).await;
    add_node(&rig, "o").await;
    rig.until(MINUTE, "t has the third node", async |rig| {
        (hosts(rig, "UpdateLoadBalancer", "t") == ["m n", "m n o"]).then_some(())
    })
    .await;
    rig.patch_service("t", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until(MINUTE, "t is ensured", async |rig| (hosts(rig, "EnsureLoadBalancer", "t").len() == 2).then_some(()))
        .await;
    release();
    rig.pass(5 * MINUTE).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "t"), ["m n", "m n o"]);
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "t").last().unwrap(), "m n o");
    // And the slow one got the newest list in the end.
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s").last().unwrap(), "m n o");
}

#[tokio::test(start_paused = true)]
async fn calls_for_one_service_never_overlap() {
    let (rig, _manager) = balanced("faults: [{call: '*LoadBalancer*', delay: 3s}]").await;
    for i in 0..6 {
        add_node(&rig, &format!("m{i}")).await;
        rig.patch_service("s", json!({"metadata": {"annotations": {"touched": i.to_string()}}})).await;
        rig.pass(Duration::from_secs(2)).await;
    }
    rig.delete("services", "default", "s").await;
    rig.until(5 * MINUTE, "s is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
    let mut open: Option<Value> = None;
    for line in rig.cloud.log().iter().filter(|line| line["args"].get("service").is_some()) {
        match line["phase"].as_str() {
            Some("start") => assert!(open.replace(line["id"].clone()).is_none(), "{line}"),
            _ => assert_eq!(open.take(), Some(line["id"].clone())),
        }
    }
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_burst_of_new_nodes_is_few_updates_of_each_balancer() {
    let (rig, _manager) = balanced("").await;
    for i in 0..100 {
        add_node(&rig, &format!("m{i:02}")).await;
        if i % 10 == 0 {
            rig.pass(Duration::from_millis(100)).await;
        }
    }
    rig.pass(MINUTE).await;
    let updates = hosts(&rig, "UpdateLoadBalancer", "s");
    assert!(updates.len() <= 3, "{} updates", updates.len());
    assert_eq!(updates.last().unwrap().split(' ').count(), 101);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_is_not_emptied_because_the_node_objects_are_gone() {
    let (rig, _manager) = balanced("").await;
    rig.delete("nodes", "", "n").await;
    let event = rig.until_event("s", "LoadBalancerHostsKept").await;
    assert!(event.contains("node n is missing from the cluster, but its instance exists"), "{event}");
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", "n"]);
    rig.pass(10 * MINUTE).await;
    assert!(rig.cloud.calls("UpdateLoadBalancer").is_empty());
    // Once the instance is gone for certain, the host goes too.
    rig.cloud.write("unlisted: missing");
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), [""]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_is_emptied_where_the_nodes_say_so_or_the_flag_does() {
    let (rig, _manager) = balanced("").await;
    rig.patch_node("n", json!({"metadata": {"labels": {(EXCLUDE): ""}}})).await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), [""]);

    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES, "--allow-emptying-load-balancers"]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.delete("nodes", "", "n").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), [""]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_over_a_cluster_without_nodes_does_not_empty_its_balancers() {
    let (rig, manager) = balanced("stateFile: state.json").await;
    manager.stop().await.unwrap();
    rig.delete("nodes", "", "n").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_event("s", "LoadBalancerHostsKept").await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"]);
    add_node(&rig, "m").await;
    rig.until(5 * MINUTE, "ensured again", async |rig| {
        (hosts(rig, "EnsureLoadBalancer", "s") == ["n", "m"]).then_some(())
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_a_service_writes_nothing_and_tells_the_plan() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    let before = rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES, "--dry-run"]).await;
    rig.until_event("s", "DryRun").await;
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap(), before);
    assert!(rig.cloud.calls("EnsureLoadBalancer").is_empty());
    assert_eq!(reasons(&rig, "s").await, ["DryRun"]);
}

#[tokio::test(start_paused = true)]
async fn a_manager_killed_at_any_moment_leaves_neither_a_leak_nor_a_second_balancer() {
    let writes = |rig: &Rig| rig.writes().iter().filter(|write: &&WriteEntry| write.status < 300).count();
    for moment in (0..30).map(|i| Duration::from_millis(i * 40)) {
        let rig = Rig::new("stateFile: state.json\nfaults: [{call: '*', delay: 150ms}]").await;
        rig.faults().add(Fault::latency(Duration::from_millis(60)));
        add_node(&rig, "n").await;
        rig.create(service("new")).await;
        rig.create(service("old").finalizer(FINALIZER)).await;
        rig.delete("services", "default", "old").await;
        let first = rig.start(&[SERVICES]).await;
        rig.pass(moment).await;
        first.kill();
        rig.pass(Duration::from_secs(1)).await;
        let second = rig.start(&[SERVICES]).await;
        rig.until_service("new", "has an address", has_address).await;
        rig.until(MINUTE, "old is gone", async |rig| rig.service("old").await.is_none().then_some(())).await;
        rig.pass(MINUTE).await;
        assert_eq!(rig.service("new").await.unwrap().ingress(), ["203.0.113.1"], "killed after {moment:?}");
        assert_eq!(writes(&rig), 3, "killed after {moment:?}: {:?}", rig.writes());
        second.stop().await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn each_way_in_which_the_api_server_fails_ends_with_one_balancer_and_the_right_status() {
    let effects = [
        Effect::Status { code: 429, reason: None, message: None, retry_after: Some(3) },
        Effect::Status { code: 503, reason: None, message: None, retry_after: None },
        Effect::HtmlPage { code: 502 },
        Effect::LoseRequest,
        Effect::LoseAnswer,
        Effect::FailAfterEffect { code: 504 },
    ];
    for effect in effects {
        let rig = Rig::new("").await;
        add_node(&rig, "n").await;
        let manager = rig.start(&[SERVICES]).await;
        rig.pass(Duration::from_secs(1)).await;
        rig.faults().add(Fault::new(effect.clone()).on(Match { resource: Some("services".into()), ..Match::any() }));
        rig.create(service("s")).await;
        rig.pass(MINUTE).await;
        rig.faults().clear();
        rig.pass(10 * MINUTE).await;
        let done = rig.service("s").await.unwrap();
        assert_eq!(
            (done.ingress(), done.finalizers()),
            (vec!["203.0.113.1".into()], vec![FINALIZER.into()]),
            "{effect:?}"
        );
        rig.delete("services", "default", "s").await;
        rig.until(MINUTE, "gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
        assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1, "{effect:?}");
        assert!(manager.is_running());
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_over_nodes_that_were_all_taken_out_on_purpose_is_no_reason_to_wait() {
    let (rig, manager) = balanced("stateFile: state.json").await;
    rig.patch_node("n", json!({"metadata": {"labels": {(EXCLUDE): ""}}})).await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    manager.stop().await.unwrap();
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(MINUTE).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", ""]);
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
}

#[tokio::test(start_paused = true)]
async fn a_delay_that_a_host_update_asks_for_is_honoured() {
    let fault = "faults: [{call: UpdateLoadBalancer, kind: Retry, error: busy, retryAfter: 42s, times: 1}]";
    let (rig, _manager) = balanced(fault).await;
    add_node(&rig, "m").await;
    rig.until_event("s", "UpdateLoadBalancerFailed").await;
    assert_moments(&rig.moments("EnsureLoadBalancer", 10 * MINUTE).await, &[42]);
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", "m n"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changed_its_type_and_went_before_its_clean_up_leaves_no_balancer() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: GetLoadBalancer, error: broken}]");
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    // Seen without the finalizer too.
    rig.until_calls("GetLoadBalancer", 3).await;
    rig.delete("services", "default", "s").await;
    rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_of_no_deletion_that_it_does_not_make() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES, "--dry-run"]).await;
    rig.until_event("s", "DryRun").await;
    rig.delete("services", "default", "s").await;
    rig.pass(10 * MINUTE).await;
    assert!(rig.cloud.calls("EnsureLoadBalancerDeleted").is_empty());
    assert!(rig.service("s").await.is_none());
    assert!(reasons(&rig, "s").await.iter().all(|reason| reason == "DryRun"), "{:?}", rig.events("s").await);
}
