//! What a Service has stays for as long as it cannot be changed.

use super::*;

/// The ports of the security rules.
fn open_ports(world: &World) -> BTreeSet<String> {
    let ports = world.rules().iter().flat_map(|rule| json::items(rule, "destinationPortRanges"));
    ports.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn a_service_that_is_refused_without_its_annotations_keeps_its_security_rules() {
    let off = ("azure-disable-load-balancer-floating-ip", "true");
    let ranges = ("azure-allowed-destination-ip-ranges", "10.0.0.0/24");
    for annotations in [&[off][..], &[off, ranges]] {
        let mut world = World::new();
        world.service("bad", annotations, port(81)).service("other", &[], port(82)).settle(&[]);
        let before = open_ports(&world);
        assert!(before.contains("30081"), "{before:?}");
        // A value that is refused leaves no part of the Service in the plan.
        world.service("bad", &[], port(81));
        world.service("other", &[], port(83));
        world.pass_of_one("other", ServiceAction::Ensure);
        assert!(open_ports(&world).contains("30081"), "{annotations:?}: {:?}", world.rules());
        world.settle(&[]);
        assert_eq!(open_ports(&world), ["81".to_owned(), "83".to_owned()].into(), "{annotations:?}");
    }
}

#[test]
fn a_service_without_a_place_in_the_security_group_stays_as_it_is_on_the_load_balancer() {
    let mut world = World::new();
    world.service("web", &[], port(81)).settle(&[]);
    let theirs = |number: i64| json!({"name": format!("theirs-{number}"), "properties": {"priority": 500 + number}});
    json::items_mut(world.group_mut(), "securityRules").extend((1..1000).map(theirs));
    // One rule replaces another: there is no place for both at once.
    world.service("web", &[], port(82)).settle(&[]);
    let before = world.balancer("kubernetes").clone();
    let ports = json!({"ports": [port(83)["ports"][0],
        {"port": 84, "nodePort": 30084, "protocol": "UDP"}]});
    world.service("web", &[], ports);
    let errors = world.pass(&[]);
    assert!(errors["web"].contains("maximum number of rules"), "{errors:?}");
    assert_eq!(world.balancer("kubernetes"), &before);
    assert_eq!(open_ports(&world), ["82".to_owned()].into());
}

#[test]
fn the_port_of_a_service_that_leaves_is_taken_in_the_next_pass() {
    let mut world = World::new();
    world.service("first", &[], port(81)).settle(&[]);
    let ip = world.status("first")[0].clone();
    let with = |number: u16| json!({"loadBalancerIP": ip, "ports": port(number)["ports"]});
    world.service("leaves", &[], with(82)).settle(&[]);
    world.service("leaves", &[("azure-load-balancer-internal", "true")], json!({"ports": port(82)["ports"]}));
    world.service("takes", &[], with(82));
    let errors = world.pass(&[]);
    assert!(errors["takes"].contains("another Service leaves the load balancer first"), "{errors:?}");
    world.settle(&[]);
    assert_eq!(world.status("takes"), [ip]);
}
