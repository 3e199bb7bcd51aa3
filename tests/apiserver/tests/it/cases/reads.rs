//! Gets, lists, pages, selectors, tables, discovery.

use crate::api::{Api, NODES, version};
use serde_json::{Value, json};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";

fn names(list: &Value) -> Vec<String> {
    let items = list["items"].as_array().unwrap();
    items.iter().map(|item| item["metadata"]["name"].as_str().unwrap().to_owned()).collect()
}

/// Leases with these names (and labels `n=<name>`, `first=<its first letter>`).
async fn leases(api: &Api, all: &[&str]) -> String {
    let path = api.namespaced("leases").await;
    for name in all {
        let labels = json!({"n": name, "first": name.get(..1)});
        api.post(&path, json!({"metadata": {"name": name, "labels": labels}})).await.ok();
    }
    path
}

pub(crate) async fn a_missing_object_is_named(api: &Api) {
    let leases = api.namespaced("leases").await;
    let message = "leases.coordination.k8s.io \"none\" not found";
    let status = api.get(&format!("{leases}/none")).await.fails(404, "NotFound", message);
    assert_eq!(status["details"], json!({"name": "none", "group": "coordination.k8s.io", "kind": "leases"}));
    assert_eq!(status["metadata"], json!({}));
}

pub(crate) async fn list_items_carry_no_type(api: &Api) {
    let path = leases(api, &["a"]).await;
    let list = api.get(&path).await.ok();
    assert_eq!(
        (list["kind"].as_str(), list["apiVersion"].as_str()),
        (Some("LeaseList"), Some("coordination.k8s.io/v1"))
    );
    assert_eq!((list["items"][0].get("kind"), list["items"][0].get("apiVersion")), (None, None));
    assert!(version(&list) >= version(&list["items"][0]));
    let empty = api.get("/api/v1/namespaces/no-such-place/services").await.ok();
    assert_eq!(empty["items"], json!([]));
}

pub(crate) async fn pages_show_one_snapshot(api: &Api) {
    let path = leases(api, &["a", "b", "c", "d", "e"]).await;
    let first = api.get(&format!("{path}?limit=2")).await.ok();
    assert_eq!((names(&first), &first["metadata"]["remainingItemCount"]), (vec!["a".into(), "b".into()], &json!(3)));
    api.delete(&format!("{path}/d")).await.ok();
    api.post(&path, json!({"metadata": {"name": "bb"}})).await.ok();
    let token = first["metadata"]["continue"].as_str().unwrap().replace('=', "%3D");
    let second = api.get(&format!("{path}?limit=2&continue={token}")).await.ok();
    assert_eq!((names(&second), version(&second)), (vec!["c".into(), "d".into()], version(&first)));
    let token = second["metadata"]["continue"].as_str().unwrap().replace('=', "%3D");
    let third = api.get(&format!("{path}?limit=2&continue={token}")).await.ok();
    assert_eq!((names(&third), third["metadata"].get("continue")), (vec!["e".into()], None));
    assert_eq!(third["metadata"].get("remainingItemCount"), None);
    let selected = api.get(&format!("{path}?limit=1&labelSelector=n")).await.ok();
    assert_eq!(selected["metadata"].get("remainingItemCount"), None);
    let answer = api.get(&format!("{path}?limit=1&continue=nonsense")).await;
    answer.fails(400, "BadRequest", "invalid continue token: continue key is not valid: *");
}

pub(crate) async fn versions_of_the_future_time_out(api: &Api) {
    let path = api.node("a", json!({})).await;
    let message = "Timeout: Too large resource version: 999999999, current: *";
    let status = api.get(&format!("{NODES}?resourceVersion=999999999")).await.fails(504, "Timeout", message);
    assert_eq!(status["details"]["retryAfterSeconds"], 1);
    assert_eq!(status["details"]["causes"][0]["reason"], "ResourceVersionTooLarge");
    api.get(&format!("{path}?resourceVersion=999999999")).await.fails(504, "Timeout", message);
}

