//! Plans for routes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ccm_provider::{ErrorClass, NewRoute, NodeName, NodeRef, ProviderError, Route, address};
use ipnet::IpNet;

use super::{Entry, RouteTable, Table, Target, range};

/// The table, and the nodes of its hops.
#[derive(Debug)]
pub struct Observed<T: RouteTable> {
    id: T::Id,
    entries: BTreeMap<IpNet, Vec<Entry<T::Hop>>>,
    // The node of each hop. A hop that several nodes have is in `contested` instead.
    nodes: BTreeMap<T::Hop, NodeName>,
    contested: BTreeSet<T::Hop>,
    hops: BTreeMap<NodeName, Vec<T::Hop>>,
    // The ranges of nodes without a hop for them, or elsewhere: the routes for them may lead to these nodes.
    waiting: BTreeSet<IpNet>,
    // The last known node of each hop that a route leads to.
    pub(super) former: BTreeMap<T::Hop, NodeName>,
    pub(super) facts: T::Facts,
}

/// One write and the reason for it.
#[derive(Debug, Clone)]
pub struct Step<W> {
    /// The write call.
    pub write: W,
    reason: String,
    // The range whose route is deleted or replaced.
    removes: Option<IpNet>,
}

impl<W: fmt::Display> fmt::Display for Step<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (because {})", self.write, self.reason)
    }
}

type Plan<T> = Result<Vec<Step<<T as RouteTable>::Write>>, ProviderError>;

impl<T: RouteTable> Observed<T> {
    /// `former`: the nodes of the hops at the last observation.
    pub fn new(table: Table<T::Id, T::Hop>, nodes: &[NodeRef], former: &BTreeMap<T::Hop, NodeName>) -> Self {
        let hops: BTreeMap<NodeName, Vec<T::Hop>> =
            nodes.iter().map(|node| (node.name.clone(), T::hops(node))).collect();
        let has_hop = |node: &NodeName, range: &IpNet| hops.get(node).is_some_and(|hops| T::hop(hops, range).is_some());
        let waits = |node: &NodeRef, range: &IpNet| !has_hop(&node.name, range) || T::is_elsewhere(&table.id, node);
        let mut waiting = BTreeSet::new();
        for node in nodes {
            let ranges = node.pod_cidrs.iter().filter_map(|cidr| address::parse_cidr(cidr));
            waiting.extend(ranges.filter(|range| waits(node, range)));
        }
        let may_be = |name: &str, hop: &T::Hop, range: &IpNet| {
            let may_be = |node: &&NodeRef| T::may_be(node, name, hop) && !has_hop(&node.name, range);
            nodes.iter().find(may_be).map(|node| &node.name)
        };
        // The node is stopped: a new route would be a blackhole again.
        let is_of_node = |hop: &T::Hop, range: IpNet| {
            let has_range = |node: &NodeRef| node.pod_cidrs.iter().any(|cidr| address::parse_cidr(cidr) == Some(range));
            nodes.iter().any(|node| T::hops(node).contains(hop) && has_range(node))
        };
        let mut claims: BTreeMap<T::Hop, BTreeSet<&NodeName>> = BTreeMap::new();
        for node in nodes {
            for hop in hops.get(&node.name).into_iter().flatten().cloned().chain(T::other_hops(node)) {
                claims.entry(hop).or_default().insert(&node.name);
            }
        }
        let (mut nodes, mut contested) = (BTreeMap::new(), BTreeSet::new());
        for (hop, claimants) in claims {
            match claimants.first().filter(|_| claimants.len() == 1) {
                Some(node) => drop(nodes.insert(hop, (*node).clone())),
                None => {
                    tracing::warn!(%hop, "several nodes have this hop: its routes are left alone");
                    contested.insert(hop);
                }
            }
        }
        let mut entries: BTreeMap<IpNet, Vec<Entry<T::Hop>>> = BTreeMap::new();
        for mut entry in table.entries {
            if let Some(range) = address::parse_cidr(&entry.destination) {
                if let Target::Blackhole(Some(hop)) = &entry.target
                    && is_of_node(hop, range)
                {
                    entry.target = Target::Hop(hop.clone());
                }
                entries.entry(range).or_default().push(entry);
            }
        }
        let name = |entry: &Entry<T::Hop>| {
            let (Target::Hop(hop), Some(range)) = (&entry.target, address::parse_cidr(&entry.destination)) else {
                return None;
            };
            // A node with another hop has left its former one: the old route no longer belongs to it.
            let has_none = |node: &&NodeName| !has_hop(node, &range);
            let may_be = || may_be(&entry.name, hop, &range);
            Some((hop.clone(), nodes.get(hop).or_else(|| former.get(hop).filter(has_none)).or_else(may_be)?.clone()))
        };
        let former = entries.values().flatten().filter_map(name).collect();
        Self { id: table.id, entries, nodes, contested, hops, waiting, former, facts: T::Facts::default() }
    }

