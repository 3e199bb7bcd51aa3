//! Leases in memory behind kube's client: no sockets, no real time, faults on demand.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures::StreamExt;
use http::{Method, Request, Response, StatusCode};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full, StreamBody};
use kube::client::Body;
use parking_lot::Mutex;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use crate::client::Client;
use crate::metrics::Metrics;

pub(super) const PATH: &str = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/ccm";

type Answer = Response<UnsyncBoxBody<Bytes, std::io::Error>>;

#[derive(Default)]
struct Inner {
    objects: BTreeMap<String, Value>,
    version: u64,
    watches: Vec<mpsc::UnboundedSender<Bytes>>,
}

#[derive(Default)]
pub(super) struct Server {
    inner: Mutex<Inner>,
}

/// The connection of one process.
#[derive(Default)]
pub(super) struct Net {
    /// Requests get no answer and have no effect.
    pub(super) cut: AtomicBool,
    pub(super) no_watch: AtomicBool,
    /// The status of the answers to all requests but watches, if not 0.
    pub(super) status: AtomicUsize,
    /// Latency of each answer, in milliseconds.
    pub(super) slow: AtomicUsize,
    /// Random latencies and failures.
    pub(super) chaos: Mutex<Option<StdRng>>,
    /// Method and path of each request.
    pub(super) log: Mutex<Vec<String>>,
}

/// The faults of one request.
#[derive(Default)]
struct Fate {
    there: Duration,
    back: Duration,
    lost: bool,
    answer_lost: bool,
    error: Option<u16>,
}

impl Net {
    fn fate(&self) -> Fate {
        let mut chaos = self.chaos.lock();
        let Some(rng) = chaos.as_mut() else {
            let slow = u64::try_from(self.slow.load(Ordering::Relaxed)).unwrap();
            return Fate { back: Duration::from_millis(slow), ..Fate::default() };
        };
        let mut delay = || match rng.random_range(0..10) {
            0 => Duration::from_millis(rng.random_range(0..9000)),
            1..4 => Duration::from_millis(rng.random_range(0..900)),
            _ => Duration::from_millis(rng.random_range(0..20)),
        };
        let (there, back) = (delay(), delay());
        let fault = rng.random_range(0..100);
        Fate {
            there,
            back,
            lost: fault < 8,
            answer_lost: (8..20).contains(&fault),
            error: (20..26).contains(&fault).then_some(500),
        }
    }

    pub(super) fn requests(&self) -> Vec<String> {
        self.log.lock().clone()
    }
}

impl Server {
    pub(super) fn client(self: &Arc<Self>, net: &Arc<Net>, metrics: Metrics) -> Client {
        let (server, net) = (Arc::clone(self), Arc::clone(net));
        let service = tower::service_fn(move |request: Request<Body>| {
            let (server, net) = (Arc::clone(&server), Arc::clone(&net));
            async move { server.serve(net, request).await }
        });
        Client::over(kube::Client::new(service, "default"), metrics)
    }

    async fn serve(self: Arc<Self>, net: Arc<Net>, request: Request<Body>) -> Result<Answer, std::io::Error> {
        let fate = net.fate();
        let path = request.uri().path().to_owned();
        let watch = request.uri().query().is_some_and(|query| query.contains("watch=true"));
        let method = request.method().clone();
        net.log.lock().push(format!("{}{method} {path}", if watch { "WATCH " } else { "" }));
        let body = request.into_body().collect().await.unwrap().to_bytes();
        // A separate task: a request in flight arrives even if its sender has given up.
        let answer = tokio::spawn(async move {
            tokio::time::sleep(fate.there).await;
            if fate.lost || net.cut.load(Ordering::Relaxed) {
                return None;
            }
            let status = u16::try_from(net.status.load(Ordering::Relaxed)).unwrap();
            let refused = (status != 0).then_some(status).or(fate.error);
            let response = match refused {
                Some(code) if !watch => failure(code, "refused"),
                _ if watch && net.no_watch.load(Ordering::Relaxed) => failure(403, "leases is forbidden"),
                _ if watch => self.watch(),
                _ => self.answer(&method, &path, &body),
            };
            tokio::time::sleep(fate.back).await;
            (!fate.answer_lost).then_some(response)
        });
        match answer.await {
            Ok(Some(response)) => Ok(response),
            _ => std::future::pending().await,
        }
    }

