//! Routes to the pods of each node, in the network of the cluster.
//!
//! Upstream: `gce_routes.go`. A route is an object with a name, so each is written separately; the list is read once
//! for all routes of a reconciliation ([`PlannedRoutes`] plans from it).
//!
//! A route belongs to the cluster by its description, its network, and its name: the name of the cluster, then the UID
//! of a node. Defects of upstream that are fixed here:
//!
//! * the second range of a node gets a name of its own;
//! * a route leads to the instance of the node's provider ID, regardless of the node's name and zone;
//! * the routes of a cluster `dev-2` do not belong to `dev`, nor do those that users made with such names.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::routes::{Entry, RouteTable, Table, Target};
use ccm_kit::{Cached, Cluster, Interrupted, PlannedRoutes};
use ccm_provider::{NewRoute, Node, NodeReader, ProviderError};
use futures::FutureExt;
use ipnet::IpNet;
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::client::filter::Filter;
use crate::client::network::Route;
use crate::client::operation::{ROUTE_CREATE, ROUTE_DELETE, ROUTE_LIST};
use crate::client::resource::{Collection, ResourceId, Scope, same_url};
use crate::client::{ApiError, Client, Write, is_conflict};
use crate::node::identity::{Wanted, wanted};
use crate::node::zones::zone_of;

#[cfg(test)]
mod tests;

/// The description of the routes of clusters.
const DESCRIPTION: &str = "k8s-node-route";
/// Lower than the routes of subnetworks, as in upstream.
const PRIORITY: u32 = 1000;
/// The maximum length of the cluster's name in the names of its routes.
const CLUSTER_PART: usize = 26;
/// So long, the list may not show a route that this process has made.
const SHOWN: Duration = Duration::from_secs(60);
const MISSING: &str = "NEXT_HOP_INSTANCE_NOT_FOUND";

/// The routes of a cluster.
pub(crate) type GceRoutes = PlannedRoutes<NetworkRoutes>;

type Read = Cached<Vec<Route>, ApiError>;

/// The routes of a network.
#[derive(Debug)]
pub(crate) struct NetworkRoutes {
    client: Client,
    /// The URL of the network.
    network: String,
    /// `--cluster-cidr`: a route in it to an instance that is not a node belongs to a former node.
    cluster_cidrs: Arc<[IpNet]>,
    /// By the name of the cluster; there is only one.
    lists: Mutex<BTreeMap<String, Read>>,
    cluster: Cluster,
    /// The UIDs of other forms, of nodes that this process knows or knew.
    uids: Mutex<BTreeSet<Box<str>>>,
    /// The bodies of the insertions that this process has lately sent, by name.
    made: Mutex<BTreeMap<String, (Option<Value>, Instant)>>,
}

/// The context of writes.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    cluster: Arc<str>,
    cluster_cidrs: Arc<[IpNet]>,
    network: Arc<str>,
    /// The names of all routes that were read.
    taken: Arc<BTreeSet<String>>,
}

/// An instance as the next hop.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Hop {
    zone: String,
    name: String,
}

impl fmt::Display for Hop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "zones/{}/instances/{}", self.zone, self.name)
    }
}

/// The writes of one step, in order.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Writes(Vec<Write>);

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&all.join(", "))
    }
}

impl NetworkRoutes {
    pub(crate) fn new(client: Client, cluster: Cluster, network: String, cluster_cidrs: Vec<IpNet>) -> Self {
        let (lists, uids, made) = Default::default();
        Self { client, network, cluster_cidrs: cluster_cidrs.into(), lists, cluster, uids, made }
    }

    fn list(&self, cluster: &str) -> Read {
        let mut lists = self.lists.lock();
        let new = || {
            let (client, prefix) = (self.client.clone(), prefix(cluster));
            let filter = Filter::begins("name", &prefix);
            let read = move || {
                let (client, filter) = (client.clone(), filter.clone());
                async move { client.routes(&filter).await }.boxed()
            };
            Cached::new(read, (|how| ApiError::interrupted(ROUTE_LIST, how)) as fn(Interrupted) -> ApiError)
        };
        lists.entry(cluster.to_owned()).or_insert_with(new).clone()
    }

