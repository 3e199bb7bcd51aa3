//! Metric definitions as data: the metric, its reference page and the tests use the same entry.
//!
//! The program and the providers declare their metrics with [`metrics!`](crate::metrics!), with upstream's name if
//! there is one, otherwise with the prefix `ccm_`.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use prometheus::core::{Atomic, Collector, GenericGaugeVec};
use prometheus::proto::{Metric, MetricType};
pub use prometheus::{
    GaugeVec, Histogram, HistogramVec, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, proto::MetricFamily,
};
use prometheus::{HistogramOpts, Opts};

/// The kind of a metric, as in `# TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A counter.
    Counter,
    /// A gauge.
    Gauge,
    /// A histogram.
    Histogram,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        })
    }
}

/// One metric.
#[derive(Debug, Clone, Copy)]
pub struct Def {
    /// Name: upstream's, or one with the prefix `ccm_`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Names of its labels. The number of values must be small: never an ID, a node or a Service.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram.
    pub buckets: &'static [f64],
    /// Help text; upstream's sentence, prefixed with its stability, if upstream has the metric.
    pub help: &'static str,
}

impl Def {
    /// A counter.
    pub const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Counter, labels, buckets: &[], help }
    }

    /// A gauge.
    pub const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: Kind::Gauge, labels, buckets: &[], help }
    }

    /// A histogram.
    pub const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self { name, kind: Kind::Histogram, labels, buckets, help }
    }

    fn opts(&self) -> Opts {
        Opts::new(self.name, self.help)
    }
}

/// Metrics that are exported together: those of the program or of a provider. Cheap to clone.
#[derive(Clone, Default)]
pub struct Registry {
    inner: prometheus::Registry,
    made: Arc<Mutex<HashMap<&'static str, Box<dyn Any + Send>>>>,
}

impl fmt::Debug for Registry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Registry")
    }
}

impl Registry {
    /// An empty registry.
    pub fn new() -> Self {
        Self::default()
    }

    /// A registry that prefixes each name with `prefix` and an underscore.
    ///
    /// # Errors
    ///
    /// The prefix is not valid in a metric name.
    pub fn prefixed(prefix: &str) -> Result<Self, String> {
        let inner =
            prometheus::Registry::new_custom(Some(prefix.to_owned()), None).map_err(|error| error.to_string())?;
        Ok(Self { inner, made: Arc::default() })
    }

    /// The current values, sorted by name.
    pub fn gather(&self) -> Vec<MetricFamily> {
        self.inner.gather()
    }

    /// The value of a counter or gauge, or the count of a histogram; for tests.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<f64> {
        let family = self.gather().into_iter().find(|family| family.name() == name)?;
        let has = |metric: &&Metric| {
            labels.iter().all(|(key, value)| metric.get_label().iter().any(|l| l.name() == *key && l.value() == *value))
        };
        let metric = family.get_metric().iter().find(has)?;
        Some(match family.get_field_type() {
            MetricType::COUNTER => metric.get_counter().get_value(),
            #[allow(clippy::cast_precision_loss)]
            MetricType::HISTOGRAM => metric.get_histogram().get_sample_count() as f64,
            _ => metric.get_gauge().get_value(),
        })
    }

    // A second metric with this name would not be exported: controllers that share one and differ by a label all use
    // the first. A metric with a malformed name or label fails in every test. Neither may stop a controller, hence the
    // fallback to an unregistered metric.
    fn export<T: Collector + Clone + 'static>(&self, def: &Def, new: impl FnOnce(&Def) -> T) -> T {
        let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(there) = made.get(def.name).and_then(|there| there.downcast_ref::<T>()) {
            return there.clone();
        }
        let new = new(def);
        if let Err(error) = self.inner.register(Box::new(new.clone())) {
            tracing::error!(%error, "a metric is not exported");
        }
        made.insert(def.name, Box::new(new.clone()));
        new
    }
}

/// A metric that can be created from its definition. As in upstream, a metric without labels exists from the start.
pub trait Exported {
    /// Creates and exports the metric; each caller gets the same one.
    fn export(registry: &Registry, def: &Def) -> Self;
}

/// A group of metrics declared by [`metrics!`](crate::metrics!).
pub trait Group: Send + Sync + 'static {
    /// Exports them.
    fn new(registry: &Registry) -> Self;
}