    /// The routes of this cluster: those to its nodes, including deleted nodes whose instances still exist, and all
    /// blackhole routes. A route to a hop that never belonged to a node has another owner.
    pub fn routes(&self) -> Vec<Route> {
        let route = |range: &IpNet, entry: &Entry<T::Hop>| {
            let target_node = match &entry.target {
                Target::Hop(hop) if !self.is_stray(range, hop) => Some(self.former.get(hop)?.clone()),
                Target::Blackhole(_) if self.waiting.contains(range) => return None,
                Target::Blackhole(_) | Target::Hop(_) => None,
                Target::Foreign(_) => return None,
            };
            Some(Route {
                name: entry.name.clone(),
                blackhole: target_node.is_none(),
                target_node,
                destination_cidr: entry.destination.clone(),
                ..Route::default()
            })
        };
        self.entries
            .iter()
            .flat_map(|(range, entries)| entries.iter().filter_map(move |entry| route(range, entry)))
            .collect()
    }

    /// Whether a route to a hop is a blackhole because no node has the hop. A node with this range and without a hop for
    /// it, or elsewhere, may have it.
    fn is_stray(&self, range: &IpNet, hop: &T::Hop) -> bool {
        let is_known = self.former.contains_key(hop) || self.contested.contains(hop) || self.waiting.contains(range);
        !is_known && T::is_blackhole(&self.id, range)
    }

    fn of_range(&self, range: Option<&IpNet>) -> &[Entry<T::Hop>] {
        range.and_then(|range| self.entries.get(range)).map(Vec::as_slice).unwrap_or_default()
    }

    /// The hop of the target node of a route.
    pub(super) fn hop(&self, route: &Route) -> Option<&T::Hop> {
        T::hop(self.hops.get(route.target_node.as_ref()?)?, &range(route)?)
    }

    /// The hops without a node to which existing routes for this route's range lead.
    pub(super) fn in_the_way(&self, route: &Route) -> impl Iterator<Item = &T::Hop> {
        self.of_range(range(route).as_ref()).iter().filter_map(|entry| match &entry.target {
            Target::Hop(hop) if !self.nodes.contains_key(hop) && !self.former.contains_key(hop) => Some(hop),
            _ => None,
        })
    }

    /// Plans the creation of the routes, one plan each. A hop is prepared once, with its first route.
    pub fn create_all(&self, routes: &[NewRoute]) -> Vec<Plan<T>> {
        let mut prepared: BTreeSet<&T::Hop> = BTreeSet::new();
        routes.iter().map(|new| self.create(new, &mut prepared)).collect()
    }

