//! Routes to the pods of each node, in a route table.
//!
//! Upstream: `azure_routes.go`. There a worker holds its lock while it sleeps half a minute after each write, and a write
//! that fails counts as done. Here the table is read once for all routes of a reconcile ([`PlannedRoutes`] plans from
//! that), and the changes of one reconcile are one write ([`table`]).
//!
//! A route belongs to a node by its name, `node____<range>` or the node's name alone, or by its hop. Others are never
//! changed. A write adds the range to names that lack it: then a route is known without its node.
//!
//! The Node may lack an address of the range's family: the flags of kubelet or of the per-node program may limit it to one
//! family. Then a new route gets the address from the machine, and an existing one counts by its name, as in upstream.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::routes::{Entry, RouteTable, Table, Target};
use ccm_kit::{Batcher, Cached, Cluster, Interrupted, Limits, PlannedRoutes};
use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{
    AddressType, Aspects, Instance, InstancesV2 as _, Lookup, NewRoute, Node, NodeName, NodeReader, NodeRef,
    ProviderError, Route, Routes, Scope, address,
};
use futures::FutureExt;
use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use self::table::{Change, Writer};
use crate::client::operation::ROUTES_GET;
use crate::client::view::{list, text};
use crate::client::{ApiError, Client, id::ArmId, id::same};
use crate::loadbalancer::tags::Tags;
use crate::loadbalancer::wanted::hosts::internal_addresses;
use crate::node::identity::is_unmanaged;
use crate::node::instances::AzureInstances;

mod table;
#[cfg(test)]
mod tests;

/// Between the name of a node and its range in the name of a route.
const SEPARATOR: &str = "____";
/// The most changes of one write; more than any table may have.
const AT_ONCE: usize = 10_000;
/// Retry interval for a node without addresses.
const NEW_NODE: Duration = Duration::from_secs(10);
/// The type of the next hop of our routes.
const APPLIANCE: &str = "VirtualAppliance";

/// The settings of routes.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) table: ArmId,
    /// Of a new table.
    pub(crate) location: String,
    /// Set with each write.
    pub(crate) tags: Tags,
    pub(crate) system_tags: Vec<String>,
    /// `--cluster-cidr`
    pub(crate) cluster_cidrs: Vec<IpNet>,
    /// The age up to which a table that was read is listed.
    pub(crate) age: Duration,
}

/// The routes of the cluster.
#[derive(Debug)]
pub(crate) struct AzureRoutes {
    planned: PlannedRoutes<AzureTable>,
    cluster: Cluster,
}

impl AzureRoutes {
    pub(crate) fn new(settings: Settings, client: &Client, cluster: Cluster, instances: Arc<AzureInstances>) -> Self {
        let table = AzureTable::new(settings, client, cluster.clone(), instances);
        Self { planned: PlannedRoutes::new(table, cluster.clone()), cluster }
    }

    /// The routes as planned.
    pub(crate) fn planned(&self) -> &PlannedRoutes<AzureTable> {
        &self.planned
    }

    fn is_unmanaged(&self, route: &Route) -> bool {
        let node = route.target_node.as_ref().and_then(|name| self.cluster.nodes()?.get(name));
        node.is_some_and(|node| is_unmanaged(&node))
    }
}

/// Nodes that other programs manage have no route in the table: theirs count as present.
#[async_trait]
impl Routes for AzureRoutes {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let mut routes = self.planned.list(cluster).await?;
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        for node in nodes.iter().filter(|node| is_unmanaged(node)) {
            let route = |cidr: &str| Route {
                name: node.name.to_string(),
                target_node: Some(node.name.clone()),
                destination_cidr: cidr.to_owned(),
                ..Route::default()
            };
            routes.extend(node.pod_cidrs.iter().map(|cidr| route(cidr)));
        }
        Ok(routes)
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        let own: Vec<NewRoute> = routes.iter().filter(|new| !self.is_unmanaged(&new.route)).cloned().collect();
        let mut answers = self.planned.create(cluster, &own).await.into_iter();
        let answer = |new: &NewRoute| match self.is_unmanaged(&new.route) {
            true => Ok(()),
            false => answers.next().unwrap_or_else(|| Err(ProviderError::bug("a route without an answer"))),
        };
        routes.iter().map(answer).collect()
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        let own: Vec<Route> = routes.iter().filter(|route| !self.is_unmanaged(route)).cloned().collect();
        let mut answers = self.planned.delete(cluster, &own).await.into_iter();
        let answer = |route: &Route| match self.is_unmanaged(route) {
            true => Ok(()),
            false => answers.next().unwrap_or_else(|| Err(ProviderError::bug("a route without an answer"))),
        };
        routes.iter().map(answer).collect()
    }

    async fn create_in(&self, cluster: &str, routes: &[NewRoute], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        match routes.iter().any(|new| self.is_unmanaged(&new.route)) {
            // A node that has just become one.
            true => self.create(cluster, routes).await,
            false => self.planned.create_in(cluster, routes, scope).await,
        }
    }

    async fn delete_in(&self, cluster: &str, routes: &[Route], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        match routes.iter().any(|route| self.is_unmanaged(route)) {
            true => self.delete(cluster, routes).await,
            false => self.planned.delete_in(cluster, routes, scope).await,
        }
    }
}

