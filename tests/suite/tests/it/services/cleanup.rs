//! Deletion of balancers.

use super::*;

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
    // And changed back.
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
async fn a_clean_up_that_cannot_look_keeps_the_finalizer_and_backs_off_from_five_seconds_to_half_a_minute() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: GetLoadBalancer, error: broken}]");
    rig.delete("services", "default", "s").await;
    let moments = rig.moments("GetLoadBalancer", Duration::from_secs(200)).await;
    assert_moments(&moments, &[0, 5, 15, 35, 65, 95, 125, 155, 185]);
    assert_eq!(rig.service("s").await.unwrap().finalizers(), [FINALIZER]);
    let event = rig.until_event("s", "SyncLoadBalancerFailed").await;
    let text = "Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to check if load balancer exists before cleanup: broken";
    assert_eq!(event, text);
    assert!(rig.cloud.calls("EnsureLoadBalancerDeleted").is_empty());
    rig.cloud.write("");
    rig.pass(MINUTE).await;
    assert!(rig.service("s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn finalizers_of_others_survive_status_and_clean_up_also_when_we_have_not_seen_them() {
    let rig = Rig::new("faults: [{call: '*LoadBalancer*', hold: gate}]").await;
    add_node(&rig, "n").await;
    let release = rig.cloud.hold("gate");
    rig.create(service("s").finalizer("example.com/first")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    // The manager does not receive this change.
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
async fn a_service_deleted_without_its_finalizer_is_cleaned_up_from_memory() {
    let (rig, manager) = balanced("").await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
    // By a user, in one step: the manager never observes the missing finalizer.
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "s").await;
    assert!(rig.service("s").await.is_none());
    rig.faults().thaw_watches(Some("services"));
    let deleted = rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    assert_eq!(deleted[0]["args"]["service"], "default/s");
    rig.until_event("s", "DeletedLoadBalancer").await;

    // A new process has no state of the old one.
    manager.stop().await.unwrap();
    rig.patch_service("t", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "t").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_is_deleted_for_a_service_gone_from_the_watch_only_when_the_api_server_says_so() {
    for fault in [Fault::status(500), Fault::new(Effect::HtmlPage { code: 404 })] {
        let (rig, _manager) = balanced("").await;
        rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
        // 0 s and 5 s; the third response is "not found".
        rig.faults().add(fault.on(Match::on("get", "services")).times(2));
        rig.delete("services", "default", "s").await;
        let moments = rig.moments("EnsureLoadBalancerDeleted", 2 * MINUTE).await;
        assert_moments(&moments, &[15]);
        let (asked, events) = (rig.store().log().count_of("get", "services"), rig.events("s").await);
        assert_eq!(asked, 3, "one question for each try");
        assert!(events.iter().all(|event| event.starts_with("Normal ")), "{events:?}");
    }
}

/// The roles of the Go programs grant `list` on Services, and no `get`.
#[tokio::test(start_paused = true)]
async fn without_get_on_services_a_list_proves_that_a_service_is_gone() {
    for (may_list, calls) in [(true, 1), (false, 0)] {
        let (rig, _manager) = balanced("").await;
        rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
        rig.faults().add(Fault::status(403).on(Match::on("get", "services")));
        if !may_list {
            rig.faults().add(Fault::status(403).on(Match::on("list", "services")));
        }
        rig.delete("services", "default", "s").await;
        rig.pass(MINUTE).await;
        assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), calls, "{may_list}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_recreated_while_the_old_one_is_checked_gets_its_own_balancer() {
    let (rig, _manager) = balanced("").await;
    let old = rig.service("s").await.unwrap();
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.faults().add(Fault::latency(Duration::from_secs(3)).on(Match::on("get", "services")));
    rig.delete("services", "default", "s").await;
    rig.pass(Duration::from_secs(1)).await;
    rig.faults().freeze_watches(Some("services"));
    let new = rig.create(service("s")).await;
    let deleted = rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    assert_eq!(deleted[0]["args"]["uid"], json!(old.uid()));
    rig.faults().thaw_watches(Some("services"));
    rig.until_service("s", "has an address", has_address).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").last().unwrap()["args"]["uid"], json!(new.uid()));
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
async fn a_delay_that_the_deletion_asks_for_is_honored() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancerDeleted, times: 2, kind: Retry, error: busy, retryAfter: 33s}]");
    rig.delete("services", "default", "s").await;
    let moments = rig.moments("EnsureLoadBalancerDeleted", 2 * MINUTE).await;
    assert_moments(&moments, &[0, 33, 66]);
    assert!(rig.service("s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_cancels_the_retry_of_a_failed_ensure() {
    let rig = Rig::new(
        "faults: [{call: EnsureLoadBalancer, error: broken, applied: true}, \
         {call: EnsureLoadBalancerDeleted, times: 1, kind: InProgress, error: being deleted, retryAfter: 60s}]",
    )
    .await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    // The next retry is due 20 s after the third.
    rig.until_calls("EnsureLoadBalancer", 3).await;
    rig.delete("services", "default", "s").await;
    assert_moments(&rig.moments("EnsureLoadBalancerDeleted", 2 * MINUTE).await, &[0, 60]);
    assert!(rig.service("s").await.is_none());
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_the_cloud_has_not_finished_is_looked_at_again_without_a_warning() {
    let (rig, manager) = balanced("").await;
    rig.cloud.write(
        "faults: [{call: EnsureLoadBalancerDeleted, times: 2, kind: InProgress, error: being deleted, retryAfter: 7s}]",
    );
    rig.delete("services", "default", "s").await;
    let moments = rig.moments("EnsureLoadBalancerDeleted", MINUTE).await;
    assert_moments(&moments, &[0, 7, 14]);
    assert!(rig.service("s").await.is_none());
    let events = rig.events("s").await;
    assert!(events.iter().all(|event| event.starts_with("Normal ")), "{events:?}");
    assert_eq!(manager.metric("ccm_sync_errors_total{controller=\"service-lb-controller\"}").unwrap_or_default(), 0.0);
}

#[tokio::test(start_paused = true)]
async fn a_slow_deletion_is_announced_once_and_its_end_is_never_lost() {
    for keep_the_finalizer in [true, false] {
        let (rig, _manager) = balanced("").await;
        rig.cloud.write(
            "faults: [{call: EnsureLoadBalancerDeleted, times: 40, kind: InProgress, error: being deleted, retryAfter: 1s}]",
        );
        if !keep_the_finalizer {
            rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
        }
        rig.delete("services", "default", "s").await;
        rig.until(MINUTE, "deleted", async |rig| {
            (rig.count_events("s", "DeletedLoadBalancer").await == 1).then_some(())
        })
        .await;
        assert_eq!(rig.count_events("s", "DeletingLoadBalancer").await, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_deletion_that_failed_many_times_is_not_lost() {
    let (rig, _manager) = balanced("").await;
    rig.cloud
        .write("faults: [{call: EnsureLoadBalancerDeleted, times: 60, kind: Retry, error: busy, retryAfter: 10s}]");
    rig.delete("services", "default", "s").await;
    rig.pass(11 * MINUTE).await;
    assert!(rig.service("s").await.is_none());
    assert_eq!(rig.count_events("s", "DeletedLoadBalancer").await, 1, "{:?}", rig.events("s").await);
}

#[tokio::test(start_paused = true)]
async fn an_ensure_and_a_host_update_that_are_not_finished_are_looked_at_again_without_a_warning() {
    let (rig, _manager) = unbalanced(
        "faults: [{call: EnsureLoadBalancer, times: 1, kind: InProgress, error: being made, retryAfter: 9s}, \
         {call: UpdateLoadBalancer, times: 1, kind: InProgress, error: being changed, retryAfter: 9s}]",
    )
    .await;
    assert_moments(&rig.moments("EnsureLoadBalancer", MINUTE).await, &[0, 9]);
    add_node(&rig, "m").await;
    assert_moments(&rig.moments("UpdateLoadBalancer", MINUTE).await, &[0, 9]);
    let events = rig.events("s").await;
    assert!(events.iter().all(|event| event.starts_with("Normal ")), "{events:?}");
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
async fn a_service_that_changed_its_type_and_went_before_its_clean_up_leaves_no_balancer() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: GetLoadBalancer, error: broken}]");
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    // Observed without the finalizer too.
    rig.until_calls("GetLoadBalancer", 3).await;
    rig.delete("services", "default", "s").await;
    rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancerDeleted").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_reports_no_deletion_that_it_does_not_make() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, "--dry-run"]).await;
    rig.until(MINUTE, "s is planned", async |_| manager.plan("service default/s")).await;
    rig.delete("services", "default", "s").await;
    rig.pass(10 * MINUTE).await;
    assert!(rig.cloud.calls("EnsureLoadBalancerDeleted").is_empty());
    assert!(rig.service("s").await.is_none());
    assert_eq!(rig.store().log().remote_writes(), []);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_becomes_internal_and_external_again_waits_for_nothing() {
    let (rig, _manager) = balanced("").await;
    for _ in 0..3 {
        rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
        rig.until_service("s", "has no address", |s| !has_address(s) && s.finalizers().is_empty()).await;
        let began = tokio::time::Instant::now();
        rig.patch_service("s", json!({"spec": {"type": "LoadBalancer"}})).await;
        rig.until_service("s", "has an address again", has_address).await;
        assert!(began.elapsed() <= Duration::from_secs(1), "{:?}", began.elapsed());
    }
}
