//! What to do about routes. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use ccm_provider::{ErrorClass, NewRoute, NodeName, ProviderError, Route, address};
use ipnet::IpNet;

use super::{Settings, changed};
use crate::client::ec2::{self, RouteTable};
use crate::client::write::{Ec2Write, RouteTarget};
use crate::node::fleet::Member;
use crate::node::identity::InstanceId;

/// Where a route of the table leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Target {
    /// To an instance, through whichever interface.
    Instance(InstanceId),
    /// To an instance or interface that is stopped or gone.
    Blackhole,
    /// To a gateway, a peering, an interface of something else: nothing that is ever made or removed here.
    Foreign(String),
}

impl Target {
    fn of(route: &ec2::Route) -> Self {
        if !route.gateway.is_empty() {
            return Self::Foreign(route.gateway.clone());
        }
        if route.blackhole {
            return Self::Blackhole;
        }
        match route.instance.as_deref().and_then(InstanceId::parse) {
            Some(id) => Self::Instance(id),
            None => Self::Foreign(route.interface.clone().unwrap_or_else(|| "something that is no instance".into())),
        }
    }
}

/// The table, and what is known of what its routes lead to.
#[derive(Debug)]
pub(super) struct Observed {
    table: String,
    // The destination as EC2 spells it beside it.
    entries: BTreeMap<IpNet, (String, Target)>,
    /// Instances of nodes, and the nodes of instances. An instance that several nodes claim is that of none.
    nodes: BTreeMap<InstanceId, NodeName>,
    instances: BTreeMap<NodeName, InstanceId>,
    /// Nodes that instances of the table had, as long as a route leads there.
    pub(super) former: BTreeMap<InstanceId, NodeName>,
    /// The instances of the nodes that get routes.
    pub(super) members: BTreeMap<InstanceId, Arc<Member>>,
    /// Live instances without a mark of the cluster.
    pub(super) strangers: BTreeSet<InstanceId>,
}

/// Whether a route is one of those that nothing comes through and that are removed when no node has their range.
pub(crate) fn leads_nowhere(route: &ec2::Route) -> bool {
    Target::of(route) == Target::Blackhole
}

/// One write and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) write: Ec2Write,
    reason: String,
    /// The instance that is not as it was known any more.
    pub(super) changes_instance: Option<InstanceId>,
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let to = |target: &RouteTarget| match target {
            RouteTarget::Instance(id) | RouteTarget::Interface(id) => id.clone(),
        };
        match &self.write {
            Ec2Write::CreateRoute { table, destination, target } => {
                write!(f, "CreateRoute {table} {destination} -> {}", to(target))?;
            }
            Ec2Write::ReplaceRoute { table, destination, target } => {
                write!(f, "ReplaceRoute {table} {destination} -> {}", to(target))?;
            }
            Ec2Write::DeleteRoute { table, destination } => write!(f, "DeleteRoute {table} {destination}")?,
            Ec2Write::ModifyInstanceAttribute { instance: id }
            | Ec2Write::ModifyNetworkInterfaceAttribute { interface: id } => {
                write!(f, "{} {id}: source/destination check off", self.write.name())?;
            }
            other => write!(f, "{}", other.name())?,
        }
        write!(f, " (because {})", self.reason)
    }
}

/// The table of the cluster.
///
/// # Errors
///
/// None of the tables, or several, may be meant.
pub(crate) fn only_table<'a>(
    tables: &'a [RouteTable],
    cluster: &str,
    settings: &Settings,
) -> Result<&'a RouteTable, ProviderError> {
    match tables {
        [table] => Ok(table),
        [] => {
            let looked_for = match (&settings.table, settings.ownership.cluster_key()) {
                (Some(id), _) => format!("{id} (RouteTableID) does not exist"),
                (None, Some(key)) => format!("tag the one to use in {} with {key}, or set RouteTableID", settings.vpc),
                (None, None) => format!("{} has none", settings.vpc),
            };
            Err(ProviderError::unknown(format!("unable to find route table for AWS cluster: {cluster}; {looked_for}")))
        }
        several => {
            let ids: Vec<&str> = several.iter().map(|table| table.id.as_str()).collect();
            Err(ProviderError::unknown(format!(
                "found multiple matching AWS route tables for AWS cluster: {cluster}: {}; set RouteTableID or leave the cluster's tag on one",
                ids.join(", ")
            )))
        }
    }
}

