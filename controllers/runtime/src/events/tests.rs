use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use ccm_provider::{ErrorClass, EventSink, EventType, Subject};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full};
use kube::client::Body;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep};

use super::{ComponentRecorder, Delivery, Recorder};
use crate::client::{Call, Client, Urgency};
use crate::clock::SimulatedClock;
use crate::gate::Gate;
use crate::leader::Leadership;
use crate::metrics::Metrics;

/// The answer to the nth request: a status, or `None` for a connection error.
type Fault = Box<dyn Fn(usize, &Method) -> Option<u16> + Send>;

struct Inner {
    objects: BTreeMap<String, Value>,
    /// Method, path, body, and time.
    log: Vec<(Method, String, Value, Instant)>,
    fault: Fault,
    slow: Duration,
    in_flight: usize,
    most_in_flight: usize,
}

type Server = Arc<Mutex<Inner>>;

async fn serve(server: Server, request: Request<Body>) -> Result<Response<Full<Bytes>>, std::io::Error> {
    let (method, path) = (request.method().clone(), request.uri().path().to_owned());
    let kind = request.headers().get(http::header::CONTENT_TYPE).cloned().unwrap();
    let expected = if method == Method::POST { "application/json" } else { "application/strategic-merge-patch+json" };
    assert_eq!(kind, expected);
    let body = request.into_body().collect().await.unwrap().to_bytes();
    let body: Value = serde_json::from_slice(&body).unwrap();
    let slow = {
        let mut inner = server.lock();
        inner.in_flight += 1;
        inner.most_in_flight = inner.most_in_flight.max(inner.in_flight);
        if path.contains("/events") { inner.slow } else { s(60) }
    };
    sleep(slow).await;
    let mut inner = server.lock();
    inner.in_flight -= 1;
    let fault = (inner.fault)(inner.log.len(), &method);
    inner.log.push((method.clone(), path.clone(), body.clone(), Instant::now()));
    let Some(mut code) = fault else { return Err(std::io::Error::other("connection refused")) };
    if code == 200 {
        code = inner.write(&method, &path, body);
    }
    let answer = match code {
        200 => json!({}),
        404 => json!({"kind": "Status", "code": code, "reason": "NotFound", "message": "status 404"}),
        _ => json!({"kind": "Status", "code": code, "message": format!("status {code}")}),
    };
    let mut response = Response::new(Full::from(answer.to_string()));
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    Ok(response)
}

impl Inner {
    fn write(&mut self, method: &Method, path: &str, body: Value) -> u16 {
        if *method == Method::POST {
            let path = format!("{path}/{}", body["metadata"]["name"].as_str().unwrap());
            return if self.objects.insert(path, body).is_some() { 409 } else { 200 };
        }
        let Some(object) = self.objects.get_mut(path) else { return 404 };
        for (field, value) in body.as_object().unwrap() {
            object[field] = value.clone();
        }
        200
    }
}

struct Bed {
    server: Server,
    gate: Gate,
    recorder: Recorder,
    events: ComponentRecorder,
    leadership: Leadership,
    metrics: Metrics,
    _idle: Option<Delivery>,
}

impl Bed {
    fn new() -> Self {
        Self::with(|_, _| Some(200), true)
    }

    fn with(fault: impl Fn(usize, &Method) -> Option<u16> + Send + 'static, deliver: bool) -> Self {
        let server = Arc::new(Mutex::new(Inner {
            objects: BTreeMap::new(),
            log: Vec::new(),
            fault: Box::new(fault),
            slow: Duration::ZERO,
            in_flight: 0,
            most_in_flight: 0,
        }));
        let shared = server.clone();
        let service = tower::service_fn(move |request| serve(shared.clone(), request));
        let metrics = Metrics::new();
        let client = Client::over(kube::Client::new(service, "default"), metrics.clone());
        let clock = Arc::new(SimulatedClock::new(SystemTime::UNIX_EPOCH + s(1_767_323_045)));
        let leadership = Leadership::new(clock.clone());
        leadership.lead(None);
        let gate = Gate::new(client, leadership.clone(), false, metrics.clone());
        let (recorder, delivery) = Recorder::new(gate.clone(), clock, metrics.clone(), 1);
        let idle = if deliver {
            tokio::spawn(delivery.run());
            None
        } else {
            Some(delivery)
        };
        let events = recorder.for_component("service-controller");
        Self { server, gate, recorder, events, leadership, metrics, _idle: idle }
    }

