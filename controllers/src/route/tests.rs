//! Which routes come, go and stay: as tables, and for all inputs.

use std::collections::BTreeSet;

use ccm_provider::node::ConditionStatus;
use ccm_provider::{AddressType, Node, NodeAddress, NodeName, NodeRef, Route};
use ipnet::IpNet;
use proptest::prelude::*;

use super::decide::{Changes, condition, parse_cluster_cidrs, plan};

fn node(name: &str, cidrs: &[&str]) -> Node {
    Node {
        name: name.into(),
        uid: format!("uid-{name}").into(),
        provider_id: Some(format!("fake://{name}").into()),
        pod_cidrs: cidrs.iter().map(|cidr| (*cidr).into()).collect(),
        ..Node::default()
    }
}

/// `cidr>node`; `cidr>` leads nowhere, a `!` in front makes a blackhole.
fn route(text: &str) -> Route {
    let (cidr, node) = text.trim_start_matches('!').split_once('>').unwrap();
    Route {
        name: text.to_owned(),
        target_node: Some(node).filter(|name| !name.is_empty()).map(NodeName::from),
        destination_cidr: cidr.to_owned(),
        blackhole: text.starts_with('!'),
        ..Route::default()
    }
}

fn text(route: &Route) -> String {
    format!("{}>{}", route.destination_cidr, route.target_node.as_deref().unwrap_or_default())
}

fn cluster() -> Vec<IpNet> {
    parse_cluster_cidrs("10.8.0.0/16,fd00:8::/48").unwrap()
}

fn decide(routes: &[Route], nodes: &[Node], departed: &[&str]) -> Changes {
    let nodes: Vec<NodeRef> = nodes.iter().cloned().map(NodeRef::new).collect();
    let departed: BTreeSet<NodeName> = departed.iter().map(|name| NodeName::from(*name)).collect();
    plan(routes, &nodes, &cluster(), &departed, "fake")
}

#[track_caller]
fn check(routes: &[&str], nodes: &[Node], departed: &[&str], delete: &[&str], create: &[&str]) -> Changes {
    let routes: Vec<Route> = routes.iter().map(|text| route(text)).collect();
    let changes = decide(&routes, nodes, departed);
    assert_eq!(changes.delete.iter().map(|route| &route.name).collect::<Vec<_>>(), delete, "delete");
    assert_eq!(changes.create.iter().map(|new| text(&new.route)).collect::<Vec<_>>(), create, "create");
    changes
}

#[test]
fn each_range_of_a_node_gets_one_route() {
    let nodes = [node("a", &["10.8.1.0/24", "fd00:8:0:1::/64", "10.8.1.0/24"]), node("b", &[])];
    let changes = check(&[], &nodes, &[], &[], &["10.8.1.0/24>a", "fd00:8:0:1::/64>a"]);
    assert_eq!(changes.nodes.into_iter().collect::<Vec<_>>(), [("a".into(), 2)]);
    assert_eq!(changes.create[0].name_hint, "uid-a");
    check(&["10.8.1.0/24>a", "fd00:8:0:1::/64>a"], &nodes, &[], &[], &[]);
}

#[test]
fn destinations_are_compared_as_networks() {
    let nodes = [node("a", &["fd00:8:0:1::/64"])];
    check(&["FD00:0008:0:1::/64>a"], &nodes, &[], &[], &[]);
}

#[test]
fn ranges_in_another_order_keep_their_routes() {
    check(&["10.8.1.0/24>a", "10.8.2.0/24>a"], &[node("a", &["10.8.2.0/24", "10.8.1.0/24"])], &[], &[], &[]);
}

#[test]
fn outside_the_pod_ranges_nothing_is_deleted_not_even_a_blackhole() {
    check(&["172.16.0.0/24>gone", "!172.16.1.0/24>", "172.16.2.0/24>", "nonsense>gone"], &[], &["gone"], &[], &[]);
}

#[test]
fn within_the_pod_ranges_what_leads_nowhere_is_deleted() {
    check(
        &["!10.8.1.0/24>", "10.8.2.0/24>", "fd00:8:0:9::/64>"],
        &[],
        &[],
        &["!10.8.1.0/24>", "10.8.2.0/24>", "fd00:8:0:9::/64>"],
        &[],
    );
}

#[test]
fn a_route_that_only_begins_or_ends_within_the_pod_ranges_is_ours() {
    // All of 10.0.0.0/8 neither begins nor ends there.
    check(&["10.0.0.0/8>"], &[], &[], &[], &[]);
    check(&["10.8.0.0/15>"], &[], &[], &["10.8.0.0/15>"], &[]);
}