impl Observed {
    pub(super) fn new(
        table: &RouteTable,
        pairs: impl Iterator<Item = (InstanceId, NodeName)>,
        former: &BTreeMap<InstanceId, NodeName>,
    ) -> Self {
        let mut claims: BTreeMap<InstanceId, Vec<NodeName>> = BTreeMap::new();
        for (id, node) in pairs {
            claims.entry(id).or_default().push(node);
        }
        let instances = claims.iter().flat_map(|(id, nodes)| nodes.iter().map(|node| (node.clone(), id.clone())));
        let instances = instances.collect();
        let single = |(id, mut nodes): (InstanceId, Vec<NodeName>)| match (nodes.pop(), nodes.is_empty()) {
            (Some(node), true) => Some((id, node)),
            _ => {
                tracing::warn!(instance = %id, "several nodes have this instance: its routes are left alone");
                None
            }
        };
        let nodes: BTreeMap<InstanceId, NodeName> = claims.into_iter().filter_map(single).collect();
        let entries: BTreeMap<IpNet, (String, Target)> = table
            .routes
            .iter()
            .filter_map(|route| {
                let net = address::parse_cidr(&route.destination)?;
                Some((net, (route.destination.clone(), Target::of(route))))
            })
            .collect();
        let led_to = entries.values().filter_map(|(_, target)| match target {
            Target::Instance(id) => Some(id),
            _ => None,
        });
        let name = |id: &InstanceId| Some((id.clone(), nodes.get(id).or_else(|| former.get(id))?.clone()));
        let former = led_to.filter_map(name).collect();
        Self {
            table: table.id.clone(),
            entries,
            nodes,
            instances,
            former,
            members: BTreeMap::new(),
            strangers: BTreeSet::new(),
        }
    }

    /// The routes of this cluster: those to its nodes, also to nodes that are gone while their instance lives, and all that
    /// lead nowhere. A route to an instance that never was a node is somebody else's.
    pub(super) fn routes(&self, cluster: &str) -> Vec<Route> {
        let route = |(text, target): &(String, Target)| {
            let target_node = match target {
                Target::Blackhole => None,
                Target::Instance(id) => Some(self.former.get(id)?.clone()),
                Target::Foreign(_) => return None,
            };
            Some(Route {
                name: format!("{cluster}-{text}"),
                blackhole: target_node.is_none(),
                target_node,
                destination_cidr: text.clone(),
                ..Route::default()
            })
        };
        self.entries.values().filter_map(route).collect()
    }

    /// The instance that a route shall lead to.
    pub(super) fn instance(&self, route: &Route) -> Option<InstanceId> {
        self.instances.get(route.target_node.as_ref()?).cloned()
    }

    /// The instance without a node that the route's destination leads to now.
    pub(super) fn in_the_way(&self, route: &Route) -> Option<InstanceId> {
        match &self.entries.get(&address::parse_cidr(&route.destination_cidr)?)?.1 {
            Target::Instance(id) if !self.nodes.contains_key(id) && !self.former.contains_key(id) => Some(id.clone()),
            _ => None,
        }
    }
}

/// What makes the routes, one plan each. The check of an instance goes off once, with the first route to it.
pub(super) fn create_all(observed: &Observed, routes: &[NewRoute]) -> Vec<Result<Vec<Step>, ProviderError>> {
    let mut changed: BTreeSet<InstanceId> = BTreeSet::new();
    let mut plan = |new: &NewRoute| {
        let mut steps = create(observed, &new.route)?;
        steps.retain(|step| step.changes_instance.clone().is_none_or(|id| changed.insert(id)));
        Ok(steps)
    };
    routes.iter().map(&mut plan).collect()
}

