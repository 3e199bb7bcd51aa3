//! Creation and updates of load balancers, and the resulting writes.

use tokio::time::Instant;

use super::*;

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
    // No writes in the steady state.
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
async fn a_balancer_that_is_provided_elsewhere_is_left_alone_with_its_finalizer() {
    let (rig, _manager) = unbalanced("faults: [{call: EnsureLoadBalancer, kind: ImplementedElsewhere}]").await;
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
    // Twice after the requested delay; then the first counted failure, with the shortest delay.
    assert_moments(&moments, &[0, 42, 84, 89]);
    assert!(rig.events("s").await.contains(
        &"Warning SyncLoadBalancerFailed: Error syncing load balancer: failed to ensure load balancer: outer: quota".into()
    ));
    assert!(has_address(&rig.service("s").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn an_ensure_without_status_is_an_error_and_tried_again() {
    let (rig, _manager) = unbalanced("loadBalancers: {statuses: [{missing: true}]}").await;
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

/// Fails this many status patches after the finalizer.
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
async fn the_404_of_a_proxy_is_no_word_about_the_service() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    let page = |skip| {
        let on_status = Match::on("patch", "services").subresource("status");
        Fault { skip, ..Fault::new(Effect::HtmlPage { code: 404 }).on(on_status).times(1) }
    };
    rig.faults().add(page(1));
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    // Nor is the finalizer removed.
    rig.faults().clear();
    rig.faults().add(page(0));
    rig.delete("services", "default", "s").await;
    rig.until(MINUTE, "s is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
}

#[tokio::test(start_paused = true)]
async fn a_status_patch_that_meets_a_conflict_is_tried_again_without_another_ensure() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    rig.faults().add(on_status(409, 1));
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 0);
}

#[tokio::test(start_paused = true)]
async fn changes_that_cause_an_ensure_and_changes_that_do_not() {
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
async fn each_of_two_failing_services_has_its_own_back_off() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, service: '*/late', error: broken}, {call: EnsureLoadBalancer, service: '*/early', error: broken}]").await;
    add_node(&rig, "n").await;
    rig.create(service("early")).await;
    let _manager = rig.start(&[SERVICES]).await;
    // By now the back-off of the early Service is 40 s.
    rig.pass(MINUTE).await;
    rig.create(service("late")).await;
    rig.pass(Duration::from_secs(17)).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "late").len(), 3, "at 0, 5 and 15 s");
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "early").len(), 5, "at 0, 5, 15, 35 and 75 s");
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_events_is_cut_and_slows_nothing() {
    let (rig, _manager) = unbalanced("faults: [{call: EnsureLoadBalancer, error: broken}]").await;
    rig.pass(Duration::from_secs(1)).await;
    let events = Match::of("events");
    rig.faults().add(Fault::latency(Duration::from_secs(8)).on(events));
    for i in 0..30 {
        rig.patch_service("s", json!({"metadata": {"annotations": {"touched": i.to_string()}}})).await;
        rig.pass(Duration::from_secs(2)).await;
    }
    let calls = rig.cloud.calls("EnsureLoadBalancer").len();
    assert!(calls >= 31, "{calls}");
    rig.faults().clear();
    rig.pass(2 * MINUTE).await;
    let reported = rig.events("s").await.len();
    // An event is still counted while its requests fail; the next successful one contains the count.
    let requests = rig.store().log().count_of("create", "events") + rig.store().log().count_of("patch", "events");
    // 25 of each type, and one of them later.
    assert!(requests <= 51, "{requests} requests for events, {reported} emitted");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_of_a_service_writes_nothing_and_reports_the_plan() {
    let rig = Rig::new("").await;
    add_node(&rig, "n").await;
    let before = rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, "--dry-run"]).await;
    let plan = rig.until(MINUTE, "s is planned", async |_| manager.plan("service default/s")).await;
    assert!(plan.contains(FINALIZER) && plan.contains("create LoadBalancer"), "{plan}");
    rig.pass(30 * MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap(), before);
    assert!(rig.cloud.calls("EnsureLoadBalancer").is_empty());
    assert_eq!(rig.store().log().remote_writes(), []);
}

