//! The triggers of a sync, and the nodes that are hosts of load balancers: table tests and property tests.

use std::sync::Arc;

use ccm_provider::well_known::{FINALIZER_LOAD_BALANCER, LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED};
use ccm_provider::{Change, Node, NodeRef, Plan, Risk, Service, ServiceControllerSpec, Step, Taint, Verb};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::choice::Choices;
use super::decide::{candidates, host_names, node_matters, removal};
use super::role::{CHANGE_HANDS, Owners, Role};

fn web() -> Value {
    json!({
        "metadata": {"namespace": "default", "name": "web", "uid": "u1", "labels": {"a": "1"}, "annotations": {"x": "1"}},
        "spec": {
            "type": "LoadBalancer",
            "ports": [
                {"name": "http", "protocol": "TCP", "port": 80, "nodePort": 30080, "targetPort": 8080, "appProtocol": "http"},
                {"name": "https", "protocol": "TCP", "port": 443, "nodePort": 30443, "targetPort": "tls"},
            ],
            "selector": {"app": "web"},
            "sessionAffinity": "None",
            "clusterIP": "10.0.0.1",
            "clusterIPs": ["10.0.0.1"],
            "ipFamilies": ["IPv4", "IPv6"],
            "ipFamilyPolicy": "RequireDualStack",
            "externalIPs": ["192.0.2.1", "192.0.2.2"],
            "loadBalancerIP": "",
            "externalTrafficPolicy": "Cluster",
            "internalTrafficPolicy": "Cluster",
            "allocateLoadBalancerNodePorts": true,
        },
    })
}

fn read(json: Value) -> Service {
    serde_json::from_value(json).unwrap()
}

/// The Service with one field set; `null` removes it.
fn with(pointer: &str, value: Value) -> Service {
    let mut service = web();
    let (parent, field) = pointer.rsplit_once('/').unwrap();
    let parent = service.pointer_mut(parent).unwrap_or_else(|| panic!("no {parent}"));
    match parent {
        Value::Array(list) => list[field.parse::<usize>().unwrap()] = value,
        object => object[field] = value,
    }
    read(service)
}

/// With provider IDs as backends, as by default.
fn same_hosts(old: &[NodeRef], new: &[NodeRef]) -> bool {
    super::decide::same_hosts(old, new, |node| Some(node.provider_id_or_empty().into()))
}

#[test]
fn fields_that_a_balancer_is_made_of_ask_for_a_sync_and_others_do_not() {
    let check = |pointer: &str, value: Value, wanted: bool| {
        let (old, new) = (read(web()), with(pointer, value.clone()));
        assert_ne!(old, new, "{pointer} = {value} is no change");
        assert_eq!(Role::standard([]).needs_update(&old, &new), wanted, "{pointer} = {value}");
        assert_eq!(Role::standard([]).needs_update(&new, &old), wanted, "back from {pointer} = {value}");
    };
    let http = web()["spec"]["ports"][0].clone();
    let https = web()["spec"]["ports"][1].clone();
    for (pointer, value) in [
        ("/spec/loadBalancerSourceRanges", json!(["10.0.0.0/8"])),
        // A missing and an empty list differ.
        ("/spec/loadBalancerSourceRanges", json!([])),
        ("/spec/ports/0/name", json!("web")),
        ("/spec/ports/0/protocol", json!("UDP")),
        ("/spec/ports/0/port", json!(81)),
        ("/spec/ports/0/nodePort", json!(30081)),
        ("/spec/ports/0/targetPort", json!(8081)),
        ("/spec/ports/0/targetPort", json!("8080")),
        ("/spec/ports/0/appProtocol", json!("h2c")),
        ("/spec/ports/0/appProtocol", Value::Null),
        ("/spec/ports", json!([http])),
        ("/spec/ports", json!([https, http])),
        ("/spec/sessionAffinity", json!("ClientIP")),
        ("/spec/sessionAffinityConfig", json!({"clientIP": {"timeoutSeconds": 5}})),
        ("/spec/loadBalancerIP", json!("192.0.2.9")),
        ("/spec/externalIPs", json!(["192.0.2.1"])),
        ("/spec/externalIPs", json!(["192.0.2.2", "192.0.2.1"])),
        ("/metadata/annotations/x", json!("2")),
        ("/metadata/annotations/anything", json!("")),
        ("/metadata/annotations", Value::Null),
        ("/metadata/uid", json!("u2")),
        ("/spec/externalTrafficPolicy", json!("Local")),
        ("/spec/healthCheckNodePort", json!(31000)),
        ("/spec/ipFamilies", json!(["IPv4"])),
        // From or to a Service that this controller handles.
        ("/spec/type", json!("ClusterIP")),
        ("/spec/type", json!("NodePort")),
        ("/spec/loadBalancerClass", json!("example.com/x")),
    ] {
        check(pointer, value, true);
    }
    for (pointer, value) in [
        ("/metadata/labels/a", json!("2")),
        ("/metadata/resourceVersion", json!("7")),
        ("/metadata/finalizers", json!([FINALIZER_LOAD_BALANCER])),
        // The finalizer causes the deletion, not this change.
        ("/metadata/deletionTimestamp", json!("2026-01-01T00:00:00Z")),
        ("/spec/selector/app", json!("other")),
        ("/spec/internalTrafficPolicy", json!("Local")),
        ("/spec/allocateLoadBalancerNodePorts", json!(false)),
        ("/spec/clusterIP", json!("10.0.0.2")),
        ("/spec/clusterIPs", json!(["10.0.0.1", "fd00::1"])),
        ("/spec/ipFamilies", json!(["IPv6", "IPv4"])),
        ("/spec/ipFamilyPolicy", json!("PreferDualStack")),
        ("/status", json!({"loadBalancer": {"ingress": [{"ip": "192.0.2.1"}]}})),
    ] {
        check(pointer, value, false);
    }
}

