use std::collections::BTreeMap;

use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_cloudsim::openstack::Options;
use ccm_provider::{NodeRef, Route, Routes};
use ccm_provider_contract::TestCluster;
use serde_json::{Value, json};

use super::*;
use crate::client::network::Port;
use crate::world::{REGION, World, cluster};

const ATOMIC: Extensions = Extensions { is_atomic: true, has_pairs: true };

fn routes(world: &World, nodes: &[NodeRef], extensions: Extensions) -> (RouterRoutes, Arc<TestCluster>) {
    routes_by(&world.client, world, nodes, extensions)
}

fn routes_by(
    client: &Client,
    world: &World,
    nodes: &[NodeRef],
    extensions: Extensions,
) -> (RouterRoutes, Arc<TestCluster>) {
    let cluster_cidrs = ["10.1.0.0/16", "fd01::/48"].map(|cidr| parse_cidr(cidr).unwrap()).to_vec();
    let identity = Identity { region: REGION.to_owned(), is_regional: false };
    let settings = Settings { router: world.router.clone(), cluster_cidrs, identity, extensions };
    let (cluster, double) = cluster(nodes.to_vec());
    (RouterRoutes::new(RouterTable::new(settings, client), cluster), double)
}

fn route(node: Option<&str>, destination: &str) -> Route {
    Route {
        target_node: node.map(Into::into),
        destination_cidr: destination.into(),
        blackhole: node.is_none(),
        ..Route::default()
    }
}

fn new(node: &str, destination: &str) -> NewRoute {
    NewRoute { name_hint: "uid".into(), route: route(Some(node), destination) }
}

fn put(world: &World, routes: &[(&str, &str)]) {
    let routes: Vec<Value> =
        routes.iter().map(|(destination, hop)| json!({"destination": destination, "nexthop": hop})).collect();
    world.set("router", &world.router, json!({ "routes": routes }));
}

fn table(world: &World) -> Vec<String> {
    let router = world.resource("router", "id", &world.router);
    let text = |route: &Value| {
        format!("{} via {}", route["destination"].as_str().unwrap(), route["nexthop"].as_str().unwrap())
    };
    let mut routes: Vec<String> = router["routes"].as_array().unwrap().iter().map(text).collect();
    routes.sort();
    routes
}

fn pairs(world: &World, server: &str) -> Vec<String> {
    let port = world.port(server);
    let text = |pair: &Value| pair["ip_address"].as_str().unwrap().to_owned();
    port["allowed_address_pairs"].as_array().unwrap().iter().map(text).collect()
}

fn listed(routes: &[Route]) -> Vec<String> {
    let target = |route: &Route| route.target_node.as_ref().map_or("nowhere".to_owned(), ToString::to_string);
    routes.iter().map(|route| format!("{} -> {}", route.destination_cidr, target(route))).collect()
}

fn good(answers: Vec<Result<(), ProviderError>>) {
    answers.into_iter().for_each(|answer| answer.unwrap());
}

#[tokio::test]
async fn routes_of_many_nodes_are_one_write_of_the_router_and_one_of_each_port() {
    // More addresses than one list of ports takes: both of a port are in two lists.
    let world = World::of(60, Options { quotas: BTreeMap::new(), ..Options::default() }).await;
    let name = |number: usize| format!("n{number}");
    let nodes: Vec<NodeRef> = (1..=60).map(|number| world.node(&name(number), &[])).collect();
    let (routes, _) = routes(&world, &nodes, ATOMIC);
    let wanted: Vec<NewRoute> = (1..=60)
        .flat_map(|n| [new(&name(n), &format!("10.1.{n}.0/24")), new(&name(n), &format!("fd01:0:0:{n}::/64"))])
        .collect();
    good(routes.create("k", &wanted).await);
    let calls = world.calls();
    let count = |action: &str| calls.iter().filter(|call| call.ends_with(action)).count();
    assert_eq!((count("router_update"), count("port_update"), count("router_get")), (1, 60, 1), "{calls:?}");
    assert_eq!(table(&world).len(), 120);
    assert_eq!(pairs(&world, "n1"), ["10.1.1.0/24", "fd01:0:0:1::/64"]);
    let list = routes.list("k").await.unwrap();
    assert_eq!(list.len(), 120);
    world.calls();
    good(routes.create("k", &wanted).await);
    assert!(world.calls().is_empty(), "what is there is not written again");
    good(routes.delete("k", &list).await);
    assert_eq!((table(&world).len(), pairs(&world, "n1").len()), (0, 0));
}

