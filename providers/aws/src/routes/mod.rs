//! Routes to the pods of each node, in one route table of the VPC.
//!
//! Upstream: `pkg/providers/v1/aws_routes.go`. Here the table is read once for all routes of a reconcile, and the
//! instances are looked up together; [`PlannedRoutes`] plans from these reads.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::routes::{Entry, Observed, RouteTable, Table, Target};
use ccm_kit::{Cached, Interrupted, PlannedRoutes};
use ccm_provider::{NewRoute, Node, NodeName, ProviderError};
use futures::FutureExt;
use ipnet::IpNet;
use tokio::time::Instant;

use crate::client::ec2;
use crate::client::operation::{Operation, Service};
use crate::client::write::{Ec2Write, RouteTarget};
use crate::client::{Answer, Api, ApiError, Query, Write, is_unavailable};
use crate::node::fleet::{Fleet, Member};
use crate::node::identity::{InstanceId, instance_of};
use crate::ownership::Ownership;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

/// Maximum age of the state and interfaces of instances that were not written since.
const INSTANCE_AGE: Duration = Duration::from_secs(30);

pub(crate) type VpcRoutes = PlannedRoutes<VpcTable>;

/// The settings that routes need.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) vpc: String,
    /// `RouteTableID`; else the table with the cluster's tag.
    pub(crate) table: Option<String>,
    pub(crate) ownership: Ownership,
}

#[derive(Debug)]
pub(crate) struct VpcTable {
    settings: Settings,
    api: Arc<dyn Api>,
    fleet: Fleet,
    tables: Cached<Vec<ec2::RouteTable>, ApiError>,
}

#[derive(Debug, Default)]
pub(crate) struct Facts {
    /// The instances of the nodes that get routes.
    members: BTreeMap<InstanceId, Arc<Member>>,
    /// Live instances without the cluster's tag.
    foreign: BTreeSet<InstanceId>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RouteWrite {
    call: Ec2Write,
    /// The instance whose attributes the step changes.
    changes: Option<InstanceId>,
}

impl From<Ec2Write> for RouteWrite {
    fn from(call: Ec2Write) -> Self {
        Self { call, changes: None }
    }
}

impl fmt::Display for RouteWrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = self.call.name();
        match &self.call {
            Ec2Write::CreateRoute { table, destination, target }
            | Ec2Write::ReplaceRoute { table, destination, target } => {
                let (RouteTarget::Instance(to) | RouteTarget::Interface(to)) = target;
                write!(f, "{name} {table} {destination} -> {to}")
            }
            Ec2Write::DeleteRoute { table, destination } => write!(f, "{name} {table} {destination}"),
            Ec2Write::ModifyInstanceAttribute { instance: id }
            | Ec2Write::ModifyNetworkInterfaceAttribute { interface: id } => {
                write!(f, "{name} {id}: source/destination check off")
            }
            _ => f.write_str(name),
        }
    }
}

impl VpcTable {
    pub(crate) fn new(settings: Settings, api: Arc<dyn Api>, fleet: Fleet) -> Self {
        let (reader, wanted) = (api.clone(), settings.clone());
        let read = move || {
            let (api, settings) = (reader.clone(), wanted.clone());
            async move { tables(&*api, &settings).await }.boxed()
        };
        Self { settings, api, fleet, tables: Cached::new(read, interrupted as fn(Interrupted) -> ApiError) }
    }
}

impl VpcTable {
    /// Replaces a route, whose target is gone, without `ReplaceRoute`, which upstream does not use.
    async fn replace_in_two(&self, call: &Ec2Write, error: ApiError) -> Result<(), ProviderError> {
        let Ec2Write::ReplaceRoute { table, destination, target } = call else { return Err(error.into()) };
        let (table, destination) = (table.clone(), destination.clone());
        let delete = Ec2Write::DeleteRoute { table: table.clone(), destination: destination.clone() };
        let create = Ec2Write::CreateRoute { table, destination, target: target.clone() };
        for write in [delete, create] {
            self.api.write(&Write::Ec2(write)).await?;
        }
        Ok(())
    }
}

#[async_trait]
impl RouteTable for VpcTable {
    type Id = String;
    type Hop = InstanceId;
    type Facts = Facts;
    type Write = RouteWrite;
    const NO_HOP: &'static str = "has no EC2 instance as its provider ID";