/// The route table.
#[derive(Debug)]
pub(crate) struct AzureTable {
    cluster_cidrs: Arc<[IpNet]>,
    cluster: Cluster,
    instances: Arc<AzureInstances>,
    tables: Cached<Option<Value>, ApiError>,
    age: Duration,
    writes: Batcher<Writer>,
    /// The routes with the name of a node alone, lower-cased. They stay those of their node when it is gone.
    named: Mutex<BTreeSet<String>>,
}

/// A route as written.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Wanted {
    name: String,
    prefix: String,
    hop: IpAddr,
}

/// A write of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteWrite {
    Add(Wanted),
    Remove(String),
    Replace { old: String, new: Wanted },
}

impl fmt::Display for RouteWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |new: &Wanted| format!("{}: {} via {}", new.name, new.prefix, new.hop);
        match self {
            Self::Add(new) => write!(f, "add {}", text(new)),
            Self::Remove(old) => write!(f, "remove {old}"),
            Self::Replace { old, new } => write!(f, "remove {old}, add {}", text(new)),
        }
    }
}

impl AzureTable {
    fn new(settings: Settings, client: &Client, cluster: Cluster, instances: Arc<AzureInstances>) -> Self {
        let (reader, id) = (client.clone(), settings.table.clone());
        let read = move || {
            let (client, id) = (reader.clone(), id.clone());
            async move { client.get(ROUTES_GET, &id).await }.boxed()
        };
        let interrupted = (|how| ApiError::interrupted(ROUTES_GET, how)) as fn(Interrupted) -> ApiError;
        let limits = Limits { deadline: WRITE_DEADLINE, ..Limits::of(AT_ONCE) };
        Self {
            cluster_cidrs: settings.cluster_cidrs.clone().into(),
            tables: Cached::new(read, interrupted),
            age: settings.age,
            writes: Batcher::new(Writer::new(settings, client.clone(), cluster.clone()), limits),
            cluster,
            instances,
            named: Mutex::default(),
        }
    }

    async fn change(&self, change: Change) -> Result<(), ProviderError> {
        let answer = self.writes.ask_one(change).await?;
        answer.unwrap_or_else(|| Err(ProviderError::bug("a change of routes was not written")))
    }
}

/// The name of a node's route for a range.
fn route_name(node: &str, range: &str) -> String {
    let range: String = range.chars().filter(|c| !matches!(c, ':' | '.' | '/')).collect();
    format!("{node}{SEPARATOR}{range}")
}

/// Whether a route of this name and range is that of a node, perhaps a deleted one.
fn is_named(name: &str, range: &str) -> bool {
    let node = name.split_once(SEPARATOR).map(|(node, _)| node);
    node.is_some_and(|node| !node.is_empty() && same(&route_name(node, range), name))
}

/// The node with the internal addresses of its machine, if they are known.
pub(crate) fn with_machine(node: &Node, machine: &Instance) -> Node {
    let metadata = machine.metadata.as_ref().ok().and_then(Option::as_ref);
    let addresses = metadata.into_iter().flat_map(|metadata| &metadata.node_addresses);
    let internal = addresses.filter(|address| address.kind == AddressType::InternalIp);
    Node { addresses: node.addresses.iter().chain(internal).cloned().collect(), ..node.clone() }
}

/// A route of the table. `is_node`: whether a node has this name or address.
fn entry(route: &Value, is_node: impl Fn(&str, &IpAddr) -> bool) -> Option<Entry<IpAddr>> {
    let (name, range) = (text(route, "/name"), text(route, "/properties/addressPrefix"));
    address::parse_cidr(range)?;
    let kind = text(route, "/properties/nextHopType");
    let hop = text(route, "/properties/nextHopIpAddress").parse::<IpAddr>().ok().filter(|_| same(kind, APPLIANCE));
    let target = match hop {
        Some(hop) if is_named(name, range) || is_node(name, &hop) => Target::Hop(hop),
        _ => Target::Foreign(kind.to_owned()),
    };
    Some(Entry { name: name.to_owned(), destination: range.to_owned(), target })
}

#[async_trait]
impl RouteTable for AzureTable {
    type Id = Arc<[IpNet]>;
    type Hop = IpAddr;
    type Facts = ();
    type Write = RouteWrite;
    const NO_HOP: &'static str = "has no internal IP address of the family";
    const IN_FLIGHT: usize = AT_ONCE;

