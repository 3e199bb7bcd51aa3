//! The switches for faults, over HTTP as for clients.

use crate::api::{Answer, Api, MERGE, NODES, version};
use ccm_test_apiserver::{ApiServer, Effect, Fault, Match, Options, StreamingLists};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

const STREAMING: &str = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan&allowWatchBookmarks=true";

async fn start() -> (ApiServer, Api) {
    start_with(Options::default()).await
}

async fn start_with(options: Options) -> (ApiServer, Api) {
    let server = ApiServer::start(options).await.unwrap();
    let api = Api::new(&server.url(), "any", None, "f");
    server.store().create("nodes", "", json!({"metadata": {"name": "a"}})).unwrap();
    (server, api)
}

async fn try_create(api: &Api, name: &str) -> Result<Answer, String> {
    let body = json!({"metadata": {"name": name}}).to_string();
    api.try_send("POST", NODES, "application/json", "application/json", &body).await
}

#[tokio::test]
async fn throttling_is_counted_and_says_when_to_come_back() {
    let (server, api) = start().await;
    let fault = server.faults().add(Fault::too_many_requests(7).on(Match::on("list", "nodes")).skip(1).times(2));
    let mut codes = Vec::new();
    for _ in 0..4 {
        codes.push(api.get(NODES).await);
    }
    assert_eq!(codes.iter().map(|answer| answer.code).collect::<Vec<_>>(), [200, 429, 429, 200]);
    assert_eq!(codes[1].headers["retry-after"], "7");
    assert_eq!(codes[1].json()["reason"], "TooManyRequests");
    assert_eq!(server.faults().fired(fault), 2);
    assert_eq!(api.get(&format!("{NODES}/a")).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn every_nth_request_fails_by_count() {
    let (server, api) = start().await;
    server.faults().add(Fault::status(503).on(Match::on("get", "nodes").named("a")).every(3));
    let mut codes = Vec::new();
    for _ in 0..6 {
        codes.push(api.get(&format!("{NODES}/a")).await.code);
    }
    assert_eq!(codes, [503, 200, 200, 503, 200, 200]);
    server.faults().clear();
    assert_eq!(api.get(&format!("{NODES}/a")).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_proxy_page_is_html() {
    let (server, api) = start().await;
    server.faults().add(Fault::new(Effect::HtmlPage { code: 502 }).times(1));
    let answer = api.get(NODES).await;
    assert_eq!((answer.code, answer.headers["content-type"].to_str().unwrap()), (502, "text/html"));
    assert!(answer.text.contains("502 Bad Gateway"), "{}", answer.text);
    server.stop().await;
}

#[tokio::test]
async fn a_lost_request_has_no_effect_and_a_lost_answer_has() {
    let (server, api) = start().await;
    server.faults().add(Fault::new(Effect::LoseRequest).on(Match::on("create", "nodes").named("before")));
    server.faults().add(Fault::new(Effect::LoseAnswer).on(Match::on("create", "nodes").named("after")));
    server
        .faults()
        .add(Fault::new(Effect::FailAfterEffect { code: 500 }).on(Match::on("create", "nodes").named("late")));
    assert!(try_create(&api, "before").await.is_err());
    assert!(try_create(&api, "after").await.is_err());
    assert_eq!(try_create(&api, "late").await.unwrap().code, 500);
    let mut codes = Vec::new();
    for name in ["before", "after", "late"] {
        codes.push(api.get(&format!("{NODES}/{name}")).await.code);
    }
    assert_eq!(codes, [404, 200, 200]);
    server.stop().await;
}

#[tokio::test]
async fn latency_delays_the_answer() {
    let (server, api) = start().await;
    server.faults().add(Fault::latency(Duration::from_millis(80)).on(Match::on("get", "nodes")));
    let begun = Instant::now();
    api.get(&format!("{NODES}/a")).await.ok();
    assert!(begun.elapsed() >= Duration::from_millis(80));
    server.stop().await;
}

#[tokio::test]
async fn open_watches_can_be_dropped_by_resource() {
    let (server, api) = start().await;
    let mut nodes = api.watch(NODES).await;
    let mut spaces = api.watch("/api/v1/namespaces").await;
    assert_eq!(nodes.brief().await.1, "a");
    for _ in 0..4 {
        spaces.next().await.unwrap();
    }
    server.faults().drop_watches(Some("nodes"));
    assert_eq!(nodes.next().await, None);
    assert!(spaces.is_quiet().await);
    let mut again = api.watch(NODES).await;
    assert_eq!(again.brief().await.1, "a");
    server.stop().await;
}

#[tokio::test]
async fn watches_end_after_so_many_events() {
    let (server, api) = start().await;
    for name in ["b", "c"] {
        server.store().create("nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }
    let end = Effect::EndWatch { after: 2, abrupt: true };
    server.faults().add(Fault::new(end).on(Match::on("watch", "nodes")).times(1));
    let mut events = api.watch(NODES).await;
    assert_eq!((events.brief().await.1, events.brief().await.1), ("a".into(), "b".into()));
    assert_eq!(events.next().await, None);
    server.faults().add(Fault::status(503).on(Match::on("watch", "nodes")).times(1));
    assert_eq!(api.get(&format!("{NODES}?watch=true")).await.code, 503);
    let fault = Fault::new(Effect::FailWatch { after: 1, code: 410 });
    server.faults().add(fault.on(Match::on("watch", "nodes")).times(1));
    let mut events = api.watch(NODES).await;
    assert_eq!(events.brief().await.1, "a");
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["reason"]), (&json!("ERROR"), &json!("Expired")));
    assert_eq!(events.next().await, None);
    server.stop().await;
}

#[tokio::test]
async fn frozen_watches_deliver_late() {
    let (server, api) = start().await;
    let now = version(&api.get(NODES).await.ok());
    let mut events = api.watch(&format!("{NODES}?resourceVersion={now}")).await;
    server.faults().freeze_watches(Some("nodes"));
    server.store().create("nodes", "", json!({"metadata": {"name": "b"}})).unwrap();
    assert!(events.is_quiet().await);
    server.faults().thaw_watches(Some("nodes"));
    assert_eq!(events.brief().await, ("ADDED".into(), "b".into()));
    server.stop().await;
}

#[tokio::test]
async fn stale_reads_show_the_past_while_writes_see_the_truth() {
    let (server, api) = start().await;
    server.faults().stale_reads("nodes");
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let truth = api.patch(MERGE, &format!("{NODES}/a"), patch).await.ok();
    server.store().create("nodes", "", json!({"metadata": {"name": "b"}})).unwrap();
    let stale = api.get(&format!("{NODES}/a")).await.ok();
    assert_ne!(version(&stale), version(&truth));
    let list = api.get(NODES).await.ok();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    // A watch from the stale list catches up.
    let mut events = api.watch(&format!("{NODES}?resourceVersion={}", version(&list))).await;
    assert_eq!((events.brief().await.0, events.brief().await.1), ("MODIFIED".into(), "b".into()));
    assert_eq!(api.put(&format!("{NODES}/a"), stale).await.code, 409);
    server.faults().fresh_reads("nodes");
    assert_eq!(api.get(NODES).await.ok()["items"].as_array().unwrap().len(), 2);
    server.stop().await;
}

#[tokio::test]
async fn expired_versions_get_an_error_event_and_expired_tokens_a_way_on() {
    let (server, api) = start().await;
    for name in ["b", "c"] {
        server.store().create("nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }
    let page = api.get(&format!("{NODES}?limit=1")).await.ok();
    let old = version(&page);
    server.store().create("nodes", "", json!({"metadata": {"name": "d"}})).unwrap();
    let mut open = api.watch(&format!("{NODES}?resourceVersion={}", server.store().version())).await;
    server.store().compact("nodes").unwrap();
    let mut events = api.watch(&format!("{NODES}?resourceVersion={old}")).await;
    let error = events.next().await.unwrap();
    assert_eq!(
        (&error["type"], &error["object"]["code"], &error["object"]["reason"]),
        (&json!("ERROR"), &json!(410), &json!("Expired"))
    );
    assert!(error["object"]["message"].as_str().unwrap().starts_with("too old resource version: "));
    assert_eq!(events.next().await, None);
    let token = page["metadata"]["continue"].as_str().unwrap();
    let message = "The provided continue parameter is too old to display a consistent list result.*";
    let answer = api.get(&format!("{NODES}?limit=1&continue={token}")).await.fails(410, "Expired", message);
    let token = answer["metadata"]["continue"].as_str().unwrap();
    let rest = api.get(&format!("{NODES}?continue={token}")).await.ok();
    assert_eq!(rest["items"].as_array().unwrap().len(), 3);
    // A watch that had received everything continues.
    server.store().create("nodes", "", json!({"metadata": {"name": "e"}})).unwrap();
    assert_eq!(open.brief().await.1, "e");
    server.stop().await;
}

#[tokio::test]
async fn a_slow_watch_loses_its_place_in_a_short_history() {
    let (server, api) = start_with(Options { history: 3, ..Options::default() }).await;
    let mut events = api.watch(NODES).await;
    events.next().await.unwrap();
    server.faults().freeze_watches(None);
    for name in ["b", "c", "d", "e", "f"] {
        server.store().create("nodes", "", json!({"metadata": {"name": name}})).unwrap();
    }
    server.faults().thaw_watches(None);
    let error = events.next().await.unwrap();
    assert_eq!((&error["type"], &error["object"]["code"]), (&json!("ERROR"), &json!(410)));
    assert_eq!(events.next().await, None);
    server.stop().await;
}

/// The response of kube-apiserver 1.36 with etcd 3.4.23.
#[tokio::test]
async fn an_old_storage_answers_a_streaming_list_with_an_error_event() {
    let (server, api) = start_with(Options { streaming_lists: StreamingLists::NoProgress, ..Options::default() }).await;
    let answer = api.get(&format!("{NODES}?watch=true&{STREAMING}")).await;
    let event = r#"{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"a watch stream was requested by the client but the required storage feature RequestWatchProgress is disabled","reason":"InternalError","code":500}}"#;
    let event: Value = serde_json::from_str(event).unwrap();
    assert_eq!((answer.code, answer.json()), (200, event));
    assert_eq!(api.get(NODES).await.ok()["items"].as_array().unwrap().len(), 1);
    server.stop().await;
}

#[tokio::test]
async fn a_server_without_the_feature_refuses_streaming_lists() {
    let (server, api) = start_with(Options { streaming_lists: StreamingLists::Forbidden, ..Options::default() }).await;
    streaming_lists_are_forbidden(&api).await;
    server.stop().await;
}

/// The behavior of a real API server with `--feature-gates=WatchList=false`, see `real_apiserver`.
pub(crate) async fn streaming_lists_are_forbidden(api: &Api) {
    let detail = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled";
    let message = format!("ListOptions.meta.k8s.io \"\" is invalid: sendInitialEvents: Forbidden: {detail}");
    let status = api.get(&format!("{NODES}?watch=true&{STREAMING}")).await.fails(422, "Invalid", &message);
    let cause = json!({"reason": "FieldValueForbidden", "message": format!("Forbidden: {detail}"),
        "field": "sendInitialEvents"});
    assert_eq!(status["details"], json!({"group": "meta.k8s.io", "kind": "ListOptions", "causes": [cause]}));
}

#[tokio::test]
async fn a_watch_cache_that_lags_answers_reads_with_a_version_only() {
    let (server, api) = start().await;
    server.faults().lag_cache("nodes");
    let cached = server.store().version();
    server.store().create("nodes", "", json!({"metadata": {"name": "b"}})).unwrap();
    let now = server.store().version();
    let list = async |query: &str| api.get(&format!("{NODES}?{query}")).await;
    for (query, items) in [
        (String::new(), 2),
        ("limit=50".to_owned(), 2),
        ("resourceVersion=0".to_owned(), 1),
        (format!("resourceVersion={cached}&resourceVersionMatch=NotOlderThan"), 1),
    ] {
        let found = list(&query).await.ok();
        assert_eq!(found["items"].as_array().unwrap().len(), items, "{query}");
        let expected = if items == 1 { cached } else { now };
        assert_eq!(version(&found), expected.to_string(), "{query}");
    }
    let message = format!("Timeout: Too large resource version: {now}, current: {cached}");
    list(&format!("resourceVersion={now}&resourceVersionMatch=NotOlderThan")).await.fails(504, "Timeout", &message);
    api.get(&format!("{NODES}/a?resourceVersion={now}")).await.fails(504, "Timeout", &message);
    let mut events = api.watch(&format!("{NODES}?{STREAMING}&resourceVersion={now}")).await;
    assert_eq!(events.next().await.unwrap()["object"]["message"], message);
    let mut events = api.watch(&format!("{NODES}?{STREAMING}&resourceVersion={cached}")).await;
    assert_eq!(events.brief().await, ("ADDED".into(), "a".into()));
    assert_eq!(version(&events.next().await.unwrap()["object"]), cached.to_string());
    server.stop().await;
}

#[tokio::test]
async fn a_restored_storage_shows_the_past_and_goes_on_from_there() {
    let options = Options { bookmark_interval: Duration::from_millis(20), ..Options::default() };
    let (server, api) = start_with(options).await;
    let then = server.store().version();
    let patch = json!({"metadata": {"labels": {"a": "b"}}});
    let changed = api.patch(MERGE, &format!("{NODES}/a"), patch).await.ok();
    server.store().create("nodes", "", json!({"metadata": {"name": "b"}})).unwrap();
    let future = server.store().version();
    let mut events = api.watch(&format!("{NODES}?resourceVersion={future}&allowWatchBookmarks=true")).await;
    server.store().restore(then);
    let list = api.get(NODES).await.ok();
    assert_eq!((list["items"].as_array().unwrap().len(), version(&list)), (1, then.to_string()));
    assert_eq!(list["items"][0]["metadata"].get("labels"), None);
    let again = api.patch(MERGE, &format!("{NODES}/a"), json!({"metadata": {"labels": {"c": "d"}}})).await.ok();
    assert_eq!(version(&again), version(&changed), "versions are given a second time");
    assert!(events.is_quiet().await, "neither events nor bookmarks before the future has come");
    server.stop().await;
}

#[tokio::test]
async fn bookmarks_come_when_they_are_allowed() {
    let options = Options { bookmark_interval: Duration::from_millis(50), ..Options::default() };
    let (server, api) = start_with(options).await;
    let now = server.store().version();
    let mut events = api.watch(&format!("{NODES}?resourceVersion={now}&allowWatchBookmarks=true")).await;
    server.store().create("leases", "default", json!({"metadata": {"name": "x"}})).unwrap();
    let bookmark = events.next().await.unwrap();
    assert_eq!((&bookmark["type"], bookmark["object"]["metadata"].get("annotations")), (&json!("BOOKMARK"), None));
    assert!(version(&bookmark["object"]).parse::<u64>().unwrap() >= now);
    server.stop().await;
}
