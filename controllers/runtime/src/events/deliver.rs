//! Sends events: in order per object, a few at a time, with retries when the server cannot be reached.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{Clock, Subject};
use futures::StreamExt;
use futures::future::BoxFuture;
use futures::stream::FuturesUnordered;
use http::Method;
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use tokio::sync::{Semaphore, mpsc, watch};

use super::Recorded;
use super::correlate::{Correlator, Outgoing};
use crate::client::{ApiError, Call};
use crate::gate::{Gate, GateError};
use crate::metrics::{Def, IntCounterVec, Metrics};

/// Maximum concurrent requests: events must not compete with syncs.
const IN_FLIGHT: usize = 4;
/// Events taken from the queue and not yet delivered. The rest stays in the queue, which has a limit.
const PENDING: usize = 256;
/// Attempts per event.
const TRIES: u32 = 12;
/// The pause between attempts; the first is random below this, so that programs do not all retry at once.
const PAUSE: Duration = Duration::from_secs(10);

/// The delivering side of a [`super::Recorder`].
pub struct Delivery {
    received: mpsc::Receiver<Recorded>,
    open: watch::Sender<usize>,
    clock: Arc<dyn Clock>,
    metrics: Metrics,
    rng: StdRng,
    sender: Arc<Sender>,
}

struct Sender {
    gate: Gate,
    slots: Semaphore,
    metrics: Metrics,
}

impl std::fmt::Debug for Delivery {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Delivery").finish_non_exhaustive()
    }
}

impl Delivery {
    pub(super) fn new(
        received: mpsc::Receiver<Recorded>,
        open: watch::Sender<usize>,
        gate: Gate,
        clock: Arc<dyn Clock>,
        metrics: Metrics,
        seed: u64,
    ) -> Self {
        let sender = Sender { gate, slots: Semaphore::new(IN_FLIGHT), metrics: metrics.clone() };
        Self { received, open, clock, metrics, rng: StdRng::seed_from_u64(seed), sender: Arc::new(sender) }
    }

    /// Delivers until all recorders are dropped and everything is delivered.
    pub async fn run(mut self) {
        let mut correlator = Correlator::new();
        // Events that wait behind the one in flight for the same object.
        let mut waiting: HashMap<Subject, VecDeque<Outgoing>> = HashMap::new();
        let mut sending: FuturesUnordered<BoxFuture<'static, Subject>> = FuturesUnordered::new();
        let mut pending = 0_usize;
        let mut recording = true;
        while recording || pending > 0 {
            tokio::select! {
                biased;
                Some(subject) = sending.next() => {
                    pending -= 1;
                    self.done();
                    match waiting.get_mut(&subject).and_then(VecDeque::pop_front) {
                        Some(next) => sending.push(self.send(next)),
                        None => drop(waiting.remove(&subject)),
                    }
                }
                received = self.received.recv(), if recording && pending < PENDING => match received {
                    None => recording = false,
                    Some(event) => match correlator.take(event, self.clock.now()) {
                        None => {
                            self.metrics.event("cut");
                            self.done();
                        }
                        Some(event) => {
                            pending += 1;
                            match waiting.get_mut(&event.subject) {
                                Some(queue) => queue.push_back(event),
                                None => {
                                    waiting.insert(event.subject.clone(), VecDeque::new());
                                    sending.push(self.send(event));
                                }
                            }
                        }
                    },
                },
            }
        }
    }

    fn done(&self) {
        self.open.send_modify(|open| *open = open.saturating_sub(1));
    }

    fn send(&mut self, event: Outgoing) -> BoxFuture<'static, Subject> {
        let sender = Arc::clone(&self.sender);
        let first_pause = PAUSE.mul_f64(self.rng.random());
        Box::pin(async move {
            sender.deliver(&event, first_pause).await;
            event.subject
        })
    }
}

