//! Prevents load balancers from losing all hosts on weak evidence.
//!
//! A missing Node proves nothing about its instance: a restored backup, a mistaken `kubectl delete nodes` or a broken
//! registration looks the same. So the last host is removed only when its instance is known to be gone, or the Node
//! itself is excluded, or the Service leaves it out by the labels that it selects. After a restart the hosts are not
//! known: an empty result is then a sign of missing Nodes, unless the cloud shows that every host is a Node of the
//! cluster.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    Aspects, EventType, EvidenceKind, Lookup, NodeRef, ProviderError, Service, ServiceAction, Severity, Subject,
};
use futures::FutureExt as _;
use tokio::time::Instant;

use super::{ServiceController, ServiceState, decide};
use crate::evidence::too_young;

/// The time after which the hosts of a load balancer are read again.
const SEEN_FOR: Duration = Duration::from_secs(600);
const NO_NODE: &str = "the cluster has no node";

/// The reason why a load balancer keeps its hosts, and the hosts.
pub(super) struct Kept {
    pub(super) reason: String,
    /// The hosts to ensure for now: those that were not excluded on purpose. `None` if unknown.
    pub(super) hosts: Option<Arc<[NodeRef]>>,
}

/// The reason why the hosts of a load balancer do not count as nodes of the cluster.
enum NotNodes {
    /// The cloud shows others.
    Seen(String),
    /// They are not known.
    Unknown(String),
}

impl From<ProviderError> for NotNodes {
    fn from(error: ProviderError) -> Self {
        Self::Unknown(error.to_string())
    }
}

/// A reason that the cloud showed. It is not read at each check: that would be many reads for many Services.
#[derive(Clone)]
pub(super) struct Seen {
    reason: String,
    service: Arc<Service>,
    at: Instant,
}

impl Seen {
    fn holds(&self, known: &ServiceState) -> Option<String> {
        let holds = Arc::ptr_eq(&self.service, &known.service) && self.at.elapsed() < SEEN_FOR;
        holds.then(|| self.reason.clone())
    }
}

impl ServiceController {
    /// Whether the load balancer of a Service may lose all hosts.
    pub(super) async fn may_empty(&self, known: &ServiceState) -> Result<(), Kept> {
        if self.config.allow_emptying {
            return Ok(());
        }
        match self.may_go(known).await {
            Err(kept) if !self.is_elsewhere(known).await => Err(kept),
            _ => Ok(()),
        }
    }

    /// Whether the evidence allows that all hosts of a load balancer go.
    async fn may_go(&self, known: &ServiceState) -> Result<(), Kept> {
        // A Node that is registered again has no provider ID until it is initialized.
        let lacks_id = |host: &NodeRef, now: &NodeRef| {
            let is_new = now.has_taint(TAINT_UNINITIALIZED) && !host.has_taint(TAINT_UNINITIALIZED);
            is_new || now.provider_id_or_empty().is_empty() && !host.provider_id_or_empty().is_empty()
        };
        let is_missing = |host: &&NodeRef| self.shared.nodes.get(&host.name).is_none_or(|now| lacks_id(host, &now));
        let missing: Arc<[NodeRef]> = known.present.iter().filter(is_missing).cloned().collect();
        if !missing.is_empty()
            && let Err(reason) = self.are_gone(&missing).await
        {
            // An earlier process may have set more hosts than these.
            return Err(Kept { reason, hosts: known.all_present.then_some(missing) });
        }
        if known.all_present {
            return Ok(());
        }
        // Only the cloud knows the hosts.
        if let Some(reason) = known.kept.as_ref().and_then(|seen| seen.holds(known)) {
            return Err(Kept { reason, hosts: None });
        }
        let reason = match self.hosts_are_nodes(&known.service).await {
            Ok(()) => return Ok(()),
            Err(NotNodes::Seen(reason)) => {
                if let Some(now) = self.lock().get_mut(&known.service.key()) {
                    let service = known.service.clone();
                    now.kept = Some(Seen { reason: reason.clone(), service, at: Instant::now() });
                }
                reason
            }
            Err(NotNodes::Unknown(reason)) => format!("the current hosts are unknown: {reason}"),
        };
        Err(Kept { reason, hosts: None })
    }

