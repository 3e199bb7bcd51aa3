//! Routes in the table of the configuration.

use std::sync::Arc;

use ccm_cloudsim::azure::options::Limits;
use ccm_cloudsim::azure::{ClusterSeed, MachineSeed, Options};
use ccm_cloudsim::core::faults::{Fault, Rule};
use ccm_provider::{CloudProvider, ErrorClass, NewRoute, Node, Route};
use serde_json::{Value, json};

use crate::bed::{Bed, CLUSTER, GROUP, node_at, pass};

fn table() -> String {
    format!("{GROUP}/Microsoft.Network/routeTables/rt")
}

fn names(bed: &Bed) -> Vec<String> {
    names_in(bed, &table())
}

fn names_in(bed: &Bed, table: &str) -> Vec<String> {
    let table = bed.cloud.object(table);
    let routes = table.pointer("/properties/routes").and_then(Value::as_array).cloned().unwrap_or_default();
    routes.iter().map(|route| route["name"].as_str().unwrap().to_owned()).collect()
}

fn wanted(node: &str, cidr: &str) -> NewRoute {
    let route = Route { target_node: Some(node.into()), destination_cidr: cidr.to_owned(), ..Route::default() };
    NewRoute { name_hint: "uid".to_owned(), route }
}

/// Nodes `n0`, `n1`, … with a range each, and the routes that they need.
fn nodes(bed: &Bed, count: u8) -> Vec<NewRoute> {
    let nodes: Vec<Node> = (0..count)
        .map(|n| {
            let cidr = format!("10.244.{n}.0/24");
            Node { pod_cidrs: [cidr.into()].into(), ..node_at(&format!("n{n}"), &format!("10.240.1.{n}")) }
        })
        .collect();
    let wanted = nodes.iter().map(|node| wanted(&node.name, &node.pod_cidrs[0])).collect();
    bed.cluster.set_nodes(nodes.into_iter().map(Arc::new).collect());
    wanted
}

async fn create(
    provider: &Arc<dyn CloudProvider>,
    routes: &[NewRoute],
) -> Vec<Result<(), ccm_provider::ProviderError>> {
    provider.routes().unwrap().create(CLUSTER, routes).await
}

#[tokio::test]
async fn routes_of_a_pass_are_one_write_and_those_of_users_stay() {
    let bed = Bed::start(Options::default());
    let user = json!({"name": "mine", "properties": {"addressPrefix": "10.99.0.0/16", "nextHopType": "VnetLocal"}});
    bed.cloud.world(|world| world.alter(&table(), json!({"properties": {"routes": [user]}})));
    let routes = nodes(&bed, 20);
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    assert!(create(&provider, &routes).await.iter().all(Result::is_ok));
    assert_eq!(bed.calls(mark).iter().filter(|call| *call == "routeTables.put").count(), 1, "{:?}", bed.calls(mark));
    let listed = provider.routes().unwrap().list(CLUSTER).await.unwrap();
    assert_eq!(listed.len(), 20);
    assert_eq!(listed[1].target_node.as_deref(), Some("n1"));
    assert_eq!((names(&bed).len(), &*names(&bed)[0]), (21, "mine"));
    assert!(names(&bed).contains(&"n1____102441024".to_owned()), "{:?}", names(&bed));
    // A second pass writes nothing, and neither does another process.
    let mark = bed.cloud.mark();
    assert!(create(&provider, &routes).await.iter().all(Result::is_ok));
    let provider = bed.process("").await;
    assert!(create(&provider, &routes).await.iter().all(Result::is_ok));
    assert_eq!(bed.cloud.writes(mark), Vec::<String>::new());
    // Only the named route goes.
    let n1 = listed.iter().find(|route| route.target_node.as_deref() == Some("n1")).cloned().unwrap();
    assert!(provider.routes().unwrap().delete(CLUSTER, &[n1]).await[0].is_ok());
    let left = names(&bed);
    assert!(left.len() == 20 && left.contains(&"n10____1024410024".to_owned()), "{left:?}");
    bed.is_clean();
}