    async fn read(
        &self,
        cluster: &str,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<Table<String, InstanceId>, ProviderError> {
        let tables = self.tables.get(max_age, not_before).await?;
        Ok(entries(only_table(&tables.value, cluster, &self.settings)?, cluster))
    }

    async fn facts(
        &self,
        wanted: &BTreeSet<InstanceId>,
        in_the_way: &BTreeSet<InstanceId>,
        not_before: Option<Instant>,
    ) -> Result<Facts, ProviderError> {
        let members = self.fleet.get(wanted, INSTANCE_AGE, not_before).await?;
        if in_the_way.is_empty() {
            return Ok(Facts { members, foreign: BTreeSet::new() });
        }
        let query = Query::by("instance-id", in_the_way.iter().map(InstanceId::as_str));
        let found = self.api.instances(&query).await?.into_iter();
        let live = found.filter(|instance| instance.state.as_deref() != Some("terminated"));
        let unmarked = live.filter(|instance| !self.settings.ownership.is_member(&instance.tags));
        let foreign = unmarked.filter_map(|instance| InstanceId::parse(&instance.id)).collect();
        Ok(Facts { members, foreign })
    }

    async fn write(&self, write: &RouteWrite) -> Result<(), ProviderError> {
        match self.api.write(&Write::Ec2(write.call.clone())).await {
            Err(error)
                if matches!(write.call, Ec2Write::DeleteRoute { .. }) && error.is(&["InvalidRoute.NotFound"]) => {}
            Err(error) if is_unavailable(&error) => self.replace_in_two(&write.call, error).await?,
            answer => drop(answer?),
        }
        if let Some(instance) = &write.changes {
            self.fleet.forget(instance);
        }
        Ok(())
    }

    fn hops(node: &Node) -> Vec<InstanceId> {
        instance_of(node).into_iter().collect()
    }

    fn is_foreign(facts: &Facts, hop: &InstanceId) -> bool {
        facts.foreign.contains(hop)
    }

    /// Lets the instance forward packets, unless it does so already: before the route, so that no packet is lost. EC2
    /// refuses the setting for an instance with several interfaces, so it is set on the primary interface.
    fn prepare(facts: &Facts, node: &NodeName, hop: &InstanceId) -> Result<Vec<(RouteWrite, String)>, ProviderError> {
        let member = facts.members.get(hop).filter(|member| !member.is_leaving);
        let member =
            member.ok_or_else(|| ProviderError::InstanceNotFound.wrap(format!("route to node {node} ({hop})")))?;
        if member.source_dest_check == Some(false) {
            return Ok(Vec::new());
        }
        let call = match target(facts, hop) {
            RouteTarget::Interface(interface) => Ec2Write::ModifyNetworkInterfaceAttribute { interface },
            RouteTarget::Instance(instance) => Ec2Write::ModifyInstanceAttribute { instance },
        };
        let write = RouteWrite { call, changes: Some(hop.clone()) };
        Ok(vec![(write, "it receives packets for pods".to_owned())])
    }

    fn create(
        id: &String,
        facts: &Facts,
        _: &NewRoute,
        destination: IpNet,
        hop: &InstanceId,
        old: Option<&Entry<InstanceId>>,
    ) -> RouteWrite {
        let (table, destination, target) = (id.clone(), destination.to_string(), target(facts, hop));
        RouteWrite::from(match old {
            None => Ec2Write::CreateRoute { table, destination, target },
            Some(_) => Ec2Write::ReplaceRoute { table, destination, target },
        })
    }

    fn delete(id: &String, entry: &Entry<InstanceId>) -> RouteWrite {
        Ec2Write::DeleteRoute { table: id.clone(), destination: entry.destination.clone() }.into()
    }
}

/// The target of a route to an instance.
fn target(facts: &Facts, id: &InstanceId) -> RouteTarget {
    let member = facts.members.get(id).filter(|member| member.interfaces > 1);
    match member.and_then(|member| member.primary_interface.clone()) {
        Some(interface) => RouteTarget::Interface(interface),
        None => RouteTarget::Instance(id.to_string()),
    }
}

/// The routes of a table.
pub(crate) fn entries(table: &ec2::RouteTable, cluster: &str) -> Table<String, InstanceId> {
    let entry = |route: &ec2::Route| Entry {
        name: format!("{cluster}-{}", route.destination),
        destination: route.destination.clone(),
        target: leads_to(route),
    };
    Table { id: table.id.clone(), entries: table.routes.iter().map(entry).collect() }
}

fn leads_to(route: &ec2::Route) -> Target<InstanceId> {
    if !route.gateway.is_empty() {
        return Target::Foreign(route.gateway.clone());
    }
    let instance = route.instance.as_deref().and_then(InstanceId::parse);
    if route.blackhole {
        return Target::Blackhole(instance);
    }
    match instance {
        Some(id) => Target::Hop(id),
        None => Target::Foreign(route.interface.clone().unwrap_or_else(|| "something that is not an instance".into())),
    }
}

/// Whether the target of a route is stopped or missing: the route is removed when no node has its range.
pub(crate) fn is_blackhole(route: &ec2::Route) -> bool {
    matches!(leads_to(route), Target::Blackhole(_))
}

/// The write that removes a blackhole route; `None` if the route is not in the table any more. Fails if its target
/// exists again.
pub(crate) fn removal(table: &ec2::RouteTable, destination: &str) -> Result<Option<Ec2Write>, ProviderError> {
    let observed = Observed::<VpcTable>::new(entries(table, ""), &[], &BTreeMap::new());
    Ok(observed.removal(destination)?.map(|write| write.call))
}

/// The tables that may belong to the cluster.
pub(crate) async fn tables(api: &dyn Api, settings: &Settings) -> Answer<Vec<ec2::RouteTable>> {
    if let Some(id) = &settings.table {
        return api.route_tables(&Query::by("route-table-id", [id])).await;
    }
    let of_vpc = Query::by("vpc-id", [&settings.vpc]);
    let Some((marked, legacy)) = settings.ownership.marked(&of_vpc) else { return api.route_tables(&of_vpc).await };
    let marked = api.route_tables(&marked).await?;
    if !marked.is_empty() && !settings.ownership.legacy {
        return Ok(marked);
    }
    let legacy = api.route_tables(&legacy).await?;
    let by_id: BTreeMap<String, ec2::RouteTable> =
        marked.into_iter().chain(legacy).map(|table| (table.id.clone(), table)).collect();
    Ok(by_id.into_values().collect())
}

/// The table of the cluster; an error if there is none, or several match.
pub(crate) fn only_table<'a>(
    tables: &'a [ec2::RouteTable],
    cluster: &str,
    settings: &Settings,
) -> Result<&'a ec2::RouteTable, ProviderError> {
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

fn interrupted(how: Interrupted) -> ApiError {
    ApiError::interrupted(Operation::new(Service::Ec2, "DescribeRouteTables"), how)
}
