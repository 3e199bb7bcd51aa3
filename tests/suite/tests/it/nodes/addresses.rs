//! Addresses of nodes.

use super::*;

const INITIALIZED: &str = "node_controller_cloud_provider_taint_removal_delay_seconds_count";

#[tokio::test(start_paused = true)]
async fn a_provided_ip_that_the_cloud_lacks_keeps_the_taint_until_it_has_it() {
    for provided in ["10.0.0.2", ""] {
        let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
        rig.create(node("a").uninitialized().provided_ip(provided)).await;
        let _manager = rig.start(&[NODES]).await;
        rig.until_calls("InstanceMetadata", 4).await;
        let node = rig.node("a").await.unwrap();
        assert!(node.is_uninitialized() && node.addresses().is_empty(), "{provided:?}");
        let event = rig.until_event("a", "FailedToInitializeNode").await;
        assert!(event.contains("provided node ip for node \"a\" is not valid"), "{event}");
        assert_eq!(rig.writes(), []);

        rig.patch_node("a", json!({"metadata": {"annotations": {"alpha.kubernetes.io/provided-node-ip": "10.0.0.1"}}}))
            .await;
        let done = rig.until_node("a", "has addresses", |node| !node.addresses().is_empty()).await;
        assert_eq!(done.addresses(), ["InternalIP=10.0.0.1"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_provided_ip_comes_first_and_the_host_name_of_the_kubelet_last() {
    let rig = Rig::new(
        "instances: [{name: a, addresses: [{type: ExternalIP, address: 1.2.3.4}, {type: InternalIP, address: 10.0.0.9}, \
         {type: InternalIP, address: 10.0.0.1}]}]",
    )
    .await;
    rig.create(node("a").uninitialized().provided_ip("10.0.0.1").address("Hostname", "h")).await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "has addresses", |node| node.addresses().len() > 1).await;
    assert_eq!(done.addresses(), ["InternalIP=10.0.0.1", "ExternalIP=1.2.3.4", "Hostname=h"]);
}

#[tokio::test(start_paused = true)]
async fn an_empty_address_list_keeps_the_addresses_and_still_removes_the_taint() {
    let rig = Rig::new("instances: [{name: a}]").await;
    rig.create(node("a").uninitialized().address("InternalIP", "10.0.0.1").address("Hostname", "h")).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_event("a", "Synced").await;
    rig.pass(15 * MINUTE).await;
    let done = rig.node("a").await.unwrap();
    assert!(initialized(&done));
    assert_eq!(done.addresses(), ["InternalIP=10.0.0.1", "Hostname=h"]);
    assert_eq!(rig.writes().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dual_stack_node_at_rest_gets_no_patch_and_one_look_per_period() {
    let rig = Rig::new(
        "instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}, {type: InternalIP, address: 'fd00::1'}]}]",
    )
    .await;
    rig.create(
        node("a")
            .provider_id("fake://a")
            .address("InternalIP", "10.0.0.1")
            .address("InternalIP", "fd00::1")
            .address("Hostname", "a"),
    )
    .await;
    let _manager = rig.start(&[]).await;
    rig.pass(61 * MINUTE).await;
    assert_eq!(rig.writes(), []);
    // At the start and then every five minutes.
    let looks = rig.cloud.calls_for("InstanceMetadata", "a");
    assert!((12..=13).contains(&looks), "{looks}");
}

#[tokio::test(start_paused = true)]
async fn two_addresses_of_one_type_become_one() {
    let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.2}]}]").await;
    rig.create(node("a").provider_id("fake://a").address("InternalIP", "10.0.0.1").address("InternalIP", "10.0.0.2"))
        .await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "one address", |node| node.addresses().len() == 1).await;
    assert_eq!(done.addresses(), ["InternalIP=10.0.0.2"]);
    let body = format!(
        r#"{{"metadata":{{"uid":"{}"}},"status":{{"addresses":[{{"address":"10.0.0.2","type":"InternalIP"}},{{"$patch":"replace"}}]}}}}"#,
        done.uid()
    );
    assert_eq!(sent(&rig.writes()[0]), ("status", STRATEGIC, body));
}

#[tokio::test(start_paused = true)]
async fn a_changed_address_is_written_within_one_period() {
    let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES, "--node-status-update-frequency=1m"]).await;
    rig.until_node("a", "10.0.0.1", |node| node.addresses() == ["InternalIP=10.0.0.1"]).await;
    rig.cloud.write("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.2}]}]");
    rig.pass(MINUTE + Duration::from_secs(2)).await;
    assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.2"]);
}

#[tokio::test(start_paused = true)]
async fn addresses_of_an_old_instance_are_not_written_to_a_new_node_of_its_name() {
    let rig = Rig::new(
        "instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]\n\
         faults: [{call: InstanceMetadata, hold: gate, times: 2}]",
    )
    .await;
    let made = || node("a").provider_id("fake://a").address("InternalIP", "10.0.0.9");
    for seen_by_the_manager in [false, true] {
        rig.create(made()).await;
        let release = rig.cloud.hold("gate");
        let looks = rig.cloud.calls("InstanceMetadata").len();
        let manager = rig.start(&[NODES]).await;
        rig.until_calls("InstanceMetadata", looks + 1).await;
        if !seen_by_the_manager {
            rig.faults().freeze_watches(Some("nodes"));
        }
        rig.delete("nodes", "", "a").await;
        rig.create(made()).await;
        rig.pass(Duration::from_secs(1)).await;
        rig.store().log().clear();
        release();
        rig.pass(MINUTE).await;
        assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.9"]);
        let writes = rig.writes();
        assert_eq!(
            writes.iter().map(|write| write.status).collect::<Vec<_>>(),
            if seen_by_the_manager { vec![] } else { vec![422] }
        );
        rig.faults().thaw_watches(Some("nodes"));
        manager.stop().await.unwrap();
        rig.delete("nodes", "", "a").await;
    }
}

