//! Leading processes with the clock of the simulated cloud.

use std::sync::Arc;

use ccm_cloudsim::aws::Aws;
use ccm_provider::{CloudProvider, LoadBalancer};
use ccm_provider_contract::TestCluster;

use crate::bed::{Bed, CLUSTER};

/// The balancers of a new leading process.
pub(crate) async fn leading(bed: &Bed) -> Arc<dyn LoadBalancer> {
    watched(bed).await.0
}

/// The same, with the cluster that records its events.
pub(crate) async fn watched(bed: &Bed) -> (Arc<dyn LoadBalancer>, Arc<TestCluster>) {
    let provider = bed.provider().await;
    let cluster = lend(&bed.aws, &*provider).await;
    (provider.load_balancer().unwrap(), cluster)
}

/// Gives a provider the lease and the clock of the simulated cloud.
pub(crate) async fn lend(aws: &Aws, provider: &dyn CloudProvider) -> Arc<TestCluster> {
    let clock = aws.clock().clone();
    let cluster = Arc::new(TestCluster::following(move || clock.now().into()));
    provider.initialize(cluster.context(CLUSTER)).await.unwrap();
    cluster
}
