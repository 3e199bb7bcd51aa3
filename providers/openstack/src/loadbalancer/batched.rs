//! Concurrent reads for several Services, combined.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_kit::batch::{Bulk, Interrupted};
use ccm_kit::call::Operation as _;
use futures::{StreamExt, stream};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::client::network::{FloatingIp, Port, SecurityGroup, Subnet};
use crate::client::octavia::{LoadBalancer, Monitor};
use crate::client::operation::{FLOATING_IP_LIST, LB_LIST, MONITOR_LIST, SECURITY_GROUP_LIST, SUBNET_GET};
use crate::client::{ApiError, Client, Query};

/// Up to this number, balancers are read one by one; more with a list.
const ONE_BY_ONE: usize = 2;

/// A list of balancers serves all Services that are synced within this time, while nothing is written: a restart syncs
/// more Services than request it at the same time.
const LIST_AGE: Duration = Duration::from_secs(2);

/// Maximum number of concurrent reads of single objects.
const IN_FLIGHT: usize = 16;

/// Balancers by ID, name or tag: one by one, or many with a list. A balancer that cannot be read fails only its own readers.
#[derive(Debug)]
pub(super) struct Balancers {
    client: Client,
    /// The last list, and its start time.
    listed: Mutex<Option<(Instant, Arc<Vec<LoadBalancer>>)>>,
}

impl Balancers {
    pub(super) fn new(client: Client) -> Self {
        Self { client, listed: Mutex::default() }
    }

    async fn one(&self, by: &By) -> Result<Vec<LoadBalancer>, ApiError> {
        match by {
            By::Id(id) => Ok(self.client.load_balancer(id).await?.into_iter().collect()),
            By::Name(name) => self.client.load_balancers(Query::default().with("name", name)).await,
            By::Tag(tag) => self.client.load_balancers(Query::default().with("tags", tag)).await,
        }
    }

    /// Not all at once: a call that waits too long for its turn is given up.
    async fn each(&self, items: Vec<By>) -> BTreeMap<By, Result<Vec<LoadBalancer>, ApiError>> {
        let reads = items.into_iter().map(|by| async {
            let found = self.one(&by).await;
            (by, found)
        });
        stream::iter(reads).buffer_unordered(IN_FLIGHT).collect().await
    }

    async fn list(&self) -> Result<Arc<Vec<LoadBalancer>>, ApiError> {
        let now = Instant::now();
        let written = self.client.balancers_written();
        let is_fresh = |began: Instant| now - began < LIST_AGE && written.is_none_or(|written| began > written);
        let last = self.listed.lock().clone();
        if let Some((_, all)) = last.filter(|(began, _)| is_fresh(*began)) {
            return Ok(all);
        }
        let all = Arc::new(self.client.load_balancers(Query::default()).await?);
        *self.listed.lock() = Some((now, all.clone()));
        Ok(all)
    }
}

/// The key by which a balancer is found.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum By {
    Id(String),
    Name(String),
    Tag(String),
}

#[async_trait]
impl Bulk for Balancers {
    type Item = By;
    type Answer = Result<Vec<LoadBalancer>, ApiError>;
    type Error = ApiError;

    async fn call(&self, items: &[By]) -> Result<BTreeMap<By, Self::Answer>, ApiError> {
        if items.len() <= ONE_BY_ONE {
            return Ok(self.each(items.to_vec()).await);
        }
        let all = self.list().await?;
        let found = |by: &By| -> Vec<LoadBalancer> {
            let fits = |lb: &&LoadBalancer| match by {
                By::Id(id) => lb.id == *id,
                By::Name(name) => lb.name == *name,
                By::Tag(tag) => lb.tags.contains(tag),
            };
            all.iter().filter(fits).cloned().collect()
        };
        let mut answers: BTreeMap<By, Self::Answer> = items.iter().map(|by| (by.clone(), Ok(found(by)))).collect();
        // A balancer referenced by ID may belong to another project: it is not in the list of this one.
        let is_missing = |by: &&By| matches!((by, answers.get(by)), (By::Id(_), Some(Ok(found))) if found.is_empty());
        let missing = items.iter().filter(is_missing).cloned().collect();
        let more = self.each(missing).await;
        answers.extend(more);
        Ok(answers)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(LB_LIST, how)
    }
}