#[test]
fn a_blackhole_of_a_living_node_is_replaced_and_not_kept() {
    let changes =
        check(&["!10.8.1.0/24>a"], &[node("a", &["10.8.1.0/24"])], &[], &["!10.8.1.0/24>a"], &["10.8.1.0/24>a"]);
    assert!(changes.delete_first, "a cloud has one route per destination");
}

#[test]
fn a_missing_node_keeps_its_routes_until_it_is_known_to_be_gone() {
    let changes = check(&["10.8.1.0/24>a"], &[], &[], &[], &[]);
    assert_eq!(changes.unconfirmed, [NodeName::from("a")]);
    let changes = check(&["10.8.1.0/24>a"], &[], &["a"], &["10.8.1.0/24>a"], &[]);
    assert!(changes.unconfirmed.is_empty());
}

#[test]
fn a_range_that_moves_is_freed_before_it_is_used() {
    let changes = check(
        &["10.8.1.0/24>old"],
        &[node("new", &["10.8.1.0/24"])],
        &["old"],
        &["10.8.1.0/24>old"],
        &["10.8.1.0/24>new"],
    );
    assert!(changes.delete_first);
    let changes = check(
        &["10.8.1.0/24>old"],
        &[node("new", &["10.8.2.0/24"])],
        &["old"],
        &["10.8.1.0/24>old"],
        &["10.8.2.0/24>new"],
    );
    assert!(!changes.delete_first, "what does not collide need not wait");
}

#[test]
fn a_node_without_range_is_told_only_where_a_route_was_left_over() {
    let changes = check(&["10.8.1.0/24>a"], &[node("a", &[]), node("b", &[])], &[], &["10.8.1.0/24>a"], &[]);
    assert_eq!(changes.nodes.into_iter().collect::<Vec<_>>(), [("a".into(), 0)]);
}

#[test]
fn nodes_of_another_cloud_are_neither_given_nor_deprived_of_routes() {
    let other = Node { provider_id: Some("other://x".into()), ..node("x", &["10.8.1.0/24"]) };
    let changes = check(&["10.8.2.0/24>x"], &[other], &[], &[], &[]);
    assert!(changes.nodes.is_empty());
}

#[test]
fn addresses_count_only_where_the_cloud_tells_them() {
    let address = |ip: &str| NodeAddress::new(AddressType::InternalIp, ip);
    let a = Node { addresses: [address("192.0.2.1"), address("192.0.2.2")].into(), ..node("a", &["10.8.1.0/24"]) };
    let listed = |told: bool, ips: &[&str]| Route {
        enable_node_addresses: told,
        target_node_addresses: ips.iter().map(|ip| address(ip)).collect(),
        ..route("10.8.1.0/24>a")
    };
    for (route, replaced) in [
        (listed(false, &[]), false),
        (listed(true, &["192.0.2.2", "192.0.2.1"]), false),
        (listed(true, &["192.0.2.1"]), true),
        (listed(true, &["192.0.2.1", "192.0.2.3"]), true),
    ] {
        let changes = decide(std::slice::from_ref(&route), std::slice::from_ref(&a), &[]);
        assert_eq!(
            (changes.delete.len(), changes.create.len()),
            (usize::from(replaced), usize::from(replaced)),
            "{route:?}"
        );
        assert!(!replaced || changes.delete_first);
    }
}

#[test]
fn the_condition_is_written_when_status_or_reason_differ() {
    let with = |present: Option<(ConditionStatus, &str)>| Node {
        network_unavailable: present.map(|(status, reason)| (status, reason.into())),
        ..node("a", &[])
    };
    let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
    for (present, available, wanted) in [
        (None, true, Some(true)),
        (None, false, Some(false)),
        (Some((no, "RouteCreated")), true, None),
        (Some((no, "CalicoIsUp")), true, Some(true)),
        (Some((yes, "NoRouteCreated")), false, None),
        (Some((yes, "NoRouteCreated")), true, Some(true)),
        (Some((no, "RouteCreated")), false, Some(false)),
    ] {
        assert_eq!(condition(&with(present), available), wanted, "{present:?} {available}");
    }
}

#[test]
fn cluster_ranges_are_one_or_one_of_each_family() {
    for good in ["10.8.0.0/16", " 10.8.0.0/16\n", "010.8.0.0/16", "10.8.0.0/16,fd00::/48", "fd00::/48,10.8.0.0/16"] {
        assert!(parse_cluster_cidrs(good).is_ok(), "{good}");
    }
    for (bad, part) in [
        ("", "--cluster-cidr is empty"),
        ("10.8.0.0", "invalid CIDR address"),
        ("10.8.0.0/16, fd00::/48", "invalid CIDR address"),
        (
            "10.8.0.0/16,10.9.0.0/16",
            "len of ClusterCIDRs==2 and they are not configured as dual stack (at least one from each IPFamily",
        ),
        ("10.8.0.0/16,fd00::/48,10.9.0.0/16", "length of clusterCIDRs is:3 more than max allowed of 2"),
    ] {
        let error = parse_cluster_cidrs(bad).unwrap_err();
        assert!(error.contains(part), "{bad:?}: {error}");
    }
}

