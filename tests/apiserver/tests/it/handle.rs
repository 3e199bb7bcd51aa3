//! The in-process handle: direct access, the log, calls without a socket, size.

use crate::api::{Api, NODES, STRATEGIC};
use bytes::Bytes;
use ccm_test_apiserver::{
    ApiServer, DeleteOptions, EventType, Fault, ListOptions, Match, Options, Patch, Store, WatchOptions,
};
use http_body_util::{BodyExt, Empty};
use serde_json::json;
use std::time::{Duration, Instant};

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
    let node = store.create("nodes", "", json!({"metadata": {"generateName": "n-"}})).unwrap();
    let name = node["metadata"]["name"].as_str().unwrap();
    let mut watch = store.watch("nodes", &WatchOptions::default()).unwrap();
    assert_eq!(watch.next().await.unwrap().event, EventType::Added);
    let patch = Patch::Merge(json!({"metadata": {"labels": {"a": "b"}}}));
    store.patch("nodes", "", name, &patch).unwrap();
    assert_eq!(watch.next().await.unwrap().value()["metadata"]["labels"], json!({"a": "b"}));
    assert!(watch.try_next().is_none());
    let wrong = DeleteOptions { uid: Some("x".into()), ..DeleteOptions::default() };
    assert_eq!(store.delete_with("nodes", "", name, &wrong).unwrap_err().code, 409);
    store.delete("nodes", "", name).unwrap();
    assert_eq!(store.objects("nodes").unwrap(), Vec::<serde_json::Value>::new());
    // The same seed gives the same names.
    let other = Store::new(Options { seed: Some(1), ..Options::default() });
    let again = other.create("nodes", "", json!({"metadata": {"generateName": "n-"}})).unwrap();
    assert_eq!(
        (&again["metadata"]["name"], &again["metadata"]["uid"]),
        (&node["metadata"]["name"], &node["metadata"]["uid"])
    );
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
async fn a_token_is_required_when_one_is_set() {
    let options = Options { token: Some("secret".into()), ..Options::default() };
    let server = ApiServer::start(options).await.unwrap();
    let answer = Api::new(&server.url(), "wrong", None, "f").get(NODES).await;
    answer.fails(401, "Unauthorized", "Unauthorized");
    Api::new(&server.url(), "secret", None, "f").get(NODES).await.ok();
    assert!(server.kubeconfig().contains("token: secret"));
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
async fn a_deleted_namespace_takes_its_contents_and_waits_for_finalizers() {
    let store = Store::new(Options::default());
    store.create("namespaces", "", json!({"metadata": {"name": "x"}})).unwrap();
    let held = json!({"metadata": {"name": "held", "finalizers": ["a.b/c"]}});
    store.create("configmaps", "x", held).unwrap();
    store.create("configmaps", "x", json!({"metadata": {"name": "free"}})).unwrap();
    store.delete("namespaces", "", "x").unwrap();
    assert_eq!(store.get("configmaps", "x", "free").unwrap_err().code, 404);
    let refused = store.create("configmaps", "x", json!({"metadata": {"name": "new"}})).unwrap_err();
    assert_eq!(refused.code, 403);
    let patch = Patch::Merge(json!({"metadata": {"finalizers": null}}));
    store.patch("configmaps", "x", "held", &patch).unwrap();
    assert_eq!(store.get("namespaces", "", "x").unwrap_err().code, 404);
}

/// Bounds with much room: they catch a copy of everything per write, not a busy machine.
#[tokio::test]
async fn five_thousand_large_nodes_are_no_burden() {
    let server = ApiServer::start(Options::default()).await.unwrap();
    let store = server.store();
    let images: Vec<_> = (0..180)
        .map(|n| json!({"names": [format!("registry.example.com/some/image/{n:050}")], "sizeBytes": n}))
        .collect();
    let begun = Instant::now();
    for n in 0..5000 {
        let node = json!({"metadata": {"name": format!("node-{n}")}, "status": {"images": images}});
        store.create("nodes", "", node).unwrap();
    }
    let made = begun.elapsed();
    let begun = Instant::now();
    for n in 0..500 {
        let patch = Patch::Strategic(json!({"metadata": {"labels": {"n": n.to_string()}}}));
        store.patch("nodes", "", &format!("node-{n}"), &patch).unwrap();
    }
    let patched = begun.elapsed() / 500;
    let begun = Instant::now();
    for _ in 0..10 {
        assert_eq!(store.list("nodes", &ListOptions::default()).unwrap().items.len(), 5000);
    }
    let listed = begun.elapsed() / 10;
    let begun = Instant::now();
    let api = Api::new(&server.url(), "any", None, "f");
    let bytes = api.get(NODES).await.text.len();
    let sent = begun.elapsed();
    println!("made {made:?}, patch {patched:?}, list {listed:?}, {bytes} bytes over HTTP in {sent:?}");
    assert!(patched < Duration::from_millis(50) && listed < Duration::from_millis(250), "{patched:?} {listed:?}");
    server.stop().await;
}
