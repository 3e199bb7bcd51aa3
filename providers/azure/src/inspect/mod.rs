//! Reports of the commands `explain`, `orphans`, `migrate-check` and `lint`.

mod explain_node;
mod explain_service;
mod inventory;
pub(crate) mod lint;
mod migration;
mod orphans;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_kit::inspect::{unchecked, unreadable};
use ccm_provider::{Check, Claims, Fact, Finding, Inspect, Node, Orphan, ProviderError, Service};

use crate::loadbalancer::Balancers;
use crate::node::instances::AzureInstances;
use crate::routes::AzureRoutes;
use crate::shared::Shared;

/// The parts of the provider that the commands use.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) shared: Shared,
    pub(crate) instances: Arc<AzureInstances>,
    pub(crate) balancers: Arc<Engine<Balancers>>,
    /// `None`: the configuration names no route table.
    pub(crate) routes: Option<Arc<AzureRoutes>>,
    /// `--configure-cloud-routes`
    pub(crate) makes_routes: bool,
    /// Findings about the configuration from the start.
    pub(crate) findings: Vec<Finding>,
}

#[async_trait]
impl Inspect for Inspector {
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        Ok(explain_node::explain(self, cluster, node).await)
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
