//! The cloud loops: initialization and lifecycle of nodes, load balancers for Services, routes, pod ranges,
//! labels of volumes.
//!
//! Every controller has the same structure: `decide` contains pure functions over observed state, `mod` the trigger and
//! the apply step. Nothing here depends on a particular cloud, an HTTP client or a flag.

pub mod cluster_cidrs;
pub(crate) mod drift;
mod evidence;
pub mod ipam;
pub mod lifecycle;
mod managed;
pub mod node;
pub mod node_task;
pub(crate) mod ownership;
pub mod persistent_volume;
pub mod preview;
pub mod route;
pub mod service;
#[cfg(test)]
mod test_shared;

use std::sync::Arc;

use ccm_provider::{Clock, Node, Schemes, Service};
use ccm_runtime::metrics::Def;
use ccm_runtime::writer::{NodeWriter, ServiceWriter};
use ccm_runtime::{Gate, GateError, InstanceView, Leadership, Metrics, Queue, RateLimit, Store, SyncError, queue};
pub use managed::Unmanaged;

/// Every metric of the controllers, for the reference page.
pub fn metrics_reference() -> Vec<&'static Def> {
    let parts: [&[&Def]; 8] = [
        node::metrics::NodeMetrics::DEFS,
        service::metrics::ServiceMetrics::DEFS,
        route::metrics::RouteMetrics::DEFS,
        lifecycle::metrics::LifecycleMetrics::DEFS,
        ipam::metrics::IpamMetrics::DEFS,
        ipam::cloud::CloudMetrics::DEFS,
        drift::DriftMetrics::DEFS,
        ownership::OwnershipMetrics::DEFS,
    ];
    parts.concat()
}

/// The state that all controllers share.
#[derive(Clone)]
pub struct Shared {
    /// The gate for all writes.
    pub gate: Gate,
    /// Watched nodes.
    pub nodes: Arc<Store<Node>>,
    /// Watched Services.
    pub services: Arc<Store<Service>>,
    /// Instances; `None` when the provider has none.
    pub view: Option<Arc<InstanceView>>,
    /// Whether new work may begin.
    pub leadership: Leadership,
    /// Time.
    pub clock: Arc<dyn Clock>,
    /// Metrics of the process.
    pub metrics: Metrics,
    /// `--cluster-name`
    pub cluster: Arc<str>,
    /// The schemes of the provider IDs of the nodes that this program owns.
    pub schemes: Schemes,
    /// Nodes that some controllers ignore.
    pub unmanaged: Unmanaged,
    /// The service controller that owns each Service.
    pub owners: service::Owners,
}

impl Shared {
    fn instances(&self) -> Result<Arc<InstanceView>, NotStarted> {
        self.view.clone().ok_or_else(|| NotStarted("cloud provider does not support instances".into()))
    }

    /// A queue whose retries are spread.
    fn queue<K: queue::Key>(&self, name: &str, limit: RateLimit) -> Arc<Queue<K>> {
        Queue::with_jitter(name, limit, self.clock.clone(), &self.metrics)
    }

    /// Runs a read of a sync, for which a shutdown does not wait: the next leader syncs again.
    async fn read<R>(&self, read: impl Future<Output = R>) -> Result<R, SyncError> {
        self.leadership.until_ended(read).await.ok_or(SyncError::Closed(GateError::Ending))
    }

    fn node_writer(&self) -> NodeWriter<'_> {
        NodeWriter::new(&self.gate, &self.nodes)
    }

    fn service_writer(&self) -> ServiceWriter<'_> {
        ServiceWriter::new(&self.gate, &self.services)
    }
}

impl std::fmt::Debug for Shared {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shared").field("cluster", &self.cluster).finish_non_exhaustive()
    }
}

/// The reason why a controller does not run; the process continues without it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct NotStarted(pub String);
