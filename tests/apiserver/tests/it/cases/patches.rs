//! The patch formats and the status subresource.

use crate::api::{Api, MERGE, NODES, STRATEGIC, version};
use serde_json::{Value, json};

fn condition(kind: &str, status: &str) -> Value {
    json!({"type": kind, "status": status, "reason": "R", "message": "m",
        "lastHeartbeatTime": "2024-01-01T00:00:00Z", "lastTransitionTime": "2024-01-01T00:00:00Z"})
}

fn types(object: &Value) -> Vec<String> {
    let conditions = object["status"]["conditions"].as_array().unwrap();
    conditions
        .iter()
        .map(|one| format!("{}={}", one["type"].as_str().unwrap(), one["status"].as_str().unwrap()))
        .collect()
}

pub(crate) async fn merge_patches_merge_and_delete(api: &Api) {
    let path = api.node("a", json!({"metadata": {"labels": {"a": "1", "b": "2"}}})).await;
    let node = api.patch(MERGE, &path, json!({"metadata": {"labels": {"a": null, "c": "3"}}})).await.ok();
    assert_eq!(node["metadata"]["labels"], json!({"b": "2", "c": "3"}));
    let node = api.patch(MERGE, &path, json!({"metadata": {"labels": null}})).await.ok();
    assert_eq!(node["metadata"].get("labels"), None);
}

pub(crate) async fn strategic_patches_merge_lists_by_key(api: &Api) {
    let path = format!("{}/status", api.node("a", json!({})).await);
    let patch = |conditions: Vec<Value>| json!({"status": {"conditions": conditions}});
    api.patch(STRATEGIC, &path, patch(vec![condition("A", "True"), condition("B", "True")])).await.ok();
    let node = api.patch(STRATEGIC, &path, patch(vec![condition("C", "True"), condition("B", "False")])).await.ok();
    assert_eq!(types(&node), ["C=True", "A=True", "B=False"]);
    let no_key = json!({"status": {"conditions": [{"status": "True"}]}});
    api.patch(STRATEGIC, &path, no_key).await.fails(500, "", "map: *does not contain declared merge key: type");
    let bad_time = json!({"status": {"conditions": [{"type": "A", "lastHeartbeatTime": "yesterday"}]}});
    api.patch(STRATEGIC, &path, bad_time).await.fails(422, "Invalid", "*parsing time*");
    // If keys repeat, the patch applies to the first element with the key.
    let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
    let two = json!({"status": {"addresses": [address("InternalIP", "1.1.1.1"), address("InternalIP", "2.2.2.2")]}});
    api.patch(MERGE, &path, two).await.ok();
    let one = json!({"status": {"addresses": [address("InternalIP", "3.3.3.3")]}});
    let node = api.patch(STRATEGIC, &path, one).await.ok();
    assert_eq!(
        node["status"]["addresses"],
        json!([address("InternalIP", "3.3.3.3"), address("InternalIP", "2.2.2.2")])
    );
}

pub(crate) async fn addresses_are_replaced_by_directive(api: &Api) {
    let path = format!("{}/status", api.node("a", json!({})).await);
    let address = |kind: &str, address: &str| json!({"type": kind, "address": address});
    let patch = |addresses: Value| json!({"status": {"addresses": addresses}});
    let first = patch(json!([address("InternalIP", "1.1.1.1"), address("Hostname", "h"), {"$patch": "replace"}]));
    let node = api.patch(STRATEGIC, &path, first).await.ok();
    assert_eq!(node["status"]["addresses"], json!([address("InternalIP", "1.1.1.1"), address("Hostname", "h")]));
    let second = patch(json!([{"$patch": "replace"}, address("ExternalIP", "2.2.2.2")]));
    let node = api.patch(STRATEGIC, &path, second).await.ok();
    assert_eq!(node["status"]["addresses"], json!([address("ExternalIP", "2.2.2.2")]));
    let node = api.patch(STRATEGIC, &path, patch(json!([{"$patch": "replace"}]))).await.ok();
    assert_eq!(node["status"].get("addresses"), None);
}

