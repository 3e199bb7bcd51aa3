//! Many questions, one call.
//!
//! A [`Batcher`] joins what is asked within a short window into one call for many items. The window grows while calls
//! follow each other closely and starts small again after a quiet time, so that a lone question waits for a moment and a
//! storm of them costs one call per second.
//!
//! A call belongs to nobody who asked: it runs by itself, under its own deadline, and goes on when an asker is gone. When it
//! fails because of some of its items ([`Blame`]), the others are asked about again: without the items that the error names,
//! or in halves, but never one by one.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use futures::future::BoxFuture;
use tokio::sync::oneshot;
use tokio::time::Instant;

/// A failed batch is halved down to this size.
const SPLIT_TO: usize = 8;
/// Calls that splitting may cost in one batch.
const EXTRA_CALLS: usize = 32;

/// A call that takes many items.
#[async_trait]
pub trait Bulk: Send + Sync + 'static {
    /// What all items of one call have in common: the filters of a query, the tags to be written. `()` where there is
    /// nothing.
    type Group: Clone + Ord + Debug + Send + Sync + 'static;
    /// What is asked about.
    type Item: Clone + Ord + Debug + Send + Sync + 'static;
    /// What is known of an item.
    type Answer: Clone + Send + Sync + 'static;
    /// Why a call failed.
    type Error: Clone + Send + Sync + 'static;

    /// One call. No item occurs twice. An item that is missing from the answer does not exist.
    ///
    /// # Errors
    ///
    /// The call failed as a whole; [`Bulk::blame`] says because of whom.
    async fn call(
        &self,
        group: &Self::Group,
        items: &[Self::Item],
    ) -> Result<BTreeMap<Self::Item, Self::Answer>, Self::Error>;

    /// Whose fault the failure is.
    fn blame(&self, error: &Self::Error, items: &[Self::Item]) -> Blame<Self::Item>;

    /// The error of a call that gave no answer at all.
    fn interrupted(&self, how: Interrupted) -> Self::Error;
}

/// Whose fault a failed call is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blame<I> {
    /// No item's: missing permissions, throttling, no network. Another call would fail too.
    Nobody,
    /// That of these items: they get the error, the others are asked about again. None of the batch among them is the same
    /// as [`Blame::Somebody`].
    These(BTreeSet<I>),
    /// That of some items, which the error does not name: the batch is halved.
    Somebody,
}

/// How a call ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It did not end within this time.
    Late(Duration),
    /// It panicked, or the process is ending.
    Lost,
}

impl std::fmt::Display for Interrupted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Late(after) => write!(f, "no answer within {}", ccm_provider::duration::format(*after)),
            Self::Lost => f.write_str("the call ended without an answer"),
        }
    }
}

/// How questions are joined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long the first question of a quiet time waits for others.
    pub window_min: Duration,
    /// How long questions wait for others while a burst lasts.
    pub window_max: Duration,
    /// A call within this time after the last one is part of a burst.
    pub burst: Duration,
    /// As many items are asked about at once, without waiting for the end of the window.
    pub max_items: usize,
    /// How long one call may take.
    pub deadline: Duration,
}

impl Limits {
    /// The usual windows, with so many items in a call.
    pub const fn of(max_items: usize) -> Self {
        Self {
            window_min: Duration::from_millis(25),
            window_max: Duration::from_secs(1),
            burst: Duration::from_secs(2),
            max_items,
            deadline: Duration::from_secs(60),
        }
    }
}

/// What came out for one item; `None` when it does not exist.
pub type Outcome<B> = Result<Option<<B as Bulk>::Answer>, <B as Bulk>::Error>;

type Asker<B> = oneshot::Sender<Outcome<B>>;
type Asked<B> = BTreeMap<<B as Bulk>::Item, Vec<Asker<B>>>;

/// Joins questions into calls; cheap to clone.
pub struct Batcher<B: Bulk> {
    shared: Arc<Shared<B>>,
}

impl<B: Bulk> Clone for Batcher<B> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<B: Bulk> Debug for Batcher<B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batcher").field("limits", &self.shared.limits).finish_non_exhaustive()
    }
}

struct Shared<B: Bulk> {
    bulk: B,
    limits: Limits,
    state: Mutex<State<B>>,
}

struct State<B: Bulk> {
    open: BTreeMap<B::Group, Window<B>>,
    // Numbers the windows, so that a timer does not close the successor of its own.
    opened: u64,
    width: Duration,
    last_call: Option<Instant>,
}

struct Window<B: Bulk> {
    number: u64,
    asked: Asked<B>,
}

impl<B: Bulk> Batcher<B> {
    /// A batcher in front of a call.
    pub fn new(bulk: B, limits: Limits) -> Self {
        let state = State { open: BTreeMap::new(), opened: 0, width: limits.window_min, last_call: None };
        Self { shared: Arc::new(Shared { bulk, limits, state: Mutex::new(state) }) }
    }

