//! Several cloud controller managers in one cluster (KEP-5778).

use super::*;

const OWNERSHIP: &str = "--feature-gates=CloudProviderNodeOwnership=true";
const LIFECYCLE: &str = "--controllers=cloud-node-lifecycle";

fn skipped(manager: &Running, controller: &str, reason: &str) -> f64 {
    let labels = format!("{{controller=\"{controller}\",reason=\"{reason}\"}}");
    manager.metric(&format!("cloudprovider_node_ownership_skipped_total{labels}")).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn a_new_node_that_the_cloud_does_not_know_waits_without_a_warning_and_is_found_later() {
    let rig = Rig::new("unlisted: missing").await;
    rig.create(node("a").uninitialized()).await;
    let manager = rig.start(&[NODES, OWNERSHIP]).await;
    rig.pass(MINUTE).await;
    assert!(rig.node("a").await.unwrap().is_uninitialized());
    assert_eq!((rig.count_events("a", "FailedToInitializeNode").await, rig.writes()), (0, vec![]));
    let waited = skipped(&manager, "node", "no_provider_id");
    assert!((5.0..=7.0).contains(&waited), "{waited}");
    rig.cloud.write("unlisted: missing\ninstances: [{name: a}]");
    rig.pass(Duration::from_secs(11)).await;
    assert!(initialized(&rig.node("a").await.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn nodes_of_other_platforms_are_never_touched_and_counted() {
    let rig = Rig::new("unlisted: missing").await;
    let shutdown = "node.cloudprovider.kubernetes.io/shutdown";
    for (name, id) in [("theirs", "other://theirs"), ("odd", "odd")] {
        rig.create(node(name).provider_id(id).ready("Unknown")).await;
    }
    rig.create(node("ready").provider_id("other://ready").taint(shutdown, "NoSchedule")).await;
    rig.create(node("ours").provider_id("fake://ours").ready("Unknown")).await;
    let manager = rig.start(&[LIFECYCLE, OWNERSHIP]).await;
    rig.until_gone("ours").await;
    rig.pass(MINUTE).await;
    let mut left: Vec<String> = Vec::new();
    for node in rig.list("nodes").await {
        left.push(node["metadata"]["name"].as_str().unwrap().to_owned());
    }
    assert_eq!((left, rig.writes().len()), (["odd", "ready", "theirs"].map(str::to_owned).to_vec(), 1));
    assert!(skipped(&manager, "nodelifecycle", "scheme_mismatch") >= 30.0);
    assert_eq!(manager.metric("ccm_foreign_nodes"), Some(3.0));
}

#[tokio::test(start_paused = true)]
async fn the_platforms_of_the_flag_replace_those_of_the_provider() {
    for (platforms, is_gone, foreign) in [("other", false, 1.0), ("other,fake", true, 0.0), ("*", true, 0.0)] {
        let rig = Rig::new("unlisted: missing").await;
        rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
        rig.create(node("b").provider_id("other://b")).await;
        let platforms = format!("--cloud-provider-platforms={platforms}");
        let manager = rig.start(&[LIFECYCLE, OWNERSHIP, &platforms]).await;
        rig.pass(MINUTE).await;
        assert_eq!(rig.node("a").await.is_none(), is_gone, "{platforms}");
        assert_eq!(manager.metric("ccm_foreign_nodes"), Some(foreign), "{platforms}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_platforms_of_the_flag_decide_which_nodes_get_routes() {
    for (platforms, routed) in [("other", "b"), ("fake", "a")] {
        let rig = Rig::new("interfaces: {routes: true}").await;
        rig.create(node("a").provider_id("fake://a").pod_cidr("10.8.1.0/24")).await;
        rig.create(node("b").provider_id("other://b").pod_cidr("10.8.2.0/24")).await;
        let platforms = format!("--cloud-provider-platforms={platforms}");
        let routes = ["--controllers=route", "--configure-cloud-routes=true", "--cluster-cidr=10.8.0.0/14"];
        let _manager = rig.start(&[&routes[..], &[OWNERSHIP, &platforms]].concat()).await;
        rig.pass(MINUTE).await;
        let calls = rig.cloud.calls("CreateRoute");
        let targets: Vec<&str> =
            calls.iter().map(|call| call["args"]["route"]["targetNode"].as_str().unwrap_or_default()).collect();
        assert_eq!(targets, [routed], "{platforms}");
        let conditions = ["a", "b"].map(|name| !rig.writes_of("nodes", name).is_empty());
        assert_eq!(conditions, ["a", "b"].map(|name| name == routed), "{platforms}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_that_the_cloud_says_is_not_owned_is_left_alone() {
    let rig = Rig::new(
        "unlisted: missing\ninterfaces: {instancesV2: false, instances: true}\n\
         faults: [{call: InstanceExistsByProviderID, providerID: 'fake://a', kind: NotOwned}]",
    )
    .await;
    rig.create(node("a").provider_id("fake://a").ready("Unknown")).await;
    let manager = rig.start(&[LIFECYCLE, OWNERSHIP]).await;
    rig.pass(MINUTE).await;
    assert!(rig.node("a").await.is_some());
    assert!(skipped(&manager, "nodelifecycle", "not_owned") >= 10.0, "{}", manager.metrics());
    let calls = "cloud_node_lifecycle_controller_cloud_provider_calls_total";
    let not_owned = format!("{calls}{{operation=\"instance_exists\",result=\"not_owned\"}}");
    assert!(manager.metric(&not_owned).unwrap() >= 10.0);
}

#[tokio::test(start_paused = true)]
async fn a_node_without_provider_id_is_left_alone_for_the_wait_timeout() {
    let age = |seconds: i64| {
        let created = jiff::Timestamp::now() - jiff::SignedDuration::from_secs(seconds);
        json!(created.to_string())
    };
    for (args, waits) in [
        (&[][..], false),
        (&[OWNERSHIP][..], true),
        (&[OWNERSHIP, "--node-lifecycle-wait-timeout=0s"][..], false),
        (&["--node-lifecycle-wait-timeout=30s"][..], true),
    ] {
        let rig = Rig::new("unlisted: missing").await;
        let created = age(2);
        rig.create(node("a").ready("Unknown").with(|node| node["metadata"]["creationTimestamp"] = created)).await;
        let manager = rig.start(&[&[LIFECYCLE], args].concat()).await;
        rig.pass(Duration::from_secs(20)).await;
        assert_eq!(rig.node("a").await.is_some(), waits, "{args:?}");
        let counted = skipped(&manager, "nodelifecycle", "timeout_wait") > 0.0;
        assert_eq!(counted, waits && args.contains(&OWNERSHIP), "{args:?}");
        rig.pass(MINUTE).await;
        assert!(rig.node("a").await.is_none(), "{args:?}");
    }
}
