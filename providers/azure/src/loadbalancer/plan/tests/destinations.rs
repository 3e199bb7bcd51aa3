//! The destinations of security rules: addresses of load balancers, nodes and networks, of several Services.

use super::*;

#[test]
fn without_floating_ip_the_nodes_are_destinations_and_follow() {
    let mut world = World::new();
    world.service("web", &[("azure-disable-load-balancer-floating-ip", "true")], json!({})).settle(&[]);
    let destinations = |world: &World| world.rules()[0]["properties"]["destinationAddressPrefixes"].clone();
    assert_eq!(destinations(&world), json!(["10.0.0.1", "10.0.0.2"]));
    assert_eq!(world.rules()[0]["properties"]["destinationPortRanges"], json!(["30080"]));
    world.nodes.push(node(3));
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(destinations(&world), json!(["10.0.0.1", "10.0.0.2", "10.0.0.3"]));
    world.service("web", &[], json!({})).settle(&[]);
    assert_eq!(world.rules()[0]["properties"]["destinationAddressPrefix"], "192.0.2.1");
    assert_eq!(world.rules().len(), 1);
}

#[test]
fn services_of_one_address_keep_their_clients_whichever_has_floating_ip() {
    let no_floating_ip = ("azure-disable-load-balancer-floating-ip", "true");
    for internal in [&[][..], &[("azure-load-balancer-internal", "true")]] {
        for names in [["a", "b"], ["b", "a"]] {
            let [floating, fixed] = names;
            let ranges = json!(["10.9.0.0/24"]);
            let spec = |number: u16, ip: &str| json!({"loadBalancerIP": ip, "loadBalancerSourceRanges": ranges, "ports": port(number)["ports"]});
            let first = if internal.is_empty() { "" } else { "10.0.9.9" };
            let denies = ("azure-deny-all-except-load-balancer-source-ranges", "true");
            let mut world = World::new();
            world.service(floating, &[internal, &[denies]].concat(), spec(80, first)).settle(&[]);
            let ip = world.status(floating)[0].clone();
            let is_open = |world: &World| {
                let leads = |rule: &&Value, port: &str| {
                    let to = &rule["properties"];
                    to["destinationPortRanges"] == json!([port]) && to["destinationAddressPrefix"] == ip
                };
                let denies = |rule: &&Value| {
                    let to = &rule["properties"];
                    to["access"] == "Deny" && to["destinationAddressPrefix"] == ip
                };
                world.rules().iter().any(|rule| leads(&rule, "80")) && world.rules().iter().any(|rule| denies(&rule))
            };
            let settings = [internal, &[no_floating_ip]].concat();
            world.service(fixed, &settings, spec(443, &ip)).settle(&[]);
            assert!(is_open(&world), "both in one pass: {names:?}");
            world.nodes.push(node(3));
            assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
            assert!(is_open(&world), "a node joins: {names:?}");
            world.pass_of_one(fixed, ServiceAction::Ensure);
            assert!(is_open(&world), "alone: {names:?}");
            world.service(fixed, internal, spec(443, &ip)).settle(&[]);
            world.pass_of_one(fixed, ServiceAction::Ensure);
            assert!(is_open(&world), "with floating IP again: {names:?}");
            world.service(fixed, &settings, spec(443, &ip)).settle(&[]);
            world.settle(&[fixed]);
            assert!(is_open(&world), "the other one goes: {names:?}");
            world.settle(&[floating]);
            assert_eq!(world.rules(), [] as [Value; 0], "nothing is left: {names:?}");
        }
    }
}

#[test]
fn destinations_of_an_annotation_replace_the_nodes_and_stay() {
    let mut world = World::new();
    let ranges = ("azure-allowed-destination-ip-ranges", "10.0.0.0/16,10.9.0.1/8,fd00::/64");
    let given = [("azure-disable-load-balancer-floating-ip", "true"), ranges];
    world.service("web", &given, json!({}));
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert_eq!(plan.findings[0].key, "InvalidAllowedDestinationIPRanges");
    world.settle(&[]);
    let destinations = |world: &World| -> Vec<Value> {
        world.rules().iter().map(|rule| rule["properties"]["destinationAddressPrefix"].clone()).collect()
    };
    let both = [json!("10.0.0.0/16"), json!("fd00::/64")];
    assert_eq!(destinations(&world), both[..1], "those of its families");
    // Another Service writes the group.
    world.service("api", &[], port(81)).settle(&[]);
    assert_eq!(destinations(&world)[..1], both[..1]);
    world.service("web", &[ranges], json!({})).settle(&[]);
    assert_eq!(destinations(&world)[..], [json!("192.0.2.2"), json!("192.0.2.1")], "floating IP needs no nodes");
    world.service("web", &given, json!({})).settle(&[]);
    world.settle(&["web"]);
    assert_eq!(destinations(&world)[..], [json!("192.0.2.2")]);
}