    /// What comes out for each item. Items that others ask about at the same time are asked about once.
    ///
    /// Must be called within a tokio runtime. Dropping the future withdraws the question from no call.
    pub async fn ask(
        &self,
        group: &B::Group,
        items: impl IntoIterator<Item = B::Item>,
    ) -> BTreeMap<B::Item, Outcome<B>> {
        let waiting: Vec<_> = items
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|item| (self.join(group, item.clone()), item))
            .map(|(answer, item)| async move {
                let outcome = answer.await.unwrap_or_else(|_| Err(self.shared.bulk.interrupted(Interrupted::Lost)));
                (item, outcome)
            })
            .collect();
        futures::future::join_all(waiting).await.into_iter().collect()
    }

    /// What comes out for one item.
    ///
    /// # Errors
    ///
    /// The call failed, and not because of another item.
    pub async fn ask_one(&self, group: &B::Group, item: B::Item) -> Outcome<B> {
        let lost = || Err(self.shared.bulk.interrupted(Interrupted::Lost));
        self.join(group, item).await.unwrap_or_else(|_| lost())
    }

    /// Joins the open window of the group, or opens one.
    fn join(&self, group: &B::Group, item: B::Item) -> oneshot::Receiver<Outcome<B>> {
        let (asker, answer) = oneshot::channel();
        let mut state = self.shared.lock();
        if !state.open.contains_key(group) {
            let number = state.opened;
            state.opened += 1;
            let width = self.shared.limits.next_window(&mut state);
            state.open.insert(group.clone(), Window { number, asked: Asked::<B>::new() });
            tokio::spawn(self.shared.clone().close(group.clone(), number, width));
        }
        let Some(window) = state.open.get_mut(group) else { return answer };
        window.asked.entry(item).or_default().push(asker);
        if window.asked.len() >= self.shared.limits.max_items
            && let Some(full) = state.open.remove(group)
        {
            tokio::spawn(self.shared.clone().run(group.clone(), full.asked));
        }
        answer
    }
}

impl Limits {
    /// Doubles while calls follow each other closely, else starts small again.
    fn next_window<B: Bulk>(&self, state: &mut State<B>) -> Duration {
        let burst = state.last_call.is_some_and(|at| at.elapsed() < self.burst);
        state.width = if burst { (state.width * 2).min(self.window_max) } else { self.window_min };
        state.width
    }
}

impl<B: Bulk> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn close(self: Arc<Self>, group: B::Group, number: u64, width: Duration) {
        tokio::time::sleep(width).await;
        let asked = {
            let mut state = self.lock();
            // Full before its time, and the next one is open already.
            if state.open.get(&group).is_none_or(|window| window.number != number) {
                return;
            }
            state.open.remove(&group)
        };
        if let Some(window) = asked {
            self.run(group, window.asked).await;
        }
    }

    async fn run(self: Arc<Self>, group: B::Group, asked: Asked<B>) {
        let extra = AtomicUsize::new(0);
        self.resolve(&group, asked, &extra).await;
        self.lock().last_call = Some(Instant::now());
    }

    /// Answers who asked. A call that fails because of some items is repeated without them, within bounds: when the cloud
    /// is away, more calls help nobody.
    fn resolve<'a>(&'a self, group: &'a B::Group, asked: Asked<B>, extra: &'a AtomicUsize) -> BoxFuture<'a, ()> {
        async move {
            let items: Vec<B::Item> = asked.keys().cloned().collect();
            let error = match self.call(group, &items).await {
                Ok(mut answers) => {
                    for (item, askers) in asked {
                        answer(askers, &Ok(answers.remove(&item)));
                    }
                    return;
                }
                Err(error) => error,
            };
            let (mut left, right) = match self.bulk.blame(&error, &items) {
                Blame::Nobody => return fail::<B>(asked, &error),
                Blame::These(named) if items.iter().any(|item| named.contains(item)) => {
                    let (culprits, rest) = asked.into_iter().partition(|(item, _)| named.contains(item));
                    fail::<B>(culprits, &error);
                    (rest, Asked::<B>::new())
                }
                Blame::These(_) | Blame::Somebody if asked.len() > SPLIT_TO => halves::<B>(asked),
                Blame::These(_) | Blame::Somebody => return fail::<B>(asked, &error),
            };
            let parts = usize::from(!left.is_empty()) + usize::from(!right.is_empty());
            if extra.fetch_add(parts, Ordering::Relaxed) + parts > EXTRA_CALLS {
                left.extend(right);
                return fail::<B>(left, &error);
            }
            let some = [left, right].into_iter().filter(|part| !part.is_empty());
            futures::future::join_all(some.map(|part| self.resolve(group, part, extra))).await;
        }
        .boxed()
    }

    async fn call(&self, group: &B::Group, items: &[B::Item]) -> Result<BTreeMap<B::Item, B::Answer>, B::Error> {
        let deadline = self.limits.deadline;
        bounded(deadline, self.bulk.call(group, items)).await.unwrap_or_else(|how| Err(self.bulk.interrupted(how)))
    }
}

/// A future under a deadline, with panics caught.
pub(crate) async fn bounded<T>(deadline: Duration, call: impl Future<Output = T>) -> Result<T, Interrupted> {
    match tokio::time::timeout(deadline, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Interrupted::Lost),
        Err(_) => Err(Interrupted::Late(deadline)),
    }
}

fn answer<T: Clone>(askers: Vec<oneshot::Sender<T>>, outcome: &T) {
    for asker in askers {
        // Whoever asked may be gone.
        let _ = asker.send(outcome.clone());
    }
}

fn fail<B: Bulk>(asked: Asked<B>, error: &B::Error) {
    for askers in asked.into_values() {
        answer(askers, &Err(error.clone()));
    }
}

fn halves<B: Bulk>(asked: Asked<B>) -> (Asked<B>, Asked<B>) {
    let half = asked.len() / 2;
    let mut left = Asked::<B>::new();
    let mut right = Asked::<B>::new();
    for (position, (item, askers)) in asked.into_iter().enumerate() {
        let side = if position < half { &mut left } else { &mut right };
        side.insert(item, askers);
    }
    (left, right)
}

#[cfg(test)]
mod tests;
