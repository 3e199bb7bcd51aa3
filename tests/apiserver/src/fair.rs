//! A watch channel that wakes those who wait in the order in which they came. Tokio's wakes them in random order, and a
//! simulation could not repeat what follows from that.

use std::fmt;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};
use tokio::sync::Notify;

#[derive(Debug)]
struct Shared<T> {
    /// How often it was changed, and the value.
    value: RwLock<(u64, T)>,
    changed: Notify,
}

/// The writing side; lives as long as the server, so receivers need not care about its end.
pub(crate) struct Sender<T>(Arc<Shared<T>>);

/// A reading side.
pub(crate) struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

/// The value, locked.
pub(crate) struct Ref<'a, T>(RwLockReadGuard<'a, (u64, T)>);

/// There is nobody any more who could change the value; never happens.
#[derive(Debug)]
pub(crate) struct Closed;

impl<T> Deref for Ref<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.0.1
    }
}

impl<T: fmt::Debug> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl<T: fmt::Debug> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.shared.fmt(f)
    }
}

impl<T> Sender<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(Arc::new(Shared { value: RwLock::new((0, value)), changed: Notify::new() }))
    }

    pub(crate) fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        let mut value = self.0.value.write().unwrap_or_else(PoisonError::into_inner);
        value.0 += 1;
        modify(&mut value.1);
        drop(value);
        self.0.changed.notify_waiters();
    }

    pub(crate) fn send_replace(&self, value: T) {
        self.send_modify(|old| *old = value);
    }

    /// A receiver that has seen the present value.
    pub(crate) fn subscribe(&self) -> Receiver<T> {
        let shared = Arc::clone(&self.0);
        let seen = shared.value.read().unwrap_or_else(PoisonError::into_inner).0;
        Receiver { shared, seen }
    }
}

impl<T> Receiver<T> {
    pub(crate) fn borrow(&self) -> Ref<'_, T> {
        Ref(self.shared.value.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// What is there now has been seen.
    pub(crate) fn mark_unchanged(&mut self) {
        let now = self.borrow().0.0;
        self.seen = now;
    }

    /// Waits for a change that was not seen yet.
    pub(crate) async fn changed(&mut self) -> Result<(), Closed> {
        loop {
            let changed = self.shared.changed.notified();
            tokio::pin!(changed);
            // Registered before the look, so that no change in between is missed.
            changed.as_mut().enable();
            let now = self.borrow().0.0;
            if now != self.seen {
                self.seen = now;
                return Ok(());
            }
            changed.await;
        }
    }

    /// Waits until the value is as wanted.
    pub(crate) async fn wait_for(&mut self, mut wanted: impl FnMut(&T) -> bool) -> Result<Ref<'_, T>, Closed> {
        while !wanted(&self.borrow()) {
            self.changed().await?;
        }
        Ok(self.borrow())
    }
}
