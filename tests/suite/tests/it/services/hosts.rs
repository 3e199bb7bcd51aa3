//! Nodes of load balancers.

use ccm_test_suite::Make;

use super::*;

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
    // The pass that the new nodes caused.
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
    // At the end the slow Service has the newest list.
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
    // When the instance is known to be deleted, the host is removed too.
    rig.cloud.write("unlisted: missing");
    rig.until_calls("UpdateLoadBalancer", 1).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), [""]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_keeps_the_hosts_that_failed_updates_were_to_take_away() {
    let instances = "unlisted: missing\ninstances: [{name: n}, {name: m}]";
    let broken = "faults: [{call: UpdateLoadBalancer, error: broken}, {call: EnsureLoadBalancer, error: broken}]";
    let (rig, _manager) = balanced(instances).await;
    add_node(&rig, "m").await;
    rig.until_event("s", "UpdatedLoadBalancer").await;
    rig.cloud.write(&format!("{instances}\n{broken}"));
    rig.delete("nodes", "", "n").await;
    rig.until_event("s", "SyncLoadBalancerFailed").await;
    // The instance of m is deleted. The instance of n, which is still a host, is not.
    rig.cloud.write(&format!("unlisted: missing\ninstances: [{{name: n}}]\n{broken}"));
    rig.delete("nodes", "", "m").await;
    rig.until_event("s", "LoadBalancerHostsKept").await;
    rig.pass(10 * MINUTE).await;
    rig.cloud.write("unlisted: missing\ninstances: [{name: n}]");
    rig.pass(10 * MINUTE).await;
    assert!(!hosts(&rig, "UpdateLoadBalancer", "s").contains(&String::new()));
    let ensured = hosts(&rig, "EnsureLoadBalancer", "s");
    assert!(!ensured.contains(&String::new()), "{ensured:?}");
    assert!(ensured.last().unwrap().split(' ').any(|host| host == "n"), "{ensured:?}");
}

/// The guard looks up the hosts as of its start.
#[tokio::test(start_paused = true)]
async fn hosts_that_an_update_adds_while_the_guard_waits_for_the_cloud_are_looked_up_too() {
    let of_m = "unlisted: missing\ninstances: [{name: m}]";
    let (rig, _manager) = balanced("unlisted: missing\ninstances: [{name: n}, {name: m}]").await;
    let (end_ensure, end_lookup) = (rig.cloud.hold("ensure"), rig.cloud.hold("lookup"));
    rig.cloud.write(&format!(
        "{of_m}\nfaults: [{{call: EnsureLoadBalancer, hold: ensure}}, {{call: [InstanceExists, Lookup], hold: lookup}}]"
    ));
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    add_node(&rig, "m").await;
    rig.pass(MINUTE).await;
    rig.delete("nodes", "", "n").await;
    rig.delete("nodes", "", "m").await;
    rig.pass(Duration::from_secs(5)).await;
    end_ensure();
    rig.until_calls("UpdateLoadBalancer", 1).await;
    end_lookup();
    rig.until_event("s", "LoadBalancerHostsKept").await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n"]);
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

/// A balanced Service whose manager is stopped, beside a node that is no host.
async fn stopped_beside(other: Make) -> Rig {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    rig.create(other).await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES]).await;
    rig.until_service("s", "has an address", has_address).await;
    manager.stop().await.unwrap();
    rig
}

