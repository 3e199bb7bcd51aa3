//! Providers with the older interface: instances by name and by ID.

use super::*;

const LEGACY: &str =
    "interfaces: {instancesV2: false, instances: true, zones: true}\nzone: {failureDomain: z, region: r}\n";

#[tokio::test(start_paused = true)]
async fn the_older_interface_initializes_by_name_where_it_has_no_ids() {
    let (rig, _manager) = waiting(&format!(
        "{LEGACY}instances: [{{name: a, type: large, addresses: [{{type: InternalIP, address: 10.0.0.1}}]}}]\n\
         faults:\n- {{call: InstanceID, kind: NotImplemented}}\n- {{call: '*ByProviderID', error: no ids here}}"
    ))
    .await;
    let done = rig.until_node("a", "has addresses", |node| !node.addresses().is_empty()).await;
    assert!(initialized(&done));
    assert_eq!(done.provider_id(), "");
    assert_eq!(
        (done.label(LABEL_INSTANCE_TYPE), done.label(LABEL_ZONE), done.label(LABEL_REGION)),
        ("large", "z", "r")
    );
    // By ID first, even if it is empty, and by name only after its error.
    for (by_id, by_name) in [
        ("NodeAddressesByProviderID", "NodeAddresses"),
        ("InstanceTypeByProviderID", "InstanceType"),
        ("GetZoneByProviderID", "GetZoneByNodeName"),
    ] {
        let place = |name: &str| rig.cloud.calls(name)[0]["id"].as_u64().unwrap();
        assert_eq!(rig.cloud.calls(by_id)[0]["args"]["providerID"], "");
        assert!(place(by_id) < place(by_name), "{by_id}");
    }
}

#[tokio::test(start_paused = true)]
async fn with_the_older_interface_another_error_of_the_id_keeps_the_taint() {
    let (rig, _manager) = waiting(&format!("{LEGACY}faults: [{{call: InstanceID, error: broken}}]")).await;
    rig.until_calls("InstanceID", 4).await;
    assert!(rig.node("a").await.unwrap().is_uninitialized());
    assert_eq!(rig.writes(), []);
    rig.cloud.write(LEGACY);
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!(done.provider_id(), "fake://a");
}

#[tokio::test(start_paused = true)]
async fn with_the_older_interface_an_empty_type_is_final_and_sets_no_label() {
    let rig = Rig::new(&format!("{LEGACY}instances: [{{name: a}}]")).await;
    rig.create(node("a").uninitialized().provider_id("fake://a")).await;
    let _manager = rig.start(&[NODES]).await;
    let done = rig.until_node("a", "initialized", initialized).await;
    assert_eq!(done["metadata"]["labels"].get(LABEL_INSTANCE_TYPE), None);
    assert_eq!(rig.cloud.calls("InstanceTypeByProviderID").len(), 1);
    assert_eq!(rig.cloud.calls("InstanceType").len(), 0);
}
