//! Host updates: changes of load balancers when nodes are added, changed or deleted.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::{
    EventType, LoadBalancerStatus, Node, NodeRef, Notes, ProviderError, Service, ServiceAction, ServiceKey,
    ServiceWork, Subject,
};
use ccm_runtime::runner::{Outcome, SyncError};
use ccm_runtime::writer::ServicePatch;
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};

use super::choice::{Choices, TURN};
use super::guard::Kept;
use super::metrics::Pass;
use super::{ServiceController, ServiceState, Work, decide};

/// The time until a load balancer whose hosts the guard kept is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);

/// A Service, as of the start of a pass.
struct Entry {
    key: ServiceKey,
    service: Arc<Service>,
    hosts: Option<Arc<[NodeRef]>>,
    among: Option<Arc<[NodeRef]>>,
    waits: bool,
}

/// Hosts, and the candidates among which they were chosen; `None` if more than the candidates decided.
pub(super) struct Chosen {
    pub(super) hosts: Arc<[NodeRef]>,
    pub(super) among: Option<Arc<[NodeRef]>>,
}

/// The result of a pass for one Service.
enum Change {
    None,
    Hosts(Chosen),
    /// It has hosts at last.
    Sync,
}

/// Services whose load balancers would lose all hosts, although they had the same ones.
struct Emptied {
    entries: Vec<Entry>,
    known: ServiceState,
    pass: Arc<Pass>,
}

impl Entry {
    /// Whether the hosts were chosen by nobody else since.
    fn is_current(&self, now: &ServiceState) -> bool {
        let same = |(old, now): (&Arc<[NodeRef]>, &Arc<[NodeRef]>)| Arc::ptr_eq(old, now);
        Arc::ptr_eq(&self.service, &now.service) && self.hosts.as_ref().zip(now.hosts.as_ref()).is_some_and(same)
    }
}

impl ServiceController {
    /// Runs one pass after each burst of node changes. The checks of load balancers that would lose all hosts query the
    /// cloud; they hold up neither each other nor the next pass.
    pub(super) async fn node_passes(self: Arc<Self>) {
        let leadership = self.shared.leadership.clone();
        let (mut checks, mut under_check) = (FuturesUnordered::new(), BTreeSet::new());
        loop {
            let keys = tokio::select! {
                biased;
                Some(ended) = checks.next() => {
                    let ended: Vec<ServiceKey> = ended;
                    under_check.retain(|key| !ended.contains(key));
                    continue;
                }
                keys = leadership.until_ended(self.node_queue.take_ready(1)) => keys,
            };
            let Some(Some(keys)) = keys else { return };
            match AssertUnwindSafe(self.node_pass(&mut under_check)).catch_unwind().await {
                Ok(emptied) => checks.extend(emptied.into_iter().map(|emptied| self.check(emptied))),
                Err(panic) => {
                    self.panicked(&*panic);
                    self.node_queue.add_after((), CHECK_AGAIN);
                }
            }
            for key in keys {
                self.node_queue.forget(&key);
                self.node_queue.done(&key);
            }
        }
    }

    /// Finds the Services whose hosts changed and queues their update. Returns those that would lose all hosts, if they
    /// are not `under_check` yet.
    async fn node_pass(&self, under_check: &mut BTreeSet<ServiceKey>) -> Vec<Emptied> {
        let pass = self.metrics.pass();
        let entries = self.entries();
        // Each of thousands of new nodes causes a pass; without a Service, none looks at all nodes.
        if entries.is_empty() {
            return Vec::new();
        }
        let mut choices = Choices::new(self.all_candidates());
        let (mut same, mut emptied) = (Vec::new(), Vec::new());
        for entry in entries {
            if choices.is_turn_over() {
                tokio::task::yield_now().await;
            }
            match self.caught(|| self.change_of(&entry, &mut choices)) {
                Ok(Change::None) => same.push(entry),
                // After a panic, the sync of this Service reports it; the others continue.
                Ok(Change::Sync) | Err(_) => self.queue.add(Work::Sync(entry.key)),
                Ok(Change::Hosts(chosen)) if chosen.hosts.is_empty() && !self.config.allow_emptying => {
                    if under_check.insert(entry.key.clone()) {
                        emptied.push(entry);
                    }
                }
                Ok(Change::Hosts(chosen)) => self.change_hosts(entry, chosen, &pass),
            }
        }
        for same in same.chunks(TURN) {
            self.chosen_among(same, choices.candidates());
            tokio::task::yield_now().await;
        }
        self.with_the_same_hosts(emptied, &pass)
    }

    fn entries(&self) -> Vec<Entry> {
        let entry = |(key, known): (&ServiceKey, &ServiceState)| Entry {
            key: key.clone(),
            service: known.service.clone(),
            hosts: known.hosts.clone(),
            among: known.among.clone(),
            waits: known.waits,
        };
        self.lock().iter().map(entry).collect()
    }

    fn change_of(&self, entry: &Entry, choices: &mut Choices) -> Change {
        let service = &entry.service;
        if !self.config.role.wants(service) || self.lacks_endpoints(service) {
            return Change::None;
        }
        let backend = |node: &Node| self.balancer.backend(service, node).map(Cow::into_owned);
        if let (Some(hosts), Some(among)) = (&entry.hosts, &entry.among) {
            let Some(hosts) = choices.after(hosts, among, backend) else { return Change::None };
            return Change::Hosts(Chosen { hosts, among: Some(choices.candidates().clone()) });
        }
        choices.ask(choices.candidates().len());
        let chosen = self.chosen(service, choices.candidates());
        match &entry.hosts {
            Some(old) if decide::same_hosts(old, &chosen.hosts, |node| self.balancer.backend(service, node)) => {
                Change::None
            }
            Some(_) => Change::Hosts(chosen),
            None if entry.waits && !chosen.hosts.is_empty() => Change::Sync,
            None => Change::None,
        }
    }

