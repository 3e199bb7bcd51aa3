//! Watches.

use crate::api::{Api, MERGE, NODES, version};
use serde_json::{Value, json};

async fn lease(api: &Api, path: &str, name: &str, label: &str) -> Value {
    api.post(path, json!({"metadata": {"name": name, "labels": {"l": label}}})).await.ok()
}

fn pair(kind: &str, name: &str) -> (String, String) {
    (kind.to_owned(), name.to_owned())
}

pub(crate) async fn a_watch_replays_changes_after_its_version(api: &Api) {
    let path = api.namespaced("leases").await;
    let first = lease(api, &path, "a", "x").await;
    lease(api, &path, "b", "x").await;
    api.patch(MERGE, &format!("{path}/a"), json!({"spec": {"holderIdentity": "v"}})).await.ok();
    let mut events = api.watch(&format!("{path}?resourceVersion={}", version(&first))).await;
    assert_eq!(events.brief().await, pair("ADDED", "b"));
    let changed = events.next().await.unwrap();
    assert_eq!((&changed["type"], &changed["object"]["spec"]), (&json!("MODIFIED"), &json!({"holderIdentity": "v"})));
    assert_eq!(changed["object"]["apiVersion"], "coordination.k8s.io/v1");
    api.delete(&format!("{path}/b")).await.ok();
    assert_eq!(events.brief().await, pair("DELETED", "b"));
    lease(api, &path, "c", "x").await;
    assert_eq!(events.brief().await, pair("ADDED", "c"));
}

pub(crate) async fn a_watch_without_version_begins_with_the_objects(api: &Api) {
    let path = api.namespaced("leases").await;
    lease(api, &path, "a", "x").await;
    lease(api, &path, "b", "x").await;
    for query in ["", "?resourceVersion=0", "?resourceVersion="] {
        let mut events = api.watch(&format!("{path}{query}")).await;
        let mut found = [events.brief().await, events.brief().await];
        found.sort();
        assert_eq!(found, [pair("ADDED", "a"), pair("ADDED", "b")]);
        assert!(events.is_quiet().await);
    }
}

pub(crate) async fn an_initial_list_ends_with_a_bookmark(api: &Api) {
    let path = api.namespaced("leases").await;
    let made = lease(api, &path, "a", "x").await;
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{path}?{query}")).await;
    assert_eq!(events.brief().await, pair("ADDED", "a"));
    let end = events.next().await.unwrap();
    assert_eq!((&end["type"], &end["object"]["kind"]), (&json!("BOOKMARK"), &json!("Lease")));
    assert_eq!(end["object"]["metadata"]["annotations"], json!({"k8s.io/initial-events-end": "true"}));
    let number = |version: String| version.parse::<u64>().unwrap();
    assert!(number(version(&end["object"])) >= number(version(&made)));
    lease(api, &path, "b", "x").await;
    assert_eq!(events.brief().await, pair("ADDED", "b"));
    // A bookmark of a typed object contains its members without `omitempty`.
    let mut events = api.watch(&format!("{NODES}?{query}&labelSelector=no-such-label")).await;
    let end = events.next().await.unwrap();
    assert_eq!(end["object"]["spec"], json!({}));
    assert_eq!(end["object"]["status"]["nodeInfo"]["kubeletVersion"], "");
}

pub(crate) async fn initial_events_need_the_right_match(api: &Api) {
    let watch = |query: &str| {
        let path = format!("{NODES}?watch=true&{query}");
        async move { api.get(&path).await }
    };
    let message = "*sendInitialEvents requires setting resourceVersionMatch to NotOlderThan";
    watch("sendInitialEvents=true").await.fails(422, "Invalid", message);
    watch("sendInitialEvents=true&resourceVersionMatch=Exact").await.fails(
        422,
        "Invalid",
        "*Unsupported value: \"Exact\"*",
    );
    let message = "*resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided";
    watch("resourceVersionMatch=NotOlderThan").await.fails(422, "Invalid", message);
    watch("resourceVersion=abc").await.fails(500, "", "resourceVersion: Invalid value: \"abc\": *");
}

pub(crate) async fn leaving_the_selection_looks_like_a_deletion(api: &Api) {
    let path = api.namespaced("leases").await;
    let made = lease(api, &path, "a", "in").await;
    let mut events = api.watch(&format!("{path}?labelSelector=l%3Din&resourceVersion={}", version(&made))).await;
    let left = api.patch(MERGE, &format!("{path}/a"), json!({"metadata": {"labels": {"l": "out"}}})).await.ok();
    let event = events.next().await.unwrap();
    assert_eq!(event["type"], "DELETED");
    assert_eq!(event["object"]["metadata"]["labels"], json!({"l": "in"}));
    assert_eq!(version(&event["object"]), version(&left));
    api.patch(MERGE, &format!("{path}/a"), json!({"metadata": {"annotations": {"x": "y"}}})).await.ok();
    api.patch(MERGE, &format!("{path}/a"), json!({"metadata": {"labels": {"l": "in"}}})).await.ok();
    assert_eq!(events.brief().await, pair("ADDED", "a"));
}

pub(crate) async fn a_deletion_has_the_version_of_the_deletion(api: &Api) {
    let path = api.namespaced("leases").await;
    let made = lease(api, &path, "a", "x").await;
    let mut events = api.watch(&format!("{path}?resourceVersion={}", version(&made))).await;
    api.delete(&format!("{path}/a")).await.ok();
    let event = events.next().await.unwrap();
    let number = |version: String| version.parse::<u64>().unwrap();
    assert!(number(version(&event["object"])) > number(version(&made)));
    assert_eq!(event["object"]["metadata"]["uid"], made["metadata"]["uid"]);
}

pub(crate) async fn a_watch_ends_at_its_timeout(api: &Api) {
    let path = api.namespaced("leases").await;
    let mut events = api.watch(&format!("{path}?timeoutSeconds=1")).await;
    assert_eq!(events.next().await, None);
}

pub(crate) async fn a_watch_from_the_future_waits(api: &Api) {
    let path = api.namespaced("leases").await;
    let mut events = api.watch(&format!("{path}?resourceVersion=999999999")).await;
    lease(api, &path, "a", "x").await;
    assert!(events.is_quiet().await);
}

pub(crate) async fn initial_events_from_the_future_end_with_an_error(api: &Api) {
    let query = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";
    let mut events = api.watch(&format!("{NODES}?{query}&resourceVersion=999999999")).await;
    let event = events.next().await.unwrap();
    assert_eq!((&event["type"], &event["object"]["code"]), (&json!("ERROR"), &json!(504)));
    assert_eq!((&event["object"]["kind"], &event["object"]["reason"]), (&json!("Status"), &json!("Timeout")));
    let message = event["object"]["message"].as_str().unwrap();
    assert!(message.starts_with("Timeout: Too large resource version: 999999999, current: "), "{message}");
    let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
    assert_eq!(event["object"]["details"], json!({"causes": [cause], "retryAfterSeconds": 1}));
    assert_eq!(events.next().await, None);
}

pub(crate) async fn a_watch_covers_one_namespace(api: &Api) {
    let path = api.namespaced("leases").await;
    let other = "/apis/coordination.k8s.io/v1/namespaces/default/leases";
    let name = api.namespace();
    let mut events = api.watch(&path).await;
    lease(api, other, &name, "x").await;
    lease(api, &path, "mine", "x").await;
    assert_eq!(events.brief().await, pair("ADDED", "mine"));
    let mut one = api.watch(&format!("{path}?fieldSelector=metadata.name%3Dother")).await;
    assert!(one.is_quiet().await);
}
