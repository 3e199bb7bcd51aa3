//! Routes to the pods of nodes, in a table that is read whole.
//!
//! The cloud supplies a [`RouteTable`]: how the table is read, which hops nodes have, and the single writes. [`PlannedRoutes`]
//! does the rest, the same for every cloud: it plans each route from one read of the table ([`plan`], pure), checks the plan,
//! writes it, and reports what became of it.
//!
//! * A route that leads elsewhere than to a node of this cluster is neither listed nor changed, unless the cloud says that its
//!   range is the cluster's ([`RouteTable::leads_nowhere`]).
//! * A route that leads nowhere is replaced when a node has its range.
//! * A range may have several routes; each is listed and removed by itself.
//! * A node that is deleted while its instance lives keeps its name in the list, so that its routes can be removed.
//! * A table that changed since it was listed is a conflict: the core lists it again.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::{Debug, Display};
use std::sync::Mutex;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{ErrorClass, NewRoute, Node, NodeName, ProviderError, Route, Routes, address};
use futures::StreamExt;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::Cluster;
use crate::lock::lock;

pub mod plan;
#[cfg(test)]
mod tests;

pub use plan::{Observed, Step};

/// A table this young is planned with, unless it was written to since.
const TABLE_AGE: Duration = Duration::from_secs(5);

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target<H> {
    /// To a hop of the kind that nodes have.
    Hop(H),
    /// To a hop that is stopped or gone.
    Nowhere,
    /// To anything else, in words: a gateway, a peering. Such a route is never changed.
    Foreign(String),
}

/// A route of the table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<H> {
    /// The cloud's name of the route, for the list.
    pub name: String,
    /// The range, as the cloud spells it.
    pub destination: String,
    /// Where it leads.
    pub target: Target<H>,
}

/// A table as read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table<I, H> {
    /// What writes need to know of the table.
    pub id: I,
    /// All routes, also those of others.
    pub entries: Vec<Entry<H>>,
}

/// The route table of a cloud. Functions without `self` are pure.
#[async_trait]
pub trait RouteTable: Debug + Send + Sync + 'static {
    /// What writes need to know of the table; `()` where there is only one.
    type Id: Clone + Debug + Send + Sync;
    /// What the route of a node leads to: an instance, or an address.
    type Hop: Clone + Ord + Debug + Display + Send + Sync;
    /// What was read of hops.
    type Facts: Default + Debug + Send + Sync;
    /// One call. Its text goes to the log.
    type Write: Clone + Debug + Display + Send + Sync;
    /// Why no route can lead to a node without a hop: "has no EC2 instance as its provider ID".
    const NO_HOP: &'static str;
    /// Routes that are written at the same time.
    const IN_FLIGHT: usize = 20;

    /// Reads the table, at most `max_age` ago and not before `not_before`, the time of the last write to it.
    ///
    /// # Errors
    ///
    /// The table could not be read, or it is not clear which one it is.
    async fn read(
        &self,
        cluster: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<Self::Id, Self::Hop>, ProviderError>;

    /// Reads what is needed of the hops of new routes, and of the hops that the table leads their ranges to now and that are
    /// those of no node.
    ///
    /// # Errors
    ///
    /// Something could not be read.
    async fn facts(
        &self,
        wanted: &BTreeSet<Self::Hop>,
        in_the_way: &BTreeSet<Self::Hop>,
        not_before: Option<Instant>,
    ) -> Result<Self::Facts, ProviderError>;

    /// Sends one write. Up to [`RouteTable::IN_FLIGHT`] are sent at the same time: a cloud that writes its table whole joins them
    /// with a [`crate::Batcher`].
    ///
    /// # Errors
    ///
    /// The write failed. A route that is gone already is no error of its deletion.
    async fn write(&self, write: &Self::Write) -> Result<(), ProviderError>;

    /// The hops of a node.
    fn hops(node: &Node) -> Vec<Self::Hop>;

    /// Hops that lead to the node, too, but that no new route gets.
    fn other_hops(_node: &Node) -> Vec<Self::Hop> {
        Vec::new()
    }

    /// The hop for a range.
    fn hop<'a>(hops: &'a [Self::Hop], _destination: &IpNet) -> Option<&'a Self::Hop> {
        hops.first()
    }

    /// The error of a new route to a node without a hop for it; `is_new`: the node has no hop at all. On a conflict the core lists
    /// the routes again before it reports anything.
    fn no_hop(message: String, _is_new: bool) -> ProviderError {
        ProviderError::new(ErrorClass::Conflict, message)
    }

    /// Whether a route of this range leads nowhere if no node has its hop. If not, it belongs to somebody else.
    fn leads_nowhere(_id: &Self::Id, _destination: &IpNet) -> bool {
        false
    }

    /// Whether a hop that is in the way exists and does not belong to this cluster.
    fn is_stranger(facts: &Self::Facts, hop: &Self::Hop) -> bool;

    /// What must be written before the first route to a hop, with the reason.
    ///
    /// # Errors
    ///
    /// No route can lead to the hop.
    fn prepare(
        facts: &Self::Facts,
        node: &NodeName,
        hop: &Self::Hop,
    ) -> Result<Vec<(Self::Write, String)>, ProviderError>;

    /// The creation of a route; `old` is the route that it replaces.
    fn create(
        id: &Self::Id,
        facts: &Self::Facts,
        new: &NewRoute,
        destination: IpNet,
        hop: &Self::Hop,
        old: Option<&Entry<Self::Hop>>,
    ) -> Self::Write;

    /// The deletion of a route.
    fn delete(id: &Self::Id, entry: &Entry<Self::Hop>) -> Self::Write;
}

