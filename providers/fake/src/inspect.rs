//! Diagnosis: the entries of the file and the tables for a node or Service, and orphans.
//!
//! Data from the file alone is not logged as a call. The tables are read through the calls of upstream's interface, so
//! that the call log shows them and faults apply.

mod explain;
mod migration;
mod orphans;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{Check, Claims, Fact, Inspect, Node, Orphan, ProviderError, Service};

use crate::cloud::Cloud;
use crate::load_balancer::FakeLoadBalancer;
use crate::routes::FakeRoutes;

/// [`Inspect`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeInspect {
    cloud: Arc<Cloud>,
    balancers: FakeLoadBalancer,
    routes: FakeRoutes,
}

impl FakeInspect {
    pub(crate) fn new(cloud: Arc<Cloud>) -> Self {
        Self { balancers: FakeLoadBalancer(Arc::clone(&cloud)), routes: FakeRoutes(Arc::clone(&cloud)), cloud }
    }
}

#[async_trait]
impl Inspect for FakeInspect {
    async fn explain_node(&self, cluster: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        Ok(self.node(cluster, node).await)
    }

    async fn explain_service(&self, cluster: &str, service: &Service) -> Result<Vec<Fact>, ProviderError> {
        Ok(self.service(cluster, service).await)
    }

    async fn orphans(&self, cluster: &str, claims: &Claims) -> Result<Vec<Orphan>, ProviderError> {
        self.unclaimed(cluster, claims).await
    }

    async fn delete_orphan(&self, cluster: &str, orphan: &Orphan) -> Result<(), ProviderError> {
        self.delete(cluster, orphan).await
    }

    async fn migration_checks(&self, cluster: &str, claims: &Claims) -> Vec<Check> {
        self.checks(cluster, claims).await
    }
}
