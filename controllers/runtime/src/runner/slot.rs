//! The slot of a sync: one of a limited number, given back while the sync waits for the cloud or takes long.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{Scope, Turn};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;

use crate::leader::Leadership;

/// The time for which a sync holds its slot: one that hangs must not keep others from starting.
pub(super) const AT_MOST: Duration = Duration::from_secs(20);

tokio::task_local! {
    static SCOPE: Scope;
}

/// The scope of the provider's calls in the current sync: their waits give its slot back, and no write begins when the
/// process stops. Outside of a runner, nothing limits them.
pub fn scope() -> Scope {
    SCOPE.try_with(Clone::clone).unwrap_or_default()
}

/// The scope of provider calls outside of a runner: no write begins when the process stops.
pub fn scope_of(leadership: &Leadership) -> Scope {
    Scope::new(Arc::new(NoSlot(leadership.clone())))
}

struct NoSlot(Leadership);

#[async_trait]
impl Turn for NoSlot {
    fn may_write(&self) -> bool {
        self.0.may_begin()
    }

    fn may_complete(&self) -> bool {
        self.0.may_write()
    }

    async fn ended(&self) {
        self.0.ended().await;
    }

    fn wait_begins(&self) {}

    fn wait_ends(&self) {}

    async fn resumed(&self) {}
}

pub(super) struct Slot {
    slots: Arc<Semaphore>,
    leadership: Leadership,
    held: Mutex<Option<(OwnedSemaphorePermit, Instant)>>,
    /// The slot was taken or given back.
    changed: Notify,
    /// Whether keys wait for the groups of the sync.
    awaited: Arc<AtomicBool>,
}

impl Slot {
    pub(super) fn new(
        slots: Arc<Semaphore>,
        permit: OwnedSemaphorePermit,
        leadership: Leadership,
        awaited: Arc<AtomicBool>,
    ) -> Arc<Self> {
        let held = Mutex::new(Some((permit, Instant::now())));
        Arc::new(Self { slots, leadership, held, changed: Notify::new(), awaited })
    }

    pub(super) fn give_back(&self) {
        drop(self.held.lock().take());
        self.changed.notify_one();
    }

    /// Runs a sync. Its slot is free when it ends, and earlier if it takes long.
    pub(super) async fn run(self: Arc<Self>, sync: impl Future<Output = ()>) {
        let mut sync = pin!(SCOPE.scope(Scope::new(self.clone()), sync));
        loop {
            let since = self.held.lock().as_ref().map(|(_, since)| *since);
            let too_long = async {
                match since {
                    Some(since) => tokio::time::sleep_until(since + AT_MOST).await,
                    None => std::future::pending().await,
                }
            };
            tokio::select! {
                biased;
                () = &mut sync => break,
                () = too_long => self.give_back(),
                () = self.changed.notified() => {}
            }
        }
        self.give_back();
    }
}

#[async_trait]
impl Turn for Slot {
    fn may_write(&self) -> bool {
        self.leadership.may_begin()
    }

    fn may_complete(&self) -> bool {
        self.leadership.may_write()
    }

    async fn ended(&self) {
        self.leadership.ended().await;
    }

    fn wait_begins(&self) {
        self.give_back();
    }

    fn wait_ends(&self) {}

    /// A sync that waits in several places needs its slot as soon as one of them goes on.
    async fn resumed(&self) {
        if self.held.lock().is_some() {
            return;
        }
        // The semaphore is never closed.
        if let Ok(permit) = self.slots.clone().acquire_owned().await {
            *self.held.lock() = Some((permit, Instant::now()));
            self.changed.notify_one();
        }
    }

    fn is_waited_for(&self) -> bool {
        self.awaited.load(Ordering::Relaxed)
    }
}
