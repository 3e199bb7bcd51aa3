//! Creates, updates and deletes.

use crate::api::{Api, MERGE, NODES, STRATEGIC, version};
use serde_json::json;

pub(crate) async fn a_created_object_gets_the_servers_fields(api: &Api) {
    let name = api.name("a");
    let answer = api.post(NODES, json!({"metadata": {"name": name, "uid": "mine", "labels": {"a": "b"}}})).await;
    assert_eq!(answer.code, 201);
    let node = answer.ok();
    assert_eq!((node["kind"].as_str(), node["apiVersion"].as_str()), (Some("Node"), Some("v1")));
    assert_eq!(node["metadata"]["uid"].as_str().unwrap().len(), 36);
    assert!(version(&node).parse::<u64>().unwrap() > 0);
    let created = node["metadata"]["creationTimestamp"].as_str().unwrap();
    assert_eq!((created.len(), created.ends_with('Z')), (20, true), "{created}");
    let read = api.get(&format!("{NODES}/{name}")).await.ok();
    assert_eq!(read["metadata"]["uid"], node["metadata"]["uid"]);
}

pub(crate) async fn a_second_create_of_a_name_already_exists(api: &Api) {
    let name = api.name("a");
    let node = json!({"metadata": {"name": name}});
    api.post(NODES, node.clone()).await.ok();
    let status = api.post(NODES, node).await.fails(409, "AlreadyExists", &format!("nodes \"{name}\" already exists"));
    assert_eq!(status["details"], json!({"name": name, "kind": "nodes"}));
}

pub(crate) async fn bad_names_are_invalid(api: &Api) {
    let message =
        "Node \"Bad_Name\" is invalid: metadata.name: Invalid value: \"Bad_Name\": a lowercase RFC 1123 subdomain *";
    let status = api.post(NODES, json!({"metadata": {"name": "Bad_Name"}})).await.fails(422, "Invalid", message);
    assert_eq!(status["details"]["causes"][0]["reason"], "FieldValueInvalid");
    let message = "Node \"\" is invalid: metadata.name: Required value: name or generateName is required";
    api.post(NODES, json!({"metadata": {}})).await.fails(422, "Invalid", message);
    let services = api.namespaced("services").await;
    let service = json!({"metadata": {"name": "a.b"}, "spec": {"ports": [{"port": 80}]}});
    api.post(&services, service).await.fails(422, "Invalid", "Service \"a.b\" is invalid: metadata.name: *");
}

