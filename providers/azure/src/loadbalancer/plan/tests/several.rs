//! Several load balancers.

use super::super::super::env::Several;
use super::super::super::selector::Selector;
use super::*;

fn several(names: &[&str]) -> World {
    let mut world = World::new();
    let entry = |name: &&str| Several {
        name: (*name).to_owned(),
        primary_set: format!("set-of-{name}"),
        takes_services: true,
        ..Several::default()
    };
    world.env.several = names.iter().map(entry).collect();
    world
}

fn selector(key: &str, value: &str) -> Option<Selector> {
    Selector::parse(&json!({"matchLabels": {key: value}})).unwrap()
}

fn port(number: u16) -> Value {
    json!({"ports": [{"port": number, "nodePort": 30000 + number, "protocol": "TCP"}]})
}

fn nodes_of(world: &World, name: &str) -> Vec<String> {
    let pools = json::items(world.balancer(name), "backendAddressPools");
    let pool = json::named(pools, CLUSTER).unwrap();
    json::items(pool, "loadBalancerBackendAddresses").iter().map(|it| json::name(it).to_owned()).collect()
}

#[test]
fn services_go_to_an_empty_one_then_to_a_new_one_then_to_the_one_with_fewest_rules() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.service("a", &[], port(81)).settle(&[]);
    world.service("b", &[], port(82)).settle(&[]);
    assert!(world.observed.balancer("kubernetes").is_some() && world.observed.balancer("lb2").is_some());
    world.service("c", &[], json!({"ports": [{"port": 83, "nodePort": 30083, "protocol": "TCP"}, {"port": 84, "nodePort": 30084, "protocol": "TCP"}]}));
    world.settle(&[]);
    world.service("d", &[], port(85)).settle(&[]);
    let rules = |name: &str| json::items(world.balancer(name), "loadBalancingRules").len();
    assert_eq!((rules("kubernetes"), rules("lb2")), (3, 2));
}

#[test]
fn a_node_is_behind_exactly_one_and_stays() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.nodes = (1..=4).map(node).collect();
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    let both = [nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2")].concat();
    assert_eq!((nodes_of(&world, "kubernetes").len(), both.len()), (2, 4));
    // A node that is in both leaves one of them.
    let pool = json::items_mut(world.balancer_mut("lb2"), "backendAddressPools");
    let more = json!({"name": "node-1", "properties": {"ipAddress": "10.0.0.1"}});
    json::items_mut(&mut pool[0], "loadBalancerBackendAddresses").push(more);
    world.settle(&[]);
    let after = [nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2")].concat();
    assert_eq!(after.len(), 4, "{after:?}");
}

#[test]
fn the_primary_set_and_the_selector_of_nodes_win() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.env.several[1].primary_set = "set".into();
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    assert_eq!(nodes_of(&world, "lb2"), ["node-1", "node-2"]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-1", "node-2"], "one without nodes of its own has all");
    world.env.several[1].primary_set = "other".into();
    world.env.several[0].nodes = selector("pool", "a");
    let mut labelled = (*world.nodes[0]).clone();
    labelled.labels = [("pool", "a")].into_iter().collect();
    world.nodes[0] = labelled.into();
    world.settle(&[]);
    assert_eq!(
        (nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2")),
        (vec!["node-1".to_owned()], vec!["node-2".to_owned()])
    );
}

#[test]
fn names_selectors_and_placement_limit_the_choice() {
    let mut world = several(&["kubernetes", "lb2", "lb3"]);
    world.env.several[1].services = selector("tier", "gold");
    world.env.several[2].takes_services = false;
    let named = [("azure-load-balancer-configurations", "LB2, unknown")];
    let error = world.service("a", &named, port(81)).pass(&[]).remove("a").unwrap();
    assert!(error.contains("lb2 are allowed by name"), "{error}");
    world.services.get_mut("a").unwrap().metadata.labels = [("tier".to_owned(), "gold".to_owned())].into();
    world.settle(&[]);
    assert!(world.observed.balancer("lb2").is_some());
    world.service("b", &[("azure-load-balancer-configurations", "lb3")], port(82));
    assert!(world.pass(&[]).contains_key("b"), "lb3 takes no Services");
    world.service("b", &[("azure-load-balancer-configurations", "none")], port(82));
    assert!(world.pass(&[])["b"].contains("azure-load-balancer-configurations"));
    world.service("b", &[], port(82)).settle(&[]);
    assert!(world.observed.balancer("kubernetes").is_some(), "the selector of lb2 does not match");
}

#[test]
fn a_requested_address_pins_the_load_balancer() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.service("a", &[("azure-load-balancer-configurations", "lb2")], port(81)).settle(&[]);
    let ip = world.status("a")[0].clone();
    world
        .service("b", &[], json!({"loadBalancerIP": ip, "ports": [{"port": 82, "nodePort": 30082, "protocol": "TCP"}]}))
        .settle(&[]);
    assert_eq!(json::items(world.balancer("lb2"), "loadBalancingRules").len(), 2);
    let elsewhere = [("azure-load-balancer-configurations", "kubernetes")];
    world.service(
        "c",
        &elsewhere,
        json!({"loadBalancerIP": ip, "ports": [{"port": 83, "nodePort": 30083, "protocol": "TCP"}]}),
    );
    assert!(world.pass(&[])["c"].contains("lb2"));
}

#[test]
fn an_entry_of_the_cluster_name_is_needed() {
    let mut world = several(&["lb1"]);
    let errors = world.service("a", &[], port(81)).pass(&[]);
    assert!(errors["a"].contains("\"kubernetes\""), "{}", errors["a"]);
}
