//! A table whose routes lead to addresses, as in OpenStack routers, in a cluster with the ranges 10.1.0.0/16 and
//! fd00::/16. A table of instances is tested with the AWS provider.

use std::net::IpAddr;
use std::sync::Arc;

use ccm_provider::{AddressType, ErrorClass, NodeAddress, Turn};

use super::*;

/// A write that gets no answer.
const HANGS: &str = "add 10.1.99.0/24";

#[derive(Debug)]
struct Router;

#[async_trait]
impl RouteTable for Router {
    type Id = ();
    type Hop = IpAddr;
    type Facts = ();
    type Write = String;
    const NO_HOP: &'static str = "has no internal address";

    async fn read(&self, _: &str, _: Duration, _: Option<Instant>) -> Result<Table<(), IpAddr>, ProviderError> {
        Err(ProviderError::NotImplemented)
    }

    async fn write(&self, write: &String) -> Result<(), ProviderError> {
        if write.starts_with(HANGS) {
            std::future::pending::<()>().await;
        }
        Ok(())
    }

    fn hops(node: &Node) -> Vec<IpAddr> {
        node.addresses.iter().filter_map(NodeAddress::ip).collect()
    }

    fn hop<'a>(hops: &'a [IpAddr], destination: &IpNet) -> Option<&'a IpAddr> {
        hops.iter().find(|hop| hop.is_ipv4() == destination.addr().is_ipv4())
    }

    fn other_hops(node: &Node) -> Vec<IpAddr> {
        node.labels.get("other-hop").and_then(|ip| ip.parse().ok()).into_iter().collect()
    }

    fn may_be(node: &Node, name: &str, _: &IpAddr) -> bool {
        node.labels.get("route") == Some(name)
    }

    fn is_elsewhere((): &(), node: &Node) -> bool {
        node.provider_id.is_some()
    }

    fn no_hop(message: String, is_new: bool) -> ProviderError {
        if is_new { ProviderError::in_progress(message, TABLE_AGE) } else { ProviderError::unknown(message) }
    }

    fn is_blackhole((): &(), destination: &IpNet) -> bool {
        ["10.1.0.0/16", "fd00::/16"].iter().any(|range| range.parse::<IpNet>().unwrap().contains(destination))
    }

    fn prepare((): &(), _: &NodeName, hop: &IpAddr) -> Result<Vec<(String, String)>, ProviderError> {
        Ok(vec![(format!("allow {hop}"), "it forwards".to_owned())])
    }

    fn create((): &(), (): &(), _: &NewRoute, destination: IpNet, hop: &IpAddr, old: Option<&Entry<IpAddr>>) -> String {
        format!("{} {destination} -> {hop}", if old.is_some() { "replace" } else { "add" })
    }

    fn delete((): &(), entry: &Entry<IpAddr>) -> String {
        match &entry.target {
            Target::Hop(hop) => format!("remove {} -> {hop}", entry.destination),
            _ => format!("remove {}", entry.destination),
        }
    }
}

fn node(name: &str, addresses: &[&str]) -> NodeRef {
    let addresses = addresses.iter().map(|ip| NodeAddress::new(AddressType::InternalIp, *ip)).collect();
    Arc::new(Node { name: name.into(), addresses, ..Node::default() })
}

fn observed(nodes: &[NodeRef], routes: &[(&str, &str)], former: &BTreeMap<IpAddr, NodeName>) -> Observed<Router> {
    let entry = |(destination, hop): &(&str, &str)| Entry {
        name: (*destination).to_owned(),
        destination: (*destination).to_owned(),
        target: hop.parse().map_or(Target::Blackhole(None), Target::Hop),
    };
    Observed::new(Table { id: (), entries: routes.iter().map(entry).collect() }, nodes, former)
}

fn route(name: &str, destination: &str) -> Route {
    Route { target_node: Some(name.into()), destination_cidr: destination.into(), ..Route::default() }
}

fn text(plan: Result<Vec<Step<String>>, ProviderError>) -> Vec<String> {
    plan.unwrap().into_iter().map(|step| step.write).collect()
}

