//! A signal that wakes waiting tasks in FIFO order. Tokio's channels wake them in random order, so that simulations
//! would not be repeatable.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// The sending side.
#[derive(Debug, Clone, Default)]
pub(crate) struct Signal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    sent: AtomicU64,
    notify: Notify,
}

/// A receiving side.
#[derive(Debug)]
pub(crate) struct Listener {
    shared: Arc<Shared>,
    seen: u64,
}

impl Signal {
    pub(crate) fn send(&self) {
        self.0.sent.fetch_add(1, Ordering::SeqCst);
        self.0.notify.notify_waiters();
    }

    /// A listener that has received all signals so far.
    pub(crate) fn listen(&self) -> Listener {
        Listener { shared: Arc::clone(&self.0), seen: self.0.sent.load(Ordering::SeqCst) }
    }
}

impl Listener {
    /// Marks all signals so far as received. Returns whether there was a new one.
    pub(crate) fn catch_up(&mut self) -> bool {
        let sent = self.shared.sent.load(Ordering::SeqCst);
        std::mem::replace(&mut self.seen, sent) != sent
    }

    /// Waits for a signal that was not received yet.
    pub(crate) async fn changed(&mut self) {
        loop {
            let shared = Arc::clone(&self.shared);
            let notified = shared.notify.notified();
            tokio::pin!(notified);
            // Registered before the check, so that no signal in between is missed.
            notified.as_mut().enable();
            if self.catch_up() {
                return;
            }
            notified.await;
        }
    }
}
