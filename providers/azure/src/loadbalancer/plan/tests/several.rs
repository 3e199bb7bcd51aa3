//! Several load balancers.

use super::super::super::env::Several;
use super::*;
use crate::start::selector::Selector;

pub(super) fn several(names: &[&str]) -> World {
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

pub(super) fn nodes_of(world: &World, name: &str) -> Vec<String> {
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
fn an_existing_one_without_rules_is_chosen_before_a_new_one() {
    let mut world = several(&["kubernetes", "lb2", "lb3"]);
    world.service("a", &[], port(81)).settle(&[]);
    let id = world.env.balancer_id("lb3");
    world.observed.balancers.push(json!({"id": id.as_str(), "name": "lb3", "properties": {}}).into());
    world.service("b", &[], port(82)).settle(&[]);
    assert_eq!(json::items(world.balancer("lb3"), "loadBalancingRules").len(), 1);
    assert!(world.observed.balancer("lb2").is_none());
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
    let mut labeled = (*world.nodes[0]).clone();
    labeled.labels = [("pool", "a")].into_iter().collect();
    world.nodes[0] = labeled.into();
    world.settle(&[]);
    assert_eq!(
        (nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2")),
        (vec!["node-1".to_owned()], vec!["node-2".to_owned()])
    );
}

#[test]
fn a_primary_set_counts_while_its_load_balancer_exists() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.env.several[1].primary_set = "set".into();
    world.service("a", &[], port(81)).settle(&[]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-1", "node-2"]);
    world.nodes.remove(0);
    world.nodes.push(node(3));
    world.settle(&[]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-2", "node-3"], "there is no lb2 yet");
    world.service("b", &[], port(82)).settle(&[]);
    assert_eq!(nodes_of(&world, "lb2"), ["node-2", "node-3"]);
    world.settle(&["b"]);
    assert!(world.observed.balancer("lb2").is_none());
    world.nodes.push(node(4));
    world.settle(&[]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-2", "node-3", "node-4"]);
}

#[test]
fn a_load_balancer_without_nodes_of_its_own_loses_those_that_are_gone() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.env.several[1].primary_set = "set".into();
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    world.nodes = vec![node(2), node(3)];
    world.settle(&[]);
    assert_eq!(nodes_of(&world, "lb2"), ["node-2", "node-3"]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-2"], "the address of node-1 may be another machine's");
    world.nodes = vec![node(4)];
    world.settle(&[]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-4"], "it is not emptied");
}

#[test]
fn a_node_whose_set_cannot_be_read_stays_where_it_is_and_others_join() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.env.several[1].primary_set = "avset".into();
    world.env.several[1].nodes = selector("pool", "a");
    let group = "/subscriptions/s/resourceGroups/other/providers/Microsoft.Compute";
    let vm = format!("{group}/virtualMachines/vm");
    world.nodes.push(Arc::new(Node {
        name: "vm".into(),
        provider_id: Some(format!("azure://{vm}").into()),
        addresses: [NodeAddress::new(AddressType::InternalIp, "10.0.0.9")].into(),
        ..Node::default()
    }));
    world.observed.interfaces.sets = [(vm.to_lowercase(), format!("{group}/availabilitySets/avset"))].into();
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    assert_eq!((nodes_of(&world, "kubernetes").len(), nodes_of(&world, "lb2")), (2, vec!["vm".to_owned()]));
    world.observed.interfaces.sets.clear();
    world.observed.interfaces.unread = [("other".to_owned(), ProviderError::unknown("no answer"))].into();
    let mut unseen = (*world.nodes[2]).clone();
    unseen.name = "vm2".into();
    unseen.provider_id = Some(format!("azure://{vm}2").into());
    unseen.addresses = [NodeAddress::new(AddressType::InternalIp, "10.0.0.10")].into();
    world.nodes.extend([node(3), unseen.into()]);
    let (plan, _) = world.planned(&[], ServiceAction::UpdateHosts);
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
    let errors = world.pass_of(&[], ServiceAction::UpdateHosts);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors["a"].contains("the members of the load balancer"), "{errors:?}");
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-1", "node-2", "node-3"]);
    assert_eq!(nodes_of(&world, "lb2"), ["vm"], "it stays, and one that is behind none waits");
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
fn a_service_that_shares_an_address_stays_where_new_ones_may_not_come() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.service("a", &[("azure-load-balancer-configurations", "lb2")], port(81)).settle(&[]);
    let ip = world.status("a")[0].clone();
    let shared = |number: u16| json!({"loadBalancerIP": ip, "ports": port(number)["ports"]});
    world.service("b", &[], shared(82)).settle(&[]);
    world.env.several[1].takes_services = false;
    world.service("b", &[], shared(83)).settle(&[]);
    assert_eq!(json::items(world.balancer("lb2"), "loadBalancingRules")[1]["properties"]["frontendPort"], 83);
    assert!(world.service("c", &[], shared(84)).pass(&[])["c"].contains("lb2"), "a new one may not come");
}

#[test]
fn without_floating_ip_only_the_nodes_behind_its_load_balancer_are_destinations() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| ("azure-load-balancer-configurations", name);
    world.nodes = (1..=4).map(node).collect();
    world.service("a", &[on("kubernetes"), ("azure-disable-load-balancer-floating-ip", "true")], port(81));
    world.service("b", &[on("lb2")], port(82)).settle(&[]);
    let destinations = |world: &World| -> Vec<String> {
        let of = |rule: &&Value| rule["properties"]["destinationPortRanges"] == json!(["30081"]);
        let rule = world.rules().iter().find(of).unwrap();
        let mut all: Vec<String> =
            json::items(rule, "destinationAddressPrefixes").iter().map(|it| it.as_str().unwrap().to_owned()).collect();
        all.sort();
        all
    };
    let members = |world: &World| -> Vec<String> {
        let mut all: Vec<String> =
            nodes_of(world, "kubernetes").iter().map(|name| name.replace("node-", "10.0.0.")).collect();
        all.sort();
        all
    };
    assert_eq!(members(&world).len(), 2);
    assert_eq!(destinations(&world), members(&world));
    world.nodes.push(node(5));
    world.nodes.push(node(6));
    world.pass_of(&[], ServiceAction::UpdateHosts);
    assert_eq!((members(&world).len(), destinations(&world)), (3, members(&world)));
    // Nodes that join in a call without the Service.
    world.settle(&["b"]);
    world.service("c", &[on("kubernetes")], port(83)).pass_of_one("c", ServiceAction::Ensure);
    assert_eq!((members(&world).len(), destinations(&world)), (6, members(&world)));
    world.settle(&[]);
    assert_eq!(world.writes, [] as [String; 0]);
}

#[test]
fn a_node_that_moves_stays_a_destination_until_it_has_left_the_pool() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| ("azure-load-balancer-configurations", name);
    let direct = ("azure-disable-load-balancer-floating-ip", "true");
    world.service("a", &[on("kubernetes"), direct], port(81)).service("b", &[on("lb2"), direct], port(82)).settle(&[]);
    assert_eq!(
        (nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2")),
        (vec!["node-1".to_owned()], vec!["node-2".to_owned()])
    );
    world.nodes.push(node(3));
    world.pass_of(&[], ServiceAction::UpdateHosts);
    world.env.several[1].nodes = selector("pool", "b");
    let mut labeled = (*world.nodes[0]).clone();
    labeled.labels = [("pool", "b")].into_iter().collect();
    world.nodes[0] = labeled.into();
    let at = |world: &World, port: &str| -> Vec<Value> {
        let of = |rule: &&Value| rule["properties"]["destinationPortRanges"] == json!([port]);
        let rule = world.rules().iter().find(of).unwrap();
        let one = Some(rule["properties"]["destinationAddressPrefix"].clone()).filter(Value::is_string);
        one.into_iter().chain(json::items(rule, "destinationAddressPrefixes").to_vec()).collect()
    };
    world.pass(&[]);
    assert!(
        nodes_of(&world, "kubernetes").contains(&"node-1".to_owned())
            && at(&world, "30081").contains(&json!("10.0.0.1"))
    );
    assert!(nodes_of(&world, "lb2").contains(&"node-1".to_owned()) && at(&world, "30082").contains(&json!("10.0.0.1")));
    // Rules are written before members: they name the node until a pass that finds it gone.
    let (plan, _) = world.planned(&[], ServiceAction::UpdateHosts);
    let has_more = |step: &Step<Write>| matches!(&step.write, Write::Pool(pool) if pool.has_more);
    assert!(plan.steps.iter().any(has_more), "that pass follows at once");
    world.pass_of(&[], ServiceAction::UpdateHosts);
    assert!(!nodes_of(&world, "kubernetes").contains(&"node-1".to_owned()));
    assert!(at(&world, "30081").contains(&json!("10.0.0.1")));
    let (plan, _) = world.planned(&[], ServiceAction::UpdateHosts);
    assert!(!plan.steps.iter().any(has_more));
    world.settle(&[]);
    assert!(!at(&world, "30081").contains(&json!("10.0.0.1")) && at(&world, "30082").contains(&json!("10.0.0.1")));
}

#[test]
fn an_entry_of_the_cluster_name_is_needed() {
    let mut world = several(&["lb1"]);
    let errors = world.service("a", &[], port(81)).pass(&[]);
    assert!(errors["a"].contains("\"kubernetes\""), "{}", errors["a"]);
}

#[test]
fn a_service_of_two_families_leaves_its_load_balancer_whole_and_only_its_own_parts_go() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| [("azure-load-balancer-configurations", name)];
    let mut both = port(81);
    json::overlay(&mut both, &json!({"ipFamilies": ["IPv4", "IPv6"]}));
    // The frontend of another one is between those of the first.
    world.service("a", &on("kubernetes"), both.clone()).service("b", &on("kubernetes"), port(82)).settle(&[]);
    json::items_mut(world.balancer_mut("kubernetes"), "frontendIPConfigurations").swap(1, 2);
    let before = world.balancer("kubernetes").clone();
    world.service("a", &on("lb2"), both).settle(&[]);
    let base = world.services["b"].default_load_balancer_name();
    for list in ["frontendIPConfigurations", "loadBalancingRules", "probes"] {
        let is_others = |it: &&Value| json::name(it).starts_with(&base);
        let others: Vec<Value> = json::items(&before, list).iter().filter(is_others).cloned().collect();
        assert_eq!(json::items(world.balancer("kubernetes"), list), others, "{list}");
        assert_eq!(json::items(world.balancer("lb2"), list).len(), 2, "{list}");
    }
}

#[test]
fn without_its_selector_a_load_balancer_takes_nodes_as_the_others() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.nodes = (1..=4).map(node).collect();
    world.env.several[1].nodes = selector("pool", "a");
    for place in 0..3 {
        let mut labeled = (*world.nodes[place]).clone();
        labeled.labels = [("pool", "a")].into_iter().collect();
        world.nodes[place] = labeled.into();
    }
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    assert_eq!((nodes_of(&world, "kubernetes"), nodes_of(&world, "lb2").len()), (vec!["node-4".to_owned()], 3));
    world.env.several[1].nodes = None;
    world.nodes.extend([node(5), node(6)]);
    world.settle(&[]);
    assert_eq!(
        nodes_of(&world, "kubernetes"),
        ["node-4", "node-5", "node-6"],
        "nodes stay, and new ones join the smaller"
    );
    assert_eq!(nodes_of(&world, "lb2"), ["node-1", "node-2", "node-3"]);
}

#[test]
fn of_two_services_that_swap_their_load_balancers_one_waits_for_the_next_pass() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| [("azure-load-balancer-configurations", name)];
    world.service("a", &on("kubernetes"), port(81)).service("b", &on("lb2"), port(82)).settle(&[]);
    let before = (world.status("a"), world.status("b"));
    world.service("a", &on("lb2"), port(81)).service("b", &on("kubernetes"), port(82));
    let errors = world.pass(&[]);
    assert_eq!(errors.keys().collect::<Vec<_>>(), ["b"], "{errors:?}");
    assert!(errors["b"].contains("when others have left it"), "{errors:?}");
    assert_eq!(world.count("delete LoadBalancer kubernetes"), 1, "{:?}", world.writes);
    world.settle(&[]);
    assert_eq!((world.status("a"), world.status("b")), before);
    let names = |name: &str| json::items(world.balancer(name), "frontendIPConfigurations").len();
    assert_eq!((names("kubernetes"), names("lb2")), (1, 1));
}

