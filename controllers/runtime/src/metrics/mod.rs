//! The metrics of the process and their text. Each module declares its own with [`metrics!`](ccm_provider::metrics!).
//!
//! Omitted from upstream's metrics: those of Go (`go_*`), of its metrics framework (`registered_metrics_total` and the
//! like) and of its transport cache (`rest_client_transport_*`), and those of API servers
//! (`aggregator_*`, `apiserver_{audit,envelope,storage,validation,webhooks}_*`), which would always be 0.

mod process;
mod slis;
#[cfg(test)]
mod tests;
mod text;

use std::any::{Any, TypeId};
use std::collections::{BTreeMap, HashMap};
use std::ops::Deref;
use std::sync::Arc;

use parking_lot::Mutex;

pub use ccm_provider::metric::{
    Def, Exported, GaugeVec, Group, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Kind,
    Registry, markdown,
};
pub(crate) use process::DEFS as PROCESS;
pub(crate) use slis::DEFS as SLIS;
pub use slis::HealthMetrics;

/// Runs at each scrape, before the metrics are read.
type AtScrape = Box<dyn Fn() + Send>;

/// The metrics of a process. Cheap to clone.
#[derive(Clone, Default)]
pub struct Metrics(Arc<Inner>);

#[derive(Default)]
struct Inner {
    registry: Registry,
    parts: Mutex<HashMap<TypeId, Arc<dyn Any + Send + Sync>>>,
    at_scrape: Mutex<BTreeMap<&'static str, AtScrape>>,
    others: Mutex<BTreeMap<&'static str, Registry>>,
}

/// The metrics that a module adds to the registry.
pub trait Part: Send + Sync + 'static {
    /// Created once for each registry.
    fn new(registry: &Metrics) -> Self;
}

impl<T: Group> Part for T {
    fn new(registry: &Metrics) -> Self {
        Group::new(registry)
    }
}

impl Deref for Metrics {
    type Target = Registry;

    fn deref(&self) -> &Registry {
        &self.0.registry
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Metrics {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// The metrics of this type; each caller gets the same ones.
    pub fn part<T: Part>(&self) -> Arc<T> {
        let there = self.0.parts.lock().get(&TypeId::of::<T>()).cloned();
        if let Some(part) = there.and_then(|part| part.downcast().ok()) {
            return part;
        }
        // Created without the lock, since it may request other parts. If two are created at once, the first one stays.
        let made: Arc<T> = Arc::new(T::new(self));
        let kept = self.0.parts.lock().entry(TypeId::of::<T>()).or_insert_with(|| made.clone()).clone();
        kept.downcast().unwrap_or(made)
    }

    /// Registers a function that runs before each scrape and replaces the one of that name: for gauges computed from
    /// the state. It must be quick.
    pub fn at_scrape(&self, name: &'static str, refresh: impl Fn() + Send + 'static) {
        self.0.at_scrape.lock().insert(name, Box::new(refresh));
    }

    /// Also shows the metrics of another registry, such as a provider's, which replaces the one of that name.
    pub fn include(&self, name: &'static str, other: Registry) {
        self.0.others.lock().insert(name, other);
    }

    /// A registry that prefixes each name with `prefix` and an underscore. Its metrics are shown too; each caller gets
    /// the same one.
    ///
    /// # Errors
    ///
    /// The prefix is not valid in a name.
    pub fn prefixed(&self, prefix: &'static str) -> Result<Registry, String> {
        let mut others = self.0.others.lock();
        if let Some(there) = others.get(prefix) {
            return Ok(there.clone());
        }
        let made = Registry::prefixed(prefix)?;
        others.insert(prefix, made.clone());
        Ok(made)
    }

    /// Everything in the text format of Prometheus.
    pub fn text(&self) -> String {
        let inner = &self.0;
        for refresh in inner.at_scrape.lock().values() {
            refresh();
        }
        let mut text = text::encode(&inner.registry.gather());
        process::append(&mut text);
        for other in inner.others.lock().values() {
            text.push_str(&text::encode(&other.gather()));
        }
        text
    }

    /// The samples of a metric that counts, for display: the values of its labels in the order of their names, and the
    /// count.
    #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // counts are whole and not negative
    pub fn samples(&self, name: &str) -> Vec<(Vec<String>, u64)> {
        let families = self.0.registry.gather();
        let metrics =
            families.iter().filter(|family| family.name() == name).flat_map(|family| family.get_metric().iter());
        metrics
            .map(|metric| {
                let labels = metric.get_label().iter().map(|label| label.value().to_owned()).collect();
                // The one that it is not reads as 0.
                (labels, (metric.get_counter().get_value() + metric.get_gauge().get_value()) as u64)
            })
            .collect()
    }

    /// The value of a counter, gauge or histogram count as printed, for tests and the demo; `None` if it has no such
    /// sample.
    pub fn sample(&self, line_start: &str) -> Option<f64> {
        let text = self.text();
        let line = text.lines().find(|line| line.strip_prefix(line_start).is_some_and(|r| r.starts_with(' ')))?;
        line.rsplit(' ').next()?.parse().ok()
    }
}
