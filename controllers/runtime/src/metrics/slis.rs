//! `/metrics/slis`: how the health checks went.

use prometheus::{IntCounterVec, IntGaugeVec, Registry};

use super::{Registrar, table, text};

/// The health checks of a process, in a registry of their own.
#[derive(Debug, Clone)]
pub struct HealthMetrics {
    registry: Registry,
    last: IntGaugeVec,
    all: IntCounterVec,
}

impl Default for HealthMetrics {
    fn default() -> Self {
        let to = Registrar(Registry::new());
        Self { last: to.gauge(&table::HEALTHCHECK), all: to.counter(&table::HEALTHCHECKS), registry: to.0 }
    }
}

impl HealthMetrics {
    /// A check was made; `kind` is `healthz`, `livez` or `readyz`.
    pub fn checked(&self, name: &str, kind: &str, healthy: bool) {
        self.last.with_label_values(&[name, kind]).set(i64::from(healthy));
        self.all.with_label_values(&[name, kind, if healthy { "success" } else { "error" }]).inc();
    }

    /// Forgets all, as a DELETE asks for.
    pub fn reset(&self) {
        self.last.reset();
        self.all.reset();
    }

    /// The text format of Prometheus.
    pub fn text(&self) -> String {
        text::encode(&self.registry.gather())
    }
}
