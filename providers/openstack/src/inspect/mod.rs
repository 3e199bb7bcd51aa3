//! Answers of `ccm explain`, `ccm orphans` and `ccm migrate-check`.
//!
//! Decides nothing itself: nodes are evaluated by [`NovaInstances`], desired state and plan of a Service come from
//! [`Balancers`], ownership names from `loadbalancer::names`. Read-only, except [`Inspect::delete_orphan`].

mod explain_node;
mod explain_service;
mod inventory;
pub(crate) mod lint;
mod migration;
mod orphans;
pub(crate) mod replay;

use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::Cluster;
use ccm_kit::balancer::Engine;
use ccm_kit::inspect::{unchecked, unreadable};
use ccm_provider::{Check, Claims, Fact, Finding, Inspect, Node, Orphan, ProviderError, Service};
use ipnet::IpNet;

use crate::client::Client;
use crate::client::octavia::LoadBalancer;
use crate::loadbalancer::Balancers;
use crate::node::identity::Identity;
use crate::node::instances::NovaInstances;

/// The index of the only Service in its work.
const PLACE: usize = 0;

/// The parts of the provider that the commands use.
#[derive(Debug)]
pub(crate) struct Inspector {
    pub(crate) client: Client,
    pub(crate) cluster: Cluster,
    pub(crate) identity: Identity,
    /// `None`: the catalog lacks a required service.
    pub(crate) instances: Option<Arc<NovaInstances>>,
    /// `None`: disabled.
    pub(crate) balancers: Option<Arc<Engine<Balancers>>>,
    /// `[Route] router-id`
    pub(crate) router: Option<String>,
    /// `--cluster-cidr`
    pub(crate) cluster_cidrs: Vec<IpNet>,
    /// `--configure-cloud-routes`
    pub(crate) makes_routes: bool,
    /// Findings about the configuration, and differences from the Go program.
    pub(crate) findings: Vec<Finding>,
}

impl Inspector {
    fn balancers(&self) -> Result<&Balancers, ProviderError> {
        let off = || ProviderError::unknown("load balancers are switched off: [LoadBalancer] enabled is false");
        self.balancers.as_ref().map(|engine| engine.cloud()).ok_or_else(off)
    }
}

/// `load balancer kube_service_… (ID)`
fn about(lb: &LoadBalancer) -> String {
    format!("load balancer {} ({})", lb.name, lb.id)
}

#[async_trait]
impl Inspect for Inspector {
    async fn explain_node(&self, _: &str, node: &Node) -> Result<Vec<Fact>, ProviderError> {
        explain_node::explain(self, node).await
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
