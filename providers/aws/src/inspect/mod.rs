//! Answers of `ccm explain`, `ccm orphans` and `ccm migrate-check`.
//!
//! Decides nothing itself: the identity of an instance comes from [`crate::node::identity`], desired state and plan of
//! a Service from [`Balancers`], the security group of a node from `security_groups`, the subnets of a balancer from
//! `subnets`, routes from [`crate::routes`]. Reads only, except [`Inspect::delete_orphan`].

mod explain_node;
mod explain_service;
mod health;
mod inventory;
pub(crate) mod lint;
mod migration;
mod orphans;
pub(crate) mod replay;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::balancer::Engine;
use ccm_kit::inspect::{unchecked, unreadable};
use ccm_provider::{Check, Claims, Fact, Inspect, Node, Orphan, ProviderError, Service};

use crate::client::ec2::SecurityGroup;
use crate::client::{Answer, Api, Query};
use crate::loadbalancer::Balancers;
use crate::loadbalancer::env::Env;
use crate::node::instances::{Ec2Instances, Settings};
use crate::routes;

/// The parts of the provider that the commands use.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) api: Arc<dyn Api>,
    pub(crate) instances: Arc<Ec2Instances>,
    pub(crate) balancers: Arc<Engine<Balancers>>,
    pub(crate) settings: Settings,
    pub(crate) routes: routes::Settings,
    /// `--configure-cloud-routes`
    pub(crate) makes_routes: bool,
    /// Whether `--controllers` names the tagging controller.
    pub(crate) tags_instances: bool,
    pub(crate) cluster: Cluster,
}

impl Inspector {
    fn balancers(&self) -> &Balancers {
        self.balancers.cloud()
    }

    fn env(&self) -> &Env {
        &self.balancers.cloud().env
    }

    /// `kubernetes.io/cluster/<ID>`; empty without a cluster.
    fn cluster_tag(&self) -> String {
        self.settings.ownership.cluster_key().unwrap_or_default()
    }

    /// Security groups by ID; unknown ones are absent.
    async fn groups(&self, ids: impl IntoIterator<Item = &String>) -> Answer<BTreeMap<String, SecurityGroup>> {
        let mut ids: Vec<&String> = ids.into_iter().collect();
        ids.sort_unstable();
        ids.dedup();
        if ids.is_empty() {
            return Ok(BTreeMap::new());
        }
        let found = self.api.security_groups(&Query::by("group-id", ids)).await?;
        Ok(found.into_iter().map(|group| (group.id.clone(), group)).collect())
    }
}

#[async_trait]
impl Inspect for Inspector {
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        explain_node::explain(self, cluster, node).await
    }

    async fn explain_service(&self, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
        explain_service::explain(self, cluster, service).await
    }

    async fn orphans(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        orphans::find(self, cluster, claims).await
    }

    async fn delete_orphan(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        orphans::delete(self, cluster, orphan).await
    }

    async fn migration_checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        migration::checks(self, cluster, claims).await
    }
}
