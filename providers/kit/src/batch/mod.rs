//! Joins requests for single items into one call for many.
//!
//! A [`Batcher`] joins the requests that arrive within a short [`Window`] into one call.
//!
//! A call runs in its own task, under its own deadline, and continues when a caller is dropped. When a call fails, all
//! of its items get the error. If a cloud rejects a whole call because of one item, [`Bulk::call`] handles it and
//! retries.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::window::Window;
use futures::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;

/// A call that takes many items.
#[async_trait]
pub trait Bulk: Send + Sync + 'static {
    /// The identifier of an item.
    type Item: Clone + Ord + Debug + Send + Sync + 'static;
    /// The data of an item.
    type Answer: Clone + Debug + Send + Sync + 'static;
    /// The error of a call.
    type Error: Clone + Send + Sync + 'static;

    /// Makes one call. No item occurs twice. An item that is missing from the result does not exist.
    ///
    /// # Errors
    ///
    /// The call failed for all of the items.
    async fn call(&self, items: &[Self::Item]) -> Result<BTreeMap<Self::Item, Self::Answer>, Self::Error>;

    /// The error for a call that ended without an answer.
    fn interrupted(&self, how: Interrupted) -> Self::Error;
}

/// The reason why a call ended without an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Interrupted {
    /// It exceeded this deadline.
    Late(Duration),
    /// It panicked, or the process is shutting down.
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

/// The limits of a [`Batcher`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// The window of the first request after a quiet time.
    pub window_min: Duration,
    /// The longest window during a burst.
    pub window_max: Duration,
    /// A call is sent as soon as it has this number of items, without waiting for the end of the window.
    pub max_items: usize,
    /// The deadline of one call.
    pub deadline: Duration,
}

impl Limits {
    /// The default windows, with `max_items` items per call.
    pub const fn of(max_items: usize) -> Self {
        Self {
            window_min: Duration::from_millis(25),
            window_max: Duration::from_secs(1),
            max_items,
            deadline: Duration::from_secs(60),
        }
    }
}

/// The result for one item; `None` if it does not exist.
pub type Outcome<B> = Result<Option<<B as Bulk>::Answer>, <B as Bulk>::Error>;

type Asker<B> = oneshot::Sender<Outcome<B>>;
type Asked<B> = BTreeMap<<B as Bulk>::Item, Vec<Asker<B>>>;

/// Joins requests into calls; cheap to clone.
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
    open: Option<Open<B>>,
    // Numbers the windows, so that a timer does not close a later window than its own.
    opened: u64,
    window: Window,
}

struct Open<B: Bulk> {
    number: u64,
    asked: Asked<B>,
}

impl<B: Bulk> Batcher<B> {
    /// A batcher that makes its calls with `bulk`.
    pub fn new(bulk: B, limits: Limits) -> Self {
        let state = State { open: None, opened: 0, window: Window::new(limits.window_min, limits.window_max) };
        Self { shared: Arc::new(Shared { bulk, limits, state: Mutex::new(state) }) }
    }

    /// Returns the result for each item. An item that several callers request at the same time is requested once.
    ///
    /// Must be called within a tokio runtime. Dropping the future does not remove its items from the call.
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

    /// Returns the result for one item.
    ///
    /// # Errors
    ///
    /// The call failed.
    pub async fn ask_one(&self, item: B::Item) -> Outcome<B> {
        let lost = || Err(self.shared.bulk.interrupted(Interrupted::Lost));
        self.join(item).await.unwrap_or_else(|_| lost())
    }

    /// Joins the open window, or opens a new one.
    fn join(&self, item: B::Item) -> oneshot::Receiver<Outcome<B>> {
        let (asker, answer) = oneshot::channel();
        let mut state = self.shared.lock();
        let mut window = match state.open.take() {
            Some(window) => window,
            None => {
                let number = state.opened;
                state.opened += 1;
                let width = state.window.open();
                tokio::spawn(self.shared.clone().close(number, width));
                Open { number, asked: Asked::<B>::new() }
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

impl<B: Bulk> Shared<B> {
    fn lock(&self) -> MutexGuard<'_, State<B>> {
        self.state.lock()
    }

    async fn close(self: Arc<Self>, number: u64, width: Duration) {
        tokio::time::sleep(width).await;
        // None: the window was full before its time; the next one may already be open.
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
                // The caller may have been dropped.
                let _ = asker.send(outcome.clone());
            }
        }
        self.lock().window.called();
    }
}

/// Runs a future under a deadline and catches its panics.
pub(crate) async fn bounded<T>(deadline: Duration, call: impl Future<Output = T>) -> Result<T, Interrupted> {
    match tokio::time::timeout(deadline, AssertUnwindSafe(call).catch_unwind()).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => Err(Interrupted::Lost),
        Err(_) => Err(Interrupted::Late(deadline)),
    }
}

#[cfg(test)]
mod tests;
