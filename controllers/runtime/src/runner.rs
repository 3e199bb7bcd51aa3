//! Drives controllers: takes keys in batches, serializes groups, limits concurrency, catches panics, requeues keys.

mod outcome;
mod slot;

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::Hash;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::ErrorClass;
use futures::FutureExt;
use futures::future::BoxFuture;
use futures::stream::{FuturesUnordered, StreamExt as _};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{JoinError, JoinSet};
use tokio::time::Instant;

use crate::failing::Failing;
use crate::gate::{has_dropped, settled};
use crate::leader::Leadership;
use crate::metrics::{Def, IntCounterVec, Metrics, Part};
use crate::panics::panic_text;
use crate::queue::{Key, Queue};
pub use outcome::{Outcome, SyncError};
use slot::Slot;
pub use slot::{scope, scope_of};

/// The rest of the work on a key, with its answer.
pub type Rest<'a, K> = BoxFuture<'a, (K, Result<Outcome, SyncError>)>;

/// The rest holds the groups and the slot for this time: a write to the API server that hangs must not hold up others.
pub const HOLDS: Duration = Duration::from_secs(2);

/// A controller that works from a queue.
#[async_trait]
pub trait Reconciler: Send + Sync + 'static {
    /// The key in the queue.
    type Key: Key;
    /// The result of [`Reconciler::observe`] for one key.
    type Observed: Send + 'static;
    /// Keys of the same groups are processed together; no group is processed twice at the same time.
    type Group: Clone + Eq + Hash + Ord + Send + 'static;

    /// Name for logs and metrics.
    fn name(&self) -> &'static str;

    /// All groups that the work on a key touches, at least one. Read when the key is taken from the queue.
    fn groups(&self, key: &Self::Key) -> BTreeSet<Self::Group>;

    /// The maximum number of keys of the same groups that are processed together; the others wait. Thus the first of
    /// many keys does not wait for the last.
    fn most_together(&self) -> usize {
        usize::MAX
    }

    /// The longest back-off of a key that failed, if that of the queue is longer.
    fn longest_delay(&self, _key: &Self::Key) -> Duration {
        Duration::MAX
    }

    /// Whether a key takes a slot of its own kind, of which there are as many: short work does not wait behind a
    /// backlog of long work.
    fn has_own_slots(&self, _key: &Self::Key) -> bool {
        false
    }

    /// The object of a key, as named in plans and `/debug/state`: `service default/web`.
    fn subject(&self, key: &Self::Key) -> String {
        format!("{key:?}")
    }

    /// Whether [`Reconciler::observe`] reads only the stores. Then it is called when the work begins: what changed
    /// during the wait for a slot is seen. Otherwise it is called before that wait, for all groups at once.
    fn reads_stores(&self) -> bool {
        false
    }

    /// Reads for all keys at once: one answer per key, in order.
    async fn observe(&self, keys: &[Self::Key]) -> Vec<Result<Self::Observed, SyncError>>;

    /// Decides and writes for keys of the same groups; one answer per key.
    async fn reconcile(&self, work: Vec<(Self::Key, Self::Observed)>) -> Vec<(Self::Key, Result<Outcome, SyncError>)>;

    /// The same, but returns what does not need the groups: see [`HOLDS`].
    async fn reconcile_groups(&self, work: Vec<(Self::Key, Self::Observed)>) -> Vec<Rest<'_, Self::Key>> {
        self.reconcile(work).await.into_iter().map(|answer| std::future::ready(answer).boxed()).collect()
    }
}

/// Bounds of a runner.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Keys per batch.
    pub batch: usize,
    /// Groups in progress at once, without those that take long; the same number for [`Reconciler::has_own_slots`].
    pub groups: usize,
}