// The constructors below fail only on malformed constant names, which the test of all definitions would detect.
#[allow(clippy::expect_used)]
impl Exported for IntCounterVec {
    fn export(registry: &Registry, def: &Def) -> Self {
        registry.export(def, |def| Self::new(def.opts(), def.labels).expect("constant"))
    }
}

#[allow(clippy::expect_used)]
impl<P: Atomic + 'static> Exported for GenericGaugeVec<P> {
    fn export(registry: &Registry, def: &Def) -> Self {
        registry.export(def, |def| Self::new(def.opts(), def.labels).expect("constant"))
    }
}

#[allow(clippy::expect_used)]
impl Exported for HistogramVec {
    fn export(registry: &Registry, def: &Def) -> Self {
        let opts = |def: &Def| HistogramOpts::from(def.opts()).buckets(def.buckets.to_vec());
        registry.export(def, |def| Self::new(opts(def), def.labels).expect("constant"))
    }
}

impl Exported for IntCounter {
    fn export(registry: &Registry, def: &Def) -> Self {
        IntCounterVec::export(registry, def).with_label_values::<&str>(&[])
    }
}

impl Exported for IntGauge {
    fn export(registry: &Registry, def: &Def) -> Self {
        IntGaugeVec::export(registry, def).with_label_values::<&str>(&[])
    }
}

impl Exported for Histogram {
    fn export(registry: &Registry, def: &Def) -> Self {
        HistogramVec::export(registry, def).with_label_values::<&str>(&[])
    }
}

/// Declares the metrics of a module: a struct with one field per metric, `DEFS` for the reference page, and the export.
///
/// ```
/// use ccm_provider::metric::{Def, IntCounterVec, Registry};
///
/// ccm_provider::metrics! {
///     struct Doors {
///         opened: IntCounterVec = Def::counter("ccm_doors_opened_total", &["door"], "Doors that were opened.");
///     }
/// }
///
/// let registry = Registry::new();
/// Doors::new(&registry).opened.with_label_values(&["front"]).inc();
/// assert_eq!(registry.value("ccm_doors_opened_total", &[("door", "front")]), Some(1.0));
/// ```
#[macro_export]
macro_rules! metrics {
    ($(#[$meta:meta])* $vis:vis struct $name:ident { $($(#[$doc:meta])* $of:vis $field:ident: $kind:ty = $def:expr;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone)]
        $vis struct $name { $($(#[$doc])* $of $field: $kind,)* }

        impl $name {
            /// For the reference page.
            $vis const DEFS: &'static [&'static $crate::metric::Def] = &[$(&$def),*];

            $vis fn new(registry: &$crate::metric::Registry) -> Self {
                Self { $($field: $crate::metric::Exported::export(registry, &$def),)* }
            }
        }

        impl $crate::metric::Group for $name {
            fn new(registry: &$crate::metric::Registry) -> Self {
                Self::new(registry)
            }
        }
    };
}

/// The reference page of these metrics: a Markdown table, sorted by name, our own metrics separately.
pub fn markdown(defs: &[&Def]) -> String {
    let mut sorted = defs.to_vec();
    sorted.sort_by_key(|def| (def.name.starts_with("ccm_"), def.name));
    let (ours, theirs): (Vec<&Def>, Vec<&Def>) = sorted.iter().partition(|def| def.name.starts_with("ccm_"));
    let mut page = String::new();
    for (title, defs) in [("As in the Go program", theirs), ("Only here", ours)] {
        page.push_str(&format!("## {title}\n\n| Name | Type | Labels | Meaning |\n|---|---|---|---|\n"));
        for def in defs {
            let labels: Vec<String> = def.labels.iter().map(|label| format!("`{label}`")).collect();
            let mut meaning = def.help.replace('|', "\\|");
            if let Some((first, last)) = def.buckets.first().zip(def.buckets.last()) {
                let bounds = format!(" Buckets: {}, {first} … {last}.", def.buckets.len());
                meaning.push_str(&bounds);
            }
            page.push_str(&format!("| `{}` | {} | {} | {meaning} |\n", def.name, def.kind, labels.join(", ")));
        }
        page.push('\n');
    }
    page
}
