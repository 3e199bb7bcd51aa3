//! The sync of a group of Services: prepare each, hand all to the provider, finish each.
//!
//! ```text
//! key ─> prepare (events, finalizer, look) ─> Prepared ─┐
//! key ─> prepare ─────────────────────────> Prepared ─┴─> one reconcile of the provider ─> finish (events, status)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ccm_provider::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    ErrorClass, EventType, LoadBalancerExt as _, LoadBalancerStatus, NodeRef, Notes, Plan, ProviderError, Scope,
    Service, ServiceAction, ServiceAnswer, ServiceKey, ServiceWork, Subject,
};
use ccm_runtime::GateError;
use ccm_runtime::client::Call;
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{Outcome, SyncError};
use ccm_runtime::writer::ServicePatch;
use ccm_runtime::writer::service::path;
use futures::FutureExt as _;
use futures::future::join_all;
use serde_json::Value;

use super::conditions::Progress;
use super::role::CHANGE_HANDS;
use super::{ServiceController, ServiceState, Work, conditions, decide};

/// The time until a Service whose first ensure would empty its load balancer is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);
/// A provider that handles a whole group at once gets more time than a call for one Service.
const GROUP_DEADLINE: Duration = Duration::from_secs(2 * WRITE_DEADLINE.as_secs());

/// The remaining work for a key after its preparation.
enum Prepared {
    /// No work is left, or the preparation failed.
    Ended(Result<Outcome, SyncError>),
    /// The provider's part, and the continuation after it.
    Provider(ServiceWork, Purpose),
    /// No provider call is needed before the end.
    Finish(Arc<Service>),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Ensure,
    Hosts,
    /// The Service exists: its finalizer and status are written afterwards.
    Cleanup,
    /// The object is gone; only the cached state remains.
    Forget,
}

impl ServiceController {
    pub(super) async fn sync_group(
        &self,
        work: Vec<(Work, Option<Arc<Service>>)>,
    ) -> Vec<(Work, Result<Outcome, SyncError>)> {
        // A full sync covers the hosts too; both at once would be two calls for one Service.
        let whole: BTreeSet<ServiceKey> = work
            .iter()
            .filter_map(|(work, _)| match work {
                Work::Sync(key) => Some(key.clone()),
                Work::Hosts(_) => None,
            })
            .collect();
        let failed = self.delete_replaced(&work).await;
        let (whole, failed) = (&whole, &failed);
        let prepared = join_all(work.into_iter().map(|(key, service)| async move {
            let prepared = match &key {
                Work::Sync(key) if failed.contains_key(key) => {
                    Prepared::Ended(failed.get(key).cloned().map_or(Ok(Outcome::Done), Err))
                }
                Work::Hosts(hosts) if whole.contains(hosts) => {
                    self.end_pass(hosts);
                    Prepared::Ended(Ok(Outcome::Done))
                }
                key => self.prepare_caught(key, service).await,
            };
            (key, prepared)
        }))
        .await;
        let items: Vec<ServiceWork> = prepared
            .iter()
            .filter_map(|(_, prepared)| match prepared {
                Prepared::Provider(work, _) => Some(work.clone()),
                _ => None,
            })
            .collect();
        let (answers, took) = self.call_provider(&items).await;
        let mut answers = answers.into_iter();
        let finishing = prepared.into_iter().map(|(key, prepared)| {
            let answer = match prepared {
                Prepared::Provider(..) => answers.next(),
                _ => None,
            };
            async move {
                let outcome = match prepared {
                    Prepared::Ended(outcome) => outcome,
                    Prepared::Finish(service) => self.finish_cleanup(&service, &Notes::default()).await,
                    Prepared::Provider(work, purpose) => match answer {
                        Some(Ok(answer)) => self.finish(&work, purpose, answer, took).await,
                        Some(Err(closed)) => Err(SyncError::Closed(closed)),
                        None => Err(SyncError::Retry("no answer from the provider".into())),
                    },
                };
                (key, outcome)
            }
        });
        join_all(finishing).await
    }