    fn watch(&self) -> Answer {
        let (sender, mut receiver) = mpsc::unbounded_channel();
        self.inner.lock().watches.push(sender);
        let lines = futures::stream::poll_fn(move |context| receiver.poll_recv(context));
        let frames = lines.map(|line| Ok::<_, std::io::Error>(http_body::Frame::data(line)));
        Response::new(StreamBody::new(frames).boxed_unsync())
    }

    fn answer(&self, method: &Method, path: &str, body: &[u8]) -> Answer {
        let sent: Value = serde_json::from_slice(body).unwrap_or_default();
        let mut inner = self.inner.lock();
        match *method {
            Method::GET => match inner.objects.get(path) {
                Some(object) => success(object),
                None => failure(404, "not found"),
            },
            Method::POST => {
                let path = format!("{path}/{}", sent["metadata"]["name"].as_str().unwrap());
                if inner.objects.contains_key(&path) {
                    return failure(409, "already exists");
                }
                success(&inner.store(&path, sent, true))
            }
            Method::PUT => match inner.objects.get(path) {
                None => failure(404, "not found"),
                Some(old) if old["metadata"]["resourceVersion"] != sent["metadata"]["resourceVersion"] => {
                    failure(409, "the object has been modified")
                }
                Some(_) => success(&inner.store(path, sent, false)),
            },
            _ => failure(405, "no such method"),
        }
    }

    pub(super) fn lease(&self) -> Value {
        self.inner.lock().objects.get(PATH).cloned().unwrap_or_default()
    }

    pub(super) fn holder(&self) -> String {
        self.lease()["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned()
    }

    /// Writes the object as another program, whatever its version.
    pub(super) fn change(&self, change: impl FnOnce(&mut Value)) {
        let mut inner = self.inner.lock();
        let mut object = inner.objects.get(PATH).cloned().unwrap_or_else(|| json!({"metadata": {"name": "ccm"}}));
        change(&mut object);
        inner.store(PATH, object, false);
    }

    pub(super) fn delete(&self) {
        let mut inner = self.inner.lock();
        let object = inner.objects.remove(PATH).unwrap();
        inner.notify("DELETED", &object);
    }
}

impl Inner {
    fn store(&mut self, path: &str, mut object: Value, new: bool) -> Value {
        if self.objects.get(path) == Some(&object) {
            return object;
        }
        self.version += 1;
        object["metadata"]["resourceVersion"] = json!(self.version.to_string());
        if new || object["metadata"]["uid"].is_null() {
            object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        }
        self.objects.insert(path.to_owned(), object.clone());
        self.notify(if new { "ADDED" } else { "MODIFIED" }, &object);
        object
    }

    fn notify(&mut self, kind: &str, object: &Value) {
        let line = Bytes::from(format!("{}\n", json!({"type": kind, "object": object})));
        self.watches.retain(|watch| watch.send(line.clone()).is_ok());
    }
}

fn success(object: &Value) -> Answer {
    Response::new(Full::from(object.to_string()).map_err(|never| match never {}).boxed_unsync())
}

fn failure(code: u16, message: &str) -> Answer {
    let reason = if code == 404 { "NotFound" } else { "" };
    let body = json!({"kind": "Status", "code": code, "reason": reason, "message": message});
    let mut response = success(&body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap();
    response
}

pub(super) fn seeded(seed: u64) -> StdRng {
    StdRng::seed_from_u64(seed)
}
