//! Host updates: changes of load balancers when nodes are added, changed or deleted.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::{
    EventType, LoadBalancerStatus, NodeRef, Notes, ProviderError, ServiceAction, ServiceKey, ServiceWork, Subject,
};
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{Outcome, SyncError};
use ccm_runtime::writer::ServicePatch;
use futures::FutureExt;

use super::{ServiceController, ServiceState, Work, decide};

/// The time until a load balancer whose hosts the guard kept is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

impl ServiceController {
    /// Runs one pass after each burst of node changes.
    pub(super) async fn node_passes(self: Arc<Self>) {
        let leadership = self.shared.leadership.clone();
        while let Some(Some(keys)) = leadership.until_ended(self.node_queue.take_ready(1)).await {
            if let Err(panic) = AssertUnwindSafe(self.node_pass()).catch_unwind().await {
                self.shared.metrics.panicked(self.config.role.name);
                tracing::error!(
                    controller = self.config.role.name,
                    panic = panic_text(&*panic),
                    "a pass over the hosts panicked"
                );
                self.node_queue.add_after((), CHECK_AGAIN);
            }
            for key in keys {
                self.node_queue.forget(&key);
                self.node_queue.done(&key);
            }
        }
    }

    /// Finds the Services whose hosts changed and queues their update.
    pub(super) async fn node_pass(&self) {
        let candidates: Arc<[NodeRef]> = decide::candidates(self.shared.nodes.list()).into();
        let pass = self.metrics.pass();
        let (metrics, role) = (&self.shared.metrics, &self.config.role);
        let changed = |known: &ServiceState| {
            let service = &known.service;
            let (old, hosts) = (known.hosts.as_ref()?, self.hosts_among(&candidates, service));
            let same = decide::same_hosts(old, &hosts, |node| self.balancer.backend(service, node));
            (role.wants(service) && !same).then_some(hosts)
        };
        let due = |(key, known): (&ServiceKey, &ServiceState)| match metrics.caught(role.name, || changed(known)) {
            Some(hosts) => Some((key.clone(), known.clone(), hosts?)),
            // The other Services continue; the sync of this one reports the panic.
            None => {
                self.queue.add(Work::Sync(key.clone()));
                None
            }
        };
        let services: Vec<(ServiceKey, ServiceState, Arc<[NodeRef]>)> = self.lock().iter().filter_map(due).collect();
        for (key, known, hosts) in services {
            if hosts.is_empty() {
                let allowed = self.may_empty(&known).await;
                if !self.candidates(&known.service).is_empty() {
                    // A node was added during the cloud call: the result is out of date.
                    self.node_queue.add(());
                    return;
                }
                if let Err(kept) = allowed {
                    self.refuse_emptying(&known.service, &kept.reason);
                    self.node_queue.add_after((), CHECK_AGAIN);
                    continue;
                }
            }
            if let Some(now) = self.lock().get_mut(&key) {
                if hosts.is_empty() && !Arc::ptr_eq(&now.present, &known.present) {
                    // A call that began meanwhile may have added hosts, which the guard has not checked.
                    self.node_queue.add(());
                    continue;
                }
                // Recorded before the call, so that a slow update never overwrites the hosts of a later ensure.
                now.hosts = Some(hosts);
                now.pass = Some(pass.clone());
            }
            self.queue.add(Work::Hosts(key));
        }
    }

    /// The work of one host update; `None` if the Service no longer requests a load balancer.
    pub(super) fn prepare_hosts(&self, key: &ServiceKey) -> Option<ServiceWork> {
        let known = self.known(key)?;
        let current = self.shared.services.get(key).filter(|current| self.config.role.wants(current));
        // Another object of this name is ensured as a whole, after the load balancer of the old one is deleted.
        let Some(current) = current.filter(|current| current.metadata.uid == known.service.metadata.uid) else {
            self.end_pass(key);
            return None;
        };
        self.metrics.syncs.inc();
        let nodes = known.hosts?;
        self.attempt(key, &nodes);
        // The next ensure handles changes that are not synced yet. The provider's notes are included: the provider
        // finds its load balancer by them.
        let service = Arc::new(self.with_notes(&known.service, &current));
        Some(self.work(service, nodes, ServiceAction::UpdateHosts))
    }

    /// Records that a call with these hosts begins.
    pub(super) fn attempt(&self, key: &ServiceKey, hosts: &Arc<[NodeRef]>) {
        if let Some(known) = self.lock().get_mut(key) {
            known.attempt(hosts);
        }
    }

    /// Ends one host update.
    pub(super) async fn finish_hosts(
        &self,
        work: &ServiceWork,
        answer: Result<Option<LoadBalancerStatus>, ProviderError>,
        notes: &Notes,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        let key = work.service.key();
        self.metrics.update_latency.observe(took.as_secs_f64());
        self.end_pass(&key);
        let written = self.write(&work.service, ServicePatch::default(), notes).await;
        if let Err(closed @ SyncError::Closed(_)) = written {
            return Err(closed);
        }
        let subject = Subject::service(&work.service);
        let error = match answer {
            Ok(_) => {
                written?;
                self.updated(work);
                if work.nodes.is_empty() {
                    self.warn_no_nodes(&subject);
                } else {
                    let text = "Updated load balancer with new hosts";
                    self.events.event(&subject, EventType::Normal, "UpdatedLoadBalancer", text);
                }
                return Ok(Outcome::Done);
            }
            Err(error) if error.is_implemented_elsewhere() => return written.map(|()| Outcome::Done),
            Err(error) if error.is_in_progress() => return Err(SyncError::provider("", &error)),
            Err(error) => error,
        };
        let still_there = self.balancer.get(&self.shared.cluster, &work.service);
        if let Ok(None) = deadline::within("GetLoadBalancer", READ_DEADLINE, still_there).await {
            return written.map(|()| Outcome::Done);
        }
        self.metrics.node_sync_errors.inc();
        let mut message = format!(
            "Error updating load balancer with new hosts {} [node names limited, total number of nodes: {}], error: {error}",
            decide::host_names(&work.nodes),
            work.nodes.len()
        );
        if let Err(error) = written {
            message = format!("{message}; {error}");
        }
        self.events.event(&subject, EventType::Warning, "UpdateLoadBalancerFailed", &message);
        // A full ensure repairs the failure, and has its own back-off. A delay that the cloud requests is kept.
        self.queue.add_after(Work::Sync(key), error.retry_after().unwrap_or_default());
        Ok(Outcome::Done)
    }

    /// Records that the load balancer has the hosts of this update.
    fn updated(&self, work: &ServiceWork) {
        if let Some(known) = self.lock().get_mut(&work.service.key()) {
            known.reach(&work.nodes);
            if let Some((_, hosts)) = &mut known.converged {
                *hosts = work.nodes.clone();
            }
        }
    }

    /// Ends the wait of the pass for this Service.
    pub(super) fn end_pass(&self, key: &ServiceKey) {
        if let Some(known) = self.lock().get_mut(key) {
            known.pass = None;
        }
    }

    pub(super) fn warn_no_nodes(&self, subject: &Subject) {
        let text = "There are no available nodes for LoadBalancer";
        self.events.event(subject, EventType::Warning, "UnAvailableLoadBalancer", text);
    }
}
