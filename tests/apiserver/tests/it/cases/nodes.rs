//! Nodes.

use crate::api::{Api, MERGE, STRATEGIC};
use serde_json::json;

pub(crate) async fn a_new_node_is_tainted_not_ready(api: &Api) {
    let mine = json!({"key": "a", "value": "b", "effect": "NoExecute"});
    let path = api.node("a", json!({"spec": {"taints": [mine]}})).await;
    let node = api.get(&path).await.ok();
    let taint = json!({"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"});
    assert_eq!(node["spec"]["taints"], json!([mine, taint]));
    assert_eq!(node["status"]["daemonEndpoints"], json!({"kubeletEndpoint": {"Port": 0}}));
    assert_eq!(node["status"]["nodeInfo"]["machineID"], "");
}

pub(crate) async fn provider_id_and_pod_cidr_are_set_once(api: &Api) {
    let path = api.node("a", json!({})).await;
    let patch = json!({"spec": {"providerID": "a://1", "podCIDR": "10.0.0.0/24"}});
    let node = api.patch(STRATEGIC, &path, patch).await.ok();
    assert_eq!(node["spec"]["podCIDRs"], json!(["10.0.0.0/24"]));
    let message = "*spec.providerID: Forbidden: node updates may not change providerID except from \"\" to valid";
    api.patch(STRATEGIC, &path, json!({"spec": {"providerID": "a://2"}})).await.fails(422, "Invalid", message);
    let message = "*spec.podCIDRs: Forbidden: node updates may not change podCIDR except from \"\" to valid";
    let patch = json!({"spec": {"podCIDR": "10.0.1.0/24", "podCIDRs": ["10.0.1.0/24"]}});
    api.patch(MERGE, &path, patch).await.fails(422, "Invalid", message);
}

pub(crate) async fn taints_are_checked(api: &Api) {
    let path = api.node("a", json!({})).await;
    let patch = |taints| api.patch(MERGE, &path, json!({"spec": {"taints": taints}}));
    let message = "*metadata.taints[0].effect: Unsupported value: \"X\": supported values: \"NoSchedule\", *";
    patch(json!([{"key": "a", "effect": "X"}])).await.fails(422, "Invalid", message);
    let message = "*metadata.taints[1]: Duplicate value: *: taints must be unique by key and effect pair";
    let taint = json!({"key": "a", "effect": "NoSchedule"});
    patch(json!([taint, taint])).await.fails(422, "Invalid", message);
}

pub(crate) async fn addresses_are_unique(api: &Api) {
    let path = api.node("a", json!({})).await;
    let address = json!({"type": "InternalIP", "address": "10.0.0.1"});
    let patch = json!({"status": {"addresses": [address, address, {"$patch": "replace"}]}});
    let message = "*status.addresses[1]: Duplicate value: {\"Type\":\"InternalIP\",\"Address\":\"10.0.0.1\"}";
    api.patch(STRATEGIC, &format!("{path}/status"), patch).await.fails(422, "Invalid", message);
}

pub(crate) async fn capacity_becomes_allocatable(api: &Api) {
    let path = api.node("a", json!({"status": {"capacity": {"cpu": "2"}}})).await;
    let node = api.get(&path).await.ok();
    assert_eq!(node["status"]["allocatable"], json!({"cpu": "2"}));
}
