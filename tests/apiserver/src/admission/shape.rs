//! The effects of a round trip through Go's types: empty fields are removed, and fields without `omitempty` are added.

use crate::error::ApiError;
use crate::kind::Kind;
use crate::value::{at, list_mut, object, remove, set, set_default, text};
use serde_json::{Map, Value};

/// Fields with `omitempty`, which are removed if they are empty or false.
const OMITTED: &str = "/metadata/labels /metadata/annotations /metadata/finalizers /metadata/ownerReferences \
    /metadata/generateName /spec/taints /spec/providerID /spec/podCIDR /spec/podCIDRs /spec/unschedulable \
    /spec/externalName /spec/externalIPs /spec/selector /spec/ports /spec/loadBalancerIP \
    /spec/loadBalancerSourceRanges /spec/publishNotReadyAddresses /spec/healthCheckNodePort /status/addresses \
    /status/conditions /status/images /status/volumesAttached /status/loadBalancer/ingress /message /reason /action \
    /type /count";

const NODE_INFO: &str = "machineID systemUUID bootID kernelVersion osImage containerRuntimeVersion kubeletVersion \
    kubeProxyVersion operatingSystem architecture";

/// Converts an object to the form in which it is stored.
pub(super) fn normalize(kind: &Kind, value: &mut Value) -> Result<(), ApiError> {
    // A field of this list could have another meaning only in namespaces and persistent volumes, but they do not have
    // these fields.
    for path in OMITTED.split(' ') {
        if at(value, path).is_some_and(is_empty) {
            remove(value, path);
        }
    }
    match kind.plural {
        "nodes" => node(value)?,
        "services" => {
            set_default(value, "/spec", Map::new());
            set_default(value, "/status/loadBalancer", Map::new());
        }
        "events" => event(value)?,
        "leases" => {
            set_default(value, "/spec", Map::new());
            time(value, "/spec/acquireTime", true)?;
            time(value, "/spec/renewTime", true)?;
        }
        "namespaces" | "persistentvolumes" => {
            set_default(value, "/spec", Map::new());
            set_default(value, "/status", Map::new());
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
    set_default(value, "/spec", Map::new());
    set_default(value, "/status/daemonEndpoints/kubeletEndpoint/Port", 0);
    for field in NODE_INFO.split(' ') {
        set_default(value, &format!("/status/nodeInfo/{field}"), "");
    }
    for taint in list_mut(value, "/spec/taints") {
        if text(taint, "/value").is_empty() {
            remove(taint, "/value");
        }
        time(taint, "/timeAdded", false)?;
    }
    for condition in list_mut(value, "/status/conditions") {
        for field in ["lastHeartbeatTime", "lastTransitionTime"] {
            time(condition, &format!("/{field}"), false)?;
            object(condition).entry(field).or_insert(Value::Null);
        }
    }
    Ok(())
}

fn event(value: &mut Value) -> Result<(), ApiError> {
    set_default(value, "/involvedObject", Map::new());
    set_default(value, "/source", Map::new());
    set_default(value, "/reportingComponent", "");
    set_default(value, "/reportingInstance", "");
    for (field, micro) in [("firstTimestamp", false), ("lastTimestamp", false), ("eventTime", true)] {
        time(value, &format!("/{field}"), micro)?;
        object(value).entry(field).or_insert(Value::Null);
    }
    Ok(())
}

/// Rewrites a time in the precision of its type, and rejects invalid ones, as decoding does.
fn time(value: &mut Value, path: &str, micro: bool) -> Result<(), ApiError> {
    let Some(found) = at(value, path).cloned() else { return Ok(()) };
    let text = found.as_str().unwrap_or_default();
    // A `MicroTime` is rejected unless its fraction has exactly six digits.
    let fraction = text.split_once('.').map(|(_, rest)| rest.chars().take_while(char::is_ascii_digit).count());
    let parsed = text.parse::<jiff::Timestamp>().ok().filter(|_| !micro || fraction == Some(6));
    let Some(parsed) = parsed else {
        let layout = if micro { "2006-01-02T15:04:05.000000Z07:00" } else { "2006-01-02T15:04:05Z07:00" };
        return Err(ApiError::undecodable(&format!("parsing time {found} as \"{layout}\": cannot parse {found}")));
    };
    set(value, path, if micro { format!("{parsed:.6}") } else { crate::clock::seconds(parsed) });
    Ok(())
}