    fn warn(&self, subject: &Subject, message: &str) {
        self.events.event(subject, EventType::Warning, "SyncLoadBalancerFailed", message);
    }

    async fn settle(&self) {
        assert_eq!(self.recorder.flush(s(600)).await, 0);
    }

    fn log(&self) -> Vec<(Method, String, Value)> {
        self.server.lock().log.iter().map(|(m, p, b, _)| (m.clone(), p.clone(), b.clone())).collect()
    }

    fn methods(&self) -> Vec<String> {
        self.log().iter().map(|(method, ..)| method.to_string()).collect()
    }

    fn stored(&self) -> Vec<Value> {
        self.server.lock().objects.values().cloned().collect()
    }

    fn outcome(&self, outcome: &str) -> f64 {
        self.metrics.sample(&format!("ccm_events_total{{outcome=\"{outcome}\"}}")).unwrap_or_default()
    }
}

fn s(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn service(name: &str) -> Subject {
    let uid = "u-1".into();
    let resource_version = "".into();
    Subject { kind: "Service", api_version: "v1", namespace: "shop".into(), name: name.into(), uid, resource_version }
}

#[tokio::test(start_paused = true)]
async fn an_event_has_the_fields_of_upstream() {
    let bed = Bed::new();
    bed.events.event(&service("web"), EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
    bed.settle().await;
    let (method, path, body) = bed.log().remove(0);
    assert_eq!((method, &*path), (Method::POST, "/api/v1/namespaces/shop/events"));
    assert_eq!(
        body,
        json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": "web.1886caf21c963200", "namespace": "shop"},
            "involvedObject": {
                "kind": "Service", "namespace": "shop", "name": "web", "uid": "u-1", "apiVersion": "v1",
            },
            "reason": "EnsuredLoadBalancer", "message": "Ensured load balancer", "type": "Normal", "count": 1,
            "source": {"component": "service-controller"},
            "firstTimestamp": "2026-01-02T03:04:05Z", "lastTimestamp": "2026-01-02T03:04:05Z",
            "eventTime": null, "reportingComponent": "service-controller", "reportingInstance": "",
        })
    );
}

/// The time until 200 events of other objects are delivered while the answer to a write of this urgency takes a minute.
async fn delivered_beside(urgency: Urgency) -> Duration {
    let bed = Bed::new();
    bed.server.lock().slow = s(1) / 100;
    let gate = bed.gate.clone();
    tokio::spawn(async move {
        let call = Call::strategic("/api/v1/nodes/n", &json!({"metadata": {"uid": "u"}}));
        gate.write(&Call { urgency, ..call }).await
    });
    sleep(s(1)).await;
    let began = Instant::now();
    for number in 0..200 {
        bed.warn(&service(&format!("web-{number}")), "no");
    }
    bed.settle().await;
    assert_eq!((bed.stored().len(), bed.log().len()), (200, 200), "the answer to the write is still to come");
    began.elapsed()
}

#[tokio::test(start_paused = true)]
async fn events_wait_once_for_urgent_writes_that_hang_and_not_at_all_for_others() {
    let pace = s(200) / 400;
    assert!(delivered_beside(Urgency::Normal).await < pace * 2);
    let urgent = delivered_beside(Urgency::Urgent).await;
    assert!(urgent >= s(15) && urgent < s(15) + pace * 2, "{urgent:?}");
}

