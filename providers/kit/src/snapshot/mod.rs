//! A read that many share.
//!
//! A [`Cached`] read is made at most once at a time, is remembered with the time at which it began, and is read again when
//! it is too old for the caller. A caller that has just written asks for a read that began after the write.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::future::BoxFuture;
use tokio::sync::watch;
use tokio::time::Instant;

use crate::batch::{Interrupted, bounded};
use crate::lock::lock;

/// A value with the time at which the read of it began: whatever existed before that is in it.
#[derive(Debug)]
pub struct Stamped<T> {
    /// When the read began.
    pub began: Instant,
    /// What was read.
    pub value: Arc<T>,
}

impl<T> Clone for Stamped<T> {
    fn clone(&self) -> Self {
        Self { began: self.began, value: self.value.clone() }
    }
}

/// A remembered read; cheap to clone.
pub struct Cached<T, E> {
    shared: Arc<Shared<T, E>>,
}

impl<T, E> Clone for Cached<T, E> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone() }
    }
}

impl<T, E> Debug for Cached<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cached").finish_non_exhaustive()
    }
}

struct Shared<T, E> {
    read: Box<dyn Fn() -> BoxFuture<'static, Result<T, E>> + Send + Sync>,
    interrupted: fn(Interrupted) -> E,
    negative: Duration,
    deadline: Duration,
    state: Mutex<State<T, E>>,
}

struct State<T, E> {
    good: Option<Stamped<T>>,
    // When the failed read began and ended.
    failed: Option<(Instant, Instant, E)>,
    flight: Option<Flight>,
}

#[derive(Clone)]
struct Flight {
    began: Instant,
    // Closed when the read has ended.
    ended: watch::Receiver<()>,
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Cached<T, E> {
    /// A read that has not been made yet. `interrupted` makes the error of a read that was too slow or panicked.
    ///
    /// Failures are remembered for one second ([`Cached::negative`]); a read may take a minute ([`Cached::deadline`]).
    pub fn new(
        read: impl Fn() -> BoxFuture<'static, Result<T, E>> + Send + Sync + 'static,
        interrupted: fn(Interrupted) -> E,
    ) -> Self {
        Self::with(Box::new(read), interrupted, Duration::from_secs(1), Duration::from_secs(60))
    }

    fn with(
        read: Box<dyn Fn() -> BoxFuture<'static, Result<T, E>> + Send + Sync>,
        interrupted: fn(Interrupted) -> E,
        negative: Duration,
        deadline: Duration,
    ) -> Self {
        let state = Mutex::new(State { good: None, failed: None, flight: None });
        Self { shared: Arc::new(Shared { read, interrupted, negative, deadline, state }) }
    }

    /// How long a failure is the answer to everybody, so that those who try again at once share one attempt.
    #[must_use]
    pub fn negative(self, negative: Duration) -> Self {
        self.changed(|shared| shared.negative = negative)
    }

    /// How long one read may take.
    #[must_use]
    pub fn deadline(self, deadline: Duration) -> Self {
        self.changed(|shared| shared.deadline = deadline)
    }

    /// Only while it is being built, before it is shared.
    fn changed(mut self, change: impl FnOnce(&mut Shared<T, E>)) -> Self {
        if let Some(shared) = Arc::get_mut(&mut self.shared) {
            change(shared);
        }
        self
    }

    /// The value, from a read that began at most `max_age` ago and not before `not_before`, the time of the own last write.
    /// A read under way serves all callers for whom it began late enough; others share the next one.
    ///
    /// Must be called within a tokio runtime. Dropping the future cancels no read.
    ///
    /// # Errors
    ///
    /// The read failed, for this caller or a moment ago for another. Earlier values are kept for who can use them.
    pub async fn get(&self, max_age: Duration, not_before: Option<Instant>) -> Result<Stamped<T>, E> {
        let called = Instant::now();
        // None: there is no such instant, so nothing is too old.
        let oldest = called.checked_sub(max_age).max(not_before);
        let late_enough = |began: Instant| oldest.is_none_or(|oldest| began >= oldest);
        loop {
            let mut flight = {
                let mut state = self.shared.lock();
                if let Some(good) = state.good.as_ref().filter(|good| late_enough(good.began)) {
                    return Ok(good.clone());
                }
                if let Some((began, ended, error)) = &state.failed {
                    let since_call = *began >= called;
                    let recent = ended.elapsed() < self.shared.negative && not_before.is_none_or(|at| *began >= at);
                    if since_call || recent || (*ended >= called && late_enough(*began)) {
                        return Err(error.clone());
                    }
                }
                match &state.flight {
                    Some(flight) => flight.clone(),
                    None => self.shared.start(&mut state),
                }
            };
            // An error: the sender is gone, which is the end of the read.
            while flight.ended.changed().await.is_ok() {}
        }
    }

    /// What was read last, whatever its age.
    pub fn last(&self) -> Option<Stamped<T>> {
        self.shared.lock().good.clone()
    }

    /// Forgets the value, so that it takes no memory until somebody asks again.
    pub fn forget(&self) {
        self.shared.lock().good = None;
    }
}

impl<T, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        lock(&self.state)
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Shared<T, E> {
    fn start(self: &Arc<Self>, state: &mut State<T, E>) -> Flight {
        let (running, ended) = watch::channel(());
        let flight = Flight { began: Instant::now(), ended };
        state.flight = Some(flight.clone());
        let shared = self.clone();
        tokio::spawn(async move {
            let answer = bounded(shared.deadline, async { (shared.read)().await }).await;
            let answer = answer.unwrap_or_else(|how| Err((shared.interrupted)(how)));
            {
                let mut state = shared.lock();
                let began = state.flight.take().map_or_else(Instant::now, |flight| flight.began);
                match answer {
                    Ok(value) => {
                        state.good = Some(Stamped { began, value: Arc::new(value) });
                        state.failed = None;
                    }
                    Err(error) => state.failed = Some((began, Instant::now(), error)),
                }
            }
            drop(running);
        });
        flight
    }
}

/// What was asked for and is not there, remembered for a while so that it is not asked for again at once.
#[derive(Debug)]
pub struct Misses<K> {
    kept: Duration,
    seen: Mutex<BTreeMap<K, Instant>>,
}

impl<K: Ord> Misses<K> {
    /// Remembers misses for so long.
    pub fn new(kept: Duration) -> Self {
        Self { kept, seen: Mutex::new(BTreeMap::new()) }
    }

    /// Remembers a miss, and forgets those that are too old.
    pub fn add(&self, key: K) {
        let mut seen = self.lock();
        seen.retain(|_, at| at.elapsed() < self.kept);
        seen.insert(key, Instant::now());
    }

    /// Whether the miss was seen a short while ago.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.lock().get(key).is_some_and(|at| at.elapsed() < self.kept)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Instant>> {
        lock(&self.seen)
    }
}

#[cfg(test)]
mod tests;
