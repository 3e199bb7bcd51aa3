//! Errors, headers, waits and identities, over a transport in the process.

use http::{Response, StatusCode};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::call::{JSON, METADATA_ONLY};
use super::*;
use crate::clock::SimulatedClock;
use crate::gate::{Gate, GateError};
use crate::leader::Leadership;

/// A request as it arrived.
#[derive(Debug, Clone, PartialEq)]
struct Seen {
    method: Method,
    path: String,
    authorization: String,
    accept: String,
    user_agent: String,
    /// The time since the start.
    after: Duration,
}

type Requests = Arc<Mutex<Vec<Seen>>>;

/// A client of a server that is a function from request and number of the request to status, `Retry-After` and body.
fn server(answer: impl Fn(&Seen, usize) -> (u16, Option<u64>, Value) + Send + Sync + 'static) -> (Client, Requests) {
    let (requests, start) = (Requests::default(), Instant::now());
    let (answer, log) = (Arc::new(answer), Arc::clone(&requests));
    let service = tower::service_fn(move |request: Request<Body>| {
        let header = |name| request.headers().get(name).map_or("", |v: &HeaderValue| v.to_str().unwrap()).to_owned();
        let seen = Seen {
            method: request.method().clone(),
            path: request.uri().to_string(),
            authorization: header(header::AUTHORIZATION),
            accept: header(header::ACCEPT),
            user_agent: header(header::USER_AGENT),
            after: start.elapsed(),
        };
        let number = log.lock().len();
        log.lock().push(seen.clone());
        let (status, retry_after, body) = answer(&seen, number);
        async move {
            let mut response = Response::builder().status(status);
            if let Some(seconds) = retry_after {
                response = response.header(header::RETRY_AFTER, seconds);
            }
            Ok::<_, std::convert::Infallible>(response.body(Body::from(body.to_string().into_bytes())).unwrap())
        }
    });
    (Client::over(kube::Client::new(service, "default"), Metrics::new()), requests)
}

fn count(requests: &Requests) -> usize {
    requests.lock().len()
}

fn times(requests: &Requests) -> Vec<u64> {
    requests.lock().iter().map(|seen| seen.after.as_secs()).collect()
}

fn later() -> Value {
    json!({"kind": "Status", "reason": "TooManyRequests", "message": "too many requests", "code": 429})
}

#[test]
fn an_html_error_page_becomes_a_readable_error() {
    let error = status_error(StatusCode::BAD_GATEWAY, b"<html>\n <h1>Bad\n gateway</h1></html>", None);
    assert_eq!(
        error.to_string(),
        "the API server, or a proxy before it, answered 502 Bad Gateway with something that is not a Kubernetes \
         status: \"<html> <h1>Bad gateway</h1></html>\""
    );
    assert!(!error.is_refused());
}

