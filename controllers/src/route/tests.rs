//! Which routes are deleted, created and kept: table tests and property tests.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::node::ConditionStatus;
use ccm_provider::{
    AddressType, EventSink, EventType, NewRoute, Node, NodeAddress, NodeName, NodeRef, ProviderError, Route, Routes,
    Schemes, Subject,
};
use ipnet::IpNet;
use proptest::prelude::*;

use super::RouteController;
use super::decide::{Changes, condition, plan};
use crate::cluster_cidrs::parse_cluster_cidrs;
use crate::test_shared;

fn schemes() -> Schemes {
    Schemes::new(["fake"])
}

fn addresses(text: &str) -> Vec<NodeAddress> {
    text.split_whitespace().map(|ip| NodeAddress::new(AddressType::InternalIp, ip)).collect()
}

/// A node with these pod ranges and addresses.
fn node(name: &str, ranges: &str, ips: &str) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        provider_id: Some(format!("fake://{name}").into()),
        pod_cidrs: ranges.split_whitespace().map(Into::into).collect(),
        addresses: addresses(ips).into(),
        ..Node::default()
    }
}

/// `10.0.1.0/24 a`; without a name it leads nowhere.
fn route(text: &str) -> Route {
    let mut words = text.split_whitespace();
    let destination_cidr = words.next().unwrap().to_owned();
    let target_node = words.next().map(NodeName::from);
    Route { name: text.into(), target_node, destination_cidr, ..Route::default() }
}

/// The same of a provider that knows the addresses behind a route.
fn route_by(text: &str, ips: &str) -> Route {
    Route { enable_node_addresses: true, target_node_addresses: addresses(ips), ..route(text) }
}

fn blackhole(text: &str) -> Route {
    Route { blackhole: true, ..route(text) }
}

fn cluster() -> Vec<IpNet> {
    parse_cluster_cidrs("10.0.0.0/16,fd00::/48").unwrap()
}

fn names(text: &str) -> BTreeSet<NodeName> {
    text.split_whitespace().map(NodeName::from).collect()
}

fn planned(routes: &[Route], nodes: &[Node], departed: &str) -> Changes {
    let nodes: Vec<NodeRef> = nodes.iter().cloned().map(NodeRef::new).collect();
    plan(routes, &nodes, &cluster(), &names(departed), &schemes())
}

fn text(route: &Route) -> String {
    format!("{} {}", route.destination_cidr, route.target_node.clone().unwrap_or_default()).trim().to_owned()
}

/// `-10.0.1.0/24 a` for a deletion, `+` for a creation, `?` for a node that may be gone.
fn print(changes: &Changes) -> Vec<String> {
    let delete = changes.delete.iter().map(|route| format!("-{}", text(route)));
    let create = changes.create.iter().map(|new| format!("+{}", text(&new.route)));
    delete.chain(create).chain(changes.unconfirmed.iter().map(|name| format!("?{name}"))).collect()
}

fn check(routes: &[Route], nodes: &[Node], wanted: &[&str]) {
    assert_eq!(print(&planned(routes, nodes, "")), wanted, "{routes:?}");
}

