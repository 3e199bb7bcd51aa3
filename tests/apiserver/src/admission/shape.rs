//! What a round trip through the typed server does to an object: empty members vanish, and those without `omitempty`
//! appear.

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::{at, list, object, remove, set, set_default, text};
use serde_json::{Map, Value};

/// Members that the typed server drops when they are empty or false.
const OMITTED: &[&[&str]] = &[
    &["metadata", "labels"],
    &["metadata", "annotations"],
    &["metadata", "finalizers"],
    &["metadata", "ownerReferences"],
    &["metadata", "generateName"],
    &["spec", "taints"],
    &["spec", "providerID"],
    &["spec", "podCIDR"],
    &["spec", "podCIDRs"],
    &["spec", "unschedulable"],
    &["spec", "externalName"],
    &["spec", "externalIPs"],
    &["spec", "selector"],
    &["spec", "ports"],
    &["spec", "loadBalancerIP"],
    &["spec", "loadBalancerSourceRanges"],
    &["spec", "publishNotReadyAddresses"],
    &["spec", "healthCheckNodePort"],
    &["status", "addresses"],
    &["status", "conditions"],
    &["status", "images"],
    &["status", "volumesAttached"],
    &["status", "loadBalancer", "ingress"],
    &["data"],
    &["binaryData"],
    &["message"],
    &["reason"],
    &["action"],
    &["type"],
    &["count"],
];

const NODE_INFO: &[&str] = &[
    "machineID",
    "systemUUID",
    "bootID",
    "kernelVersion",
    "osImage",
    "containerRuntimeVersion",
    "kubeletVersion",
    "kubeProxyVersion",
    "operatingSystem",
    "architecture",
];

/// Brings an object into the form in which it is stored.
pub(super) fn normalize(kind: &Kind, value: &mut Value) -> Result<(), ApiError> {
    // Only in namespaces and persistent volumes can a member of this table be meant otherwise; neither has one.
    for path in OMITTED {
        if at(value, path).is_some_and(is_empty) {
            remove(value, path);
        }
    }
    match kind.plural {
        "nodes" => node(value)?,
        "services" => {
            set_default(value, &["spec"], Map::new());
            set_default(value, &["status", "loadBalancer"], Map::new());
        }
        "events" => event(value)?,
        "leases" => {
            set_default(value, &["spec"], Map::new());
            for field in ["acquireTime", "renewTime"] {
                time(value, &["spec", field], true)?;
            }
        }
        "namespaces" | "persistentvolumes" => {
            set_default(value, &["spec"], Map::new());
            set_default(value, &["status"], Map::new());
        }
        _ => {}
    }
    Ok(())
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        Value::String(text) => text.is_empty(),
        Value::Bool(flag) => !flag,
        Value::Number(number) => number.as_i64() == Some(0),
        Value::Null => true,
    }
}

fn node(value: &mut Value) -> Result<(), ApiError> {
    set_default(value, &["spec"], Map::new());
    set_default(value, &["status", "daemonEndpoints", "kubeletEndpoint", "Port"], 0);
    for field in NODE_INFO {
        set_default(value, &["status", "nodeInfo", field], "");
    }
    if let Some(Value::Array(taints)) = value.pointer_mut("/spec/taints") {
        for taint in taints {
            if text(taint, &["value"]).is_empty() {
                remove(taint, &["value"]);
            }
            time(taint, &["timeAdded"], false)?;
        }
    }
    let conditions = list(value, &["status", "conditions"]).len();
    if let Some(Value::Array(conditions)) = (conditions > 0).then(|| value.pointer_mut("/status/conditions")).flatten()
    {
        for condition in conditions {
            for field in ["lastHeartbeatTime", "lastTransitionTime"] {
                time(condition, &[field], false)?;
                object(condition).entry(field).or_insert(Value::Null);
            }
        }
    }
    Ok(())
}

fn event(value: &mut Value) -> Result<(), ApiError> {
    for field in ["involvedObject", "source"] {
        set_default(value, &[field], Map::new());
    }
    for field in ["reportingComponent", "reportingInstance"] {
        set_default(value, &[field], "");
    }
    for (field, micro) in [("firstTimestamp", false), ("lastTimestamp", false), ("eventTime", true)] {
        time(value, &[field], micro)?;
        object(value).entry(field).or_insert(Value::Null);
    }
    Ok(())
}

/// Rewrites a time in the precision of its type, and refuses what is none, as decoding does.
fn time(value: &mut Value, path: &[&str], micro: bool) -> Result<(), ApiError> {
    let Some(found) = at(value, path).cloned() else {
        return Ok(());
    };
    let parsed: Option<jiff::Timestamp> = found.as_str().and_then(|text| text.parse().ok());
    let Some(parsed) = parsed.filter(|_| !micro || has_six_digits(found.as_str().unwrap_or_default())) else {
        let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
        return Err(ApiError::undecodable(&format!("parsing time {found} as \"{layout}\": cannot parse {found}")));
    };
    set(value, path, if micro { format!("{parsed:.6}") } else { crate::clock::seconds(parsed) });
    Ok(())
}

/// A `MicroTime` is refused unless its fraction has exactly six digits.
fn has_six_digits(text: &str) -> bool {
    let fraction = text.split_once('.').map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).count());
    fraction == Some(6)
}

#[cfg(test)]
mod tests {
    use super::normalize;
    use crate::kind::Kind;
    use serde_json::json;

    #[test]
    fn lease_times_need_six_digits() {
        let kind = Kind::by_plural("leases").unwrap();
        let mut lease = json!({"spec": {"renewTime": "2024-01-01T00:00:00Z"}});
        assert_eq!(normalize(kind, &mut lease).unwrap_err().code, 400);
        let mut lease = json!({"spec": {"renewTime": "2024-01-01T00:00:00.100000Z"}});
        assert!(normalize(kind, &mut lease).is_ok());
    }
}
