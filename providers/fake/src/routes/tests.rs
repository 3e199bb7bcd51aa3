use super::*;
use crate::tests::Bed;
use ccm_provider::{AddressType, CloudProvider, NodeAddress, Routes};
use serde_json::Value as Json;

fn route(node: &str, cidr: &str) -> Route {
    Route {
        target_node: Some(node.into()),
        destination_cidr: cidr.into(),
        target_node_addresses: vec![NodeAddress::new(AddressType::InternalIp, "10.0.0.1")],
        ..Route::default()
    }
}

fn new(node: &str, cidr: &str) -> NewRoute {
    NewRoute { name_hint: "hint".into(), route: route(node, cidr) }
}

fn bed(text: &str) -> (Bed, Arc<dyn Routes>) {
    let bed = Bed::new(&format!("interfaces: {{routes: true}}\n{text}"));
    let routes = bed.cloud().routes().unwrap();
    (bed, routes)
}

async fn names(routes: &Arc<dyn Routes>, cluster: &str) -> Vec<String> {
    routes.list(cluster).await.unwrap().into_iter().map(|route| route.name).collect()
}

fn texts(answers: Vec<Result<(), ProviderError>>) -> Vec<String> {
    answers.into_iter().map(|answer| answer.map_or_else(|error| error.to_string(), |()| "ok".into())).collect()
}

#[tokio::test]
async fn a_route_is_keyed_by_cluster_node_and_cidr_as_text() {
    let (_bed, routes) = bed("");
    let answers =
        routes.create("c", &[new("a", "10.1.0.0/24"), new("b", "10.1.0.0/24"), new("a", "10.1.0.0/24")]).await;
    assert_eq!(texts(answers), ["ok", "ok", "route 10.1.0.0/24 to a already exists"]);
    // Equal as addresses, but a different key as text.
    assert_eq!(texts(routes.create("c", &[new("a", "10.1.0.1/24")]).await), ["ok"]);
    assert_eq!(texts(routes.create("other", &[new("a", "10.1.0.0/24")]).await), ["ok"]);
    assert_eq!(names(&routes, "c").await, ["c-hint-10.1.0.0/24", "c-hint-10.1.0.0/24", "c-hint-10.1.0.1/24"]);
    assert_eq!(names(&routes, "other").await, ["other-hint-10.1.0.0/24"]);
    let gone = route("a", "10.1.0.0/24");
    assert_eq!(texts(routes.delete("c", &[gone.clone(), gone]).await), ["ok", "route 10.1.0.0/24 to a does not exist"]);
    assert_eq!(names(&routes, "c").await.len(), 2);
}

#[tokio::test]
async fn addresses_are_listed_only_when_switched_on() {
    let (bed, routes) = bed("");
    routes.create("c", &[new("a", "10.1.0.0/24")]).await;
    let listed = routes.list("c").await.unwrap();
    assert_eq!((listed[0].enable_node_addresses, listed[0].target_node_addresses.len()), (false, 0));
    bed.write("interfaces: {routes: true}\nroutes: {nodeAddresses: true}");
    let listed = routes.list("c").await.unwrap();
    assert_eq!((listed[0].enable_node_addresses, listed[0].target_node_addresses.len()), (true, 1));
}

#[tokio::test]
async fn initial_routes_without_cluster_belong_to_every_cluster() {
    let (_bed, routes) =
        bed("routes: {initial: [{name: all, destinationCIDR: 10.9.0.0/24, blackhole: true}, {name: mine, cluster: c, \
         targetNode: a, destinationCIDR: 10.8.0.0/24}]}");
    assert_eq!(names(&routes, "c").await, ["all", "mine"]);
    assert_eq!(names(&routes, "x").await, ["all"]);
    let listed = routes.list("x").await.unwrap();
    assert_eq!((listed[0].blackhole, &listed[0].target_node), (true, &None));
    // It is listed, so it must be possible to remove it.
    assert_eq!(texts(routes.delete("x", &listed).await), ["ok"]);
    assert_eq!(names(&routes, "c").await, ["mine"]);
}

#[tokio::test]
async fn the_table_is_replaced_when_the_initial_list_changes() {
    let (bed, routes) = bed("routes: {initial: [{name: one, destinationCIDR: 10.9.0.0/24}]}");
    routes.create("c", &[new("a", "10.1.0.0/24")]).await;
    bed.write("interfaces: {routes: true}\nroutes: {nodeAddresses: true, initial: [{name: one, destinationCIDR: 10.9.0.0/24}]}");
    assert_eq!(names(&routes, "c").await.len(), 2);
    bed.write("interfaces: {routes: true}\nroutes: {initial: [{name: two, destinationCIDR: 10.9.0.0/24}]}");
    assert_eq!(names(&routes, "c").await, ["two"]);
}

#[tokio::test]
async fn every_route_is_a_call_of_its_own() {
    let (bed, routes) = bed("faults: [{id: f, call: CreateRoute, node: b, cidr: '10.1.*', error: no}]");
    assert_eq!(texts(routes.create("c", &[new("a", "10.1.0.0/24"), new("b", "10.1.1.0/24")]).await), ["ok", "no"]);
    routes.list("c").await.unwrap();
    routes.delete("c", &[route("a", "10.1.0.0/24")]).await;
    let shown = |name: &str, node: &str, cidr: &str, addresses: Json| json!({"name": name, "targetNode": node, "targetNodeAddresses": addresses, "destinationCIDR": cidr, "blackhole": false});
    let ip = || json!([{"type": "InternalIP", "address": "10.0.0.1"}]);
    let create = |route: Json| json!({"cluster": "c", "nameHint": "hint", "route": route});
    assert_eq!(
        bed.ends(),
        [
            json!({"call": "CreateRoute", "args": create(shown("", "a", "10.1.0.0/24", ip()))}),
            json!({"call": "CreateRoute", "args": create(shown("", "b", "10.1.1.0/24", ip())), "error": "no",
                "kind": "Other", "fault": "f"}),
            json!({"call": "ListRoutes", "args": {"cluster": "c"},
                "result": [shown("c-hint-10.1.0.0/24", "a", "10.1.0.0/24", json!([]))]}),
            json!({"call": "DeleteRoute", "args": {"cluster": "c", "route": shown("", "a", "10.1.0.0/24", ip())}}),
        ]
    );
}

#[tokio::test]
async fn a_list_can_be_replaced() {
    let (_bed, routes) =
        bed("faults: [{call: ListRoutes, result: [{name: r, targetNode: a, destinationCIDR: 10.1.0.0/24, \
         targetNodeAddresses: [{type: InternalIP, address: 10.0.0.1}]}]}]");
    let listed = routes.list("c").await.unwrap();
    assert_eq!((&*listed[0].name, listed[0].enable_node_addresses), ("r", true));
}
