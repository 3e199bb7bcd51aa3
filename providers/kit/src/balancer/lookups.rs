//! Simultaneous lookups that become one.

use std::ops::ControlFlow;

use ccm_provider::{LoadBalancerStatus, ProviderError, Service};
use parking_lot::Mutex;
use tokio::sync::{MutexGuard, oneshot};

/// The answer to [`LoadBalancer::get`](ccm_provider::LoadBalancer::get).
pub(super) type Found = Result<Option<LoadBalancerStatus>, ProviderError>;
type Waiting = Vec<(Service, oneshot::Sender<Found>)>;

/// Callers that wait for the lookup of another one, to share the next.
#[derive(Debug, Default)]
pub(super) struct Lookups {
    waiting: Mutex<Waiting>,
    turn: tokio::sync::Mutex<()>,
}

/// The turn of a caller, with the others that share its lookup.
pub(super) struct Turn<'a> {
    others: Waiting,
    _turn: MutexGuard<'a, ()>,
}

impl Lookups {
    /// Waits for the turn of a caller, or for the answer from that of another one.
    pub(super) async fn turn(&self, service: &Service) -> ControlFlow<Found, Turn<'_>> {
        let (answer, mut found) = oneshot::channel();
        self.waiting.lock().push((service.clone(), answer));
        let turn = self.turn.lock().await;
        if let Ok(found) = found.try_recv() {
            return ControlFlow::Break(found);
        }
        found.close();
        let mut others = std::mem::take(&mut *self.waiting.lock());
        // Without this one, and callers that do not wait any more.
        others.retain(|(_, answer)| !answer.is_closed());
        ControlFlow::Continue(Turn { others, _turn: turn })
    }
}

impl Turn<'_> {
    /// All Services to look for; its own is the last one.
    pub(super) fn services<'s>(&'s self, own: &'s Service) -> Vec<&'s Service> {
        self.others.iter().map(|(other, _)| other).chain([own]).collect()
    }

    /// Answers the others; returns its own answer.
    pub(super) fn answer(self, mut found: Vec<Found>) -> Found {
        let own = found.pop().unwrap_or(Ok(None));
        for ((_, answer), found) in self.others.into_iter().zip(found) {
            drop(answer.send(found));
        }
        own
    }
}