    /// Whether the route of an insertion exists as it was wanted.
    async fn is_made(&self, write: &Write) -> Result<bool, ApiError> {
        if self.made.lock().get(&write.name).is_some_and(|(body, at)| *body == write.body && at.elapsed() < SHOWN) {
            return Ok(true);
        }
        let found = self.client.routes(&Filter::is("name", &write.name)).await?;
        let wanted = |field: &str| write.body.as_ref().and_then(|body| body.get(field)?.as_str()).unwrap_or_default();
        let is_it = |route: &Route| {
            route.name == write.name
                && route.dest_range == wanted("destRange")
                && same_url(&route.next_hop_instance, wanted("nextHopInstance"))
                && same_url(&route.network, wanted("network"))
        };
        Ok(found.iter().any(is_it))
    }

    fn known_uids(&self) -> BTreeSet<Box<str>> {
        let nodes = self.cluster.nodes().map(NodeReader::list).unwrap_or_default();
        let mut uids = self.uids.lock();
        uids.extend(nodes.iter().map(|node| node.uid.clone()).filter(|uid| !uid.is_empty() && !is_uid(uid)));
        uids.clone()
    }
}

/// The prefix of the names of a cluster's routes.
fn prefix(cluster: &str) -> String {
    let end = cluster.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= CLUSTER_PART).last();
    format!("{}-", cluster.get(..end.unwrap_or_default()).unwrap_or_default())
}

/// The name of a new route. A node has one for each of its ranges; the plain one, as in upstream, is for IPv4.
fn name(context: &Context, hint: &str, destination: &IpNet) -> String {
    let prefix = prefix(&context.cluster);
    let plain = format!("{prefix}{hint}");
    let family = if matches!(destination, IpNet::V4(_)) { '4' } else { '6' };
    // A name has at most 63 characters: the UID without hyphens leaves room for a suffix.
    let bare: String = hint.chars().filter(|c| *c != '-').collect();
    let first = (family == '4').then_some(plain);
    let more = std::iter::once(String::new()).chain(('a'..='z').map(String::from));
    let others = more.map(|letter| format!("{prefix}{bare}-{family}{letter}"));
    let mut all = first.into_iter().chain(others);
    let free = all.find(|name| !context.taken.contains(name));
    // No node has so many ranges.
    free.unwrap_or_else(|| format!("{prefix}{bare}"))
}

/// Whether the end of a name, after the name of the cluster, is that of a route of a node: its UID, or the UID without
/// hyphens and a suffix. Anything else is of a cluster whose name begins with ours, or made by a user.
fn is_of_node(rest: &str, uids: &BTreeSet<Box<str>>) -> bool {
    let is_bare = |text: &str| text.len() == 32 && is_hex(text);
    let is_suffix = |text: &str| {
        let letter = text.strip_prefix(['4', '6']);
        letter.is_some_and(|letter| {
            letter.is_empty() || letter.len() == 1 && letter.bytes().all(|it| it.is_ascii_lowercase())
        })
    };
    let bare = rest.rsplit_once('-').filter(|(_, suffix)| is_suffix(suffix)).map_or(rest, |(bare, _)| bare);
    is_uid(rest) || uids.contains(rest) || is_bare(bare) || uids.iter().any(|uid| uid.replace('-', "") == bare)
}

