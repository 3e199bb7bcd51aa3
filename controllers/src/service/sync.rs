//! The sync of a group of Services: prepare each, hand all to the provider, finish each.
//!
//! ```text
//! key ─> prepare (events, finalizer, look) ─> Prepared ─┐
//! key ─> prepare ─────────────────────────> Prepared ─┴─> one reconcile of the provider ─> finish (events, status)
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::Poll;
use std::time::{Duration, Instant};

use ccm_provider::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    EventType, LoadBalancerExt as _, LoadBalancerStatus, ProviderError, Service, ServiceAction, ServiceAnswer,
    ServiceKey, ServiceWork, Subject,
};
use ccm_runtime::GateError;
use ccm_runtime::runner::{self, HOLDS, Outcome, Rest, SyncError};
use futures::channel::mpsc::{self, UnboundedSender};
use futures::future::{BoxFuture, join_all};
use futures::{FutureExt as _, StreamExt as _};
use serde_json::Value;
use tokio::sync::Semaphore;

use super::hosts::Chosen;
use super::role::CHANGE_HANDS;
use super::writes::Adds;
use super::{ServiceController, ServiceState, Work, decide};

/// The time until a Service whose first ensure would empty its load balancer is checked again.
const CHECK_AGAIN: Duration = Duration::from_secs(60);
/// Sync the Service as it is now.
pub(super) const AGAIN: Outcome = Outcome::After(Duration::ZERO);
/// A provider that handles a whole group at once gets more time than a call for one Service.
const GROUP_DEADLINE: Duration = Duration::from_secs(2 * WRITE_DEADLINE.as_secs());

/// The remaining work for a key after its preparation.
pub(super) enum Prepared<'a> {
    /// No work is left, or the preparation failed.
    Ended(Result<Outcome, SyncError>),
    /// The provider's part, and the continuation after it.
    Provider(ServiceWork, Purpose),
    /// No provider call is needed before the end.
    Finish(Arc<Service>),
    /// Only the status is to be restored.
    Status(ServiceKey),
    /// A write to the API server takes long: the Service goes on when it is done, not in this round.
    Later(BoxFuture<'a, Result<Outcome, SyncError>>),
}

/// Receives the statuses that are known before the call of the provider ends.
type Publish = UnboundedSender<(ServiceWork, LoadBalancerStatus)>;

/// The reply to one item of the provider's work.
pub(super) enum Reply {
    Answer(ServiceAnswer),
    /// The Service changed since its preparation, so the provider was not called.
    Outdated,
    /// The write gate is closed.
    Closed(GateError),
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Ensure,
    Hosts,
    /// The Service exists: its finalizer and status are written afterwards.
    Cleanup,
    /// The object is gone; only the cached state remains.
    Forget,
}

impl ServiceController {
    pub(super) async fn sync_group(&self, work: Vec<(Work, Option<Arc<Service>>)>) -> Vec<Rest<'_, Work>> {
        // A full sync covers the hosts too, unless it ends early; both at once would be two calls for one Service.
        let whole: BTreeSet<ServiceKey> = work
            .iter()
            .filter_map(|(work, _)| match work {
                Work::Sync(key) => Some(key.clone()),
                Work::Hosts(_) | Work::Status(_) => None,
            })
            .collect();
        let failed = &self.delete_replaced(&work).await;
        let is_covered = |(work, _): &(Work, _)| matches!(work, Work::Hosts(hosts) if whole.contains(hosts));
        let (hosts, work): (Vec<_>, Vec<_>) = work.into_iter().partition(is_covered);
        let mut prepared = join_all(work.into_iter().map(|(key, service)| async move {
            let prepared = match &key {
                Work::Sync(key) if failed.contains_key(key) => {
                    Prepared::Ended(failed.get(key).cloned().map_or(Ok(Outcome::Done), Err))
                }
                key => self.prepare_caught(key, service).await,
            };
            (key, prepared)
        }))
        .await;
        for (key, _) in hosts {
            let covered = self.covered(&key, &prepared);
            let hosts = match covered {
                Some(ended) => ended,
                None => self.prepare_caught(&key, None).await,
            };
            prepared.push((key, hosts));
        }
        let items: Vec<ServiceWork> = prepared
            .iter()
            .filter_map(|(_, prepared)| match prepared {
                Prepared::Provider(work, _) => Some(work.clone()),
                _ => None,
            })
            .collect();
        let (publish, mut published) = mpsc::unbounded();
        let mut early: Vec<(ServiceKey, BoxFuture<'_, ()>)> = Vec::new();
        let mut call = pin!(self.call_provider(&items, &publish));
        let (replies, took) = poll_fn(|context| {
            // A write that was put off goes on: it may hold a place that others wait for.
            for (_, prepared) in &mut prepared {
                if let Prepared::Later(rest) = prepared
                    && let Poll::Ready(outcome) = rest.poll_unpin(context)
                {
                    *prepared = Prepared::Ended(outcome);
                }
            }
            while let Poll::Ready(Some((work, status))) = published.poll_next_unpin(context) {
                early.push((work.service.key(), self.write_early(work, status).boxed()));
            }
            early.retain_mut(|(_, write)| write.poll_unpin(context).is_pending());
            call.as_mut().poll(context)
        })
        .await;
        let mut replies = replies.into_iter();
        let finishing = prepared.into_iter().map(|(key, prepared)| {
            let reply = match prepared {
                Prepared::Provider(..) => replies.next(),
                _ => None,
            };
            let early: Vec<_> =
                early.extract_if(.., |(of, _)| reply.is_some() && of == key.key()).map(|(_, write)| write).collect();
            async move {
                let outcome = self.finish_prepared(prepared, reply, early, took).await;
                (key, outcome)
            }
            .boxed()
        });
        finishing.collect()
    }

