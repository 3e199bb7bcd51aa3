//! Services with `externalTrafficPolicy: Local` on several load balancers.

use super::several::{nodes_of, several};
use super::*;

const SECOND: (&str, &str) = ("azure-load-balancer-configurations", "lb2");

fn local(port: u16) -> Value {
    json!({"externalTrafficPolicy": "Local", "healthCheckNodePort": 31000 + port,
        "ports": [{"port": port, "nodePort": 30000 + port, "protocol": "TCP"}]})
}

fn cluster(port: u16) -> Value {
    json!({"externalTrafficPolicy": "Cluster", "healthCheckNodePort": 0,
        "ports": [{"port": port, "nodePort": 30000 + port, "protocol": "TCP"}]})
}

/// Three nodes, a Service on the first load balancer and a local one on the second.
fn world() -> World {
    let mut world = several(&["kubernetes", "lb2"]);
    world.nodes = (1..=3).map(node).collect();
    world.service("a", &[("azure-load-balancer-configurations", "kubernetes")], cluster(81));
    world.service("b", &[SECOND], local(82));
    endpoints(&mut world, "b", &["node-2"]);
    world.settle(&[]);
    world
}

fn endpoints(world: &mut World, service: &str, nodes: &[&str]) {
    world.endpoints.insert(service.to_owned(), nodes.iter().map(|name| (*name).to_owned()).collect());
}

fn pools(world: &World, balancer: &str) -> Vec<String> {
    json::items(world.balancer(balancer), "backendAddressPools").iter().map(|it| json::name(it).to_owned()).collect()
}

fn members(world: &World, balancer: &str, pool: &str) -> Vec<String> {
    let pool = json::named(json::items(world.balancer(balancer), "backendAddressPools"), pool).unwrap();
    json::items(pool, "loadBalancerBackendAddresses").iter().map(|it| json::name(it).to_owned()).collect()
}

/// The name of the pool of the only rule of a load balancer.
fn pool_of_rule(world: &World, balancer: &str) -> String {
    let rule = &json::items(world.balancer(balancer), "loadBalancingRules")[0];
    json::reference(rule, "backendAddressPool").rsplit('/').next().unwrap().to_owned()
}

/// An update of the hosts of one Service.
fn update(world: &mut World, name: &str) -> Vec<String> {
    let others: BTreeMap<String, Service> = world.services.extract_if(.., |key, _| key != name).collect();
    assert_eq!(world.pass_of(&[], ServiceAction::UpdateHosts), BTreeMap::new());
    world.services.extend(others);
    std::mem::take(&mut world.writes)
}

#[test]
fn its_pool_follows_the_endpoints_with_one_write_and_no_other_node_moves() {
    let mut world = world();
    assert_eq!((pools(&world, "lb2"), pool_of_rule(&world, "lb2")), (vec!["default-b".into()], "default-b".into()));
    assert_eq!(members(&world, "lb2", "default-b"), ["node-2"]);
    assert_eq!(nodes_of(&world, "kubernetes"), ["node-1", "node-2", "node-3"], "the second has no pool for them");
    endpoints(&mut world, "b", &["node-1", "node-3"]);
    let (plan, _) = world.planned(&[], ServiceAction::UpdateHosts);
    assert!(plan.findings.is_empty(), "nodes keep their outbound path: {:?}", plan.findings);
    assert_eq!(update(&mut world, "b"), ["attach LoadBalancer lb2"]);
    assert_eq!(members(&world, "lb2", "default-b"), ["node-1", "node-3"]);
    endpoints(&mut world, "b", &[]);
    assert_eq!(update(&mut world, "b"), [""; 0], "its probe leaves out nodes without endpoints");
    world.settle(&[]);
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    assert!(plan.findings.is_empty(), "{:?}", plan.findings);
}

#[test]
fn another_policy_exchanges_the_pools() {
    let mut world = world();
    // Azure shows the pool of a rule twice.
    let rule = &mut json::items_mut(world.balancer_mut("lb2"), "loadBalancingRules")[0];
    rule["properties"]["backendAddressPools"] = json!([rule["properties"]["backendAddressPool"]]);
    world.endpoints.clear();
    world.service("b", &[SECOND], cluster(82)).settle(&[]);
    assert_eq!((pools(&world, "lb2"), pool_of_rule(&world, "lb2")), (vec!["kubernetes".into()], "kubernetes".into()));
    let rule = &json::items(world.balancer("lb2"), "loadBalancingRules")[0];
    assert!(rule["properties"].get("backendAddressPools").is_none(), "{rule}");
    endpoints(&mut world, "b", &["node-1"]);
    world.service("b", &[SECOND], local(82)).settle(&[]);
    assert_eq!(members(&world, "lb2", "default-b"), ["node-1"]);
    assert_eq!(pool_of_rule(&world, "lb2"), "default-b");
}

