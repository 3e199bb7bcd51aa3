//! The addresses of external load balancers.

use super::external::go_made;
use super::*;

/// A region has 8 reservations by default, and only a rule that is replaced has an address to lose.
#[test]
fn of_many_services_few_reserve_an_address_at_once() {
    let mut sketch = Sketch::new();
    let mut works = Vec::new();
    let go = go_made().observed;
    for number in 10..30 {
        let mut service = web(json!({"ports": ports("TCP", &[81])}));
        service.metadata.uid = format!("{number}111111-2222-3333-4444-555555555555").into();
        service.metadata.name = format!("s{number}").into();
        let name = service.default_load_balancer_name();
        sketch.observed.rules.insert(name.clone(), ForwardingRule { name: name.clone(), ..go.rules[LB].clone() });
        sketch.observed.pools.insert(name, go.pools[LB].clone());
        works.push(ServiceWork::new(&service, &sketch.nodes, ServiceAction::Ensure));
    }
    let (wanted, _) = wanted(&sketch.env, &works);
    let Steps { steps, failed, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    let reserved = steps.iter().filter(|step| step.kind == "Address" && step.verb == Does::Create);
    assert_eq!((reserved.count(), failed.len()), (4, 16));
    assert!(failed.values().all(ProviderError::is_in_progress), "the others have their turn");
    // Meanwhile, their balancers serve as they are.
    assert_eq!(steps.iter().filter(|step| step.kind == "ForwardingRule" && step.verb == Does::Delete).count(), 4);
    assert_eq!(steps.iter().filter(|step| step.id == "k8s-cid-node").count(), 1);
    // Those of balancers of which an operation goes on count, too.
    sketch.observed.reserving = ["a", "b", "c"].map(str::to_owned).into();
    let Steps { steps, failed, .. } = plan(&sketch.env, &sketch.observed, &wanted);
    let reserved = steps.iter().filter(|step| step.kind == "Address" && step.verb == Does::Create);
    assert_eq!((reserved.count(), failed.len()), (1, 19));
}

pub(super) fn wants(ip: &str) -> Service {
    web(json!({"loadBalancerIP": ip}))
}

#[test]
fn an_address_that_is_not_regional_is_refused_and_nothing_changes() {
    let mut sketch = go_made();
    let error = sketch.refuses(&wants("198.51.100.1"));
    assert!(error.contains(r#"requested ip "198.51.100.1" is neither static nor assigned to the LB"#), "{error}");
    assert!(error.contains("regional") && error.contains("us-central1"), "{error}");
    // The current address needs no reservation.
    let kept = web(json!({"loadBalancerIP": "203.0.113.7", "ports": ports("TCP", &[80, 443])}));
    assert_eq!(sketch.ensure(&kept), [] as [&str; 0]);
}

#[test]
fn a_reserved_address_is_used_and_never_released() {
    let mut sketch = Sketch::new();
    reserve(
        &mut sketch,
        json!({"name": "mine", "address": "198.51.100.1", "addressType": "EXTERNAL", "networkTier": "PREMIUM"}),
    );
    let steps = sketch.ensure(&wants("198.51.100.1"));
    assert!(!steps.iter().any(|step| step.contains("Address")), "{steps:?}");
    assert_eq!(sketch.ip().as_deref(), Some("198.51.100.1"));
    // Without the field the address stays, also if the rule is created again.
    assert_eq!(sketch.ensure(&web(json!({}))), [] as [&str; 0]);
    let steps = sketch.ensure(&web(json!({"ports": ports("TCP", &[81])})));
    assert!(!steps.iter().any(|step| step.contains("Address")), "{steps:?}");
    assert_eq!(sketch.ip().as_deref(), Some("198.51.100.1"));
    sketch.delete(&web(json!({})));
    assert_eq!(sketch.contents(), ["address mine"]);
}

#[test]
fn an_address_of_another_tier_or_user_is_refused_before_the_rule_goes() {
    let mut sketch = go_made();
    reserve(&mut sketch, json!({"name": "cheap", "address": "198.51.100.1", "networkTier": "STANDARD"}));
    let error = sketch.refuses(&wants("198.51.100.1"));
    assert_eq!(error, r#"requested IP "198.51.100.1" belongs to the STANDARD network tier; expected PREMIUM"#);
    reserve(
        &mut sketch,
        json!({"name": "cheap", "address": "198.51.100.1", "users": [format!("{WWW}/zones/{ZONE}/instances/x")]}),
    );
    let error = sketch.refuses(&wants("198.51.100.1"));
    assert!(error.contains("in use by x"), "{error}");
    // Found before the first write.
    let mut sketch = Sketch::new();
    for (fields, expected) in [
        (json!({"addressType": "INTERNAL"}), "is INTERNAL, and the load balancer EXTERNAL"),
        (json!({"purpose": "NAT_AUTO"}), "NAT_AUTO"),
    ] {
        let mut address = json!({"name": "mine", "address": "198.51.100.1"});
        address.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        reserve(&mut sketch, address);
        let error = sketch.refuses(&wants("198.51.100.1"));
        assert!(error.contains("spec.loadBalancerIP") && error.contains(expected), "{error}");
    }
    assert!(sketch.refuses(&wants("10.1.2.3")).contains("is a private address, and the load balancer EXTERNAL"));
}

#[test]
fn a_rule_is_replaced_only_if_the_other_rules_with_the_address_are_known_to_differ() {
    let user = format!("{WWW}/regions/us-central1/forwardingRules/x");
    let mut sketch = go_made();
    reserve(&mut sketch, json!({"name": "mine", "address": "198.51.100.1", "users": [user]}));
    let wanted = wants("198.51.100.1");
    let is_replaced =
        |sketch: &Sketch| words(&sketch.ensures(&wanted)).contains(&"create ForwardingRule LB".to_owned());
    // It cannot be read.
    let error = sketch.refuses(&wanted);
    assert!(error.contains("in use by x, and it is not known for which ports"), "{error}");
    for (fields, shares) in [
        (json!({"IPProtocol": "UDP", "portRange": "80-80"}), true),
        (json!({"IPProtocol": "TCP", "portRange": "8000-9000"}), true),
        (json!({"IPProtocol": "TCP", "ports": ["8000", "9000"]}), true),
        (json!({"IPProtocol": "TCP", "portRange": "1-1000"}), false),
        (json!({"IPProtocol": "TCP", "ports": ["80", "9000"]}), false),
        (json!({"IPProtocol": "TCP", "allPorts": true}), false),
        (json!({"IPProtocol": "TCP"}), false),
    ] {
        let rule = serde_json::from_value(fields.clone()).unwrap();
        sketch.observed.sharers = [(user.clone(), rule)].into();
        if shares {
            assert!(is_replaced(&sketch), "{fields}");
        } else {
            assert!(sketch.refuses(&wanted).contains("in use by x for the same protocol and port"), "{fields}");
        }
    }
    // The first rule of a Service has nothing to lose.
    let mut sketch = Sketch::new();
    reserve(&mut sketch, json!({"name": "mine", "address": "198.51.100.1", "users": [user]}));
    assert!(is_replaced(&sketch));
}

#[test]
fn the_address_of_a_replaced_rule_is_kept_until_the_rule_with_the_requested_one_is_there() {
    let mut sketch = go_made();
    reserve(&mut sketch, json!({"name": "mine", "address": "198.51.100.1"}));
    let steps = words(&sketch.ensures(&wants("198.51.100.1")));
    let at = |text: &str| steps.iter().position(|step| step == text).unwrap_or_else(|| panic!("{text}: {steps:?}"));
    assert!(at("create Address LB") < at("delete ForwardingRule LB"), "{steps:?}");
    assert!(at("create ForwardingRule LB") < at("delete Address LB"), "{steps:?}");
    // It is reserved by the user.
    let old = sketch.ip().unwrap();
    reserve(&mut sketch, json!({"name": "old", "address": old}));
    let steps = words(&sketch.ensures(&wants("198.51.100.1")));
    assert!(!steps.iter().any(|step| step.contains("Address")), "{steps:?}");
}

#[test]
fn an_address_that_is_left_over_is_used_or_released() {
    let mut sketch = Sketch::new();
    let left = |ip: &str, description: &str| json!({"name": LB, "description": description, "address": ip});
    reserve(&mut sketch, left("203.0.113.50", OURS));
    sketch.ensure(&web(json!({})));
    assert_eq!(sketch.ip().as_deref(), Some("203.0.113.50"));
    assert!(sketch.observed.addresses.is_empty());
    reserve(&mut sketch, left("203.0.113.51", OURS));
    assert_eq!(sketch.ensure(&web(json!({}))), ["delete Address LB"]);
}

/// Only a change that has to reserve an address needs the name.
#[test]
fn an_address_of_others_with_the_name_of_the_balancer_is_never_released() {
    let mut sketch = Sketch::new();
    sketch.ensure(&web(json!({})));
    let ip = sketch.ip().unwrap();
    let other_ports = web(json!({"ports": ports("TCP", &[81])}));
    reserve(&mut sketch, json!({"name": LB, "description": "theirs", "address": "203.0.113.51"}));
    assert_eq!(sketch.ensure(&web(json!({}))), [] as [&str; 0]);
    let error = sketch.refuses(&other_ports);
    assert!(error.contains("the forwarding rule is not replaced") && error.contains(LB), "{error}");
    // They have reserved the address of the balancer, which is kept by that.
    reserve(&mut sketch, json!({"name": LB, "description": "theirs", "address": ip}));
    assert!(!sketch.ensure(&other_ports).iter().any(|step| step.contains("Address")));
    assert_eq!(sketch.ip(), Some(ip));
    sketch.delete(&other_ports);
    assert_eq!(sketch.contents(), [format!("address {LB}")]);
}
