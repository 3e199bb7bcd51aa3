//! The exact bodies of what the controllers write: strategic-merge patches
//! (`application/strategic-merge-patch+json`), each with no more than what it changes.
//!
//! Behaviour of `kubernetes/cloud-provider` `node/helpers/{address,labels,taints}.go`, `service/helpers/helper.go` and
//! `controllers/route/route_controller.go`.
use serde_json::{Map, Value, json};

use crate::address::NodeAddress;
use crate::node::Taint;
use crate::service::{Condition, LoadBalancerStatus};
use crate::well_known::{FINALIZER_LOAD_BALANCER, REASON_NO_ROUTE, REASON_ROUTE_CREATED};

/// For `nodes/<n>/status`: the addresses, and nothing but these; refused by the API server if the node is another one. The
/// directive at the end keeps the API server from merging them by type into the present ones.
#[must_use]
pub fn node_addresses(uid: &str, addresses: &[NodeAddress]) -> Value {
    let list: Vec<Value> = addresses
        .iter()
        .map(|address| json!({"type": address.kind.as_str(), "address": &*address.address}))
        .chain([json!({"$patch": "replace"})])
        .collect();
    json!({"metadata": {"uid": uid}, "status": {"addresses": list}})
}

/// For `nodes/<n>`: labels to be set; others stay.
pub fn node_labels<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Value {
    json!({"metadata": {"labels": label_map(labels)}})
}

/// For `nodes/<n>`: the whole list of taints, refused by the API server if the node changed since `resource_version`.
#[must_use]
pub fn node_taints(resource_version: &str, taints: &[Taint]) -> Value {
    json!({"metadata": {"resourceVersion": resource_version}, "spec": {"taints": taint_list(taints)}})
}

/// For `nodes/<n>`: everything that initialization changes, in one write that is refused if the node changed since
/// `resource_version`.
///
/// Upstream sends the whole node with PUT instead (`controllers/node/node_controller.go`). The rule for conflicts is the
/// same, but a patch drops nothing that the sender doesn't know.
pub fn node_initialization<K: Into<String>, V: Into<String>>(
    resource_version: &str,
    provider_id: Option<&str>,
    labels: impl IntoIterator<Item = (K, V)>,
    taints: &[Taint],
) -> Value {
    let mut metadata = Map::from_iter([("resourceVersion".to_owned(), Value::from(resource_version))]);
    let labels = label_map(labels);
    if !labels.is_empty() {
        metadata.insert("labels".to_owned(), labels.into());
    }
    let mut spec = Map::from_iter([("taints".to_owned(), taint_list(taints))]);
    if let Some(id) = provider_id {
        spec.insert("providerID".to_owned(), id.into());
    }
    json!({"metadata": metadata, "spec": spec})
}

/// For `nodes/<n>/status`: the condition `NetworkUnavailable`; `available` says that all routes of the node are there.
#[must_use]
pub fn network_condition(available: bool, now: jiff::Timestamp) -> Value {
    let (status, reason, message) = if available {
        ("False", REASON_ROUTE_CREATED, "RouteController created a route")
    } else {
        ("True", REASON_NO_ROUTE, "RouteController failed to create a route")
    };
    let now = rfc3339(now);
    json!({"status": {"conditions": [{
        "type": "NetworkUnavailable",
        "status": status,
        "lastHeartbeatTime": now,
        "lastTransitionTime": now,
        "reason": reason,
        "message": message,
    }]}})
}

/// For `services/<s>/status`: our finalizer, behind the existing ones; one that somebody else adds meanwhile stays.
#[must_use]
pub fn add_finalizer(existing: &[String]) -> Value {
    if existing.is_empty() {
        return json!({"metadata": {"finalizers": [FINALIZER_LOAD_BALANCER]}});
    }
    let order: Vec<&str> = others(existing).chain([FINALIZER_LOAD_BALANCER]).collect();
    json!({"metadata": {"$setElementOrder/finalizers": order, "finalizers": [FINALIZER_LOAD_BALANCER]}})
}

/// For `services/<s>/status`: takes our finalizer away and no other, also one that is not in `existing` yet.
///
/// Upstream sends `"finalizers":null` when ours is the only one it has seen, which wipes one that was added meanwhile.
#[must_use]
pub fn remove_finalizer(existing: &[String]) -> Value {
    let mut metadata =
        Map::from_iter([("$deleteFromPrimitiveList/finalizers".to_owned(), json!([FINALIZER_LOAD_BALANCER]))]);
    let order: Vec<&str> = others(existing).collect();
    if !order.is_empty() {
        metadata.insert("$setElementOrder/finalizers".to_owned(), json!(order));
    }
    json!({"metadata": metadata})
}