#[tokio::test(start_paused = true)]
async fn an_event_names_the_version_of_its_object_and_is_counted_whatever_the_version_is() {
    let bed = Bed::new();
    for version in ["7", "8"] {
        let metadata = json!({"namespace": "shop", "name": "web", "uid": "u-1", "resourceVersion": version});
        let service = serde_json::from_value(json!({"metadata": metadata})).unwrap();
        bed.warn(&Subject::service(&service), "no");
        bed.settle().await;
    }
    assert_eq!(bed.methods(), ["POST", "PATCH"]);
    assert_eq!(bed.stored()[0]["involvedObject"]["resourceVersion"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_failure_carries_the_class_of_its_error_and_other_events_nothing_more() {
    let bed = Bed::new();
    let denied = ErrorClass::Denied { action: "x:Create".to_owned() };
    bed.events.failure(&service("web"), "SyncLoadBalancerFailed", "no", Some(&denied));
    bed.events.failure(&service("other"), "SyncLoadBalancerFailed", "no", None);
    bed.settle().await;
    let annotations: Vec<Value> = bed.stored().iter().map(|event| event["metadata"]["annotations"].clone()).collect();
    // In the order of their names.
    assert_eq!(annotations, [Value::Null, json!({"cloud-controller-manager/error-class": "denied"})]);
    assert!(bed.stored().iter().all(|event| event["type"] == "Warning"));
}

#[tokio::test(start_paused = true)]
async fn a_repeated_event_is_counted_by_a_patch() {
    let bed = Bed::new();
    for _ in 0..3 {
        bed.warn(&service("web"), "no");
        sleep(s(7)).await;
    }
    bed.settle().await;
    assert_eq!(bed.methods(), ["POST", "PATCH", "PATCH"]);
    let (_, path, body) = bed.log().remove(2);
    assert_eq!(path, "/api/v1/namespaces/shop/events/web.1886caf21c963200");
    assert_eq!(body, json!({"count": 3, "lastTimestamp": "2026-01-02T03:04:19Z", "message": "no"}));
    let stored = bed.stored();
    assert_eq!((stored.len(), &stored[0]["count"]), (1, &json!(3)));
    assert_eq!(stored[0]["firstTimestamp"], "2026-01-02T03:04:05Z");
}

#[tokio::test(start_paused = true)]
async fn different_messages_are_different_events_even_at_the_same_moment() {
    let bed = Bed::new();
    bed.warn(&service("web"), "a");
    bed.warn(&service("web"), "b");
    bed.events.event(&service("web"), EventType::Normal, "SyncLoadBalancerFailed", "a");
    bed.recorder.for_component("another").event(&service("web"), EventType::Warning, "SyncLoadBalancerFailed", "a");
    bed.settle().await;
    assert_eq!(bed.methods(), ["POST"; 4]);
    assert_eq!(bed.stored().len(), 4);
}

#[tokio::test(start_paused = true)]
async fn counting_an_event_that_has_expired_creates_it_again_with_its_count() {
    let bed = Bed::new();
    bed.warn(&service("web"), "no");
    bed.settle().await;
    bed.server.lock().objects.clear();
    bed.warn(&service("web"), "no");
    bed.settle().await;
    assert_eq!(bed.methods(), ["POST", "PATCH", "POST"]);
    assert_eq!(bed.stored()[0]["count"], 2);
    bed.warn(&service("web"), "no");
    bed.settle().await;
    assert_eq!(bed.methods().last().unwrap(), "PATCH");
    assert_eq!(bed.stored()[0]["count"], 3);
}

#[tokio::test(start_paused = true)]
async fn a_storm_of_one_service_is_cut_to_25_and_then_one_per_five_minutes() {
    let bed = Bed::new();
    for _ in 0..30 {
        bed.warn(&service("web"), "Error syncing load balancer: no");
        bed.events.event(&service("quiet"), EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        sleep(s(2)).await;
    }
    bed.settle().await;
    let of = |name: &str| bed.log().iter().filter(|(_, path, body)| format!("{path}{body}").contains(name)).count();
    assert_eq!(of("web."), 25);
    assert_eq!(of("quiet."), 25);
    let before = bed.log().len();
    // The failures continue, once a minute, for an hour.
    for _ in 0..60 {
        sleep(s(60)).await;
        bed.warn(&service("web"), "Error syncing load balancer: no");
    }
    bed.settle().await;
    assert_eq!(bed.log().len() - before, 12);
    // The next event that passes also counts the dropped ones.
    let count = bed.stored().iter().map(|event| event["count"].as_u64().unwrap()).max().unwrap();
    assert!((85..=90).contains(&count), "{count}");
    assert!(bed.outcome("cut") >= 53.0);
}

#[tokio::test(start_paused = true)]
async fn events_about_attempts_leave_room_for_the_reason_of_a_failure() {
    let bed = Bed::new();
    for _ in 0..14 {
        bed.events.event(&service("web"), EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        bed.warn(&service("web"), "first reason");
        sleep(Duration::from_millis(300)).await;
    }
    bed.warn(&service("web"), "new reason");
    bed.settle().await;
    assert!(bed.stored().iter().any(|event| event["message"] == "new reason"), "{:?}", bed.stored());
}

#[tokio::test(start_paused = true)]
async fn the_tenth_different_message_within_ten_minutes_is_combined() {
    let bed = Bed::new();
    for n in 0..12 {
        bed.warn(&service("web"), &format!("failure {n}"));
        sleep(s(30)).await;
    }
    bed.settle().await;
    let created: Vec<String> = bed
        .log()
        .iter()
        .filter(|(method, ..)| *method == Method::POST)
        .map(|(_, _, body)| body["message"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(created.len(), 10);
    assert_eq!(created[8], "failure 8");
    assert_eq!(created[9], "(combined from similar events): failure 9");
    let (_, _, last) = bed.log().pop().unwrap();
    assert_eq!((&last["count"], &last["message"]), (&json!(3), &json!("(combined from similar events): failure 11")));
    // A known message is still counted separately; after ten quiet minutes a new series begins.
    bed.warn(&service("web"), "failure 3");
    bed.settle().await;
    assert_eq!(bed.log().pop().unwrap().2["message"], "failure 3");
    sleep(s(601)).await;
    bed.warn(&service("web"), "failure 99");
    bed.settle().await;
    assert_eq!(bed.log().pop().unwrap().2["message"], "failure 99");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_cannot_be_reached_is_tried_again() {
    for error in [None, Some(500), Some(503), Some(429)] {
        let bed = Bed::with(move |n, _| if n < 3 { error } else { Some(200) }, true);
        bed.warn(&service("web"), "no");
        bed.warn(&service("web"), "no");
        bed.settle().await;
        assert_eq!(bed.methods(), ["POST", "POST", "POST", "POST", "PATCH"]);
        assert_eq!(bed.stored()[0]["count"], 2);
        let times: Vec<Instant> = bed.server.lock().log.iter().map(|(.., at)| *at).collect();
        assert!(times[1] - times[0] <= s(10));
        assert!(times[3] - times[1] >= s(20), "{times:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn after_twelve_tries_an_event_is_given_up() {
    let bed = Bed::with(|_, _| None, true);
    bed.warn(&service("web"), "no");
    bed.settle().await;
    assert_eq!(bed.log().len(), 12);
    assert_eq!(bed.outcome("gave-up"), 1.0);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_the_server_refuses_is_dropped() {
    for code in [400, 403, 404, 409, 422] {
        let bed = Bed::with(move |_, _| Some(code), true);
        bed.warn(&service("web"), "no");
        bed.settle().await;
        assert_eq!(bed.log().len(), 1, "{code}");
        assert_eq!(bed.outcome("rejected"), 1.0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_queue_drops_and_never_blocks() {
    let bed = Bed::with(|_, _| Some(200), false);
    let began = Instant::now();
    for n in 0..1500 {
        bed.warn(&service(&format!("s{n}")), "no");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(bed.outcome("overflow"), 500.0);
    assert_eq!(bed.recorder.flush(s(1)).await, 1000);
}

#[tokio::test(start_paused = true)]
async fn an_outage_keeps_a_bounded_number_of_events() {
    let bed = Bed::with(|_, _| None, true);
    for n in 0..3000 {
        bed.warn(&service(&format!("s{n}")), "no");
        tokio::task::yield_now().await;
    }
    sleep(s(1)).await;
    let open = bed.recorder.flush(Duration::ZERO).await;
    assert!((1000..=1256).contains(&open), "{open}");
    assert!(bed.outcome("overflow") >= 1700.0);
}

#[tokio::test(start_paused = true)]
async fn few_requests_are_in_flight_and_a_count_waits_for_its_event() {
    let bed = Bed::new();
    bed.server.lock().slow = s(1);
    for n in 0..40 {
        bed.warn(&service(&format!("s{n}")), "no");
        bed.warn(&service(&format!("s{n}")), "no");
    }
    bed.settle().await;
    assert_eq!(bed.server.lock().most_in_flight, 4);
    assert_eq!(bed.log().len(), 80);
    assert!(bed.stored().iter().all(|event| event["count"] == 2));
}

#[tokio::test(start_paused = true)]
async fn one_object_that_is_refused_for_now_does_not_hold_up_others() {
    let bed = Bed::with(|n, _| if n < 20 { Some(500) } else { Some(200) }, true);
    for n in 0..20 {
        bed.warn(&service(&format!("bad{n}")), "no");
    }
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    bed.warn(&service("good"), "no");
    while !bed.stored().iter().any(|event| event["involvedObject"]["name"] == "good") {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(began.elapsed() < s(1), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn flush_waits_for_all_and_no_longer_than_it_may() {
    let bed = Bed::new();
    bed.server.lock().slow = s(3);
    bed.warn(&service("a"), "no");
    bed.warn(&service("b"), "no");
    assert_eq!(bed.recorder.flush(s(1)).await, 2);
    let began = Instant::now();
    assert_eq!(bed.recorder.flush(s(10)).await, 0);
    assert!(began.elapsed() <= s(2) + Duration::from_millis(5));
    assert_eq!(bed.stored().len(), 2);
    assert_eq!(bed.recorder.flush(Duration::ZERO).await, 0);
}

fn lease() -> Subject {
    Subject {
        kind: "Lease",
        api_version: "coordination.k8s.io/v1",
        namespace: "kube-system".into(),
        name: "ccm".into(),
        uid: "u-3".into(),
        resource_version: "".into(),
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_does_not_lead_emits_only_events_about_the_lease() {
    let bed = Bed::new();
    bed.leadership.lose();
    bed.warn(&service("web"), "no");
    bed.events.event(&lease(), EventType::Normal, "LeaderElection", "host_1 stopped leading");
    bed.settle().await;
    assert_eq!(bed.outcome("not-leading"), 1.0);
    assert_eq!(bed.log().len(), 1);
    assert_eq!(bed.log()[0].2["involvedObject"]["apiVersion"], "coordination.k8s.io/v1");
}

#[tokio::test(start_paused = true)]
async fn a_name_that_the_server_would_refuse_is_not_used() {
    let bed = Bed::new();
    for name in ["n".repeat(250), "system:node".to_owned(), "Upper".to_owned(), "a/b".to_owned(), String::new()] {
        bed.warn(&service(&name), "no");
    }
    bed.settle().await;
    let names: Vec<String> = bed.stored().iter().map(|e| e["metadata"]["name"].as_str().unwrap().to_owned()).collect();
    assert_eq!(names.len(), 5);
    assert!(names.iter().all(|name| name.starts_with("event.1886caf2")), "{names:?}");
}