/// Floating IPs by the port that they are bound to.
#[derive(Debug, Clone)]
pub(super) struct FloatingIps(pub(super) Client);

#[async_trait]
impl Bulk for FloatingIps {
    type Item = String;
    type Answer = FloatingIp;
    type Error = ApiError;

    async fn call(&self, ports: &[String]) -> Result<BTreeMap<String, FloatingIp>, ApiError> {
        let query = Query::default().each("port_id", ports.iter().map(String::as_str));
        let found = self.0.floating_ips(query).await?;
        // Of several on a port, the first one counts, as upstream.
        Ok(found.into_iter().rev().filter_map(|ip| Some((ip.port_id.clone()?, ip))).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(FLOATING_IP_LIST, how)
    }
}

/// Security groups by name, each with the ports that have it.
#[derive(Debug, Clone)]
pub(super) struct Groups(pub(super) Client);

#[async_trait]
impl Bulk for Groups {
    type Item = String;
    type Answer = Vec<(SecurityGroup, Vec<Port>)>;
    type Error = ApiError;

    async fn call(&self, names: &[String]) -> Result<BTreeMap<String, Self::Answer>, ApiError> {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let groups = self.0.security_groups(&names).await?;
        let ids: Vec<&str> = groups.iter().map(|group| &*group.id).collect();
        let ports = self.0.ports_in(&ids).await?;
        let mut answers: BTreeMap<String, Self::Answer> = BTreeMap::new();
        for group in groups {
            let with = ports.iter().filter(|port| port.security_groups.contains(&group.id)).cloned().collect();
            answers.entry(group.name.clone()).or_default().push((group, with));
        }
        Ok(answers)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(SECURITY_GROUP_LIST, how)
    }
}

/// Health monitors by ID, from the list of the project: Octavia cannot list those of one load balancer. Those that it
/// lacks are read one by one: they are of other projects, or the list is refused. One that cannot be read fails only its
/// own readers.
#[derive(Debug, Clone)]
pub(super) struct Monitors(pub(super) Client);

#[async_trait]
impl Bulk for Monitors {
    type Item = String;
    type Answer = Result<Monitor, ApiError>;
    type Error = ApiError;

    async fn call(&self, ids: &[String]) -> Result<BTreeMap<String, Self::Answer>, ApiError> {
        let listed = self.0.optional(MONITOR_LIST.name(), self.0.monitors()).await?.unwrap_or_default().into_iter();
        let mut found: BTreeMap<String, Self::Answer> =
            listed.map(|monitor| (monitor.id.clone(), Ok(monitor))).collect();
        let missing: Vec<String> = ids.iter().filter(|id| !found.contains_key(*id)).cloned().collect();
        let reads = missing.into_iter().map(|id| async {
            let monitor = self.0.monitor(&id).await.transpose();
            (id, monitor)
        });
        let more: Vec<_> = stream::iter(reads).buffer_unordered(IN_FLIGHT).collect().await;
        found.extend(more.into_iter().filter_map(|(id, monitor)| Some((id, monitor?))));
        Ok(found)
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(MONITOR_LIST, how)
    }
}

/// Subnets by ID.
#[derive(Debug, Clone)]
pub(super) struct Subnets(pub(super) Client);

#[async_trait]
impl Bulk for Subnets {
    type Item = String;
    type Answer = Result<Subnet, ApiError>;
    type Error = ApiError;

    async fn call(&self, ids: &[String]) -> Result<BTreeMap<String, Self::Answer>, ApiError> {
        let ids: BTreeSet<String> = ids.iter().cloned().collect();
        let reads = ids.into_iter().map(|id| async {
            let found = self.0.subnet(&id).await.transpose();
            (id, found)
        });
        let found: Vec<_> = stream::iter(reads).buffer_unordered(IN_FLIGHT).collect().await;
        Ok(found.into_iter().filter_map(|(id, found)| Some((id, found?))).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(SUBNET_GET, how)
    }
}