    /// The end of a host update beside a sync of the Service; `None` if that ends without its hosts.
    fn covered(&self, work: &Work, prepared: &[(Work, Prepared<'_>)]) -> Option<Prepared<'static>> {
        let is_sync = |(other, _): &&(Work, Prepared<'_>)| matches!(other, Work::Sync(key) if key == work.key());
        let outcome = match prepared.iter().find(is_sync).map(|(_, sync)| sync) {
            Some(Prepared::Ended(Err(_)) | Prepared::Later(_)) => return None,
            Some(Prepared::Ended(Ok(Outcome::After(delay)))) => Outcome::After(*delay),
            _ => {
                self.end_pass(work.key());
                Outcome::Done
            }
        };
        Some(Prepared::Ended(Ok(outcome)))
    }

    /// A part of the sync of one Service; its panic does not fail the other Services of the group.
    pub(super) async fn unless_panicked<R>(
        &self,
        service: &Service,
        part: impl Future<Output = Result<R, SyncError>>,
    ) -> Result<R, SyncError> {
        AssertUnwindSafe(part).catch_unwind().await.unwrap_or_else(|panic| {
            let error = SyncError::Retry(self.panicked(&*panic));
            Err(self.failed(&Subject::service(service), error))
        })
    }

    /// Prepares a Service; its panic does not fail the other Services of the group.
    async fn prepare_caught(&self, key: &Work, service: Option<Arc<Service>>) -> Prepared<'_> {
        let prepare = self.prepare(key, service.clone()).map(Ok);
        let prepared = match service {
            Some(service) => self.unless_panicked(&service, prepare).await,
            None => AssertUnwindSafe(prepare)
                .catch_unwind()
                .await
                .unwrap_or_else(|panic| Err(SyncError::Retry(self.panicked(&*panic)))),
        };
        prepared.unwrap_or_else(|error| Prepared::Ended(Err(error)))
    }

    async fn prepare(&self, key: &Work, service: Option<Arc<Service>>) -> Prepared<'_> {
        if self.known(key.key()).is_some_and(|known| known.is_finishing()) {
            return Prepared::Ended(Ok(Outcome::After(HOLDS)));
        }
        let key = match key {
            Work::Sync(key) => key,
            Work::Hosts(key) => {
                return match self.prepare_hosts(key) {
                    Some(work) => self.planned(work, Purpose::Hosts).await,
                    None => Prepared::Ended(Ok(Outcome::Done)),
                };
            }
            Work::Status(key) => return Prepared::Status(key.clone()),
        };
        let known = self.known(key);
        let Some(service) = service else {
            // A cached Service is not cleaned up yet. This includes one that changed its type and was deleted before
            // that cleanup succeeded.
            let Some(known) = known else { return Prepared::Ended(Ok(Outcome::Done)) };
            return match self.shared.read(self.is_gone(&known.service)).await {
                Ok(Ok(())) => self.prepare_forgotten(known).await,
                Ok(Err(error)) | Err(error) => Prepared::Ended(Err(error)),
            };
        };
        if known.as_ref().is_some_and(|known| known.service.metadata.uid != service.metadata.uid) {
            // A write on the former object was not finished when its load balancer was to be deleted.
            return Prepared::Ended(Ok(AGAIN));
        }
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

    pub(super) fn remember(&self, key: &ServiceKey, service: &Arc<Service>) {
        let groups = self.balancer.groups(service);
        let has_changed = self.known(key).is_some_and(|known| self.needs_sync(&known.service, service));
        let mut all = self.lock();
        let known = all.entry(key.clone()).or_insert_with(|| ServiceState {
            service: service.clone(),
            hosts: None,
            among: None,
            present: Arc::default(),
            all_present: !service.has_finalizer() && service.status.load_balancer.ingress.is_empty(),
            pass: None,
            converged: None,
            status: LoadBalancerStatus::default(),
            contest: Default::default(),
            groups: BTreeSet::new(),
            noted: BTreeMap::new(),
            at_work: None,
            repeats: false,
            waits: false,
            kept: None,
            elsewhere: None,
            finishing: Arc::new(Semaphore::new(1)),
        });
        if !Arc::ptr_eq(&known.service, service) {
            // Its hosts were chosen for another state of the Service.
            known.among = None;
        }
        known.repeats &= !has_changed;
        known.service = service.clone();
        known.converged = None;
        known.groups.extend(groups);
    }

    /// Succeeds if the object is gone, or another one has its name. Absence from the watch is no proof.
    async fn is_gone(&self, service: &Service) -> Result<(), SyncError> {
        let metadata = &service.metadata;
        let collection = format!("/api/v1/namespaces/{}/services", metadata.namespace);
        match self.shared.gate.client().read_named::<Value>(&collection, &metadata.name).await {
            Ok(None) => Ok(()),
            Err(error) => Err(SyncError::gate("failed to check whether the Service is gone", error.into())),
            Ok(Some(found)) => match found.pointer("/metadata/uid").and_then(Value::as_str) {
                Some(uid) if uid != &*metadata.uid => Ok(()),
                _ => Err(SyncError::Retry("the Service is gone from the watch, but it exists".into())),
            },
        }
    }

    async fn prepare_forgotten(&self, known: ServiceState) -> Prepared<'_> {
        if self.shared.gate.is_dry_run() {
            self.forget(&known.service.key());
        } else {
            self.begin(&known.service, ServiceAction::Delete);
        }
        let work = self.work(Arc::new(known.as_written()), Arc::default(), ServiceAction::Delete);
        self.planned(work, Purpose::Forget).await
    }

    /// Deletes the load balancer of a cached object first if a new object has its name. Returns the keys for which that
    /// failed.
    async fn delete_replaced(&self, work: &[(Work, Option<Arc<Service>>)]) -> BTreeMap<ServiceKey, SyncError> {
        let mut due = Vec::new();
        for (work, service) in work {
            let (Work::Sync(key), Some(service)) = (work, service) else { continue };
            let is_replaced =
                |known: &ServiceState| known.service.metadata.uid != service.metadata.uid && !known.is_finishing();
            if let Some(old) = self.known(key).filter(is_replaced)
                && let Prepared::Provider(work, _) = self.prepare_forgotten(old).await
            {
                due.push(work);
            }
        }
        let (replies, took) = self.call_provider(&due, &mpsc::unbounded().0).await;
        let mut failed = BTreeMap::new();
        for (work, reply) in due.iter().zip(replies) {
            let ended = self.finish(work, Purpose::Forget, reply, took).await;
            failed.extend(ended.err().map(|error| (work.service.key(), error)));
        }
        failed
    }

    /// Emits the event about the start of a piece of work, unless an earlier sync began it and has not finished it.
    fn begin(&self, service: &Service, action: ServiceAction) {
        let began =
            self.lock().get_mut(&service.key()).is_some_and(|known| known.at_work.replace(action) == Some(action));
        let (reason, text) = match action {
            ServiceAction::Ensure => ("EnsuringLoadBalancer", "Ensuring load balancer"),
            ServiceAction::Delete => ("DeletingLoadBalancer", "Deleting load balancer"),
            ServiceAction::UpdateHosts => return,
        };
        if !began {
            self.events.event(&Subject::service(service), EventType::Normal, reason, text);
        }
    }

    /// Whether the Service changed since this work was prepared, so that the next sync does something else.
    pub(super) fn is_outdated(&self, work: &ServiceWork) -> bool {
        let role = &self.config.role;
        let now = self.shared.services.get(&work.service.key());
        let now = now.filter(|now| now.metadata.uid == work.service.metadata.uid);
        match work.action {
            ServiceAction::Ensure => now.is_none_or(|now| !role.wants(&now) || self.needs_sync(&work.service, &now)),
            ServiceAction::Delete => now.is_some_and(|now| role.wants(&now)),
            // The next ensure or deletion follows by itself.
            ServiceAction::UpdateHosts => false,
        }
    }

    async fn prepare_ensure(&self, service: Arc<Service>) -> Prepared<'_> {
        let subject = Subject::service(&service);
        let key = service.key();
        let mut chosen = match self.hosts_of(&service).await {
            Ok(chosen) => chosen,
            Err(ended) => return ended,
        };
        let work = self.work(service.clone(), chosen.hosts.clone(), ServiceAction::Ensure);
        if self.shared.gate.is_dry_run() {
            return self.planned(work, Purpose::Ensure).await;
        }
        if self.is_outdated(&work) {
            return Prepared::Ended(Ok(AGAIN));
        }
        self.begin(&service, ServiceAction::Ensure);
        if !self.finalizers(&service).missing.is_empty() {
            let mut adding = self.add_finalizers(service.clone()).boxed();
            match tokio::time::timeout(HOLDS, &mut adding).await {
                Ok(Ok(())) => {}
                Ok(Err(error)) => {
                    self.follow_nodes(&service, chosen);
                    return Prepared::Ended(Err(self.failed(&subject, error)));
                }
                Err(_) => {
                    self.follow_nodes(&service, chosen);
                    let later = async move {
                        let added = adding.await.map(|()| AGAIN);
                        added.map_err(|error| self.failed(&subject, error))
                    };
                    return Prepared::Later(later.boxed());
                }
            }
            // The write took time, and a pass over the hosts skips a Service whose hosts are not recorded yet: a change
            // in the meantime would never be applied.
            chosen = match self.hosts_of(&service).await {
                Ok(chosen) => chosen,
                Err(ended) => return ended,
            };
        }
        let Chosen { hosts, among } = chosen;
        if hosts.is_empty() {
            self.warn_no_nodes(&subject);
        }
        if let Some(known) = self.lock().get_mut(&key) {
            known.hosts = Some(hosts.clone());
            known.among = among;
            known.waits = false;
            known.attempt(&hosts);
        }
        let work = self.work(service, hosts, ServiceAction::Ensure);
        self.planned(work, Purpose::Ensure).await
    }

    /// The hosts to ensure, as of the time of the answer: the candidates or, if there are none, the hosts that the
    /// guard keeps. The error ends the sync.
    async fn hosts_of(&self, service: &Service) -> Result<Chosen, Prepared<'_>> {
        if self.lacks_endpoints(service) {
            let text = "its hosts depend on EndpointSlices, which cannot be listed: they stay as they are";
            let error = SyncError::Retry(text.to_owned());
            return Err(Prepared::Ended(Err(self.failed(&Subject::service(service), error))));
        }
        loop {
            let mut chosen = self.chosen(service, &self.all_candidates());
            if !chosen.hosts.is_empty() {
                return Ok(chosen);
            }
            let known = self.known(&service.key());
            if let Some(known) = &known
                && let Err(kept) =
                    self.shared.read(self.may_empty(known)).await.map_err(|ending| Prepared::Ended(Err(ending)))?
            {
                self.refuse_emptying(service, &kept.reason);
                let Some(hosts) = kept.hosts else {
                    // A host that appears ends the wait.
                    if let Some(known) = self.lock().get_mut(&service.key()) {
                        known.waits = true;
                    }
                    return Err(Prepared::Ended(Ok(Outcome::After(CHECK_AGAIN))));
                };
                chosen = Chosen { hosts, among: None };
            }
            // The guard may have queried the cloud. Meanwhile a node may have been added, or a host update begun.
            let is_checked = |now: ServiceState| known.is_none_or(|known| Arc::ptr_eq(&now.present, &known.present));
            if self.candidates(service).is_empty() && self.known(&service.key()).is_none_or(is_checked) {
                return Ok(chosen);
            }
        }
    }

