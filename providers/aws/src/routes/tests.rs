use super::*;
use crate::node::fleet;
use crate::node::instances::tests::lend;
use crate::tests::world::{World, eni, id, new_interface, owned};
use ccm_cloudsim::aws::ec2::model::{InstanceState, Route as Leads, Target};
use ccm_kit::Cluster;
use ccm_provider::{ErrorClass, Node, NodeRef, Route, Routes};
use ccm_provider_contract::TestCluster;
use std::fmt::Write as _;

fn node(name: &str, number: usize) -> NodeRef {
    let provider_id = Some(format!("aws:///us-west-2a/{}", id(number)).into());
    Arc::new(Node { name: name.into(), provider_id, ..Node::default() })
}

fn leads(destination: &str, target: Target) -> Leads {
    Leads { destination: destination.into(), target, created: jiff::Timestamp::UNIX_EPOCH }
}

/// A blackhole, if there is no such instance.
fn to_instance(destination: &str, number: usize) -> Leads {
    leads(destination, Target::Interface { interface: eni(number), instance: Some(id(number)) })
}

fn to_gateway(destination: &str, gateway: &str) -> Leads {
    leads(destination, Target::Gateway(gateway.into()))
}

fn new(name: &str, destination: &str) -> NewRoute {
    NewRoute { name_hint: "uid".into(), route: listed(Some(name), destination) }
}

fn listed(name: Option<&str>, destination: &str) -> Route {
    Route { target_node: name.map(Into::into), destination_cidr: destination.into(), ..Route::default() }
}

/// Five instances, the first of which belong to the nodes; the table has these routes.
fn bed(nodes: Vec<NodeRef>, routes: Vec<Leads>) -> (Arc<World>, VpcRoutes, Arc<TestCluster>) {
    let world = Arc::new(World::with(5));
    world.ec2(|ec2| ec2.route_tables.get_mut("rtb-1").unwrap().routes = routes);
    let cluster = Cluster::default();
    let nodes = lend(&cluster, nodes);
    (world.clone(), routes_in(settings(None), &world, cluster), nodes)
}

fn routes_in(settings: Settings, world: &World, cluster: Cluster) -> VpcRoutes {
    VpcRoutes::new(VpcTable::new(settings, world.api(), fleet::new(world.api())), cluster)
}

fn settings(table: Option<&str>) -> Settings {
    let ownership = Ownership { cluster: "c1".into(), legacy: false };
    Settings { vpc: "vpc-1".into(), table: table.map(Into::into), ownership }
}

fn text(routes: &[Route]) -> Vec<String> {
    let text = |route: &Route| {
        let target = route.target_node.as_deref().unwrap_or(if route.blackhole { "nowhere" } else { "?" });
        format!("{} {} -> {target}", route.name, route.destination_cidr)
    };
    routes.iter().map(text).collect()
}

/// The plans of creations and deletions as text.
async fn golden(bed: &VpcRoutes, create: &[NewRoute], delete: &[Route]) -> String {
    let observed = bed.observe_for("kubernetes", create).await.unwrap();
    let plans = observed.create_all(create);
    let created = create.iter().map(|new| format!("create {}", new.route.destination_cidr)).zip(plans);
    let deleted = delete.iter().map(|route| (format!("delete {}", route.destination_cidr), observed.delete(route)));
    let mut text = String::new();
    for (subject, plan) in created.chain(deleted) {
        writeln!(text, "{subject}").unwrap();
        match plan {
            Ok(steps) if steps.is_empty() => writeln!(text, "  nothing to do").unwrap(),
            Ok(steps) => {
                observed.guard(&steps).unwrap();
                steps.iter().for_each(|step| writeln!(text, "  {step}").unwrap());
            }
            Err(error) => writeln!(text, "  error: {error}").unwrap(),
        }
    }
    text
}