    /// Whether another controller provides the load balancer. Asked once for each state of the Service.
    async fn is_elsewhere(&self, known: &ServiceState) -> bool {
        if let Some((_, is_elsewhere)) = known.elsewhere.as_ref().filter(|(of, _)| Arc::ptr_eq(of, &known.service)) {
            return *is_elsewhere;
        }
        let work = self.work(known.service.clone(), Arc::default(), ServiceAction::Ensure);
        let observing = self.balancer.observe(&self.shared.cluster, &work);
        let Ok(observed) = deadline::within("the plan", READ_DEADLINE, observing).await else { return false };
        if let Some(now) = self.lock().get_mut(&known.service.key()) {
            now.elsewhere = Some((known.service.clone(), observed.is_null()));
        }
        observed.is_null()
    }

    /// Whether all hosts of the load balancer are nodes of the cluster, which then were taken out on purpose: a host
    /// update to all nodes takes none away. An empty cluster shows nothing about a load balancer that exists.
    async fn hosts_are_nodes(&self, service: &Arc<Service>) -> Result<(), NotNodes> {
        let foreign = |id: Option<&str>| self.shared.view.as_ref().is_some_and(|view| view.is_foreign(id));
        let nodes = self.shared.nodes.list();
        // One that is registered again lacks its labels until it is initialized.
        let counts = |node: &NodeRef| !foreign(node.provider_id.as_deref()) && !node.has_taint(TAINT_UNINITIALIZED);
        let nodes: Arc<[NodeRef]> = nodes.into_iter().filter(counts).collect();
        let has_address = !service.status.load_balancer.ingress.is_empty();
        let unknown = |reason: &str| Err(NotNodes::Unknown(reason.to_owned()));
        if nodes.is_empty() && has_address {
            return unknown(NO_NODE);
        }
        let (balancer, cluster) = (&self.balancer, &self.shared.cluster);
        let exists = deadline::within("GetLoadBalancer", READ_DEADLINE, balancer.get(cluster, service)).await?;
        match (exists, has_address) {
            (None, false) => return Ok(()),
            // A contradiction, which a read of the past would explain.
            (None, true) => return unknown("the cloud shows no load balancer, but the Service has an address"),
            (Some(_), _) if nodes.is_empty() => return unknown(NO_NODE),
            (Some(_), _) => {}
        }
        // A user whose Service selects none of them has decided that.
        let all = balancer.unselective(service).map_or_else(|| service.clone(), Arc::new);
        let work = self.work(all, nodes, ServiceAction::UpdateHosts);
        let observed = deadline::within("the plan", READ_DEADLINE, balancer.observe(cluster, &work)).await?;
        if observed.is_boolean() {
            return unknown("the provider does not show them");
        }
        let plan = balancer.plan_observed(cluster, &work, &observed)?;
        if let Some(finding) = plan.findings.iter().find(|finding| finding.severity == Severity::Error) {
            return unknown(&finding.message);
        }
        match decide::removal(&plan) {
            None => Ok(()),
            Some(step) => Err(NotNodes::Seen(format!(
                "the load balancer has hosts that are not nodes of the cluster ({} {} {})",
                step.verb.as_str(),
                step.kind,
                step.id
            ))),
        }
    }

    /// Whether the instances of all these hosts are gone. The error names one that may not be.
    async fn are_gone(&self, missing: &[NodeRef]) -> Result<(), String> {
        let Some(view) = &self.shared.view else {
            return Err(format!(
                "its {} nodes are missing from the cluster, and the provider cannot look them up",
                missing.len()
            ));
        };
        let look = view.get(missing, Aspects::LIFECYCLE).map(Ok);
        let answers = deadline::within("the look-up of the missing nodes", READ_DEADLINE, look).await;
        let answers = answers
            .map_err(|error| format!("its {} nodes are missing from the cluster, and {error}", missing.len()))?;
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
             load balancer should lose its last host, set --allow-emptying-load-balancers, or label the nodes with \
             node.kubernetes.io/exclude-from-external-load-balancers"
        );
        self.events.event(&Subject::service(service), EventType::Warning, "LoadBalancerHostsKept", &message);
    }
}