#[test]
fn its_pools_go_with_it_unless_something_else_uses_them() {
    let mut world = world();
    let both = json!({"ipFamilies": ["IPv4", "IPv6"]});
    for (name, port) in [("c", 83), ("d", 84)] {
        let mut spec = local(port);
        json::overlay(&mut spec, &both);
        world.service(name, &[SECOND], spec);
        endpoints(&mut world, name, &["node-3"]);
    }
    world.settle(&[]);
    let all = ["default-b", "default-c", "default-c-ipv6", "default-d", "default-d-ipv6"];
    assert_eq!(pools(&world, "lb2"), all);
    assert_eq!(members(&world, "lb2", "default-d-ipv6"), ["node-3"]);
    let pool = world.env.balancer_id("lb2").child("backendAddressPools", "default-d-ipv6");
    let outbound = json!({"name": "mine", "properties": {"backendAddressPool": {"id": pool.as_str()}}});
    json::items_mut(world.balancer_mut("lb2"), "outboundRules").push(outbound);
    world.settle(&["c", "d"]);
    assert_eq!(pools(&world, "lb2"), ["default-b", "default-d-ipv6"]);
}

#[test]
fn a_pool_of_users_with_the_name_of_its_own_stays() {
    let mut world = world();
    for (name, members) in
        [("default-c", json!([])), ("default-d", json!(["10.9.9.9"])), ("default-e", json!(["10.0.0.1"]))]
    {
        let ips = members.as_array().unwrap().iter();
        let addresses: Vec<Value> = ips.map(|ip| json!({"name": "n", "properties": {"ipAddress": ip}})).collect();
        let id = world.env.balancer_id("lb2").child("backendAddressPools", name);
        let pool = json!({"name": name, "id": id.as_str(), "properties": {"loadBalancerBackendAddresses": addresses}});
        json::items_mut(world.balancer_mut("lb2"), "backendAddressPools").push(pool);
    }
    for (name, port) in [("c", 83), ("d", 84), ("e", 85)] {
        world.service(name, &[SECOND], cluster(port));
    }
    world.settle(&[]);
    let left = ["default-b", "default-c", "default-d", "kubernetes"];
    assert_eq!(pools(&world, "lb2"), left, "one with nodes only is a former one of the Service");
    world.settle(&["c", "d", "e"]);
    assert_eq!(pools(&world, "lb2"), left);
}

#[test]
fn its_pool_goes_where_it_goes() {
    let mut world = world();
    world.service("c", &[SECOND], cluster(83)).settle(&[]);
    world.service("b", &[("azure-load-balancer-configurations", "kubernetes")], local(82)).settle(&[]);
    assert_eq!(pools(&world, "lb2"), ["kubernetes"]);
    assert_eq!(pools(&world, "kubernetes"), ["kubernetes", "default-b"]);
    assert_eq!(members(&world, "kubernetes", "default-b"), ["node-2"]);
}

#[test]
fn pools_of_one_load_balancer_are_written_one_after_the_other_and_a_few_in_one_call() {
    let mut world = world();
    for number in 0..10 {
        world.service(&format!("c{number}"), &[SECOND], local(90 + number));
        endpoints(&mut world, &format!("c{number}"), &["node-1"]);
    }
    let (plan, _) = world.planned(&[], ServiceAction::Ensure);
    let of_pools = plan.steps.iter().filter(|step| matches!(step.write, Write::Pool(_)));
    let (mut stages, mut common) = (Vec::new(), None::<BTreeSet<usize>>);
    for step in of_pools {
        stages.extend(step.stage);
        let Items::Some(items) = &step.items else { panic!("of all") };
        let items = items | &step.after;
        common = Some(common.map_or_else(|| items.clone(), |common| &common & &items));
    }
    assert_eq!(stages.len(), 8);
    assert!(stages.is_sorted_by(|one, next| one < next), "{stages:?}");
    assert!(common.is_some_and(|common| !common.is_empty()), "each waits for the one before");
    assert_eq!(world.pass(&[]), BTreeMap::new());
    world.settle(&[]);
    assert_eq!(members(&world, "lb2", "default-c9"), ["node-1"]);
}