pub(crate) async fn a_body_for_another_place_is_refused(api: &Api) {
    let path = api.node("a", json!({})).await;
    let name = api.name("a");
    let message = format!("the name of the object (other) does not match the name on the URL ({name})");
    api.put(&path, json!({"metadata": {"name": "other"}})).await.fails(400, "BadRequest", &message);
    api.put(&path, json!({"metadata": {}})).await.fails(
        400,
        "BadRequest",
        "the name of the object (*) was undeterminable*",
    );
    let services = api.namespaced("services").await;
    let body = json!({"metadata": {"name": "x", "namespace": "other"}, "spec": {"ports": [{"port": 80}]}});
    let message = "the namespace of the provided object does not match the namespace sent on the request";
    api.post(&services, body).await.fails(400, "BadRequest", message);
    let body = json!({"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}});
    api.post(NODES, body).await.fails(400, "BadRequest", "Service in version \"v1\" cannot be handled as a Node: *");
    let body = json!({"metadata": {"name": api.name("b"), "resourceVersion": "5"}});
    api.post(NODES, body).await.fails(500, "", "resourceVersion should not be set on objects to be created");
}

pub(crate) async fn an_unreadable_body_is_refused(api: &Api) {
    let send = |format: &'static str, body: &'static str| api.send("POST", NODES, format, "application/json", body);
    send("application/json", "{bad").await.fails(400, "BadRequest", "the object provided is unrecognized*");
    send("text/plain", "hello").await.fails(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format*",
    );
}

pub(crate) async fn an_update_of_an_old_version_conflicts(api: &Api) {
    let path = api.node("a", json!({})).await;
    let name = api.name("a");
    let first = api.get(&path).await.ok();
    let mut changed = first.clone();
    changed["metadata"]["labels"] = json!({"a": "b"});
    let second = api.put(&path, changed.clone()).await.ok();
    assert_ne!(version(&first), version(&second));
    changed["metadata"]["labels"] = json!({"a": "c"});
    let message = format!(
        "Operation cannot be fulfilled on nodes \"{name}\": the object has been modified; please apply your changes to the \
         latest version and try again"
    );
    let status = api.put(&path, changed.clone()).await.fails(409, "Conflict", &message);
    assert_eq!(status["details"], json!({"name": name, "kind": "nodes"}));
    changed["metadata"].as_object_mut().unwrap().remove("resourceVersion");
    let third = api.put(&path, changed).await.ok();
    assert_eq!(third["metadata"]["labels"], json!({"a": "c"}));
}

pub(crate) async fn an_update_without_change_keeps_the_version(api: &Api) {
    let path = api.node("a", json!({"spec": {"providerID": "x://1"}})).await;
    let before = api.get(&path).await.ok();
    let mut same = before.clone();
    // Empty members and those of the server are not changes.
    same["metadata"]["annotations"] = json!({});
    same["metadata"]["creationTimestamp"] = json!("2001-01-01T00:00:00Z");
    same["spec"]["unschedulable"] = json!(false);
    same["spec"]["podCIDR"] = json!("");
    assert_eq!(version(&api.put(&path, same).await.ok()), version(&before));
}

pub(crate) async fn an_update_of_a_missing_node_is_refused(api: &Api) {
    let name = api.name("none");
    let body = json!({"metadata": {"name": name}});
    let message = format!("nodes \"{name}\" not found");
    api.put(&format!("{NODES}/{name}"), body).await.fails(404, "NotFound", &message);
}

pub(crate) async fn a_foreign_uid_is_refused(api: &Api) {
    let path = api.node("a", json!({})).await;
    let body = json!({"metadata": {"name": api.name("a"), "uid": "other"}});
    api.put(&path, body).await.fails(
        409,
        "Conflict",
        "*Precondition failed: UID in precondition: other, UID in object meta: *",
    );
    let patch = json!({"metadata": {"uid": "other"}});
    api.patch(MERGE, &path, patch).await.fails(
        422,
        "Invalid",
        "*metadata.uid: Invalid value: \"other\": field is immutable",
    );
}

pub(crate) async fn a_delete_obeys_its_preconditions(api: &Api) {
    let path = api.node("a", json!({})).await;
    let (name, node) = (api.name("a"), api.get(&path).await.ok());
    let message = format!(
        "Operation cannot be fulfilled on Node \"{name}\": the UID in the precondition (x) does not match the UID in record *"
    );
    let body = json!({"preconditions": {"uid": "x"}});
    let status = api.delete_with(&path, body).await.fails(409, "Conflict", &message);
    assert_eq!(status["details"], json!({"name": name, "kind": "Node"}));
    let message = format!(
        "Operation cannot be fulfilled on Node \"{name}\": the ResourceVersion in the precondition (1) does not match the \
         ResourceVersion in record ({}). The object might have been modified",
        version(&node)
    );
    let body = json!({"preconditions": {"resourceVersion": "1"}});
    api.delete_with(&path, body).await.fails(409, "Conflict", &message);
    let body = json!({"preconditions": {"uid": node["metadata"]["uid"]}});
    let status = api.delete_with(&path, body).await.ok();
    assert_eq!((status["kind"].as_str(), status["status"].as_str()), (Some("Status"), Some("Success")));
    assert_eq!(status["details"], json!({"name": name, "kind": "nodes", "uid": node["metadata"]["uid"]}));
    api.delete(&path).await.fails(404, "NotFound", &format!("nodes \"{name}\" not found"));
}

pub(crate) async fn finalizers_delay_the_removal(api: &Api) {
    let path = api.node("a", json!({"metadata": {"finalizers": ["x.y/z"]}})).await;
    let marked = api.delete(&path).await.ok();
    assert_eq!((marked["kind"].as_str(), &marked["metadata"]["deletionGracePeriodSeconds"]), (Some("Node"), &json!(0)));
    assert!(marked["metadata"]["deletionTimestamp"].is_string());
    let again = api.delete(&path).await.ok();
    assert_eq!(version(&again), version(&marked));
    let added = json!({"metadata": {"finalizers": ["x.y/z", "a.b/c"]}});
    let message = "*metadata.finalizers: Forbidden: no new finalizers can be added if the object is being deleted, found new \
                   finalizers []string{\"a.b/c\"}";
    api.patch(STRATEGIC, &path, added).await.fails(422, "Invalid", message);
    let removed = json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.y/z"]}});
    assert_eq!(api.patch(STRATEGIC, &format!("{path}/status"), removed).await.code, 200);
    assert_eq!(api.get(&path).await.code, 404);
}

pub(crate) async fn a_missing_namespace_is_named(api: &Api) {
    let body = json!({"metadata": {"name": "x"}});
    let answer = api.post("/api/v1/namespaces/no-such-place/events", body).await;
    answer.fails(404, "NotFound", "namespaces \"no-such-place\" not found");
}

pub(crate) async fn unknown_resources_and_methods_are_refused(api: &Api) {
    let message = "the server could not find the requested resource";
    let status = api.get("/api/v1/foos").await.fails(404, "NotFound", message);
    assert_eq!(status["details"], json!({}));
    api.get("/api/v1/foos/a").await.fails(404, "NotFound", message);
    api.get("/api/v1/namespaces/default/nodes").await.fails(404, "NotFound", message);
    api.get("/api/v1/services/a").await.fails(404, "NotFound", message);
    let answer = api.get("/apis/none.example.com/v1/foos").await;
    assert_eq!((answer.code, answer.text.as_str()), (404, "404 page not found\n"));
    let message = "the server does not allow this method on the requested resource";
    api.put(NODES, json!({})).await.fails(405, "MethodNotAllowed", message);
    api.post("/api/v1/services", json!({})).await.fails(405, "MethodNotAllowed", message);
    api.post(&format!("{NODES}/x"), json!({})).await.fails(405, "MethodNotAllowed", message);
}

pub(crate) async fn labels_and_finalizers_are_checked(api: &Api) {
    let path = api.node("a", json!({})).await;
    let patch = |metadata| api.patch(STRATEGIC, &path, json!({"metadata": metadata}));
    let bad = patch(json!({"labels": {"a": "b c"}})).await;
    bad.fails(422, "Invalid", "*metadata.labels: Invalid value: \"b c\": a valid label must be an empty string or *");
    let bad = patch(json!({"labels": {"a b": "c"}})).await;
    bad.fails(422, "Invalid", "*metadata.labels: Invalid value: \"a b\": name part must consist of *");
    let bad = patch(json!({"annotations": {"a b": "c"}})).await;
    bad.fails(422, "Invalid", "*metadata.annotations: Invalid value: \"a b\": name part must consist of *");
    let bad = patch(json!({"finalizers": ["bad"]})).await;
    bad.fails(
        422,
        "Invalid",
        "*metadata.finalizers[0]: Invalid value: \"bad\": name is neither a standard finalizer name nor *",
    );
}

pub(crate) async fn wrong_types_are_refused_and_unknown_members_dropped(api: &Api) {
    let path = api.node("a", json!({"spec": {"providerId": "typo"}})).await;
    assert_eq!(api.get(&path).await.ok()["spec"].get("providerId"), None);
    let made = |body| api.post(NODES, body);
    let message = "Node in version \"v1\" cannot be handled as a Node: json: cannot unmarshal *";
    made(json!({"metadata": "x"})).await.fails(400, "BadRequest", message);
    made(json!({"metadata": {"name": "x", "labels": {"a": 5}}})).await.fails(400, "BadRequest", message);
    made(json!({"metadata": {"name": "x"}, "spec": {"unschedulable": "yes"}})).await.fails(400, "BadRequest", message);
    for format in [MERGE, STRATEGIC] {
        for patch in [json!({"metadata": {"labels": {"a": true}}}), json!({"spec": {"taints": [{"key": 1}]}})] {
            api.patch(format, &path, patch).await.fails(422, "Invalid", " \"\" is invalid: patch: Invalid value: *");
        }
        let unknown = json!({"spec": {"providerId": "typo"}});
        assert_eq!(api.patch(format, &path, unknown.clone()).await.ok()["spec"].get("providerId"), None);
        let strict = api.patch(format, &format!("{path}?fieldValidation=Strict"), unknown).await;
        strict.fails(422, "Invalid", "*unknown field \"spec.providerId\"");
    }
    let time = json!({"metadata": {"deletionTimestamp": "2024-01-01T00:00:00Z"}});
    api.patch(MERGE, &path, time).await.fails(422, "Invalid", "*metadata.deletionTimestamp: *: field is immutable");
    let version = json!({"metadata": {"resourceVersion": "abc"}});
    api.patch(MERGE, &path, version).await.fails(500, "", "strconv.ParseUint: parsing \"abc\": invalid syntax");
    let services = api.namespaced("services").await;
    let body = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": "80"}]}});
    api.post(&services, body).await.fails(
        400,
        "BadRequest",
        "Service in version \"v1\" cannot be handled as a Service: *",
    );
    let body = json!({"metadata": {"name": "a"}, "spec": {"ports": [{"port": 80}], "foo": 1}});
    let strict = api.post(&format!("{services}?fieldValidation=Strict"), body).await;
    strict.fails(400, "BadRequest", "*strict decoding error: unknown field \"spec.foo\"");
}
