//! The event recorder, with client-go's visible behavior.
//!
//! ```text
//! ComponentRecorder::event ─> bounded queue ─> Correlator (aggregate, count, limit) ─> Deliver ─> API server
//! ```
//!
//! Events are core/v1 (roles for upstream allow no others). Recording never blocks and never fails: events that do not
//! fit into the queue are dropped and counted. Order is kept per object, so that a count is patched after its event was
//! created.

mod correlate;
mod deliver;
mod lru;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use ccm_provider::{Clock, ErrorClass, EventSink, EventType, Subject};
use tokio::sync::{mpsc, watch};

use crate::gate::Gate;
use crate::metrics::Metrics;
use crate::priority::Priority;
pub use deliver::Delivery;
pub(crate) use deliver::EventMetrics;

/// The maximum number of waiting events; more are dropped.
const QUEUE: usize = 1000;

/// An event as recorded.
#[derive(Debug, Clone)]
struct Recorded {
    component: Arc<str>,
    /// The identity that writes it; `None`: that of the process.
    gate: Option<Gate>,
    subject: Subject,
    kind: EventType,
    reason: String,
    message: String,
    /// [`ErrorClass::as_str`] of the failure.
    class: Option<&'static str>,
    /// Wall clock.
    at: SystemTime,
    /// The time until which urgent writes go first.
    due: tokio::time::Instant,
    /// Nanoseconds since 1970, made unique: the suffix of the event's name.
    stamp: u64,
}

/// Records events. Cheap to clone; all clones share one queue.
#[derive(Clone)]
pub struct Recorder {
    shared: Arc<Shared>,
}

struct Shared {
    queue: mpsc::Sender<Recorded>,
    open: watch::Sender<usize>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    last_stamp: AtomicU64,
}

impl std::fmt::Debug for Recorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recorder").field("open", &*self.shared.open.borrow()).finish_non_exhaustive()
    }
}

impl Recorder {
    /// A recorder and the task that delivers for it: spawn [`Delivery::run`]. `seed` is that of the retry jitter.
    pub fn new(gate: Gate, clock: Arc<dyn Clock>, metrics: Metrics, seed: u64) -> (Self, Delivery) {
        let (queue, received) = mpsc::channel(QUEUE);
        let open = watch::Sender::new(0);
        let delivery = Delivery::new(received, open.clone(), gate, Arc::clone(&clock), metrics.clone(), seed);
        let shared = Shared { queue, open, clock, metrics, last_stamp: AtomicU64::new(0) };
        (Self { shared: Arc::new(shared) }, delivery)
    }

    /// The same recorder under the name of a component: `service-controller`, `cloud-node-controller`, …
    pub fn for_component(&self, component: &str) -> ComponentRecorder {
        ComponentRecorder { shared: Arc::clone(&self.shared), component: component.into(), gate: None }
    }

    /// Waits until everything recorded so far is delivered or dropped, at most for the given time. Returns the number
    /// of undelivered events.
    pub async fn flush(&self, limit: Duration) -> usize {
        let mut open = self.shared.open.subscribe();
        let left = tokio::time::timeout(limit, open.wait_for(|open| *open == 0)).await;
        match left {
            Ok(_) => 0,
            Err(_) => *self.shared.open.borrow(),
        }
    }
}

/// Records the events of one component.
#[derive(Clone)]
pub struct ComponentRecorder {
    shared: Arc<Shared>,
    component: Arc<str>,
    gate: Option<Gate>,
}

impl ComponentRecorder {
    /// The same, written through this gate: with the identity of a controller, while it leads.
    #[must_use]
    pub fn through(&self, gate: Gate) -> Self {
        Self { gate: Some(gate), ..self.clone() }
    }
}

impl std::fmt::Debug for ComponentRecorder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ComponentRecorder").field("component", &self.component).finish_non_exhaustive()
    }
}

impl EventSink for ComponentRecorder {
    fn event(&self, subject: &Subject, kind: EventType, reason: &str, message: &str) {
        self.record(subject, kind, reason, message, None);
    }

    fn failure(&self, subject: &Subject, reason: &str, message: &str, class: Option<&ErrorClass>) {
        self.record(subject, EventType::Warning, reason, message, class.map(ErrorClass::as_str));
    }
}

impl ComponentRecorder {
    fn record(&self, subject: &Subject, kind: EventType, reason: &str, message: &str, class: Option<&'static str>) {
        let shared = &self.shared;
        let at = shared.clock.wall();
        let recorded = Recorded {
            component: Arc::clone(&self.component),
            gate: self.gate.clone(),
            subject: subject.clone(),
            kind,
            reason: reason.to_owned(),
            message: message.to_owned(),
            class,
            at,
            due: Priority::latest(),
            stamp: shared.stamp(at),
        };
        // Counted before it is queued, so that the count never falls below zero.
        shared.open.send_modify(|open| *open += 1);
        if shared.queue.try_send(recorded).is_err() {
            shared.open.send_modify(|open| *open = open.saturating_sub(1));
            shared.metrics.event("overflow");
            tracing::debug!(reason, message, "event dropped: too many are waiting");
        }
    }
}

impl Shared {
    /// A unique stamp: two events of one object must not have the same name, even if the clock stands still or is set
    /// back.
    fn stamp(&self, at: SystemTime) -> u64 {
        let nanos = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_nanos();
        let now = u64::try_from(nanos).unwrap_or_default();
        let next = |last: u64| Some(now.max(last.saturating_add(1)));
        let last = self.last_stamp.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default();
        next(last).unwrap_or(now)
    }
}