impl Sender {
    async fn deliver(&self, event: &Outgoing, first_pause: Duration) {
        let mut pause = first_pause;
        for attempt in 1..=TRIES {
            let outcome = self.write(event).await;
            let error = match outcome {
                Ok(()) => return self.metrics.event(if event.patch.is_some() { "counted" } else { "created" }),
                Err(GateError::NotLeading | GateError::Ending | GateError::Late) => {
                    return self.metrics.event("not-leading");
                }
                Err(GateError::DryRun) => return self.only_event(event),
                Err(GateError::Api(error)) if is_final(&error) => return self.rejected(event, &error),
                Err(GateError::Api(error)) => error,
            };
            if attempt < TRIES {
                tracing::debug!(event = %event.name, %error, "unable to write event, may retry after sleeping");
                tokio::time::sleep(pause.max(error.retry_after().unwrap_or_default().min(PAUSE))).await;
                pause = PAUSE;
            } else {
                tracing::error!(event = %event.name, %error, "Unable to write event (retry limit exceeded!)");
                self.metrics.event("gave-up");
            }
        }
    }

    async fn write(&self, event: &Outgoing) -> Result<(), GateError> {
        let gate = event.gate.as_ref().unwrap_or(&self.gate);
        if !is_about_lease(event) {
            // Before it takes a slot: those that wait hold up no others.
            gate.until_calm(event.due).await;
        }
        let Ok(_slot) = self.slots.acquire().await else { return Err(GateError::NotLeading) };
        let collection = format!("/api/v1/namespaces/{}/events", event.namespace);
        if let Some(patch) = &event.patch {
            match send(gate, event, &Call::strategic(format!("{collection}/{}", event.name), patch)).await {
                // The event has expired, or its creation failed.
                Err(error) if error.is_not_found() => {}
                result => return result,
            }
        }
        send(gate, event, &Call::json(Method::POST, collection, &event.body)).await
    }

    /// In a dry run, events are logged instead. Repeats, which would only be counted, are omitted.
    fn only_event(&self, event: &Outgoing) {
        self.metrics.event("dry-run");
        if event.patch.is_none() {
            let text = |key: &str| event.body.get(key).and_then(serde_json::Value::as_str).unwrap_or_default();
            let Subject { kind, namespace, name, .. } = &event.subject;
            let namespace = if namespace.is_empty() { String::new() } else { format!("{namespace}/") };
            tracing::info!(
                subject = format!("{} {namespace}{name}", kind.to_lowercase()),
                "Event (dry run, not written): {} {}: {}",
                text("type"),
                text("reason"),
                text("message")
            );
        }
    }

    fn rejected(&self, event: &Outgoing, error: &ApiError) {
        self.metrics.event("rejected");
        // A repeated attempt whose first answer was lost, or an object whose namespace is being deleted.
        if error.is_conflict()
            || matches!(error, ApiError::Status { message, .. } if message.contains("being terminated"))
        {
            tracing::debug!(event = %event.name, %error, "event not written");
        } else {
            tracing::error!(event = %event.name, %error, "Server rejected event (will not retry!)");
        }
    }
}

async fn send(gate: &Gate, event: &Outgoing, call: &Call<'_>) -> Result<(), GateError> {
    if is_about_lease(event) {
        gate.write_lease_event(call).await?;
    } else {
        gate.write_event(call).await?;
    }
    Ok(())
}

fn is_about_lease(event: &Outgoing) -> bool {
    event.subject.kind == "Lease"
}

/// Whether a retry is useless.
fn is_final(error: &ApiError) -> bool {
    matches!(error, ApiError::Status { code: 400..=428 | 430..=499, .. })
}

crate::metrics! {
    pub(crate) struct EventMetrics {
        events: IntCounterVec = Def::counter("ccm_events_total", &["outcome"], "Events by outcome.");
    }
}

impl Metrics {
    pub(super) fn event(&self, outcome: &str) {
        self.part::<EventMetrics>().events.with_label_values(&[outcome]).inc();
    }
}