#[test]
fn the_hop_is_that_of_the_range_and_is_prepared_once() {
    let nodes = [node("a", &["10.0.0.1", "fd00::1"]), node("b", &["10.0.0.2"])];
    let observed = observed(&nodes, &[("10.1.1.0/24", "gone"), ("10.1.2.0/24", "10.9.9.9")], &BTreeMap::new());
    let wanted = [("a", "10.1.1.0/24"), ("a", "fd00:1::/80"), ("a", "10.1.2.0/24"), ("b", "fd00:2::/80")];
    let wanted = wanted.map(|(name, range)| NewRoute { name_hint: String::new(), route: route(name, range) });
    let mut plans = observed.create_all(&wanted);
    let error = plans.pop().unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::Unknown);
    assert_eq!(error.to_string(), "node b has no internal address: no route can lead there");
    let plans: Vec<_> = plans.into_iter().map(text).collect();
    assert_eq!(plans[0], ["allow 10.0.0.1", "remove 10.1.1.0/24", "add 10.1.1.0/24 -> 10.0.0.1"]);
    assert_eq!(plans[1], ["allow fd00::1", "add fd00:1::/80 -> fd00::1"]);
    assert_eq!(plans[2], ["replace 10.1.2.0/24 -> 10.0.0.1"]);
}

#[test]
fn a_node_that_is_gone_is_called_so() {
    let observed = observed(&[node("a", &["10.0.0.1"])], &[], &BTreeMap::new());
    let plan = observed.create_all(&[NewRoute { name_hint: String::new(), route: route("b", "10.1.2.0/24") }]);
    let error = plan.into_iter().next().unwrap().unwrap_err();
    assert_eq!(error.class(), ErrorClass::NotFound);
    assert_eq!(error.to_string(), "node b was deleted: it needs no route any more");
}

#[test]
fn a_hop_that_two_nodes_claim_is_that_of_neither() {
    let nodes = [node("a", &["10.0.0.1"]), node("b", &["10.0.0.1"])];
    let observed = observed(&nodes, &[("10.1.1.0/24", "10.0.0.1")], &BTreeMap::new());
    assert!(observed.routes().is_empty());
    assert_eq!(observed.delete(&route("a", "10.1.1.0/24")).unwrap_err().class(), ErrorClass::Conflict);
}

#[test]
fn a_node_that_is_gone_keeps_its_route_in_the_list_until_it_is_deleted() {
    let first = observed(&[node("a", &["10.0.0.1"])], &[("10.1.1.0/24", "10.0.0.1")], &BTreeMap::new());
    let second = observed(&[], &[("10.1.1.0/24", "10.0.0.1")], &first.former);
    assert_eq!(second.routes(), first.routes());
    assert_eq!(text(second.delete(&second.routes()[0])), ["remove 10.1.1.0/24 -> 10.0.0.1"]);
    let third = observed(&[], &[], &second.former);
    assert!(third.former.is_empty(), "a hop is forgotten with its last route");
}

#[test]
fn a_node_with_a_new_hop_has_left_the_old_one_but_a_node_without_any_has_not() {
    let routes = [("10.1.1.0/24", "10.0.0.1"), ("10.2.1.0/24", "10.0.0.1")];
    let first = observed(&[node("a", &["10.0.0.1"])], &routes, &BTreeMap::new());
    assert_eq!(listed(&first), ["10.1.1.0/24 -> a", "10.2.1.0/24 -> a"]);
    assert_eq!(listed(&observed(&[node("a", &[])], &routes, &first.former)), listed(&first));
    let moved = observed(&[node("a", &["10.0.0.2"])], &routes, &first.former);
    assert_eq!(listed(&moved), ["10.1.1.0/24 -> nowhere"]);
    let new =
        ["10.1.1.0/24", "10.2.1.0/24"].map(|range| NewRoute { name_hint: String::new(), route: route("a", range) });
    let plans: Vec<_> = moved.create_all(&new).into_iter().map(text).collect();
    assert_eq!(plans[0], ["allow 10.0.0.2", "replace 10.1.1.0/24 -> 10.0.0.2"]);
    assert_eq!(plans[1], ["replace 10.2.1.0/24 -> 10.0.0.2"]);
}

fn listed(observed: &Observed<Router>) -> Vec<String> {
    let text = |route: &Route| {
        let target = route.target_node.as_ref().map_or("nowhere", |node| node.as_str());
        format!("{} -> {target}", route.destination_cidr)
    };
    observed.routes().iter().map(text).collect()
}