pub(crate) async fn nonsense_in_list_options_is_refused(api: &Api) {
    let list = |query: &str| {
        let path = format!("{NODES}?{query}");
        async move { api.get(&path).await }
    };
    list("resourceVersion=abc").await.fails(400, "BadRequest", "invalid resource version: *");
    list("limit=x").await.fails(400, "BadRequest", "strconv.ParseInt: parsing \"x\": invalid syntax");
    list("labelSelector=a%20b").await.fails(400, "BadRequest", "unable to parse requirement: *");
    list("fieldSelector=spec.foo%3Dx").await.fails(400, "BadRequest", "field label not supported: spec.foo");
    let message =
        "*resourceVersionMatch: Forbidden: resourceVersionMatch is forbidden unless resourceVersion is provided";
    list("resourceVersionMatch=Exact").await.fails(422, "Invalid", message);
    let message = "*resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"";
    list("resourceVersionMatch=Exact&resourceVersion=0").await.fails(422, "Invalid", message);
    list("resourceVersionMatch=Foo&resourceVersion=1").await.fails(422, "Invalid", "*Unsupported value: \"Foo\"*");
    list("sendInitialEvents=true").await.fails(422, "Invalid", "*sendInitialEvents is forbidden for list");
    let leases = "/apis/coordination.k8s.io/v1/leases?fieldSelector=spec.foo%3Dx";
    api.get(leases).await.fails(
        400,
        "BadRequest",
        "\"spec.foo\" is not a known field selector: only \"metadata.name\", *",
    );
}

pub(crate) async fn labels_select(api: &Api) {
    let path = leases(api, &["a1", "a2", "b1"]).await;
    api.post(&path, json!({"metadata": {"name": "bare"}})).await.ok();
    for (selector, wanted) in [
        ("first=a", "a1 a2"),
        ("first%3D%3Da,n!%3Da1", "a2"),
        ("first!%3Da", "b1 bare"),
        ("first=a,+n+!=+a1", "a2"),
        ("first", "a1 a2 b1"),
        ("!first", "bare"),
    ] {
        let list = api.get(&format!("{path}?labelSelector={selector}")).await.ok();
        assert_eq!(names(&list).join(" "), wanted, "{selector}");
    }
}

pub(crate) async fn fields_select(api: &Api) {
    let services = api.namespaced("services").await;
    for (name, kind) in [("a", "ClusterIP"), ("b", "NodePort")] {
        let body = json!({"metadata": {"name": name}, "spec": {"type": kind, "ports": [{"port": 80}]}});
        api.post(&services, body).await.ok();
    }
    let select = |selector: &str| {
        let path = format!("{services}?fieldSelector={selector}");
        async move { names(&api.get(&path).await.ok()).join(" ") }
    };
    assert_eq!(select("spec.type%3DNodePort").await, "b");
    assert_eq!(select("metadata.name!%3Da").await, "b");
    let cordoned = api.node("c", json!({"spec": {"unschedulable": true}})).await;
    let list =
        api.get(&format!("{NODES}?fieldSelector=spec.unschedulable%3Dtrue,metadata.name%3D{}", api.name("c"))).await;
    assert_eq!(format!("{NODES}/{}", names(&list.ok()).join(" ")), cordoned);
    let elsewhere = format!("/api/v1/services?fieldSelector=metadata.namespace%3D{}", api.namespace());
    assert_eq!(names(&api.get(&elsewhere).await.ok()).join(" "), "a b");
}

