//! Messages of caught panics.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::metrics::{Def, IntCounterVec, Metrics};

/// The message of a caught panic.
pub fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no message".to_owned())
}

crate::metrics! {
    pub(crate) struct PanicMetrics {
        panics: IntCounterVec = Def::counter("ccm_panics_total", &["place"], "Panics that were caught, by place.");
    }
}

impl Metrics {
    /// Counts a caught panic.
    pub fn panicked(&self, place: &str) {
        self.part::<PanicMetrics>().panics.with_label_values(&[place]).inc();
    }

    /// Calls code of a provider. `None` if it panicked, which is logged and counted.
    pub fn caught<R>(&self, place: &str, call: impl FnOnce() -> R) -> Option<R> {
        let caught = catch_unwind(AssertUnwindSafe(call));
        caught
            .map_err(|panic| {
                self.panicked(place);
                tracing::error!(place, panic = panic_text(&*panic), "the provider panicked");
            })
            .ok()
    }
}