#[test]
fn a_port_of_a_service_leaves_destinations_that_another_one_keeps() {
    let ranges = ("azure-allowed-destination-ip-ranges", "10.0.0.0/16");
    let others = ("azure-allowed-destination-ip-ranges", "10.0.0.0/24");
    let nodes = ("azure-disable-load-balancer-floating-ip", "true");
    let begin = || {
        let mut world = World::new();
        world.service("web", &[nodes, ranges], json!({})).service("api", &[nodes, ranges], port(81)).settle(&[]);
        world
    };
    let ports = |world: &World, destination: &str| -> Vec<Value> {
        let has = |rule: &&Value| rule["properties"].to_string().contains(destination);
        world.rules().iter().filter(has).map(|rule| rule["properties"]["destinationPortRanges"][0].clone()).collect()
    };
    for now in [&[nodes, others][..], &[ranges]] {
        let mut world = begin();
        assert_eq!(ports(&world, "10.0.0.0/16").len(), 2);
        world.service("web", now, json!({})).pass_of_one("web", ServiceAction::Ensure);
        assert_eq!(ports(&world, "10.0.0.0/16"), [json!("30081")], "{now:?}");
    }
    let mut world = begin();
    world.pass_of_one("web", ServiceAction::Delete);
    assert_eq!(ports(&world, "10.0.0.0/16"), [json!("30081")]);
}

#[test]
fn while_a_service_is_refused_nodes_that_replace_all_others_are_its_destinations() {
    let nodes = ("azure-disable-load-balancer-floating-ip", "true");
    let timeout = ("azure-load-balancer-tcp-idle-timeout", "3");
    for (action, annotations, spec) in [
        (ServiceAction::UpdateHosts, &[nodes, timeout][..], json!({})),
        (ServiceAction::UpdateHosts, &[timeout], port(81)),
        (ServiceAction::Ensure, &[nodes, ("azure-pip-name", "gone")], json!({})),
    ] {
        let mut world = World::new();
        world.service("web", &[nodes], json!({})).service("other", &[], port(443)).settle(&[]);
        world.service("web", annotations, spec);
        world.nodes = vec![node(3), node(4)];
        let errors = world.pass_of(&[], action);
        assert_eq!(errors.contains_key("web"), action == ServiceAction::Ensure, "{errors:?}");
        let of_web = |rule: &&Value| rule["properties"]["destinationPortRanges"] == json!(["30080"]);
        let to = |rule: &Value| rule["properties"]["destinationAddressPrefixes"].clone();
        let destinations: Vec<Value> = world.rules().iter().filter(of_web).map(to).collect();
        assert_eq!(destinations, [json!(["10.0.0.3", "10.0.0.4"])], "{annotations:?}");
        world.pass_of(&[], action);
        assert_eq!(world.writes, [] as [String; 0], "{annotations:?}");
    }
}

const NODES: (&str, &str) = ("azure-disable-load-balancer-floating-ip", "true");
const DENIES: (&str, &str) = ("azure-deny-all-except-load-balancer-source-ranges", "true");

fn to(network: &'static str) -> (&'static str, &'static str) {
    ("azure-allowed-destination-ip-ranges", network)
}

/// The destinations of the rules with these ports, by source. Those of a deny rule: `*`.
fn destinations(world: &World, port: &str) -> BTreeMap<String, Vec<String>> {
    let texts = |rule: &Value, one: &str, many: &str| -> Vec<String> {
        let many = json::items(rule, many).iter().filter_map(Value::as_str).map(str::to_owned);
        many.chain(Some(json::property(rule, one)).filter(|one| !one.is_empty()).map(str::to_owned)).collect()
    };
    let is_for = |rule: &&Value| texts(rule, "destinationPortRange", "destinationPortRanges") == [port];
    let of = |rule: &Value| {
        let sources = texts(rule, "sourceAddressPrefix", "sourceAddressPrefixes").join(",");
        (sources, texts(rule, "destinationAddressPrefix", "destinationAddressPrefixes"))
    };
    world.rules().iter().filter(is_for).map(of).collect()
}

fn only(source: &str, destinations: &[&str]) -> BTreeMap<String, Vec<String>> {
    let destinations = destinations.iter().map(|it| (*it).to_owned()).collect();
    [(source.to_owned(), destinations)].into()
}