#[tokio::test]
async fn the_table_is_listed_from_memory_until_its_age_or_a_write() {
    let bed = Bed::start(Options::default());
    let routes = nodes(&bed, 2);
    let reads = |mark| bed.calls(mark).iter().filter(|call| *call == "routeTables.get").count();
    let minute = |provider: Arc<dyn CloudProvider>| async move {
        let mut listed = Vec::new();
        for _ in 0..6 {
            listed = provider.routes().unwrap().list(CLUSTER).await.unwrap();
            pass(10).await;
        }
        listed.len()
    };
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    assert_eq!((minute(provider.clone()).await, reads(mark)), (0, 1));
    assert!(create(&provider, &routes).await.iter().all(Result::is_ok));
    // The own write is seen at once, another one after two minutes.
    let mark = bed.cloud.mark();
    assert_eq!((minute(provider.clone()).await, reads(mark)), (2, 1));
    bed.cloud.world(|world| world.alter(&table(), json!({"properties": {"routes": []}})));
    assert_eq!((minute(provider.clone()).await, reads(mark)), (2, 1));
    assert_eq!((minute(provider).await, reads(mark)), (0, 2));
    for (key, expected) in [("routeTableCacheTTLInSeconds: 15\n", 3), ("disableAPICallCache: true\n", 6)] {
        let provider = bed.process(key).await;
        let mark = bed.cloud.mark();
        minute(provider).await;
        assert_eq!(reads(mark), expected, "{key}");
    }
    bed.is_clean();
}

#[tokio::test]
async fn a_missing_table_is_created_with_the_tags_of_the_configuration() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| world.remove(&table()));
    let routes = nodes(&bed, 1);
    let provider = bed.process("tags: a=b\n").await;
    assert_eq!(provider.routes().unwrap().list(CLUSTER).await.unwrap(), []);
    assert!(create(&provider, &routes).await[0].is_ok());
    let table = bed.cloud.object(&table());
    assert_eq!((&table["location"], &table["tags"]["a"]), (&json!("eastus"), &json!("b")));
    assert_eq!(names(&bed), ["n0____102440024"]);
    bed.is_clean();
}

#[tokio::test]
async fn an_existing_table_gets_the_tags_with_a_write_of_routes() {
    let bed = Bed::start(Options::default());
    bed.cloud.world(|world| world.alter(&table(), json!({"tags": {"A": "old", "team": "x"}})));
    let provider = bed.process("tags: a=b\n").await;
    assert!(create(&provider, &nodes(&bed, 1)).await[0].is_ok());
    assert_eq!(bed.cloud.object(&table())["tags"], json!({"A": "b", "team": "x"}));
    // A table in another resource group than that of the cluster gets none.
    bed.cloud.world(|world| world.group("sub", "other"));
    let provider = bed.process("tags: a=b\nrouteTableResourceGroup: other\n").await;
    assert!(create(&provider, &nodes(&bed, 1)).await[0].is_ok());
    let other = bed.cloud.object(&table().replace("/rg/", "/other/"));
    assert!(other["name"] == "rt" && other["tags"].get("a").is_none(), "{other}");
    bed.is_clean();
}

#[tokio::test]
async fn a_failed_write_is_the_answer_of_all_its_routes() {
    let bed = Bed::start(Options::default());
    let routes = nodes(&bed, 3);
    let provider = bed.process("").await;
    let fault = Fault::Operation { status: 409, code: "OperationFailed".to_owned(), message: "no luck".to_owned() };
    bed.cloud.fault(Rule::every(fault).on("network", "routeTables.put"));
    let answers = create(&provider, &routes).await;
    assert!(
        answers.iter().all(|answer| answer.as_ref().is_err_and(|error| error.to_string().contains("no luck"))),
        "{answers:?}"
    );
}

#[tokio::test]
async fn a_change_by_somebody_else_is_a_conflict_and_nothing_of_it_is_lost() {
    let bed = Bed::start(Options::default());
    let routes = nodes(&bed, 1);
    let provider = bed.process("").await;
    let fault = Fault::Code { status: 412, code: "PreconditionFailed".to_owned(), message: String::new() };
    bed.cloud.fault(Rule::every(fault).on("network", "routeTables.put").window(0, 1));
    let answer = create(&provider, &routes).await.pop().unwrap();
    assert_eq!(answer.unwrap_err().class(), ErrorClass::Conflict);
    assert!(create(&provider, &routes).await[0].is_ok());
}

/// A route with a name, to an appliance.
fn seeded(name: &str, range: &str, hop: &str) -> Value {
    let properties = json!({"addressPrefix": range, "nextHopType": "VirtualAppliance", "nextHopIpAddress": hop});
    json!({"name": name, "properties": properties})
}

#[tokio::test]
async fn a_route_named_by_its_node_alone_gets_its_range_with_the_next_write() {
    let bed = Bed::start(Options::default());
    let old = seeded("N0", "10.244.0.0/24", "10.240.1.0");
    let user = seeded("mine", "10.99.0.0/16", "10.240.9.9");
    bed.cloud.world(|world| world.alter(&table(), json!({"properties": {"routes": [old, user]}})));
    let routes = nodes(&bed, 2);
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    assert!(create(&provider, &routes[..1]).await[0].is_ok());
    assert_eq!(bed.cloud.writes(mark), Vec::<String>::new(), "no write because of the name alone");
    assert!(create(&provider, &routes).await.iter().all(Result::is_ok));
    assert_eq!(names(&bed), ["n0____102440024", "mine", "n1____102441024"]);
    bed.is_clean();
}

