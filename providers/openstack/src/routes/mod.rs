//! Routes to the pods of each node, in one router.
//!
//! Upstream: `pkg/openstack/routes.go`, up to five calls per route. Here the router is read once for all routes of a
//! reconcile ([`PlannedRoutes`] plans from that), and concurrent writes are combined into one per router and per port
//! ([`extra_routes`], [`pairs`]).
//!
//! A port must be allowed to forward a range before a route points to it: address pairs are written first, so that a
//! route whose pair is rejected is never created. Pairs are also removed first: a route still listed is removed again.
//! With a route to an address of no node, no pair is removed: the port is not one of this cluster, or the node may have
//! the range by another address of the port.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::routes::{Entry, RouteTable, Table, Target};
use ccm_kit::{Batcher, Cached, Interrupted, Limits, PlannedRoutes};
use ccm_provider::address::{parse_cidr, parse_ip};
use ccm_provider::deadline::WRITE_DEADLINE;
use ccm_provider::{AddressType, ErrorClass, NewRoute, Node, NodeAddress, ProviderError};
use futures::FutureExt;
use ipnet::IpNet;
use tokio::time::Instant;

use self::extra_routes::ExtraRoutes;
use self::pairs::Pairs;
use crate::client::network::{ExtraRoute, Router};
use crate::client::operation::ROUTER_GET;
use crate::client::{ApiError, Client};
use crate::node::identity::Identity;

mod extra_routes;
mod pairs;
#[cfg(test)]
mod tests;

/// Maximum number of combined writes; more than any router may have.
const AT_ONCE: usize = 10_000;
/// Retry interval for a node without addresses.
const NEW_NODE: Duration = Duration::from_secs(10);

/// The routes of a router.
pub(crate) type RouterRoutes = PlannedRoutes<RouterTable>;

/// The settings from the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    /// `[Route] router-id`
    pub(crate) router: String,
    /// `--cluster-cidr`: a route in it to an address of no node belongs to a former node.
    pub(crate) cluster_cidrs: Vec<IpNet>,
    pub(crate) identity: Identity,
    pub(crate) extensions: Extensions,
}

/// The extensions of Neutron.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Extensions {
    /// Routes are added and removed without rewriting the others.
    pub(crate) is_atomic: bool,
    /// Ports drop packets whose source is neither their own address nor an allowed one.
    pub(crate) has_pairs: bool,
}

impl Extensions {
    /// `None`: routers have no extra routes.
    pub(crate) fn of(aliases: &[String]) -> Option<Self> {
        let has = |alias: &str| aliases.iter().any(|present| present == alias);
        let is_atomic = has("extraroute-atomic");
        (is_atomic || has("extraroute")).then(|| Self { is_atomic, has_pairs: has("allowed-address-pairs") })
    }
}

/// A router.
#[derive(Debug)]
pub(crate) struct RouterTable {
    settings: Arc<Settings>,
    routers: Cached<Router, ApiError>,
    routes: Batcher<ExtraRoutes>,
    /// `None`: the cloud has no allowed address pairs.
    pairs: Option<Batcher<Pairs>>,
}

/// A write of routes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RouteWrite {
    Add(ExtraRoute),
    Remove(ExtraRoute),
    /// A route to an address of no node.
    RemoveStray(ExtraRoute),
    /// The old route leads to an address of no node.
    Replace {
        old: ExtraRoute,
        new: ExtraRoute,
    },
}

impl fmt::Display for RouteWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Add(new) => write!(f, "add {}", text(new)),
            Self::Remove(old) | Self::RemoveStray(old) => write!(f, "remove {}", text(old)),
            Self::Replace { old, new } => write!(f, "remove {}, add {}", text(old), text(new)),
        }
    }
}

fn text(route: &ExtraRoute) -> String {
    format!("{} via {}", route.destination, route.nexthop)
}

/// A change of a route, or of its address pair. Removals sort first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Change {
    is_added: bool,
    route: ExtraRoute,
}

impl RouterTable {
    pub(crate) fn new(settings: Settings, client: &Client) -> Self {
        let Settings { router, extensions, .. } = settings.clone();
        let (reader, id) = (client.clone(), router.clone());
        let read = move || {
            let (client, id) = (reader.clone(), id.clone());
            async move { client.router(&id).await }.boxed()
        };
        // Writing the ports of a large cluster takes a while.
        let limits = Limits { deadline: WRITE_DEADLINE, ..Limits::of(AT_ONCE) };
        let pairs = extensions.has_pairs.then(|| Pairs::new(client.clone(), router.clone()));
        let routes = ExtraRoutes::new(client.clone(), router, extensions.is_atomic);
        Self {
            settings: settings.into(),
            routers: Cached::new(read, interrupted as fn(Interrupted) -> ApiError),
            routes: Batcher::new(routes, limits),
            pairs: pairs.map(|pairs| Batcher::new(pairs, limits)),
        }
    }

    async fn add(&self, route: &ExtraRoute) -> Result<(), ProviderError> {
        let change = Change { is_added: true, route: route.clone() };
        self.change_pair(change.clone()).await?;
        self.change_route(change).await
    }