pub(crate) async fn finalizers_are_added_and_removed_one_by_one(api: &Api) {
    let services = api.namespaced("services").await;
    let body = json!({"metadata": {"name": "a", "finalizers": ["a.b/other"]}, "spec": {"ports": [{"port": 80}]}});
    api.post(&services, body).await.ok();
    let path = format!("{services}/a/status");
    let ours = "service.kubernetes.io/load-balancer-cleanup";
    let patch = json!({"metadata": {"$setElementOrder/finalizers": ["a.b/other", ours], "finalizers": [ours]}});
    let service = api.patch(STRATEGIC, &path, patch).await.ok();
    assert_eq!(service["metadata"]["finalizers"], json!(["a.b/other", ours]));
    let patch = json!({"metadata":
        {"$deleteFromPrimitiveList/finalizers": [ours], "$setElementOrder/finalizers": ["a.b/other"]}});
    let service = api.patch(STRATEGIC, &path, patch).await.ok();
    assert_eq!(service["metadata"]["finalizers"], json!(["a.b/other"]));
    let service = api.patch(STRATEGIC, &path, json!({"metadata": {"finalizers": [ours]}})).await.ok();
    let mut both: Vec<&str> =
        service["metadata"]["finalizers"].as_array().unwrap().iter().filter_map(Value::as_str).collect();
    both.sort_unstable();
    assert_eq!(both, ["a.b/other", ours]);
    let service = api.patch(STRATEGIC, &path, json!({"metadata": {"finalizers": null}})).await.ok();
    assert_eq!(service["metadata"].get("finalizers"), None);
}

pub(crate) async fn elements_are_deleted_and_ordered_by_directive(api: &Api) {
    let path = format!("{}/status", api.node("a", json!({})).await);
    let all =
        json!({"status": {"conditions": [condition("A", "True"), condition("B", "True"), condition("C", "True")]}});
    api.patch(STRATEGIC, &path, all).await.ok();
    let patch = json!({"status": {"conditions": [{"$patch": "delete", "type": "B"}]}});
    assert_eq!(types(&api.patch(STRATEGIC, &path, patch).await.ok()), ["A=True", "C=True"]);
    let patch = json!({"status": {
        "$setElementOrder/conditions": [{"type": "D"}, {"type": "C"}, {"type": "A"}],
        "conditions": [condition("D", "True")]}});
    assert_eq!(types(&api.patch(STRATEGIC, &path, patch).await.ok()), ["D=True", "C=True", "A=True"]);
    let patch = json!({"status": {"$setElementOrder/conditions": [{"type": "A"}, {"type": "D"}]}});
    assert_eq!(types(&api.patch(STRATEGIC, &path, patch).await.ok()), ["C=True", "A=True", "D=True"]);
}

pub(crate) async fn taints_are_replaced_as_a_whole(api: &Api) {
    let taint = |key: &str| json!({"key": key, "effect": "NoSchedule"});
    let path = api.node("a", json!({"spec": {"taints": [taint("x")]}})).await;
    let before = api.get(&path).await.ok();
    let patch = json!({"metadata": {"resourceVersion": version(&before)}, "spec": {"taints": [taint("y")]}});
    let node = api.patch(STRATEGIC, &path, patch.clone()).await.ok();
    assert_eq!(node["spec"]["taints"], json!([taint("y")]));
    api.patch(STRATEGIC, &path, patch).await.fails(409, "Conflict", "*the object has been modified*");
    let node = api.patch(STRATEGIC, &path, json!({"spec": {"taints": null}})).await.ok();
    assert_eq!(node["spec"].get("taints"), None);
}