#[test]
fn cluster_ranges_are_one_or_one_of_each_family() {
    let good = |given: &str, wanted: &[&str]| {
        let parsed = parse_cluster_cidrs(given).unwrap();
        assert_eq!(parsed.iter().map(ToString::to_string).collect::<Vec<_>>(), wanted, "{given:?}");
    };
    good("10.0.0.0/16", &["10.0.0.0/16"]);
    good("  10.0.0.0/16 ", &["10.0.0.0/16"]);
    good("10.0.0.0/16,fd00::/48", &["10.0.0.0/16", "fd00::/48"]);
    good("fd00::/48,10.0.0.0/16", &["fd00::/48", "10.0.0.0/16"]);
    good("010.000.0.0/016", &["10.0.0.0/16"]);
    good("10.0.3.7/16", &["10.0.0.0/16"]);

    let bad = |given: &str, wanted: &str| assert_eq!(parse_cluster_cidrs(given).unwrap_err(), wanted, "{given:?}");
    let empty = "--cluster-cidr is empty: routes need the range of the pods, or --configure-cloud-routes=false";
    bad("", empty);
    bad("  ", empty);
    bad("10.0.0.0", r#"--cluster-cidr "10.0.0.0": invalid CIDR address: "10.0.0.0""#);
    bad("10.0.0.0/33", r#"--cluster-cidr "10.0.0.0/33": invalid CIDR address: "10.0.0.0/33""#);
    // Only the ends are trimmed.
    bad("10.0.0.0/16, fd00::/48", r#"--cluster-cidr "10.0.0.0/16, fd00::/48": invalid CIDR address: " fd00::/48""#);
    bad("10.0.0.0/16,", r#"--cluster-cidr "10.0.0.0/16,": invalid CIDR address: """#);
    let one_family = |count: usize| {
        format!(
            "len of ClusterCIDRs=={count} and they are not configured as dual stack (at least one from each IPFamily"
        )
    };
    bad("10.0.0.0/16,10.1.0.0/16", &one_family(2));
    bad("fd00::/48,fd01::/48,fd02::/48", &one_family(3));
    bad("10.0.0.0/16,fd00::/48,fd01::/48", "length of clusterCIDRs is:3 more than max allowed of 2");
}

#[test]
fn a_node_gets_a_route_per_range_with_its_uid_and_addresses() {
    let changes = planned(&[], &[node("a", "10.0.1.0/24 fd00:0:0:1::/64", "10.9.0.1"), node("b", "", "10.9.0.2")], "");
    assert_eq!(print(&changes), ["+10.0.1.0/24 a", "+fd00:0:0:1::/64 a"]);
    for new in &changes.create {
        assert_eq!((&*new.name_hint, &*new.route.name), ("uid-a", ""));
        assert_eq!(new.route.target_node_addresses, addresses("10.9.0.1"));
        assert!(!new.route.blackhole && !new.route.enable_node_addresses);
    }
    // The other node has neither a range nor a route: its condition is left alone.
    assert_eq!(changes.nodes, BTreeMap::from([("a".into(), 2)]));
    assert!(!changes.delete_first);
}

#[test]
fn a_route_that_is_there_stays_however_it_is_spelled() {
    check(&[route("10.0.1.0/24 a")], &[node("a", "10.0.1.0/24", "")], &[]);
    check(&[route("FD00:0:0:1:0::/64 a")], &[node("a", "fd00:0:0:1::/64", "")], &[]);
    check(&[route("10.0.01.0/24 a")], &[node("a", "10.0.1.0/24", "")], &[]);
    // One of two is there; the order of the ranges does not matter.
    check(&[route("10.0.1.0/24 a")], &[node("a", "fd00:0:0:1::/64 10.0.1.0/24", "")], &["+fd00:0:0:1::/64 a"]);
    // Twice the same range is one route.
    check(&[], &[node("a", "10.0.1.0/24 10.0.1.0/24", "")], &["+10.0.1.0/24 a"]);
}

#[test]
fn a_route_outside_the_cluster_ranges_is_never_deleted() {
    let nodes = [node("a", "10.0.1.0/24", "")];
    let own = route("10.0.1.0/24 a");
    for outside in ["192.168.0.0/24 a", "192.168.0.0/24", "0.0.0.0/0", "0.0.0.0/0 a", "::/0 a", "fd01::/64 x"] {
        check(&[own.clone(), route(outside), blackhole(outside)], &nodes, &[]);
    }
    for unreadable in ["garbage", "10.0.2.0 a", "10.0.2.0/33 a", "pl-12345"] {
        check(&[own.clone(), route(unreadable), blackhole(unreadable)], &nodes, &[]);
    }
}

#[test]
fn a_route_is_ours_when_it_begins_or_ends_within_the_cluster_ranges() {
    let nodes = [node("a", "", "")];
    check(&[route("10.0.0.0/8 a")], &nodes, &["-10.0.0.0/8 a"]);
    check(&[route("9.0.0.0/7 a")], &nodes, &[]);
    check(&[route("fd00:0:0:ffff::/64 a")], &nodes, &["-fd00:0:0:ffff::/64 a"]);
    check(&[route("10.0.7.0/24")], &nodes, &["-10.0.7.0/24"]);
    let upper = parse_cluster_cidrs("10.1.0.0/16").unwrap();
    let ends_within = [route("10.0.0.0/15 a"), route("10.0.0.0/14 a")];
    let changes = plan(&ends_within, &[NodeRef::new(node("a", "", ""))], &upper, &names(""), &schemes());
    assert_eq!(print(&changes), ["-10.0.0.0/15 a"]);
}

#[test]
fn a_blackhole_within_the_cluster_ranges_goes_and_is_replaced_where_a_node_needs_it() {
    let nodes = [node("a", "10.0.1.0/24", "")];
    check(&[blackhole("10.0.2.0/24"), route("10.0.1.0/24 a")], &nodes, &["-10.0.2.0/24"]);
    let changes = planned(&[blackhole("10.0.1.0/24 a")], &nodes, "");
    assert_eq!(print(&changes), ["-10.0.1.0/24 a", "+10.0.1.0/24 a"]);
    assert!(changes.delete_first);
    // To an unknown node too: it leads nowhere in any case.
    check(&[blackhole("10.0.2.0/24 x")], &[], &["-10.0.2.0/24 x"]);
}

#[test]
fn a_range_that_changes_hands_is_freed_before_it_is_given_again() {
    let nodes = [node("a", "10.0.2.0/24", ""), node("b", "10.0.1.0/24", "")];
    let changes = planned(&[route("10.0.1.0/24 a"), route("10.0.3.0/24 a")], &nodes, "");
    assert_eq!(print(&changes), ["-10.0.1.0/24 a", "-10.0.3.0/24 a", "+10.0.2.0/24 a", "+10.0.1.0/24 b"]);
    assert!(changes.delete_first);
    let apart = planned(&[route("10.0.3.0/24 a")], &nodes, "");
    assert_eq!(print(&apart), ["-10.0.3.0/24 a", "+10.0.2.0/24 a", "+10.0.1.0/24 b"]);
    assert!(!apart.delete_first);
}

#[test]
fn changed_addresses_count_only_where_the_provider_knows_them() {
    let nodes = [node("a", "10.0.1.0/24", "10.9.0.1 10.9.0.2")];
    check(&[route("10.0.1.0/24 a")], &nodes, &[]);
    let foreign_truth = Route { target_node_addresses: addresses("1.1.1.1"), ..route("10.0.1.0/24 a") };
    check(&[foreign_truth], &nodes, &[]);
    check(&[route_by("10.0.1.0/24 a", "10.9.0.2 10.9.0.1")], &nodes, &[]);
    for stale in ["", "10.9.0.1", "10.9.0.1 10.9.0.2 10.9.0.3"] {
        let changes = planned(&[route_by("10.0.1.0/24 a", stale)], &nodes, "");
        assert_eq!(print(&changes), ["-10.0.1.0/24 a", "+10.0.1.0/24 a"], "{stale:?}");
        assert!(changes.delete_first);
        assert_eq!(changes.create[0].route.target_node_addresses, addresses("10.9.0.1 10.9.0.2"));
    }
}

#[test]
fn of_two_routes_the_one_with_the_right_addresses_stays() {
    let nodes = [node("a", "10.0.1.0/24", "10.9.0.1")];
    let (right, stale) = (route_by("10.0.1.0/24 a", "10.9.0.1"), route_by("10.0.1.0/24 a", "10.9.0.9"));
    for routes in [[right.clone(), stale.clone()], [stale.clone(), right]] {
        let changes = planned(&routes, &nodes, "");
        assert_eq!((&changes.delete[..], &changes.create[..]), (std::slice::from_ref(&stale), &[][..]));
    }
}

#[test]
fn a_route_to_a_missing_node_goes_only_once_the_node_is_known_to_be_gone() {
    let routes = [route("10.0.1.0/24 x"), route("10.0.2.0/24 y")];
    assert_eq!(print(&planned(&routes, &[], "")), ["?x", "?y"]);
    assert_eq!(print(&planned(&routes, &[], "x")), ["-10.0.1.0/24 x", "?y"]);
    // A node that is back is not missing, whatever was noted.
    check(&routes[..1], &[node("x", "10.0.1.0/24", "")], &[]);
    assert_eq!(print(&planned(&routes[..1], &[node("x", "10.0.1.0/24", "")], "x")), [""; 0]);
}

#[test]
fn the_condition_is_written_when_status_or_reason_differ() {
    use ConditionStatus::{False, True, Unknown};
    let check = |present: Option<(ConditionStatus, &str)>, available: bool, is_written: bool| {
        let network_unavailable = present.map(|(status, reason)| (status, reason.into()));
        let node = Node { network_unavailable, ..Node::default() };
        assert_eq!(condition(&node, available), is_written.then_some(available), "{present:?} {available}");
    };
    for available in [true, false] {
        check(None, available, true);
        check(Some((Unknown, "RouteCreated")), available, true);
        check(Some((False, "CalicoIsUp")), available, true);
        check(Some((True, "RouteCreated")), available, true);
        check(Some((False, "NoRouteCreated")), available, true);
        check(Some((False, "RouteCreated")), available, !available);
        check(Some((True, "NoRouteCreated")), available, available);
    }
}

#[test]
fn a_plan_reads_as_the_writes_it_makes() {
    let nodes = [node("a", "10.0.1.0/24", "10.9.0.1 fd09::1")];
    let changes = planned(&[route("10.0.2.0/24 a"), blackhole("10.0.3.0/24")], &nodes, "");
    let wanted = "\
routes:
  1. delete Route 10.0.2.0/24 to a (because no node has this range, or it leads elsewhere)
  2. delete Route 10.0.3.0/24 to nowhere (because no node has this range, or it leads elsewhere)
  3. create Route 10.0.1.0/24 to a: addresses = 10.9.0.1 fd09::1 (because the node has this pod range)";
    assert_eq!(changes.plan(&[]).to_string(), wanted);
    assert_eq!(Changes::default().plan(&[]).to_string(), "routes: nothing to do");
}

/// Names of which only the first five are ever nodes.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "x", "y"];
/// Ranges, some the same in another spelling, some outside the cluster.
const RANGES: [&str; 7] = [
    "10.0.1.0/24",
    "10.0.2.0/24",
    "10.0.02.0/24",
    "fd00:0:0:1::/64",
    "FD00:0:0:1:0::/64",
    "192.168.1.0/24",
    "10.255.0.0/8",
];
const IPS: [&str; 3] = ["", "10.9.0.1", "10.9.0.1 10.9.0.2"];

/// What the controller sees at one time.
#[derive(Debug, Clone)]
struct World {
    routes: Vec<Route>,
    nodes: Vec<NodeRef>,
    departed: BTreeSet<NodeName>,
    // What this provider says of addresses, in all routes alike.
    knows_addresses: bool,
}

impl World {
    fn plan(&self) -> Changes {
        plan(&self.routes, &self.nodes, &cluster(), &self.departed, &schemes())
    }

    fn apply(&mut self, write: &Write) {
        match write {
            Write::Delete(route) => {
                let at = self.routes.iter().position(|present| present == route).expect("deletes what is listed");
                self.routes.remove(at);
            }
            Write::Create(route) => {
                let target_node_addresses =
                    if self.knows_addresses { route.target_node_addresses.clone() } else { Vec::new() };
                let enable_node_addresses = self.knows_addresses;
                self.routes.push(Route { enable_node_addresses, target_node_addresses, ..route.clone() });
            }
        }
    }

    fn settled(mut self) -> Self {
        for write in writes(&self.plan()) {
            self.apply(&write);
        }
        self
    }

    /// In a cloud that has one route per destination, and deletes by it; a creation that it refuses is left out.
    fn apply_by_destination(&mut self, done: &[Write]) {
        for write in done {
            match write {
                Write::Delete(gone) => self.routes.retain(|route| route.destination_cidr != gone.destination_cidr),
                Write::Create(new) if self.routes.iter().any(|r| r.destination_cidr == new.destination_cidr) => {}
                Write::Create(_) => self.apply(write),
            }
        }
    }

    /// The table in an order of its own.
    fn table(&self) -> Vec<String> {
        let mut lines: Vec<String> = self.routes.iter().map(|route| format!("{route:?}")).collect();
        lines.sort();
        lines
    }
}

#[derive(Debug, Clone)]
enum Write {
    Delete(Route),
    Create(Route),
}

fn writes(changes: &Changes) -> Vec<Write> {
    let delete = changes.delete.iter().cloned().map(Write::Delete);
    delete.chain(changes.create.iter().map(|new| Write::Create(new.route.clone()))).collect()
}

fn some_node(name: &'static str) -> impl Strategy<Value = NodeRef> {
    let ranges = proptest::collection::vec(proptest::sample::select(&RANGES[..]), 0..3);
    (ranges, proptest::sample::select(&IPS[..]), 0..6u8).prop_map(move |(ranges, ips, scheme)| {
        let mut node = node(name, &ranges.join(" "), ips);
        match scheme {
            0 => node.provider_id = Some("other://1".into()),
            1 => node.provider_id = None,
            _ => {}
        }
        NodeRef::new(node)
    })
}

fn some_route(knows_addresses: bool) -> impl Strategy<Value = Route> {
    let to = proptest::option::weighted(0.9, proptest::sample::select(&NAMES[..]));
    let destination = prop_oneof![6 => proptest::sample::select(&RANGES[..]), 1 => Just("garbage")];
    let number = 0..1_000_000u32;
    (to, destination, proptest::sample::select(&IPS[..]), proptest::bool::weighted(0.2), number).prop_map(
        move |(to, destination, ips, blackhole, number)| Route {
            name: number.to_string(),
            target_node: to.map(NodeName::from),
            enable_node_addresses: knows_addresses,
            target_node_addresses: if knows_addresses { addresses(ips) } else { Vec::new() },
            destination_cidr: destination.into(),
            blackhole,
        },
    )
}

fn some_world() -> impl Strategy<Value = World> {
    any::<bool>().prop_flat_map(|knows_addresses| {
        let routes = proptest::collection::vec(some_route(knows_addresses), 0..10);
        let five = (some_node("a"), some_node("b"), some_node("c"), some_node("d"), some_node("e"));
        let nodes = five.prop_flat_map(|(a, b, c, d, e)| proptest::sample::subsequence(vec![a, b, c, d, e], 0..=5));
        let departed = proptest::sample::subsequence(NAMES.to_vec(), 0..=7);
        (routes, nodes, departed).prop_map(move |(routes, nodes, departed)| World {
            routes,
            nodes,
            departed: departed.into_iter().map(NodeName::from).collect(),
            knows_addresses,
        })
    })
}

/// A world and its parts in another order.
fn shuffled() -> impl Strategy<Value = (World, World)> {
    some_world().prop_flat_map(|world| {
        let (routes, nodes) = (Just(world.routes.clone()).prop_shuffle(), Just(world.nodes.clone()).prop_shuffle());
        (Just(world.clone()), routes, nodes)
            .prop_map(|(world, routes, nodes)| (world.clone(), World { routes, nodes, ..world }))
    })
}

/// A world and its writes in an order that may happen, cut off somewhere.
fn interrupted() -> impl Strategy<Value = (World, Vec<Write>)> {
    some_world().prop_flat_map(|world| {
        let changes = world.plan();
        let all = writes(&changes);
        let order = match changes.delete_first {
            true => Just(all.clone()).boxed(),
            false => Just(all.clone()).prop_shuffle().boxed(),
        };
        (Just(world), order, 0..=all.len()).prop_map(|(world, order, done)| (world, order[..done].to_vec()))
    })
}

/// At most one route and one node per range; where a crash cuts the writes off.
fn one_route_each() -> impl Strategy<Value = (World, usize)> {
    let ranges = ["10.0.1.0/24", "10.0.2.0/24", "10.0.3.0/24", "fd00:0:0:1::/64"];
    let cloud = &["10.0.1.0/24", "10.0.2.0/24", "fd00:0:0:1::/64", "192.168.1.0/24"][..];
    let target = (proptest::option::of(proptest::sample::select(&["a", "b", "c", "x"][..])), any::<bool>());
    let routes = proptest::collection::btree_map(proptest::sample::select(cloud), target, 0..5);
    let owners = proptest::collection::vec(proptest::option::of(0..3usize), ranges.len());
    (routes, owners, 0..10usize).prop_map(move |(routes, owners, done)| {
        let routes = routes.into_iter().map(|(cidr, (target, blackhole))| Route {
            blackhole,
            ..route(&format!("{cidr} {}", target.unwrap_or_default()))
        });
        let nodes = ["a", "b", "c"].into_iter().enumerate().map(|(at, name)| {
            let own = owners.iter().zip(ranges).filter(|(owner, _)| **owner == Some(at)).map(|(_, range)| range);
            NodeRef::new(node(name, &own.collect::<Vec<_>>().join(" "), ""))
        });
        let world =
            World { routes: routes.collect(), nodes: nodes.collect(), departed: names("x"), knows_addresses: false };
        (world, done)
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn a_second_plan_is_empty(world in some_world()) {
        let again = world.settled().plan();
        prop_assert!(again.delete.is_empty() && again.create.is_empty(), "{:?}", print(&again));
        prop_assert!(again.plan(&[]).is_empty());
    }

    #[test]
    fn order_does_not_matter((one, other) in shuffled()) {
        let sorted = |world: &World| {
            let changes = world.plan();
            let mut lines: Vec<String> = changes.delete.iter().map(|route| format!("-{route:?}")).collect();
            lines.extend(changes.create.iter().map(|new| format!("+{new:?}")));
            lines.extend(changes.unconfirmed.iter().map(|name| format!("?{name}")));
            lines.sort();
            (lines, changes.nodes, changes.delete_first)
        };
        prop_assert_eq!(sorted(&one), sorted(&other));
    }

    #[test]
    fn an_interrupted_plan_is_completed_by_the_next((world, done) in interrupted()) {
        let wanted = world.clone().settled().table();
        let mut later = world;
        done.iter().for_each(|write| later.apply(write));
        prop_assert_eq!(later.settled().table(), wanted);
    }

    #[test]
    fn what_is_not_ours_to_delete_is_kept(world in some_world()) {
        let changes = world.plan();
        for route in &changes.delete {
            let destination: Option<IpNet> = ccm_provider::address::parse_cidr(&route.destination_cidr);
            let destination = destination.expect("a destination that can be read");
            let inside = |ip| cluster().iter().any(|range| range.contains(&ip));
            prop_assert!(inside(destination.network()) || inside(destination.broadcast()), "outside: {route:?}");
            if route.blackhole {
                continue;
            }
            let Some(name) = &route.target_node else { continue };
            match world.nodes.iter().find(|node| node.name == *name) {
                Some(node) => prop_assert_ne!(node.provider_scheme(), Some("other"), "of another cloud: {:?}", route),
                None => prop_assert!(world.departed.contains(name), "may be back: {route:?}"),
            }
        }
        for new in &changes.create {
            let node = world.nodes.iter().find(|node| Some(&node.name) == new.route.target_node.as_ref());
            let node = node.expect("a node that is there");
            prop_assert_ne!(node.provider_scheme(), Some("other"));
        }
    }

    #[test]
    fn every_range_of_our_nodes_has_a_working_route_in_the_end(world in some_world()) {
        let settled = world.settled();
        for node in settled.nodes.iter().filter(|node| node.provider_scheme() != Some("other")) {
            for range in &node.pod_cidrs {
                let range = ccm_provider::address::parse_cidr(range);
                let works = |route: &Route| {
                    route.target_node.as_ref() == Some(&node.name)
                        && ccm_provider::address::parse_cidr(&route.destination_cidr) == range
                        && !route.blackhole
                };
                prop_assert!(settled.routes.iter().any(works), "{}: {range:?}", node.name);
            }
        }
    }

    #[test]
    fn a_destination_is_never_freed_and_given_at_once(world in some_world()) {
        let changes = world.plan();
        let freed: BTreeSet<_> =
            changes.delete.iter().map(|route| ccm_provider::address::parse_cidr(&route.destination_cidr)).collect();
        let mut given = changes.create.iter().map(|new| ccm_provider::address::parse_cidr(&new.route.destination_cidr));
        prop_assert!(changes.delete_first || !given.any(|cidr| freed.contains(&cidr)));
    }

    /// Most clouds have one route per destination and refuse a second one.
    #[test]
    fn a_cloud_with_one_route_per_destination_converges_from_any_crash((world, done) in one_route_each()) {
        let outside: Vec<Route> = world.routes.iter().filter(|r| r.destination_cidr.starts_with("192")).cloned().collect();
        let mut now = world.clone();
        let first = writes(&world.plan());
        now.apply_by_destination(&first[..done.min(first.len())]);
        now.apply_by_destination(&writes(&now.plan()));
        let last = now.plan();
        prop_assert_eq!(print(&last), vec![""; 0], "{:?}", now.table());
        for node in &now.nodes {
            for range in &node.pod_cidrs {
                let of = |route: &&Route| *route.destination_cidr == **range;
                let right: Vec<_> = now.routes.iter().filter(of).map(|route| route.target_node.clone()).collect();
                prop_assert_eq!(right, vec![Some(node.name.clone())]);
            }
        }
        prop_assert!(outside.iter().all(|route| now.routes.contains(route)));
    }
}

struct Hanging;

#[async_trait::async_trait]
impl Routes for Hanging {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(vec![route("10.0.9.0/24 gone")])
    }
    async fn create(&self, _cluster: &str, _routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        std::future::pending().await
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        std::future::pending().await
    }
}

#[tokio::test(start_paused = true)]
async fn a_cloud_that_hangs_over_routes_ends_the_reconcile_after_the_deadline() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("a", "10.0.1.0/24", "10.9.0.1"));
    let events = Arc::new(test_shared::NoEvents);
    let controller = RouteController::new(shared, Arc::new(Hanging), schemes(), events, cluster());
    let began = tokio::time::Instant::now();
    let error = controller.reconcile().await.unwrap_err();
    assert!(error.contains("nodes lack routes"), "{error}");
    assert_eq!(began.elapsed(), WRITE_DEADLINE);
}

/// Makes no route: the first node is not ready for one, the second never will be.
struct Unready;

#[async_trait::async_trait]
impl Routes for Unready {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(Vec::new())
    }
    async fn create(&self, _cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        let answer = |new: &NewRoute| match new.route.target_node.as_deref() {
            Some("new") => Err(ProviderError::in_progress("node new has no address", Duration::from_secs(10))),
            _ => Err(ProviderError::unknown("no")),
        };
        routes.iter().map(answer).collect()
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        Vec::new()
    }
}

#[derive(Default)]
struct Events(Mutex<Vec<String>>);

impl EventSink for Events {
    fn event(&self, _: &Subject, _: EventType, reason: &str, message: &str) {
        self.0.lock().unwrap().push(format!("{reason}: {message}"));
    }
}

/// A cloud from which the node is gone when its route is made.
struct Leaving(crate::Shared);

#[async_trait::async_trait]
impl Routes for Leaving {
    async fn list(&self, _cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(Vec::new())
    }
    async fn create(&self, _cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        self.0.nodes.remove(&"a".into(), "");
        vec![Err(ProviderError::unknown("node a has no provider ID")); routes.len()]
    }
    async fn delete(&self, _cluster: &str, _routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        Vec::new()
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_deleted_while_its_route_is_made_makes_no_event() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("a", "10.0.1.0/24", "10.9.0.1"));
    let events = Arc::new(Events::default());
    let cloud = Arc::new(Leaving(shared.clone()));
    let controller = RouteController::new(shared, cloud, schemes(), events.clone(), cluster());
    controller.reconcile().await.unwrap();
    assert!(events.0.lock().unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_route_that_waits_for_its_node_makes_no_event_and_the_node_still_lacks_it() {
    let shared = test_shared::shared();
    shared.nodes.apply(node("new", "10.0.1.0/24", ""));
    shared.nodes.apply(node("odd", "10.0.2.0/24", "10.9.0.1"));
    let events = Arc::new(Events::default());
    let controller = RouteController::new(shared, Arc::new(Unready), schemes(), events.clone(), cluster());
    let error = controller.reconcile().await.unwrap_err();
    assert!(error.starts_with("2 nodes lack routes"), "{error}");
    let events = events.0.lock().unwrap();
    let [event] = &**events else { panic!("{events:?}") };
    assert!(event.starts_with("FailedToCreateRoute: Could not create route uid-odd "), "{event}");
}
