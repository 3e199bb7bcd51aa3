//! One pass at a time over the objects that Services share.
//!
//! The two service controllers of this cloud each pass one group of Services at a time, but know nothing of each other:
//! one could create a firewall rule for health checks while the other deletes it.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::balancer::Engine;
use ccm_provider::{
    GroupKey, LoadBalancer, LoadBalancerStatus, Node, Plan, ProviderError, Related, Scope, Service, ServiceAnswer,
    ServiceWork,
};
use serde_json::Value;
use tokio::sync::{Mutex, MutexGuard};

use super::{Balancers, EXTERNAL, INTERNAL};

/// The load balancers, with a turn for each kind.
#[derive(Debug)]
pub(crate) struct InTurn {
    engine: Arc<Engine<Balancers>>,
    external: Mutex<()>,
    internal: Mutex<()>,
}

impl InTurn {
    pub(crate) fn new(engine: Arc<Engine<Balancers>>) -> Self {
        Self { engine, external: Mutex::new(()), internal: Mutex::new(()) }
    }

    /// Waits for the turn of a kind, if these groups need it.
    async fn turn<'m>(
        groups: &BTreeSet<GroupKey>,
        key: &str,
        turn: &'m Mutex<()>,
        scope: &Scope,
    ) -> Result<Option<MutexGuard<'m, ()>>, ProviderError> {
        match groups.iter().any(|group| group.0 == key) {
            true => scope.waiting(turn.lock()).await.map(Some),
            false => Ok(None),
        }
    }
}

#[async_trait]
impl LoadBalancer for InTurn {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.engine.get(cluster, service).await
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.engine.backend(service, node)
    }

    fn related(&self) -> Related {
        self.engine.related()
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        self.engine.only_nodes_with_endpoints(service)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.engine.groups(service)
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.engine.finalizers(service)
    }

    fn adds_finalizers(&self) -> bool {
        self.engine.adds_finalizers()
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork], scope: &Scope) -> Vec<ServiceAnswer> {
        let groups = work.iter().flat_map(|item| self.groups(&item.service)).collect();
        let failed = |error: ProviderError| work.iter().map(|_| Err(error.clone()).into()).collect();
        // Always in this order, so that nobody waits for the other.
        let _external = match Self::turn(&groups, EXTERNAL, &self.external, scope).await {
            Ok(turn) => turn,
            Err(error) => return failed(error),
        };
        let _internal = match Self::turn(&groups, INTERNAL, &self.internal, scope).await {
            Ok(turn) => turn,
            Err(error) => return failed(error),
        };
        self.engine.reconcile(cluster, work, scope).await
    }

    async fn observe(&self, cluster: &str, work: &ServiceWork) -> Result<Value, ProviderError> {
        self.engine.observe(cluster, work).await
    }

    fn plan_observed(&self, cluster: &str, work: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        self.engine.plan_observed(cluster, work, observed)
    }
}
