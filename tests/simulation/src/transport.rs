//! The transport from one process to the in-memory API: it drops, counts and checks requests.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ccm_test_apiserver::{Body, Closed};
use http::{Method, Request, Response};
use http_body_util::{BodyExt, Full};
use rand::Rng;
use serde_json::Value;

use crate::life::{Life, Permit, Target};
use crate::trace::Invariant;
use crate::world::{Judged, World};

/// A client's transport.
#[derive(Clone)]
pub(crate) struct Transport {
    pub(crate) world: Arc<World>,
    pub(crate) life: Arc<Life>,
}

/// A parsed write.
#[derive(Debug, Clone)]
pub(crate) struct Write {
    pub(crate) method: Method,
    /// The path, such as `nodes/a` or `services/b/status`.
    pub(crate) target: String,
    pub(crate) body: Bytes,
}

impl Write {
    fn of(method: &Method, path: &str, body: Bytes) -> Self {
        let rest = path.split_once("/v1/").map_or(path, |(_, rest)| rest);
        let target = match rest.strip_prefix("namespaces/").and_then(|rest| rest.split_once('/')) {
            Some((_, rest)) => rest.to_owned(),
            None => rest.to_owned(),
        };
        Self { method: method.clone(), target, body }
    }

    pub(crate) fn is_lease(&self) -> bool {
        self.target.starts_with("leases")
    }

    pub(crate) fn is_event(&self) -> bool {
        self.target.starts_with("events")
    }

    /// Whether it changes a node or a Service.
    pub(crate) fn counts(&self) -> bool {
        !self.is_lease() && !self.is_event()
    }

    /// The kind and name of the object.
    pub(crate) fn object(&self) -> (&str, &str) {
        let mut parts = self.target.split('/');
        (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
    }

    /// The write as one line.
    pub(crate) fn line(&self) -> String {
        if self.is_event() {
            let event: Value = serde_json::from_slice(&self.body).unwrap_or_default();
            let about = event["involvedObject"]["name"].as_str().unwrap_or("again");
            return format!("event {about} {}", event["reason"].as_str().unwrap_or_default());
        }
        format!("{} {} {}", self.method, self.target, String::from_utf8_lossy(&self.body))
    }
}

impl Transport {
    /// A client with this transport.
    pub(crate) fn client(self) -> kube::Client {
        let service = tower::service_fn(move |request| {
            let me = self.clone();
            async move { me.carry(request).await }
        });
        kube::Client::new(service, "default")
    }

    async fn carry(&self, request: Request<kube::client::Body>) -> Result<Response<Body>, Closed> {
        let (world, life) = (&self.world, &self.life);
        if life.is_dead() || life.hang().await {
            return Err(Closed);
        }
        let sent = world.trace.now();
        let (parts, body) = request.into_parts();
        let write = match parts.method {
            Method::GET => None,
            ref method => {
                let bytes = body.collect().await.map_err(|_| Closed)?.to_bytes();
                Some(Write::of(method, parts.uri.path(), bytes))
            }
        };
        if let Some(write) = write.as_ref().filter(|write| write.counts())
            && let Err(why) = world.may_write(life)
        {
            world.trace.violated(Invariant::OneWriter, format_args!("{life} sends {}: {why}", write.line()));
        }
        self.travel().await?;
        let permit = match &write {
            Some(write) if write.counts() => life.permit(Target::Api),
            _ => Permit::Go,
        };
        if permit == Permit::Dead {
            world.trace.say(format_args!("{life} dies before a request"));
            return std::future::pending().await;
        }
        let Some(write) = write else {
            let answer = world.handler.call(Request::from_parts(parts, Full::new(Bytes::new()))).await;
            self.travel().await?;
            return answer;
        };
        let before = world.before(&write);
        // Without latency faults this does not wait, so every later difference is an effect of the write.
        let answer = world.handler.call(Request::from_parts(parts, Full::new(write.body.clone()))).await;
        let status = answer.as_ref().map_or(0, |answer| answer.status().as_u16());
        world.judge(&Judged { life, write: &write, sent, before, status });
        if permit == Permit::LastWrite {
            world.trace.say(format_args!("{life} dies after {}", write.target));
            life.die();
            return std::future::pending().await;
        }
        self.travel().await?;
        answer
    }

    /// Adds latency; fails if the network is down.
    async fn travel(&self) -> Result<(), Closed> {
        let range = self.world.latency();
        let millis = self.world.dice(|rng| rng.random_range(range));
        if millis > 0 {
            tokio::time::sleep(Duration::from_millis(millis)).await;
        }
        let lost = self.life.is_dead() || self.life.is_cut_off() || self.world.is_api_gone();
        if lost { Err(Closed) } else { Ok(()) }
    }
}
