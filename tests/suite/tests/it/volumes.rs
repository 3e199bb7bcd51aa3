//! Labels and node affinity of volumes, by the controller.

use std::time::Duration;

use ccm_test_apiserver::{Effect, Fault, FaultId, Match};
use ccm_test_suite::{Make, Object, Rig, Running, volume};
use serde_json::{Value, json};

const MINUTE: Duration = Duration::from_secs(60);
const ON: &str = "--controllers=pvlabel";
const ZONE: &str = "topology.kubernetes.io/zone";
const REGION: &str = "topology.kubernetes.io/region";
const ASK: &str = "GetLabelsForVolume";

/// A cloud with the volumes `vol-…` in zone `a` of region `r`, and additional configuration.
fn cloud(ids: &[&str], more: &str) -> String {
    let entry = |id: &&str| format!("{{id: {id}, labels: {{{ZONE}: a, {REGION}: r}}}}");
    let volumes: Vec<String> = ids.iter().map(entry).collect();
    format!("interfaces: {{pvLabels: true}}\nvolumes: [{}]\n{more}", volumes.join(", "))
}

fn ebs(name: &str, id: &str) -> Make {
    volume(name, "awsElasticBlockStore", json!({"volumeID": id}))
}

fn csi(name: &str, handle: &str) -> Make {
    volume(name, "csi", json!({"driver": "disk.example.com", "volumeHandle": handle}))
}

async fn pv(rig: &Rig, name: &str) -> Object {
    rig.get("persistentvolumes", "", name).await.unwrap()
}

async fn until_labeled(rig: &Rig, name: &str) -> Object {
    let labeled = async |rig: &Rig| {
        let volume = rig.get("persistentvolumes", "", name).await?;
        (!volume.label(ZONE).is_empty() && !volume.label(REGION).is_empty()).then_some(volume)
    };
    rig.until(15 * MINUTE, &format!("volume {name} has its labels"), labeled).await
}

fn requirements(volume: &Object) -> Value {
    volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"].clone()
}

/// The labels and the affinity for zone `a` of region `r`.
fn added() -> Value {
    json!([{"matchExpressions": [
        {"key": REGION, "operator": "In", "values": ["r"]}, {"key": ZONE, "operator": "In", "values": ["a"]}]}])
}

fn writes(rig: &Rig) -> usize {
    rig.writes().iter().filter(|write| write.resource == "persistentvolumes").count()
}

fn questions(manager: &Running) -> f64 {
    let of = |outcome| manager.metric(&format!("ccm_provider_calls_total{{call=\"{ASK}\",outcome=\"{outcome}\"}}"));
    let all = ["ok", "not-found", "unknown", "transient"].map(|outcome| of(outcome).unwrap_or_default());
    all.iter().sum()
}

fn fault(rig: &Rig, verb: &str, fault: Fault) -> FaultId {
    rig.faults().add(fault.on(Match::on(verb, "persistentvolumes")))
}