fn second_interface(world: &World, number: usize) {
    let mut second = new_interface([10, 0, 0, 200].into(), Some(id(number)));
    second.attachment.as_mut().unwrap().device = 1;
    world.ec2(|ec2| ec2.interfaces.insert("eni-second".into(), second));
    world.instance(number, |instance| instance.interfaces.insert(0, "eni-second".into()));
}

#[tokio::test(start_paused = true)]
async fn a_list_is_one_call_and_holds_own_routes_and_blackholes_whatever_else_is_in_the_table() {
    let (world, routes, _) = bed(
        vec![node("a", 1), node("b", 2)],
        vec![
            to_gateway("0.0.0.0/0", "igw-1"),
            leads("10.0.0.0/16", Target::Local),
            to_instance("10.1.1.0/24", 1),
            to_instance("fd00:1::/80", 2),
            to_instance("192.168.0.0/16", 5),
            to_instance("10.1.9.0/24", 99),
            to_gateway("10.1.8.0/24", "igw-gone"),
            leads("10.7.0.0/16", Target::Interface { interface: "eni-nat".into(), instance: None }),
            to_gateway("pl-1", "vpce-1"),
        ],
    );
    world.ec2(|ec2| ec2.interfaces.insert("eni-nat".into(), new_interface([10, 0, 0, 200].into(), None)));
    assert_eq!(
        text(&routes.list("kubernetes").await.unwrap()),
        [
            "kubernetes-10.1.1.0/24 10.1.1.0/24 -> a",
            "kubernetes-10.1.9.0/24 10.1.9.0/24 -> nowhere",
            "kubernetes-fd00:1::/80 fd00:1::/80 -> b"
        ]
    );
    assert_eq!(world.calls(), ["DescribeRouteTables vpc-id=1 tag-key=1"]);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_was_deleted_while_its_instance_lives_fails_no_list_and_its_route_can_go() {
    let routes = vec![to_instance("10.1.1.0/24", 1), to_instance("10.1.2.0/24", 2)];
    let (world, routes, nodes) = bed(vec![node("a", 1), node("b", 2)], routes);
    assert_eq!(routes.list("k").await.unwrap().len(), 2);
    nodes.set_nodes(vec![node("a", 1)]);
    let listed = routes.list("k").await.unwrap();
    assert_eq!(text(&listed), ["k-10.1.1.0/24 10.1.1.0/24 -> a", "k-10.1.2.0/24 10.1.2.0/24 -> b"]);
    world.calls();
    routes.delete("k", &listed[1..]).await[0].as_ref().unwrap();
    assert_eq!(world.calls().len(), 1, "the table that was just listed is planned with");
    // A process that never saw the node does not know its instance.
    let (_, fresh, _) = bed(vec![node("a", 1)], vec![to_instance("10.1.2.0/24", 2)]);
    assert!(fresh.list("k").await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn plans_of_new_routes() {
    let nodes = vec![node("a", 1), node("b", 2), node("multi", 3), node("off", 4), node("gone", 99)];
    let (world, routes, _) = bed(
        nodes,
        vec![
            leads("10.0.0.0/8", Target::Local),
            to_instance("10.1.2.0/24", 99),
            to_instance("10.1.4.0/24", 4),
            to_instance("10.1.5.0/24", 1),
            to_gateway("10.1.6.0/24", "tgw-1"),
            to_instance("10.1.7.0/24", 5),
        ],
    );
    second_interface(&world, 3);
    world.interface(4, |interface| interface.source_dest_check = false);
    let wanted = [
        new("a", "10.1.1.0/24"),
        new("b", "10.1.2.0/24"),
        new("multi", "10.1.3.0/24"),
        new("multi", "fd00:3::/80"),
        new("off", "10.1.4.0/24"),
        new("off", "10.1.5.0/24"),
        new("off", "10.1.6.0/24"),
        new("off", "10.1.7.0/24"),
        new("gone", "10.1.8.0/24"),
        new("nobody", "10.1.9.0/24"),
    ];
    let plans = golden(&routes, &wanted, &[]).await;
    assert_eq!(plans, include_str!("golden_create.txt"), "\n{plans}");
}

#[tokio::test(start_paused = true)]
async fn plans_of_routes_that_go() {
    let (_, routes, _) = bed(
        vec![node("a", 1), node("b", 2)],
        vec![
            to_gateway("0.0.0.0/0", "igw-1"),
            to_instance("10.1.1.0/24", 1),
            to_instance("10.1.2.0/24", 2),
            to_instance("10.1.3.0/24", 99),
            to_instance("192.168.0.0/16", 5),
        ],
    );
    let gone = [
        listed(Some("a"), "10.1.1.0/24"),
        listed(Some("a"), "10.1.2.0/24"),
        listed(None, "10.1.3.0/24"),
        listed(None, "10.1.4.0/24"),
        listed(None, "192.168.0.0/16"),
        listed(None, "0.0.0.0/0"),
    ];
    let plans = golden(&routes, &[], &gone).await;
    assert_eq!(plans, include_str!("golden_delete.txt"), "\n{plans}");
}

#[tokio::test(start_paused = true)]
async fn a_route_in_the_way_is_replaced_only_when_it_leads_to_no_live_node_of_ours() {
    let (world, routes, _) =
        bed(vec![node("a", 1)], vec![to_instance("10.1.1.0/24", 5), to_instance("10.1.2.0/24", 4)]);
    world.instance(4, |instance| instance.tags.clear());
    let wanted = [new("a", "10.1.1.0/24"), new("a", "10.1.2.0/24")];
    let answers = routes.create("k", &wanted).await;
    answers[0].as_ref().unwrap();
    let error = answers[1].as_ref().unwrap_err().to_string();
    assert!(error.contains("which is not an instance of this cluster; remove that route"), "{error}");
    let calls = world.calls();
    assert!(calls.iter().any(|call| call.starts_with("ReplaceRoute")), "{calls:#?}");
    assert!(!calls.iter().any(|call| call.contains("10.1.2.0/24")), "{calls:#?}");
}

#[tokio::test(start_paused = true)]
async fn all_routes_of_a_reconcile_share_the_table_and_one_lookup() {
    let (world, routes, _) = bed((1..=5).map(|number| node(&format!("n{number}"), number)).collect(), Vec::new());
    let wanted: Vec<NewRoute> =
        (1..=5).map(|number| new(&format!("n{number}"), &format!("10.1.{number}.0/24"))).collect();
    assert!(routes.list("k").await.unwrap().is_empty());
    assert!(routes.create("k", &wanted).await.iter().all(Result::is_ok));
    let calls = world.calls();
    let reads: Vec<&String> = calls.iter().filter(|call| call.starts_with("Describe")).collect();
    assert_eq!(reads, ["DescribeRouteTables vpc-id=1 tag-key=1", "DescribeInstances 5 IDs"]);
    assert_eq!(calls.len() - reads.len(), 10, "a check and a route each");
}

#[tokio::test(start_paused = true)]
async fn a_route_that_is_there_writes_nothing_and_one_that_is_gone_is_deleted() {
    let (world, routes, _) = bed(vec![node("a", 1)], vec![to_instance("10.1.1.0/24", 1)]);
    world.interface(1, |interface| interface.source_dest_check = false);
    routes.create("k", &[new("a", "10.1.1.0/24")]).await[0].as_ref().unwrap();
    assert!(world.calls().iter().all(|call| call.starts_with("Describe")));
    world.fail("DeleteRoute", "InvalidRoute.NotFound", 1);
    routes.delete("k", &[listed(Some("a"), "10.1.1.0/24")]).await[0].as_ref().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stopped_node_keeps_its_route_and_a_stopped_gateway_that_of_a_node_of_another_cloud() {
    let with = |node: NodeRef, range: &str| Arc::new(Node { pod_cidrs: [range.into()].into(), ..(*node).clone() });
    let far = Node { name: "far".into(), provider_id: Some("hybrid://x".into()), ..Node::default() };
    let far = with(Arc::new(far), "10.1.7.0/24");
    let (a, b) = (with(node("a", 1), "10.1.1.0/24"), with(node("b", 2), "10.1.2.0/24"));
    let leads = vec![to_instance("10.1.1.0/24", 1), to_instance("10.1.2.0/24", 2), to_instance("10.1.7.0/24", 3)];
    let (world, routes, nodes) = bed(vec![a.clone(), b, far], leads);
    for number in 1..=3 {
        world.instance(number, |instance| instance.state = InstanceState::Stopped);
    }
    let list = routes.list("k").await.unwrap();
    assert_eq!(text(&list), ["k-10.1.1.0/24 10.1.1.0/24 -> a", "k-10.1.2.0/24 10.1.2.0/24 -> b"]);
    world.interface(1, |interface| interface.source_dest_check = false);
    routes.create("k", &[new("a", "10.1.1.0/24")]).await[0].as_ref().unwrap();
    assert!(world.calls().iter().all(|call| call.starts_with("Describe")));
    nodes.set_nodes(vec![a]);
    let list = routes.list("k").await.unwrap();
    assert_eq!(
        text(&list),
        [
            "k-10.1.1.0/24 10.1.1.0/24 -> a",
            "k-10.1.2.0/24 10.1.2.0/24 -> nowhere",
            "k-10.1.7.0/24 10.1.7.0/24 -> nowhere"
        ]
    );
}

#[tokio::test(start_paused = true)]
async fn a_route_that_somebody_made_in_between_is_looked_at_again() {
    let (world, routes, _) = bed(vec![node("a", 1)], Vec::new());
    world.fail("CreateRoute", "RouteAlreadyExists", 1);
    let answers = routes.create("k", &[new("a", "10.1.1.0/24")]).await;
    assert_eq!(answers[0].as_ref().unwrap_err().class(), ErrorClass::Conflict);
    world.ec2(|ec2| ec2.route_tables.get_mut("rtb-1").unwrap().routes.push(to_instance("10.1.1.0/24", 1)));
    world.calls();
    tokio::time::sleep(Duration::from_millis(1)).await;
    routes.create("k", &[new("a", "10.1.1.0/24")]).await[0].as_ref().unwrap();
    assert!(
        world.calls().iter().any(|call| call.starts_with("DescribeRouteTables")),
        "after a write the table is read again"
    );
}

#[tokio::test(start_paused = true)]
async fn exactly_one_table_must_be_meant() {
    let (world, routes, _) = bed(Vec::new(), Vec::new());
    world.ec2(|ec2| {
        let mut table = ec2.route_tables["rtb-2"].clone();
        table.tags = owned();
        ec2.route_tables.insert("rtb-3".into(), table);
    });
    let error = routes.list("kubernetes").await.unwrap_err().to_string();
    assert!(
        error.starts_with("found multiple matching AWS route tables for AWS cluster: kubernetes: rtb-1, rtb-3;"),
        "{error}"
    );
    let cluster = Cluster::default();
    let _nodes = lend(&cluster, Vec::new());
    let by_id = routes_in(settings(Some("rtb-2")), &world, cluster.clone());
    assert!(by_id.list("k").await.unwrap().is_empty());
    let lost = routes_in(settings(Some("rtb-9")), &world, cluster);
    let error = lost.list("k").await.unwrap_err().to_string();
    assert_eq!(error, "unable to find route table for AWS cluster: k; rtb-9 (RouteTableID) does not exist");
}

#[tokio::test(start_paused = true)]
async fn the_old_mark_counts_where_there_is_no_new_one() {
    let (world, routes, _) = bed(Vec::new(), Vec::new());
    let old = [("KubernetesCluster".to_owned(), "c1".to_owned())];
    world.ec2(|ec2| ec2.route_tables.get_mut("rtb-1").unwrap().tags = old.into());
    assert!(routes.list("k").await.unwrap().is_empty());
    assert_eq!(world.calls().len(), 2);
}
