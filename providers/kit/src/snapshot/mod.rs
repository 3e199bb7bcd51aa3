//! A read that many callers share.
//!
//! At most one read of a [`Cached`] is in flight at a time. Its result is stored with the time at which the read began,
//! and read again if it is too old for the caller. A caller that has just written requests a read that began after the
//! write.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::watch;
use tokio::time::Instant;

use crate::batch::{Interrupted, bounded};

/// How long a failure is kept by default: immediate retries share one attempt.
const NEGATIVE: Duration = Duration::from_secs(1);
/// The deadline of one read.
const DEADLINE: Duration = Duration::from_secs(60);

/// A value with the time at which its read began: it includes everything that existed before.
#[derive(Debug)]
pub struct Stamped<T> {
    /// The time at which the read began.
    pub began: Instant,
    /// The value.
    pub value: Arc<T>,
}

impl<T> Clone for Stamped<T> {
    fn clone(&self) -> Self {
        Self { began: self.began, value: self.value.clone() }
    }
}

/// A cached read; cheap to clone.
pub struct Cached<T, E> {
    shared: Arc<Shared<T, E>>,
    /// How long a failure is returned to all callers.
    failures_kept: Duration,
}

impl<T, E> Clone for Cached<T, E> {
    fn clone(&self) -> Self {
        Self { shared: self.shared.clone(), failures_kept: self.failures_kept }
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
    state: Mutex<State<T, E>>,
}

struct State<T, E> {
    good: Option<Stamped<T>>,
    // The time at which the failed read began and ended.
    failed: Option<(Instant, Instant, E)>,
    flight: Option<Flight>,
}

#[derive(Clone)]
struct Flight {
    began: Instant,
    // Closed at the end of the read.
    ended: watch::Receiver<()>,
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Cached<T, E> {
    /// Wraps a read; nothing is read yet. `interrupted` makes the error of a read that timed out or panicked.
    ///
    /// Failures are cached for one second; the deadline of a read is one minute.
    pub fn new(
        read: impl Fn() -> BoxFuture<'static, Result<T, E>> + Send + Sync + 'static,
        interrupted: fn(Interrupted) -> E,
    ) -> Self {
        let state = Mutex::new(State { good: None, failed: None, flight: None });
        let shared = Arc::new(Shared { read: Box::new(read), interrupted, state });
        Self { shared, failures_kept: NEGATIVE }
    }

    /// Caches failures for this time: a read without an answer may take a minute.
    #[must_use]
    pub fn keeping_failures(self, failures_kept: Duration) -> Self {
        Self { failures_kept, ..self }
    }

    /// The value, from a read that began at most `max_age` ago and not before `not_before`, the time of the caller's
    /// last write. A read in flight serves all callers for whom it began late enough; the others share the next one.
    ///
    /// Must be called within a tokio runtime. Dropping the future cancels no read.
    ///
    /// # Errors
    ///
    /// The read failed, for this caller or a moment ago for another. Earlier values remain available through
    /// [`Cached::last`].
    pub async fn get(&self, max_age: Duration, not_before: Option<Instant>) -> Result<Stamped<T>, E> {
        let called = Instant::now();
        // None: there is no such instant, so no value is too old.
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
                    let recent = ended.elapsed() < self.failures_kept && not_before.is_none_or(|at| *began >= at);
                    if since_call || recent || (*ended >= called && late_enough(*began)) {
                        return Err(error.clone());
                    }
                }
                match &state.flight {
                    Some(flight) => flight.clone(),
                    None => self.shared.start(&mut state),
                }
            };
            // An error means that the sender was dropped: the read has ended.
            while flight.ended.changed().await.is_ok() {}
        }
    }

    /// The last value, whatever its age.
    pub fn last(&self) -> Option<Stamped<T>> {
        self.shared.lock().good.clone()
    }

    /// Drops the value to free its memory until the next read.
    pub fn forget(&self) {
        self.shared.lock().good = None;
    }
}

impl<T, E> Shared<T, E> {
    fn lock(&self) -> MutexGuard<'_, State<T, E>> {
        self.state.lock()
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Shared<T, E> {
    fn start(self: &Arc<Self>, state: &mut State<T, E>) -> Flight {
        let (running, ended) = watch::channel(());
        let flight = Flight { began: Instant::now(), ended };
        state.flight = Some(flight.clone());
        let shared = self.clone();
        tokio::spawn(async move {
            let answer = bounded(DEADLINE, async { (shared.read)().await }).await;
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

/// Keys that were not found, cached for a while so that they are not requested again immediately.
#[derive(Debug)]
pub struct Misses<K> {
    kept: Duration,
    seen: Mutex<BTreeMap<K, Instant>>,
}

impl<K: Ord> Misses<K> {
    /// Caches misses for `kept`.
    pub fn new(kept: Duration) -> Self {
        Self { kept, seen: Mutex::new(BTreeMap::new()) }
    }

    /// Adds a miss, and drops the expired ones.
    pub fn add(&self, key: K) {
        let mut seen = self.lock();
        seen.retain(|_, at| at.elapsed() < self.kept);
        seen.insert(key, Instant::now());
    }

    /// Whether the cache has a miss for `key`.
    pub fn contains<Q: Ord + ?Sized>(&self, key: &Q) -> bool
    where
        K: std::borrow::Borrow<Q>,
    {
        self.lock().get(key).is_some_and(|at| at.elapsed() < self.kept)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<K, Instant>> {
        self.seen.lock()
    }
}

#[cfg(test)]
mod tests;
