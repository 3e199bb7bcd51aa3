//! Adapters for clouds that answer for one object at a time.

use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use futures::future::join_all;
use tokio::sync::Semaphore;

use crate::error::ProviderError;
use crate::instance::{Aspects, Evidence, EvidenceKind, Instance, InstanceMetadata, InstancesV2, Lookup};
use crate::load_balancer::READ_DEADLINE;
use crate::node::{Node, NodeRef};
use crate::route::{NewRoute, Route, Routes};

/// Instances, one at a time: the shape of the Go interface. Wrap it in [`OneByOne`].
#[async_trait]
pub trait SingleInstances: Send + Sync {
    /// Whether the instance exists: by provider ID, else by name. `false` is a positive answer and deletes a node that is
    /// not Ready; a stopped instance exists.
    async fn exists(&self, node: &Node) -> Result<bool, ProviderError>;

    /// Whether the instance is stopped. [`ProviderError::NotImplemented`] means "no".
    async fn shutdown(&self, node: &Node) -> Result<bool, ProviderError>;

    /// What the node shall carry; `Ok(None)` skips the node quietly.
    async fn metadata(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError>;

    /// Only the addresses, where that is cheaper; the rest of the answer is not read.
    async fn addresses(&self, node: &Node) -> Result<Option<InstanceMetadata>, ProviderError> {
        self.metadata(node).await
    }

    /// See [`InstancesV2::provider_id_required`].
    fn provider_id_required(&self) -> bool {
        true
    }
}

/// Routes, one at a time: the shape of the Go interface. Wrap it in [`OneByOne`].
#[async_trait]
pub trait SingleRoutes: Send + Sync {
    /// See [`Routes::list`].
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError>;
    /// See [`Routes::create`].
    async fn create(&self, cluster: &str, route: &NewRoute) -> Result<(), ProviderError>;
    /// See [`Routes::delete`].
    async fn delete(&self, cluster: &str, route: &Route) -> Result<(), ProviderError>;
}

/// Makes a batch interface of a single-item one, with a bound on the calls in flight and a deadline for each.
#[derive(Debug)]
pub struct OneByOne<T> {
    inner: T,
    in_flight: Arc<Semaphore>,
}

impl<T> OneByOne<T> {
    /// Calls that may be under way at once where the provider has no reason for another number; upstream's bound for
    /// routes.
    pub const DEFAULT_IN_FLIGHT: usize = 200;

    /// Wraps `inner` with at most `in_flight` calls at once.
    pub fn new(inner: T, in_flight: usize) -> Self {
        Self { inner, in_flight: Arc::new(Semaphore::new(in_flight.max(1))) }
    }

    async fn bounded<R>(
        &self,
        call: &str,
        future: impl Future<Output = Result<R, ProviderError>>,
    ) -> Result<R, ProviderError> {
        let _permit = self.in_flight.acquire().await.map_err(|_| ProviderError::bug("semaphore closed"))?;
        tokio::time::timeout(READ_DEADLINE, future)
            .await
            .unwrap_or_else(|_| Err(ProviderError::deadline(call, READ_DEADLINE)))
    }
}

impl<T: SingleInstances> OneByOne<T> {
    async fn lookup_one(&self, node: &Node, aspects: Aspects) -> Lookup {
        if aspects.existence {
            let read_began = SystemTime::now();
            match self.bounded("InstanceExists", self.inner.exists(node)).await {
                Ok(true) => {}
                Ok(false) => {
                    return Lookup::Gone(Evidence {
                        kind: EvidenceKind::Absent,
                        read_began,
                        grace: std::time::Duration::ZERO,
                    });
                }
                Err(error) => return Lookup::Unknown(error),
            }
        }
        let shutdown = match aspects.shutdown {
            true => self.bounded("InstanceShutdown", self.inner.shutdown(node)).await,
            false => Ok(false),
        };
        let metadata = match (aspects.metadata, aspects.addresses) {
            (true, _) => self.bounded("InstanceMetadata", self.inner.metadata(node)).await,
            (false, true) => self.bounded("InstanceMetadata", self.inner.addresses(node)).await,
            (false, false) => Ok(None),
        };
        Lookup::Found(Arc::new(Instance { shutdown, metadata }))
    }
}

#[async_trait]
impl<T: SingleInstances> InstancesV2 for OneByOne<T> {
    async fn lookup(&self, nodes: &[NodeRef], aspects: Aspects) -> Vec<Lookup> {
        join_all(nodes.iter().map(|node| self.lookup_one(node, aspects))).await
    }

    fn provider_id_required(&self) -> bool {
        self.inner.provider_id_required()
    }
}

#[async_trait]
impl<T: SingleRoutes> Routes for OneByOne<T> {
    async fn list(&self, cluster: &str) -> Result<Vec<Route>, ProviderError> {
        self.bounded("ListRoutes", self.inner.list(cluster)).await
    }

    async fn create(&self, cluster: &str, routes: &[NewRoute]) -> Vec<Result<(), ProviderError>> {
        let calls = routes.iter().map(|route| self.bounded("CreateRoute", self.inner.create(cluster, route)));
        join_all(calls).await
    }

    async fn delete(&self, cluster: &str, routes: &[Route]) -> Vec<Result<(), ProviderError>> {
        let calls = routes.iter().map(|route| self.bounded("DeleteRoute", self.inner.delete(cluster, route)));
        join_all(calls).await
    }
}
