//! The events of the object.

use std::collections::BTreeMap;

use ccm_controllers::{ipam, lifecycle, node, service};
use ccm_provider::{EVENT_ERROR_CLASS, ErrorClass};
use ccm_runtime::Client;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::super::page;
use super::Object;

/// Event sources whose warnings are errors of this program or of the Go program that it replaced.
const COMPONENTS: &[&str] = &[node::COMPONENT, lifecycle::COMPONENT, service::COMPONENT, ipam::COMPONENT];
/// Events of a successful sync.
const WENT_WELL: &[&str] = &["EnsuredLoadBalancer", "UpdatedLoadBalancer", "DeletedLoadBalancer", "Synced"];

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Event {
    /// `Normal` or `Warning`.
    pub(super) kind: String,
    pub(super) reason: String,
    pub(super) message: String,
    pub(super) component: String,
    pub(super) count: u64,
    /// The error class, if the reporter set it.
    pub(super) class: Option<ErrorClass>,
    pub(super) last: Option<Timestamp>,
}

impl Event {
    pub(super) fn is_warning(&self) -> bool {
        self.kind == "Warning"
    }

    pub(super) fn json(&self, now: Timestamp) -> Value {
        json!({
            "type": self.kind,
            "reason": self.reason,
            "message": self.message,
            "component": self.component,
            "class": self.class.as_ref().map(ErrorClass::as_str),
            "count": self.count,
            "last": self.last.map(|last| last.to_string()),
            "secondsAgo": self.last.map(|last| seconds(last, now)),
        })
    }
}

fn seconds(then: Timestamp, now: Timestamp) -> i64 {
    now.duration_since(then).as_secs().max(0)
}

/// `12s ago`, `5m ago`, `3h ago`, `4d ago`
pub(super) fn ago(then: Timestamp, now: Timestamp) -> String {
    let age = seconds(then, now);
    match age {
        0..120 => format!("{age}s ago"),
        120..7200 => format!("{}m ago", age / 60),
        7200..172_800 => format!("{}h ago", age / 3600),
        _ => format!("{}d ago", age / 86_400),
    }
}

/// `12s ago`, `3 times, last 12s ago`
pub(super) fn when(event: &Event, now: Timestamp) -> String {
    let last = event.last.map_or_else(|| "at an unknown time".to_owned(), |last| ago(last, now));
    if event.count > 1 { format!("{} times, last {last}", event.count) } else { last }
}

/// The last error of a controller, unless a sync has succeeded since. Warnings without an error class (those of the Go
/// program, and those that are not errors) count only if there is no other.
pub(super) fn last_error(events: &[Event]) -> Option<&Event> {
    let went_well = |error: &Event| {
        let well = |event: &&Event| event.component == error.component && WENT_WELL.contains(&&*event.reason);
        events.iter().filter(well).any(|event| event.last >= error.last)
    };
    let ours = |event: &&Event| event.is_warning() && COMPONENTS.contains(&&*event.component) && !went_well(event);
    let mut open = events.iter().filter(ours);
    open.clone().find(|event| event.class.is_some()).or_else(|| open.next())
}

/// All events of the object, newest first; or the reason why they cannot be listed.
pub(super) async fn list(client: &Client, object: &Object) -> Result<Vec<Event>, String> {
    let (kind, namespace, name, uid) = match object {
        // Events of cluster-scoped objects are in this namespace.
        Object::Node(node) => ("Node", "default", &*node.name, &*node.uid),
        Object::Service(service) => {
            let metadata = &service.metadata;
            ("Service", &*metadata.namespace, &*metadata.name, &*metadata.uid)
        }
    };
    let path = format!(
        "/api/v1/namespaces/{namespace}/events?fieldSelector=involvedObject.kind%3D{kind}%2CinvolvedObject.name%3D{name}"
    );
    match page::all(client, &path).await {
        Ok(events) => Ok(newest_first(events, name, uid)),
        Err(error) if error.is_forbidden() => {
            Err(format!("events: may not be listed: grant list on events in the namespace {namespace} ({error})"))
        }
        Err(error) => Err(format!("events: {error}")),
    }
}

fn newest_first(events: Vec<Raw>, name: &str, uid: &str) -> Vec<Event> {
    // A kubelet sets the UID to the node's name. Another UID belongs to an earlier object with the same name.
    let mine = |raw: &Raw| [uid, name].contains(&&*raw.involved_object.uid);
    let mut events: Vec<Event> = events.into_iter().filter(mine).map(Raw::event).collect();
    // Within one second, the warning is newer: the failed sync began with the normal event.
    events.sort_by(|a, b| b.last.cmp(&a.last).then_with(|| b.is_warning().cmp(&a.is_warning())));
    events
}

/// `core/v1` Event, also as written by `events.k8s.io`. Every text may be null.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Raw {
    #[serde(default)]
    metadata: Metadata,
    #[serde(default)]
    involved_object: Involved,
    #[serde(rename = "type")]
    kind: Option<String>,
    reason: Option<String>,
    message: Option<String>,
    count: Option<u64>,
    first_timestamp: Option<Timestamp>,
    last_timestamp: Option<Timestamp>,
    event_time: Option<Timestamp>,
    source: Option<Source>,
    reporting_component: Option<String>,
    series: Option<Series>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Metadata {
    annotations: Option<BTreeMap<String, String>>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Involved {
    uid: String,
}

#[derive(Deserialize)]
struct Source {
    component: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Series {
    count: Option<u64>,
    last_observed_time: Option<Timestamp>,
}

impl Raw {
    fn event(self) -> Event {
        let series = self.series.unwrap_or(Series { count: None, last_observed_time: None });
        let component = self.source.and_then(|source| source.component).or(self.reporting_component);
        let last = series.last_observed_time.or(self.last_timestamp).or(self.event_time).or(self.first_timestamp);
        let annotations = self.metadata.annotations.unwrap_or_default();
        Event {
            class: annotations.get(EVENT_ERROR_CLASS).and_then(|word| ErrorClass::from_name(word)),
            kind: self.kind.unwrap_or_default(),
            reason: self.reason.unwrap_or_default(),
            message: self.message.unwrap_or_default(),
            component: component.unwrap_or_default(),
            count: series.count.or(self.count).unwrap_or(1).max(1),
            last,
        }
    }
}

#[cfg(test)]
pub(super) fn parse(list: &Value, name: &str, uid: &str) -> Vec<Event> {
    newest_first(serde_json::from_value(list["items"].clone()).unwrap(), name, uid)
}