    async fn prepare_cleanup(&self, service: Arc<Service>) -> Prepared<'_> {
        // A finalizer of the provider shows that parts may exist: then the deletion needs no lookup.
        let own = self.balancer.finalizers(&service);
        let has = |name: &str| service.metadata.finalizers.iter().any(|present| present == name);
        let exists = match own.iter().any(|(name, _)| has(name)) {
            true => Ok(true),
            false => {
                let read = self.balancer.get(&self.shared.cluster, &service);
                match self.shared.read(deadline::within("GetLoadBalancer", READ_DEADLINE, read)).await {
                    Ok(read) => read.map(|found| found.is_some()),
                    Err(ending) => return Prepared::Ended(Err(ending)),
                }
            }
        };
        match exists {
            Err(error) => {
                let error = SyncError::provider("failed to check if load balancer exists before cleanup", &error);
                Prepared::Ended(Err(self.failed(&Subject::service(&service), error)))
            }
            Ok(false) => Prepared::Finish(service),
            Ok(true) => {
                if !self.shared.gate.is_dry_run() {
                    self.begin(&service, ServiceAction::Delete);
                }
                let work = self.work(service, Arc::default(), ServiceAction::Delete);
                self.planned(work, Purpose::Cleanup).await
            }
        }
    }

    /// In a dry run, shows the provider's writes and ends.
    async fn planned(&self, work: ServiceWork, purpose: Purpose) -> Prepared<'_> {
        if !self.shared.gate.is_dry_run() {
            return Prepared::Provider(work, purpose);
        }
        let subject = Subject::service(&work.service);
        let plan = self.balancer.plan(&self.shared.cluster, &work);
        match self.shared.read(deadline::within("the plan", READ_DEADLINE, plan)).await {
            Err(ending) => Prepared::Ended(Err(ending)),
            Ok(Ok(mut plan)) => {
                plan.steps.splice(0..0, self.finalizer_steps(&work));
                self.shared.gate.show(&plan);
                Prepared::Ended(Ok(Outcome::Done))
            }
            Ok(Err(error)) => {
                let error = SyncError::provider("failed to plan load balancer", &error);
                Prepared::Ended(Err(self.failed(&subject, error)))
            }
        }
    }

    /// One call for each set of items with a common group, in sequence; one reply per item, and the total time.
    async fn call_provider(&self, items: &[ServiceWork], publish: &Publish) -> (Vec<Reply>, Duration) {
        let began = Instant::now();
        let (mut replies, mut sound) = (BTreeMap::new(), Vec::new());
        for (place, item) in items.iter().enumerate() {
            match self.caught(|| self.balancer.groups(&item.service)) {
                Ok(_) => sound.push((place, item.clone())),
                Err(panic) => drop(replies.insert(place, Reply::Answer(Err(ProviderError::bug(panic)).into()))),
            }
        }
        let work: Vec<ServiceWork> = sound.iter().map(|(_, item)| item.clone()).collect();
        for batch in ccm_provider::batches(&*self.balancer, &work) {
            let batch = batch.into_iter().filter_map(|place| sound.get(place).cloned()).collect();
            replies.extend(self.call_batch(batch, publish).await);
        }
        (replies.into_values().collect(), began.elapsed())
    }

    /// One call for these items. If the provider panics, the call is made again for each half, so that only the
    /// Services to blame fail.
    fn call_batch<'a>(
        &'a self,
        batch: Vec<(usize, ServiceWork)>,
        publish: &'a Publish,
    ) -> BoxFuture<'a, Vec<(usize, Reply)>> {
        async move {
            let (outdated, mut batch): (Vec<_>, Vec<_>) =
                batch.into_iter().partition(|(_, work)| self.is_outdated(work));
            let mut replies: Vec<_> = outdated.into_iter().map(|(place, _)| (place, Reply::Outdated)).collect();
            if batch.is_empty() {
                return replies;
            }
            let items: Vec<ServiceWork> = batch.iter().map(|(_, work)| work.clone()).collect();
            let (publish_one, of) = (publish.clone(), items.clone());
            let scope = runner::scope().with_finalizers(Arc::new(Adds(self.shared.clone()))).with_statuses(
                move |place, status| {
                    let work = of.get(place).cloned();
                    work.into_iter().for_each(|work| drop(publish_one.unbounded_send((work, status.clone()))));
                },
            );
            let panicked = AtomicBool::new(false);
            let call = async {
                let call = self.balancer.reconcile(&self.shared.cluster, &items, &scope);
                AssertUnwindSafe(call).catch_unwind().await.unwrap_or_else(|panic| {
                    panicked.store(true, Ordering::Relaxed);
                    resume_unwind(panic)
                })
            };
            let answers =
                self.shared.gate.cloud_each("ReconcileLoadBalancers", GROUP_DEADLINE, items.len(), call).await;
            let places = || batch.iter().map(|(place, _)| *place);
            match answers {
                Ok(_) if panicked.into_inner() && batch.len() > 1 => {
                    let half = batch.split_off(batch.len() / 2);
                    replies.extend(self.call_batch(batch, publish).await);
                    replies.extend(self.call_batch(half, publish).await);
                }
                Ok(answers) => replies.extend(places().zip(answers.into_iter().map(Reply::Answer))),
                Err(closed) => replies.extend(places().map(|place| (place, Reply::Closed(closed.clone())))),
            }
            replies
        }
        .boxed()
    }
}
