//! What one Service gives up and another one takes.

use super::addresses::{add, users_ip};
use super::*;

const INTERNAL: (&str, &str) = ("azure-load-balancer-internal", "true");
/// A Service as it is written: annotations, and its port.
type Given<'a> = (&'a [(&'a str, &'a str)], u16);

fn world() -> World {
    let mut world = World::new();
    for number in 1..=4 {
        add(&mut world, "rg", users_ip(&format!("u{number}"), &format!("198.51.100.{number}")));
    }
    world
}

fn write(world: &mut World, services: &[(&str, Given<'_>)]) {
    for (name, (annotations, number)) in services {
        let spec = json!({"ports": [{"port": number, "nodePort": 30000 + number, "protocol": "TCP"}]});
        world.service(name, annotations, spec);
    }
}

/// Passes, until all Services have what they ask for. None is refused meanwhile, and a label is on one address.
fn converge(world: &mut World, most: usize) {
    for _ in 0..most {
        let (plan, _) = world.planned(&[], ServiceAction::Ensure);
        let refused: Vec<_> = plan.failed.values().filter(|error| !error.is_in_progress()).collect();
        assert!(refused.is_empty(), "{refused:?}");
        if plan.failed.is_empty() {
            break;
        }
        world.pass(&[]);
        let label = |ip: &&Value| json::text(ip, &["properties", "dnsSettings", "domainNameLabel"]).to_owned();
        let labels: Vec<String> = world.addresses().iter().map(label).filter(|label| !label.is_empty()).collect();
        assert_eq!(BTreeSet::from_iter(&labels).len(), labels.len(), "{labels:?}");
    }
    world.settle(&[]);
}

const U1: (&str, &str) = ("azure-pip-name", "u1");
const U2: (&str, &str) = ("azure-pip-name", "u2");
const U3: (&str, &str) = ("azure-pip-name", "u3");
const U4: (&str, &str) = ("azure-pip-name", "u4");
const P8: (&str, &str) = ("azure-load-balancer-ipv4", "10.0.9.8");
const P9: (&str, &str) = ("azure-load-balancer-ipv4", "10.0.9.9");

#[test]
fn an_address_is_taken_in_the_call_after_that_in_which_a_later_service_gives_it_up() {
    for (before, after, takes) in [
        (&[U1][..], &[U2][..], &[U1][..]),
        (&[U1], &[], &[U1]),
        (&[U1], &[INTERNAL], &[U1]),
        (&[INTERNAL, P9], &[INTERNAL, P8], &[INTERNAL, P9]),
        (&[INTERNAL, P9], &[], &[INTERNAL, P9]),
    ] {
        for number in [80, 81] {
            let mut world = world();
            write(&mut world, &[("b", (before, 80))]);
            world.settle(&[]);
            let taken = world.status("b");
            write(&mut world, &[("a", (takes, number)), ("b", (after, 80))]);
            assert_eq!(world.pass(&[]).keys().collect::<Vec<_>>(), ["a"], "{after:?} {number}");
            world.settle(&[]);
            assert_eq!(world.status("a"), taken, "{after:?} {number}");
            assert_ne!(world.status("b"), taken, "{after:?} {number}");
        }
    }
}

#[test]
fn a_port_that_a_later_service_gives_up_is_taken_in_the_same_write() {
    let mut world = world();
    write(&mut world, &[("b", (&[U1], 80))]);
    world.settle(&[]);
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[U1], 81))]);
    world.settle(&[]);
    assert_eq!(world.count("update LoadBalancer"), 1);
    assert_eq!(
        (world.status("a"), world.status("b")),
        (vec!["198.51.100.1".to_owned()], vec!["198.51.100.1".to_owned()])
    );
}

#[test]
fn a_chain_of_services_moves_with_one_call_for_each() {
    let mut world = world();
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[U2], 80)), ("c", (&[U3], 80))]);
    world.settle(&[]);
    write(&mut world, &[("a", (&[U2], 80)), ("b", (&[U3], 80)), ("c", (&[U4], 80))]);
    converge(&mut world, 2);
    assert_eq!(world.status("a"), ["198.51.100.2"]);
}