/// For `services/<s>/status`: the status of the balancer; an empty one clears what is there.
#[must_use]
pub fn load_balancer_status(status: &LoadBalancerStatus) -> Value {
    let ingress: Vec<Value> = status
        .ingress
        .iter()
        .map(|ingress| {
            let mut entry = Map::new();
            for (key, text) in [("ip", &ingress.ip), ("hostname", &ingress.hostname)] {
                if !text.is_empty() {
                    entry.insert(key.to_owned(), text.as_str().into());
                }
            }
            if let Some(mode) = &ingress.ip_mode {
                entry.insert("ipMode".to_owned(), mode.as_str().into());
            }
            if !ingress.ports.is_empty() {
                let ports: Vec<Value> = ingress
                    .ports
                    .iter()
                    .map(|port| match &port.error {
                        Some(error) => json!({"port": port.port, "protocol": port.protocol, "error": error}),
                        None => json!({"port": port.port, "protocol": port.protocol}),
                    })
                    .collect();
                entry.insert("ports".to_owned(), ports.into());
            }
            entry.into()
        })
        .collect();
    let ingress = if ingress.is_empty() { Value::Null } else { ingress.into() };
    json!({"status": {"loadBalancer": {"ingress": ingress}}})
}

/// For `services/<s>/status`: these conditions, and none of the types in `gone`. The API server merges by type, so that those of
/// others stay.
#[must_use]
pub fn service_conditions(set: &[Condition], gone: &[&str]) -> Value {
    let set = set.iter().map(|condition| json!(condition));
    let gone = gone.iter().map(|kind| json!({"$patch": "delete", "type": kind}));
    json!({"status": {"conditions": set.chain(gone).collect::<Vec<_>>()}})
}

/// Two patches of one object in one. They change different fields; where both name one, the second counts.
#[must_use]
pub fn both(first: Value, second: Value) -> Value {
    match (first, second) {
        (Value::Object(mut all), Value::Object(more)) => {
            for (key, value) in more {
                let value = match all.remove(&key) {
                    Some(present) => both(present, value),
                    None => value,
                };
                all.insert(key, value);
            }
            all.into()
        }
        (_, second) => second,
    }
}