/// Carries out the first `steps` writes in a cloud that has one route per destination; a refused one is left out.
fn apply(mut routes: Vec<Route>, changes: &Changes, steps: usize) -> Vec<Route> {
    for step in 0..steps {
        if let Some(gone) = changes.delete.get(step) {
            routes.retain(|route| route != gone);
        } else if let Some(new) = changes.create.get(step - changes.delete.len()) {
            let taken = routes.iter().any(|route| route.destination_cidr == new.route.destination_cidr);
            if !taken {
                routes.push(new.route.clone());
            }
        }
    }
    routes
}

const NAMES: [&str; 4] = ["a", "b", "c", "gone"];
const CIDRS: [&str; 5] = ["10.8.1.0/24", "10.8.2.0/24", "10.8.3.0/24", "fd00:8:0:1::/64", "172.16.0.0/24"];

prop_compose! {
    fn any_routes()(
        of in prop::collection::btree_map(
            prop::sample::select(&CIDRS[..]),
            (prop::option::of(prop::sample::select(&NAMES[..])), any::<bool>()),
            0..5,
        ),
    ) -> Vec<Route> {
        let one = |(cidr, (target, blackhole)): (&str, (Option<&str>, bool))| Route {
            blackhole,
            ..route(&format!("{cidr}>{}", target.unwrap_or_default()))
        };
        of.into_iter().map(one).collect()
    }
}

prop_compose! {
    /// Three nodes; no two have the same range.
    fn any_nodes()(owners in prop::collection::vec(prop::option::of(0_usize..3), 4)) -> Vec<Node> {
        let cidrs = |i| owners.iter().zip(CIDRS).filter(move |(owner, _)| **owner == Some(i)).map(|(_, cidr)| cidr);
        (0..3).map(|i| node(NAMES[i], &cidrs(i).collect::<Vec<_>>())).collect()
    }
}

proptest! {
    /// From any prefix of the writes, the next reconciles come to the same end, and then rest.
    #[test]
    fn any_crash_point_converges(routes in any_routes(), nodes in any_nodes(), steps in 0_usize..8) {
        let foreign: Vec<Route> = routes.iter().filter(|r| r.destination_cidr == CIDRS[4]).cloned().collect();
        let first = decide(&routes, &nodes, &["gone"]);
        let mut now = apply(routes, &first, steps);
        let again = decide(&now, &nodes, &["gone"]);
        now = apply(now, &again, 100);
        let last = decide(&now, &nodes, &["gone"]);
        prop_assert_eq!((&last.delete, &last.create), (&vec![], &vec![]), "{:?}", now);
        for node in &nodes {
            for cidr in &node.pod_cidrs {
                let right = now.iter().filter(|r| *r.destination_cidr == **cidr).map(text).collect::<Vec<_>>();
                prop_assert_eq!(right, vec![format!("{cidr}>{}", node.name)]);
            }
        }
        prop_assert!(foreign.iter().all(|route| now.contains(route)), "a route outside the pod ranges went");
    }

    #[test]
    fn the_order_of_routes_and_nodes_makes_no_difference(routes in any_routes(), nodes in any_nodes()) {
        let sorted = |changes: Changes| {
            let mut delete: Vec<String> = changes.delete.iter().map(text).collect();
            let mut create: Vec<String> = changes.create.iter().map(|new| text(&new.route)).collect();
            delete.sort();
            create.sort();
            (delete, create, changes.delete_first, changes.nodes)
        };
        let turned: Vec<Route> = routes.iter().rev().cloned().collect();
        let turned_nodes: Vec<Node> = nodes.iter().rev().cloned().collect();
        prop_assert_eq!(sorted(decide(&routes, &nodes, &[])), sorted(decide(&turned, &turned_nodes, &[])));
    }

    #[test]
    fn what_is_kept_is_neither_deleted_nor_made_again(routes in any_routes(), nodes in any_nodes()) {
        let changes = decide(&routes, &nodes, &[]);
        let right = |route: &Route| {
            !route.blackhole
                && nodes.iter().any(|node| {
                    Some(&node.name) == route.target_node.as_ref()
                        && node.pod_cidrs.iter().any(|cidr| **cidr == *route.destination_cidr)
                })
        };
        prop_assert!(!changes.delete.iter().any(right));
        let present: BTreeSet<String> = routes.iter().filter(|route| right(route)).map(text).collect();
        prop_assert!(changes.create.iter().all(|new| !present.contains(&text(&new.route))));
    }
}