/// Runs a controller until no new work may begin, then waits for work in progress.
pub async fn run<R: Reconciler>(
    reconciler: Arc<R>,
    queue: Arc<Queue<R::Key>>,
    limits: Limits,
    leadership: Leadership,
    metrics: Metrics,
) {
    let (ended_tx, mut ended) = mpsc::unbounded_channel::<BTreeSet<R::Group>>();
    let slots = || Arc::new(Semaphore::new(limits.groups.max(1)));
    let slots = [slots(), slots()];
    // Groups in progress, with the keys that wait for them, and the mark for their sync that some do.
    let mut busy: HashMap<R::Group, Awaited<R::Key>> = HashMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let keys = tokio::select! {
            biased;
            Some(groups) = ended.recv() => {
                let mut waiting = Vec::new();
                for group in groups {
                    waiting.extend(busy.remove(&group).unwrap_or_default().0);
                }
                if waiting.is_empty() {
                    continue;
                }
                waiting
            }
            Some(ended) = tasks.join_next() => {
                if let Some(panic) = ended.err().and_then(|error: JoinError| error.try_into_panic().ok()) {
                    panicked(&metrics, reconciler.name(), &*panic);
                }
                continue;
            }
            keys = leadership.until_ended(queue.take_early(limits.batch)) => match keys.flatten() {
                Some(keys) => keys,
                None => break,
            },
        };
        let worker = Batch {
            reconciler: reconciler.clone(),
            queue: queue.clone(),
            slots: slots.clone(),
            ended: ended_tx.clone(),
            leadership: leadership.clone(),
            metrics: metrics.clone(),
        };
        let mut batch: Groups<R> = BTreeMap::new();
        for key in keys {
            let Some(groups) = worker.groups(&key) else { continue };
            if let Some((together, _)) =
                batch.get_mut(&groups).filter(|(keys, _)| keys.len() < reconciler.most_together())
            {
                together.push(key);
            } else if let Some(group) = groups.iter().find(|group| busy.contains_key(*group)) {
                let (waiting, awaited) = busy.entry(group.clone()).or_default();
                waiting.push(key);
                awaited.store(true, Ordering::Relaxed);
            } else {
                let awaited = Arc::<AtomicBool>::default();
                busy.extend(groups.iter().map(|group| (group.clone(), (Vec::new(), awaited.clone()))));
                batch.insert(groups, (vec![key], awaited));
            }
        }
        if batch.is_empty() {
            continue;
        }
        tasks.spawn(worker.run(batch));
    }
    queue.shut_down();
    while tasks.join_next().await.is_some() {}
}

/// Keys, and the mark for a sync that others wait for its groups.
type Awaited<K> = (Vec<K>, Arc<AtomicBool>);

/// Keys that are processed together, with all groups that their work touches.
type Groups<R> = BTreeMap<BTreeSet<<R as Reconciler>::Group>, Awaited<<R as Reconciler>::Key>>;

struct Batch<R: Reconciler> {
    reconciler: Arc<R>,
    queue: Arc<Queue<R::Key>>,
    /// Those of all keys, and those of keys with slots of their own.
    slots: [Arc<Semaphore>; 2],
    ended: mpsc::UnboundedSender<BTreeSet<R::Group>>,
    leadership: Leadership,
    metrics: Metrics,
}

/// Groups in progress, with the keys that have no answer yet. The groups are free again when this is dropped, however
/// their task ends.
struct Held<R: Reconciler> {
    batch: Arc<Batch<R>>,
    groups: BTreeSet<R::Group>,
    open: BTreeSet<R::Key>,
    /// Whether keys wait for the groups.
    awaited: Arc<AtomicBool>,
}

impl<R: Reconciler> Held<R> {
    fn put_back(&mut self, key: &R::Key, answer: &Result<Outcome, SyncError>) {
        if self.open.contains(key) {
            self.batch.put_back(key, answer);
            self.open.remove(key);
        }
    }

    /// Frees the groups, not the keys.
    fn free_groups(&mut self) {
        // The runner has been dropped only if the process is ending.
        let _ = self.batch.ended.send(std::mem::take(&mut self.groups));
    }