/// A time as the Kubernetes API writes it: UTC, whole seconds.
#[must_use]
pub fn rfc3339(time: jiff::Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn others(finalizers: &[String]) -> impl Iterator<Item = &str> {
    finalizers.iter().map(String::as_str).filter(|name| *name != FINALIZER_LOAD_BALANCER)
}

fn label_map<K: Into<String>, V: Into<String>>(labels: impl IntoIterator<Item = (K, V)>) -> Map<String, Value> {
    labels.into_iter().map(|(key, value)| (key.into(), Value::String(value.into()))).collect()
}

fn taint_list(taints: &[Taint]) -> Value {
    if taints.is_empty() {
        return Value::Null;
    }
    taints
        .iter()
        .map(|taint| {
            let mut entry = Map::from_iter([("key".to_owned(), Value::from(&*taint.key))]);
            if !taint.value.is_empty() {
                entry.insert("value".to_owned(), (*taint.value).into());
            }
            entry.insert("effect".to_owned(), (*taint.effect).into());
            if let Some(time) = &taint.time_added {
                entry.insert("timeAdded".to_owned(), (**time).into());
            }
            Value::from(entry)
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::AddressType;
    use crate::taint::shutdown_taint;

    fn names(list: &[&str]) -> Vec<String> {
        list.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn addresses_replace_the_present_ones() {
        assert_eq!(
            node_addresses("u", &[NodeAddress::new(AddressType::InternalIp, "10.0.0.1")]),
            json!({"metadata": {"uid": "u"}, "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"$patch": "replace"}]}})
        );
    }

    #[test]
    fn labels_are_set_one_by_one() {
        assert_eq!(
            node_labels([("topology.kubernetes.io/zone", "a")]),
            json!({"metadata": {"labels": {"topology.kubernetes.io/zone": "a"}}})
        );
    }

    #[test]
    fn taints_are_written_whole_under_the_resource_version() {
        let timed = Taint {
            key: "k".into(),
            value: "v".into(),
            effect: "NoExecute".into(),
            time_added: Some("2026-01-01T00:00:00Z".into()),
        };
        assert_eq!(
            node_taints("123", &[shutdown_taint(), timed]),
            json!({"metadata": {"resourceVersion": "123"}, "spec": {"taints": [
                {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"},
                {"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-01T00:00:00Z"},
            ]}})
        );
    }

    #[test]
    fn the_last_taint_is_removed_with_null() {
        assert_eq!(
            node_taints("123", &[]).to_string(),
            r#"{"metadata":{"resourceVersion":"123"},"spec":{"taints":null}}"#
        );
    }

    #[test]
    fn taints_are_written_as_they_serialize() {
        let taint = shutdown_taint();
        assert_eq!(node_taints("1", std::slice::from_ref(&taint))["spec"]["taints"], json!([taint]));
    }

    #[test]
    fn initialization_is_one_write() {
        assert_eq!(
            node_initialization("7", Some("fake://1"), [("b", "2"), ("a", "1")], &[shutdown_taint()]),
            json!({
                "metadata": {"resourceVersion": "7", "labels": {"a": "1", "b": "2"}},
                "spec": {"providerID": "fake://1", "taints": [
                    {"key": "node.cloudprovider.kubernetes.io/shutdown", "effect": "NoSchedule"}]},
            })
        );
    }

    #[test]
    fn initialization_leaves_out_what_it_does_not_set() {
        assert_eq!(
            node_initialization("7", None, [("", ""); 0], &[]).to_string(),
            r#"{"metadata":{"resourceVersion":"7"},"spec":{"taints":null}}"#
        );
    }

    #[test]
    fn the_network_condition_has_whole_seconds() {
        let now = "2026-02-03T04:05:06.789Z".parse().unwrap();
        assert_eq!(
            network_condition(true, now),
            json!({"status": {"conditions": [{"type": "NetworkUnavailable", "status": "False",
                "lastHeartbeatTime": "2026-02-03T04:05:06Z", "lastTransitionTime": "2026-02-03T04:05:06Z",
                "reason": "RouteCreated", "message": "RouteController created a route"}]}})
        );
        let missing = network_condition(false, now);
        let condition = &missing["status"]["conditions"][0];
        assert_eq!(condition["status"], "True");
        assert_eq!(condition["reason"], "NoRouteCreated");
        assert_eq!(condition["message"], "RouteController failed to create a route");
    }

    #[test]
    fn our_finalizer_is_added_behind_the_others() {
        assert_eq!(
            add_finalizer(&names(&["foo"])),
            json!({"metadata": {
                "$setElementOrder/finalizers": ["foo", "service.kubernetes.io/load-balancer-cleanup"],
                "finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
        assert_eq!(
            add_finalizer(&[]),
            json!({"metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn removing_our_finalizer_never_names_the_whole_list() {
        assert_eq!(
            remove_finalizer(&names(&["service.kubernetes.io/load-balancer-cleanup", "other"])),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"],
                "$setElementOrder/finalizers": ["other"]}})
        );
        assert_eq!(
            remove_finalizer(&names(&["service.kubernetes.io/load-balancer-cleanup"])),
            json!({"metadata": {
                "$deleteFromPrimitiveList/finalizers": ["service.kubernetes.io/load-balancer-cleanup"]}})
        );
    }

    #[test]
    fn a_status_is_written_as_the_provider_gave_it() {
        let written = json!({"ingress": [
            {"ip": "1.2.3.4", "ipMode": "VIP"},
            {"hostname": "lb.example.com", "ports": [
                {"port": 80, "protocol": "TCP"}, {"port": 53, "protocol": "UDP", "error": "example.com/Down"}]},
        ]});
        let status: LoadBalancerStatus = serde_json::from_value(written.clone()).unwrap();
        assert_eq!(load_balancer_status(&status), json!({"status": {"loadBalancer": written}}));
        assert_eq!(serde_json::to_value(&status).unwrap(), written);
    }

    #[test]
    fn conditions_are_set_and_removed_by_type() {
        let condition = Condition {
            kind: "A".into(),
            status: "True".into(),
            last_transition_time: "2026-01-01T00:00:00Z".into(),
            reason: "R".into(),
            message: "m".into(),
            ..Condition::default()
        };
        let written = json!({"type": "A", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "R",
            "message": "m"});
        assert_eq!(
            service_conditions(std::slice::from_ref(&condition), &["B"]),
            json!({"status": {"conditions": [written, {"$patch": "delete", "type": "B"}]}})
        );
        let counted = service_conditions(&[Condition { observed_generation: 3, ..condition }], &[]);
        assert_eq!(counted["status"]["conditions"][0]["observedGeneration"], 3);
    }

    #[test]
    fn two_patches_become_one() {
        let status = load_balancer_status(&LoadBalancerStatus::default());
        let all = both(both(add_finalizer(&[]), status), service_conditions(&[], &["A"]));
        assert_eq!(
            all,
            json!({
                "metadata": {"finalizers": ["service.kubernetes.io/load-balancer-cleanup"]},
                "status": {"loadBalancer": {"ingress": null}, "conditions": [{"$patch": "delete", "type": "A"}]},
            })
        );
    }

    #[test]
    fn a_cleared_status_is_null() {
        assert_eq!(
            load_balancer_status(&LoadBalancerStatus::default()).to_string(),
            r#"{"status":{"loadBalancer":{"ingress":null}}}"#
        );
    }
}
