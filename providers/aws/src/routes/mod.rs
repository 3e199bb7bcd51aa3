//! Routes to the pods of each node, in one route table of the VPC.
//!
//! Upstream: `pkg/providers/v1/aws_routes.go`. Here the table is read once for all routes of a reconcile, and the instances
//! are looked up together; what is to be done is planned from that ([`plan`], pure) and then written.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::{Cached, Interrupted};
use ccm_provider::{ErrorClass, NewRoute, NodeName, ProviderError, Route, Routes};
use futures::{FutureExt, StreamExt};
use tokio::time::Instant;

use crate::client::ec2::RouteTable;
use crate::client::operation::{Operation, Service};
use crate::client::write::Ec2Write;
use crate::client::{Answer, Api, ApiError, FILTER_VALUES, Query, Write};
use crate::node::fleet::{Fleet, instance_of};
use crate::node::identity::InstanceId;
use crate::ownership::{LEGACY_KEY, Ownership};
use crate::start::cluster::Cluster;

mod plan;
#[cfg(all(test, feature = "sdk"))]
mod tests;

use plan::{Observed, Step};
pub(crate) use plan::{leads_nowhere, only_table};

/// A table this young is planned with, unless it was written to since.
const TABLE_AGE: Duration = Duration::from_secs(5);
/// The same for what is known of instances: their state and interfaces.
const INSTANCE_AGE: Duration = Duration::from_secs(30);
/// Routes that are written side by side.
const IN_FLIGHT: usize = 20;

/// What is to be known of the configuration.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) vpc: String,
    /// `RouteTableID`; else the table with the mark of the cluster.
    pub(crate) table: Option<String>,
    pub(crate) ownership: Ownership,
}

/// A VPC route table behind [`Routes`].
#[derive(Debug)]
pub(crate) struct VpcRoutes {
    settings: Settings,
    api: Arc<dyn Api>,
    fleet: Fleet,
    cluster: Cluster,
    tables: Cached<Vec<RouteTable>, ApiError>,
    memory: Mutex<Memory>,
}

#[derive(Debug, Default)]
struct Memory {
    // The nodes that the instances of routes had when they were last seen to have one.
    former: BTreeMap<InstanceId, NodeName>,
    last_write: Option<Instant>,
}

impl VpcRoutes {
    pub(crate) fn new(settings: Settings, api: Arc<dyn Api>, fleet: Fleet, cluster: Cluster) -> Self {
        let (reader, wanted) = (api.clone(), settings.clone());
        let read = move || {
            let (api, settings) = (reader.clone(), wanted.clone());
            async move { tables(&*api, &settings).await }.boxed()
        };
        let tables = Cached::new(read, interrupted as fn(Interrupted) -> ApiError);
        Self { settings, api, fleet, cluster, tables, memory: Mutex::default() }
    }

    /// The table and the nodes, without instances.
    async fn observe(&self, cluster: &str, max_age: Duration) -> Result<Observed, ProviderError> {
        let nodes = self.cluster.nodes().ok_or_else(|| ProviderError::bug("routes were asked for before the start"))?;
        let last_write = self.memory().last_write;
        let tables = self.tables.get(max_age, last_write).await?;
        let table = only_table(&tables.value, cluster, &self.settings)?;
        let pairs = nodes.list().into_iter().filter_map(|node| Some((instance_of(&node)?, node.name.clone())));
        let observed = Observed::new(table, pairs, &self.memory().former);
        self.memory().former.clone_from(&observed.former);
        Ok(observed)
    }

    /// Adds what is known of the instances of the nodes, and of those whose routes are in the way.
    async fn observe_instances(&self, observed: &mut Observed, routes: &[NewRoute]) -> Result<(), ProviderError> {
        let wanted: BTreeSet<InstanceId> = routes.iter().filter_map(|new| observed.instance(&new.route)).collect();
        let in_the_way: BTreeSet<InstanceId> =
            routes.iter().filter_map(|new| observed.in_the_way(&new.route)).collect();
        let last_write = self.memory().last_write;
        observed.members = self.fleet.get(&wanted, INSTANCE_AGE, last_write).await?;
        let in_the_way: Vec<&str> = in_the_way.iter().map(InstanceId::as_str).collect();
        for some in in_the_way.chunks(FILTER_VALUES) {
            let strangers = self.api.instances(&Query::by("instance-id", some.iter().copied())).await?;
            let live = strangers.into_iter().filter(|instance| instance.state.as_deref() != Some("terminated"));
            let unmarked = live.filter(|instance| !self.settings.ownership.is_member(&instance.tags));
            observed.strangers.extend(unmarked.filter_map(|instance| InstanceId::parse(&instance.id)));
        }
        Ok(())
    }