    /// Drives the rest of the work; the groups and the slot are free when it takes long.
    async fn finish(&mut self, rest: Vec<Rest<'_, R::Key>>, slot: &Slot) {
        let mut rest: FuturesUnordered<_> =
            rest.into_iter().map(|rest| AssertUnwindSafe(rest).catch_unwind()).collect();
        let until = Instant::now() + HOLDS;
        // The groups are not free before a dropped write has settled.
        let mut holds = !has_dropped();
        loop {
            let next = match holds {
                true => tokio::time::timeout_at(until, rest.next()).await,
                false => Ok(rest.next().await),
            };
            match next {
                Ok(Some(Ok((key, answer)))) => self.put_back(&key, &answer),
                Ok(Some(Err(panic))) => drop(self.batch.panicked(&*panic)),
                Ok(None) => return,
                Err(_) => {
                    holds = false;
                    self.free_groups();
                    slot.give_back();
                }
            }
        }
    }

    fn put_back_rest(&mut self, text: &str) {
        for key in self.open.clone() {
            self.put_back(&key, &Err(SyncError::Retry(text.to_owned())));
        }
    }
}

impl<R: Reconciler> Drop for Held<R> {
    fn drop(&mut self) {
        // At the end, open keys are left to the next leader. A panic outside the controller must not lose them.
        if std::thread::panicking() {
            for key in std::mem::take(&mut self.open) {
                self.batch.queue.add_rate_limited(key.clone());
                self.batch.queue.done(&key);
            }
        }
        self.free_groups();
    }
}

impl<R: Reconciler> Batch<R> {
    /// `None` when the provider panicked while reading it; the key is retried.
    fn groups(&self, key: &R::Key) -> Option<BTreeSet<R::Group>> {
        let groups = std::panic::catch_unwind(AssertUnwindSafe(|| self.reconciler.groups(key)));
        groups.map_err(|panic| self.put_back(key, &Err(SyncError::Retry(self.panicked(&*panic))))).ok()
    }

    async fn run(self, batch: Groups<R>) {
        let me = Arc::new(self);
        let held = batch.into_iter().map(|(groups, (keys, awaited))| {
            (Held { batch: me.clone(), groups, open: keys.iter().cloned().collect(), awaited }, keys)
        });
        let held: Vec<(Held<R>, Vec<R::Key>)> = held.collect();
        let mut observed = None;
        if !me.reconciler.reads_stores() {
            let keys: Vec<R::Key> = held.iter().flat_map(|(_, keys)| keys).cloned().collect();
            // Nothing is written yet.
            let Some(seen) = me.leadership.until_ended(me.observe(&keys)).await else { return };
            observed = Some(seen.into_iter());
        }
        let mut groups = JoinSet::new();
        for (held, keys) in held {
            let observed = observed.as_mut().map(|observed| observed.by_ref().take(keys.len()).collect());
            groups.spawn(me.clone().run_groups(held, keys, observed));
        }
        tokio::select! {
            biased;
            () = me.all(&mut groups) => {}
            // No write is permitted any more: drop running work, and wait until it is dropped.
            () = me.leadership.lost() => groups.shutdown().await,
        }
    }

    /// Waits for all tasks.
    async fn all(&self, tasks: &mut JoinSet<()>) {
        while let Some(ended) = tasks.join_next().await {
            if let Some(panic) = ended.err().and_then(|error| error.try_into_panic().ok()) {
                self.panicked(&*panic);
            }
        }
    }

    /// Begins the work: one answer per key.
    async fn observe(&self, keys: &[R::Key]) -> Vec<Result<R::Observed, SyncError>> {
        self.queue.begin(keys);
        let text = match AssertUnwindSafe(self.reconciler.observe(keys)).catch_unwind().await {
            Ok(answers) if answers.len() == keys.len() => return answers,
            Ok(answers) => format!("observe answered for {} of {} keys", answers.len(), keys.len()),
            Err(panic) => self.panicked(&*panic),
        };
        keys.iter().map(|_| Err(SyncError::Retry(text.clone()))).collect()
    }

