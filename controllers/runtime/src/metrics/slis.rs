//! `/metrics/slis`: the results of the health checks.

use super::{Def, IntCounterVec, IntGaugeVec, Metrics, text};

crate::metrics! {
    struct Checks {
        last: IntGaugeVec = Def::gauge(
        "kubernetes_healthcheck",
        &["name", "type"],
        "[STABLE] This metric records the result of a single healthcheck.",
    );
        all: IntCounterVec = Def::counter(
        "kubernetes_healthchecks_total",
        &["name", "type", "status"],
        "[STABLE] This metric records the results of all healthcheck.",
    );
    }
}
pub(crate) const DEFS: &[&Def] = Checks::DEFS;

/// The health checks of a process, in a separate registry.
#[derive(Debug, Clone)]
pub struct HealthMetrics {
    registry: Metrics,
    checks: Checks,
}

impl Default for HealthMetrics {
    fn default() -> Self {
        let registry = Metrics::new();
        Self { checks: Checks::new(&registry), registry }
    }
}

impl HealthMetrics {
    /// Records a check; `kind` is `healthz`, `livez` or `readyz`.
    pub fn checked(&self, name: &str, kind: &str, healthy: bool) {
        self.checks.last.with_label_values(&[name, kind]).set(i64::from(healthy));
        self.checks.all.with_label_values(&[name, kind, if healthy { "success" } else { "error" }]).inc();
    }

    /// Clears all samples, for a DELETE.
    pub fn reset(&self) {
        self.checks.last.reset();
        self.checks.all.reset();
    }

    /// The text format of Prometheus.
    pub fn text(&self) -> String {
        text::encode(&self.registry.gather())
    }
}