    /// Prepares a Service; its panic does not fail the other Services of the group.
    async fn prepare_caught(&self, key: &Work, service: Option<Arc<Service>>) -> Prepared {
        let subject = service.as_deref().map(Subject::service);
        let panic = match AssertUnwindSafe(self.prepare(key, service)).catch_unwind().await {
            Ok(prepared) => return prepared,
            Err(panic) => panic_text(&*panic),
        };
        self.shared.metrics.panicked(self.config.role.name);
        let error = SyncError::Retry(format!("a sync panicked: {panic}"));
        Prepared::Ended(Err(match subject {
            Some(subject) => self.failed(&subject, error),
            None => error,
        }))
    }

    async fn prepare(&self, key: &Work, service: Option<Arc<Service>>) -> Prepared {
        let key = match key {
            Work::Sync(key) => key,
            Work::Hosts(key) => {
                return match self.prepare_hosts(key) {
                    Some(work) => self.planned(work, Purpose::Hosts).await,
                    None => Prepared::Ended(Ok(Outcome::Done)),
                };
            }
        };
        let known = self.known(key);
        let Some(service) = service else {
            // A cached Service is not cleaned up yet. This includes one that changed its type and was deleted before
            // that cleanup succeeded.
            let Some(known) = known else { return Prepared::Ended(Ok(Outcome::Done)) };
            return match self.is_gone(&known.service).await {
                Ok(()) => self.prepare_forgotten(known).await,
                Err(error) => Prepared::Ended(Err(error)),
            };
        };
        if known.is_none() && decide::is_leaving(&service) && self.finalizers(&service).present.is_empty() {
            // Cleaned up, by this process or another one; only finalizers of others keep the object.
            return Prepared::Ended(Ok(Outcome::Done));
        }
        let role = &self.config.role;
        if !role.is_alone() && !self.shared.owners.take(key, role.name) {
            return Prepared::Ended(Ok(Outcome::After(CHANGE_HANDS)));
        }
        let service = match known.is_none() && !role.is_alone() {
            true => match self.shared.services.get(key).filter(|now| role.asks(now) || role.needs_cleanup(now)) {
                Some(now) => now,
                // Another controller owned it when it was queued, and has cleaned up.
                None => {
                    self.shared.owners.release(key, role.name);
                    return Prepared::Ended(Ok(Outcome::Done));
                }
            },
            false => service,
        };
        self.remember(key, &service);
        if role.wants(&service) { self.prepare_ensure(service).await } else { self.prepare_cleanup(service).await }
    }

    fn remember(&self, key: &ServiceKey, service: &Arc<Service>) {
        let groups = self.balancer.groups(service);
        let mut all = self.lock();
        let known = all.entry(key.clone()).or_insert_with(|| ServiceState {
            service: service.clone(),
            hosts: None,
            present: Arc::default(),
            all_present: !service.has_finalizer() && service.status.load_balancer.ingress.is_empty(),
            pass: None,
            converged: None,
            groups: BTreeSet::new(),
            noted: BTreeMap::new(),
            in_progress: false,
        });
        known.service = service.clone();
        known.converged = None;
        known.groups.extend(groups);
    }

    /// Succeeds if the object is gone, or another one has its name. Absence from the watch is no proof.
    async fn is_gone(&self, service: &Service) -> Result<(), SyncError> {
        let call = Call::get(path(service)).metadata_only();
        match self.shared.gate.client().read::<Value>(&call).await {
            Err(error) if error.is_not_found() => Ok(()),
            Err(error) => Err(SyncError::gate("failed to check whether the Service is gone", error.into())),
            Ok(found) => match found.pointer("/metadata/uid").and_then(Value::as_str) {
                Some(uid) if uid != &*service.metadata.uid => Ok(()),
                _ => Err(SyncError::Retry("the Service is gone from the watch, but it exists".into())),
            },
        }
    }