    async fn run_groups(
        self: Arc<Self>,
        mut held: Held<R>,
        keys: Vec<R::Key>,
        observed: Option<Vec<Result<R::Observed, SyncError>>>,
    ) {
        let [slots, own] = &self.slots;
        let slots = if keys.iter().all(|key| self.reconciler.has_own_slots(key)) { own } else { slots };
        // When no new work may begin, keys that wait for a slot are left to the next leader.
        let Some(Ok(slot)) = self.leadership.until_ended(slots.clone().acquire_owned()).await else { return };
        let slot = Slot::new(slots.clone(), slot, self.leadership.clone(), held.awaited.clone());
        let run = async {
            let observed = match observed {
                Some(observed) => observed,
                None => self.observe(&keys).await,
            };
            let mut work = Vec::new();
            for (key, observed) in keys.into_iter().zip(observed) {
                match observed {
                    Ok(seen) => match self.groups(&key) {
                        Some(now) if now.is_subset(&held.groups) => work.push((key, seen)),
                        // Its groups changed since it was taken, so not all of them are locked for it.
                        Some(_) => {
                            held.open.remove(&key);
                            self.queue.add(key.clone());
                            self.queue.done(&key);
                        }
                        None => drop(held.open.remove(&key)),
                    },
                    Err(error) => held.put_back(&key, &Err(error)),
                }
            }
            if work.is_empty() {
                return;
            }
            match AssertUnwindSafe(self.reconciler.reconcile_groups(work)).catch_unwind().await {
                Ok(rest) => {
                    held.finish(rest, &slot).await;
                    held.put_back_rest("no answer from the controller");
                }
                Err(panic) => {
                    let text = self.panicked(&*panic);
                    held.put_back_rest(&text);
                }
            }
        };
        // The groups are not free before a dropped write has settled.
        slot.clone().run(settled(run)).await;
    }

    fn put_back(&self, key: &R::Key, answer: &Result<Outcome, SyncError>) {
        let controller = self.reconciler.name();
        let next = match answer {
            Ok(Outcome::Done) => {
                self.queue.forget(key);
                None
            }
            Ok(Outcome::After(delay)) => {
                self.queue.forget(key);
                self.queue.add_after(key.clone(), *delay);
                None
            }
            Err(SyncError::Closed(reason)) => {
                tracing::debug!(controller, ?key, %reason, "sync ended at the write gate");
                None
            }
            Err(SyncError::Provider { message, class: ErrorClass::InProgress { after }, .. }) => {
                tracing::info!(controller, ?key, reason = message, ?after, "not finished; it is checked again");
                self.queue.forget(key);
                self.queue.add_after(key.clone(), *after);
                None
            }
            Err(SyncError::Terminal(error)) => {
                self.metrics.sync_error(controller);
                tracing::warn!(controller, ?key, error, "sync failed; retried when the object changes");
                self.queue.forget(key);
                None
            }
            Err(SyncError::RetryAfter { message, after } | SyncError::Provider { message, after: Some(after), .. }) => {
                self.metrics.sync_error(controller);
                tracing::warn!(
                    controller,
                    ?key,
                    error = message,
                    ?after,
                    "sync failed; retried after the requested delay"
                );
                self.queue.add_after(key.clone(), *after);
                Some(*after)
            }
            Err(SyncError::Retry(error) | SyncError::Provider { message: error, after: None, .. }) => {
                self.metrics.sync_error(controller);
                let after = self.queue.add_rate_limited_within(key.clone(), self.reconciler.longest_delay(key));
                tracing::warn!(controller, ?key, error, ?after, "sync failed; retried with back-off");
                Some(after)
            }
        };
        self.note(key, answer, next);
        self.queue.done(key);
    }