/// [`Routes`] over the table of a cloud.
#[derive(Debug)]
pub struct PlannedRoutes<T: RouteTable> {
    table: T,
    cluster: Cluster,
    memory: Mutex<Memory<T::Hop>>,
}

#[derive(Debug)]
struct Memory<H> {
    // The nodes that the hops of routes had when they were last seen to have one.
    former: BTreeMap<H, NodeName>,
    last_write: Option<Instant>,
}

impl<T: RouteTable> PlannedRoutes<T> {
    /// Routes in this table, to the nodes of the cluster.
    pub fn new(table: T, cluster: Cluster) -> Self {
        let memory = Memory { former: BTreeMap::new(), last_write: None };
        Self { table, cluster, memory: Mutex::new(memory) }
    }

    /// The table as it is now.
    ///
    /// # Errors
    ///
    /// It could not be read.
    pub async fn table(&self, cluster: &str) -> Result<Table<T::Id, T::Hop>, ProviderError> {
        let last_write = lock(&self.memory).last_write;
        self.table.read(cluster, Duration::ZERO, last_write).await
    }

    /// The table and the nodes.
    ///
    /// # Errors
    ///
    /// The table could not be read.
    pub async fn observe(&self, cluster: &str, max_age: Duration) -> Result<Observed<T>, ProviderError> {
        let nodes = self.cluster.nodes().ok_or_else(|| ProviderError::bug("routes were asked for before the start"))?;
        let last_write = lock(&self.memory).last_write;
        let table = self.table.read(cluster, max_age, last_write).await?;
        let observed = Observed::new(table, &nodes.list(), &lock(&self.memory).former);
        lock(&self.memory).former.clone_from(&observed.former);
        Ok(observed)
    }

    /// The same with what is needed for these new routes.
    ///
    /// # Errors
    ///
    /// The table or a hop could not be read.
    pub async fn observe_for(&self, cluster: &str, routes: &[NewRoute]) -> Result<Observed<T>, ProviderError> {
        let mut observed = self.observe(cluster, TABLE_AGE).await?;
        let wanted = routes.iter().filter_map(|new| observed.hop(&new.route).cloned()).collect();
        let in_the_way = routes.iter().flat_map(|new| observed.in_the_way(&new.route)).cloned().collect();
        let last_write = lock(&self.memory).last_write;
        observed.facts = self.table.facts(&wanted, &in_the_way, last_write).await?;
        Ok(observed)
    }

    /// Writes the plan of each route; one answer per plan.
    async fn apply(
        &self,
        plans: Vec<Result<Vec<Step<T::Write>>, ProviderError>>,
        observed: &Observed<T>,
    ) -> Vec<Result<(), ProviderError>> {
        let run = |plan: Result<Vec<Step<T::Write>>, ProviderError>| async move {
            let steps = plan?;
            observed.guard(&steps)?;
            for step in &steps {
                tracing::info!(step = %step, "route");
                let answer = self.table.write(&step.write).await;
                lock(&self.memory).last_write = Some(Instant::now());
                answer?;
            }
            Ok(())
        };
        let mut answers = Vec::with_capacity(plans.len());
        let mut running = futures::stream::iter(plans.into_iter().map(run)).buffered(T::IN_FLIGHT);
        while let Some(answer) = running.next().await {
            answers.push(answer);
        }
        answers
    }
}

#[async_trait]
impl<T: RouteTable> Routes for PlannedRoutes<T> {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        Ok(self.observe(cluster, Duration::ZERO).await?.routes())
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        match self.observe_for(cluster, routes).await {
            Ok(observed) => self.apply(observed.create_all(routes), &observed).await,
            Err(error) => vec![Err(error); routes.len()],
        }
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        match self.observe(cluster, TABLE_AGE).await {
            Ok(observed) => self.apply(routes.iter().map(|route| observed.delete(route)).collect(), &observed).await,
            Err(error) => vec![Err(error); routes.len()],
        }
    }
}

/// The range of a route.
fn range(route: &Route) -> Option<IpNet> {
    address::parse_cidr(&route.destination_cidr)
}