#[tokio::test(start_paused = true)]
async fn failed_addresses_at_initialization_are_retried_with_back_off() {
    let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
    rig.faults().add(Fault::status(500).on(Match::on("patch", "nodes").subresource("status")).times(8));
    rig.create(node("a").uninitialized()).await;
    let manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!(done.addresses(), [""; 0]);
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(rig.node("a").await.unwrap().addresses(), ["InternalIP=10.0.0.1"]);
    assert_eq!(rig.count_events("a", "Synced").await, 1);
    assert_eq!(manager.metric(INITIALIZED), Some(1.0));
    assert_eq!(manager.failing(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_initialization_got_no_answer_gets_its_addresses_at_once() {
    for effect in [Effect::FailAfterEffect { code: 500 }, Effect::LoseAnswer] {
        let rig = Rig::new("instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]").await;
        rig.faults().add(Fault::new(effect.clone()).on(Match::on("patch", "nodes")).times(1));
        rig.create(node("a").uninitialized()).await;
        let manager = rig.start(&[NODES]).await;
        rig.pass(Duration::from_secs(5)).await;
        let done = rig.node("a").await.unwrap();
        assert!(initialized(&done), "{effect:?}");
        assert_eq!(done.addresses(), ["InternalIP=10.0.0.1"], "{effect:?}");
        assert_eq!(rig.count_events("a", "Synced").await, 1, "{effect:?}");
        assert_eq!(manager.metric(INITIALIZED), Some(1.0), "{effect:?}");
        assert_eq!(rig.cloud.calls("InstanceMetadata").len(), 2, "{effect:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_whose_addresses_cannot_be_looked_up_is_a_failure_until_they_can() {
    let rig =
        Rig::new("instances: [{name: a}, {name: b}]\nfaults: [{call: InstanceMetadata, node: a, error: no answer}]")
            .await;
    for name in ["a", "b"] {
        rig.create(node(name).provider_id(&format!("fake://{name}"))).await;
    }
    let manager = rig.start(&[NODES]).await;
    rig.pass(6 * MINUTE).await;
    assert_eq!(manager.failing(), ["node a"]);
    rig.cloud.write("instances: [{name: a}, {name: b}]");
    rig.pass(6 * MINUTE).await;
    assert_eq!(manager.failing(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_is_no_failure_any_more() {
    let rig = Rig::new("faults: [{call: InstanceMetadata, node: a, error: no answer}]").await;
    rig.create(node("a").provider_id("fake://a")).await;
    let manager = rig.start(&[NODES]).await;
    rig.pass(MINUTE).await;
    assert_eq!(manager.failing(), ["node a"]);
    rig.delete("nodes", "", "a").await;
    rig.pass(MINUTE).await;
    assert_eq!(manager.failing(), [""; 0]);
    // It is deleted while its addresses are looked up.
    rig.cloud.write("faults: [{call: InstanceMetadata, node: a, error: no answer, hold: gate}]");
    let release = rig.cloud.hold("gate");
    let calls = rig.cloud.calls("InstanceMetadata").len();
    rig.create(node("a").provider_id("fake://a")).await;
    rig.until(10 * MINUTE, "a is looked up", async |rig| {
        (rig.cloud.calls("InstanceMetadata").len() > calls).then_some(())
    })
    .await;
    rig.delete("nodes", "", "a").await;
    rig.pass(Duration::from_secs(1)).await;
    release();
    rig.pass(Duration::from_secs(10)).await;
    assert_eq!(manager.failing(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn addresses_that_cannot_be_written_delay_no_tainted_node() {
    let listed = |number| format!("{{name: n{number}, addresses: [{{type: InternalIP, address: 10.0.0.1}}]}}");
    let rig = Rig::new(&format!(
        "instances: [{}]\nfaults: [{{call: InstanceMetadata, node: late, error: no answer, times: 1}}]",
        (0..300).map(listed).collect::<Vec<_>>().join(", ")
    ))
    .await;
    rig.faults().add(Fault::status(500).on(Match::on("patch", "nodes").subresource("status")));
    for number in 0..300 {
        rig.create(node(&format!("n{number}")).uninitialized()).await;
    }
    let _manager = rig.start(&[NODES]).await;
    rig.pass(Duration::from_secs(10)).await;
    rig.create(node("late").uninitialized()).await;
    rig.pass(Duration::from_secs(3)).await;
    assert!(initialized(&rig.node("late").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn the_labels_of_a_node_that_the_cloud_says_nothing_about_after_its_initialization_are_fixed() {
    let rig = Rig::new(
        "instances: [{name: a, addresses: [{type: InternalIP, address: 10.0.0.1}]}]\n\
         faults: [{call: InstanceMetadata, after: 1, hold: gate, result: null}]",
    )
    .await;
    let release = rig.cloud.hold("gate");
    rig.faults().add(Fault::new(Effect::LoseAnswer).on(Match::on("patch", "nodes")).times(1));
    rig.create(node("a").uninitialized()).await;
    let _manager = rig.start(&[NODES]).await;
    rig.until_calls("InstanceMetadata", 2).await;
    rig.patch_node("a", json!({"metadata": {"labels": {LABEL_ZONE_BETA: "x", LABEL_ZONE: "y"}}})).await;
    release();
    rig.until_node("a", "has the stable label", |node| node.label(LABEL_ZONE) == "x").await;
}
