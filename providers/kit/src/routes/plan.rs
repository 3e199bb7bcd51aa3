//! What to do about routes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ccm_provider::{ErrorClass, NewRoute, NodeName, NodeRef, ProviderError, Route, address};
use ipnet::IpNet;

use super::{Entry, RouteTable, Table, Target, range};

/// The table, and what is known of what its routes lead to.
#[derive(Debug)]
pub struct Observed<T: RouteTable> {
    id: T::Id,
    entries: BTreeMap<IpNet, Entry<T::Hop>>,
    // The nodes of hops. A hop that several nodes claim is that of none.
    nodes: BTreeMap<T::Hop, NodeName>,
    hops: BTreeMap<NodeName, Vec<T::Hop>>,
    // Nodes that hops of the table had, as long as a route leads there.
    pub(super) former: BTreeMap<T::Hop, NodeName>,
    pub(super) facts: T::Facts,
}

/// One write and why.
#[derive(Debug, Clone)]
pub struct Step<W> {
    /// The call.
    pub write: W,
    reason: String,
    // The range whose route it removes or replaces.
    removes: Option<IpNet>,
}

impl<W: fmt::Display> fmt::Display for Step<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} (because {})", self.write, self.reason)
    }
}

type Plan<T> = Result<Vec<Step<<T as RouteTable>::Write>>, ProviderError>;

impl<T: RouteTable> Observed<T> {
    /// `former`: the nodes that hops had at the last observation.
    pub fn new(table: Table<T::Id, T::Hop>, nodes: &[NodeRef], former: &BTreeMap<T::Hop, NodeName>) -> Self {
        let hops: BTreeMap<NodeName, Vec<T::Hop>> =
            nodes.iter().map(|node| (node.name.clone(), T::hops(node))).collect();
        let mut claims: BTreeMap<T::Hop, Vec<&NodeName>> = BTreeMap::new();
        for (node, hops) in &hops {
            for hop in hops {
                claims.entry(hop.clone()).or_default().push(node);
            }
        }
        let nodes = claims.into_iter().filter_map(|(hop, nodes)| match nodes.as_slice() {
            [node] => Some((hop, (*node).clone())),
            _ => {
                tracing::warn!(instance = %hop, "several nodes have this instance: its routes are left alone");
                None
            }
        });
        let nodes: BTreeMap<T::Hop, NodeName> = nodes.collect();
        let entries = table.entries.into_iter();
        let entries: BTreeMap<IpNet, Entry<T::Hop>> =
            entries.filter_map(|entry| Some((address::parse_cidr(&entry.destination)?, entry))).collect();
        let name = |entry: &Entry<T::Hop>| {
            let Target::Hop(hop) = &entry.target else { return None };
            Some((hop.clone(), nodes.get(hop).or_else(|| former.get(hop))?.clone()))
        };
        let former = entries.values().filter_map(name).collect();
        Self { id: table.id, entries, nodes, hops, former, facts: T::Facts::default() }
    }

