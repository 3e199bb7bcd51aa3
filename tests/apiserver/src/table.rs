//! The columns that `kubectl get` shows.

use crate::kind::Kind;
use crate::store::{List, Stored};
use crate::value::{at, list as items, text, texts};
use crate::watch::{EventType, WatchEvent};
use jiff::Timestamp;
use serde_json::{Value, json};

/// Name of a column, and whether only `-o wide` shows it.
type Column = (&'static str, bool);

fn columns(kind: &Kind) -> &'static [Column] {
    match kind.plural {
        "nodes" => &[
            ("Name", false),
            ("Status", false),
            ("Roles", false),
            ("Age", false),
            ("Version", false),
            ("Internal-IP", true),
            ("External-IP", true),
            ("OS-Image", true),
            ("Kernel-Version", true),
            ("Container-Runtime", true),
        ],
        "services" => &[
            ("Name", false),
            ("Type", false),
            ("Cluster-IP", false),
            ("External-IP", false),
            ("Port(s)", false),
            ("Age", false),
            ("Selector", true),
        ],
        "events" => &[
            ("Last Seen", false),
            ("Type", false),
            ("Reason", false),
            ("Object", false),
            ("Subobject", true),
            ("Source", true),
            ("Message", false),
            ("First Seen", true),
            ("Count", true),
            ("Name", true),
        ],
        "persistentvolumes" => &[
            ("Name", false),
            ("Capacity", false),
            ("Access Modes", false),
            ("Reclaim Policy", false),
            ("Status", false),
            ("Claim", false),
            ("StorageClass", false),
            ("VolumeAttributesClass", false),
            ("Reason", false),
            ("Age", false),
            ("VolumeMode", true),
        ],
        "namespaces" => &[("Name", false), ("Status", false), ("Age", false)],
        "leases" => &[("Name", false), ("Holder", false), ("Age", false)],
        "secrets" => &[("Name", false), ("Type", false), ("Data", false), ("Age", false)],
        "configmaps" => &[("Name", false), ("Data", false), ("Age", false)],
        _ => &[("Name", false), ("Age", false)],
    }
}

/// The event of a watch, its object as a table of one row.
pub(crate) fn event(kind: &Kind, event: &WatchEvent, headed: bool) -> Value {
    let object = event.value();
    let rows = if event.event == EventType::Bookmark { Vec::new() } else { vec![row(kind, &object)] };
    let version = text(&object, &["metadata", "resourceVersion"]);
    let mut metadata = json!({"resourceVersion": version});
    // The end of the initial events is marked on the table as it would be on the object.
    if let Some(annotations) = at(&object, &["metadata", "annotations"]).filter(|_| rows.is_empty()) {
        crate::value::set(&mut metadata, &["annotations"], annotations.clone());
    }
    table(kind, &metadata, &rows, headed)
}

/// One object as a table.
pub(crate) fn single(kind: &Kind, stored: &Stored) -> Value {
    let metadata = json!({"resourceVersion": stored.version.to_string()});
    table(kind, &metadata, &[row(kind, &stored.value())], true)
}

/// A list as a table.
pub(crate) fn list(list: &List, metadata: &Value) -> Value {
    let rows: Vec<Value> = list.items.iter().map(|stored| row(list.kind, &stored.value())).collect();
    table(list.kind, metadata, &rows, true)
}

fn table(kind: &Kind, metadata: &Value, rows: &[Value], headed: bool) -> Value {
    let define = |(name, wide): &Column| {
        let format = if *name == "Name" { "name" } else { "" };
        json!({"name": name, "type": "string", "format": format, "description": "", "priority": i32::from(*wide)})
    };
    let mut table = json!({"kind": "Table", "apiVersion": "meta.k8s.io/v1", "metadata": metadata, "columnDefinitions": null, "rows": rows});
    if headed {
        let definitions: Vec<Value> = columns(kind).iter().map(define).collect();
        crate::value::set(&mut table, &["columnDefinitions"], definitions);
    }
    table
}

fn row(kind: &Kind, object: &Value) -> Value {
    let metadata = at(object, &["metadata"]).cloned().unwrap_or_default();
    let partial = json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": metadata});
    json!({"cells": cells(kind, object), "object": partial})
}