    /// Records a failure or the end of one, for `/debug/state` and the metrics.
    fn note(&self, key: &R::Key, answer: &Result<Outcome, SyncError>, next: Option<Duration>) {
        let (failures, failing) = (self.metrics.failures(), self.metrics.part::<Failing>());
        let (controller, subject) = (self.reconciler.name(), || self.reconciler.subject(key));
        match answer {
            Err(SyncError::Closed(_)) => {}
            Err(error) if error.is_in_progress() => {}
            Err(error) => {
                let failed = (&*error.to_string(), error.class().cloned());
                failures.failed(controller, subject(), failed, next);
                // Nothing would say that an object was deleted that is not retried.
                match next {
                    Some(_) => failing.failed(controller, subject()),
                    None => failing.settled(controller, subject),
                }
            }
            Ok(_) => {
                failing.settled(controller, subject);
                if !failures.is_empty() {
                    failures.settled(controller, &subject());
                }
            }
        }
    }

    fn panicked(&self, panic: &(dyn std::any::Any + Send)) -> String {
        panicked(&self.metrics, self.reconciler.name(), panic)
    }
}

fn panicked(metrics: &Metrics, controller: &'static str, panic: &(dyn std::any::Any + Send)) -> String {
    metrics.panicked(controller);
    let text = panic_text(panic);
    tracing::error!(controller, panic = text, "a sync panicked");
    format!("a sync panicked: {text}")
}

/// The start of the period of [`periodically`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pace {
    /// From the start of a run; a run that takes longer is followed at once by the next.
    FromStart,
    /// From the end of a run.
    FromEnd,
}

/// Runs `pass` at once and then periodically until no new work may begin. A panic ends the pass, not the loop.
pub async fn periodically<F, Fut>(
    name: &'static str,
    period: Duration,
    pace: Pace,
    leadership: Leadership,
    metrics: Metrics,
    mut pass: F,
) where
    F: FnMut() -> Fut + Send,
    Fut: Future<Output = ()> + Send,
{
    let mut first = Some(metrics.part::<FirstPasses>().begin());
    loop {
        let started = Instant::now();
        // Draining lets a pass in flight end; a lost lease drops it.
        let one = AssertUnwindSafe(pass()).catch_unwind();
        tokio::select! {
            biased;
            () = leadership.lost() => return,
            ended = one => if let Err(panic) = ended {
                metrics.panicked(name);
                tracing::error!(controller = name, panic = panic_text(&*panic), "a pass panicked");
            },
        }
        drop(first.take());
        let wait = match pace {
            Pace::FromEnd => period,
            Pace::FromStart => period.saturating_sub(started.elapsed()),
        };
        tokio::select! {
            biased;
            () = leadership.ended() => return,
            () = tokio::time::sleep(wait) => {}
        }
    }
}

crate::metrics! {
    pub(crate) struct RunnerMetrics {
        errors: IntCounterVec = Def::counter("ccm_sync_errors_total", &["controller"], "Failed syncs, by controller.");
    }
}

/// The loops of [`periodically`] whose first pass has not ended.
#[derive(Default)]
struct FirstPasses(Arc<()>);

impl FirstPasses {
    /// The first pass lasts until this is dropped.
    fn begin(&self) -> Arc<()> {
        self.0.clone()
    }
}

impl Part for FirstPasses {
    fn new(_: &Metrics) -> Self {
        Self::default()
    }
}

impl Metrics {
    /// Whether each periodic pass has ended once, and no key of a queue is ready or in progress.
    pub fn is_idle(&self) -> bool {
        let passes = self.part::<FirstPasses>();
        // One count is its own.
        Arc::strong_count(&passes.0) == 1 && self.queues().iter().all(|queue| queue.ready + queue.working == 0)
    }

    fn sync_error(&self, controller: &str) {
        self.part::<RunnerMetrics>().errors.with_label_values(&[controller]).inc();
    }
}

#[cfg(test)]
mod tests;