#[test]
fn a_route_to_no_node_is_a_blackhole_in_the_ranges_of_the_cluster_and_foreign_elsewhere() {
    let routes = [("10.1.1.0/24", "10.9.9.9"), ("10.2.0.0/24", "10.9.9.9"), ("10.1.2.0/24", "10.0.0.1")];
    let observed = observed(&[node("a", &["10.0.0.1"])], &routes, &BTreeMap::new());
    assert_eq!(listed(&observed), ["10.1.1.0/24 -> nowhere", "10.1.2.0/24 -> a"]);
    let nowhere = |range: &str| Route { target_node: None, ..route("", range) };
    assert_eq!(text(observed.delete(&nowhere("10.1.1.0/24"))), ["remove 10.1.1.0/24 -> 10.9.9.9"]);
    assert_eq!(observed.delete(&nowhere("10.2.0.0/24")).unwrap_err().class(), ErrorClass::Conflict);
}

#[test]
fn the_route_of_a_node_without_a_hop_is_no_blackhole() {
    let waits = with_ranges(&node("a", &[]), &["10.1.1.0/24"]);
    let routes = [("10.1.1.0/24", "10.9.9.9"), ("10.1.2.0/24", "10.9.9.9")];
    let observed = observed(&[waits], &routes, &BTreeMap::new());
    assert_eq!(listed(&observed), ["10.1.2.0/24 -> nowhere"]);
    let nowhere = Route { target_node: None, ..route("", "10.1.1.0/24") };
    assert_eq!(observed.delete(&nowhere).unwrap_err().class(), ErrorClass::Conflict);
}

fn with_ranges(node: &Node, ranges: &[&str]) -> NodeRef {
    Arc::new(Node { pod_cidrs: ranges.iter().map(|range| (*range).into()).collect(), ..node.clone() })
}

#[test]
fn the_route_of_a_node_without_a_hop_of_the_family_is_no_blackhole() {
    let routes = [("10.1.1.0/24", "10.0.0.1"), ("fd00:1::/80", "fd00::1"), ("fd00:2::/80", "fd00::1")];
    let one = with_ranges(&node("a", &["10.0.0.1"]), &["10.1.1.0/24", "fd00:1::/80"]);
    let observed = observed(&[one], &routes, &BTreeMap::new());
    assert_eq!(listed(&observed), ["10.1.1.0/24 -> a", "fd00:2::/80 -> nowhere"]);
    let nowhere = Route { target_node: None, ..route("", "fd00:1::/80") };
    assert_eq!(observed.delete(&nowhere).unwrap_err().class(), ErrorClass::Conflict);
}

#[test]
fn a_node_that_loses_its_address_of_one_family_keeps_the_routes_of_both() {
    let routes = [("10.1.1.0/24", "10.0.0.1"), ("fd00:1::/80", "fd00::1")];
    let first = observed(&[node("a", &["10.0.0.1", "fd00::1"])], &routes, &BTreeMap::new());
    let second = observed(&[node("a", &["10.0.0.1"])], &routes, &first.former);
    assert_eq!(listed(&second), ["10.1.1.0/24 -> a", "fd00:1::/80 -> a"]);
}

#[test]
fn a_route_with_the_name_of_a_node_that_shows_no_hop_is_that_of_the_node() {
    let mut named = (*node("a", &["10.0.0.1"])).clone();
    named.labels = [("route", "fd00:1::/80")].into_iter().collect();
    let routes = [("fd00:1::/80", "fd00::1"), ("fd00:2::/80", "fd00::1")];
    let observed = observed(&[with_ranges(&named, &["fd00:1::/80"])], &routes[..1], &BTreeMap::new());
    assert_eq!(listed(&observed), ["fd00:1::/80 -> a"]);
    named.addresses = node("a", &["fd00::2"]).addresses.clone();
    let moved = self::observed(&[with_ranges(&named, &["fd00:1::/80"])], &routes[..1], &BTreeMap::new());
    assert_eq!(listed(&moved), ["fd00:1::/80 -> nowhere"]);
}

#[test]
fn a_route_for_a_node_elsewhere_is_left_alone_whatever_its_hop() {
    let mut far = (*node("a", &["192.168.1.7"])).clone();
    (far.pod_cidrs, far.provider_id) = (["10.1.1.0/24".into()].into(), Some("other://a".into()));
    for hop in ["10.9.9.9", "gone"] {
        let observed = observed(&[Arc::new(far.clone())], &[("10.1.1.0/24", hop)], &BTreeMap::new());
        assert!(listed(&observed).is_empty());
    }
    let observed = observed(&[Arc::new(far)], &[("10.1.1.0/24", "10.9.9.9")], &BTreeMap::new());
    let new = NewRoute { name_hint: String::new(), route: route("a", "10.1.1.0/24") };
    let error = observed.create_all(&[new]).remove(0).unwrap_err().to_string();
    assert!(error.starts_with("no route 10.1.1.0/24 to node a: the route table leads it to 10.9.9.9"), "{error}");
}