pub(crate) async fn events_are_selected_by_their_object(api: &Api) {
    let events = api.namespaced("events").await;
    for (name, kind, reason) in [("a", "Service", "Made"), ("b", "Pod", "Made"), ("c", "Service", "Gone")] {
        let involved = json!({"kind": kind, "name": "x", "namespace": api.namespace(), "uid": "u"});
        let body = json!({"metadata": {"name": name}, "involvedObject": involved, "reason": reason, "type": "Normal"});
        api.post(&events, body).await.ok();
    }
    for (selector, wanted) in [
        ("involvedObject.kind%3DService,involvedObject.uid%3Du", "a c"),
        ("reason%3DMade", "a b"),
        ("involvedObject.name%3Dx,type%3DNormal,reason%3DGone", "c"),
    ] {
        let list = api.get(&format!("{events}?fieldSelector={selector}")).await.ok();
        assert_eq!(names(&list).join(" "), wanted, "{selector}");
    }
}

pub(crate) async fn tables_have_the_columns_of_kubectl(api: &Api) {
    let services = api.namespaced("services").await;
    let body = json!({"metadata": {"name": "a"},
        "spec": {"type": "LoadBalancer", "selector": {"a": "b"}, "ports": [{"port": 80}]}});
    let service = api.post(&services, body).await.ok();
    let table = async |path: &str| api.send("GET", path, "", TABLE, "").await.ok();
    let shown = table(&services).await;
    assert_eq!((shown["kind"].as_str(), shown["apiVersion"].as_str()), (Some("Table"), Some("meta.k8s.io/v1")));
    let columns: Vec<&str> =
        shown["columnDefinitions"].as_array().unwrap().iter().map(|one| one["name"].as_str().unwrap()).collect();
    assert_eq!(columns, ["Name", "Type", "Cluster-IP", "External-IP", "Port(s)", "Age", "Selector"]);
    let cells = &shown["rows"][0]["cells"];
    let ports = format!("80:{}/TCP", service["spec"]["ports"][0]["nodePort"]);
    assert_eq!((&cells[1], &cells[3], &cells[4]), (&json!("LoadBalancer"), &json!("<pending>"), &json!(ports)));
    assert_eq!((&cells[2], &cells[6]), (&service["spec"]["clusterIP"], &json!("a=b")));
    assert_eq!(shown["rows"][0]["object"]["kind"], "PartialObjectMetadata");
    let path = api
        .node("n", json!({"metadata": {"labels": {"node-role.kubernetes.io/x": ""}}, "spec": {"unschedulable": true}}));
    let shown = table(&path.await).await;
    let cells = &shown["rows"][0]["cells"];
    assert_eq!((&cells[1], &cells[2]), (&json!("Unknown,SchedulingDisabled"), &json!("x")));
    let shown = table("/api/v1/events?limit=1").await;
    assert_eq!(shown["kind"], "Table");
}

pub(crate) async fn discovery_names_the_resources(api: &Api) {
    assert_eq!(api.get("/api").await.ok()["versions"], json!(["v1"]));
    let groups = api.get("/apis").await.ok();
    assert!(groups["groups"].as_array().unwrap().iter().any(|group| group["name"] == "coordination.k8s.io"));
    let core = api.get("/api/v1").await.ok();
    let find = |list: &Value, name: &str| {
        let resources = list["resources"].as_array().unwrap();
        let mut found = resources.iter().find(|one| one["name"] == name).cloned().unwrap();
        found.as_object_mut().unwrap().remove("storageVersionHash");
        found
    };
    let mut nodes = find(&core, "nodes");
    nodes["verbs"].as_array_mut().unwrap().retain(|verb| verb != "deletecollection");
    let verbs = json!(["create", "delete", "get", "list", "patch", "update", "watch"]);
    let wanted = json!({"name": "nodes", "singularName": "node", "namespaced": false, "kind": "Node", "verbs": verbs,
        "shortNames": ["no"]});
    assert_eq!(nodes, wanted);
    assert_eq!(find(&core, "services/status")["verbs"], json!(["get", "patch", "update"]));
    let leases = api.get("/apis/coordination.k8s.io/v1").await.ok();
    assert_eq!(find(&leases, "leases")["kind"], "Lease");
    let paths = api.get("/openapi/v3").await.ok();
    assert!(paths["paths"]["api/v1"]["serverRelativeURL"].is_string());
}