    async fn remove(&self, route: &ExtraRoute) -> Result<(), ProviderError> {
        match self.change_pair(Change { is_added: false, route: route.clone() }).await {
            // A pair that may not be changed was not created by this program.
            Err(error) if matches!(error.class(), ErrorClass::Denied { .. }) => {
                tracing::warn!(%error, "an allowed address pair is left");
            }
            answer => answer?,
        }
        self.remove_stray(route).await
    }

    async fn remove_stray(&self, route: &ExtraRoute) -> Result<(), ProviderError> {
        self.change_route(Change { is_added: false, route: route.clone() }).await
    }

    async fn change_pair(&self, change: Change) -> Result<(), ProviderError> {
        match &self.pairs {
            Some(pairs) => answer(pairs.ask_one(change).await?),
            None => Ok(()),
        }
    }

    async fn change_route(&self, change: Change) -> Result<(), ProviderError> {
        answer(self.routes.ask_one(change).await?)
    }
}

fn answer(answer: Option<Result<(), ProviderError>>) -> Result<(), ProviderError> {
    answer.unwrap_or_else(|| Err(ProviderError::bug("a change of routes was not written")))
}

/// The routes of a router.
pub(crate) fn entries(routes: &[ExtraRoute], cluster_cidrs: &[IpNet]) -> Vec<Entry<IpAddr>> {
    routes.iter().filter_map(|route| entry(route, cluster_cidrs)).collect()
}

/// A route as read. One that covers more than the cluster's range is foreign.
fn entry(route: &ExtraRoute, cluster_cidrs: &[IpNet]) -> Option<Entry<IpAddr>> {
    let (range, hop) = (parse_cidr(&route.destination)?, parse_ip(&route.nexthop)?);
    let is_wider = cluster_cidrs.iter().any(|cluster| range.contains(cluster) && range != *cluster);
    let target = if is_wider { Target::Foreign(route.nexthop.clone()) } else { Target::Hop(hop) };
    Some(Entry { name: route.destination.clone(), destination: route.destination.clone(), target })
}

/// A route as written.
fn extra_route(entry: &Entry<IpAddr>) -> ExtraRoute {
    let nexthop = match &entry.target {
        Target::Hop(hop) => hop.to_string(),
        Target::Foreign(nexthop) => nexthop.clone(),
        Target::Blackhole(_) => String::new(),
    };
    ExtraRoute { destination: entry.destination.clone(), nexthop }
}

fn interrupted(how: Interrupted) -> ApiError {
    ApiError::interrupted(ROUTER_GET, how)
}

#[async_trait]
impl RouteTable for RouterTable {
    type Id = Arc<Settings>;
    type Hop = IpAddr;
    type Facts = ();
    type Write = RouteWrite;
    const NO_HOP: &'static str = "has no internal IP address of the family (no address found for host)";
    const IN_FLIGHT: usize = AT_ONCE;

    async fn read(
        &self,
        _: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<Self::Id, IpAddr>, ProviderError> {
        let router = self.routers.get(max_age, not_before).await?;
        let entries = entries(&router.value.routes, &self.settings.cluster_cidrs);
        Ok(Table { id: self.settings.clone(), entries })
    }

    async fn write(&self, write: &RouteWrite) -> Result<(), ProviderError> {
        match write {
            RouteWrite::Add(new) => self.add(new).await,
            RouteWrite::Remove(old) => self.remove(old).await,
            RouteWrite::RemoveStray(old) => self.remove_stray(old).await,
            RouteWrite::Replace { old, new } => {
                self.remove_stray(old).await?;
                self.add(new).await
            }
        }
    }

    fn hops(node: &Node) -> Vec<IpAddr> {
        let internal = node.addresses.iter().filter(|address| address.kind == AddressType::InternalIp);
        internal.filter_map(NodeAddress::ip).collect()
    }

    /// A route to any address of a node belongs to the node.
    fn other_hops(node: &Node) -> Vec<IpAddr> {
        let others = node.addresses.iter().filter(|address| address.kind != AddressType::InternalIp);
        others.filter_map(NodeAddress::ip).collect()
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

    fn is_elsewhere(settings: &Self::Id, node: &Node) -> bool {
        settings.identity.is_elsewhere(node)
    }

    fn is_blackhole(settings: &Self::Id, destination: &IpNet) -> bool {
        settings.cluster_cidrs.iter().any(|range| range.contains(destination))
    }

    fn create(
        _: &Self::Id,
        (): &(),
        _: &NewRoute,
        range: IpNet,
        hop: &IpAddr,
        old: Option<&Entry<IpAddr>>,
    ) -> RouteWrite {
        let new = ExtraRoute { destination: range.to_string(), nexthop: hop.to_string() };
        match old {
            Some(old) => RouteWrite::Replace { old: extra_route(old), new },
            None => RouteWrite::Add(new),
        }
    }

    fn delete(_: &Self::Id, entry: &Entry<IpAddr>) -> RouteWrite {
        RouteWrite::Remove(extra_route(entry))
    }

    fn delete_stray(_: &Self::Id, entry: &Entry<IpAddr>) -> RouteWrite {
        RouteWrite::RemoveStray(extra_route(entry))
    }
}
