//! Shared helpers for tests of controllers.

use std::sync::Arc;

use ccm_provider::{CloudProvider, EventSink, EventType, Schemes, Subject};
use ccm_runtime::store::FieldFilter;
use ccm_runtime::{Client, Gate, Leadership, Metrics, Store, SystemClock};
use parking_lot::Mutex;

use crate::Shared;
use crate::managed::Unmanaged;
use crate::service::Owners;

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
        schemes: Schemes::new(["fake"]),
        unmanaged: Unmanaged::default(),
        owners: Owners::default(),
    }
}

/// The same, with a cloud in which another program manages nodes with this label.
pub(crate) fn unmanaged(label: (&'static str, &'static str)) -> Shared {
    struct Cloud((&'static str, &'static str));
    impl CloudProvider for Cloud {
        fn name(&self) -> &str {
            "cloud"
        }
        fn unmanaged_label(&self) -> Option<(&str, &str)> {
            Some(self.0)
        }
    }
    Shared { unmanaged: Unmanaged::of(&Cloud(label)), ..shared() }
}

/// Keeps events as `Normal reason: message`.
#[derive(Default)]
pub(crate) struct Events(pub(crate) Mutex<Vec<String>>);

impl EventSink for Events {
    fn event(&self, _: &Subject, kind: EventType, reason: &str, message: &str) {
        self.0.lock().push(format!("{kind:?} {reason}: {message}"));
    }
}