    async fn prepare_forgotten(&self, known: ServiceState) -> Prepared {
        if self.shared.gate.is_dry_run() {
            self.forget(&known.service.key());
        } else {
            let subject = Subject::service(&known.service);
            self.events.event(&subject, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
        }
        let work = self.work(known.service, Arc::default(), ServiceAction::Delete);
        self.planned(work, Purpose::Forget).await
    }

    /// Deletes the load balancer of a cached object first if a new object has its name. Returns the keys for which that
    /// failed.
    async fn delete_replaced(&self, work: &[(Work, Option<Arc<Service>>)]) -> BTreeMap<ServiceKey, SyncError> {
        let mut due = Vec::new();
        for (work, service) in work {
            let (Work::Sync(key), Some(service)) = (work, service) else { continue };
            if let Some(old) = self.known(key).filter(|known| known.service.metadata.uid != service.metadata.uid)
                && let Prepared::Provider(work, _) = self.prepare_forgotten(old).await
            {
                due.push(work);
            }
        }
        let (answers, took) = self.call_provider(&due).await;
        let mut failed = BTreeMap::new();
        for (work, answer) in due.iter().zip(answers) {
            let ended = match answer {
                Ok(answer) => self.finish(work, Purpose::Forget, answer, took).await,
                Err(closed) => Err(SyncError::Closed(closed)),
            };
            failed.extend(ended.err().map(|error| (work.service.key(), error)));
        }
        failed
    }

    async fn prepare_ensure(&self, service: Arc<Service>) -> Prepared {
        let subject = Subject::service(&service);
        let key = service.key();
        let mut hosts = match self.hosts_of(&service).await {
            Ok(hosts) => hosts,
            Err(ended) => return ended,
        };
        if self.shared.gate.is_dry_run() {
            let work = self.work(service, hosts, ServiceAction::Ensure);
            return self.planned(work, Purpose::Ensure).await;
        }
        if !self.known(&key).is_some_and(|known| known.in_progress) {
            self.events.event(&subject, EventType::Normal, "EnsuringLoadBalancer", "Ensuring load balancer");
        }
        if !self.finalizers(&service).missing.is_empty() {
            if let Err(error) = self.add_finalizers(&service).await {
                return Prepared::Ended(Err(self.failed(&subject, error)));
            }
            // The write took time, and a pass over the hosts skips a Service whose hosts are not recorded yet: a change
            // in the meantime would never be applied.
            hosts = match self.hosts_of(&service).await {
                Ok(hosts) => hosts,
                Err(ended) => return ended,
            };
        }
        if hosts.is_empty() {
            self.warn_no_nodes(&subject);
        }
        if let Some(known) = self.lock().get_mut(&key) {
            known.hosts = Some(hosts.clone());
            known.attempt(&hosts);
        }
        let work = self.work(service, hosts, ServiceAction::Ensure);
        self.planned(work, Purpose::Ensure).await
    }

    /// The hosts to ensure, as of the time of the answer: the candidates or, if there are none, the hosts that the
    /// guard keeps. The error ends the sync.
    async fn hosts_of(&self, service: &Service) -> Result<Arc<[NodeRef]>, Prepared> {
        loop {
            let seen = self.candidates(service);
            if !seen.is_empty() {
                return Ok(seen);
            }
            let mut hosts = seen;
            let known = self.known(&service.key());
            if let Some(known) = &known
                && let Err(kept) = self.may_empty(known).await
            {
                self.refuse_emptying(service, &kept.reason);
                match kept.hosts {
                    Some(present) => hosts = present,
                    None => return Err(Prepared::Ended(Ok(Outcome::After(CHECK_AGAIN)))),
                }
            }
            // The guard may have queried the cloud. Meanwhile a node may have been added, or a host update begun.
            let is_checked = |now: ServiceState| known.is_none_or(|known| Arc::ptr_eq(&now.present, &known.present));
            if self.candidates(service).is_empty() && self.known(&service.key()).is_none_or(is_checked) {
                return Ok(hosts);
            }
        }
    }

    async fn prepare_cleanup(&self, service: Arc<Service>) -> Prepared {
        let subject = Subject::service(&service);
        // A finalizer of the provider shows that parts may exist: then the deletion needs no lookup.
        let own = self.balancer.finalizers(&service);
        let has = |name: &str| service.metadata.finalizers.iter().any(|present| present == name);
        let exists = match own.iter().any(|(name, _)| has(name)) {
            true => Ok(true),
            false => {
                let read = self.balancer.get(&self.shared.cluster, &service);
                deadline::within("GetLoadBalancer", READ_DEADLINE, read).await.map(|found| found.is_some())
            }
        };
        match exists {
            Err(error) => {
                let error = SyncError::provider("failed to check if load balancer exists before cleanup", &error);
                Prepared::Ended(Err(self.failed(&subject, error)))
            }
            Ok(false) => Prepared::Finish(service),
            Ok(true) => {
                if !self.shared.gate.is_dry_run() {
                    self.events.event(&subject, EventType::Normal, "DeletingLoadBalancer", "Deleting load balancer");
                }
                let work = self.work(service, Arc::default(), ServiceAction::Delete);
                self.planned(work, Purpose::Cleanup).await
            }
        }
    }

    /// In a dry run, shows the provider's writes and ends.
    async fn planned(&self, work: ServiceWork, purpose: Purpose) -> Prepared {
        if !self.shared.gate.is_dry_run() {
            return Prepared::Provider(work, purpose);
        }
        let subject = Subject::service(&work.service);
        let plan = self.balancer.plan(&self.shared.cluster, &work);
        match deadline::within("the plan", READ_DEADLINE, plan).await {
            Ok(mut plan) => {
                plan.steps.splice(0..0, self.finalizer_steps(&work));
                self.shared.gate.show(&plan);
                Prepared::Ended(Ok(Outcome::Done))
            }
            Err(error) => {
                let error = SyncError::provider("failed to plan load balancer", &error);
                Prepared::Ended(Err(self.failed(&subject, error)))
            }
        }
    }

    /// One call for each set of items with a common group, in sequence; one answer per item, and the total time.
    async fn call_provider(&self, items: &[ServiceWork]) -> (Vec<Result<ServiceAnswer, GateError>>, Duration) {
        let began = Instant::now();
        let mut answers = BTreeMap::new();
        for places in ccm_provider::batches(&*self.balancer, items) {
            let items: Vec<ServiceWork> = places.iter().filter_map(|place| items.get(*place).cloned()).collect();
            let scope = Scope::default();
            let call = self.balancer.reconcile(&self.shared.cluster, &items, &scope);
            match self.shared.gate.cloud_each("ReconcileLoadBalancers", GROUP_DEADLINE, items.len(), call).await {
                Ok(group) => answers.extend(places.into_iter().zip(group.into_iter().map(Ok))),
                Err(closed) => answers.extend(places.into_iter().map(|place| (place, Err(closed.clone())))),
            }
        }
        (answers.into_values().collect(), began.elapsed())
    }

    async fn finish(
        &self,
        work: &ServiceWork,
        purpose: Purpose,
        answer: ServiceAnswer,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        let service = &work.service;
        let subject = Subject::service(service);
        let ServiceAnswer { result: answer, notes, .. } = answer;
        match purpose {
            Purpose::Hosts => self.finish_hosts(work, answer, &notes, took).await,
            Purpose::Ensure => {
                if let Some(known) = self.lock().get_mut(&service.key()) {
                    known.in_progress = matches!(&answer, Err(error) if error.is_in_progress());
                }
                let error = match self.finish_ensure(work, answer, &notes).await {
                    Ok(outcome) => return Ok(outcome),
                    Err(error) => self.failed(&subject, error),
                };
                self.note_failure(service, &error, &notes).await;
                Err(error)
            }
            Purpose::Cleanup => match answer {
                Err(error) if !error.is_implemented_elsewhere() => {
                    Err(self.failed(&subject, SyncError::provider("failed to delete load balancer", &error)))
                }
                _ => self.finish_cleanup(service, &notes).await,
            },
            Purpose::Forget => match answer {
                Err(error) if error.is_in_progress() => Err(SyncError::provider("", &error)),
                Err(error) if !error.is_implemented_elsewhere() => {
                    let text = format!("Error deleting load balancer: {error}");
                    self.events.event(&subject, EventType::Warning, "DeleteLoadBalancerFailed", &text);
                    Err(SyncError::provider("", &error))
                }
                _ => {
                    self.events.event(&subject, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
                    self.forget(&service.key());
                    Ok(Outcome::Done)
                }
            },
        }
    }

    async fn finish_ensure(
        &self,
        work: &ServiceWork,
        answer: Result<Option<LoadBalancerStatus>, ProviderError>,
        notes: &Notes,
    ) -> Result<Outcome, SyncError> {
        let service = &work.service;
        let status = match answer {
            Ok(Some(status)) => status,
            Ok(None) => {
                let message = "service status returned by EnsureLoadBalancer is nil".to_owned();
                return Err(SyncError::Provider { message, class: ErrorClass::Bug, after: None });
            }
            Err(error) if error.is_implemented_elsewhere() => {
                tracing::debug!(service = %service.key(), "the load balancer is provided elsewhere");
                let conditions = self.conditions(service, Progress::ImplementedElsewhere);
                let patch = ServicePatch { conditions, ..ServicePatch::default() };
                self.write(service, patch, notes).await?;
                return Ok(Outcome::Done);
            }
            Err(error) => return Err(SyncError::provider("failed to ensure load balancer", &error)),
        };
        let subject = Subject::service(service);
        self.events.event(&subject, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
        let conditions = self.conditions(service, Progress::Ensured(&status));
        let remove_finalizers = self.finalizers(service).surplus;
        let patch = ServicePatch { remove_finalizers, status: Some(status), conditions, ..ServicePatch::default() };
        self.write(service, patch, notes).await?;
        if let Some(known) = self.lock().get_mut(&service.key()) {
            known.reach(&work.nodes);
            known.converged = Some((service.clone(), work.nodes.clone()));
            known.groups = self.balancer.groups(service);
        }
        Ok(Outcome::Done)
    }

    async fn finish_cleanup(&self, service: &Arc<Service>, notes: &Notes) -> Result<Outcome, SyncError> {
        let subject = Subject::service(service);
        if self.shared.gate.is_dry_run() {
            let plan =
                Plan { steps: self.finalizer_removals(service), ..Plan::new(format!("service {}", service.key())) };
            self.shared.gate.show(&plan);
            return Ok(Outcome::Done);
        }
        let mut conditions = self.conditions(service, Progress::Gone);
        if !self.finalizers(service).present.is_empty() {
            // If the object disappears with its finalizer, no later write finds it.
            if let Err(error) = self.remove_finalizers(service, conditions.take()).await {
                return Err(self.failed(&subject, error));
            }
        }
        self.events.event(&subject, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        let patch = ServicePatch { status: Some(LoadBalancerStatus::default()), conditions, ..ServicePatch::default() };
        if let Err(error) = self.write(service, patch, notes).await {
            return Err(self.failed(&subject, error));
        }
        self.forget(&service.key());
        Ok(Outcome::Done)
    }

    /// Emits an event on the Service. Neither a closed gate nor a cloud that needs time is a failure.
    fn failed(&self, subject: &Subject, error: SyncError) -> SyncError {
        if !matches!(error, SyncError::Closed(_)) && !error.is_in_progress() {
            let message = format!("{}{error}", conditions::FAILED);
            self.events.failure(subject, "SyncLoadBalancerFailed", &message, error.class());
        }
        error
    }
}