#[test]
fn networks_that_a_service_is_given_later_replace_the_nodes() {
    for (given, expected) in [
        ("10.0.0.0/16", &["10.0.0.0/16"][..]),
        ("10.9.0.0/16", &["10.9.0.0/16"]),
        ("10.0.0.0/16,10.0.1.0/24,10.9.0.4/32", &["10.0.0.0/16", "10.9.0.4/32"]),
        ("10.0.0.1/32", &["10.0.0.1/32"]),
    ] {
        for (spec, source) in
            [(json!({}), "Internet"), (json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]}), "192.0.2.0/24")]
        {
            let mut world = World::new();
            world.service("web", &[NODES], json!({})).service("api", &[NODES], port(81)).settle(&[]);
            let nodes = only("Internet", &["10.0.0.1", "10.0.0.2"]);
            assert_eq!(destinations(&world, "30080"), nodes);
            world.service("web", &[NODES, to(given)], spec).settle(&[]);
            assert_eq!(destinations(&world, "30080"), only(source, expected), "{given}");
            assert_eq!(destinations(&world, "30081"), nodes, "{given}: those of another Service");
            world.service("web", &[NODES], json!({})).settle(&[]);
            assert_eq!(destinations(&world, "30080"), nodes, "{given}: without it");
        }
    }
}

#[test]
fn what_a_service_denies_stays_denied_when_a_network_around_it_goes() {
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    let web = |world: &mut World, more: &[(&str, &str)]| {
        world.service("web", &[&[NODES], more].concat(), ranges.clone());
    };
    let denied = |world: &World| destinations(world, "*").remove("*").unwrap_or_default();
    let inner = [("azure-load-balancer-internal", "true"), ("azure-load-balancer-ipv4", "10.0.0.50"), DENIES];
    for (other, without) in [
        (&inner[..], &["10.0.0.50"][..]),
        (&[NODES, DENIES], &["10.0.0.1", "10.0.0.2"]),
        (&[NODES, DENIES, to("10.0.0.0/24")], &["10.0.0.0/24"]),
        (&[NODES, DENIES, to("10.0.0.0/16")], &["10.0.0.0/16"]),
        (&[NODES], &[]),
    ] {
        let spec = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"], "ports": port(81)["ports"]});
        let mut world = World::new();
        world.service("other", other, spec);
        web(&mut world, &[DENIES, to("10.0.0.0/16")]);
        world.settle(&[]);
        assert_eq!(denied(&world), ["10.0.0.0/16"], "{other:?}");
        // Only this one takes part in what follows.
        web(&mut world, &[]);
        world.pass_of_one("web", ServiceAction::Ensure);
        assert_eq!(denied(&world), without, "{other:?}");
        world.settle(&[]);
        assert_eq!((denied(&world), &world.writes[..]), (without.iter().map(ToString::to_string).collect(), &[][..]));
        web(&mut world, &[DENIES, to("10.0.0.0/16")]);
        world.pass_of_one("web", ServiceAction::Ensure);
        assert_eq!(denied(&world), ["10.0.0.0/16"], "{other:?}");
        world.pass_of_one("web", ServiceAction::Delete);
        assert_eq!(denied(&world), without, "{other:?}: deleted");
    }
}

#[test]
fn a_service_that_wants_no_rules_gives_up_its_networks() {
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    let given = [NODES, DENIES, to("10.0.0.0/16"), ("azure-disable-load-balancer-nsg-rule", "true")];
    let mut world = World::new();
    world.service("web", &given[..3], ranges.clone()).service("api", &[NODES], port(81)).settle(&[]);
    assert_eq!(world.rules().len(), 3);
    world.service("web", &given, ranges);
    world.pass_of_one("web", ServiceAction::Ensure);
    let left = (destinations(&world, "30080"), destinations(&world, "*"));
    assert_eq!(left, Default::default(), "{:?}", world.rules());
    assert_eq!(destinations(&world, "30081").len(), 1);
}

#[test]
fn the_nodes_are_not_denied_any_more_with_floating_ip() {
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    let mut world = World::new();
    world.service("web", &[NODES, DENIES], ranges.clone()).service("api", &[NODES], port(81)).settle(&[]);
    assert_eq!(destinations(&world, "*"), only("*", &["10.0.0.1", "10.0.0.2"]));
    world.service("web", &[DENIES], ranges).settle(&[]);
    let ip = world.status("web")[0].clone();
    assert_eq!(destinations(&world, "*"), only("*", &[&*ip]));
    assert_eq!(destinations(&world, "30081"), only("Internet", &["10.0.0.1", "10.0.0.2"]));
}

/// Its own part of the change may be refused.
#[test]
fn the_nodes_of_a_service_stay_denied_until_the_rules_have_its_networks() {
    let ranges = json!({"loadBalancerSourceRanges": ["192.0.2.0/24"]});
    let nodes = only("*", &["10.0.0.1", "10.0.0.2"]);
    let mut world = World::new();
    world.service("web", &[NODES, DENIES], ranges.clone()).service("api", &[NODES], port(81)).settle(&[]);
    assert_eq!(destinations(&world, "*"), nodes);
    world.service("web", &[NODES, DENIES, to("10.0.0.0/16")], ranges);
    world.pass_of_one("api", ServiceAction::Ensure);
    assert_eq!(destinations(&world, "*"), nodes);
    world.settle(&[]);
    assert_eq!(destinations(&world, "*"), only("*", &["10.0.0.0/16"]));
}