#[tokio::test]
async fn a_dual_stack_node_gets_each_range_by_its_internal_address_of_the_family() {
    let world = World::with(1).await;
    let node = world.node("n1", &[]);
    let (routes, _) = routes(&world, std::slice::from_ref(&node), ATOMIC);
    good(routes.create("k", &[new("n1", "10.1.1.0/24"), new("n1", "fd01::/64")]).await);
    let [v4, v6] = &*node.addresses else { panic!("{node:?}") };
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", v4.address), format!("fd01::/64 via {}", v6.address)]);
}

#[tokio::test]
async fn a_route_outside_the_cluster_cidrs_or_wider_than_them_is_never_listed_or_deleted() {
    let world = World::with(1).await;
    let ip = world.ip("n1");
    let foreign =
        [("10.2.0.0/16", "10.0.0.99"), ("192.168.0.0/16", "10.0.0.99"), ("10.0.0.0/8", &*ip), ("0.0.0.0/0", &*ip)];
    put(&world, &foreign);
    let (routes, _) = routes(&world, &[world.node("n1", &[])], ATOMIC);
    assert!(routes.list("k").await.unwrap().is_empty());
    let before = table(&world);
    for (destination, _) in foreign {
        assert!(routes.delete("k", &[route(None, destination)]).await[0].is_err());
    }
    assert_eq!(table(&world), before);
}

#[tokio::test]
async fn the_route_of_a_deleted_node_is_removed_by_the_next_hop_that_is_listed() {
    let world = World::with(2).await;
    let (a, b) = (world.node("n1", &[]), world.node("n2", &[]));
    let (routes, nodes) = routes(&world, &[a.clone(), b], ATOMIC);
    good(routes.create("k", &[new("n1", "10.1.1.0/24"), new("n2", "10.1.2.0/24")]).await);
    routes.list("k").await.unwrap();
    nodes.set_nodes(vec![a.clone()]);
    world.cloud.world(|inside| {
        let id = inside.table("server").values().find(|row| row.text("name") == "n2").unwrap().id().to_owned();
        inside.delete_server(&id);
    });
    let list = routes.list("k").await.unwrap();
    assert_eq!(listed(&list), ["10.1.1.0/24 -> n1", "10.1.2.0/24 -> n2"]);
    // A process that never saw the node finds a blackhole.
    let (fresh, _) = self::routes(&world, &[a], ATOMIC);
    let list = fresh.list("k").await.unwrap();
    assert_eq!(listed(&list), ["10.1.1.0/24 -> n1", "10.1.2.0/24 -> nowhere"]);
    good(fresh.delete("k", &list[1..]).await);
    assert_eq!(table(&world).len(), 1);
}

