//! Properties for any routes and nodes.

use std::collections::BTreeSet;

use ccm_provider::{NodeName, NodeRef, Route};
use ipnet::IpNet;
use proptest::prelude::*;

use super::{addresses, cluster, names, node, print, route, schemes};
use crate::route::decide::{Changes, plan};

/// Names of which only the first five are ever nodes.
const NAMES: [&str; 7] = ["a", "b", "c", "d", "e", "x", "y"];
/// Ranges, some of them equal in another notation, some outside of the cluster.
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

/// The input of one reconcile.
#[derive(Debug, Clone)]
struct World {
    routes: Vec<Route>,
    nodes: Vec<NodeRef>,
    departed: BTreeSet<NodeName>,
    // The target addresses that the provider lists, the same in all routes.
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

    /// Applies writes as a cloud with one route per destination, which deletes by destination; refused creations are
    /// skipped.
    fn apply_by_destination(&mut self, done: &[Write]) {
        for write in done {
            match write {
                Write::Delete(gone) => self.routes.retain(|route| route.destination_cidr != gone.destination_cidr),
                Write::Create(new) if self.routes.iter().any(|r| r.destination_cidr == new.destination_cidr) => {}
                Write::Create(_) => self.apply(write),
            }
        }
    }

    /// The table in a random order.
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

/// The same state with its parts in another order.
fn shuffled() -> impl Strategy<Value = (World, World)> {
    some_world().prop_flat_map(|world| {
        let (routes, nodes) = (Just(world.routes.clone()).prop_shuffle(), Just(world.nodes.clone()).prop_shuffle());
        (Just(world.clone()), routes, nodes)
            .prop_map(|(world, routes, nodes)| (world.clone(), World { routes, nodes, ..world }))
    })
}

/// A state and its writes in a possible order, up to some point.
fn interrupted() -> impl Strategy<Value = (World, Vec<Write>)> {
    some_world().prop_flat_map(|world| {
        let changes = world.plan();
        let all = writes(&changes);
        let order = match changes.moving.is_empty() {
            true => Just(all.clone()).prop_shuffle().boxed(),
            false => Just(all.clone()).boxed(),
        };
        (Just(world), order, 0..=all.len()).prop_map(|(world, order, done)| (world, order[..done].to_vec()))
    })
}

/// At most one route and one node per range, and the number of writes before a crash.
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
            (lines, changes.nodes, changes.moving)
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
    fn foreign_routes_are_kept(world in some_world()) {
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
            let node = node.expect("an existing node");
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
        let range = |route: &Route| ccm_provider::address::parse_cidr(&route.destination_cidr);
        let freed: BTreeSet<IpNet> = changes.delete.iter().filter_map(range).collect();
        let given: BTreeSet<IpNet> = changes.create.iter().filter_map(|new| range(&new.route)).collect();
        prop_assert_eq!(changes.moving.into_keys().collect::<BTreeSet<_>>(), &freed & &given);
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