/// A provider's controller for the classes `a` and `b`.
const SPEC: ServiceControllerSpec = ServiceControllerSpec {
    name: "x-service-lb-controller",
    aliases: &["x-service"],
    client_name: "x-service-controller",
    classes: &["example.com/a", "example.com/b"],
    metrics_prefix: "x",
};

#[test]
fn each_service_has_one_controller_also_when_it_is_deleted() {
    let (alone, beside, classes) = (Role::standard([]), Role::standard(SPEC.classes.iter().copied()), Role::of(&SPEC));
    let check = |change: Value, asks: [bool; 3], cleans_up: [bool; 3]| {
        let mut service = web();
        for (pointer, value) in change.as_object().unwrap() {
            let (parent, field) = pointer.rsplit_once('/').unwrap();
            service.pointer_mut(parent).unwrap()[field] = value.clone();
        }
        let service = read(service);
        let roles = [&alone, &beside, &classes];
        assert_eq!(roles.map(|role| role.asks(&service)), asks, "{change}");
        assert_eq!(roles.map(|role| role.needs_cleanup(&service)), cleans_up, "{change}");
        let leaving = service.metadata.deletion_timestamp.is_some();
        assert_eq!(roles.map(|role| role.wants(&service)), asks.map(|asks| asks && !leaving), "{change}");
    };
    let none = [false; 3];
    let (class, gone, ours) = ("/spec/loadBalancerClass", "/metadata/deletionTimestamp", "/metadata/finalizers");
    let (now, finalizer) = (json!("2026-01-01T00:00:00Z"), json!([FINALIZER_LOAD_BALANCER]));
    check(json!({}), [true, true, false], none);
    check(json!({(ours): finalizer}), [true, true, false], none);
    check(json!({(ours): finalizer, (gone): now}), [true, true, false], [true, true, false]);
    check(json!({(class): "example.com/b", (ours): finalizer}), [false, false, true], none);
    // Without a controller for the class, the standard one deletes the existing load balancer.
    check(json!({(class): "example.com/a", (ours): finalizer, (gone): now}), [false, false, true], [true, false, true]);
    check(json!({(class): "example.com/c", (ours): finalizer, (gone): now}), none, [true, true, false]);
    check(json!({(class): "example.com/a", (gone): now}), [false, false, true], none);
    // The class is removed with the type.
    check(json!({"/spec/type": "ClusterIP", (ours): finalizer}), none, [true, true, false]);
}

#[tokio::test(start_paused = true)]
async fn a_service_changes_hands_only_when_its_controller_has_nothing_left_to_do() {
    let (owners, key) = (Owners::default(), read(web()).key());
    assert!(owners.take(&key, "a") && owners.take(&key, "a") && !owners.take(&key, "b"));
    owners.release(&key, "b");
    assert!(!owners.take(&key, "b"));
    owners.release(&key, "a");
    assert!(!owners.take(&key, "b"), "the last write of the other one may not have been seen yet");
    tokio::time::advance(CHANGE_HANDS).await;
    assert!(owners.take(&key, "b") && !owners.take(&key, "a"));
}

