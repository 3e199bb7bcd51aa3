//! Tokens and other credentials, which are renewed in the background before they end.

use std::fmt::Debug;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::batch::Interrupted;
use crate::snapshot::{Cached, Stamped};

/// The interval at which the end is checked, and the time between attempts to renew a valid credential.
const AGAIN: Duration = Duration::from_secs(30);

/// The lifetime of a credential, by the clock of this host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// From here on it is renewed.
    pub renew: Timestamp,
    /// From here on it is not used any more.
    pub end: Timestamp,
}

impl Life {
    /// A credential that is issued now, and renewed this long before its end or after half of a shorter lifetime.
    ///
    /// `None` if the clock of this host is so far ahead that it appears expired: a refusal then shows its end.
    pub fn new(now: Timestamp, end: Timestamp, renew_before: Duration) -> Option<Self> {
        let left = end.duration_since(now);
        let before = SignedDuration::try_from(renew_before).unwrap_or(SignedDuration::MAX).min(left / 2);
        let renew = end.checked_sub(before).ok()?;
        (end > now).then_some(Self { renew, end })
    }
}

/// A credential of a source.
///
/// Callers get the current one while it is valid. In the background it is renewed before its end: no request waits for
/// that, and none fails if the source does. Without a valid one, all callers wait for one read.
pub struct Renewed<T, E> {
    shared: Arc<Shared<T, E>>,
}

struct Shared<T, E> {
    cached: Cached<T, E>,
    /// `None`: it has no end.
    life: fn(&T) -> Option<Life>,
    /// The time of the last attempt to renew a valid one.
    tried: Mutex<Option<Instant>>,
    is_watched: AtomicBool,
}

impl<T, E> Debug for Renewed<T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Renewed").finish_non_exhaustive()
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Renewed<T, E> {
    /// Wraps a source; nothing is read yet. `interrupted` makes the error of a read that timed out or panicked.
    pub fn new(
        read: impl Fn() -> BoxFuture<'static, Result<T, E>> + Send + Sync + 'static,
        interrupted: fn(Interrupted) -> E,
        life: fn(&T) -> Option<Life>,
    ) -> Self {
        let cached = Cached::new(read, interrupted);
        Self { shared: Arc::new(Shared { cached, life, tried: Mutex::default(), is_watched: false.into() }) }
    }

    /// A valid credential. Must be called within a tokio runtime.
    ///
    /// # Errors
    ///
    /// There is none, and the source failed, for this caller or a moment ago for another.
    pub async fn get(&self) -> Result<Stamped<T>, E> {
        if !self.shared.is_watched.swap(true, Ordering::Relaxed) {
            tokio::spawn(watch(Arc::downgrade(&self.shared)));
        }
        match self.shared.cached.last() {
            Some(last) if self.shared.is_valid(&last) => Ok(last),
            Some(last) => self.after(last.began).await,
            None => self.shared.cached.get(Duration::MAX, None).await,
        }
    }

    /// A credential to replace one that was refused: from a read that began later.
    ///
    /// # Errors
    ///
    /// The source failed.
    pub async fn after(&self, began: Instant) -> Result<Stamped<T>, E> {
        self.shared.after(began).await
    }
}

impl<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static> Shared<T, E> {
    /// Whether it has not ended. Begins to renew it if it is old; nobody waits for that.
    fn is_valid(&self, last: &Stamped<T>) -> bool {
        let (now, life) = (Timestamp::now(), (self.life)(&last.value));
        let is_valid = life.is_none_or(|life| now < life.end);
        if is_valid && life.is_some_and(|life| life.renew <= now) {
            let mut tried = self.tried.lock();
            if tried.is_none_or(|at| at.elapsed() >= AGAIN) {
                *tried = Some(Instant::now());
                drop(self.after(last.began).now_or_never());
            }
        }
        is_valid
    }