fn cells(kind: &Kind, object: &Value) -> Vec<Value> {
    let name = text(object, &["metadata", "name"]).to_owned();
    let age = age(text(object, &["metadata", "creationTimestamp"]));
    let cells: Vec<String> = match kind.plural {
        "nodes" => node(object, name, age),
        "services" => service(object, name, age),
        "events" => event_cells(object, name),
        "persistentvolumes" => volume(object, name, age),
        "namespaces" => vec![name, text(object, &["status", "phase"]).to_owned(), age],
        "leases" => vec![name, text(object, &["spec", "holderIdentity"]).to_owned(), age],
        "secrets" => vec![name, text(object, &["type"]).to_owned(), entries(object).to_string(), age],
        "configmaps" => vec![name, entries(object).to_string(), age],
        _ => vec![name, age],
    };
    cells.into_iter().map(Value::from).collect()
}

fn entries(object: &Value) -> usize {
    ["data", "binaryData"]
        .iter()
        .filter_map(|field| at(object, &[field]))
        .filter_map(Value::as_object)
        .map(serde_json::Map::len)
        .sum()
}

fn node(object: &Value, name: String, age: String) -> Vec<String> {
    let ready = items(object, &["status", "conditions"]).iter().find(|one| text(one, &["type"]) == "Ready");
    let mut status = match ready.map(|ready| text(ready, &["status"])) {
        Some("True") => "Ready",
        Some(_) => "NotReady",
        None => "Unknown",
    }
    .to_owned();
    if at(object, &["spec", "unschedulable"]) == Some(&Value::Bool(true)) {
        status.push_str(",SchedulingDisabled");
    }
    let address = |kind: &str| {
        let found = items(object, &["status", "addresses"]).iter().find(|one| text(one, &["type"]) == kind);
        found.map_or("<none>", |one| text(one, &["address"])).to_owned()
    };
    let info = |field: &str| match text(object, &["status", "nodeInfo", field]) {
        "" => "<unknown>".to_owned(),
        known => known.to_owned(),
    };
    vec![
        name,
        status,
        roles(object),
        age,
        text(object, &["status", "nodeInfo", "kubeletVersion"]).to_owned(),
        address("InternalIP"),
        address("ExternalIP"),
        info("osImage"),
        info("kernelVersion"),
        info("containerRuntimeVersion"),
    ]
}

fn roles(object: &Value) -> String {
    let labels = at(object, &["metadata", "labels"]).and_then(Value::as_object);
    let role = |(key, value): (&String, &Value)| match key.strip_prefix("node-role.kubernetes.io/") {
        Some(role) => Some(role.to_owned()),
        None if key == "kubernetes.io/role" => value.as_str().map(str::to_owned),
        None => None,
    };
    let roles: Vec<String> = labels.into_iter().flatten().filter_map(role).filter(|role| !role.is_empty()).collect();
    if roles.is_empty() { "<none>".to_owned() } else { roles.join(",") }
}

fn service(object: &Value, name: String, age: String) -> Vec<String> {
    let spec = |field: &str| text(object, &["spec", field]).to_owned();
    let kind = spec("type");
    let ports: Vec<String> = items(object, &["spec", "ports"]).iter().map(port).collect();
    let selector: Vec<String> = at(object, &["spec", "selector"])
        .and_then(Value::as_object)
        .into_iter()
        .flatten()
        .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
        .collect();
    let none = |text: String| if text.is_empty() { "<none>".to_owned() } else { text };
    let external = external(object, &kind);
    vec![name, kind, none(spec("clusterIP")), external, none(ports.join(",")), age, none(selector.join(","))]
}

fn port(port: &Value) -> String {
    let number = |field: &str| at(port, &[field]).and_then(Value::as_u64);
    let protocol = text(port, &["protocol"]);
    match (number("port").unwrap_or_default(), number("nodePort")) {
        (port, Some(node)) => format!("{port}:{node}/{protocol}"),
        (port, None) => format!("{port}/{protocol}"),
    }
}

fn external(object: &Value, kind: &str) -> String {
    let mut found = texts(object, &["spec", "externalIPs"]);
    match kind {
        "ExternalName" => text(object, &["spec", "externalName"]).to_owned(),
        "LoadBalancer" => {
            let ingress =
                items(object, &["status", "loadBalancer", "ingress"]).iter().map(|one| match text(one, &["ip"]) {
                    "" => text(one, &["hostname"]).to_owned(),
                    address => address.to_owned(),
                });
            found.extend(ingress);
            if found.is_empty() { "<pending>".to_owned() } else { found.join(",") }
        }
        _ if found.is_empty() => "<none>".to_owned(),
        _ => found.join(","),
    }
}