    /// Writes the plan of each route; one answer per plan.
    async fn apply(
        &self,
        plans: Vec<Result<Vec<Step>, ProviderError>>,
        observed: &Observed,
    ) -> Vec<Result<(), ProviderError>> {
        let run = |plan: Result<Vec<Step>, ProviderError>| async move {
            let steps = plan?;
            plan::guard(observed, &steps)?;
            for step in &steps {
                self.step(step).await?;
            }
            Ok(())
        };
        let mut answers = Vec::with_capacity(plans.len());
        let mut running = futures::stream::iter(plans.into_iter().map(run)).buffered(IN_FLIGHT);
        while let Some(answer) = running.next().await {
            answers.push(answer);
        }
        answers
    }

    async fn step(&self, step: &Step) -> Result<(), ProviderError> {
        tracing::info!(step = %step, "route");
        let answer = self.api.write(&Write::Ec2(step.write.clone())).await;
        self.memory().last_write = Some(Instant::now());
        match answer {
            Ok(_) => {}
            Err(error)
                if matches!(step.write, Ec2Write::DeleteRoute { .. }) && error.is(&["InvalidRoute.NotFound"]) => {}
            Err(error) => return Err(error.into()),
        }
        if let Some(instance) = &step.changes_instance {
            self.fleet.forget(instance);
        }
        Ok(())
    }

    fn memory(&self) -> MutexGuard<'_, Memory> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl Routes for VpcRoutes {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        let observed = self.observe(cluster, Duration::ZERO).await?;
        Ok(observed.routes(cluster))
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        let observed = async {
            let mut observed = self.observe(cluster, TABLE_AGE).await?;
            self.observe_instances(&mut observed, routes).await?;
            Ok(observed)
        };
        match observed.await {
            Ok(observed) => self.apply(plan::create_all(&observed, routes), &observed).await,
            Err(error) => for_all(routes.len(), &error),
        }
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        match self.observe(cluster, TABLE_AGE).await {
            Ok(observed) => {
                let plans = routes.iter().map(|route| plan::delete(&observed, route)).collect();
                self.apply(plans, &observed).await
            }
            Err(error) => for_all(routes.len(), &error),
        }
    }
}

fn for_all(count: usize, error: &ProviderError) -> Vec<Result<(), ProviderError>> {
    std::iter::repeat_n(error, count).map(|error| Err(error.clone())).collect()
}

/// The write that removes a route which leads nowhere; none when the table has it no more.
///
/// # Errors
///
/// It leads somewhere by now.
pub(crate) fn removal(table: &RouteTable, destination: &str) -> Result<Option<Ec2Write>, ProviderError> {
    let observed = Observed::new(table, std::iter::empty(), &BTreeMap::new());
    let route = Route { destination_cidr: destination.to_owned(), blackhole: true, ..Route::default() };
    let steps = plan::delete(&observed, &route)?;
    plan::guard(&observed, &steps)?;
    Ok(steps.into_iter().map(|step| step.write).next())
}

/// The tables that may be meant.
pub(crate) async fn tables(api: &dyn Api, settings: &Settings) -> Answer<Vec<RouteTable>> {
    if let Some(id) = &settings.table {
        return api.route_tables(&Query::by("route-table-id", [id])).await;
    }
    let of_vpc = Query::by("vpc-id", [&settings.vpc]);
    let Some(key) = settings.ownership.cluster_key() else { return api.route_tables(&of_vpc).await };
    let marked = api.route_tables(&of_vpc.clone().and("tag-key", [key])).await?;
    if !marked.is_empty() && !settings.ownership.legacy {
        return Ok(marked);
    }
    let legacy = api.route_tables(&of_vpc.and(&format!("tag:{LEGACY_KEY}"), [&settings.ownership.cluster])).await?;
    let by_id: BTreeMap<String, RouteTable> =
        marked.into_iter().chain(legacy).map(|table| (table.id.clone(), table)).collect();
    Ok(by_id.into_values().collect())
}

fn interrupted(how: Interrupted) -> ApiError {
    ApiError::interrupted(Operation::new(Service::Ec2, "DescribeRouteTables"), how)
}

/// "Look again, then decide."
fn changed(message: String) -> ProviderError {
    ProviderError::new(ErrorClass::Conflict, message)
}
