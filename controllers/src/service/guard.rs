//! Prevents load balancers from losing all hosts on weak evidence.
//!
//! A missing Node proves nothing about its instance: a restored backup, a mistaken `kubectl delete nodes` or a broken
//! registration looks the same. So the last host is removed only when its instance is known to be gone, or the Node
//! itself is excluded.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Aspects, EventType, EvidenceKind, Lookup, NodeRef, Service, Subject};

use super::{ServiceController, ServiceState};
use crate::evidence::too_young;

/// The maximum age of a cached answer about an instance.
const MAX_AGE: Duration = Duration::from_secs(5);

/// The reason why a load balancer keeps its hosts, and the hosts.
pub(super) struct Kept {
    pub(super) reason: String,
    /// The hosts to ensure for now: those that were not excluded on purpose. `None` if unknown.
    pub(super) hosts: Option<Arc<[NodeRef]>>,
}

impl ServiceController {
    /// Whether the load balancer of a Service may lose all hosts.
    pub(super) async fn may_empty(&self, known: &ServiceState) -> Result<(), Kept> {
        if self.config.allow_emptying {
            return Ok(());
        }
        // Present nodes were excluded on purpose; nodes of another cloud do not count.
        if !known.all_present && self.shows_no_node() {
            let reason = "the cluster has no node, and the current hosts are unknown".to_owned();
            return Err(Kept { reason, hosts: None });
        }
        let is_missing = |host: &&NodeRef| self.shared.nodes.get(&host.name).is_none();
        let missing: Arc<[NodeRef]> = known.present.iter().filter(is_missing).cloned().collect();
        if missing.is_empty() {
            return Ok(());
        }
        self.are_gone(&missing).await.map_err(|reason| Kept { reason, hosts: Some(missing) })
    }

    /// Whether the cluster has no node of this cloud.
    fn shows_no_node(&self) -> bool {
        let foreign = |id: Option<&str>| self.shared.view.as_ref().is_some_and(|view| view.is_foreign(id));
        self.shared.nodes.list().iter().all(|node| foreign(node.provider_id.as_deref()))
    }

    /// Whether the instances of all these hosts are gone. The error names one that may not be.
    async fn are_gone(&self, missing: &[NodeRef]) -> Result<(), String> {
        let Some(view) = &self.shared.view else {
            return Err(format!(
                "its {} nodes are missing from the cluster, and the provider cannot look them up",
                missing.len()
            ));
        };
        let answers = view.get(missing, Aspects::LIFECYCLE, MAX_AGE).await;
        let now = self.shared.clock.wall();
        // Absence proves nothing about an instance that the cloud may not list yet.
        let young = |host: &NodeRef, answer: &Lookup| match answer {
            Lookup::Gone(evidence) if !matches!(evidence.kind, EvidenceKind::Terminated { .. }) => {
                too_young(host, evidence, now)
            }
            _ => None,
        };
        let is_gone = |host, answer: &Lookup| matches!(answer, Lookup::Gone(_)) && young(host, answer).is_none();
        match missing.iter().zip(&answers).find(|(host, answer)| !is_gone(host, answer)) {
            None => Ok(()),
            Some((host, answer @ Lookup::Gone(_))) => Err(format!(
                "node {} is missing from the cluster, and {}",
                host.name,
                young(host, answer).unwrap_or_default()
            )),
            Some((host, Lookup::Unknown(error))) => Err(format!(
                "node {} is missing from the cluster, but whether its instance is gone is not known: {error}",
                host.name
            )),
            Some((host, _)) => Err(format!("node {} is missing from the cluster, but its instance exists", host.name)),
        }
    }

    /// Logs, and emits an event, that the load balancer keeps its hosts.
    pub(super) fn refuse_emptying(&self, service: &Service, reason: &str) {
        self.shared.metrics.guard_refused("emptying-load-balancer");
        tracing::warn!(service = %service.key(), reason, "the load balancer keeps its hosts");
        let message = format!(
            "The load balancer keeps its present hosts although no node is available: {reason}. It is checked again; if the \
             balancer should lose its last host, set --allow-emptying-load-balancers, or label the nodes with \
             node.kubernetes.io/exclude-from-external-load-balancers"
        );
        self.events.event(&Subject::service(service), EventType::Warning, "LoadBalancerHostsKept", &message);
    }
}