fn event_cells(object: &Value, name: String) -> Vec<String> {
    let own = |field: &str| text(object, &[field]).to_owned();
    let first = match (text(object, &["firstTimestamp"]), text(object, &["eventTime"])) {
        ("", time) => age(time),
        (time, _) => age(time),
    };
    let last = match (text(object, &["lastTimestamp"]), &first) {
        ("", first) => first.clone(),
        (time, _) => age(time),
    };
    let involved = |field: &str| text(object, &["involvedObject", field]);
    let target = match involved("kind") {
        "" => involved("name").to_owned(),
        kind => format!("{}/{}", kind.to_lowercase(), involved("name")),
    };
    let source = match (text(object, &["source", "component"]), text(object, &["source", "host"])) {
        ("", "") => own("reportingComponent"),
        (component, "") => component.to_owned(),
        (component, host) => format!("{component}, {host}"),
    };
    let count = at(object, &["count"]).and_then(Value::as_i64).unwrap_or(1).to_string();
    let path = involved("fieldPath").to_owned();
    vec![last, own("type"), own("reason"), target, path, source, own("message").trim().to_owned(), first, count, name]
}

fn volume(object: &Value, name: String, age: String) -> Vec<String> {
    let spec = |field: &str| text(object, &["spec", field]).to_owned();
    let modes: Vec<&str> = items(object, &["spec", "accessModes"])
        .iter()
        .filter_map(Value::as_str)
        .map(|mode| match mode {
            "ReadWriteOnce" => "RWO",
            "ReadOnlyMany" => "ROX",
            "ReadWriteMany" => "RWX",
            "ReadWriteOncePod" => "RWOP",
            other => other,
        })
        .collect();
    let going = at(object, &["metadata", "deletionTimestamp"]).is_some();
    let phase = if going { "Terminating" } else { text(object, &["status", "phase"]) };
    let claim = match at(object, &["spec", "claimRef"]) {
        Some(claim) => format!("{}/{}", text(claim, &["namespace"]), text(claim, &["name"])),
        None => String::new(),
    };
    let class = match text(object, &["spec", "volumeAttributesClassName"]) {
        "" => "<unset>",
        class => class,
    };
    vec![
        name,
        text(object, &["spec", "capacity", "storage"]).to_owned(),
        modes.join(","),
        spec("persistentVolumeReclaimPolicy"),
        phase.to_owned(),
        claim,
        spec("storageClassName"),
        class.to_owned(),
        text(object, &["status", "reason"]).to_owned(),
        age,
        spec("volumeMode"),
    ]
}

/// The time since, as kubectl prints it: two units while they matter, then one.
fn age(since: &str) -> String {
    let Ok(since) = since.parse::<Timestamp>() else {
        return "<unknown>".to_owned();
    };
    let seconds = Timestamp::now().as_second().saturating_sub(since.as_second());
    let (minutes, hours, days) = (seconds / 60, seconds / 3600, seconds / 86400);
    let two = |big: i64, unit: &str, small: i64, small_unit: &str| {
        if small == 0 { format!("{big}{unit}") } else { format!("{big}{unit}{small}{small_unit}") }
    };
    match seconds {
        ..=-1 => "<invalid>".to_owned(),
        0..120 => format!("{seconds}s"),
        120..600 => two(minutes, "m", seconds % 60, "s"),
        600..10_800 => format!("{minutes}m"),
        10_800..28_800 => two(hours, "h", minutes % 60, "m"),
        28_800..172_800 => format!("{hours}h"),
        172_800..691_200 => two(days, "d", hours % 24, "h"),
        691_200..63_072_000 => format!("{days}d"),
        63_072_000..252_288_000 => two(days / 365, "y", days % 365, "d"),
        _ => format!("{}y", days / 365),
    }
}

#[cfg(test)]
mod tests {
    use super::age;
    use jiff::{Span, Timestamp};

    #[test]
    fn ages_have_the_units_of_kubectl() {
        let ago = |seconds: i64| age(&(Timestamp::now() - Span::new().seconds(seconds)).to_string());
        assert_eq!([ago(125), ago(4000), ago(100_000), ago(777_600)], ["2m5s", "66m", "27h", "9d"]);
        assert_eq!(age(""), "<unknown>");
    }
}