#[test]
fn services_exchange_what_they_have() {
    let labels = [("azure-dns-label-name", "one"), ("azure-dns-label-name", "two")];
    for (before, after, passes) in [
        ([(&[U1][..], 80), (&[U2][..], 80)], [(&[U2][..], 80), (&[U1][..], 80)], 2),
        ([(&[U1], 80), (&[U2], 81)], [(&[U2], 80), (&[U1], 81)], 2),
        ([(&[INTERNAL, P8], 80), (&[INTERNAL, P9], 80)], [(&[INTERNAL, P9], 80), (&[INTERNAL, P8], 80)], 2),
        ([(&[INTERNAL, P8], 80), (&[U1], 80)], [(&[U1], 80), (&[INTERNAL, P8], 80)], 2),
        ([(&[U1], 80), (&[U1], 81)], [(&[U1], 81), (&[U1], 80)], 0),
        ([(&[INTERNAL, P8], 80), (&[INTERNAL, P8], 81)], [(&[INTERNAL, P8], 81), (&[INTERNAL, P8], 80)], 0),
        ([(&labels[..1], 80), (&labels[1..], 80)], [(&labels[1..], 80), (&labels[..1], 80)], 2),
    ] {
        let mut world = world();
        write(&mut world, &[("a", before[0]), ("b", before[1])]);
        world.settle(&[]);
        let status = (world.status("a"), world.status("b"));
        write(&mut world, &[("a", after[0]), ("b", after[1])]);
        converge(&mut world, passes);
        let now = (world.status("a"), world.status("b"));
        let moves = before[0].0 != after[0].0 && !before[0].0.contains(&labels[0]);
        assert_eq!(now, if moves { (status.1, status.0) } else { status }, "{before:?}");
    }
}

#[test]
fn three_services_exchange_their_addresses() {
    let mut world = world();
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[U2], 80)), ("c", (&[U3], 80))]);
    world.settle(&[]);
    write(&mut world, &[("a", (&[U2], 80)), ("b", (&[U3], 80)), ("c", (&[U1], 80))]);
    converge(&mut world, 3);
    assert_eq!(world.status("c"), ["198.51.100.1"]);
}

#[test]
fn a_label_is_taken_in_the_call_after_that_in_which_another_service_gives_it_up() {
    let label = |name| [("azure-dns-label-name", name)];
    for [taker, giver] in [["a", "b"], ["b", "a"]] {
        let mut world = world();
        write(&mut world, &[(giver, (&label("one"), 80))]);
        world.settle(&[]);
        write(&mut world, &[(giver, (&label("two"), 80)), (taker, (&label("one"), 80))]);
        converge(&mut world, 1);
    }
}

#[test]
fn who_waits_for_a_service_that_is_refused_is_refused_too() {
    let mut world = world();
    write(&mut world, &[("b", (&[U1], 80))]);
    world.settle(&[]);
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[("azure-pip-name", "missing")], 80))]);
    let errors = world.pass(&[]);
    assert!(errors["a"].contains("use another port") && errors["b"].contains("missing"), "{errors:?}");
    // Without the conflict it shares what the other one has to keep.
    write(&mut world, &[("a", (&[U1], 81))]);
    assert_eq!(world.pass(&[]).keys().collect::<Vec<_>>(), ["b"]);
    assert_eq!(world.status("a"), ["198.51.100.1"]);
}

#[test]
fn nobody_gives_up_an_address_for_a_service_that_cannot_take_it() {
    let mut world = world();
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[U2], 80)), ("c", (&[U2], 81))]);
    world.settle(&[]);
    // c stays on the address of b, so that b cannot leave it.
    write(&mut world, &[("a", (&[U2], 80)), ("b", (&[U1], 80))]);
    let before = world.balancer("kubernetes").clone();
    let errors = world.pass(&[]);
    assert!(errors["a"].contains("use another port") && errors["b"].contains("cannot change"), "{errors:?}");
    assert_eq!(world.balancer("kubernetes"), &before);
}

#[test]
fn an_address_is_left_once_a_later_service_has_stopped_to_share_it() {
    let mut world = world();
    write(&mut world, &[("a", (&[U1], 80)), ("b", (&[U1], 81))]);
    world.settle(&[]);
    write(&mut world, &[("a", (&[U2], 80)), ("b", (&[U3], 81))]);
    world.settle(&[]);
    assert_eq!(
        (world.status("a"), world.status("b")),
        (vec!["198.51.100.2".to_owned()], vec!["198.51.100.3".to_owned()])
    );
}
