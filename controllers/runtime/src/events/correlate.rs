//! Processes events before they are sent: counts repeats, combines similar events, limits their rate.
//!
//! The rules, their order and the numbers are those of `client-go/tools/record/events_cache.go`: an event is counted
//! even if it is then dropped, so that the count is correct when a later one passes. Beyond them, the last event of a
//! deletion is never dropped.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_provider::{EVENT_ERROR_CLASS, EventType, Subject};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::Recorded;
use super::lru::Lru;
use crate::clock::timestamp;
use crate::gate::Gate;

/// Keys remembered per rule.
const CACHE: usize = 4096;
/// Messages of one key are combined from this number of distinct ones.
const SIMILAR: usize = 10;
/// The time for which messages of one key count as similar.
const SIMILAR_WITHIN: Duration = Duration::from_secs(600);
/// The number of events of one type that one source may send about one object at once.
const BURST: f64 = 25.0;
/// After the burst, one event is allowed per this time.
const REFILL: Duration = Duration::from_secs(300);
/// The end of the work on an object, which no later event repeats: never dropped, however many events came before.
const LAST: &[&str] = &["DeletedLoadBalancer"];
const COMBINED: &str = "(combined from similar events): ";

type ObjectKey = (Arc<str>, Subject);
type SimilarKey = (ObjectKey, EventType, String);
/// Without a message: the combined event of a key.
type EventKey = (SimilarKey, Option<String>);

/// An event to be sent.
#[derive(Debug, Clone)]
pub(super) struct Outgoing {
    /// The whole event.
    pub(super) body: Value,
    pub(super) subject: Subject,
    pub(super) namespace: Arc<str>,
    pub(super) name: Arc<str>,
    /// The changes since the event was last sent; `None` if it is new.
    pub(super) patch: Option<Value>,
    /// The identity that writes it; `None`: that of the process.
    pub(super) gate: Option<Gate>,
    /// The time until which urgent writes go first.
    pub(super) due: tokio::time::Instant,
}

#[derive(Default)]
struct Similar {
    messages: BTreeSet<String>,
    last: Option<Instant>,
}

struct Counted {
    count: u64,
    first: Timestamp,
    name: Arc<str>,
}

struct Bucket {
    tokens: f64,
    filled: Instant,
}

pub(super) struct Correlator {
    similar: Lru<SimilarKey, Similar>,
    counted: Lru<EventKey, Counted>,
    buckets: Lru<(ObjectKey, EventType), Bucket>,
}

impl Correlator {
    pub(super) fn new() -> Self {
        Self { similar: Lru::new(CACHE), counted: Lru::new(CACHE), buckets: Lru::new(CACHE) }
    }

    /// The event to send; `None` if it is dropped.
    pub(super) fn take(&mut self, mut event: Recorded, now: Instant) -> Option<Outgoing> {
        // No rule distinguishes the versions of an object.
        let version = std::mem::take(&mut event.subject.resource_version);
        let object = (Arc::clone(&event.component), event.subject.clone());
        let kind = event.kind;
        let key = (object.clone(), kind, event.reason.clone());
        let combined = self.combine(&key, &event.message, now);
        let message = if combined { format!("{COMBINED}{}", event.message) } else { event.message.clone() };
        let key = (key, (!combined).then(|| message.clone()));
        let is_last = LAST.contains(&&*event.reason);
        let outgoing = self.count(&key, event, &version, &message);
        (self.admit(&(object, kind), now) || is_last).then_some(outgoing)
    }

    /// Whether there were so many different recent messages that this one is combined with them.
    fn combine(&mut self, key: &SimilarKey, message: &str, now: Instant) -> bool {
        let similar = self.similar.entry(key, Similar::default);
        if similar.last.is_some_and(|last| now.saturating_duration_since(last) > SIMILAR_WITHIN) {
            similar.messages.clear();
        }
        similar.last = Some(now);
        if !similar.messages.contains(message) {
            // The set never reaches the limit: known messages are still counted separately.
            if similar.messages.len() + 1 >= SIMILAR {
                return true;
            }
            similar.messages.insert(message.to_owned());
        }
        false
    }

    fn count(&mut self, key: &EventKey, event: Recorded, version: &str, message: &str) -> Outgoing {
        let at = timestamp(event.at);
        let counted = self.counted.entry(key, || Counted { count: 0, first: at, name: name(&event) });
        counted.count += 1;
        let namespace = match &*event.subject.namespace {
            "" => Arc::from("default"),
            _ => Arc::clone(&event.subject.namespace),
        };
        let last = time(at);
        let mut metadata = json!({"name": counted.name, "namespace": namespace});
        if let (Some(class), Some(metadata)) = (event.class, metadata.as_object_mut()) {
            metadata.insert("annotations".to_owned(), json!({EVENT_ERROR_CLASS: class}));
        }
        let body = json!({
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": metadata,
            "involvedObject": reference(&event.subject, version),
            "reason": event.reason,
            "message": message,
            "source": {"component": event.component},
            "firstTimestamp": time(counted.first),
            "lastTimestamp": last,
            "count": counted.count,
            "type": match event.kind { EventType::Normal => "Normal", EventType::Warning => "Warning" },
            "eventTime": null,
            "reportingComponent": event.component,
            "reportingInstance": "",
        });
        let patch =
            (counted.count > 1).then(|| json!({"count": counted.count, "lastTimestamp": last, "message": message}));
        let Recorded { subject, gate, due, .. } = event;
        Outgoing { body, namespace, name: Arc::clone(&counted.name), patch, subject, gate, due }
    }

    /// Takes a token of the source, object and type: those about attempts leave room for those about failures.
    fn admit(&mut self, key: &(ObjectKey, EventType), now: Instant) -> bool {
        let bucket = self.buckets.entry(key, || Bucket { tokens: BURST, filled: now });
        let refill = now.saturating_duration_since(bucket.filled).as_secs_f64() / REFILL.as_secs_f64();
        bucket.tokens = (bucket.tokens + refill).min(BURST);
        bucket.filled = now;
        // Tolerates rounding errors in a sum of fractions.
        let admitted = bucket.tokens >= 1.0 - 1e-9;
        if admitted {
            bucket.tokens -= 1.0;
        }
        admitted
    }
}

fn reference(subject: &Subject, version: &str) -> Value {
    let mut reference = json!({"kind": subject.kind, "name": subject.name, "apiVersion": subject.api_version});
    for (field, value) in [("namespace", &*subject.namespace), ("uid", &*subject.uid), ("resourceVersion", version)] {
        if let (Some(object), false) = (reference.as_object_mut(), value.is_empty()) {
            object.insert(field.to_owned(), json!(value));
        }
    }
    reference
}

/// Events carry whole seconds.
fn time(at: Timestamp) -> String {
    format!("{at:.0}")
}

/// `<object>.<hex nanoseconds>`; without the object if the server would not accept its name.
fn name(event: &Recorded) -> Arc<str> {
    let name = format!("{}.{:016x}", event.subject.name, event.stamp);
    if is_subdomain(&name) { name.into() } else { format!("event.{:016x}", event.stamp).into() }
}

fn is_subdomain(name: &str) -> bool {
    let alphanumeric = |byte: &u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let label = |label: &str| {
        let bytes = label.as_bytes();
        bytes.iter().all(|byte| alphanumeric(byte) || *byte == b'-')
            && bytes.first().is_some_and(alphanumeric)
            && bytes.last().is_some_and(alphanumeric)
    };
    name.len() <= 253 && name.split('.').all(label)
}
