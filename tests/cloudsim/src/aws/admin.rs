//! The admin API: what the Rust API offers, as JSON over HTTP on a port of its own, for tests in other processes.
//!
//! | Request | Does |
//! | --- | --- |
//! | `GET /` | URLs: `endpoint`, `admin`, `imds` by instance |
//! | `POST /reset` | an empty account; faults and ledger forgotten |
//! | `GET /dump`, `POST /load` | the whole state |
//! | `POST /seed` | `{"network": {…}}` and/or `{"instances": {…}}`; answers what was made |
//! | `GET /options`, `POST /options` | the behaviour; a post changes the fields that it names |
//! | `GET`, `POST`, `DELETE /faults` | the fault rules; a post adds one or a list of them |
//! | `GET /ledger`, `/ledger/counts`, `/ledger/mutating` | calls, all with `?since=<mark>`; `DELETE /ledger` forgets them |
//! | `GET /ledger/mark`, `/ledger/totals` | number of the last call; totals since the start |
//! | `GET /clock`, `POST /clock` | `{"step_ms": 1000}` or `{"set": "2026-01-01T00:00:00Z"}` |
//! | `POST /imds` | `{"instance": "i-…", "hops": 1, …}` starts a metadata service |

use super::ec2::seed::{self, InstanceSeed, NetworkSeed};
use super::endpoint::{Endpoint, Inside};
use super::imds::{Imds, ImdsOptions};
use super::running::start_imds;
use super::world::Dump;
use super::{Options, World};
use crate::core::faults::Rule;
use crate::core::ledger::Entry;
use crate::core::lock;
use crate::core::server::{Answer, Handler, Request, Spawner};
use bytes::Bytes;
use futures::future::BoxFuture;
use http::{Method, Response, StatusCode};
use jiff::Timestamp;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The admin API of an endpoint.
#[derive(Debug)]
pub(super) struct Admin {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) url: String,
    pub(super) spawner: Spawner,
    pub(super) imds: Mutex<BTreeMap<String, Imds>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Seed {
    network: Option<NetworkSeed>,
    instances: Option<InstanceSeed>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ClockChange {
    step_ms: Option<u64>,
    set: Option<Timestamp>,
}

#[derive(Deserialize)]
struct ImdsStart {
    instance: String,
    #[serde(flatten)]
    options: Value,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Rules {
    Many(Vec<Rule>),
    One(Box<Rule>),
}

/// Status and text for a request that can't be served.
type Refusal = (StatusCode, String);

impl Handler for Admin {
    fn answer(self: Arc<Self>, request: Request) -> BoxFuture<'static, Answer> {
        let (status, value) = match self.serve(&request) {
            Ok(value) => (StatusCode::OK, value),
            Err((status, text)) => (status, json!({ "error": text })),
        };
        let mut response = Response::new(Bytes::from(format!("{value:#}\n")));
        *response.status_mut() = status;
        let kind = http::HeaderValue::from_static("application/json");
        response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
        Box::pin(std::future::ready(Answer::Reply(response)))
    }
}

impl Admin {
    fn serve(&self, request: &Request) -> Result<Value, Refusal> {
        let path = request.uri().path();
        match (request.method(), path) {
            (&Method::GET, "/") => Ok(self.urls()),
            (&Method::POST, "/imds") => self.start_imds(read(request)?),
            _ => {
                let mut inside = lock(&self.endpoint.inside);
                inside.world.settle();
                state(&mut inside, request).or_else(|| behaviour(&mut inside, request)).unwrap_or_else(|| {
                    let text = format!("there is no {} {path}; GET / shows what there is", request.method());
                    Err((StatusCode::NOT_FOUND, text))
                })
            }
        }
    }

    fn urls(&self) -> Value {
        let imds = lock(&self.imds);
        let services: BTreeMap<&String, String> = imds.iter().map(|(id, imds)| (id, imds.url())).collect();
        json!({ "endpoint": self.url, "imds": services, "requests": [
            "POST /reset", "GET /dump", "POST /load", "POST /seed", "GET /options", "POST /options", "GET /faults",
            "POST /faults", "DELETE /faults", "GET /ledger", "GET /ledger/counts", "GET /ledger/mutating",
            "GET /ledger/mark", "GET /ledger/totals", "DELETE /ledger", "GET /clock", "POST /clock", "POST /imds",
        ] })
    }

    fn start_imds(&self, start: ImdsStart) -> Result<Value, Refusal> {
        let options: ImdsOptions = serde_json::from_value(start.options).map_err(bad)?;
        let imds = start_imds(&self.spawner, &self.endpoint, &start.instance, options)
            .map_err(|error| (StatusCode::CONFLICT, error.to_string()))?;
        let url = imds.url();
        lock(&self.imds).insert(start.instance, imds);
        Ok(json!({ "url": url }))
    }
}

/// What is asked of the state.
fn state(inside: &mut Inside, request: &Request) -> Option<Result<Value, Refusal>> {
    Some(match (request.method(), request.uri().path()) {
        (&Method::POST, "/reset") => {
            inside.reset();
            Ok(json!({}))
        }
        (&Method::GET, "/dump") => to_value(&inside.world.dump()),
        (&Method::POST, "/load") => read::<Dump>(request).map(|dump| {
            inside.world.load(dump);
            json!({})
        }),
        (&Method::POST, "/seed") => read(request).and_then(|seed| plant(&mut inside.world, seed)),
        (&Method::GET, "/clock") => Ok(json!({ "now": inside.world.now() })),
        (&Method::POST, "/clock") => read::<ClockChange>(request).map(|change| {
            if let Some(at) = change.set {
                inside.world.clock.set(at);
            }
            inside.world.clock.step(Duration::from_millis(change.step_ms.unwrap_or_default()));
            inside.world.settle();
            json!({ "now": inside.world.now() })
        }),
        _ => return None,
    })
}

/// What is asked of behaviour and ledger.
fn behaviour(inside: &mut Inside, request: &Request) -> Option<Result<Value, Refusal>> {
    let since = query(request, "since");
    let entries = |entries: Vec<&Entry>| to_value(&entries);
    Some(match (request.method(), request.uri().path()) {
        (&Method::GET, "/options") => to_value(inside.world.options.as_ref()),
        (&Method::POST, "/options") => read::<Value>(request).and_then(|change| {
            let mut options = to_value(inside.world.options.as_ref())?;
            merge(&mut options, change);
            let options: Options = serde_json::from_value(options).map_err(bad)?;
            inside.change(|current| *current = options);
            to_value(inside.world.options.as_ref())
        }),
        (&Method::GET, "/faults") => {
            let rules: Vec<Value> =
                inside.faults.rules().map(|(rule, struck)| json!({ "rule": rule, "struck": struck })).collect();
            Ok(Value::Array(rules))
        }
        (&Method::POST, "/faults") => read::<Rules>(request).map(|rules| {
            let rules = match rules {
                Rules::Many(rules) => rules,
                Rules::One(rule) => vec![*rule],
            };
            rules.into_iter().for_each(|rule| inside.faults.add(rule));
            json!({})
        }),
        (&Method::DELETE, "/faults") => {
            inside.faults.clear();
            Ok(json!({}))
        }
        (&Method::GET, "/ledger") => entries(inside.ledger.since(since).collect()),
        (&Method::GET, "/ledger/counts") => to_value(&inside.ledger.counts(since)),
        (&Method::GET, "/ledger/mutating") => entries(inside.ledger.mutating(since).collect()),
        (&Method::GET, "/ledger/mark") => Ok(json!({ "mark": inside.ledger.mark() })),
        (&Method::GET, "/ledger/totals") => to_value(&inside.ledger.totals()),
        (&Method::DELETE, "/ledger") => {
            inside.ledger.clear();
            Ok(json!({}))
        }
        _ => return None,
    })
}

fn plant(world: &mut World, seed: Seed) -> Result<Value, Refusal> {
    let refuse = |error: super::ApiError| (StatusCode::BAD_REQUEST, format!("{}: {}", error.code, error.message));
    let network = seed.network.map(|network| seed::network(world, &network)).transpose().map_err(refuse)?;
    let instances = match seed.instances {
        None => Vec::new(),
        Some(mut wanted) => {
            if let (Some(network), true) = (&network, wanted.subnets.is_empty()) {
                wanted.subnets.clone_from(&network.private);
            }
            if let (Some(network), true) = (&network, wanted.groups.is_empty()) {
                wanted.groups = vec![network.node_group.clone()];
            }
            seed::instances(world, &wanted).map_err(refuse)?
        }
    };
    Ok(json!({ "network": network, "instances": instances }))
}

fn read<T: DeserializeOwned>(request: &Request) -> Result<T, Refusal> {
    serde_json::from_slice(request.body()).map_err(bad)
}

fn bad(error: impl std::fmt::Display) -> Refusal {
    (StatusCode::BAD_REQUEST, format!("the body does not fit: {error}"))
}

fn to_value<T: serde::Serialize>(value: &T) -> Result<Value, Refusal> {
    serde_json::to_value(value).map_err(|error| (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()))
}

fn query(request: &Request, name: &str) -> u64 {
    let pairs = request.uri().query().unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.into_iter().find(|(key, _)| *key == name).and_then(|(_, value)| value.parse().ok()).unwrap_or_default()
}

/// Puts the fields of `change` over those of `value`, objects within objects; null is a value like others.
fn merge(value: &mut Value, change: Value) {
    match (value, change) {
        (Value::Object(fields), Value::Object(changes)) => {
            for (key, change) in changes {
                merge(fields.entry(key).or_insert(Value::Null), change);
            }
        }
        (value, change) => *value = change,
    }
}
