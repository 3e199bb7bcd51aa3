//! Priorities of writes to an overloaded API server.
//!
//! In a burst of new nodes the API server is the bottleneck. A node is usable when its taint is removed; its addresses
//! and events can follow. So writes that can wait let the others go first, for a limited time. While a burst lasts, they
//! wait also in the moments in which no urgent write is left, since the next ones are about to come.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;

use crate::client::Urgency;

/// The maximum time for which a write that can wait lets others go first.
const MAX_DEFERRAL: Duration = Duration::from_secs(15);

/// This many urgent writes, without a pause of [`CALM`], are a burst.
const BURST: usize = 50;
/// A burst is over after this time without urgent writes.
const CALM: Duration = Duration::from_millis(500);

/// Bounds the writes in flight and orders those that wait.
#[derive(Debug)]
pub(crate) struct Priority {
    slots: Semaphore,
    // Urgent writes that wait or are in flight.
    urgent: AtomicUsize,
    none_urgent: Notify,
    recent: Mutex<Option<Recent>>,
}

/// The urgent writes since the last pause.
#[derive(Debug, Clone, Copy)]
struct Recent {
    count: usize,
    last: Instant,
}

/// A permit for one write; released when dropped.
#[derive(Debug)]
pub(crate) struct Turn<'a> {
    _slot: SemaphorePermit<'a>,
    _urgent: Option<Urgent<'a>>,
}

/// Counts one urgent write.
#[derive(Debug)]
struct Urgent<'a>(&'a Priority);

impl Drop for Urgent<'_> {
    fn drop(&mut self) {
        self.0.note(0);
        if self.0.urgent.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.none_urgent.notify_waiters();
        }
    }
}

impl Priority {
    /// Allows at most `in_flight` concurrent writes.
    pub(crate) fn new(in_flight: usize) -> Self {
        Self {
            slots: Semaphore::new(in_flight),
            urgent: AtomicUsize::new(0),
            none_urgent: Notify::new(),
            recent: Mutex::default(),
        }
    }

    /// A permit in the order of this urgency. Never `None`: the semaphore is not closed.
    pub(crate) async fn turn(&self, urgency: Urgency) -> Option<Turn<'_>> {
        match urgency {
            Urgency::Urgent => self.urgent().await,
            Urgency::Normal => Some(Turn { _slot: self.slots.acquire().await.ok()?, _urgent: None }),
            Urgency::CanWait => self.deferrable().await,
        }
    }

    async fn urgent(&self) -> Option<Turn<'_>> {
        self.urgent.fetch_add(1, Ordering::AcqRel);
        self.note(1);
        let urgent = Urgent(self);
        let slot = self.slots.acquire().await.ok()?;
        Some(Turn { _slot: slot, _urgent: Some(urgent) })
    }

    /// A permit once no urgent write waits, or after [`MAX_DEFERRAL`].
    async fn deferrable(&self) -> Option<Turn<'_>> {
        let until = Self::latest();
        loop {
            self.none_urgent(until).await;
            let slot = self.slots.acquire().await.ok()?;
            // An urgent write may have arrived while this one waited for the slot.
            if self.is_free(until) {
                return Some(Turn { _slot: slot, _urgent: None });
            }
        }
    }

    /// Waits until no urgent write is left, at most until then. For writes with separate slots.
    pub(crate) async fn none_urgent(&self, until: Instant) {
        loop {
            let none = self.none_urgent.notified();
            tokio::pin!(none);
            // Registered before the check, so that no notification is missed.
            none.as_mut().enable();
            if self.is_free(until) {
                return;
            }
            // At the end of a burst, no notification comes.
            let _ = tokio::time::timeout_at(until.min(self.calm().unwrap_or(until)), none).await;
        }
    }

    /// The end of the deferral of a write that is due now.
    pub(crate) fn latest() -> Instant {
        Instant::now() + MAX_DEFERRAL
    }

    fn is_free(&self, until: Instant) -> bool {
        let is_calm = || self.urgent.load(Ordering::Acquire) == 0 && self.calm().is_none();
        Instant::now() >= until || is_calm()
    }

    /// Records `count` urgent writes, or the end of one.
    fn note(&self, count: usize) {
        let mut recent = self.recent.lock();
        let now = Instant::now();
        let before = recent.filter(|recent| now < recent.last + CALM).map_or(0, |recent| recent.count);
        *recent = Some(Recent { count: before + count, last: now });
    }

    /// The end of the present burst if no urgent write follows; `None`: there is no burst.
    fn calm(&self) -> Option<Instant> {
        let recent = *self.recent.lock();
        let end = recent.filter(|recent| recent.count >= BURST).map(|recent| recent.last + CALM);
        end.filter(|end| Instant::now() < *end)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::mpsc;

    use super::*;

    fn wait(priority: &Arc<Priority>, log: &mpsc::UnboundedSender<&'static str>, name: &'static str, urgent: bool) {
        let (priority, log) = (priority.clone(), log.clone());
        tokio::spawn(async move {
            let turn = priority.turn(if urgent { Urgency::Urgent } else { Urgency::CanWait }).await;
            log.send(name).unwrap();
            tokio::time::sleep(Duration::from_secs(1)).await;
            drop(turn);
        });
    }

    #[tokio::test(start_paused = true)]
    async fn deferrable_writes_let_urgent_ones_pass_also_later_ones() {
        let priority = Arc::new(Priority::new(1));
        let (log, mut order) = mpsc::unbounded_channel();
        for (name, urgent) in [("taint 1", true), ("addresses 1", false), ("taint 2", true), ("taint 3", true)] {
            wait(&priority, &log, name, urgent);
            tokio::task::yield_now().await;
        }
        for expected in ["taint 1", "taint 2", "taint 3", "addresses 1"] {
            assert_eq!(order.recv().await, Some(expected));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn in_a_burst_deferrable_writes_wait_until_it_is_over() {
        let priority = Arc::new(Priority::new(100));
        let waiting = tokio::spawn({
            let priority = priority.clone();
            async move {
                // Some urgent writes are no burst.
                drop(priority.urgent().await);
                let began = Instant::now();
                drop(priority.deferrable().await);
                assert_eq!(began.elapsed(), Duration::ZERO);
                tokio::time::sleep(Duration::from_secs(1)).await;
                drop(priority.deferrable().await);
                began.elapsed()
            }
        });
        // One write each 10 ms: none is in flight most of the time.
        for _ in 0..300 {
            drop(priority.urgent().await);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let waited = waiting.await.unwrap();
        let end = Duration::from_millis(2990) + CALM;
        assert!(waited >= end && waited < end + Duration::from_millis(20), "{waited:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn deferrable_writes_do_not_wait_forever() {
        let priority = Arc::new(Priority::new(2));
        let urgent = priority.urgent().await;
        let began = Instant::now();
        assert!(priority.deferrable().await.is_some());
        assert_eq!(began.elapsed(), MAX_DEFERRAL);
        drop(urgent);
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_blocks_no_other() {
        let priority = Priority::new(1);
        let first = priority.urgent().await;
        let given_up = tokio::time::timeout(Duration::from_millis(1), priority.urgent()).await;
        assert!(given_up.is_err());
        drop(first);
        let began = Instant::now();
        assert!(priority.deferrable().await.is_some());
        assert!(began.elapsed().is_zero());
    }
}