#[tokio::test(start_paused = true)]
async fn a_restart_beside_a_node_that_is_no_host_does_not_empty_the_balancers() {
    let autoscaled = |node: Make| {
        node.with(|node| {
            node["spec"]["taints"] = json!([{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]);
        })
    };
    for (text, other) in [
        ("excluded", node("cp").provider_id("fake://cp").label(EXCLUDE, "")),
        ("excluded, without provider ID", node("cp").label(EXCLUDE, "")),
        ("about to be removed", autoscaled(node("old").provider_id("fake://old"))),
    ] {
        let rig = stopped_beside(other).await;
        rig.delete("nodes", "", "n").await;
        let _manager = rig.start(&[SERVICES]).await;
        rig.until_event("s", "LoadBalancerHostsKept").await;
        rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
        let looks = rig.cloud.calls("GetLoadBalancer").len();
        rig.pass(9 * MINUTE).await;
        assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"], "{text}");
        assert!(rig.cloud.calls("UpdateLoadBalancer").is_empty(), "{text}");
        let looks = rig.cloud.calls("GetLoadBalancer").len() - looks;
        assert!(looks <= 4, "{text}: {looks} looks at a balancer whose hosts do not change");
        // A host that appears ends the wait at once.
        add_node(&rig, "m").await;
        rig.until(Duration::from_secs(5), "ensured again", async |rig| {
            (hosts(rig, "EnsureLoadBalancer", "s") == ["n", "m"]).then_some(())
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_leader_does_not_empty_the_balancers_either() {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    rig.create(node("cp").provider_id("fake://cp").label(EXCLUDE, "")).await;
    rig.create(service("s")).await;
    let first = rig.start(&[SERVICES, "--leader-elect=true"]).await;
    let _second = rig.start(&[SERVICES, "--leader-elect=true"]).await;
    rig.until_service("s", "has an address", has_address).await;
    first.kill();
    rig.delete("nodes", "", "n").await;
    rig.until(2 * MINUTE, "hosts are kept", async |rig| {
        (rig.count_events("s", "LoadBalancerHostsKept").await > 0).then_some(())
    })
    .await;
    rig.pass(10 * MINUTE).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_empties_a_balancer_whose_hosts_are_nodes_that_were_excluded_meanwhile() {
    let rig = stopped_beside(node("cp").provider_id("fake://cp").label(EXCLUDE, "")).await;
    rig.patch_node("n", json!({"metadata": {"labels": {(EXCLUDE): ""}}})).await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", ""]);
    assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
}

#[tokio::test(start_paused = true)]
async fn after_a_restart_a_balancer_whose_hosts_cannot_be_read_keeps_them() {
    let rig = stopped_beside(node("cp").provider_id("fake://cp").label(EXCLUDE, "")).await;
    rig.delete("nodes", "", "n").await;
    let broken = "stateFile: state.json\nfaults: [{call: GetLoadBalancer, error: broken}]";
    rig.cloud.write(broken);
    let _manager = rig.start(&[SERVICES]).await;
    let event = rig.until_event("s", "LoadBalancerHostsKept").await;
    assert!(event.contains("the current hosts are unknown: broken"), "{event}");
    rig.pass(10 * MINUTE).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"]);
    // Nor does a cloud that does not show the balancer of the address prove anything.
    rig.cloud.write(&broken.replace("error: broken", "result: {exists: false}"));
    rig.pass(10 * MINUTE).await;
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n"]);
}

#[tokio::test(start_paused = true)]
async fn a_restart_in_the_middle_of_a_creation_makes_the_balancer_also_without_hosts() {
    for nodes in [vec![node("cp").provider_id("fake://cp").label(EXCLUDE, "")], vec![]] {
        let rig = Rig::new("").await;
        for node in nodes {
            rig.create(node).await;
        }
        rig.create(service("s").finalizer(FINALIZER)).await;
        let _manager = rig.start(&[SERVICES]).await;
        rig.until_service("s", "has an address", has_address).await;
        assert_eq!(rig.count_events("s", "LoadBalancerHostsKept").await, 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_restart_before_the_address_was_written_does_not_empty_the_balancer() {
    let rig = Rig::new("stateFile: state.json").await;
    add_node(&rig, "n").await;
    rig.create(service("s").finalizer(FINALIZER)).await;
    rig.faults().add(Fault::new(Effect::LoseRequest).on(Match::on("patch", "services")));
    let manager = rig.start(&[SERVICES]).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    manager.stop().await.unwrap();
    assert!(!has_address(&rig.service("s").await.unwrap()));
    rig.delete("nodes", "", "n").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_event("s", "LoadBalancerHostsKept").await;
    rig.pass(10 * MINUTE).await;
    assert!(!hosts(&rig, "EnsureLoadBalancer", "s").contains(&String::new()));
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
async fn a_delay_that_a_host_update_asks_for_is_honored() {
    let fault = "faults: [{call: UpdateLoadBalancer, kind: Retry, error: busy, retryAfter: 42s, times: 1}]";
    let (rig, _manager) = balanced(fault).await;
    add_node(&rig, "m").await;
    rig.until_event("s", "UpdateLoadBalancerFailed").await;
    assert_moments(&rig.moments("EnsureLoadBalancer", 10 * MINUTE).await, &[42]);
    assert_eq!(hosts(&rig, "EnsureLoadBalancer", "s"), ["n", "m n"]);
}

#[tokio::test(start_paused = true)]
async fn a_balancer_whose_finalizer_cannot_be_written_follows_its_nodes_after_a_restart() {
    let (rig, manager) = balanced("").await;
    manager.stop().await.unwrap();
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.faults().add(Fault::status(403).on(Match::on("patch", "services")));
    add_node(&rig, "m").await;
    let _manager = rig.start(&[SERVICES]).await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    rig.pass(MINUTE).await;
    add_node(&rig, "o").await;
    rig.until_calls("UpdateLoadBalancer", 2).await;
    rig.pass(MINUTE).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n", "m n o"]);
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1, "nothing is created without the finalizer");
}

#[tokio::test(start_paused = true)]
async fn a_failed_host_update_of_a_balancer_whose_finalizer_cannot_be_written_is_tried_again() {
    let (rig, _manager) = balanced("").await;
    rig.faults().add(Fault::status(403).on(Match::on("patch", "services")));
    rig.patch_service("s", json!({"metadata": {"finalizers": null}})).await;
    rig.pass(MINUTE).await;
    rig.cloud.write("faults: [{call: UpdateLoadBalancer, times: 2, kind: Throttled}]");
    add_node(&rig, "m").await;
    rig.pass(5 * MINUTE).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n", "m n", "m n"]);
    add_node(&rig, "o").await;
    rig.until_calls("UpdateLoadBalancer", 4).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
}
