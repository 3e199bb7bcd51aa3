//! The routes to delete, create and keep, and the condition of each node. Pure.
//!
//! Source of the behavior: `kubernetes/cloud-provider` `controllers/route/route_controller.go`. Destinations are
//! compared as networks, not as text.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ccm_provider::node::ConditionStatus;
use ccm_provider::well_known::{REASON_NO_ROUTE, REASON_ROUTE_CREATED};
use ccm_provider::{
    Change, Finding, NewRoute, Node, NodeAddress, NodeName, NodeRef, Plan, Risk, Route, Schemes, Severity, Step, Verb,
    address,
};
use ipnet::IpNet;

use crate::preview::node_update;

/// The changes of one reconcile.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// Routes to delete, as listed.
    pub(super) delete: Vec<Route>,
    /// Routes to create, each with its target node.
    pub(super) create: Vec<NewRoute>,
    /// The destinations in both, with the number of deletions: clouds have one route for each, so a creation waits for
    /// them.
    pub(super) moving: BTreeMap<IpNet, usize>,
    /// Nodes with a listed route or a pod range, and the total number of routes that each needs.
    pub(super) nodes: BTreeMap<NodeName, usize>,
    /// Target nodes that are not known (any more), and whose routes are kept for now.
    pub(super) unconfirmed: Vec<NodeName>,
}

/// Whether a node belongs to another cloud. No route to it is created or deleted.
fn is_foreign(node: &Node, schemes: &Schemes) -> bool {
    schemes.is_foreign(node.provider_id.as_deref())
}

/// Compares the cloud's routes with the pod ranges of the nodes. `departed` names missing nodes that are known to be
/// gone: their deletion was observed, or they were also missing the last time.
pub(super) fn plan(
    routes: &[Route],
    nodes: &[NodeRef],
    cluster: &[IpNet],
    departed: &BTreeSet<NodeName>,
    schemes: &Schemes,
) -> Changes {
    let mut changes = Changes::default();
    let mut listed: BTreeMap<&NodeName, Vec<&Route>> = BTreeMap::new();
    for route in routes {
        if let Some(node) = &route.target_node {
            listed.entry(node).or_default().push(route);
        }
    }
    let by_name: BTreeMap<&NodeName, &NodeRef> = nodes.iter().map(|node| (&node.name, node)).collect();
    // Destinations per node whose routes stay; the others are replaced.
    let mut keep: BTreeSet<(&NodeName, IpNet)> = BTreeSet::new();
    for node in nodes.iter().filter(|node| !is_foreign(node, schemes)) {
        let wanted = wanted(node);
        if !wanted.is_empty() || listed.contains_key(&node.name) {
            changes.nodes.insert(node.name.clone(), wanted.len());
        }
        for (cidr, text) in wanted {
            let present = listed.get(&node.name).into_iter().flatten().find(|route| {
                // A blackhole is deleted below, so it does not count: its replacement must be created in the same
                // reconcile.
                !route.blackhole
                    && destination(route) == Some(cidr)
                    && (!route.enable_node_addresses
                        || address::same_set(&route.target_node_addresses, &node.addresses))
            });
            match present {
                Some(_) => {
                    keep.insert((&node.name, cidr));
                }
                None => changes.create.push(new_route(node, text)),
            }
        }
    }
    for route in routes.iter().filter(|route| responsible(route, cluster)) {
        let target = route.target_node.as_ref();
        let known = target.and_then(|name| by_name.get(name));
        let stays = match (target, known) {
            _ if route.blackhole => false,
            (_, Some(node)) if is_foreign(node, schemes) => true,
            (Some(name), Some(node)) => stays(route, name, node, &keep),
            (Some(name), None) if !departed.contains(name) => {
                changes.unconfirmed.push(name.clone());
                true
            }
            _ => false,
        };
        if !stays {
            changes.delete.push(route.clone());
        }
    }
    let given: BTreeSet<IpNet> = changes.create.iter().filter_map(|new| destination(&new.route)).collect();
    for range in changes.delete.iter().filter_map(destination).filter(|range| given.contains(range)) {
        *changes.moving.entry(range).or_default() += 1;
    }
    changes
}