#[tokio::test]
async fn a_node_with_a_new_address_keeps_one_route_to_it() {
    let world = World::with(2).await;
    let (moved, nodes) = routes(&world, &[world.node("n1", &[])], ATOMIC);
    good(moved.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!(listed(&moved.list("k").await.unwrap()), ["10.1.1.0/24 -> n1"]);
    nodes.set_nodes(vec![Arc::new(Node { name: "n1".into(), ..(*world.node("n2", &[])).clone() })]);
    assert_eq!(listed(&moved.list("k").await.unwrap()), ["10.1.1.0/24 -> nowhere"]);
    good(moved.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", world.ip("n2"))]);
    put(&world, &[("10.1.1.0/24", "10.0.0.99"), ("10.1.1.0/24", &world.ip("n1"))]);
    let (routes, _) = routes(&world, &[world.node("n1", &[])], ATOMIC);
    let list = routes.list("k").await.unwrap();
    let stray: Vec<Route> = list.into_iter().filter(|route| route.blackhole).collect();
    good(routes.delete("k", &stray).await);
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", world.ip("n1"))]);
    put(&world, &[("10.1.1.0/24", "10.0.0.99")]);
    good(self::routes(&world, &[world.node("n1", &[])], ATOMIC).0.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", world.ip("n1"))]);
}

#[tokio::test]
async fn a_node_without_addresses_waits_quietly_and_one_without_the_family_is_an_error() {
    let world = World::with(0).await;
    let bare = Arc::new(Node { name: "new".into(), ..Node::default() });
    let ip = NodeAddress::new(AddressType::InternalIp, "10.0.0.5");
    let v4 = Arc::new(Node { name: "v4".into(), addresses: [ip].into(), ..Node::default() });
    let (routes, _) = routes(&world, &[bare, v4], ATOMIC);
    let answers = routes.create("k", &[new("new", "10.1.1.0/24"), new("v4", "fd01::/64")]).await;
    let error = |number: usize| answers[number].as_ref().unwrap_err();
    assert!(matches!(error(0).class(), ErrorClass::InProgress { .. }));
    assert_eq!(error(1).class(), ErrorClass::Unknown);
    assert!(error(1).to_string().contains("no address found for host"), "{}", error(1));
}

#[tokio::test]
async fn a_port_without_port_security_gets_its_route_and_no_pair() {
    let world = World::with(1).await;
    let port = world.port("n1");
    world.set("port", port["id"].as_str().unwrap(), json!({"port_security_enabled": false, "security_groups": []}));
    good(routes(&world, &[world.node("n1", &[])], ATOMIC).0.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!((table(&world).len(), pairs(&world, "n1").len()), (1, 0));
}

#[tokio::test]
async fn a_pair_that_is_refused_leaves_no_route_and_names_port_and_policy() {
    let world = World::with(2).await;
    let id = world.port("n1")["id"].as_str().unwrap().to_owned();
    let rule = Rule { params: Some(id.clone()), ..Rule::every(Fault::Deny).on("network", "port_update") };
    world.cloud.fault(rule);
    let (routes, _) = routes(&world, &[world.node("n1", &[]), world.node("n2", &[])], ATOMIC);
    let answers = routes.create("k", &[new("n1", "10.1.1.0/24"), new("n2", "10.1.2.0/24")]).await;
    let error = answers[0].as_ref().unwrap_err();
    assert!(matches!(error.class(), ErrorClass::Denied { .. }), "{error}");
    assert!(error.to_string().contains(&id), "{error}");
    assert!(error.to_string().contains("update_port:allowed_address_pairs"), "{error}");
    answers[1].as_ref().unwrap();
    assert_eq!(table(&world), [format!("10.1.2.0/24 via {}", world.ip("n2"))], "the other node is not held up");
}

#[tokio::test]
async fn a_next_hop_that_the_router_does_not_reach_fails_alone() {
    let world = World::with(6).await;
    let mut nodes: Vec<NodeRef> = (1..=6).map(|number| world.node(&format!("n{number}"), &[])).collect();
    let far = NodeAddress::new(AddressType::InternalIp, "172.16.0.9");
    nodes.push(Arc::new(Node { name: "far".into(), addresses: [far].into(), ..Node::default() }));
    let (routes, _) = routes(&world, &nodes, Extensions { has_pairs: false, ..ATOMIC });
    let mut wanted: Vec<NewRoute> = (1..=6).map(|n| new(&format!("n{n}"), &format!("10.1.{n}.0/24"))).collect();
    wanted.insert(2, new("far", "10.1.9.0/24"));
    let answers = routes.create("k", &wanted).await;
    let bad: Vec<usize> = (0..7).filter(|number| answers[*number].is_err()).collect();
    assert_eq!(bad, [2]);
    assert!(answers[2].as_ref().unwrap_err().to_string().contains("the nexthop is not connected with router"));
    assert_eq!(table(&world).len(), 6);
}

#[tokio::test]
async fn routes_beyond_the_quota_fail_and_the_others_are_made() {
    let world = World::with(2).await;
    let (routes, _) = routes(&world, &[world.node("n1", &[]), world.node("n2", &[])], ATOMIC);
    let (code, message) = ("OverQuota".to_owned(), "Quota exceeded for resources: ['router_route'].".to_owned());
    let over = Rule::every(Fault::Code { status: 409, code, message }).on("network", "router_update");
    // Both at once, then the second alone.
    world.cloud.fault(over.clone().window(0, 1));
    world.cloud.fault(over.window(1, 1));
    let answers = routes.create("k", &[new("n1", "10.1.1.0/24"), new("n2", "10.1.2.0/24")]).await;
    answers[0].as_ref().unwrap();
    assert!(answers[1].as_ref().unwrap_err().to_string().contains("a quota of the project is exhausted"));
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", world.ip("n1"))]);
}

#[tokio::test]
async fn a_full_router_takes_what_fits_and_the_error_says_what_to_raise() {
    let quota = || Options { quotas: [("router_route".to_owned(), 30)].into(), ..Options::default() };
    let old = || Options { max_routes: Some(30), quotas: BTreeMap::new(), ..Options::default() };
    for (options, is_atomic, says) in [
        (quota(), true, "OverQuota: Quota exceeded for resources: ['router_route']."),
        (
            old(),
            true,
            "RoutesExhausted: Unable to complete operation for {}. The number of routes exceeds the maximum 30.",
        ),
        (
            old(),
            false,
            "RoutesExhausted: Unable to complete operation for {}. The number of routes exceeds the maximum 30.",
        ),
    ] {
        let world = World::of(40, options).await;
        let nodes: Vec<NodeRef> = (1..=40).map(|number| world.node(&format!("n{number}"), &[])).collect();
        let (routes, _) = routes(&world, &nodes, Extensions { is_atomic, has_pairs: false });
        let wanted: Vec<NewRoute> = (1..=40).map(|n| new(&format!("n{n}"), &format!("10.1.{n}.0/24"))).collect();
        let answers = routes.create("k", &wanted).await;
        assert_eq!((table(&world).len(), answers.iter().filter(|answer| answer.is_err()).count()), (30, 10));
        let error = answers.into_iter().find_map(Result::err).unwrap().to_string();
        let key = format!(
            "router {} of [Route] router-id in cloud.conf has as many routes as Neutron allows it",
            world.router
        );
        let fix = "raise the quota router_route of the project (before OpenStack 2026.2: max_routes in neutron.conf)";
        for text in [&*key, fix, &says.replace("{}", &world.router)] {
            assert!(error.contains(text), "{error}");
        }
        let writes = world.calls().iter().filter(|call| call.ends_with("router_update")).count();
        assert!(writes <= 10, "{writes}");
        // The others stay refused with few calls, and are created once there is room.
        let missing: Vec<NewRoute> = wanted
            .iter()
            .filter(|new| !table(&world).iter().any(|route| route.starts_with(&*new.route.destination_cidr)))
            .cloned()
            .collect();
        routes.create("k", &missing).await;
        let writes = world.calls().iter().filter(|call| call.ends_with("router_update")).count();
        assert!(writes <= 5, "{writes}");
        world.cloud.change(|options| (options.max_routes, options.quotas) = (None, BTreeMap::new()));
        good(routes.create("k", &missing).await);
        assert_eq!(table(&world).len(), 40);
    }
}

#[tokio::test]
async fn without_atomic_calls_the_whole_list_is_written_with_its_revision_and_foreign_routes_stay() {
    let world = World::with(2).await;
    put(&world, &[("192.168.0.0/16", "10.0.0.99")]);
    let classic = Extensions { is_atomic: false, has_pairs: false };
    let nodes = [world.node("n1", &[]), world.node("n2", &[])];
    let (routes, _) = routes(&world, &nodes, classic);
    let another = self::routes(&world, &nodes, classic).0;
    let (one, two, three) = ([new("n1", "10.1.1.0/24")], [new("n2", "10.1.2.0/24")], [new("n2", "fd01::/64")]);
    let both = async { tokio::join!(routes.create("k", &one), routes.create("k", &two)) };
    let ((first, second), third) = tokio::join!(both, another.create("k", &three));
    [first, second, third].into_iter().for_each(good);
    assert_eq!(table(&world).len(), 4);
    // Another program wrote in between.
    world.fail(("network", "router_update"), 412, 2);
    let list = routes.list("k").await.unwrap();
    assert_eq!(list.len(), 3);
    world.calls();
    good(routes.delete("k", &list).await);
    assert_eq!(table(&world), ["192.168.0.0/16 via 10.0.0.99"]);
    let writes = world.calls().into_iter().filter(|call| call.ends_with("router_update")).count();
    assert_eq!(writes, 3, "refused twice, then written");
}

#[tokio::test]
async fn a_port_that_changed_in_between_is_read_again_and_keeps_what_others_wrote() {
    let world = World::with(1).await;
    let id = world.port("n1")["id"].as_str().unwrap().to_owned();
    world.set(
        "port",
        &id,
        json!({"allowed_address_pairs": [{"ip_address": "192.0.2.1", "mac_address": "fa:16:3e:00:00:01"}]}),
    );
    world.fail(("network", "port_update"), 412, 1);
    good(routes(&world, &[world.node("n1", &[])], ATOMIC).0.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!(pairs(&world, "n1"), ["192.0.2.1", "10.1.1.0/24"]);
    assert_eq!(world.calls().iter().filter(|call| call.ends_with("port_get")).count(), 1);
}

#[tokio::test]
async fn a_pair_with_another_mac_address_is_not_ours() {
    let world = World::with(1).await;
    let id = world.port("n1")["id"].as_str().unwrap().to_owned();
    let theirs = json!([{"ip_address": "10.1.1.0/24", "mac_address": "fa:16:3e:00:00:01"}]);
    world.set("port", &id, json!({"allowed_address_pairs": theirs}));
    let routes = routes(&world, &[world.node("n1", &[])], ATOMIC).0;
    good(routes.create("k", &[new("n1", "10.1.1.0/24")]).await);
    assert_eq!(pairs(&world, "n1"), ["10.1.1.0/24", "10.1.1.0/24"]);
    good(routes.delete("k", &routes.list("k").await.unwrap()).await);
    assert_eq!(world.port("n1")["allowed_address_pairs"], theirs);
}

fn allow(world: &World, server: &str, range: &str) {
    let id = world.port(server)["id"].as_str().unwrap().to_owned();
    world.set("port", &id, json!({"allowed_address_pairs": [{"ip_address": range}]}));
}

/// n1 is a gateway, and no node.
#[tokio::test]
async fn a_route_through_a_gateway_to_a_node_of_another_cloud_or_region_stays() {
    let world = World::with(1).await;
    put(&world, &[("10.1.7.0/24", &world.ip("n1"))]);
    allow(&world, "n1", "10.1.7.0/24");
    let before = (table(&world), world.port("n1"));
    for id in ["hybrid://x", "openstack://far/0e8c8d9d-0000-4000-8000-000000000000"] {
        let far = Node {
            name: "far".into(),
            provider_id: Some(id.into()),
            addresses: [NodeAddress::new(AddressType::InternalIp, "192.168.1.7")].into(),
            pod_cidrs: ["10.1.7.0/24".into()].into(),
            ..Node::default()
        };
        let (routes, _) = routes(&world, &[Arc::new(far)], ATOMIC);
        assert!(routes.list("k").await.unwrap().is_empty());
        let answers = [
            routes.create("k", &[new("far", "10.1.7.0/24")]).await,
            routes.delete("k", &[route(None, "10.1.7.0/24")]).await,
        ];
        assert!(answers.iter().all(|answer| answer[0].is_err()), "{answers:?}");
        assert_eq!((table(&world), world.port("n1")), before);
    }
}

/// n1 is no node, so the pair on its port has another purpose.
#[tokio::test]
async fn a_stray_route_goes_without_the_pair_of_a_port() {
    let world = World::with(2).await;
    let (routes, _) = routes(&world, &[world.node("n2", &[])], ATOMIC);
    put(&world, &[("10.1.7.0/24", &world.ip("n1"))]);
    allow(&world, "n1", "10.1.7.0/24");
    good(routes.delete("k", &routes.list("k").await.unwrap()).await);
    assert!(table(&world).is_empty());
    put(&world, &[("10.1.7.0/24", &world.ip("n1"))]);
    tokio::time::sleep(Duration::from_millis(1)).await;
    routes.list("k").await.unwrap();
    good(routes.create("k", &[new("n2", "10.1.7.0/24")]).await);
    assert_eq!(table(&world), [format!("10.1.7.0/24 via {}", world.ip("n2"))]);
    assert_eq!(
        (pairs(&world, "n1"), pairs(&world, "n2")),
        (vec!["10.1.7.0/24".to_owned()], vec!["10.1.7.0/24".to_owned()])
    );
}

#[tokio::test]
async fn a_route_by_a_former_address_of_a_port_goes_without_the_pair_of_the_route_by_the_present_one() {
    let world = World::with(1).await;
    let port = world.port("n1");
    let mut fixed = port["fixed_ips"].as_array().unwrap().clone();
    fixed.push(json!({"subnet_id": world.subnet, "ip_address": "10.0.9.9"}));
    let node = world.node("n1", &["10.1.1.0/24"]);
    world.set("port", port["id"].as_str().unwrap(), json!({ "fixed_ips": fixed }));
    let (routes, _) = routes(&world, &[node], ATOMIC);
    put(&world, &[("10.1.1.0/24", &world.ip("n1")), ("10.1.1.0/24", "10.0.9.9")]);
    allow(&world, "n1", "10.1.1.0/24");
    let stray: Vec<Route> = routes.list("k").await.unwrap().into_iter().filter(|route| route.blackhole).collect();
    assert_eq!(stray.len(), 1);
    good(routes.delete("k", &stray).await);
    assert_eq!(table(&world), [format!("10.1.1.0/24 via {}", world.ip("n1"))]);
    assert_eq!(pairs(&world, "n1"), ["10.1.1.0/24"]);
}

#[tokio::test]
async fn two_processes_that_change_a_port_at_the_same_time_both_get_their_pairs() {
    let world = World::with(1).await;
    let nodes = [world.node("n1", &[])];
    let one = routes(&world, &nodes, ATOMIC).0;
    let two = routes_by(&world.another_client(), &world, &nodes, ATOMIC).0;
    let (v4, v6) = ([new("n1", "10.1.1.0/24")], [new("n1", "fd01::/64")]);
    let (first, second) = tokio::join!(one.create("k", &v4), two.create("k", &v6));
    [first, second].into_iter().for_each(good);
    let mut pairs = pairs(&world, "n1");
    pairs.sort();
    assert_eq!((pairs, table(&world).len()), (vec!["10.1.1.0/24".to_owned(), "fd01::/64".to_owned()], 2));
}

#[tokio::test]
async fn routes_and_services_write_a_port_once_each_and_no_write_is_refused() {
    let world = World::with(12).await;
    let nodes: Vec<NodeRef> = (1..=12).map(|number| world.node(&format!("n{number}"), &[])).collect();
    let (routes, _) = routes(&world, &nodes, ATOMIC);
    let wanted: Vec<NewRoute> = (1..=12).map(|n| new(&format!("n{n}"), &format!("10.1.{n}.0/24"))).collect();
    let group = async |name| world.client.create_security_group(name, "").await.unwrap().id;
    let groups = [group("a").await, group("b").await];
    // Two Services have read all ports before anything was written, as plans do.
    let servers: Vec<String> = (1..=12).map(|number| world.id(&format!("n{number}"))).collect();
    let ports = world.client.ports_of(&servers.iter().map(String::as_str).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(ports.len(), 12);
    let add = async |group: &String| {
        for port in &ports {
            let with_group = |port: &Port| {
                let mut groups = port.security_groups.clone();
                groups.push(group.clone());
                Some(json!({ "security_groups": groups }))
            };
            assert!(world.client.change_port(port, with_group).await.unwrap());
        }
    };
    let (made, (), ()) = tokio::join!(routes.create("k", &wanted), add(&groups[0]), add(&groups[1]));
    good(made);
    for number in 1..=12 {
        let name = format!("n{number}");
        let has = world.port(&name)["security_groups"].as_array().unwrap().len();
        assert_eq!((has, pairs(&world, &name)), (3, vec![format!("10.1.{number}.0/24")]));
    }
    let calls = world.calls();
    let count = |action: &str| calls.iter().filter(|call| call.ends_with(action)).count();
    assert_eq!((count("port_update"), count("port_get")), (36, 0));
}

#[test]
fn routes_need_an_extension_of_routers() {
    let of = |aliases: &[&str]| Extensions::of(&aliases.iter().map(|alias| (*alias).to_owned()).collect::<Vec<_>>());
    assert_eq!(of(&["router", "allowed-address-pairs"]), None);
    assert_eq!(of(&["extraroute"]), Some(Extensions { is_atomic: false, has_pairs: false }));
    assert_eq!(of(&["extraroute", "extraroute-atomic", "allowed-address-pairs"]), Some(ATOMIC));
}
