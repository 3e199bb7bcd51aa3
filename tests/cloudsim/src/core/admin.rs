//! The admin APIs: JSON over HTTP on a separate port, for tests in other processes and for `curl`.
//!
//! | Request | Does |
//! | --- | --- |
//! | `GET /` | the URL of the endpoint, and the requests; some clouds have more than are listed here |
//! | `GET /options`, `POST /options` | the options; a POST changes the fields that it contains; null removes one, or restores its default |
//! | `GET`, `POST`, `DELETE /faults` | the fault rules; a POST adds one or a list of them |
//! | `GET /ledger`, `/ledger/counts`, `/ledger/mutating` | calls, with `?since=<mark>`; `DELETE /ledger` clears them |
//! | `GET /ledger/mark`, `/ledger/totals` | number of the last call; totals since the start |
//! | `GET /clock`, `POST /clock` | `{"step_ms": 1000}` or `{"set": "2026-01-01T00:00:00Z"}` |
//! | `GET /violations` | violations of the vendor's API |

use super::endpoint::{Cloud, Endpoint, Inside};
use super::faults::Rule;
use super::ledger::Entry;
use super::server::{Answer, Handler, Request};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;

/// The requests of all clouds.
const REQUESTS: [&str; 14] = [
    "GET /options",
    "POST /options",
    "GET /faults",
    "POST /faults",
    "DELETE /faults",
    "GET /ledger",
    "GET /ledger/counts",
    "GET /ledger/mutating",
    "GET /ledger/mark",
    "GET /ledger/totals",
    "DELETE /ledger",
    "GET /clock",
    "POST /clock",
    "GET /violations",
];

/// The status and message for a request that can't be served.
type Refusal = (StatusCode, String);

/// The answer to a request; `None` if the path is not handled.
type Served = Option<Result<Value, Refusal>>;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockChange {
    step_ms: Option<u64>,
    set: Option<Timestamp>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rules {
    Many(Vec<Rule>),
    One(Box<Rule>),
}

/// The admin API of an endpoint.
#[derive(Debug)]
pub(super) struct Admin<C> {
    pub(super) endpoint: Arc<Endpoint<C>>,
    pub(super) url: String,
}

impl<C: Cloud> Handler for Admin<C> {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        let mut inside = self.endpoint.inside.lock();
        inside.cloud.settle();
        let (method, path) = (request.method(), request.uri().path());
        let served = match (method, path) {
            (&Method::GET, "/") => {
                let own = C::SHOWS.iter().map(|path| format!("GET {path}"));
                let requests: Vec<String> = REQUESTS.map(str::to_owned).into_iter().chain(own).collect();
                Some(Ok(json!({ "endpoint": self.url, "requests": requests })))
            }
            (&Method::GET, path) if C::SHOWS.contains(&path) => inside.cloud.show(path).map(Ok),
            _ => serve(&request, &mut inside).or_else(|| options(&request, &mut inside)),
        };
        let (status, value) = match served {
            Some(Ok(value)) => (StatusCode::OK, value),
            Some(Err((status, text))) => (status, json!({ "error": text })),
            None => {
                let text = format!("there is no {method} {path}; GET / shows what there is");
                (StatusCode::NOT_FOUND, json!({ "error": text }))
            }
        };
        let mut response = Response::new(Bytes::from(format!("{value:#}\n")));
        *response.status_mut() = status;
        let kind = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        Box::pin(std::future::ready(Answer::Reply(response)))
    }
}

/// Handles requests about clock, faults, ledger and violations.
fn serve<C: Cloud>(request: &Request, inside: &mut Inside<C>) -> Served {
    let Inside { cloud, faults, ledger, violations, .. } = inside;
    let clock = cloud.clock();
    let since = query(request, "since");
    let entries = |entries: Vec<&Entry>| to_value(&entries);
    Some(match (request.method(), request.uri().path()) {
        (&Method::GET, "/clock") => Ok(json!({ "now": clock.now() })),
        (&Method::POST, "/clock") => read::<ClockChange>(request).map(|change| {
            if let Some(at) = change.set {
                clock.set(at);
            }
            clock.step(Duration::from_millis(change.step_ms.unwrap_or_default()));
            json!({ "now": clock.now() })
        }),
        (&Method::GET, "/faults") => {
            Ok(faults.rules().map(|(rule, struck)| json!({ "rule": rule, "struck": struck })).collect())
        }
        (&Method::POST, "/faults") => read::<Rules>(request).map(|rules| {
            let rules = match rules {
                Rules::Many(rules) => rules,
                Rules::One(rule) => vec![*rule],
            };
            rules.into_iter().for_each(|rule| faults.add(rule));
            json!({})
        }),
        (&Method::DELETE, "/faults") => {
            faults.clear();
            Ok(json!({}))
        }
        (&Method::GET, "/violations") => to_value(violations),
        (&Method::GET, "/ledger") => entries(ledger.since(since).collect()),
        (&Method::GET, "/ledger/counts") => to_value(&ledger.counts(since)),
        (&Method::GET, "/ledger/mutating") => entries(ledger.mutating(since).collect()),
        (&Method::GET, "/ledger/mark") => Ok(json!({ "mark": ledger.mark() })),
        (&Method::GET, "/ledger/totals") => to_value(&ledger.totals()),
        (&Method::DELETE, "/ledger") => {
            ledger.clear();
            Ok(json!({}))
        }
        _ => return None,
    })
}

/// Handles requests about the options.
fn options<C: Cloud>(request: &Request, inside: &mut Inside<C>) -> Served {
    Some(match (request.method(), request.uri().path()) {
        (&Method::GET, "/options") => to_value(inside.cloud.options()),
        (&Method::POST, "/options") => read::<Value>(request).and_then(|change| {
            let mut options = to_value(inside.cloud.options())?;
            merge(&mut options, change);
            let options: C::Options = serde_json::from_value(options).map_err(bad)?;
            let shown = to_value(&options);
            inside.change(|current| *current = options);
            shown
        }),
        _ => return None,
    })
}

/// Parses the body.
fn read<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    serde_json::from_slice(request.body()).map_err(bad)
}

/// The error for an invalid body.
fn bad(error: impl std::fmt::Display) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("the body does not fit: {error}"))
}

/// Serializes a value as JSON.
fn to_value<T: Serialize + ?Sized>(value: &T) -> Result<Value, Refusal> {
    serde_json::to_value(value).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn query(request: &Request, name: &str) -> u64 {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
}

/// Merges the fields of `change` into `value`, recursively; null removes a field, which then has its default.
fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                if change.is_null() {
                    fields.remove(&key);
                    continue;
                }
                merge(fields.entry(key).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change,
    }
}
