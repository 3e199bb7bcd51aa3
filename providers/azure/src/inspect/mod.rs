//! Reports of the commands `explain`, `migrate-check` and `lint`.

mod explain_node;
pub(crate) mod lint;
mod migration;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::inspect::{unchecked, unreadable};
use ccm_provider::{Check, Claims, Fact, Finding, Inspect, Node, ProviderError};

use crate::node::instances::AzureInstances;
use crate::routes::AzureRoutes;
use crate::shared::Shared;

/// The parts of the provider that the commands use.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) shared: Shared,
    pub(crate) instances: Arc<AzureInstances>,
    /// `None`: the configuration names no route table.
    pub(crate) routes: Option<Arc<AzureRoutes>>,
    /// Findings about the configuration from the start.
    pub(crate) findings: Vec<Finding>,
}

#[async_trait]
impl Inspect for Inspector {
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        Ok(explain_node::explain(self, cluster, node).await)
    }

    async fn migration_checks(&self, _: &str, claims: &Claims) -> Vec<Check> {
        migration::checks(self, claims).await
    }
}
