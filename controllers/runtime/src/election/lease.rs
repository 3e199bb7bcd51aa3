//! The Lease object on the wire.

use std::time::{Duration, SystemTime};

use ccm_provider::duration;
use http::Method;
use serde_json::{Map, Value, json};

use super::ElectionConfig;
use crate::client::{ApiError, Call, Client};
use crate::clock::timestamp;

/// The time for a new connection after a request without an answer; a credential plugin may be slow.
const RECONNECT: Duration = Duration::from_secs(2);

/// A Lease as read, including unknown fields.
#[derive(Clone)]
pub(super) struct Lease(Value);

/// The fields of a Lease that the election reads.
#[derive(Clone, Copy)]
pub(super) struct Record<'a> {
    /// The holder; empty if the Lease is free.
    pub(super) holder: &'a str,
    /// `leaseDurationSeconds`: the time that others must wait.
    pub(super) duration: Option<Duration>,
    /// The number of changes of the holder.
    pub(super) transitions: i64,
}

impl Lease {
    /// Parses the server's answer; `None` if it is not a Lease that can be written back safely.
    pub(super) fn from_value(value: Value) -> Option<Self> {
        // Without a version a write would have no precondition.
        value.pointer("/metadata/resourceVersion")?.as_str().filter(|version| !version.is_empty())?;
        Some(Self(value))
    }

    fn text(&self, pointer: &str) -> &str {
        self.0.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
    }

    pub(super) fn uid(&self) -> &str {
        self.text("/metadata/uid")
    }

    pub(super) fn version(&self) -> &str {
        self.text("/metadata/resourceVersion")
    }

    pub(super) fn record(&self) -> Record<'_> {
        let number = |pointer| self.0.pointer(pointer).and_then(Value::as_i64);
        let seconds = number("/spec/leaseDurationSeconds").and_then(|s| u64::try_from(s).ok());
        Record {
            holder: self.text("/spec/holderIdentity"),
            duration: seconds.filter(|s| *s > 0).map(Duration::from_secs),
            transitions: number("/spec/leaseTransitions").unwrap_or_default(),
        }
    }

    pub(super) fn renewed(&self) -> Option<jiff::Timestamp> {
        self.text("/spec/renewTime").parse().ok()
    }

    /// Whether the record is unchanged. Labels and the like do not count.
    pub(super) fn same_record(&self, other: &Self) -> bool {
        self.0.get("spec") == other.0.get("spec")
    }

    /// The same object, held by this process.
    pub(super) fn taken(&self, config: &ElectionConfig, wall: SystemTime) -> Value {
        let record = self.record();
        let mut now = micro_time(wall);
        if now == self.text("/spec/renewTime") {
            // The server ignores a write without a change, so others would not see the renewal. The wall clock can
            // stand still, or be set back to the same microsecond.
            now = micro_time(wall + Duration::from_micros(1));
        }
        let mut fields = vec![
            ("holderIdentity", json!(config.identity)),
            ("leaseDurationSeconds", json!(seconds(config.lease_duration))),
            ("renewTime", json!(now)),
        ];
        if record.holder != config.identity {
            fields.push(("acquireTime", json!(now)));
            fields.push(("leaseTransitions", json!(record.transitions.saturating_add(1))));
        }
        self.with(fields)
    }

    /// The same object without holder.
    pub(super) fn released(&self, wall: SystemTime) -> Value {
        let now = micro_time(wall);
        self.with(vec![
            ("holderIdentity", json!("")),
            ("leaseDurationSeconds", json!(1)),
            ("acquireTime", json!(now)),
            ("renewTime", json!(now)),
        ])
    }

    fn with(&self, fields: Vec<(&str, Value)>) -> Value {
        let mut object = self.0.clone();
        if let Some(object) = object.as_object_mut() {
            let spec = object.entry("spec").or_insert(Value::Null);
            if !spec.is_object() {
                *spec = Value::Object(Map::new());
            }
            if let Some(spec) = spec.as_object_mut() {
                spec.extend(fields.into_iter().map(|(name, value)| (name.to_owned(), value)));
            }
        }
        object
    }
}