#[tokio::test]
async fn a_route_named_by_its_node_alone_goes_with_its_node() {
    let bed = Bed::start(Options::default());
    let (old, user) = (seeded("n0", "10.244.0.0/24", "10.240.1.0"), seeded("mine", "10.244.9.0/24", "10.240.9.9"));
    bed.cloud.world(|world| world.alter(&table(), json!({"properties": {"routes": [old, user]}})));
    nodes(&bed, 1);
    let provider = bed.process("").await;
    let list = async || provider.routes().unwrap().list(CLUSTER).await.unwrap();
    assert_eq!(list().await.len(), 1);
    bed.cluster.set_nodes(Vec::new());
    pass(10).await;
    let listed = list().await;
    assert_eq!(listed.len(), 1, "{listed:?}");
    assert!(provider.routes().unwrap().delete(CLUSTER, &listed).await[0].is_ok());
    assert_eq!(names(&bed), ["mine"]);
    bed.is_clean();
}

/// The nodes and ranges of the routes that are listed.
async fn listed(provider: &Arc<dyn CloudProvider>) -> Vec<String> {
    let routes = provider.routes().unwrap().list(CLUSTER).await.unwrap();
    let text = |route: &Route| {
        format!("{} {}", route.target_node.as_ref().map_or("nowhere", |node| node.as_str()), route.destination_cidr)
    };
    routes.iter().map(text).collect()
}

#[tokio::test]
async fn a_node_that_shows_one_family_keeps_and_gets_the_routes_of_both() {
    let bed = Bed::dual(Options::default());
    for name in ["n1", "n2"] {
        bed.cloud.world(|world| world.machine(&MachineSeed { name, dual: true, ..MachineSeed::default() }));
    }
    let address = |name: &str| {
        let interface = bed.cloud.object(&format!("{GROUP}/Microsoft.Network/networkInterfaces/{name}-nic"));
        let address = interface.pointer("/properties/ipConfigurations/1/properties/privateIPAddress");
        address.and_then(Value::as_str).unwrap().to_owned()
    };
    // As the Go program wrote it: its addresses are those of the machines.
    let present = [
        seeded("n1____102441024", "10.244.1.0/24", &bed.address("n1")),
        seeded("n1____fd0010244164", "fd00:10:244:1::/64", &address("n1")),
    ];
    bed.cloud.world(|world| world.alter(&table(), json!({"properties": {"routes": present}})));
    let ranges = |n: usize| [format!("10.244.{n}.0/24"), format!("fd00:10:244:{n}::/64")];
    let node = |n: usize| {
        let name = format!("n{n}");
        let pod_cidrs = ranges(n).map(Into::into).into();
        Arc::new(Node { pod_cidrs, ..node_at(&name, &bed.address(&name)) })
    };
    bed.cluster.set_nodes(vec![node(1), node(2)]);
    let provider = bed.process("").await;
    assert_eq!(listed(&provider).await, ["n1 10.244.1.0/24", "n1 fd00:10:244:1::/64"]);
    let new = ranges(2).map(|range| wanted("n2", &range));
    let answers = create(&provider, &new).await;
    assert!(answers.iter().all(Result::is_ok), "{answers:?}");
    let routes = bed.cloud.object(&table())["properties"]["routes"].clone();
    assert_eq!((&routes[2]["name"], &routes[3]["name"]), (&json!("n2____102442024"), &json!("n2____fd0010244264")));
    assert_eq!(routes[3]["properties"]["nextHopIpAddress"], address("n2"));
    // Neither this process nor the next one has anything to do, nor needs the machines for that.
    for provider in [provider, bed.process("").await] {
        let mark = bed.cloud.mark();
        let all = ["n1 10.244.1.0/24", "n2 10.244.2.0/24", "n1 fd00:10:244:1::/64", "n2 fd00:10:244:2::/64"];
        assert_eq!(listed(&provider).await, all);
        assert_eq!(bed.calls(mark), ["routeTables.get"]);
    }
    bed.is_clean();
}

