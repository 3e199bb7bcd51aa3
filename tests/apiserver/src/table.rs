//! The columns of `kubectl get` for Nodes, Services and events. For other kinds kubectl prints names and ages
//! itself.

use crate::kind::Kind;
use crate::store::{List, Stored};
use crate::value::{at, list as items, set, text, texts};
use crate::watch::{EventType, WatchEvent};
use jiff::Timestamp;
use serde_json::{Map, Value, json};

/// Name, whether only `-o wide` shows it, and the cell of an object.
pub(crate) type Column = (&'static str, bool, fn(&Value) -> String);

const NODES: &[Column] = &[
    ("Name", false, name),
    ("Status", false, status),
    ("Roles", false, roles),
    ("Age", false, |node| age(text(node, "/metadata/creationTimestamp"))),
    ("Version", false, |node| text(node, "/status/nodeInfo/kubeletVersion").to_owned()),
    ("Internal-IP", true, |node| address(node, "InternalIP")),
    ("External-IP", true, |node| address(node, "ExternalIP")),
];

const SERVICES: &[Column] = &[
    ("Name", false, name),
    ("Type", false, |service| text(service, "/spec/type").to_owned()),
    ("Cluster-IP", false, |service| or_none(text(service, "/spec/clusterIP").to_owned())),
    ("External-IP", false, external),
    ("Port(s)", false, |service| or_none(joined(items(service, "/spec/ports").iter().map(port)))),
    ("Age", false, |service| age(text(service, "/metadata/creationTimestamp"))),
    ("Selector", true, |service| {
        let pairs = map(service, "/spec/selector").map(|(key, value)| format!("{key}={}", text(value, "")));
        or_none(joined(pairs))
    }),
];

const EVENTS: &[Column] = &[
    ("Last Seen", false, last_seen),
    ("Type", false, |event| text(event, "/type").to_owned()),
    ("Reason", false, |event| text(event, "/reason").to_owned()),
    ("Object", false, |event| {
        format!("{}/{}", text(event, "/involvedObject/kind").to_lowercase(), text(event, "/involvedObject/name"))
    }),
    ("Message", false, |event| text(event, "/message").trim().to_owned()),
];

pub(crate) fn columns(kind: &Kind) -> Option<&'static [Column]> {
    match kind.plural {
        "nodes" => Some(NODES),
        "services" => Some(SERVICES),
        "events" => Some(EVENTS),
        _ => None,
    }
}

/// The event of a watch, with its object as a table with one row.
pub(crate) fn event(columns: &[Column], event: &WatchEvent, headed: bool) -> Value {
    let object = event.value();
    let rows = if event.event == EventType::Bookmark { Vec::new() } else { vec![row(columns, &object)] };
    let mut metadata = json!({"resourceVersion": text(&object, "/metadata/resourceVersion")});
    // The annotation for the end of the initial events is on the table, as it would be on the object.
    if let Some(annotations) = at(&object, "/metadata/annotations").filter(|_| rows.is_empty()) {
        set(&mut metadata, "/annotations", annotations.clone());
    }
    table(if headed { Some(columns) } else { None }, &metadata, &rows)
}

/// One object as a table.
pub(crate) fn single(columns: &[Column], stored: &Stored) -> Value {
    let metadata = json!({"resourceVersion": stored.version.to_string()});
    table(Some(columns), &metadata, &[row(columns, &stored.value())])
}

/// A list as a table.
pub(crate) fn list(columns: &[Column], list: &List, metadata: &Value) -> Value {
    let rows: Vec<Value> = list.items.iter().map(|stored| row(columns, &stored.value())).collect();
    table(Some(columns), metadata, &rows)
}

fn table(columns: Option<&[Column]>, metadata: &Value, rows: &[Value]) -> Value {
    let define = |(name, wide, _): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": "", "priority": i32::from(*wide)})
    };
    let definitions: Option<Vec<Value>> = columns.map(|columns| columns.iter().map(define).collect());
    json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": definitions, "rows": rows})
}

fn row(columns: &[Column], object: &Value) -> Value {
    let cells: Vec<String> = columns.iter().map(|(_, _, cell)| cell(object)).collect();
    let partial =
        json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")});
    json!({"cells": cells, "object": partial})
}

fn map<'a>(object: &'a Value, path: &str) -> impl Iterator<Item = (&'a String, &'a Value)> {
    at(object, path).and_then(Value::as_object).into_iter().flat_map(Map::iter)
}

fn joined(parts: impl Iterator<Item = String>) -> String {
    parts.collect::<Vec<_>>().join(",")
}

fn or_none(text: String) -> String {
    if text.is_empty() { "<none>".to_owned() } else { text }
}

fn name(object: &Value) -> String {
    text(object, "/metadata/name").to_owned()
}

fn status(node: &Value) -> String {
    let ready = items(node, "/status/conditions").iter().find(|one| text(one, "/type") == "Ready");
    let status = match ready.map(|ready| text(ready, "/status")) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    };
    let cordoned = at(node, "/spec/unschedulable") == Some(&Value::Bool(true));
    if cordoned { format!("{status},SchedulingDisabled") } else { status.to_owned() }
}

fn roles(node: &Value) -> String {
    let role = |key: &String| key.strip_prefix("node-role.kubernetes.io/").map(str::to_owned);
    or_none(joined(map(node, "/metadata/labels").filter_map(|(key, _)| role(key))))
}

fn address(node: &Value, kind: &str) -> String {
    let found = items(node, "/status/addresses").iter().find(|one| text(one, "/type") == kind);
    or_none(found.map_or("", |one| text(one, "/address")).to_owned())
}

fn port(port: &Value) -> String {
    let (number, protocol) = (at(port, "/port").unwrap_or(&Value::Null), text(port, "/protocol"));
    at(port, "/nodePort").map_or(format!("{number}/{protocol}"), |node| format!("{number}:{node}/{protocol}"))
}

fn external(service: &Value) -> String {
    let mut found = texts(service, "/spec/externalIPs");
    found.extend(items(service, "/status/loadBalancer/ingress").iter().map(|one| match text(one, "/ip") {
        "" => text(one, "/hostname").to_owned(),
        address => address.to_owned(),
    }));
    match text(service, "/spec/type") {
        "ExternalName" => text(service, "/spec/externalName").to_owned(),
        "LoadBalancer" if found.is_empty() => "<pending>".to_owned(),
        _ => or_none(found.join(",")),
    }
}

fn last_seen(event: &Value) -> String {
    let times = ["/lastTimestamp", "/firstTimestamp", "/eventTime"].map(|path| text(event, path));
    age(times.into_iter().find(|time| !time.is_empty()).unwrap_or_default())
}

/// The time since then, in one unit.
fn age(since: &str) -> String {
    let Ok(since) = since.parse::<Timestamp>() else { return "<unknown>".to_owned() };
    let seconds = Timestamp::now().as_second().saturating_sub(since.as_second());
    match seconds {
        ..=-1 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..10_800 => format!("{}m", seconds / 60),
        10_800..172_800 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}