#[test]
fn a_controller_for_classes_has_metrics_of_its_own() {
    let metrics = ccm_runtime::Metrics::new();
    super::ServiceMetrics::prefixed(&metrics, None).syncs.inc();
    let own = super::ServiceMetrics::prefixed(&metrics, Some(SPEC.metrics_prefix));
    own.syncs.inc_by(2);
    own.update_latency.observe(3.0);
    assert_eq!(metrics.sample("service_controller_loadbalancer_sync_total"), Some(1.0));
    assert_eq!(metrics.sample("x_service_controller_loadbalancer_sync_total"), Some(2.0));
    assert_eq!(metrics.sample("x_service_controller_nodesync_error_total"), Some(0.0));
    let latency = "x_service_controller_update_loadbalancer_host_latency_seconds";
    assert_eq!(metrics.sample(&format!("{latency}_bucket{{le=\"4\"}}")), Some(1.0));
    assert_eq!(metrics.sample("x_service_controller_nodesync_latency_seconds_count"), Some(0.0));
}

fn node(name: &str) -> Node {
    Node { name: name.into(), provider_id: Some(format!("fake://{name}").into()), ..Node::default() }
}

fn refs(names: &[&str]) -> Vec<NodeRef> {
    names.iter().map(|name| NodeRef::new(node(name))).collect()
}

fn tainted(key: &str) -> Node {
    let taint = Taint { key: key.into(), value: "".into(), effect: "NoSchedule".into(), time_added: None };
    Node { taints: [taint].into(), ..node("a") }
}

fn labeled(key: &str, value: &str) -> Node {
    Node { labels: [(key, value)].into_iter().collect(), ..node("a") }
}

#[test]
fn the_exclusion_label_takes_a_node_out_unless_it_reads_as_false() {
    for out in ["", "true", "1", "t", "foo", "no", "FaLsE", "false ", "00"] {
        assert!(labeled(LABEL_EXCLUDE_BALANCERS, out).is_excluded_from_balancers(), "{out:?}");
    }
    for within in ["0", "f", "F", "false", "FALSE", "False"] {
        assert!(!labeled(LABEL_EXCLUDE_BALANCERS, within).is_excluded_from_balancers(), "{within:?}");
    }
    assert!(!labeled("node-role.kubernetes.io/control-plane", "").is_excluded_from_balancers());
    assert!(!node("a").is_excluded_from_balancers());
}

#[test]
fn hosts_are_the_same_by_name_and_provider_id_in_any_order() {
    assert!(same_hosts(&[], &[]));
    assert!(same_hosts(&refs(&["a", "b"]), &refs(&["b", "a"])));
    assert!(!same_hosts(&refs(&["a", "b"]), &refs(&["a"])));
    assert!(!same_hosts(&refs(&["a"]), &refs(&["a", "b"])));
    assert!(!same_hosts(&refs(&["a", "b"]), &refs(&["a", "c"])));
    let without_id = vec![NodeRef::new(Node { provider_id: None, ..node("a") })];
    assert!(!same_hosts(&refs(&["a"]), &without_id));
    let other_version = vec![NodeRef::new(Node { resource_version: "9".into(), ready: None, ..node("a") })];
    assert!(same_hosts(&refs(&["a"]), &other_version));
}

#[test]
fn at_most_twenty_hosts_are_named() {
    let numbered = |count: usize| -> Vec<NodeRef> {
        // From the last to the first, to see that they are sorted.
        (1..=count).rev().map(|i| NodeRef::new(node(&format!("n{i:02}")))).collect()
    };
    assert_eq!(host_names(&[]), "[]");
    assert_eq!(host_names(&numbered(3)), "[n01 n02 n03]");
    let twenty = "n01 n02 n03 n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20";
    assert_eq!(host_names(&numbered(20)), format!("[{twenty}]"));
    // The first twenty as given, then sorted.
    let rest = "n04 n05 n06 n07 n08 n09 n10 n11 n12 n13 n14 n15 n16 n17 n18 n19 n20 n21 n22 n23";
    assert_eq!(host_names(&numbered(23)), format!("[{rest} <3 more>]"));
}

fn some_node() -> impl Strategy<Value = Node> {
    let exclude = proptest::option::of(proptest::sample::select(&["", "true", "false", "0", "foo"][..]));
    let id = proptest::option::of(proptest::sample::select(&["fake://1", "fake://2"][..]));
    (0..30u8, exclude, id, any::<bool>(), proptest::bool::weighted(0.2)).prop_map(
        |(name, exclude, id, taint, deleting)| {
            let labels = exclude.into_iter().map(|value| (LABEL_EXCLUDE_BALANCERS, value)).collect();
            let taints = if taint { tainted(TAINT_TO_BE_DELETED).taints } else { Default::default() };
            let provider_id = id.map(Into::into);
            Node { name: format!("n{name}").into(), labels, taints, provider_id, deleting, ..Node::default() }
        },
    )
}