fn stays(route: &Route, name: &NodeName, node: &Node, keep: &BTreeSet<(&NodeName, IpNet)>) -> bool {
    let Some(cidr) = destination(route) else { return true };
    let right_addresses =
        !route.enable_node_addresses || address::same_set(&route.target_node_addresses, &node.addresses);
    keep.contains(&(name, cidr)) && right_addresses
}

/// The pod ranges of a node, each once, in order.
fn wanted(node: &Node) -> Vec<(IpNet, &str)> {
    let mut seen = BTreeSet::new();
    let parsed = node.pod_cidrs.iter().filter_map(|text| Some((address::parse_cidr(text)?, &**text)));
    parsed.filter(|(cidr, _)| seen.insert(*cidr)).collect()
}

fn new_route(node: &Node, destination_cidr: &str) -> NewRoute {
    NewRoute {
        name_hint: node.uid.to_string(),
        route: Route {
            target_node: Some(node.name.clone()),
            target_node_addresses: node.addresses.to_vec(),
            destination_cidr: destination_cidr.to_owned(),
            ..Route::default()
        },
    }
}

pub(super) fn destination(route: &Route) -> Option<IpNet> {
    address::parse_cidr(&route.destination_cidr)
}

/// Whether this controller may delete a route: it begins or ends within the pod ranges. False if it cannot be parsed.
fn responsible(route: &Route, cluster: &[IpNet]) -> bool {
    let Some(cidr) = destination(route) else {
        tracing::error!(route = route.name, cidr = route.destination_cidr, "a route with this destination is ignored");
        return false;
    };
    let within = |ip: IpAddr| cluster.iter().any(|range| range.contains(&ip));
    within(cidr.network()) || within(cidr.broadcast())
}

/// The value of the condition of a node if it must be written: `Some(true)` for "all routes exist".
pub(super) fn condition(node: &Node, available: bool) -> Option<bool> {
    let wanted = if available {
        (ConditionStatus::False, REASON_ROUTE_CREATED)
    } else {
        (ConditionStatus::True, REASON_NO_ROUTE)
    };
    let present = node.network_unavailable.as_ref().map(|(status, reason)| (*status, &**reason));
    (present != Some(wanted)).then_some(available)
}

impl Changes {
    /// The writes as plan steps, with those of the conditions of `nodes` if every route can be created.
    pub(super) fn plan(&self, nodes: &[NodeRef]) -> Plan {
        let step = |verb, route: &Route, reason: &str| Step {
            verb,
            kind: "Route".into(),
            id: format!(
                "{} to {}",
                route.destination_cidr,
                route.target_node.as_ref().map_or("nowhere", |node| node.as_str())
            ),
            changes: addresses(&route.target_node_addresses).into_iter().collect(),
            reason: reason.into(),
            risk: Risk::None,
        };
        let mut plan = Plan::new("routes");
        let useless = "no node has this range, or its target is another node";
        let delete = self.delete.iter().map(|r| step(Verb::Delete, r, useless));
        let create = self.create.iter().map(|r| step(Verb::Create, &r.route, "the node has this pod range"));
        let conditions = nodes.iter().filter_map(|node| {
            let wanted = self.nodes.get(&node.name)?;
            condition(node, *wanted > 0).map(|_| condition_step(node, *wanted > 0))
        });
        plan.steps = delete.chain(create).chain(conditions).collect();
        let waits = |name: &NodeName| {
            let text = "the target of a route is this node, which is not in the cluster; the route is deleted if the \
                        next list still has it, or when the node is seen to be deleted";
            Finding::new(Severity::Info, format!("node {name}"), text)
        };
        plan.findings = self.unconfirmed.iter().map(waits).collect();
        plan
    }
}

fn condition_step(node: &Node, available: bool) -> Step {
    let word = |unavailable: bool| if unavailable { "True" } else { "False" }.to_owned();
    let change = Change {
        field: "condition NetworkUnavailable".into(),
        before: node.network_unavailable.as_ref().map(|(status, _)| format!("{status:?}")),
        after: Some(word(!available)),
    };
    let reason = if available { "all its routes exist" } else { "the node has no pod range" };
    node_update(node, vec![change], reason)
}

fn addresses(list: &[NodeAddress]) -> Option<Change> {
    let text = list.iter().map(|a| &*a.address).collect::<Vec<_>>().join(" ");
    (!text.is_empty()).then(|| Change { field: "addresses".into(), before: None, after: Some(text) })
}