/// What makes a route: the check of its instance goes off first, so that no packet is lost.
fn create(observed: &Observed, route: &Route) -> Result<Vec<Step>, ProviderError> {
    let node = route.target_node.clone().unwrap_or_default();
    let destination = address::parse_cidr(&route.destination_cidr)
        .ok_or_else(|| ProviderError::unknown(format!("{:?} of node {node} is no CIDR", route.destination_cidr)))?;
    let id = observed.instance(route).ok_or_else(|| {
        // A new node gets its ID within moments: the core looks again before it tells anybody.
        let message = format!("node {node} has no EC2 instance as its provider ID: no route can lead there");
        ProviderError::new(ErrorClass::Conflict, message)
    })?;
    let member = observed.members.get(&id).filter(|member| !member.is_leaving());
    let member = member.ok_or_else(|| ProviderError::InstanceNotFound.wrap(format!("route to node {node} ({id})")))?;
    let mut steps: Vec<Step> = check_off(member).into_iter().collect();
    let target = match &member.primary_interface {
        Some(interface) if member.interfaces > 1 => RouteTarget::Interface(interface.clone()),
        _ => RouteTarget::Instance(id.to_string()),
    };
    let (table, text) = (observed.table.clone(), destination.to_string());
    let create = |reason: &str| Step {
        write: Ec2Write::CreateRoute { table: table.clone(), destination: text.clone(), target: target.clone() },
        reason: reason.to_owned(),
        changes_instance: None,
    };
    match observed.entries.get(&destination) {
        None => steps.push(create(&format!("node {node} has this pod range"))),
        Some((_, Target::Instance(present))) if *present == id => {}
        Some((old, Target::Blackhole)) => {
            steps.push(remove(observed, old, "it leads nowhere".to_owned()));
            steps.push(create(&format!("node {node} has this pod range")));
        }
        Some((_, Target::Instance(present))) => match observed.nodes.get(present) {
            Some(other) => return Err(occupied(&text, &node, &format!("node {other} ({present})"))),
            None if observed.strangers.contains(present) => {
                return Err(occupied(&text, &node, &format!("{present}, which is no instance of this cluster")));
            }
            None => steps.push(Step {
                write: Ec2Write::ReplaceRoute { table, destination: text, target },
                reason: format!("node {node} has this pod range, and {present} is no node any more"),
                changes_instance: None,
            }),
        },
        Some((_, Target::Foreign(what))) => return Err(occupied(&text, &node, what)),
    }
    Ok(steps)
}

fn occupied(destination: &str, node: &NodeName, by: &str) -> ProviderError {
    ProviderError::new(
        ErrorClass::Unknown,
        format!(
            "no route {destination} to node {node}: the route table leads it to {by}; remove that route if it is not needed"
        ),
    )
}

/// Lets the instance forward packets, unless it does so already. An instance with several interfaces refuses the setting for
/// itself, so it is made on the primary interface.
fn check_off(member: &Member) -> Option<Step> {
    if member.source_dest_check == Some(false) {
        return None;
    }
    let write = match &member.primary_interface {
        Some(interface) if member.interfaces > 1 => {
            Ec2Write::ModifyNetworkInterfaceAttribute { interface: interface.clone() }
        }
        _ => Ec2Write::ModifyInstanceAttribute { instance: member.id.to_string() },
    };
    let reason = "it receives packets for pods".to_owned();
    Some(Step { write, reason, changes_instance: Some(member.id.clone()) })
}

fn remove(observed: &Observed, destination: &str, reason: String) -> Step {
    Step {
        write: Ec2Write::DeleteRoute { table: observed.table.clone(), destination: destination.to_owned() },
        reason,
        changes_instance: None,
    }
}

/// What removes a listed route, if it is still as it was listed.
pub(super) fn delete(observed: &Observed, route: &Route) -> Result<Vec<Step>, ProviderError> {
    let Some(net) = address::parse_cidr(&route.destination_cidr) else { return Ok(Vec::new()) };
    let Some((text, target)) = observed.entries.get(&net) else { return Ok(Vec::new()) };
    let now = match target {
        Target::Blackhole => return Ok(vec![remove(observed, text, "it leads nowhere".to_owned())]),
        Target::Instance(id) => match observed.former.get(id) {
            Some(node) if Some(node) == route.target_node.as_ref() => {
                return Ok(vec![remove(observed, text, format!("node {node} has no such pod range"))]);
            }
            Some(node) => format!("node {node}"),
            None => id.to_string(),
        },
        Target::Foreign(what) => what.clone(),
    };
    Err(changed(format!("route {text} leads to {now} by now: it is looked at again")))
}

/// The last check before anything is written: no route of somebody else's is touched, whatever was planned.
pub(super) fn guard(observed: &Observed, steps: &[Step]) -> Result<(), ProviderError> {
    for step in steps {
        let (Ec2Write::DeleteRoute { destination, .. } | Ec2Write::ReplaceRoute { destination, .. }) = &step.write
        else {
            continue;
        };
        let entry = address::parse_cidr(destination).and_then(|net| Some((net, observed.entries.get(&net)?)));
        let ours = entry.is_some_and(|(net, (_, target))| match target {
            _ if net.prefix_len() == 0 => false,
            Target::Blackhole => true,
            Target::Instance(id) => !observed.strangers.contains(id),
            Target::Foreign(_) => false,
        });
        if !ours {
            return Err(ProviderError::bug(format!("refused: {step}: the route is not of this cluster")));
        }
    }
    Ok(())
}