#[tokio::test(start_paused = true)]
async fn a_declared_volume_gets_labels_and_affinity_with_one_write_and_then_there_is_none() {
    let rig = Rig::new(&cloud(&["vol-1", "handle"], "")).await;
    rig.create(ebs("before", "vol-1").with(|pv| pv["metadata"]["labels"] = json!({"mine": "1"}))).await;
    let manager = rig.start(&[ON]).await;
    let labeled = until_labeled(&rig, "before").await;
    assert_eq!((labeled.label(ZONE), labeled.label(REGION), labeled.label("mine")), ("a", "r", "1"));
    assert_eq!(requirements(&labeled), added());
    rig.create(csi("after", "handle")).await;
    assert_eq!(requirements(&until_labeled(&rig, "after").await), added());
    assert_eq!((writes(&rig), rig.cloud.calls(ASK).len()), (2, 2));
    assert_eq!(manager.plan("persistentvolume after").unwrap().lines().count(), 2);

    rig.patch("persistentvolumes", "", "before", "", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.pass(20 * MINUTE).await;
    manager.stop().await.unwrap();
    let again = rig.start(&[ON]).await;
    rig.pass(MINUTE).await;
    assert_eq!((writes(&rig), rig.cloud.calls(ASK).len()), (2, 2), "a second leader asks and writes nothing");
    again.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn volumes_of_others_are_neither_asked_about_nor_written() {
    let rig = Rig::new(&cloud(&["vol-1", "handle"], "")).await;
    let annotated = |make: Make| {
        make.with(|pv| pv["metadata"]["annotations"] = json!({"pv.kubernetes.io/provisioned-by": "disk.example.com"}))
    };
    let labeled = |make: Make, labels: Value| make.with(|pv| pv["metadata"]["labels"] = labels);
    let beta = json!({"failure-domain.beta.kubernetes.io/zone": "z", "failure-domain.beta.kubernetes.io/region": "s"});
    for make in [
        volume("local", "hostPath", json!({"path": "/x"})),
        annotated(csi("provisioned", "handle")),
        labeled(annotated(ebs("old", "vol-1")), beta.clone()),
        labeled(ebs("old-by-hand", "vol-1"), beta),
        labeled(ebs("complete", "vol-1"), json!({ZONE: "x", REGION: "y"})),
        ebs("being-made", "placeholder-for-provisioning"),
        ebs("without-id", ""),
        volume("nfs", "nfs", json!({"server": "h", "path": "/"})),
    ] {
        rig.create(make).await;
    }
    // Being deleted, but still in use.
    rig.create(ebs("going", "vol-1").with(|pv| pv["metadata"]["finalizers"] = json!(["example.com/in-use"]))).await;
    rig.delete("persistentvolumes", "", "going").await;
    let manager = rig.start(&[ON]).await;
    rig.create(ebs("ours", "vol-1")).await;
    until_labeled(&rig, "ours").await;
    rig.pass(10 * MINUTE).await;
    assert_eq!((writes(&rig), rig.cloud.calls(ASK).len()), (1, 1));
    assert_eq!(pv(&rig, "complete").await.label(ZONE), "x");
    assert_eq!(requirements(&pv(&rig, "old").await), Value::Null);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_thousand_volumes_are_a_few_questions() {
    let rig = Rig::new(&cloud(&["vol-1"], "")).await;
    for number in 0..1000 {
        rig.create(ebs(&format!("pv-{number:04}"), "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    let all = async |rig: &Rig| (writes(rig) == 1000).then_some(());
    rig.until(5 * MINUTE, "all are labeled", all).await;
    assert_eq!(rig.cloud.calls(ASK).len(), 1000);
    assert!(questions(&manager) <= 40.0, "{} questions", questions(&manager));
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_affinity_of_the_user_stays_and_so_does_a_label_that_contradicts_the_cloud() {
    let rig = Rig::new(&cloud(&["vol-1"], "")).await;
    let own =
        json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]}});
    rig.create(ebs("bound", "vol-1").with(|pv| {
        pv["metadata"]["labels"] = json!({ZONE: "mine"});
        pv["spec"]["nodeAffinity"] = own.clone();
    }))
    .await;
    let manager = rig.start(&[ON]).await;
    let labeled = until_labeled(&rig, "bound").await;
    assert_eq!((labeled.label(ZONE), labeled.label(REGION)), ("mine", "r"));
    assert_eq!(labeled["spec"]["nodeAffinity"], own);
    let event = rig.until_event("bound", "VolumeLabelContradictsCloud").await;
    assert!(event.contains(&format!("{ZONE}=mine contradicts the cloud, which says a")), "{event}");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_disk_that_does_not_exist_is_asked_for_every_five_minutes() {
    let rig = Rig::new(&cloud(&[], &format!("faults: [{{call: {ASK}, kind: DiskNotFound, volume: vol-1}}]"))).await;
    rig.create(ebs("lost", "vol-1")).await;
    let manager = rig.start(&[ON]).await;
    let event = rig.until_event("lost", "FailedToLabelVolume").await;
    assert!(event.contains("error querying AWS EBS volume vol-1: disk is not found"), "{event}");
    let moments = rig.moments(ASK, 21 * MINUTE).await;
    assert_eq!(moments.len(), 4, "{moments:?}");
    for pair in moments.windows(2) {
        assert!(pair[1] - pair[0] >= 5 * MINUTE, "{moments:?}");
    }
    rig.cloud.write(&cloud(&["vol-1"], ""));
    until_labeled(&rig, "lost").await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn an_error_of_the_cloud_is_retried_with_growing_pauses_and_holds_up_no_other_volume() {
    let fault = format!("faults: [{{call: {ASK}, volume: vol-bad, times: 6, error: throttled}}]");
    let rig = Rig::new(&cloud(&["vol-1", "vol-bad"], &fault)).await;
    rig.create(ebs("bad", "vol-bad")).await;
    rig.create(ebs("good", "vol-1")).await;
    let manager = rig.start(&[ON]).await;
    until_labeled(&rig, "good").await;
    until_labeled(&rig, "bad").await;
    assert_eq!(rig.cloud.calls(ASK).len(), 8);
    assert!(
        rig.until_event("bad", "FailedToLabelVolume")
            .await
            .contains("error querying AWS EBS volume vol-bad: throttled")
    );
    assert_eq!(rig.count_events("good", "FailedToLabelVolume").await, 0);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_the_cloud_never_answers_for_holds_up_no_other() {
    let fault = format!("faults: [{{call: {ASK}, volume: vol-stuck, hold: gate}}]");
    let rig = Rig::new(&cloud(&["vol-1", "vol-stuck"], &fault)).await;
    let release = rig.cloud.hold("gate");
    let names: Vec<String> = (0..20).map(|number| format!("pv-{number}")).collect();
    for name in &names {
        rig.create(ebs(name, "vol-1")).await;
    }
    rig.create(ebs("a-stuck", "vol-stuck")).await;
    let manager = rig.start(&[ON]).await;
    for name in &names {
        until_labeled(&rig, name).await;
    }
    let event = rig.until_event("a-stuck", "FailedToLabelVolume").await;
    assert!(event.contains("GetLabelsForVolume did not answer within 15s"), "{event}");
    assert_eq!((writes(&rig), pv(&rig, "a-stuck").await.label(ZONE)), (20, ""));
    for name in &names {
        assert_eq!(rig.count_events(name, "FailedToLabelVolume").await, 0, "{name}");
    }
    release();
    until_labeled(&rig, "a-stuck").await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_waits_for_no_answer_about_a_volume() {
    let rig = Rig::new(&cloud(&["vol-1"], &format!("faults: [{{call: {ASK}, delay: 10h}}]"))).await;
    for name in ["a", "b"] {
        rig.create(ebs(name, "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    // The call for both is given up after 15 seconds, and each is looked up alone.
    rig.pass(Duration::from_secs(20)).await;
    assert_eq!(rig.cloud.calls(ASK).len(), 4);
    rig.lap();
    manager.stop().await.unwrap();
    let took = rig.lap();
    assert!(took < Duration::from_secs(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_answers_for_none_of_many_is_given_up_for_all_of_them() {
    let rig = Rig::new(&cloud(&["vol-1"], &format!("faults: [{{call: {ASK}, delay: 10h}}]"))).await;
    for number in 0..100 {
        rig.create(ebs(&format!("pv-{number}"), "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    let began = tokio::time::Instant::now();
    // With five at a time, one group after another, this would take five minutes.
    for number in 0..100 {
        let name = format!("pv-{number}");
        let reported = async |rig: &Rig| (rig.count_events(&name, "FailedToLabelVolume").await > 0).then_some(());
        rig.until(2 * MINUTE, "events about all", reported).await;
    }
    assert!(began.elapsed() < 3 * MINUTE, "{:?}", began.elapsed());
    rig.cloud.write(&cloud(&["vol-1"], ""));
    until_labeled(&rig, "pv-99").await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_refusal_of_the_api_server_is_reported_on_the_volume_and_delays_no_other() {
    let rig = Rig::new(&cloud(&["vol-1"], "")).await;
    let policy = "admission webhook \"policy.example.com\" denied the request: frozen";
    for (name, code, text) in [("invalid", 422, "metadata.labels: Invalid value"), ("denied", 403, policy)] {
        let effect = Effect::Status { code, reason: None, message: Some(text.to_owned()), retry_after: None };
        rig.faults().add(Fault::new(effect).on(Match::on("patch", "persistentvolumes").named(name)));
        rig.create(ebs(name, "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    for (name, text) in [("invalid", "metadata.labels: Invalid value"), ("denied", policy)] {
        let event = rig.until_event(name, "FailedToLabelVolume").await;
        assert!(event.contains(&format!("failed to label the volume: {text}. The volume has no labels")), "{event}");
    }
    rig.create(ebs("good", "vol-1")).await;
    let made = tokio::time::Instant::now();
    until_labeled(&rig, "good").await;
    assert!(made.elapsed() < MINUTE, "a right that is missing would have cost five minutes");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_watch_volumes_everything_else_goes_on_and_the_server_is_left_in_peace() {
    let rig = Rig::new(&cloud(&["vol-1"], "instances: [{name: n}]")).await;
    let refused = fault(&rig, "watch", Fault::status(403));
    fault(&rig, "list", Fault::status(403));
    rig.create(ebs("pv", "vol-1")).await;
    let manager = rig.start(&["--controllers=cloud-node,pvlabel"]).await;
    rig.create(ccm_test_suite::node("n").uninitialized()).await;
    rig.until_node("n", "initialized", |node| !node.is_uninitialized()).await;
    rig.pass(31 * MINUTE).await;
    let tries = rig.faults().fired(refused);
    assert!((5..=8).contains(&tries), "{tries} tries in half an hour");
    assert!(manager.is_running() && writes(&rig) == 0);
    rig.faults().clear();
    until_labeled(&rig, "pv").await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_patch_volumes_one_try_counts_for_all_of_them() {
    let rig = Rig::new(&cloud(&["vol-1"], "")).await;
    let refused = fault(&rig, "patch", Fault::status(403));
    for number in 0..100 {
        rig.create(ebs(&format!("pv-{number}"), "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    rig.pass(31 * MINUTE).await;
    let tries = rig.faults().fired(refused);
    // At most the number of concurrent writes, every five minutes.
    assert!((6..=7 * 5).contains(&tries), "{tries} tries in half an hour");
    rig.faults().clear();
    rig.until(15 * MINUTE, "all are labeled", async |rig| {
        let volumes = rig.list("persistentvolumes").await;
        volumes.iter().all(|volume| volume.label(ZONE) == "a").then_some(())
    })
    .await;
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_permission_that_the_cloud_refuses_is_one_event_an_hour_and_volumes_are_labeled_once_it_is_there() {
    let fault = format!("faults: [{{call: {ASK}, volume: vol-1, kind: Denied, error: 'ec2:DescribeVolumes'}}]");
    let rig = Rig::new(&cloud(&["vol-1", "vol-2"], &fault)).await;
    let names: Vec<String> = (0..20).map(|number| format!("pv-{number}")).collect();
    for name in &names {
        rig.create(ebs(name, "vol-1")).await;
    }
    let manager = rig.start(&[ON]).await;
    let events = async || {
        let mut events = Vec::new();
        for name in &names {
            events.extend(rig.events(name).await.into_iter().filter(|event| event.contains("FailedToLabelVolume")));
        }
        events
    };
    rig.pass(31 * MINUTE).await;
    let first = events().await;
    assert_eq!(first.len(), 1, "{first:?}");
    assert!(first[0].contains("ec2:DescribeVolumes"), "{first:?}");
    let asked = rig.cloud.calls(ASK).len();
    assert!((6 * 20..=7 * 20).contains(&asked), "{asked}: every five minutes");
    rig.pass(60 * MINUTE).await;
    assert_eq!(events().await.len(), 2, "the API server has dropped the first");
    rig.create(ebs("other", "vol-2")).await;
    until_labeled(&rig, "other").await;
    rig.cloud.write(&cloud(&["vol-1"], ""));
    for name in &names {
        until_labeled(&rig, name).await;
    }
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_label_that_the_user_sets_meanwhile_survives() {
    let rig = Rig::new(&cloud(&["vol-1"], &format!("faults: [{{call: {ASK}, hold: gate}}]"))).await;
    let release = rig.cloud.hold("gate");
    rig.create(ebs("raced", "vol-1")).await;
    let manager = rig.start(&[ON]).await;
    rig.until_calls(ASK, 1).await;
    rig.patch("persistentvolumes", "", "raced", "", json!({"metadata": {"labels": {ZONE: "mine"}}})).await;
    release();
    assert_eq!(until_labeled(&rig, "raced").await.label(ZONE), "mine");
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_plans_and_writes_nothing() {
    let rig = Rig::new(&cloud(&["vol-1"], "")).await;
    rig.create(ebs("pv", "vol-1")).await;
    let manager = rig.start(&[ON, "--dry-run"]).await;
    let planned = async |_: &Rig| manager.plan("persistentvolume pv");
    let plan = rig.until(MINUTE, "a plan", planned).await;
    assert!(plan.contains(&format!("label {ZONE} = a")), "{plan}");
    rig.pass(MINUTE).await;
    assert_eq!(writes(&rig), 0);
    manager.stop().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn it_is_on_by_default_and_watches_volumes_only_where_the_provider_has_labels() {
    for (cloud, more, works) in [
        (cloud(&["vol-1"], ""), &[][..], true),
        (cloud(&["vol-1"], "").replace("true", "false"), &[], false),
        (cloud(&["vol-1"], ""), &["--controllers=*,-persistentvolume-label-controller"], false),
    ] {
        let rig = Rig::new(&cloud).await;
        rig.create(ebs("pv", "vol-1")).await;
        let manager = rig.start(more).await;
        if works {
            until_labeled(&rig, "pv").await;
        } else {
            rig.pass(10 * MINUTE).await;
            assert!(pv(&rig, "pv").await.label(ZONE).is_empty());
        }
        let log = rig.store().log();
        let watched = log.count_of("watch", "persistentvolumes") + log.count_of("list", "persistentvolumes");
        assert_eq!(watched > 0, works, "{more:?}");
        let running =
            manager.metric("running_managed_controllers{manager=\"cloud-controller-manager\",name=\"pvlabel\"}");
        assert_eq!(running, works.then_some(1.0), "{}", manager.metrics());
        manager.stop().await.unwrap();
    }
}
