//! Routes that are reconciled when nodes change.

use super::*;

// Watch-based.

#[tokio::test(start_paused = true)]
async fn with_watches_only_ranges_and_addresses_ask_for_a_reconcile() {
    let rig = Rig::new(ON).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    add(&rig, "b", &[]).await;
    let _manager = start(&rig, &[WATCH]).await;
    until_network(&rig, "a", "False RouteCreated").await;
    rig.pass(MINUTE).await;
    let before = rig.cloud.calls("ListRoutes").len();
    rig.patch("nodes", "", "a", "status", json!({"status": {"images": [{"names": ["x"]}]}})).await;
    rig.patch_node("a", json!({"metadata": {"labels": {"x": "y"}}})).await;
    rig.set_ready("b", "Unknown").await;
    rig.pass(60 * MINUTE).await;
    assert_eq!(rig.cloud.calls("ListRoutes").len(), before, "no reconcile, also not periodically");

    rig.patch_node("b", json!({"spec": {"podCIDR": "10.8.2.0/24", "podCIDRs": ["10.8.2.0/24"]}})).await;
    until_network(&rig, "b", "False RouteCreated").await;
    rig.delete("nodes", "", "a").await;
    rig.until_calls("DeleteRoute", 1).await;
}

#[tokio::test(start_paused = true)]
async fn with_watches_fifty_nodes_in_a_second_are_at_most_two_reconciles_in_ten_seconds() {
    let rig = Rig::new(ON).await;
    let _manager = start(&rig, &[WATCH]).await;
    rig.pass(MINUTE).await;
    let before = rig.cloud.calls("ListRoutes").len();
    for i in 0..50 {
        add(&rig, &format!("n{i}"), &[&format!("10.8.{i}.0/24")]).await;
        rig.pass(Duration::from_millis(20)).await;
    }
    // And some more, one by one.
    for i in 50..58 {
        rig.pass(Duration::from_secs(1)).await;
        add(&rig, &format!("n{i}"), &[&format!("10.8.{i}.0/24")]).await;
    }
    rig.pass(Duration::from_secs(1)).await;
    let lists = rig.cloud.calls("ListRoutes").len() - before;
    assert!((1..=2).contains(&lists), "{lists}");
    rig.pass(MINUTE).await;
    assert_eq!(rig.cloud.calls("CreateRoute").len(), 58);
}

#[tokio::test(start_paused = true)]
async fn with_watches_a_failed_route_is_tried_again_without_any_event() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, error: quota, times: 3}}]")).await;
    add(&rig, "a", &["10.8.1.0/24"]).await;
    let _manager = start(&rig, &[WATCH]).await;
    let moments = rig.moments("CreateRoute", 10 * MINUTE).await;
    let gaps: Vec<u64> = moments.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(gaps.len(), 3, "{moments:?}");
    assert!(gaps.windows(2).all(|pair| pair[0] <= pair[1]) && gaps[0] >= 9, "{gaps:?}");
    until_network(&rig, "a", "False RouteCreated").await;
}

#[tokio::test(start_paused = true)]
async fn with_watches_failed_lists_deletions_and_conditions_are_tried_again() {
    for (fault, api) in [
        ("{call: ListRoutes, error: broken, times: 2}", false),
        ("{call: DeleteRoute, error: broken, times: 2}", false),
        ("{call: Master, error: unused}", true),
    ] {
        let initial = "routes: {initial: [{destinationCIDR: 10.8.9.0/24, blackhole: true}]}";
        let rig = Rig::new(&format!("{ON}{initial}\nfaults: [{fault}]")).await;
        if api {
            rig.faults().add(Fault::status(500).on(Match::on("patch", "nodes")).times(2));
        }
        add(&rig, "a", &["10.8.1.0/24"]).await;
        let _manager = start(&rig, &[WATCH]).await;
        rig.pass(5 * MINUTE).await;
        assert_eq!(network(&rig.node("a").await.unwrap()).as_deref(), Some("False RouteCreated"), "{fault}");
        let deleted = rig.cloud.ended("DeleteRoute").iter().filter(|line| line.get("error").is_none()).count();
        assert_eq!(deleted, 1, "{fault}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_watches_a_removed_route_is_created_again_at_the_next_resync() {
    for (args, within) in [(&[][..], PERIOD), (&[WATCH, "--min-resync-period=1h"], 121 * MINUTE)] {
        let rig = Rig::new(&format!("{ON}routes: {{initial: [{{destinationCIDR: 172.16.0.0/24}}]}}")).await;
        add(&rig, "a", &["10.8.1.0/24"]).await;
        let _manager = start(&rig, args).await;
        until_network(&rig, "a", "False RouteCreated").await;
        rig.pass(PERIOD).await;
        // Replaces the whole table.
        rig.cloud.write(&format!("{ON}routes: {{initial: [{{destinationCIDR: 172.16.9.0/24}}]}}"));
        assert_eq!(rig.cloud.calls("CreateRoute").len(), 1);
        rig.pass(within).await;
        assert_eq!(routes(&rig, "CreateRoute"), ["10.8.1.0/24>a", "10.8.1.0/24>a"], "{args:?}");
        assert_eq!(rig.writes().len(), 1, "nothing new to write to the node");
    }
}

#[tokio::test(start_paused = true)]
async fn with_watches_the_metric_says_what_triggered_a_reconcile_and_how_it_ended() {
    let rig = Rig::new(&format!("{ON}faults: [{{call: CreateRoute, error: quota, times: 1}}]")).await;
    let manager = start(&rig, &[WATCH]).await;
    let syncs = |outcome: &str| {
        let labels = format!("{{outcome=\"{outcome}\",trigger=\"node_change\"}}");
        manager.metric(&format!("route_controller_route_sync_total{labels}")).unwrap_or_default()
    };
    rig.pass(MINUTE).await;
    assert_eq!((syncs("noop"), syncs("changed"), syncs("error")), (1.0, 0.0, 0.0));
    add(&rig, "a", &["10.8.1.0/24"]).await;
    rig.pass(10 * MINUTE).await;
    assert_eq!((syncs("changed"), syncs("error")), (1.0, 1.0));
    assert!(!manager.metrics().contains("trigger=\"periodic\""));
}