#[test]
fn only_the_api_server_says_that_an_object_does_not_exist() {
    let said = |body: &[u8]| status_error(StatusCode::NOT_FOUND, body, None).is_not_found();
    assert!(said(br#"{"kind":"Status","reason":"NotFound","message":"nodes \"a\" not found","code":404}"#));
    for page in [&b"<html><h1>404 Not Found</h1></html>"[..], b"404 page not found\n", b"{}", b""] {
        assert!(!said(page));
    }
}

#[test]
fn a_status_keeps_message_reason_and_delay() {
    let body = br#"{"kind":"Status","reason":"TooManyRequests","message":"slow down","code":429,
        "details":{"retryAfterSeconds":7}}"#;
    let error = status_error(StatusCode::TOO_MANY_REQUESTS, body, None);
    assert_eq!(error.to_string(), "slow down");
    assert_eq!(error.retry_after(), Some(Duration::from_secs(7)));
    let header = status_error(StatusCode::TOO_MANY_REQUESTS, body, Some(Duration::from_secs(1)));
    assert_eq!(header.retry_after(), Some(Duration::from_secs(1)));
}

#[tokio::test]
async fn a_write_of_metadata_only_asks_for_the_metadata_alone() {
    let (client, requests) = server(|_, _| (200, None, json!({})));
    let call = Call::strategic("/x", &json!({}));
    client.send(&call).await.unwrap();
    client.send(&call.metadata_only()).await.unwrap();
    let accepted: Vec<String> = requests.lock().iter().map(|seen| seen.accept.clone()).collect();
    assert_eq!(accepted, [JSON, METADATA_ONLY]);
}

#[tokio::test]
async fn a_write_that_a_proxy_answers_with_a_page_has_failed() {
    let (client, _) = server(|_, _| (200, None, json!("<html>Please log in</html>")));
    let error = client.send(&Call::strategic("/x", &json!({}))).await.unwrap_err();
    assert!(matches!(error, ApiError::Decode(_)) && !error.is_refused(), "{error}");
    // Health is plain text.
    client.send(&Call::get("/healthz")).await.unwrap();
}

#[tokio::test]
async fn a_missing_kubeconfig_is_named() {
    let options = ConnectOptions { kubeconfig: "/nonexistent/config".into(), ..ConnectOptions::default() };
    let error = Client::connect(&options, Metrics::new()).await.unwrap_err().to_string();
    assert!(error.starts_with("the kubeconfig /nonexistent/config: "), "{error}");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_again_when_the_server_asks_for_it() {
    for code in [429, 500, 503] {
        let (client, requests) =
            server(move |_, number| if number < 2 { (code, Some(3), later()) } else { (200, None, json!({})) });
        client.send(&Call::get("/x")).await.unwrap();
        assert_eq!(times(&requests), [0, 3, 6], "{code}");
        let text = client.metrics.text();
        let repeated = text.lines().filter(|line| line.starts_with("rest_client_request_retries_total{"));
        assert_eq!(repeated.count(), 2, "one repeat was refused, one was not:\n{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_is_repeated_only_if_the_server_asks_for_it() {
    for (code, retry_after) in [(429, None), (503, None), (409, Some(1)), (404, Some(1))] {
        let (client, requests) = server(move |_, _| (code, retry_after, json!({"message": "m", "reason": "r"})));
        client.send(&Call::get("/x")).await.unwrap_err();
        assert_eq!(count(&requests), 1, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_past_the_deadline_is_not_begun() {
    let (client, requests) = server(|_, _| (429, Some(60), later()));
    let began = Instant::now();
    let error = client.send(&Call::get("/x")).await.unwrap_err();
    assert_eq!((count(&requests), began.elapsed()), (1, Duration::ZERO));
    assert_eq!(error.retry_after(), Some(Duration::from_secs(60)), "the caller may wait that long");
}

#[tokio::test(start_paused = true)]
async fn a_request_is_sent_ten_more_times_and_no_more() {
    let (client, requests) = server(|_, _| (429, Some(1), later()));
    client.send(&Call::get("/x")).await.unwrap_err();
    assert_eq!(count(&requests), 11);
}

#[tokio::test(start_paused = true)]
async fn a_write_that_waits_for_the_server_is_not_sent_again_by_a_process_that_leads_no_more() {
    let (client, requests) = server(|_, _| (429, Some(5), later()));
    let leadership = Leadership::new(Arc::new(crate::SystemClock));
    leadership.lead(None);
    let gate = Gate::new(client, leadership.clone(), false, Metrics::new());
    let write = tokio::spawn(async move { gate.write(&Call::strategic("/x", &json!({}))).await });
    tokio::time::sleep(Duration::from_secs(2)).await;
    leadership.lose();
    assert!(matches!(write.await.unwrap(), Err(GateError::NotLeading)));
    assert_eq!(count(&requests), 1);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_the_pause_of_a_write_that_yields_and_of_no_other() {
    for (yields, sent) in [(true, vec![0]), (false, vec![0, 5])] {
        let answer = |_: &Seen, number| if number == 0 { (429, Some(5), later()) } else { (200, None, json!({})) };
        let (client, requests) = server(answer);
        let leadership = Leadership::new(Arc::new(crate::SystemClock));
        leadership.lead(None);
        let gate = Gate::new(client, leadership.clone(), false, Metrics::new());
        let call = Call { yields, ..Call::strategic("/x", &json!({})) };
        let began = Instant::now();
        let write = tokio::spawn(async move { gate.write(&call).await });
        tokio::time::sleep(Duration::from_secs(2)).await;
        leadership.drain();
        let written = write.await.unwrap();
        assert_eq!(matches!(written, Err(GateError::Ending)), yields, "{written:?}");
        assert_eq!((times(&requests), began.elapsed().as_secs()), (sent, if yields { 2 } else { 5 }));
    }
}

#[tokio::test(start_paused = true)]
async fn a_write_that_must_end_within_the_lease_is_sent_again_only_while_it_still_can() {
    for (lease, sent) in [(16, vec![0, 5]), (14, vec![0])] {
        let answer = |_: &Seen, number| if number == 0 { (429, Some(5), later()) } else { (200, None, json!({})) };
        let (client, requests) = server(answer);
        let leadership = Leadership::new(Arc::new(crate::SystemClock));
        leadership.lead(Some(Duration::from_secs(lease)));
        let gate = Gate::new(client, leadership, false, Metrics::new());
        let call = Call::strategic("/x", &json!({})).within(Duration::from_secs(10));
        let written = gate.write(&Call { within_lease: true, ..call }).await;
        assert_eq!(matches!(written, Err(GateError::Late)), sent.len() == 1, "{written:?}");
        assert_eq!(times(&requests), sent);
    }
}

#[tokio::test(start_paused = true)]
async fn each_client_has_a_rate_of_its_own_and_watches_have_none() {
    let (client, requests) = server(|_, _| (200, None, json!({})));
    let client = client.with_rate(Rate::new(1.0, 2));
    let other = client.with_user_agent("other");
    let began = Instant::now();
    for _ in 0..4 {
        client.send(&Call::get("/x")).await.unwrap();
    }
    assert_eq!(times(&requests), [0, 0, 1, 2]);
    drop(client.stream(&Call::get("/x?watch=1")).await.unwrap());
    other.send(&Call::get("/x")).await.unwrap();
    assert_eq!(began.elapsed().as_secs(), 2);
    let waits = "rest_client_rate_limiter_duration_seconds_count{host=\"in-process\",verb=\"GET\"} 5";
    assert!(client.metrics.text().contains(waits), "{}", client.metrics.text());
}

#[tokio::test(start_paused = true)]
async fn a_request_that_its_rate_would_keep_back_too_long_is_not_sent() {
    let (client, requests) = server(|_, _| (200, None, json!({})));
    let client = client.with_rate(Rate::new(0.01, 1));
    client.send(&Call::get("/x")).await.unwrap();
    let error = client.send(&Call::get("/x")).await.unwrap_err();
    assert!(matches!(error, ApiError::Paced), "{error}");
    assert_eq!(count(&requests), 1);
}

fn clock() -> Arc<SimulatedClock> {
    Arc::new(SimulatedClock::new(std::time::UNIX_EPOCH + Duration::from_secs(1_800_000_000)))
}

/// Tokens `t0`, `t1`, … that live for an hour of the simulated clock; the account exists.
fn issuer(clock: &Arc<SimulatedClock>, fails: impl Fn(usize) -> bool + Send + Sync + 'static) -> (Client, Requests) {
    let (clock, issued) = (Arc::clone(clock), Mutex::new(0));
    server(move |seen, _| {
        if !seen.path.ends_with("/token") {
            return (200, None, json!({}));
        }
        let mut issued = issued.lock();
        let number = *issued;
        *issued += 1;
        if fails(number) {
            return (500, None, json!({"message": "no", "reason": "InternalError"}));
        }
        let ends = crate::clock::timestamp(clock.wall() + Duration::from_secs(3600));
        (201, None, json!({"status": {"token": format!("t{number}"), "expirationTimestamp": ends.to_string()}}))
    })
}

/// The tokens of the requests for `/x`.
fn used(requests: &Requests) -> Vec<String> {
    let requests = requests.lock();
    requests.iter().filter(|seen| seen.path == "/x").map(|seen| seen.authorization.clone()).collect()
}

async fn settle() {
    for _ in 0..50 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_is_renewed_in_the_background_when_a_fifth_of_its_life_is_left() {
    let clock = clock();
    let (base, requests) = issuer(&clock, |_| false);
    let client = base.for_account("kube-system", "node-controller", clock.clone()).await.unwrap();
    let ask = async || {
        client.send(&Call::get("/x")).await.unwrap();
        settle().await;
    };
    ask().await;
    ask().await;
    tokio::time::advance(Duration::from_secs(2879)).await;
    ask().await;
    tokio::time::advance(Duration::from_secs(2)).await;
    // This request still uses the old token, and causes a request for a new one.
    ask().await;
    ask().await;
    assert_eq!(used(&requests), ["Bearer t0", "Bearer t0", "Bearer t0", "Bearer t0", "Bearer t1"]);
    // The base client requested them, without credentials of the account.
    let asked = requests.lock().iter().filter(|seen| seen.path.ends_with("/token")).cloned().collect::<Vec<_>>();
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|seen| seen.authorization.is_empty()));
    assert_eq!(asked[0].path, "/api/v1/namespaces/kube-system/serviceaccounts/node-controller/token");
}

#[tokio::test(start_paused = true)]
async fn a_write_whose_token_comes_after_the_lease_is_lost_is_not_sent() {
    let clock = clock();
    let leadership = Leadership::new(clock.clone());
    let meanwhile = leadership.clone();
    let (base, requests) = issuer(&clock, move |_| {
        meanwhile.lose();
        false
    });
    let client = base.for_account("kube-system", "a", clock).await.unwrap();
    leadership.lead(None);
    let gate = Gate::new(client, leadership, false, Metrics::new());
    let written = gate.write(&Call::strategic("/x", &json!({}))).await;
    assert!(matches!(written, Err(GateError::NotLeading)), "{written:?}");
    assert_eq!((used(&requests), count(&requests)), (Vec::<String>::new(), 3));
}

#[tokio::test(start_paused = true)]
async fn the_old_token_serves_while_no_new_one_can_be_had() {
    let clock = clock();
    let (base, requests) = issuer(&clock, |number| number > 0);
    let client = base.for_account("kube-system", "a", clock.clone()).await.unwrap();
    client.send(&Call::get("/x")).await.unwrap();
    tokio::time::advance(Duration::from_secs(3000)).await;
    client.send(&Call::get("/x")).await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    client.send(&Call::get("/x")).await.unwrap();
    assert_eq!(used(&requests), ["Bearer t0"; 3]);
    // After it expires no token is valid: four attempts, with 0.5, 1 and 2 seconds between.
    tokio::time::advance(Duration::from_secs(700)).await;
    let (began, asked) = (Instant::now(), count(&requests));
    let error = client.send(&Call::get("/x")).await.unwrap_err().to_string();
    assert!(error.starts_with("failed to get token for kube-system/a: "), "{error}");
    assert_eq!(began.elapsed(), Duration::from_millis(3500));
    assert_eq!(count(&requests) - asked, 8, "the account is looked at and the token asked for, four times");
}

#[tokio::test(start_paused = true)]
async fn a_clock_that_is_far_off_does_not_make_tokens_old_at_once() {
    let (clock, server_clock) = (clock(), clock());
    clock.jump(7200);
    let (base, requests) = issuer(&server_clock, |_| false);
    let client = base.for_account("kube-system", "a", clock.clone()).await.unwrap();
    for _ in 0..3 {
        client.send(&Call::get("/x")).await.unwrap();
        tokio::time::advance(Duration::from_secs(150)).await;
    }
    assert_eq!(used(&requests), ["Bearer t0"; 3]);
}

#[tokio::test]
async fn a_token_that_is_refused_is_replaced_and_the_request_sent_once_more() {
    let clock = clock();
    let ends = crate::clock::timestamp(clock.wall() + Duration::from_secs(3600)).to_string();
    let issued = Mutex::new(0);
    let (base, requests) = server(move |seen, _| match (&*seen.path, &*seen.authorization) {
        ("/x", "Bearer t1") => (401, None, json!({"message": "Unauthorized", "reason": "Unauthorized"})),
        (path, _) if path.ends_with("/token") => {
            *issued.lock() += 1;
            let token = format!("t{}", issued.lock());
            (201, None, json!({"status": {"token": token, "expirationTimestamp": ends}}))
        }
        _ => (200, None, json!({})),
    });
    let client = base.for_account("kube-system", "a", clock).await.unwrap();
    client.send(&Call::get("/x")).await.unwrap();
    assert_eq!(used(&requests), ["Bearer t1", "Bearer t2"]);
}

#[tokio::test]
async fn an_account_is_made_when_it_is_missing_and_its_namespace_when_that_may_be_seen() {
    let status = |code: u16, reason: &str| (code, None, json!({"message": reason, "reason": reason, "code": code}));
    for (code, reason, expected) in [
        (200, "", vec!["GET account", "GET namespace", "POST accounts"]),
        (403, "Forbidden", vec!["GET account", "GET namespace", "POST accounts"]),
        (404, "NotFound", vec!["GET account", "GET namespace", "POST namespaces", "POST accounts"]),
    ] {
        let (base, requests) = server(move |seen, _| match (seen.method.as_str(), &*seen.path) {
            ("GET", "/api/v1/namespaces/kube-system") => status(code, reason),
            ("GET", _) => status(404, "NotFound"),
            // Neither the missing permission nor the faster replica is a failure.
            ("POST", "/api/v1/namespaces") => status(403, "Forbidden"),
            _ => status(409, "AlreadyExists"),
        });
        base.for_account("kube-system", "a", clock()).await.unwrap();
        let named: Vec<String> = requests
            .lock()
            .iter()
            .map(|seen| {
                let what = match &*seen.path {
                    "/api/v1/namespaces" => "namespaces",
                    "/api/v1/namespaces/kube-system" => "namespace",
                    "/api/v1/namespaces/kube-system/serviceaccounts" => "accounts",
                    "/api/v1/namespaces/kube-system/serviceaccounts/a" => "account",
                    other => panic!("{other}"),
                };
                format!("{} {what}", seen.method)
            })
            .collect();
        assert_eq!(named, expected, "{code}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_token_that_is_not_granted_is_asked_for_once() {
    let (base, requests) = server(|seen, _| match seen.path.ends_with("/token") {
        true => (403, None, json!({"message": "no", "reason": "Forbidden"})),
        false => (200, None, json!({})),
    });
    let client = base.for_account("kube-system", "a", clock()).await.unwrap();
    let error = client.send(&Call::get("/x")).await.unwrap_err();
    assert!(error.is_forbidden(), "{error}");
    assert_eq!(requests.lock().iter().filter(|seen| seen.path.ends_with("/token")).count(), 1);
}

/// The roles of some Go programs grant tokens, and nothing else on accounts.
#[tokio::test]
async fn an_account_that_cannot_be_read_is_taken_if_it_has_a_token() {
    let (base, _) = server(|seen, _| match seen.path.ends_with("/token") {
        true => {
            let status = json!({"token": "t", "expirationTimestamp": "2100-01-01T00:00:00Z"});
            (201, None, json!({"status": status}))
        }
        false => (403, None, json!({"message": "no", "reason": "Forbidden"})),
    });
    base.for_account("kube-system", "a", clock()).await.unwrap();
}

#[tokio::test]
async fn an_account_that_cannot_be_had_is_named_with_the_flag() {
    let (base, _) = server(|_, _| (403, None, json!({"message": "no, you may not", "reason": "Forbidden"})));
    let clock = clock();
    let error = base.for_account("kube-system", "a", clock).await.unwrap_err().to_string();
    assert_eq!(error, "--use-service-account-credentials: service account kube-system/a: no, you may not");
}
