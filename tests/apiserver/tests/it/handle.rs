//! The in-process handle: direct access, the log, calls without a socket, unimplemented requests.

use crate::api::{Api, NODES, STRATEGIC};
use bytes::Bytes;
use ccm_test_apiserver::{ApiServer, EventType, Fault, Match, Options, Patch, Store};
use http_body_util::{BodyExt, Empty};
use serde_json::json;
use std::time::Duration;

#[tokio::test]
async fn writes_are_logged_with_their_sender_and_answer() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let api = Api::new(&server.url(), "any", None, "f");
    server.store().create("nodes", "", json!({"metadata": {"name": "a"}})).unwrap();
    let patch = json!({"status": {"addresses": []}});
    api.patch(STRATEGIC, &format!("{NODES}/a/status"), patch.clone()).await.ok();
    api.delete(&format!("{NODES}/none")).await;
    api.get(NODES).await.ok();
    assert_eq!(server.store().log().writes().len(), 3);
    let remote = server.store().log().remote_writes();
    let first = remote.first().unwrap();
    assert_eq!((first.verb, first.resource, first.name.as_str()), ("patch", "nodes", "a"));
    assert_eq!((first.subresource.as_str(), first.user_agent.as_str(), first.status), ("status", "conformance", 200));
    assert_eq!((&first.body, first.content_type.as_str()), (&patch, STRATEGIC));
    assert_eq!(remote.get(1).map(|entry| (entry.verb, entry.status)), Some(("delete", 404)));
    assert_eq!(server.store().log().count_of("list", "nodes"), 1);
    server.store().log().clear();
    assert_eq!(server.store().log().writes(), []);
    server.stop().await;
}

#[tokio::test]
async fn a_store_works_without_http() {
    let store = Store::new(Options { seed: Some(1), ..Options::default() });
    let node = store.create("nodes", "", json!({"metadata": {"name": "n"}})).unwrap();
    let mut watch = store.watch("nodes").unwrap();
    assert_eq!(watch.next().await.unwrap().event, EventType::Added);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    store.patch("nodes", "", "n", &patch).unwrap();
    assert_eq!(watch.next().await.unwrap().value()["metadata"]["labels"], json!({"a": "b"}));
    assert!(watch.try_next().is_none());
    store.delete("nodes", "", "n").unwrap();
    assert_eq!(store.objects("nodes").unwrap(), Vec::<serde_json::Value>::new());
    // The same seed produces the same UIDs.
    let other = Store::new(Options { seed: Some(1), ..Options::default() });
    let again = other.create("nodes", "", json!({"metadata": {"name": "n"}})).unwrap();
    assert_eq!(again["metadata"]["uid"], node["metadata"]["uid"]);
}

#[tokio::test(start_paused = true)]
async fn requests_need_no_socket_and_obey_paused_time() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    server.faults().add(Fault::latency(Duration::from_secs(3600)).on(Match::on("list", "nodes")));
    let begun = tokio::time::Instant::now();
    let request = http::Request::get(NODES).body(Empty::<Bytes>::new()).unwrap();
    let answer = server.handler().call(request).await.unwrap();
    assert!(begun.elapsed() >= Duration::from_secs(3600));
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    assert!(body.starts_with(b"{\"kind\":\"NodeList\""));
    server.stop().await;
}

#[tokio::test]
async fn dual_stack_services_get_two_addresses() {
    let store = Store::new(Options { dual_stack: true, ..Options::default() });
    let spec = json!({"ipFamilyPolicy": "RequireDualStack", "ports": [{"port": 80}]});
    let service = store.create("services", "default", json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    assert_eq!(service["spec"]["ipFamilies"], json!(["IPv4", "IPv6"]));
    assert_eq!(service["spec"]["clusterIPs"].as_array().unwrap().len(), 2);
}

#[tokio::test]
async fn unimplemented_requests_are_refused_with_501() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let api = Api::new(&server.url(), "any", None, "f");
    let path = api.node("a", json!({})).await;
    let labels = json!({"metadata": {"labels": {"$retainKeys": ["b"], "b": "c"}}});
    for answer in [
        api.delete(NODES).await,
        api.delete("/api/v1/namespaces/default").await,
        api.delete(&format!("{path}?dryRun=All")).await,
        api.patch(STRATEGIC, &path, labels).await,
        api.post(NODES, json!({"metadata": {"generateName": "a"}})).await,
        api.put("/api/v1/namespaces/default/events/a", json!({"metadata": {"name": "a"}})).await,
        api.get(&format!("{NODES}?resourceVersion=1&resourceVersionMatch=Exact")).await,
    ] {
        answer.fails(501, "NotImplemented", "the in-memory API server does not implement *");
    }
    api.get(&path).await.ok();
    for format in ["application/json-patch+json", "application/apply-patch+yaml"] {
        api.patch(format, &path, json!([])).await.fails(415, "UnsupportedMediaType", "*");
    }
    let selector = format!("{NODES}?labelSelector=a%20in%20(b)");
    api.get(&selector).await.fails(400, "BadRequest", "unable to parse requirement: *");
    let yaml = api.send("POST", NODES, "application/yaml", "application/json", "a: b").await;
    yaml.fails(415, "UnsupportedMediaType", "*");
    server.stop().await;
}
