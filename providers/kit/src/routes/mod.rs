//! Routes to the pods of nodes, in a table that is read as a whole.
//!
//! The cloud implements [`RouteTable`]: reading the table, the next hops of nodes, and the single writes.
//! [`PlannedRoutes`] is the same for every cloud: it plans each route from one read of the table ([`plan`], pure),
//! checks the plan, writes it, and reports the result.
//!
//! * A route whose target is not a node of this cluster is neither listed nor changed, unless its range belongs to the
//!   cluster ([`RouteTable::is_blackhole`]).
//! * A blackhole route is replaced when a node has its range. A node that is stopped keeps its route.
//! * Blackhole routes for the ranges of nodes of other clouds, or without a hop for the range, are left alone.
//! * A range may have several routes; each is listed and deleted separately.
//! * A deleted node whose instance still exists remains the target in the list, so that its routes can be deleted.
//! * A table that changed since it was listed is a conflict: the core lists it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{ErrorClass, NewRoute, Node, NodeName, NodeRef, ProviderError, Route, Routes, Scope, address};
use futures::StreamExt;
use ipnet::IpNet;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::Cluster;

pub mod plan;
#[cfg(test)]
mod tests;

pub use plan::{Observed, Step};

/// Maximum age of a cached table for planning. A table from before the last write is never used.
const TABLE_AGE: Duration = Duration::from_secs(5);

/// The target of a route.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<H> {
    /// A hop of the kind that nodes have.
    Hop(H),
    /// A stopped or deleted hop, if the cloud names it: a blackhole, unless a node has the hop.
    Blackhole(Option<H>),
    /// Any other target, described in words: a gateway, a peering. Such a route is never changed.
    Foreign(String),
}

/// A route of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<H> {
    /// The cloud's name for the route, for the list.
    pub name: String,
    /// The range, as the cloud spells it.
    pub destination: String,
    /// The target of the route.
    pub target: Target<H>,
}

/// The contents of a route table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<I, H> {
    /// The data about the table that writes need.
    pub id: I,
    /// All routes, including those of other owners.
    pub entries: Vec<Entry<H>>,
}

