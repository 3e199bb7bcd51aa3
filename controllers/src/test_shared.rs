//! Shared helpers for tests of controllers.

use std::sync::Arc;

use ccm_provider::{EventSink, EventType, Subject};
use ccm_runtime::store::FieldFilter;
use ccm_runtime::{Client, Gate, Leadership, Metrics, Store, SystemClock};

use crate::Shared;

/// A process that leads, without an API server.
pub(crate) fn shared() -> Shared {
    let (metrics, clock) = (Metrics::new(), Arc::new(SystemClock));
    let leadership = Leadership::new(clock.clone());
    leadership.lead(None);
    let client = Client::without_server("there is no server", metrics.clone());
    Shared {
        gate: Gate::new(client, leadership.clone(), false, metrics.clone()),
        nodes: Store::new(FieldFilter::default()),
        services: Store::new(FieldFilter::default()),
        view: None,
        leadership,
        clock,
        metrics,
        cluster: "c".into(),
    }
}

/// Discards events.
pub(crate) struct NoEvents;

impl EventSink for NoEvents {
    fn event(&self, _subject: &Subject, _kind: EventType, _reason: &str, _message: &str) {}
}
