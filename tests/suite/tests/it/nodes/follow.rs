//! Additional labels that follow the cloud.

use super::*;

const FOLLOW: &str = "--feature-gates=CloudNodeAdditionalLabelsReconciliation=true";

#[tokio::test(start_paused = true)]
async fn with_the_gate_additional_labels_follow_the_cloud_and_none_is_removed() {
    let rig = Rig::new("instances: [{name: a, type: large, labels: {rack: r1, row: '1', k8s.io/x: v}}]").await;
    rig.create(node("a").provider_id("fake://a").label("row", "0").label("own", "mine")).await;
    let _manager = rig.start(&[NODES, FOLLOW]).await;
    let first = rig.until_node("a", "labels of the cloud", |node| node.label("rack") == "r1").await;
    assert_eq!((first.label("row"), first.label("own"), first.label("k8s.io/x")), ("1", "mine", ""));
    let body = format!(r#"{{"metadata":{{"labels":{{"rack":"r1","row":"1"}},"uid":"{}"}}}}"#, first.uid());
    assert_eq!(sent(&rig.writes()[0]), ("", STRATEGIC, body));

    let looks = rig.cloud.calls("Lookup").len();
    rig.pass(6 * MINUTE).await;
    assert_eq!((rig.writes().len(), rig.cloud.calls("Lookup").len()), (1, looks + 1), "one look per period, no write");
    rig.cloud.write("instances: [{name: a, type: huge, labels: {rack: r2}}]");
    rig.patch_node("a", json!({"metadata": {"labels": {"own": "still"}}})).await;
    rig.pass(6 * MINUTE).await;
    let later = rig.node("a").await.unwrap();
    assert_eq!((later.label("rack"), later.label("row"), later.label("own")), ("r2", "1", "still"));
    assert_eq!(later.label(LABEL_INSTANCE_TYPE), "", "only additional labels follow");
}

#[tokio::test(start_paused = true)]
async fn a_label_that_the_api_server_refuses_keeps_no_address_from_being_written() {
    let rig = Rig::new(
        "instances: [{name: a, labels: {rack: 'not a label value!'}, addresses: [{type: InternalIP, address: 10.0.0.1}]}]",
    )
    .await;
    rig.create(node("a").provider_id("fake://a")).await;
    let _manager = rig.start(&[NODES, FOLLOW]).await;
    rig.until_node("a", "has its address", |node| node.addresses() == ["InternalIP=10.0.0.1"]).await;
    assert_eq!(rig.node("a").await.unwrap().label("rack"), "");
}