fn is_hex(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Whether a text has the form of UIDs.
fn is_uid(text: &str) -> bool {
    text.split('-').map(str::len).eq([8, 4, 4, 4, 12]) && is_hex(&text.replace('-', ""))
}

/// The target of a route.
fn target(route: &Route, network_project: &str) -> Target<Hop> {
    if route.warnings.iter().any(|warning| warning.code == MISSING) {
        return Target::Blackhole(None);
    }
    let instance = ResourceId::parse(&route.next_hop_instance);
    match instance {
        Some(ResourceId { scope: Scope::Zone(zone), name, .. }) => Target::Hop(Hop { zone: zone.to_string(), name }),
        _ => Target::Foreign(format!("the hop of route {:?} in project {network_project}", route.name)),
    }
}

#[async_trait]
impl RouteTable for NetworkRoutes {
    type Id = Context;
    type Hop = Hop;
    type Facts = String;
    type Write = Writes;
    const NO_HOP: &'static str =
        "has neither a provider ID gce://<project>/<zone>/<instance> nor a label with its zone";

    async fn read(
        &self,
        cluster: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<Context, Hop>, ProviderError> {
        let routes = self.list(cluster).get(max_age, not_before).await?.value;
        let prefix = prefix(cluster);
        let uids = self.known_uids();
        let is_ours = |route: &&Route| {
            let rest = route.name.strip_prefix(&prefix);
            let is_named = rest.is_some_and(|rest| is_of_node(rest, &uids));
            // A filter can have one condition only, and the server's filtering is not relied on.
            is_named && route.description == DESCRIPTION && same_url(&route.network, &self.network)
        };
        let project = &self.client.links().network_project;
        let entry = |route: &Route| Entry {
            name: route.name.clone(),
            destination: route.dest_range.clone(),
            target: target(route, project),
        };
        let id = Context {
            cluster: cluster.into(),
            cluster_cidrs: self.cluster_cidrs.clone(),
            network: (&*self.network).into(),
            taken: Arc::new(routes.iter().map(|route| route.name.clone()).collect()),
        };
        Ok(Table { id, entries: routes.iter().filter(is_ours).map(entry).collect() })
    }

    /// The base of links to instances.
    async fn facts(
        &self,
        _wanted: &BTreeSet<Hop>,
        _in_the_way: &BTreeSet<Hop>,
        _not_before: Option<Instant>,
    ) -> Result<String, ProviderError> {
        let links = self.client.links();
        let link = links.of(Collection::Instances, &Scope::zone("-"), "-");
        Ok(link.strip_suffix("zones/-/instances/-").unwrap_or_default().to_owned())
    }

    async fn write(&self, writes: &Writes) -> Result<(), ProviderError> {
        for write in &writes.0 {
            match self.client.write(write).await {
                // An earlier attempt, or another process, made it.
                Err(error) if is_conflict(&error) && self.is_made(write).await? => {
                    tracing::info!(%write, %error, "exists already");
                }
                done => {
                    done?;
                    let mut made = self.made.lock();
                    made.retain(|name, (_, at)| at.elapsed() < SHOWN && *name != write.name);
                    if write.operation == ROUTE_CREATE {
                        made.insert(write.name.clone(), (write.body.clone(), Instant::now()));
                    }
                }
            }
        }
        Ok(())
    }

    fn hops(node: &Node) -> Vec<Hop> {
        let hop = match wanted(node) {
            Wanted::Instance(id) => Some(Hop { zone: id.zone, name: id.name }),
            Wanted::Name(name) => zone_of(node).map(|zone| Hop { zone, name }),
            Wanted::Never(_) => None,
        };
        hop.into_iter().collect()
    }

    /// The instance of a node without provider ID has its name.
    fn may_be(node: &Node, _: &str, hop: &Hop) -> bool {
        matches!(wanted(node), Wanted::Name(name) if name == hop.name)
            && zone_of(node).is_none_or(|zone| zone == hop.zone)
    }

    /// All entries belong to a cluster of this name, and no other cluster has these ranges.
    fn is_blackhole(context: &Context, destination: &IpNet) -> bool {
        context.cluster_cidrs.iter().any(|cidr| cidr.contains(destination))
    }

    fn create(
        context: &Context,
        base: &String,
        new: &NewRoute,
        destination: IpNet,
        hop: &Hop,
        old: Option<&Entry<Hop>>,
    ) -> Writes {
        let body = json!({
            "destRange": destination.to_string(), "nextHopInstance": format!("{base}{hop}"), "network": &*context.network,
            "priority": PRIORITY, "description": DESCRIPTION});
        let name = name(context, &new.name_hint, &destination);
        let create = Write::new(ROUTE_CREATE, Scope::Global, name).body(body);
        let removed = old.map(|old| Write::new(ROUTE_DELETE, Scope::Global, &*old.name));
        Writes(removed.into_iter().chain([create]).collect())
    }

    fn delete(_: &Context, entry: &Entry<Hop>) -> Writes {
        Writes(vec![Write::new(ROUTE_DELETE, Scope::Global, &*entry.name)])
    }
}
