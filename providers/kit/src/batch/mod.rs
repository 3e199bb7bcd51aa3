//! Many questions, one call.
//!
//! A [`Batcher`] joins what is asked within a short window into one call for many items. The window grows while calls
//! follow each other closely and starts small again after a quiet time, so that a lone question waits for a moment and a
//! storm of them costs one call per second.
//!
//! A call runs by itself, under its own deadline, and goes on when a caller is gone. When it fails, all of its items get the
//! error: a cloud that refuses a whole call because of one item is asked again in [`Bulk::call`], which knows its answers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use futures::FutureExt;
use tokio::sync::oneshot;
use tokio::time::Instant;

use crate::lock::lock;

/// A call that takes many items.
#[async_trait]
pub trait Bulk: Send + Sync + 'static {
    /// What is asked about.
    type Item: Clone + Ord + Debug + Send + Sync + 'static;
    /// What is known of an item.
    type Answer: Clone + Debug + Send + Sync + 'static;
    /// Why a call failed.
    type Error: Clone + Send + Sync + 'static;

    /// One call. No item occurs twice. An item that is missing from the answer does not exist.
    ///
    /// # Errors
    ///
    /// The call failed, for all of the items.
    async fn call(&self, items: &[Self::Item]) -> Result<BTreeMap<Self::Item, Self::Answer>, Self::Error>;

    /// The error of a call that gave no answer at all.
    fn interrupted(&self, how: Interrupted) -> Self::Error;
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
    open: Option<Window<B>>,
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
        let state = State { open: None, opened: 0, width: limits.window_min, last_call: None };
        Self { shared: Arc::new(Shared { bulk, limits, state: Mutex::new(state) }) }
    }

    /// What comes out for each item. Items that others ask about at the same time are asked about once.
    ///
    /// Must be called within a tokio runtime. Dropping the future withdraws the question from no call.
    pub async fn ask(&self, items: impl IntoIterator<Item = B::Item>) -> BTreeMap<B::Item, Outcome<B>> {
        let waiting: Vec<_> = items
            .into_iter()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .map(|item| (self.join(item.clone()), item))
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
    /// The call failed.
    pub async fn ask_one(&self, item: B::Item) -> Outcome<B> {
        let lost = || Err(self.shared.bulk.interrupted(Interrupted::Lost));
        self.join(item).await.unwrap_or_else(|_| lost())
    }

    /// Joins the open window, or opens one.
    fn join(&self, item: B::Item) -> oneshot::Receiver<Outcome<B>> {
        let (asker, answer) = oneshot::channel();
        let mut state = self.shared.lock();
        let mut window = match state.open.take() {
            Some(window) => window,
            None => {
                let number = state.opened;
                state.opened += 1;
                let width = self.shared.limits.next_window(&mut state);
                tokio::spawn(self.shared.clone().close(number, width));
                Window { number, asked: Asked::<B>::new() }
            }
        };
        window.asked.entry(item).or_default().push(asker);
        if window.asked.len() >= self.shared.limits.max_items {
            tokio::spawn(self.shared.clone().run(window.asked));
        } else {
            state.open = Some(window);
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
        lock(&self.state)
    }

    async fn close(self: Arc<Self>, number: u64, width: Duration) {
        tokio::time::sleep(width).await;
        // None: it was full before its time, and perhaps the next one is open already.
        let window = self.lock().open.take_if(|window| window.number == number);
        if let Some(window) = window {
            self.run(window.asked).await;
        }
    }

    async fn run(self: Arc<Self>, asked: Asked<B>) {
        let items: Vec<B::Item> = asked.keys().cloned().collect();
        let answers = bounded(self.limits.deadline, self.bulk.call(&items)).await;
        let mut answers = answers.unwrap_or_else(|how| Err(self.bulk.interrupted(how)));
        for (item, askers) in asked {
            let outcome = answers.as_mut().map(|answers| answers.remove(&item)).map_err(|error| error.clone());
            for asker in askers {
                // The caller may be gone.
                let _ = asker.send(outcome.clone());
            }
        }
        self.lock().last_call = Some(Instant::now());
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

#[cfg(test)]
mod tests;