    async fn read(
        &self,
        _: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<Self::Id, IpAddr>, ProviderError> {
        let table = self.tables.get(max_age, not_before).await?;
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        let hops: BTreeSet<IpAddr> = nodes.iter().flat_map(|node| internal_addresses(node)).collect();
        let routes = table.value.as_ref().as_ref().map(|table| list(table, "/properties/routes")).unwrap_or_default();
        let present: BTreeSet<String> = routes.iter().map(|route| text(route, "/name").to_ascii_lowercase()).collect();
        let mut named = self.named.lock();
        named.extend(nodes.iter().map(|node| node.name.to_ascii_lowercase()));
        named.retain(|name| present.contains(name));
        let is_node = |name: &str, hop: &IpAddr| named.contains(&name.to_ascii_lowercase()) || hops.contains(hop);
        let entries = routes.iter().filter_map(|route| entry(route, is_node)).collect();
        Ok(Table { id: self.cluster_cidrs.clone(), entries })
    }

    fn list_age(&self) -> Duration {
        self.age
    }

    async fn complete(&self, nodes: Vec<NodeRef>, routes: &[NewRoute]) -> Vec<NodeRef> {
        let wanted: BTreeSet<&NodeName> = routes.iter().filter_map(|new| new.route.target_node.as_ref()).collect();
        let lacks = |node: &&NodeRef| {
            let hops = Self::hops(node);
            let lacks = |range| Self::hop(&hops, &range).is_none();
            let mut ranges = node.pod_cidrs.iter().filter_map(|cidr| address::parse_cidr(cidr));
            wanted.contains(&node.name) && !hops.is_empty() && ranges.any(lacks)
        };
        let asked: Vec<NodeRef> = nodes.iter().filter(lacks).cloned().collect();
        if asked.is_empty() {
            return nodes;
        }
        let answers = self.instances.lookup(&asked, Aspects::ADDRESSES).await;
        let whole = asked.iter().zip(&answers).filter_map(|(node, answer)| match answer {
            Lookup::Found(machine) if machine.metadata.is_ok() => {
                Some((&node.name, Arc::new(with_machine(node, machine))))
            }
            answer => {
                tracing::warn!(node = %node.name, ?answer, "the addresses of the machine are not known");
                None
            }
        });
        let whole: BTreeMap<&NodeName, NodeRef> = whole.collect();
        nodes.into_iter().map(|node| whole.get(&node.name).cloned().unwrap_or(node)).collect()
    }

    async fn write(&self, write: &RouteWrite) -> Result<(), ProviderError> {
        match write {
            RouteWrite::Add(new) => self.change(Change::Add { old: None, new: new.clone() }).await,
            RouteWrite::Remove(old) => self.change(Change::Remove(old.clone())).await,
            RouteWrite::Replace { old, new } => {
                self.change(Change::Add { old: Some(old.clone()), new: new.clone() }).await
            }
        }
    }

    fn hops(node: &Node) -> Vec<IpAddr> {
        if is_unmanaged(node) { Vec::new() } else { internal_addresses(node).collect() }
    }

    fn may_be(node: &Node, name: &str, _: &IpAddr) -> bool {
        let of = name.split_once(SEPARATOR).map_or(name, |(node, _)| node);
        same(of, &node.name) && !is_unmanaged(node)
    }

    fn hop<'a>(hops: &'a [IpAddr], destination: &IpNet) -> Option<&'a IpAddr> {
        hops.iter().find(|hop| hop.is_ipv4() == destination.addr().is_ipv4())
    }

    /// A node without any address is not initialized yet: its route waits, without an event.
    fn no_hop(message: String, is_new: bool) -> ProviderError {
        match is_new {
            true => ProviderError::in_progress(message, NEW_NODE),
            false => ProviderError::unknown(message),
        }
    }

    fn is_blackhole(cluster_cidrs: &Self::Id, destination: &IpNet) -> bool {
        cluster_cidrs.iter().any(|range| range.contains(destination))
    }

    fn create(
        _: &Self::Id,
        (): &(),
        new: &NewRoute,
        range: IpNet,
        hop: &IpAddr,
        old: Option<&Entry<IpAddr>>,
    ) -> RouteWrite {
        let node = new.route.target_node.as_deref().unwrap_or_default();
        let prefix = range.to_string();
        let new = Wanted { name: route_name(node, &prefix), prefix, hop: *hop };
        match old {
            Some(old) => RouteWrite::Replace { old: old.name.clone(), new },
            None => RouteWrite::Add(new),
        }
    }

    fn delete(_: &Self::Id, entry: &Entry<IpAddr>) -> RouteWrite {
        RouteWrite::Remove(entry.name.clone())
    }
}