#[tokio::test]
async fn two_nodes_with_one_range_hold_up_no_other_node() {
    let bed = Bed::start(Options::default());
    let mut routes = nodes(&bed, 3);
    routes[1].route.destination_cidr = routes[0].route.destination_cidr.clone();
    let provider = bed.process("").await;
    for _ in 0..2 {
        let answers = create(&provider, &routes).await;
        assert!(answers[0].is_ok() && answers[2].is_ok(), "{answers:?}");
        let error = answers[1].as_ref().unwrap_err().to_string();
        assert!(error.contains("n0") && error.contains("n1") && error.contains("10.244.0.0/24"), "{error}");
        assert_eq!(names(&bed), ["n0____102440024", "n2____102442024"]);
    }
    bed.is_clean();
}

#[tokio::test]
async fn a_full_table_keeps_the_routes_that_fit() {
    let limits = Limits { routes: 4, ..Limits::default() };
    let bed = Bed::start(Options { limits, ..Options::default() });
    let routes = nodes(&bed, 6);
    let group = bed.cloud.world(|world| world.cluster(&ClusterSeed { group: "rg-1", ..ClusterSeed::default() }));
    let provider = bed.process("routeTableResourceGroup: rg-1\n").await;
    let names = |bed: &Bed| names_in(bed, &group.route_table);
    assert!(create(&provider, &routes[..3]).await.iter().all(Result::is_ok));
    let answers = create(&provider, &routes).await;
    let refused: Vec<String> = answers.iter().filter_map(|answer| Some(answer.as_ref().err()?.to_string())).collect();
    assert_eq!((answers.len() - refused.len(), refused.len(), names(&bed).len()), (4, 2, 4), "{refused:?}");
    assert!(refused.iter().all(|error| error.contains("takes no more than 4 routes")), "{refused:?}");
    let mark = bed.cloud.mark();
    assert_eq!(create(&provider, &routes).await.iter().filter(|answer| answer.is_err()).count(), 2);
    assert_eq!(bed.cloud.writes(mark), Vec::<String>::new(), "a full table is not written again");
    // The limit is another one now.
    bed.cloud.change(|options| options.limits.routes = 3);
    let gone = provider.routes().unwrap().list(CLUSTER).await.unwrap();
    assert!(provider.routes().unwrap().delete(CLUSTER, &gone[..2]).await.iter().all(Result::is_ok));
    assert_eq!(create(&provider, &routes).await.iter().filter(|answer| answer.is_err()).count(), 3);
    assert_eq!(names(&bed).len(), 3);
}

#[tokio::test]
async fn nodes_of_other_programs_have_no_route_in_the_table() {
    let bed = Bed::start(Options::default());
    let labels = [("kubernetes.azure.com/managed", "false")].into_iter().collect();
    let pod_cidrs = ["10.244.7.0/24".into()].into();
    bed.cluster.set_nodes(vec![Arc::new(Node { labels, pod_cidrs, ..node_at("other", "192.168.0.1") })]);
    let provider = bed.process("").await;
    let mark = bed.cloud.mark();
    assert!(create(&provider, &[wanted("other", "10.244.7.0/24")]).await[0].is_ok());
    let listed = provider.routes().unwrap().list(CLUSTER).await.unwrap();
    assert_eq!(listed[0].target_node.as_deref(), Some("other"));
    assert!(provider.routes().unwrap().delete(CLUSTER, &listed).await[0].is_ok());
    assert_eq!(bed.cloud.writes(mark), Vec::<String>::new());
}

mod long_lane {
    use super::*;

    #[tokio::test]
    async fn a_thousand_nodes_are_one_write_and_the_surplus_of_a_small_table_fails_alone() {
        for limit in [1000, 400] {
            let mut options = Options { check: false, ..Options::default() };
            options.limits.routes = limit;
            let bed = Bed::start(options);
            let nodes: Vec<Node> = (0..1000_u32)
                .map(|n| {
                    let cidr = format!("10.{}.{}.0/24", 128 + n / 256, n % 256);
                    let address = format!("10.240.{}.{}", 1 + n / 250, n % 250);
                    Node { pod_cidrs: [cidr.into()].into(), ..node_at(&format!("n{n}"), &address) }
                })
                .collect();
            let routes: Vec<NewRoute> = nodes.iter().map(|node| wanted(&node.name, &node.pod_cidrs[0])).collect();
            bed.cluster.set_nodes(nodes.into_iter().map(Arc::new).collect());
            let provider = bed.process("").await;
            let mark = bed.cloud.mark();
            let answers = create(&provider, &routes).await;
            let made = answers.iter().filter(|answer| answer.is_ok()).count();
            let puts = bed.calls(mark).iter().filter(|call| *call == "routeTables.put").count();
            assert_eq!((made, names(&bed).len()), (limit, limit));
            assert!(puts == 1 || limit < 1000 && puts <= 3, "{puts}");
        }
    }
}