/// Rounded up: others must not wait for less time than this process assumes.
fn seconds(lease: Duration) -> u64 {
    lease.as_secs() + u64::from(lease.subsec_nanos() > 0)
}

/// `2026-01-02T03:04:05.000006Z`
fn micro_time(at: SystemTime) -> String {
    format!("{:.6}", timestamp(at))
}

/// The requests for one Lease.
pub(super) struct Leases {
    client: Client,
    config: ElectionConfig,
    collection: String,
    label: String,
}

impl Leases {
    pub(super) fn new(client: &Client, config: &ElectionConfig) -> Self {
        Self {
            client: client.clone(),
            config: config.clone(),
            collection: format!("/apis/coordination.k8s.io/v1/namespaces/{}/leases", config.namespace),
            label: format!("{}/{}", config.namespace, config.name),
        }
    }

    /// `<namespace>/<name>`
    pub(super) fn label(&self) -> &str {
        &self.label
    }

    fn path(&self) -> String {
        format!("{}/{}", self.collection, self.config.name)
    }

    /// A request without an answer in time may yet take effect, but not together with a later one: each write has the
    /// version that it replaces.
    async fn send(&self, call: Call<'_>) -> Result<Lease, ApiError> {
        let answer = self.client.read(&call.within(self.config.request_deadline())).await;
        if let Err(ApiError::Deadline(_)) = answer {
            tracing::info!(lease = self.label, "the API server did not answer in time, connecting again");
            drop(tokio::time::timeout(RECONNECT, self.client.reconnect()).await);
        }
        let value = answer?;
        Lease::from_value(value).ok_or_else(|| ApiError::Decode("it is not a Lease with a resourceVersion".into()))
    }

    pub(super) async fn get(&self) -> Result<Lease, ApiError> {
        self.send(Call::get(self.path())).await
    }

    pub(super) async fn put(&self, body: &Value) -> Result<Lease, ApiError> {
        self.send(Call::json(Method::PUT, self.path(), body)).await
    }

    pub(super) async fn create(&self, wall: SystemTime) -> Result<Lease, ApiError> {
        let config = &self.config;
        let now = micro_time(wall);
        let body = json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"namespace": config.namespace, "name": config.name},
            "spec": {
                "holderIdentity": config.identity,
                "leaseDurationSeconds": seconds(config.lease_duration),
                "acquireTime": now,
                "renewTime": now,
                "leaseTransitions": 0,
            },
        });
        self.send(Call::json(Method::POST, self.collection.as_str(), &body)).await
    }

    /// The request that watches the Lease from a version on.
    pub(super) fn watch(&self, version: &str, limit: Duration) -> (Client, Call<'static>) {
        let path = format!(
            "{}?watch=true&fieldSelector=metadata.name%3D{}&resourceVersion={version}&timeoutSeconds={}",
            self.collection,
            self.config.name,
            limit.as_secs(),
        );
        (self.client.clone(), Call::get(path).within(self.config.request_deadline()))
    }

    /// An error with its remedy.
    pub(super) fn explain(&self, verb: &str, error: &ApiError) -> String {
        let (label, namespace) = (&self.label, &self.config.namespace);
        let text = format!("cannot {verb} lease {label}: {error}");
        match error {
            ApiError::Status { code: 401, .. } => format!("{text} (the credentials are not accepted)"),
            ApiError::Status { code: 403, .. } => format!(
                "{text} (the role of this program needs the verbs get, create and update on leases of the group \
                 coordination.k8s.io in namespace {namespace}; {verb} is missing)"
            ),
            ApiError::Status { code: 404, .. } if verb == "create" => {
                format!(
                    "{text} (is there a namespace {namespace}, and does the API server serve coordination.k8s.io/v1?)"
                )
            }
            ApiError::Deadline(limit) => format!("cannot {verb} lease {label} within {}", duration::format(*limit)),
            _ => text,
        }
    }
}