#[test]
fn each_of_two_routes_of_a_range_is_listed_and_removed_by_itself() {
    for routes in [
        [("10.1.1.0/24", "10.9.9.9"), ("10.1.1.0/24", "10.0.0.1")],
        [("10.1.1.0/24", "10.0.0.1"), ("10.1.1.0/24", "10.9.9.9")],
    ] {
        let observed = observed(&[node("a", &["10.0.0.1"])], &routes, &BTreeMap::new());
        let mut list = listed(&observed);
        list.sort();
        assert_eq!(list, ["10.1.1.0/24 -> a", "10.1.1.0/24 -> nowhere"]);
        let new = NewRoute { name_hint: String::new(), route: route("a", "10.1.1.0/24") };
        assert_eq!(text(observed.create_all(&[new]).remove(0)), ["allow 10.0.0.1"], "the right one is there");
        let stray = observed.routes().into_iter().find(|route| route.blackhole).unwrap();
        assert_eq!(text(observed.delete(&stray)), ["remove 10.1.1.0/24 -> 10.9.9.9"]);
    }
}

#[test]
fn a_route_to_another_hop_of_a_node_is_that_of_the_node_but_no_new_route_gets_it() {
    let mut odd = Node { name: "a".into(), ..Node::default() };
    odd.labels = [("other-hop", "192.0.2.1")].into_iter().collect();
    let observed = observed(&[Arc::new(odd)], &[("10.1.1.0/24", "192.0.2.1")], &BTreeMap::new());
    assert_eq!(listed(&observed), ["10.1.1.0/24 -> a"]);
    let new = NewRoute { name_hint: String::new(), route: route("a", "10.1.2.0/24") };
    let error = observed.create_all(&[new]).remove(0).unwrap_err();
    assert!(matches!(error.class(), ErrorClass::InProgress { .. }), "{error:?}");
}

fn many(observed: &Observed<Router>) -> Vec<Result<Vec<Step<String>>, ProviderError>> {
    let ranges = std::iter::once(99).chain(0..60);
    let new = |n| NewRoute { name_hint: String::new(), route: route("a", &format!("10.1.{n}.0/24")) };
    observed.create_all(&ranges.map(new).collect::<Vec<_>>())
}

#[tokio::test(start_paused = true)]
async fn a_write_without_an_answer_delays_no_other_answer() {
    let observed = observed(&[node("a", &["10.0.0.1"])], &[], &BTreeMap::new());
    let answered = Arc::new(Mutex::new(BTreeSet::new()));
    let receiver = answered.clone();
    let scope = Scope::default().with_answers(move |place, answer| {
        assert!(answer.is_ok(), "{answer:?}");
        receiver.lock().insert(place);
    });
    let routes = PlannedRoutes::new(Router, Cluster::default());
    let call = routes.apply(many(&observed), &observed, &scope);
    assert!(tokio::time::timeout(Duration::from_secs(1), call).await.is_err(), "the first one hangs");
    assert_eq!(*answered.lock(), (1..=60).collect());
}

/// A process that stops.
struct Stops;

#[async_trait]
impl Turn for Stops {
    fn may_write(&self) -> bool {
        false
    }

    async fn ended(&self) {}

    fn wait_begins(&self) {}

    fn wait_ends(&self) {}

    async fn resumed(&self) {}
}

#[tokio::test]
async fn no_route_is_written_after_a_shutdown_has_begun() {
    let observed = observed(&[node("a", &["10.0.0.1"])], &[], &BTreeMap::new());
    let routes = PlannedRoutes::new(Router, Cluster::default());
    let answers = routes.apply(many(&observed), &observed, &Scope::new(Arc::new(Stops))).await;
    assert_eq!(answers.len(), 61);
    assert!(answers.iter().all(|answer| answer.as_ref().is_err_and(ProviderError::is_in_progress)), "{answers:?}");
    assert_eq!(routes.memory.lock().last_write, None);
}