fn some_nodes() -> impl Strategy<Value = Vec<NodeRef>> {
    proptest::collection::btree_map(0..30u8, some_node(), 0..20).prop_map(|nodes| {
        nodes.into_iter().map(|(i, node)| NodeRef::new(Node { name: format!("n{i}").into(), ..node })).collect()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    #[test]
    fn the_order_of_nodes_does_not_matter(
        (nodes, shuffled) in some_nodes().prop_flat_map(|nodes| (Just(nodes.clone()), Just(nodes).prop_shuffle()))
    ) {
        prop_assert!(same_hosts(&candidates(nodes.clone()), &candidates(shuffled.clone())));
        prop_assert_eq!(host_names(&nodes), host_names(&shuffled));
    }

    #[test]
    fn candidates_are_exactly_the_nodes_that_are_not_excluded(nodes in some_nodes()) {
        let kept = candidates(nodes.clone());
        for node in &nodes {
            let is_out = node.deleting
                || node.has_taint(TAINT_TO_BE_DELETED)
                || !matches!(node.labels.get(LABEL_EXCLUDE_BALANCERS), None | Some("false" | "0"));
            prop_assert_eq!(kept.iter().any(|kept| Arc::ptr_eq(kept, node)), !is_out, "{:?}", node);
        }
    }

    #[test]
    fn whatever_changes_the_hosts_without_taint_or_deletion_matters(old in some_node(), new in some_node()) {
        let new = Node { name: old.name.clone(), taints: old.taints.clone(), deleting: old.deleting, ..new };
        let hosts = |node: &Node| candidates(vec![NodeRef::new(node.clone())]);
        if !same_hosts(&hosts(&old), &hosts(&new)) {
            prop_assert!(node_matters(&old, &new));
        }
    }
}

#[test]
fn a_plan_removes_a_host_if_it_detaches_deletes_or_shortens_a_list() {
    let plan = |verb: Verb, before: Option<&str>, after: Option<&str>| {
        let change =
            Change { field: "hosts".into(), before: before.map(str::to_owned), after: after.map(str::to_owned) };
        let step = Step {
            verb,
            kind: "LoadBalancer".into(),
            id: "a".into(),
            changes: vec![change],
            reason: String::new(),
            risk: Risk::None,
        };
        Plan::new("service default/s").with(step)
    };
    assert!(removal(&Plan::default()).is_none());
    for (before, after) in [(None, None), (None, Some("a")), (Some("a"), Some("a b")), (Some("b,a"), Some("a, b, c"))] {
        assert!(removal(&plan(Verb::Update, before, after)).is_none(), "{before:?} {after:?}");
    }
    for (before, after) in
        [(Some("a"), None), (Some("a"), Some("b")), (Some("a,b"), Some("b")), (Some("ab"), Some("a b"))]
    {
        assert!(removal(&plan(Verb::Update, before, after)).is_some(), "{before:?} {after:?}");
    }
    for (verb, removes) in [(Verb::Create, false), (Verb::Attach, false), (Verb::Detach, true), (Verb::Delete, true)] {
        assert_eq!(removal(&plan(verb, None, Some("a"))).is_some(), removes, "{verb:?}");
    }
}

/// The hosts of a Service with this selector: all nodes, or those with a provider ID.
fn chosen(all: bool, candidates: &Arc<[NodeRef]>) -> Arc<[NodeRef]> {
    match all {
        true => candidates.clone(),
        false => candidates.iter().filter(|node| node.provider_id.is_some()).cloned().collect(),
    }
}

proptest! {
    #[test]
    fn the_hosts_after_a_change_are_those_that_a_look_at_every_node_finds(
        (old, mut new) in (some_nodes(), some_nodes()),
        all in any::<bool>(),
        kept in proptest::collection::vec(any::<bool>(), 30),
    ) {
        // Some nodes are the same objects.
        for node in &mut new {
            let same = old.iter().zip(&kept).find(|(one, kept)| **kept && one.name == node.name);
            if let Some((same, _)) = same {
                *node = same.clone();
            }
        }
        let (old, new): (Arc<[NodeRef]>, Arc<[NodeRef]>) = (old.into(), new.into());
        let backend = |node: &Node| {
            if all { Some(node.provider_id_or_empty().to_owned()) } else { node.provider_id.as_deref().map(str::to_owned) }
        };
        let (before, after) = (chosen(all, &old), chosen(all, &new));
        let mut choices = Choices::new(new.clone());
        let same = super::decide::same_hosts(&before, &after, |node| backend(node).map(Into::into));
        match choices.after(&before, &old, backend) {
            None => prop_assert!(same),
            Some(found) => {
                prop_assert!(!same);
                let names = |hosts: &[NodeRef]| hosts.iter().map(|host| host.name.clone()).collect::<Vec<_>>();
                prop_assert_eq!(names(&found), names(&after));
                // Services with the same hosts share the list.
                let again = choices.after(&before, &old, backend).unwrap();
                prop_assert!(Arc::ptr_eq(&found, &again));
            }
        }
    }
}