    async fn after(&self, began: Instant) -> Result<Stamped<T>, E> {
        self.cached.get(Duration::MAX, Some(began + Duration::from_nanos(1))).await
    }
}

/// Renews it also while nobody asks for it.
async fn watch<T: Send + Sync + 'static, E: Clone + Send + Sync + 'static>(shared: Weak<Shared<T, E>>) {
    loop {
        tokio::time::sleep(AGAIN).await;
        let Some(shared) = shared.upgrade() else { return };
        if let Some(last) = shared.cached.last() {
            shared.is_valid(&last);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicU32;

    use tokio::time::{advance, sleep};

    use super::*;

    /// The first read gives a credential with this many seconds left, which is old enough to renew; the later ones take
    /// five seconds and have this outcome.
    fn renewed(left: i64, later: Result<(), &'static str>) -> (Renewed<Life, &'static str>, Arc<AtomicU32>) {
        let reads = Arc::new(AtomicU32::new(0));
        let count = reads.clone();
        let read = move || {
            let number = count.fetch_add(1, Ordering::SeqCst);
            let at = |seconds| Timestamp::now() + SignedDuration::from_secs(seconds);
            async move {
                if number == 0 {
                    return Ok(Life { renew: at(-60), end: at(left) });
                }
                sleep(Duration::from_secs(5)).await;
                later.map(|()| Life { renew: at(3_000), end: at(3_600) })
            }
            .boxed()
        };
        (Renewed::new(read, |_| "interrupted", |life| Some(*life)), reads)
    }

    #[tokio::test(start_paused = true)]
    async fn a_valid_one_serves_while_its_renewal_fails_slowly_and_a_failure_is_shared() {
        for (left, waits) in [(240, 0), (-1, 5)] {
            let (token, reads) = renewed(left, Err("down"));
            token.shared.cached.get(Duration::MAX, None).await.unwrap();
            for (later, expected) in [(10, 2), (10, if waits == 0 { 2 } else { 3 })] {
                advance(Duration::from_secs(later)).await;
                let began = Instant::now();
                let answers = futures::future::join_all((0..20).map(|_| token.get())).await;
                assert!(answers.iter().all(|answer| answer.is_ok() == (waits == 0)), "{left}");
                assert_eq!(began.elapsed().as_secs(), waits);
                advance(Duration::from_secs(5)).await;
                assert_eq!(reads.load(Ordering::SeqCst), expected);
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn it_is_renewed_also_while_nobody_asks_for_it() {
        let (token, reads) = renewed(240, Ok(()));
        token.shared.is_watched.store(true, Ordering::Relaxed);
        tokio::spawn(watch(Arc::downgrade(&token.shared)));
        let first = token.shared.cached.get(Duration::MAX, None).await.unwrap();
        sleep(AGAIN * 10).await;
        assert_eq!(reads.load(Ordering::SeqCst), 2);
        assert!(token.get().await.unwrap().value.end > first.value.end);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_was_refused_is_replaced_once_for_all_callers() {
        let (token, reads) = renewed(-1, Ok(()));
        let refused = token.shared.cached.get(Duration::MAX, None).await.unwrap();
        advance(Duration::from_secs(1)).await;
        let (one, two) = tokio::join!(token.after(refused.began), token.after(refused.began));
        assert_eq!(one.unwrap().value, two.unwrap().value);
        assert_eq!(reads.load(Ordering::SeqCst), 2);
    }

    #[test]
    fn it_is_renewed_before_its_end_and_not_at_each_request() {
        let at = |second: i64| Timestamp::from_second(second).unwrap();
        let renew = |now, end| Life::new(at(now), at(end), Duration::from_secs(300)).map(|life| life.renew);
        assert_eq!(renew(1_000, 4_600), Some(at(4_300)));
        assert_eq!(renew(1_000, 1_060), Some(at(1_030)), "tokens may be short");
        assert_eq!((renew(1_000, 1_000), renew(1_000, 400)), (None, None), "the clock is ahead");
    }
}