/// The route table of a cloud. Functions without `self` are pure.
#[async_trait]
pub trait RouteTable: Debug + Send + Sync + 'static {
    /// The data about the table that writes need; `()` if there is only one table.
    type Id: Clone + Debug + Send + Sync;
    /// The next hop of a node's route: an instance, or an address.
    type Hop: Clone + Ord + Debug + Display + Send + Sync;
    /// The data about hops that plans need.
    type Facts: Default + Debug + Send + Sync;
    /// One write call. Its text is logged.
    type Write: Clone + Debug + Display + Send + Sync;
    /// The reason why a node without a hop gets no route: "has no EC2 instance as its provider ID".
    const NO_HOP: &'static str;
    /// The number of routes that are written concurrently.
    const IN_FLIGHT: usize = 20;

    /// Reads the table. A cached read may be at most `max_age` old and must have begun after `not_before`, the last
    /// write.
    ///
    /// # Errors
    ///
    /// The table could not be read, or it is ambiguous which one it is.
    async fn read(
        &self,
        cluster: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<Self::Id, Self::Hop>, ProviderError>;

    /// Maximum age of the table that is listed; one from before the last write never is.
    fn list_age(&self) -> Duration {
        Duration::ZERO
    }

    /// The nodes, with the addresses that these new routes need and the Nodes do not show.
    async fn complete(&self, nodes: Vec<NodeRef>, _routes: &[NewRoute]) -> Vec<NodeRef> {
        nodes
    }

    /// Reads the data about the hops of new routes (`_wanted`), and about the hops without a node to which existing
    /// routes for the same ranges lead (`_in_the_way`).
    ///
    /// # Errors
    ///
    /// A hop could not be read.
    async fn facts(
        &self,
        _wanted: &BTreeSet<Self::Hop>,
        _in_the_way: &BTreeSet<Self::Hop>,
        _not_before: Option<Instant>,
    ) -> Result<Self::Facts, ProviderError> {
        Ok(Self::Facts::default())
    }

    /// Sends one write. Up to [`RouteTable::IN_FLIGHT`] are sent concurrently; a cloud that writes its table as a whole
    /// joins them with a [`crate::Batcher`].
    ///
    /// # Errors
    ///
    /// The write failed. Deleting a route that no longer exists is not an error.
    async fn write(&self, write: &Self::Write) -> Result<(), ProviderError>;

    /// The hops of a node.
    fn hops(node: &Node) -> Vec<Self::Hop>;

    /// Hops that also belong to the node but are not used for new routes.
    fn other_hops(_node: &Node) -> Vec<Self::Hop> {
        Vec::new()
    }

    /// Whether the route of this name, to a hop without a node, may be that of this node, which has no hop for the range
    /// yet. No new route gets this hop.
    fn may_be(_node: &Node, _name: &str, _hop: &Self::Hop) -> bool {
        false
    }

    /// Whether a node belongs to another cloud or region: its routes may lead to any hop.
    fn is_elsewhere(_id: &Self::Id, _node: &Node) -> bool {
        false
    }

    /// The hop to use for a range.
    fn hop<'a>(hops: &'a [Self::Hop], _destination: &IpNet) -> Option<&'a Self::Hop> {
        hops.first()
    }

    /// The error for a new route to a node without a suitable hop; `is_new`: the node has no hop at all. On a conflict,
    /// the core lists the routes again before it reports anything.
    fn no_hop(message: String, _is_new: bool) -> ProviderError {
        ProviderError::new(ErrorClass::Conflict, message)
    }

    /// Whether a route for this range whose hop belongs to no node is a blackhole. If not, the route has another owner.
    fn is_blackhole(_id: &Self::Id, _destination: &IpNet) -> bool {
        false
    }

    /// Whether a hop of `_in_the_way` exists and does not belong to this cluster.
    fn is_foreign(_facts: &Self::Facts, _hop: &Self::Hop) -> bool {
        false
    }

    /// The writes, with reasons, that must precede the first route to a hop.
    ///
    /// # Errors
    ///
    /// No route to the hop is possible.
    fn prepare(
        _facts: &Self::Facts,
        _node: &NodeName,
        _hop: &Self::Hop,
    ) -> Result<Vec<(Self::Write, String)>, ProviderError> {
        Ok(Vec::new())
    }

    /// Creates a route; `old` is the route that it replaces, whose hop belongs to no node.
    fn create(
        id: &Self::Id,
        facts: &Self::Facts,
        new: &NewRoute,
        destination: IpNet,
        hop: &Self::Hop,
        old: Option<&Entry<Self::Hop>>,
    ) -> Self::Write;

    /// Deletes a route.
    fn delete(id: &Self::Id, entry: &Entry<Self::Hop>) -> Self::Write;

    /// Deletes a route to a hop that belongs to no node.
    fn delete_stray(id: &Self::Id, entry: &Entry<Self::Hop>) -> Self::Write {
        Self::delete(id, entry)
    }
}

/// Implements [`Routes`] for the route table of a cloud.
#[derive(Debug)]
pub struct PlannedRoutes<T: RouteTable> {
    table: T,
    cluster: Cluster,
    memory: Mutex<Memory<T::Hop>>,
}

#[derive(Debug)]
struct Memory<H> {
    // The last known node of each hop that a route leads to.
    former: BTreeMap<H, NodeName>,
    last_write: Option<Instant>,
}

impl<T: RouteTable> PlannedRoutes<T> {
    /// Routes in `table` to the nodes of the cluster.
    pub fn new(table: T, cluster: Cluster) -> Self {
        let memory = Memory { former: BTreeMap::new(), last_write: None };
        Self { table, cluster, memory: Mutex::new(memory) }
    }

    /// Reads the current table.
    ///
    /// # Errors
    ///
    /// The table could not be read.
    pub async fn table(&self, cluster: &str) -> Result<Table<T::Id, T::Hop>, ProviderError> {
        let last_write = self.memory.lock().last_write;
        self.table.read(cluster, Duration::ZERO, last_write).await
    }