    /// Records that the hosts of these Services are the same among other candidates.
    fn chosen_among(&self, entries: &[Entry], candidates: &Arc<[NodeRef]>) {
        let mut all = self.lock();
        for entry in entries.iter().filter(|entry| entry.among.is_some()) {
            if let Some(now) = all.get_mut(&entry.key).filter(|now| entry.is_current(now)) {
                now.among = Some(candidates.clone());
            }
        }
    }

    /// Queues a host update. The hosts are recorded before the call, so that a slow update never overwrites those of a
    /// later ensure.
    fn change_hosts(&self, entry: Entry, chosen: Chosen, pass: &Arc<Pass>) {
        match self.lock().get_mut(&entry.key) {
            Some(now) if entry.is_current(now) => {
                now.hosts = Some(chosen.hosts);
                now.among = chosen.among;
                now.pass = Some(pass.clone());
            }
            // A sync began meanwhile, and has chosen the hosts by itself.
            _ => return self.node_queue.add(()),
        }
        self.queue.add(Work::Hosts(entry.key));
    }

    /// Joins Services that had the same hosts: one look-up of these is enough.
    fn with_the_same_hosts(&self, entries: Vec<Entry>, pass: &Arc<Pass>) -> Vec<Emptied> {
        let mut emptied: Vec<Emptied> = Vec::new();
        for entry in entries {
            let Some(known) = self.known(&entry.key) else { continue };
            let had_the_same =
                |one: &&mut Emptied| known.all_present && Arc::ptr_eq(&one.known.present, &known.present);
            match emptied.iter_mut().find(had_the_same).filter(|one| one.known.all_present) {
                Some(one) => one.entries.push(entry),
                None => emptied.push(Emptied { entries: vec![entry], known, pass: pass.clone() }),
            }
        }
        emptied
    }

    /// Checks whether load balancers may lose all hosts. Returns their Services.
    async fn check(&self, emptied: Emptied) -> Vec<ServiceKey> {
        let keys = emptied.entries.iter().map(|entry| entry.key.clone()).collect();
        let Emptied { entries, known, pass } = emptied;
        let allowed = AssertUnwindSafe(self.may_empty(&known))
            .catch_unwind()
            .await
            .unwrap_or_else(|panic| Err(Kept { reason: self.panicked(&*panic), hosts: None }));
        for entry in entries {
            let service = &entry.service;
            if !self.caught(|| self.candidates(service)).is_ok_and(|hosts| hosts.is_empty()) {
                // A node was added during the cloud call: the result is out of date.
                self.node_queue.add(());
            } else if let Err(kept) = &allowed {
                self.refuse_emptying(service, &kept.reason);
                self.node_queue.add_after((), CHECK_AGAIN);
            } else if self.known(&entry.key).is_some_and(|now| !Arc::ptr_eq(&now.present, &known.present)) {
                // A call that began meanwhile may have added hosts, which the guard has not checked.
                self.node_queue.add(());
            } else {
                let chosen = Chosen { hosts: Arc::default(), among: None };
                self.change_hosts(entry, chosen, &pass);
            }
        }
        keys
    }

    /// For a Service whose finalizer cannot be written, after a restart: nothing is created for it, but the load balancer
    /// that it has gets the present nodes. Later changes are found by the passes.
    pub(super) fn follow_nodes(&self, service: &Service, chosen: Chosen) {
        let key = service.key();
        if service.status.load_balancer.ingress.is_empty() {
            return;
        }
        if let Some(known) = self.lock().get_mut(&key).filter(|known| known.hosts.is_none()) {
            (known.hosts, known.among) = (Some(chosen.hosts), chosen.among);
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
        // The next ensure handles changes that are not synced yet. What was written since the last one is included: the
        // provider finds its load balancer by the notes and the status.
        let mut service = self.with_notes(&known.service, &current);
        service.metadata.finalizers.clone_from(&current.metadata.finalizers);
        service.status.clone_from(&current.status);
        Some(self.work(Arc::new(service), nodes, ServiceAction::UpdateHosts))
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
        status: Option<LoadBalancerStatus>,
        notes: &Notes,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        let key = work.service.key();
        self.metrics.update_latency.observe(took.as_secs_f64());
        self.end_pass(&key);
        let patch = ServicePatch { status, ..ServicePatch::default() };
        let written = self.write(&work.service, patch, notes).await;
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
            Err(error) if error.is_implemented_elsewhere() => {
                self.leave_status(&key);
                return written.map(|()| Outcome::Done);
            }
            Err(error) if error.is_in_progress() => return Err(SyncError::provider("", &error)),
            Err(error) => error,
        };
        let still_there = self.balancer.get(&self.shared.cluster, &work.service);
        if let Ok(None) = self.shared.read(deadline::within("GetLoadBalancer", READ_DEADLINE, still_there)).await? {
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
        // No ensure is made without the finalizer, and that may be refused for long.
        if !self.finalizers(&work.service).missing.is_empty() {
            return Err(SyncError::provider("", &error));
        }
        // A full ensure repairs the failure, and has its own back-off. A delay that the cloud requests is kept.
        self.queue.add_after(Work::Sync(key), error.retry_after().unwrap_or_default());
        Ok(Outcome::Done)
    }

    /// Records that the load balancer has the hosts of this update.
    fn updated(&self, work: &ServiceWork) {
        let key = work.service.key();
        if let Some(known) = self.lock().get_mut(&key) {
            known.reach(&work.nodes);
            if let Some((_, hosts)) = &mut known.converged {
                *hosts = work.nodes.clone();
            }
        }
        self.check_status_now(&key);
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

#[cfg(test)]
mod tests;