    fn create<'a>(&'a self, new: &NewRoute, prepared: &mut BTreeSet<&'a T::Hop>) -> Plan<T> {
        let (route, node) = (&new.route, new.route.target_node.clone().unwrap_or_default());
        let destination = range(route).ok_or_else(|| {
            ProviderError::unknown(format!("{:?} of node {node} is not a CIDR", route.destination_cidr))
        })?;
        let hops = self.hops.get(&node).ok_or_else(|| {
            ProviderError::new(ErrorClass::NotFound, format!("node {node} was deleted: it needs no route any more"))
        })?;
        let hop = self.hop(route).ok_or_else(|| {
            let is_new = hops.is_empty();
            T::no_hop(format!("node {node} {}: no route can lead there", T::NO_HOP), is_new)
        })?;
        let preparations = T::prepare(&self.facts, &node, hop)?;
        let mut steps: Vec<Step<T::Write>> =
            preparations.into_iter().map(|(write, reason)| Step { write, reason, removes: None }).collect();
        let entries = self.of_range(Some(&destination));
        let is_mine = |entry: &&Entry<T::Hop>| matches!(&entry.target, Target::Hop(present) if present == hop);
        let entry = entries.iter().find(is_mine).or_else(|| entries.first());
        let create = |old: Option<&Entry<T::Hop>>, reason: String| Step {
            write: T::create(&self.id, &self.facts, new, destination, hop, old),
            reason,
            removes: old.map(|_| destination),
        };
        let mine = format!("node {node} has this pod range");
        let mut writes = match entry.map(|entry| (entry, &entry.target)) {
            None => vec![create(None, mine)],
            Some((_, Target::Hop(present))) if present == hop => Vec::new(),
            Some((old, Target::Blackhole(_))) => {
                vec![self.remove(destination, old, "it is a blackhole".to_owned()), create(None, mine)]
            }
            Some((old, Target::Hop(present))) => match self.nodes.get(present) {
                Some(other) => return Err(occupied(destination, &node, &format!("node {other} ({present})"))),
                None if T::is_foreign(&self.facts, present) || self.waiting.contains(&destination) => {
                    let stranger = format!("{present}, which is not an instance of this cluster");
                    return Err(occupied(destination, &node, &stranger));
                }
                None => vec![create(Some(old), format!("{mine}, and {present} is no longer a node"))],
            },
            Some((_, Target::Foreign(what))) => return Err(occupied(destination, &node, what)),
        };
        if !prepared.insert(hop) {
            steps.clear();
        }
        steps.append(&mut writes);
        Ok(steps)
    }

    /// Plans the deletion of a listed route, if it has not changed since.
    ///
    /// # Errors
    ///
    /// The route has another target now.
    pub fn delete(&self, route: &Route) -> Plan<T> {
        let Some(range) = range(route) else { return Ok(Vec::new()) };
        let mut leads_elsewhere = None;
        for entry in self.of_range(Some(&range)) {
            let now = match &entry.target {
                Target::Blackhole(_) => return Ok(vec![self.remove(range, entry, "it is a blackhole".to_owned())]),
                Target::Hop(hop) if self.is_stray(&range, hop) => {
                    let write = T::delete_stray(&self.id, entry);
                    return Ok(vec![Step { write, reason: format!("{hop} is not a node"), removes: Some(range) }]);
                }
                Target::Hop(hop) => match self.former.get(hop) {
                    Some(node) if Some(node) == route.target_node.as_ref() => {
                        return Ok(vec![self.remove(range, entry, format!("node {node} has no such pod range"))]);
                    }
                    Some(node) => format!("node {node}"),
                    None => hop.to_string(),
                },
                Target::Foreign(what) => what.clone(),
            };
            leads_elsewhere
                .get_or_insert(format!("route {} leads to {now} by now: it is looked at again", entry.destination));
        }
        leads_elsewhere.map_or(Ok(Vec::new()), |message| Err(changed(message)))
    }

    /// The write that deletes a blackhole route; `None` if it is no longer in the table.
    ///
    /// # Errors
    ///
    /// The route is no longer a blackhole.
    pub fn removal(&self, destination: &str) -> Result<Option<T::Write>, ProviderError> {
        let route = Route { destination_cidr: destination.to_owned(), blackhole: true, ..Route::default() };
        let steps = self.delete(&route)?;
        self.guard(&steps)?;
        Ok(steps.into_iter().map(|step| step.write).next())
    }

    fn remove(&self, range: IpNet, entry: &Entry<T::Hop>, reason: String) -> Step<T::Write> {
        Step { write: T::delete(&self.id, entry), reason, removes: Some(range) }
    }

    /// The last check before a write: no step may delete or replace a route of another owner.
    ///
    /// # Errors
    ///
    /// A step would do so.
    pub fn guard(&self, steps: &[Step<T::Write>]) -> Result<(), ProviderError> {
        let may_go = |entry: &Entry<T::Hop>| match &entry.target {
            Target::Blackhole(_) => true,
            Target::Hop(hop) => !T::is_foreign(&self.facts, hop),
            Target::Foreign(_) => false,
        };
        let is_ours = |range: IpNet| range.prefix_len() > 0 && self.of_range(Some(&range)).iter().any(may_go);
        match steps.iter().find(|step| step.removes.is_some_and(|range| !is_ours(range))) {
            Some(step) => Err(ProviderError::bug(format!("refused: {step}: the route is not of this cluster"))),
            None => Ok(()),
        }
    }
}

fn occupied(destination: IpNet, node: &NodeName, by: &str) -> ProviderError {
    ProviderError::unknown(format!(
        "no route {destination} to node {node}: the route table leads it to {by}; remove that route if it is not needed"
    ))
}

/// A conflict: the core lists the routes again before it decides.
fn changed(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Conflict, message)
}
