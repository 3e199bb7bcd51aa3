//! The service controller's part of a call, for tests that call the load balancers of a provider directly.

use std::time::{Duration, Instant};

use ccm_provider::{LoadBalancer, LoadBalancerExt as _, NodeRef, Service, ServiceAction, ServiceAnswer};

/// Calls to real clouds take a while.
const LIMIT: Duration = Duration::from_secs(120);

/// Makes one call. Records the provider's annotations on the Service.
pub async fn ask(
    balancers: &dyn LoadBalancer,
    cluster: &str,
    service: &mut Service,
    nodes: &[NodeRef],
    action: ServiceAction,
) -> ServiceAnswer {
    let answer = balancers.reconcile_one(cluster, service, nodes, action).await;
    for (key, value) in answer.notes.annotations.clone() {
        match value {
            Some(value) => drop(service.metadata.annotations.insert(key, value)),
            None => drop(service.metadata.annotations.remove(&key)),
        }
    }
    answer
}

/// Repeats [`ask`] until nothing is in progress any more.
pub async fn work(
    balancers: &dyn LoadBalancer,
    cluster: &str,
    service: &mut Service,
    nodes: &[NodeRef],
    action: ServiceAction,
) -> ServiceAnswer {
    let begin = Instant::now();
    loop {
        let answer = ask(balancers, cluster, service, nodes, action).await;
        match &answer.result {
            Err(error) if error.is_in_progress() && begin.elapsed() < LIMIT => {
                // Simulated clouds finish sooner than the delay suggests.
                let after = error.retry_after().unwrap_or_default();
                tokio::time::sleep(after.clamp(Duration::from_millis(1), Duration::from_millis(20))).await;
            }
            _ => return answer,
        }
    }
}