#[test]
fn a_service_leaves_its_load_balancer_before_it_is_on_another_one() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| [("azure-load-balancer-configurations", name)];
    world.service("a", &on("kubernetes"), port(81)).service("b", &on("kubernetes"), port(82));
    world.service("c", &on("lb2"), port(83)).settle(&[]);
    world.service("a", &on("lb2"), port(81)).service("b", &on("kubernetes"), port(84)).settle(&[]);
    let balancers: Vec<&String> =
        world.writes.iter().filter(|write| write.starts_with("update LoadBalancer")).collect();
    assert_eq!(balancers, ["update LoadBalancer kubernetes", "update LoadBalancer lb2"]);
}

#[test]
fn a_service_moves_to_a_load_balancer_that_has_no_frontend() {
    let mut world = several(&["kubernetes", "lb2"]);
    let on = |name: &'static str| [("azure-load-balancer-configurations", name)];
    world.service("a", &on("kubernetes"), port(81)).settle(&[]);
    let before = world.status("a");
    let id = world.env.balancer_id("lb2");
    let empty = json!({"id": id.as_str(), "name": "lb2", "sku": {"name": "Standard"}, "properties": {}});
    world.observed.balancers.push(empty.into());
    world.service("a", &on("lb2"), port(81)).settle(&[]);
    assert_eq!(json::items(world.balancer("lb2"), "frontendIPConfigurations").len(), 1);
    assert_eq!(world.status("a"), before);
}

#[test]
fn the_first_node_of_a_load_balancer_is_probed_before_it_serves_alone() {
    let mut world = several(&["kubernetes", "lb2"]);
    world.env.several[0].primary_set = "set".into();
    world.env.several[1].nodes = selector("pool", "b");
    world.service("a", &[], port(81)).service("b", &[], port(82)).settle(&[]);
    assert_eq!(nodes_of(&world, "lb2"), ["node-1", "node-2"], "one without nodes of its own has all");
    world.env.several[0].primary_set = "none".into();
    world.nodes.push(node(3));
    let mut first = (*node(4)).clone();
    first.labels = [("pool", "b")].into_iter().collect();
    world.nodes.push(first.into());
    world.nodes.remove(0);
    world.env.several[0].nodes = selector("pool", "a");
    for node in &mut world.nodes[..2] {
        Arc::make_mut(node).labels = [("pool", "a")].into_iter().collect();
    }
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    assert_eq!(nodes_of(&world, "lb2"), ["node-2", "node-4"], "only those that are gone have left");
    world.settle(&[]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-2", "node-3"]);
    assert_eq!(nodes_of(&world, "lb2"), ["node-4"]);
}