    /// The routes of this cluster: those to its nodes, also to nodes that are gone while their instance lives, and all that
    /// lead nowhere. A route to a hop that was never that of a node belongs to somebody else.
    pub fn routes(&self) -> Vec<Route> {
        let route = |entry: &Entry<T::Hop>| {
            let target_node = match &entry.target {
                Target::Nowhere => None,
                Target::Hop(hop) => Some(self.former.get(hop)?.clone()),
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
        self.entries.values().filter_map(route).collect()
    }

    /// The hop of the node that a route is to lead to.
    pub(super) fn hop(&self, route: &Route) -> Option<&T::Hop> {
        T::hop(self.hops.get(route.target_node.as_ref()?)?, &range(route)?)
    }

    /// The hop without a node that the route's range leads to now.
    pub(super) fn in_the_way(&self, route: &Route) -> Option<&T::Hop> {
        match &self.entries.get(&range(route)?)?.target {
            Target::Hop(hop) if !self.nodes.contains_key(hop) && !self.former.contains_key(hop) => Some(hop),
            _ => None,
        }
    }

    /// What creates the routes, one plan each. A hop is prepared once, with the first route to it.
    pub fn create_all(&self, routes: &[NewRoute]) -> Vec<Plan<T>> {
        let mut prepared: BTreeSet<&T::Hop> = BTreeSet::new();
        routes.iter().map(|new| self.create(new, &mut prepared)).collect()
    }

    fn create<'a>(&'a self, new: &NewRoute, prepared: &mut BTreeSet<&'a T::Hop>) -> Plan<T> {
        let (route, node) = (&new.route, new.route.target_node.clone().unwrap_or_default());
        let destination = range(route)
            .ok_or_else(|| ProviderError::unknown(format!("{:?} of node {node} is no CIDR", route.destination_cidr)))?;
        // A new node gets its hop within moments: on a conflict the core lists the routes again before it reports anything.
        let hop =
            self.hop(route).ok_or_else(|| changed(format!("node {node} {}: no route can lead there", T::NO_HOP)))?;
        let preparations = T::prepare(&self.facts, &node, hop)?;
        let mut steps: Vec<Step<T::Write>> =
            preparations.into_iter().map(|(write, reason)| Step { write, reason, removes: None }).collect();
        let entry = self.entries.get(&destination);
        let create = |old: Option<&Entry<T::Hop>>, reason: String| Step {
            write: T::create(&self.id, &self.facts, new, destination, hop, old),
            reason,
            removes: old.map(|_| destination),
        };
        let mine = format!("node {node} has this pod range");
        let mut writes = match entry.map(|entry| (entry, &entry.target)) {
            None => vec![create(None, mine)],
            Some((_, Target::Hop(present))) if present == hop => Vec::new(),
            Some((old, Target::Nowhere)) => {
                vec![self.remove(destination, old, "it leads nowhere".to_owned()), create(None, mine)]
            }
            Some((old, Target::Hop(present))) => match self.nodes.get(present) {
                Some(other) => return Err(occupied(destination, &node, &format!("node {other} ({present})"))),
                None if T::is_stranger(&self.facts, present) => {
                    let stranger = format!("{present}, which is no instance of this cluster");
                    return Err(occupied(destination, &node, &stranger));
                }
                None => vec![create(Some(old), format!("{mine}, and {present} is no node any more"))],
            },
            Some((_, Target::Foreign(what))) => return Err(occupied(destination, &node, what)),
        };
        if !prepared.insert(hop) {
            steps.clear();
        }
        steps.append(&mut writes);
        Ok(steps)
    }

    /// What removes a listed route, if it is still as it was listed.
    ///
    /// # Errors
    ///
    /// It leads elsewhere now.
    pub fn delete(&self, route: &Route) -> Plan<T> {
        let entry = range(route).and_then(|range| Some((range, self.entries.get(&range)?)));
        let Some((range, entry)) = entry else { return Ok(Vec::new()) };
        let now = match &entry.target {
            Target::Nowhere => return Ok(vec![self.remove(range, entry, "it leads nowhere".to_owned())]),
            Target::Hop(hop) => match self.former.get(hop) {
                Some(node) if Some(node) == route.target_node.as_ref() => {
                    return Ok(vec![self.remove(range, entry, format!("node {node} has no such pod range"))]);
                }
                Some(node) => format!("node {node}"),
                None => hop.to_string(),
            },
            Target::Foreign(what) => what.clone(),
        };
        Err(changed(format!("route {} leads to {now} by now: it is looked at again", entry.destination)))
    }

    /// The write that removes a route which leads nowhere; `None` when it is not in the table any more.
    ///
    /// # Errors
    ///
    /// It leads somewhere now.
    pub fn removal(&self, destination: &str) -> Result<Option<T::Write>, ProviderError> {
        let route = Route { destination_cidr: destination.to_owned(), blackhole: true, ..Route::default() };
        let steps = self.delete(&route)?;
        self.guard(&steps)?;
        Ok(steps.into_iter().map(|step| step.write).next())
    }

    fn remove(&self, range: IpNet, entry: &Entry<T::Hop>, reason: String) -> Step<T::Write> {
        Step { write: T::delete(&self.id, entry), reason, removes: Some(range) }
    }

    /// The last check before anything is written: no plan touches a route that is not of this cluster.
    ///
    /// # Errors
    ///
    /// One does.
    pub fn guard(&self, steps: &[Step<T::Write>]) -> Result<(), ProviderError> {
        let is_ours = |range: IpNet| match self.entries.get(&range).map(|entry| &entry.target) {
            _ if range.prefix_len() == 0 => false,
            Some(Target::Nowhere) => true,
            Some(Target::Hop(hop)) => !T::is_stranger(&self.facts, hop),
            Some(Target::Foreign(_)) | None => false,
        };
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

/// "Look again, then decide."
fn changed(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Conflict, message)
}
