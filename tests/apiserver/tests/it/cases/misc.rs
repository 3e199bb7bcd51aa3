//! Leases, events, namespaces, volumes, health.

use crate::api::{Api, STRATEGIC, version};
use serde_json::json;

pub(crate) async fn leases_need_micro_times_and_a_version(api: &Api) {
    let leases = api.namespaced("leases").await;
    let spec = json!({"holderIdentity": "", "leaseDurationSeconds": 15, "leaseTransitions": 0,
        "acquireTime": "2024-01-01T00:00:00.123456Z", "renewTime": "2024-01-01T00:00:00.000000Z"});
    let lease = api.post(&leases, json!({"metadata": {"name": "a"}, "spec": spec})).await.ok();
    assert_eq!(lease["spec"], spec);
    let body = json!({"metadata": {"name": "b"}, "spec": {"renewTime": "2024-01-01T00:00:00Z"}});
    api.post(&leases, body).await.fails(
        400,
        "BadRequest",
        "Lease in version \"v1\" cannot be handled as a Lease: parsing time *",
    );
    let body = json!({"metadata": {"name": "b"}, "spec": {"leaseDurationSeconds": 0}});
    let message = "Lease.coordination.k8s.io \"b\" is invalid: spec.leaseDurationSeconds: Invalid value: 0: must be greater than 0";
    api.post(&leases, body).await.fails(422, "Invalid", message);
    let path = format!("{leases}/a");
    let body = json!({"metadata": {"name": "a"}, "spec": {"holderIdentity": "x"}});
    let message = "*metadata.resourceVersion: Invalid value: *: must be specified for an update";
    api.put(&path, body).await.fails(422, "Invalid", message);
    let body = json!({"metadata": {"name": "a", "resourceVersion": version(&lease)}, "spec": {"holderIdentity": "x"}});
    assert_eq!(api.put(&path, body.clone()).await.ok()["spec"], json!({"holderIdentity": "x"}));
    let message = "Operation cannot be fulfilled on leases.coordination.k8s.io \"a\": the object has been modified; *";
    api.put(&path, body).await.fails(409, "Conflict", message);
}

pub(crate) async fn events_live_beside_their_object(api: &Api) {
    let events = api.namespaced("events").await;
    let body = |name: &str, namespace: &str| {
        json!({"metadata": {"name": name}, "involvedObject": {"kind": "X", "name": "x", "namespace": namespace},
            "reason": "R", "message": "m", "type": "Normal", "count": 1, "lastTimestamp": "2024-01-01T00:00:00Z"})
    };
    let own = api.namespace();
    let event = api.post(&events, body("a", &own)).await.ok();
    assert_eq!((&event["eventTime"], &event["reportingComponent"]), (&json!(null), &json!("")));
    assert_eq!((&event["source"], &event["firstTimestamp"]), (&json!({}), &json!(null)));
    let message = "*involvedObject.namespace: Invalid value: \"default\": does not match event.namespace";
    api.post(&events, body("b", "default")).await.fails(422, "Invalid", message);
    api.post(&events, body("b", "")).await.fails(422, "Invalid", "*does not match event.namespace");
    let name = api.name("a");
    assert_eq!(api.post("/api/v1/namespaces/default/events", body(&name, "")).await.code, 201);
    let patch = json!({"count": 2, "lastTimestamp": "2024-01-01T00:01:00Z"});
    let event = api.patch(STRATEGIC, &format!("{events}/a"), patch).await.ok();
    assert_eq!((&event["count"], &event["message"]), (&json!(2), &json!("m")));
}

pub(crate) async fn a_namespace_is_labeled(api: &Api) {
    let name = api.namespace();
    let namespace = api.post("/api/v1/namespaces", json!({"metadata": {"name": name}})).await.ok();
    assert_eq!(namespace["metadata"]["labels"], json!({"kubernetes.io/metadata.name": name}));
    assert_eq!(
        (&namespace["spec"], &namespace["status"]),
        (&json!({"finalizers": ["kubernetes"]}), &json!({"phase": "Active"}))
    );
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        assert_eq!(api.get(&format!("/api/v1/namespaces/{name}")).await.code, 200);
    }
}

pub(crate) async fn volumes_are_pending(api: &Api) {
    let spec = json!({"capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
    let name = api.name("a");
    let volume = api.post("/api/v1/persistentvolumes", json!({"metadata": {"name": name}, "spec": spec})).await.ok();
    assert_eq!((&volume["status"]["phase"], &volume["spec"]["volumeMode"]), (&json!("Pending"), &json!("Filesystem")));
    assert_eq!(volume["spec"]["persistentVolumeReclaimPolicy"], "Retain");
    let expression = json!({"key": "a", "operator": "In", "values": ["b"]});
    let affinity = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}});
    let patch = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"nodeAffinity": affinity}});
    let volume = api.patch(STRATEGIC, &format!("/api/v1/persistentvolumes/{name}"), patch).await.ok();
    assert_eq!(volume["spec"]["nodeAffinity"], affinity);
}

pub(crate) async fn health_and_version_answer(api: &Api) {
    for path in ["/healthz", "/livez", "/readyz"] {
        let answer = api.get(path).await;
        assert_eq!((answer.code, answer.text.as_str()), (200, "ok"), "{path}");
    }
    let version = api.get("/version").await.ok();
    assert_eq!(version["major"], "1");
    assert!(version["gitVersion"].as_str().unwrap().starts_with("v1."));
    let answer = api.get("/no-such-path").await;
    assert_eq!((answer.code, answer.text.as_str()), (404, "404 page not found\n"));
}
