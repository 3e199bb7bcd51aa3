//! What asks for a sync, and who stands behind balancers: as tables, and for all inputs.

use ccm_provider::well_known::{FINALIZER_LOAD_BALANCER, LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED};
use ccm_provider::{Node, NodeRef, Service, Taint};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::decide::{
    Left, candidates, host_names, is_candidate, is_excluded, needs_update, node_matters, same_hosts, wants, why_left,
};

/// A Service of type LoadBalancer, with this change.
fn service(change: Value) -> Service {
    let mut object = json!({
        "metadata": {"name": "s", "namespace": "default", "uid": "u", "annotations": {"a": "1"}},
        "spec": {"type": "LoadBalancer", "ipFamilies": ["IPv4"], "ports": [{"name": "http", "port": 80, "protocol": "TCP"}]},
    });
    merge(&mut object, change);
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, change: Value) {
    match (into, change) {
        (Value::Object(into), Value::Object(change)) => {
            for (key, value) in change {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, change) => *into = change,
    }
}

fn spec(change: Value) -> Service {
    service(Value::Object([("spec".to_owned(), change)].into_iter().collect()))
}

#[track_caller]
fn check(old: &Service, new: &Service, wanted: bool) {
    assert_eq!(needs_update(old, new), wanted);
    assert_eq!(needs_update(new, old), wanted, "the other way");
}

#[test]
fn a_change_of_what_a_balancer_is_made_of_asks_for_a_sync() {
    let old = spec(json!({}));
    for change in [
        json!({"loadBalancerSourceRanges": ["10.0.0.0/8"]}),
        json!({"ports": [{"name": "http", "port": 81, "protocol": "TCP"}]}),
        json!({"ports": [{"name": "web", "port": 80, "protocol": "TCP"}]}),
        json!({"ports": [{"name": "http", "port": 80, "protocol": "UDP"}]}),
        json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP", "nodePort": 30000}]}),
        json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": "web"}]}),
        json!({"ports": [{"name": "http", "port": 80, "protocol": "TCP", "appProtocol": "http"}]}),
        json!({"ports": []}),
        json!({"sessionAffinity": "ClientIP"}),
        json!({"sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 5}}}),
        json!({"loadBalancerIP": "1.2.3.4"}),
        json!({"externalIPs": ["1.2.3.4"]}),
        json!({"externalTrafficPolicy": "Local"}),
        json!({"healthCheckNodePort": 30001}),
        json!({"ipFamilies": ["IPv4", "IPv6"]}),
        json!({"type": "ClusterIP"}),
        json!({"loadBalancerClass": "other"}),
    ] {
        check(&old, &spec(change), true);
    }
    for change in [json!({"annotations": {"a": "2"}}), json!({"annotations": {"b": "1"}}), json!({"uid": "other"})] {
        check(&old, &service(json!({"metadata": change})), true);
    }
}

#[test]
fn what_no_balancer_is_made_of_asks_for_nothing() {
    let old = spec(json!({}));
    check(&old, &old, false);
    check(&old, &spec(json!({"selector": {"app": "x"}})), false);
    check(&old, &spec(json!({"internalTrafficPolicy": "Local"})), false);
    check(&old, &spec(json!({"ipFamilyPolicy": "PreferDualStack"})), false);
    check(&old, &spec(json!({"clusterIP": "10.0.0.1"})), false);
    check(&old, &service(json!({"metadata": {"labels": {"x": "y"}, "resourceVersion": "9"}})), false);
    check(&old, &service(json!({"status": {"loadBalancer": {"ingress": [{"ip": "1.2.3.4"}]}}})), false);
    let families = |list: Value| spec(json!({"ipFamilies": list}));
    check(&families(json!(["IPv4", "IPv6"])), &families(json!(["IPv6", "IPv4"])), false);
}

#[test]
fn orders_of_ports_and_external_ips_count() {
    let ports = |names: [&str; 2]| spec(json!({"ports": names.map(|name| json!({"name": name, "port": 80}))}));
    check(&ports(["a", "b"]), &ports(["b", "a"]), true);
    let ips = |list: [&str; 2]| spec(json!({"externalIPs": list}));
    check(&ips(["1.1.1.1", "2.2.2.2"]), &ips(["2.2.2.2", "1.1.1.1"]), true);
}

#[test]
fn services_that_want_no_balancer_before_and_after_ask_for_nothing() {
    let kind = |kind: &str, ip: &str| spec(json!({"type": kind, "loadBalancerIP": ip}));
    check(&kind("ClusterIP", "1.1.1.1"), &kind("NodePort", "2.2.2.2"), false);
    let class = |ip: &str| spec(json!({"loadBalancerClass": "other", "loadBalancerIP": ip}));
    check(&class("1.1.1.1"), &class("2.2.2.2"), false);
}

#[test]
fn a_service_that_is_going_away_wants_no_balancer() {
    let leaving = |finalizers: &[&str]| {
        service(json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": finalizers}}))
    };
    assert!(wants(&spec(json!({}))));
    assert!(!wants(&leaving(&["example.com/other"])));
    assert!(!leaving(&["example.com/other"]).needs_cleanup());
    assert!(leaving(&["example.com/other", FINALIZER_LOAD_BALANCER]).needs_cleanup());
}

fn node(name: &str) -> Node {
    Node { name: name.into(), provider_id: Some(format!("fake://{name}").into()), ..Node::default() }
}

fn labelled(value: &str) -> Node {
    Node { labels: [(LABEL_EXCLUDE_BALANCERS, value)].into_iter().collect(), ..node("n") }
}

fn tainted(key: &str) -> Node {
    let taint = Taint { key: key.into(), value: "".into(), effect: "NoSchedule".into(), time_added: None };
    Node { taints: [taint].into(), ..node("n") }
}

#[test]
fn the_exclusion_label_counts_unless_its_value_reads_as_false() {
    for out in ["", "true", "foo", "1", "no", "FALSE "] {
        assert!(is_excluded(&labelled(out)) && !is_candidate(&labelled(out)), "{out:?}");
    }
    for inside in ["0", "f", "F", "false", "FALSE", "False"] {
        assert!(!is_excluded(&labelled(inside)) && is_candidate(&labelled(inside)), "{inside:?}");
    }
    assert!(!is_excluded(&node("n")));
}

#[test]
fn the_autoscalers_taint_and_a_deletion_take_a_node_out() {
    assert!(is_candidate(&node("n")));
    assert!(!is_candidate(&tainted(TAINT_TO_BE_DELETED)));
    assert!(is_candidate(&tainted("node.kubernetes.io/unschedulable")));
    assert!(!is_candidate(&Node { deleting: true, ..node("n") }));
    assert!(is_candidate(&Node { provider_id: None, ..node("n") }));
}

#[test]
fn only_exclusion_and_provider_id_of_a_node_matter_by_themselves() {
    let old = node("n");
    assert!(node_matters(&old, &labelled("")));
    assert!(!node_matters(&old, &labelled("false")));
    assert!(!node_matters(&labelled("a"), &labelled("b")));
    assert!(node_matters(&Node { provider_id: None, ..node("n") }, &old));
    assert!(!node_matters(&old, &tainted(TAINT_TO_BE_DELETED)));
    assert!(!node_matters(&old, &Node { deleting: true, ..node("n") }));
    assert!(!node_matters(&old, &Node { ready: Some(ccm_provider::node::ConditionStatus::True), ..node("n") }));
}

#[test]
fn a_host_that_is_still_a_node_left_on_purpose() {
    assert_eq!(why_left(Some(&tainted(TAINT_TO_BE_DELETED))), Left::OnPurpose);
    assert_eq!(why_left(None), Left::NodeMissing);
}

#[test]
fn names_of_hosts_are_sorted_and_limited_to_the_first_twenty() {
    let named = |names: Vec<String>| host_names(&names.iter().map(|name| NodeRef::new(node(name))).collect::<Vec<_>>());
    assert_eq!(named(vec![]), "[]");
    assert_eq!(named(vec!["b".into(), "a".into()]), "[a b]");
    let many = named((0..23).map(|i| format!("n{i:02}")).collect());
    assert!(many.starts_with("[n00 n01 ") && many.ends_with(" n19 <3 more>]"), "{many}");
}

prop_compose! {
    fn any_node()(
        name in "[a-d]",
        id in prop::option::of("[xy]"),
        label in prop::option::of(prop::sample::select(vec!["", "false", "true"])),
        taint in any::<bool>(),
        deleting in any::<bool>(),
    ) -> NodeRef {
        let mut node = if taint { tainted(TAINT_TO_BE_DELETED) } else { node("n") };
        node.labels = label.map(|value| (LABEL_EXCLUDE_BALANCERS, value)).into_iter().collect();
        NodeRef::new(Node { name: name.as_str().into(), provider_id: id.as_deref().map(Into::into), deleting, ..node })
    }
}

proptest! {
    #[test]
    fn candidates_of_candidates_are_the_same_and_in_order(nodes in prop::collection::vec(any_node(), 0..8)) {
        let once = candidates(nodes.clone());
        prop_assert_eq!(candidates(once.clone()), once.clone());
        let mut rest = nodes.iter();
        prop_assert!(once.iter().all(|node| rest.any(|other| other == node)), "not in order");
    }

    #[test]
    fn the_order_of_hosts_is_no_change(nodes in prop::collection::btree_map("[a-d]", any_node(), 0..5), seed in 0_usize..5) {
        let nodes: Vec<NodeRef> = nodes.into_iter()
            .map(|(name, node)| NodeRef::new(Node { name: name.as_str().into(), ..(*node).clone() }))
            .collect();
        let mut turned = nodes.clone();
        turned.rotate_left(seed.min(nodes.len()));
        prop_assert!(same_hosts(&nodes, &turned));
        if let Some((_, fewer)) = nodes.split_first() {
            prop_assert!(!same_hosts(&nodes, fewer));
            let mut other = turned;
            other[0] = NodeRef::new(Node { provider_id: Some("new".into()), ..(*other[0]).clone() });
            prop_assert!(!same_hosts(&nodes, &other));
        }
    }
}