    /// Reads the table and the nodes.
    ///
    /// # Errors
    ///
    /// The table could not be read.
    pub async fn observe(&self, cluster: &str, max_age: Duration) -> Result<Observed<T>, ProviderError> {
        self.observe_with(cluster, max_age, &[]).await
    }

    async fn observe_with(
        &self,
        cluster: &str,
        max_age: Duration,
        routes: &[NewRoute],
    ) -> Result<Observed<T>, ProviderError> {
        let nodes = self.cluster.nodes().ok_or_else(|| ProviderError::bug("routes were asked for before the start"))?;
        let last_write = self.memory.lock().last_write;
        let table = self.table.read(cluster, max_age, last_write).await?;
        let nodes = self.table.complete(nodes.list(), routes).await;
        let observed = Observed::new(table, &nodes, &self.memory.lock().former);
        self.memory.lock().former.clone_from(&observed.former);
        Ok(observed)
    }

    /// Like [`PlannedRoutes::observe`], with the data about hops that these new routes need.
    ///
    /// # Errors
    ///
    /// The table or a hop could not be read.
    pub async fn observe_for(&self, cluster: &str, routes: &[NewRoute]) -> Result<Observed<T>, ProviderError> {
        let mut observed = self.observe_with(cluster, TABLE_AGE, routes).await?;
        let wanted = routes.iter().filter_map(|new| observed.hop(&new.route).cloned()).collect();
        let in_the_way = routes.iter().flat_map(|new| observed.in_the_way(&new.route)).cloned().collect();
        let last_write = self.memory.lock().last_write;
        observed.facts = self.table.facts(&wanted, &in_the_way, last_write).await?;
        Ok(observed)
    }

    /// Executes the plan of each route; returns one result per plan, in order. No write begins after a shutdown has begun.
    async fn apply(
        &self,
        plans: Vec<Result<Vec<Step<T::Write>>, ProviderError>>,
        observed: &Observed<T>,
        scope: &Scope,
    ) -> Vec<Result<(), ProviderError>> {
        let execute = |plan: Result<Vec<Step<T::Write>>, ProviderError>| async move {
            let steps = plan?;
            observed.guard(&steps)?;
            for step in &steps {
                scope.may_write()?;
                tracing::info!(step = %step, "route");
                let answer = self.table.write(&step.write).await;
                self.memory.lock().last_write = Some(Instant::now());
                answer?;
            }
            Ok(())
        };
        let run = |(place, plan)| async move {
            let answer = execute(plan).await;
            scope.answer(place, &answer);
            (place, answer)
        };
        let mut answers = BTreeMap::new();
        let mut running = futures::stream::iter(plans.into_iter().enumerate().map(run)).buffer_unordered(T::IN_FLIGHT);
        while let Some((place, answer)) = running.next().await {
            answers.insert(place, answer);
        }
        answers.into_values().collect()
    }
}

#[async_trait]
impl<T: RouteTable> Routes for PlannedRoutes<T> {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(self.observe(cluster, self.table.list_age()).await?.routes())
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        self.create_in(cluster, routes, &Scope::default()).await
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        self.delete_in(cluster, routes, &Scope::default()).await
    }

    async fn create_in(&self, cluster: &str, routes: &[NewRoute], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        match self.observe_for(cluster, routes).await {
            Ok(observed) => self.apply(observed.create_all(routes), &observed, scope).await,
            Err(error) => vec![Err(error); routes.len()],
        }
    }

    async fn delete_in(&self, cluster: &str, routes: &[Route], scope: &Scope) -> Vec<Result<(), ProviderError>> {
        match self.observe(cluster, TABLE_AGE).await {
            Ok(observed) => {
                let plans = routes.iter().map(|route| observed.delete(route)).collect();
                self.apply(plans, &observed, scope).await
            }
            Err(error) => vec![Err(error); routes.len()],
        }
    }
}

/// The range of a route.
fn range(route: &Route) -> Option<IpNet> {
    address::parse_cidr(&route.destination_cidr)
}