pub(crate) async fn a_patch_with_an_old_version_conflicts(api: &Api) {
    let path = api.node("a", json!({})).await;
    for format in [MERGE, STRATEGIC] {
        let patch = json!({"metadata": {"resourceVersion": "1", "labels": {"a": "b"}}});
        api.patch(format, &path, patch).await.fails(409, "Conflict", "*the object has been modified*");
    }
    let current = version(&api.get(&path).await.ok());
    let patch = json!({"metadata": {"resourceVersion": current, "labels": {"a": "b"}}});
    assert_eq!(api.patch(MERGE, &path, patch).await.code, 200);
    let patch = json!({"metadata": {"resourceVersion": "", "labels": {"a": "c"}}});
    assert_eq!(api.patch(MERGE, &path, patch).await.code, 200);
    let missing = format!("{NODES}/{}", api.name("none"));
    api.patch(MERGE, &missing, json!({})).await.fails(404, "NotFound", "nodes * not found");
}

pub(crate) async fn a_patch_without_effect_keeps_the_version(api: &Api) {
    let path = api.node("a", json!({"metadata": {"labels": {"a": "1"}}})).await;
    let before = version(&api.get(&path).await.ok());
    for (format, patch) in [
        (MERGE, json!({})),
        (MERGE, json!({"metadata": {"labels": {"a": "1", "b": null}}})),
        (STRATEGIC, json!({"metadata": {"labels": {"a": "1"}}, "status": {"phase": "Running"}})),
    ] {
        assert_eq!(version(&api.patch(format, &path, patch).await.ok()), before, "{format}");
    }
}

pub(crate) async fn the_status_subresource_writes_status_and_metadata(api: &Api) {
    let path = api.node("a", json!({})).await;
    let status = format!("{path}/status");
    let patch = json!({"metadata": {"labels": {"l": "1"}, "annotations": {"a": "1"}, "finalizers": ["x.y/z"]},
        "spec": {"unschedulable": true}, "status": {"conditions": [condition("A", "True")]}});
    let node = api.patch(STRATEGIC, &status, patch).await.ok();
    assert_eq!(node["metadata"]["labels"], json!({"l": "1"}));
    assert_eq!(node["metadata"]["annotations"], json!({"a": "1"}));
    assert_eq!(node["metadata"]["finalizers"], json!(["x.y/z"]));
    assert_eq!(node["spec"].get("unschedulable"), None);
    assert_eq!(types(&node), ["A=True"]);
    let mut body = node;
    body["status"]["conditions"] = json!([condition("B", "True")]);
    body["spec"]["unschedulable"] = json!(true);
    let node = api.put(&status, body).await.ok();
    assert_eq!((types(&node), node["spec"].get("unschedulable")), (vec!["B=True".to_owned()], None));
    assert_eq!(api.get(&status).await.ok()["metadata"]["name"], node["metadata"]["name"].as_str().unwrap());
    let leases = api.namespaced("leases").await;
    api.post(&leases, json!({"metadata": {"name": "a"}})).await.ok();
    let message = "the server could not find the requested resource";
    api.patch(MERGE, &format!("{leases}/a/status"), json!({})).await.fails(404, "NotFound", message);
}

pub(crate) async fn the_main_resource_ignores_status(api: &Api) {
    let path = api.node("a", json!({})).await;
    let patch = json!({"status": {"conditions": [condition("A", "True")]}});
    let before = api.get(&path).await.ok();
    assert_eq!(api.patch(STRATEGIC, &path, patch.clone()).await.ok(), before);
    api.patch(STRATEGIC, &format!("{path}/status"), patch).await.ok();
    let mut body = api.get(&path).await.ok();
    body["status"] = json!({});
    body["spec"]["unschedulable"] = json!(true);
    let node = api.put(&path, body).await.ok();
    assert_eq!((types(&node), &node["spec"]["unschedulable"]), (vec!["A=True".to_owned()], &json!(true)));
}

pub(crate) async fn other_patch_formats_are_refused(api: &Api) {
    let path = api.node("a", json!({})).await;
    let answer = api.patch("application/json", &path, json!({})).await;
    answer.fails(415, "UnsupportedMediaType", "415: Unsupported Media Type");
    for format in [MERGE, STRATEGIC] {
        let answer = api.send("PATCH", &path, format, "application/json", "{bad").await;
        answer.fails(400, "BadRequest", "*");
    }
}
