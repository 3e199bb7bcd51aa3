//! Table tests of the decision.

use std::collections::BTreeMap;

use ccm_provider::node::ConditionStatus;
use ccm_provider::{Node, NodeRef, Route};

use super::{addresses, cluster, names, node, print, route, schemes};
use crate::cluster_cidrs::parse_cluster_cidrs;
use crate::route::decide::{Changes, condition, plan};

/// The same for a provider that lists the addresses of the target.
fn route_by(text: &str, ips: &str) -> Route {
    Route { enable_node_addresses: true, target_node_addresses: addresses(ips), ..route(text) }
}

fn blackhole(text: &str) -> Route {
    Route { blackhole: true, ..route(text) }
}

fn planned(routes: &[Route], nodes: &[Node], departed: &str) -> Changes {
    let nodes: Vec<NodeRef> = nodes.iter().cloned().map(NodeRef::new).collect();
    plan(routes, &nodes, &cluster(), &names(departed), &schemes())
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
    // The other node has neither a range nor a route: its condition is not changed.
    assert_eq!(changes.nodes, BTreeMap::from([("a".into(), 2)]));
    assert!(changes.moving.is_empty());
}

#[test]
fn a_route_that_is_there_stays_however_it_is_spelled() {
    check(&[route("10.0.1.0/24 a")], &[node("a", "10.0.1.0/24", "")], &[]);
    check(&[route("FD00:0:0:1:0::/64 a")], &[node("a", "fd00:0:0:1::/64", "")], &[]);
    check(&[route("10.0.01.0/24 a")], &[node("a", "10.0.1.0/24", "")], &[]);
    // One of two exists; the order of the ranges does not matter.
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
    assert_eq!(changes.moving, [("10.0.1.0/24".parse().unwrap(), 1)].into());
    // Also with an unknown target node: a blackhole never has a target.
    check(&[blackhole("10.0.2.0/24 x")], &[], &["-10.0.2.0/24 x"]);
}

#[test]
fn a_range_that_changes_hands_is_freed_before_it_is_given_again() {
    let nodes = [node("a", "10.0.2.0/24", ""), node("b", "10.0.1.0/24", "")];
    let changes = planned(&[route("10.0.1.0/24 a"), route("10.0.3.0/24 a")], &nodes, "");
    assert_eq!(print(&changes), ["-10.0.1.0/24 a", "-10.0.3.0/24 a", "+10.0.2.0/24 a", "+10.0.1.0/24 b"]);
    assert_eq!(changes.moving, [("10.0.1.0/24".parse().unwrap(), 1)].into());
    let apart = planned(&[route("10.0.3.0/24 a")], &nodes, "");
    assert_eq!(print(&apart), ["-10.0.3.0/24 a", "+10.0.2.0/24 a", "+10.0.1.0/24 b"]);
    assert!(apart.moving.is_empty());
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
        assert_eq!(changes.moving, [("10.0.1.0/24".parse().unwrap(), 1)].into());
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
    // A node that exists again is not missing, regardless of the record.
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
  1. delete Route 10.0.2.0/24 to a (because no node has this range, or its target is another node)
  2. delete Route 10.0.3.0/24 to nowhere (because no node has this range, or its target is another node)
  3. create Route 10.0.1.0/24 to a: addresses = 10.9.0.1 fd09::1 (because the node has this pod range)";
    assert_eq!(changes.plan(&[]).to_string(), wanted);
    assert_eq!(Changes::default().plan(&[]).to_string(), "routes: nothing to do");
}
