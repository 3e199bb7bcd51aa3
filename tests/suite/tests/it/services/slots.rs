//! Services that wait for a slot, host updates beside them, and calls that hang.

use super::*;

const ONE: &str = "--concurrent-service-syncs=1";

/// The Service `a` is ensured for a minute, in the only slot, while `b` waits for it.
async fn b_waits_for_a() -> (Rig, Running) {
    let rig =
        Rig::new("loadBalancers: {ports: true}\nfaults: [{call: EnsureLoadBalancer, service: '*/a', delay: 15s}]")
            .await;
    add_node(&rig, "n").await;
    let manager = rig.start(&[SERVICES, ONE]).await;
    rig.create(service("a")).await;
    rig.until_calls("EnsureLoadBalancer", 1).await;
    rig.create(service("b")).await;
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1, "b waits for a slot");
    (rig, manager)
}

/// A manager with one slot, a node `n`, and a Service `s` with its load balancer.
async fn with_one_slot(faults: &str) -> (Rig, Running) {
    let rig = Rig::new(&format!("faults: {faults}")).await;
    add_node(&rig, "n").await;
    rig.create(service("s")).await;
    let manager = rig.start(&[SERVICES, ONE]).await;
    rig.until_service("s", "has an address", has_address).await;
    (rig, manager)
}

#[tokio::test(start_paused = true)]
async fn hosts_follow_the_nodes_while_other_services_wait_for_a_slot() {
    let (rig, _manager) = with_one_slot("[{call: EnsureLoadBalancer, service: '*/new-*', delay: 15s}]").await;
    for number in 0..10 {
        rig.create(service(&format!("new-{number}"))).await;
    }
    rig.until_calls("EnsureLoadBalancer", 2).await;
    add_node(&rig, "m").await;
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n"]);
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 2, "the others wait");
}

#[tokio::test(start_paused = true)]
async fn no_more_host_updates_than_allowed_are_made_at_once() {
    let (rig, _manager) = with_one_slot("[{call: UpdateLoadBalancer, delay: 15s}]").await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
    add_node(&rig, "m").await;
    rig.until_calls("UpdateLoadBalancer", 1).await;
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.cloud.calls("UpdateLoadBalancer").len(), 1);
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.cloud.calls("UpdateLoadBalancer").len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_restoration_of_a_status_that_hangs_keeps_no_host_update_from_its_slot() {
    let (rig, _manager) = with_one_slot("[]").await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
    rig.faults().add(Fault::latency(Duration::from_secs(25)).on(Match::on("patch", "services").named("t")));
    rig.patch("services", "default", "t", "status", json!({"status": {"loadBalancer": null}})).await;
    // It begins after two seconds.
    rig.pass(Duration::from_secs(3)).await;
    add_node(&rig, "m").await;
    rig.pass(Duration::from_secs(5)).await;
    assert_eq!(hosts(&rig, "UpdateLoadBalancer", "s"), ["m n"]);
}

#[tokio::test(start_paused = true)]
async fn a_service_that_changes_while_it_waits_for_a_slot_is_ensured_as_it_is_then() {
    let (rig, _manager) = b_waits_for_a().await;
    rig.patch_service("b", json!({"spec": {"ports": [{"name": "tls", "port": 443, "protocol": "TCP"}]}})).await;
    rig.until_service("b", "has an address", has_address).await;
    let of_b = |call: &Value| call["args"]["service"] == "default/b";
    let first = rig.cloud.ended("EnsureLoadBalancer").into_iter().find(of_b).unwrap();
    assert_eq!(first["result"]["ingress"][0]["ports"][0]["port"], 443, "{first}");
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_while_it_waits_for_a_slot_gets_neither_finalizer_nor_balancer() {
    for own_finalizer in [false, true] {
        let (rig, _manager) = b_waits_for_a().await;
        if own_finalizer {
            rig.patch_service("b", json!({"metadata": {"finalizers": ["example.com/other"]}})).await;
        }
        rig.delete("services", "default", "b").await;
        rig.pass(2 * MINUTE).await;
        assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1);
        assert!(rig.writes_of("services", "b").is_empty(), "{:?}", rig.writes_of("services", "b"));
        assert_eq!(rig.events("b").await, [""; 0]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_deleted_while_its_nodes_are_looked_up_is_not_ensured() {
    // The guard looks up the node of s. Meanwhile the user changes the Service.
    let (rig, _manager) = balanced("").await;
    let release = rig.cloud.hold("gate");
    rig.cloud.write("faults: [{call: [InstanceExists, Lookup], hold: gate}]");
    rig.delete("nodes", "", "n").await;
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.pass(Duration::from_secs(5)).await;
    rig.delete("services", "default", "s").await;
    rig.pass(Duration::from_secs(5)).await;
    release();
    rig.until(MINUTE, "s is gone", async |rig| rig.service("s").await.is_none().then_some(())).await;
    assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), 1, "it was not ensured after its deletion");
}

#[tokio::test(start_paused = true)]
async fn calls_that_hang_keep_no_other_service_from_its_balancer() {
    for (hanging, args) in [(16, &[SERVICES][..]), (1, &[SERVICES, ONE]), (3, &[SERVICES, ONE])] {
        let rig = Rig::new("faults: [{call: EnsureLoadBalancer, service: '*/hangs-*', hold: gate}]").await;
        let _release = rig.cloud.hold("gate");
        add_node(&rig, "n").await;
        let _manager = rig.start(args).await;
        for number in 0..hanging {
            rig.create(service(&format!("hangs-{number}"))).await;
        }
        rig.pass(Duration::from_secs(1)).await;
        rig.create(service("works")).await;
        rig.until(MINUTE + Duration::from_secs(10), "works is ensured", async |rig| {
            rig.service("works").await.filter(has_address)
        })
        .await;
        // The hanging calls are not made again.
        assert_eq!(rig.cloud.calls("EnsureLoadBalancer").len(), hanging + 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_deletion_that_hangs_keeps_no_other_service_from_its_balancer() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancerDeleted, hold: gate}]");
    let _release = rig.cloud.hold("gate");
    rig.delete("services", "default", "s").await;
    rig.until_calls("EnsureLoadBalancerDeleted", 1).await;
    rig.create(service("t")).await;
    rig.until_service("t", "has an address", has_address).await;
}

#[tokio::test(start_paused = true)]
async fn nothing_follows_a_dropped_write_before_it_has_settled() {
    let (rig, _manager) = balanced("").await;
    rig.cloud.write("faults: [{call: EnsureLoadBalancer, hold: gate, times: 1}]");
    let _release = rig.cloud.hold("gate");
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "1"}}})).await;
    rig.until_calls("EnsureLoadBalancer", 2).await;
    rig.lap();
    // A change queues the Service at once.
    rig.patch_service("s", json!({"metadata": {"annotations": {"touched": "2"}}})).await;
    rig.until(20 * MINUTE, "ensured again", async |rig| {
        (rig.cloud.calls("EnsureLoadBalancer").len() == 3).then_some(())
    })
    .await;
    let took = rig.lap();
    assert!(took >= Duration::from_secs(600 + 5) && took < Duration::from_secs(600 + 7), "{took:?}");
}