#[tokio::test(start_paused = true)]
async fn each_way_in_which_the_api_server_fails_ends_with_one_balancer_and_the_right_status() {
    let effects = [
        Effect::Status { code: 429, reason: None, message: None, retry_after: Some(3) },
        Effect::Status { code: 503, reason: None, message: None, retry_after: None },
        Effect::HtmlPage { code: 502 },
        Effect::HtmlPage { code: 404 },
        Effect::LoseRequest,
        Effect::LoseAnswer,
        Effect::FailAfterEffect { code: 504 },
    ];
    for effect in effects {
        let rig = Rig::new("").await;
        add_node(&rig, "n").await;
        let manager = rig.start(&[SERVICES]).await;
        rig.pass(Duration::from_secs(1)).await;
        rig.faults().add(Fault::new(effect.clone()).on(Match::of("services")));
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
async fn the_address_of_an_old_service_is_not_written_to_a_new_one_of_its_name() {
    let rig = Rig::new("faults: [{call: EnsureLoadBalancer, hold: gate}]").await;
    let release = rig.cloud.hold("gate");
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.faults().freeze_watches(Some("services"));
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.delete("services", "default", "s").await;
    rig.create(service("s").with(|s| s["spec"]["loadBalancerClass"] = json!("example.com/theirs"))).await;
    release();
    rig.pass(MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), [""; 0]);
    assert_eq!(rig.writes().last().unwrap().status, 422);
}

#[tokio::test(start_paused = true)]
async fn an_invalid_error_of_the_cloud_is_retried_from_five_seconds_on() {
    let rig =
        Rig::new("faults: [{call: EnsureLoadBalancer, kind: Invalid, error: no such certificate, times: 3}]").await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let _manager = rig.start(&[SERVICES]).await;
    assert_moments(&rig.moments("EnsureLoadBalancer", 2 * MINUTE).await, &[0, 5, 15, 35]);
    assert_eq!(rig.count_events("s", "SyncLoadBalancerFailed").await, 3);
    assert!(has_address(&rig.service("s").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_wiped_or_changed_is_restored_without_a_call_to_the_cloud() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    let calls = rig.cloud.log().len();
    for ingress in [json!(null), json!([]), json!([{"ip": "192.0.2.66"}]), json!([{"hostname": "elsewhere.example"}])] {
        rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": {"ingress": ingress}}}))
            .await;
        let wiped = Instant::now();
        rig.until_service("s", "has its address again", |s| s.ingress() == ["203.0.113.1"]).await;
        assert!(wiped.elapsed() <= Duration::from_secs(5), "{:?}", wiped.elapsed());
        rig.pass(2 * MINUTE).await;
    }
    assert_eq!(rig.cloud.log().len(), calls);
    // Two clients that disagree are no storm.
    let writes = rig.writes().len();
    for number in 0..200 {
        let ingress = json!([{"ip": format!("192.0.2.{number}")}]);
        rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": {"ingress": ingress}}}))
            .await;
        rig.pass(Duration::from_millis(100)).await;
    }
    assert!(rig.writes().len() - writes <= 5, "{}", rig.writes().len() - writes);
    assert_eq!(rig.cloud.log().len(), calls);
}

#[tokio::test(start_paused = true)]
async fn three_changes_within_a_minute_are_each_undone_within_five_seconds() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    let finalizers = rig.service("s").await.unwrap()["metadata"]["finalizers"].clone();
    for (part, change) in [
        ("status", json!({"status": {"loadBalancer": null}})),
        ("status", json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}}})),
        ("", json!({"metadata": {"finalizers": null}})),
    ] {
        rig.patch("services", "default", "s", part, change.clone()).await;
        let changed = Instant::now();
        let is_undone = |s: &Object| s.ingress() == ["203.0.113.1"] && s["metadata"]["finalizers"] == finalizers;
        rig.until_service("s", "is as before", is_undone).await;
        assert!(changed.elapsed() <= Duration::from_secs(5), "{change}: {:?}", changed.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_status_that_another_client_changes_again_and_again_is_restored_ever_later_with_one_event() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    let writes = bodies(&rig, "s").len();
    for _ in 0..600 {
        let ingress = json!([{"ip": "192.0.2.7"}]);
        rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": {"ingress": ingress}}}))
            .await;
        rig.pass(Duration::from_secs(1)).await;
    }
    let writes = bodies(&rig, "s").len() - writes;
    assert!((8..12).contains(&writes), "{writes}");
    let events = rig.events("s").await;
    let contested: Vec<_> = events.iter().filter(|event| event.contains("LoadBalancerStatusContested")).collect();
    assert!(
        matches!(&contested[..], [one] if one.contains("[192.0.2.7]") && one.contains("[203.0.113.1]")),
        "{contested:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_during_a_call_is_restored_before_it_ends() {
    for call in ["EnsureLoadBalancer", "UpdateLoadBalancer"] {
        let (rig, _manager) = balanced("").await;
        rig.pass(MINUTE).await;
        rig.cloud.write(&format!("faults: [{{call: {call}, hold: gate}}]"));
        let release = rig.cloud.hold("gate");
        match call {
            "EnsureLoadBalancer" => {
                rig.patch_service("s", json!({"spec": {"loadBalancerSourceRanges": ["10.0.0.0/8"]}})).await;
            }
            _ => add_node(&rig, "m").await,
        }
        let begun = usize::from(call == "EnsureLoadBalancer") + 1;
        rig.until_calls(call, begun).await;
        rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": null}})).await;
        let wiped = Instant::now();
        rig.until_service("s", "has its address again", has_address).await;
        assert!(wiped.elapsed() <= Duration::from_secs(5), "{call}: {:?}", wiped.elapsed());
        rig.pass(Duration::from_secs(10)).await;
        let calls = rig.cloud.log().len();
        release();
        rig.pass(MINUTE).await;
        assert!(has_address(&rig.service("s").await.unwrap()), "{call}");
        let after = rig.cloud.log();
        let more = after[calls..].iter().filter(|entry| entry["event"] == "begin").count();
        assert_eq!(more, 0, "{call}: {:?}", &after[calls..]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restored_status_is_not_written_after_the_new_one_of_a_call() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    rig.cloud.write(
        "loadBalancers: {statuses: [{service: default/s, ingress: [{ip: 203.0.113.50}]}]}\n\
         faults: [{call: EnsureLoadBalancer, hold: gate}]",
    );
    let release = rig.cloud.hold("gate");
    rig.patch_service("s", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    let writes = bodies(&rig, "s").len();
    // The restoration is on its way when the call ends.
    rig.faults().add(Fault::latency(Duration::from_secs(8)).on(Match::on("patch", "services")).times(1));
    rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": null}})).await;
    rig.pass(Duration::from_secs(4)).await;
    release();
    rig.pass(MINUTE).await;
    let written: Vec<String> = bodies(&rig, "s").split_off(writes).into_iter().map(|(_, body)| body).collect();
    let is_of = |body: &String, address: &str| body.contains(&format!("\"{address}\""));
    assert!(
        matches!(&written[..], [old, new] if is_of(old, "203.0.113.1") && is_of(new, "203.0.113.50")),
        "{written:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_during_a_clean_up_stays_empty() {
    let (rig, _manager) = balanced("faults: [{call: EnsureLoadBalancerDeleted, hold: gate}]").await;
    rig.pass(MINUTE).await;
    let release = rig.cloud.hold("gate");
    rig.patch_service("s", json!({"spec": {"type": "ClusterIP"}})).await;
    rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    let writes = rig.writes().len();
    rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": null}})).await;
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.writes().len(), writes);
    release();
    rig.pass(MINUTE).await;
    assert!(!has_address(&rig.service("s").await.unwrap()));
    assert_eq!(
        (rig.cloud.calls("EnsureLoadBalancerDeleted").len(), rig.count_events("s", "DeletedLoadBalancer").await),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_status_that_is_wiped_while_the_cloud_refuses_the_service_is_restored_too() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, kind: Invalid, error: no such certificate}]");
    rig.patch_service("s", json!({"metadata": {"annotations": {"certificate": "none"}}})).await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    // The next attempt is minutes away.
    rig.pass(20 * MINUTE).await;
    rig.patch("services", "default", "s", "status", json!({"status": {"loadBalancer": null}})).await;
    let wiped = Instant::now();
    rig.until_service("s", "has its address again", |s| s.ingress() == ["203.0.113.1"]).await;
    assert!(wiped.elapsed() <= Duration::from_secs(5), "{:?}", wiped.elapsed());
    let writes = rig.writes().len();
    rig.pass(20 * MINUTE).await;
    assert_eq!(rig.writes().len(), writes, "nothing is written again");
}

#[tokio::test(start_paused = true)]
async fn a_status_of_another_controller_that_took_the_balancer_over_is_left_alone() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, kind: ImplementedElsewhere}]");
    rig.patch_service("s", json!({"metadata": {"annotations": {"a": "b"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.pass(MINUTE).await;
    let theirs = json!({"status": {"loadBalancer": {"ingress": [{"ip": "192.0.2.66"}]}}});
    rig.patch("services", "default", "s", "status", theirs).await;
    rig.pass(MINUTE).await;
    assert_eq!(rig.service("s").await.unwrap().ingress(), ["192.0.2.66"]);
}

#[tokio::test(start_paused = true)]
async fn a_finalizer_that_another_client_stripped_is_put_back_without_a_call_to_the_cloud() {
    let (rig, _manager) = balanced("").await;
    rig.pass(MINUTE).await;
    let calls = rig.cloud.log().len();
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    let stripped = Instant::now();
    rig.until_service("s", "has its finalizer again", |s| s.finalizers() == [FINALIZER]).await;
    assert!(stripped.elapsed() <= Duration::from_secs(5), "{:?}", stripped.elapsed());
    assert_eq!(rig.cloud.log().len(), calls);
    // With its last finalizer the object goes.
    rig.delete_service("s").await;
}
