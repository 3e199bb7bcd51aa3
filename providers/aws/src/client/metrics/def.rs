//! What a metric is, as data: the metric and its reference come from one entry.

use prometheus::core::Collector;
use prometheus::{GaugeVec, HistogramOpts, HistogramVec, IntCounterVec, Opts, Registry};

/// One metric.
#[derive(Debug, Clone, Copy)]
pub(super) struct Def {
    name: &'static str,
    /// As in `# TYPE`.
    kind: &'static str,
    labels: &'static [&'static str],
    /// Upper bounds of a histogram.
    buckets: &'static [f64],
    help: &'static str,
}

impl Def {
    pub(super) const fn counter(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: "counter", labels, buckets: &[], help }
    }

    pub(super) const fn gauge(name: &'static str, labels: &'static [&'static str], help: &'static str) -> Self {
        Self { name, kind: "gauge", labels, buckets: &[], help }
    }

    pub(super) const fn histogram(
        name: &'static str,
        labels: &'static [&'static str],
        buckets: &'static [f64],
        help: &'static str,
    ) -> Self {
        Self { name, kind: "histogram", labels, buckets, help }
    }
}

// These fail only on malformed constants, which the test of the table shows.
#[allow(clippy::expect_used)]
impl Def {
    pub(super) fn make_counter(&self, registry: &Registry) -> IntCounterVec {
        let made = IntCounterVec::new(Opts::new(self.name, self.help), self.labels).expect("constant");
        register(registry, made)
    }

    pub(super) fn make_gauge(&self, registry: &Registry) -> GaugeVec {
        register(registry, GaugeVec::new(Opts::new(self.name, self.help), self.labels).expect("constant"))
    }

    pub(super) fn make_histogram(&self, registry: &Registry) -> HistogramVec {
        let opts = HistogramOpts::new(self.name, self.help).buckets(self.buckets.to_vec());
        register(registry, HistogramVec::new(opts, self.labels).expect("constant"))
    }
}

fn register<T: Collector + Clone + 'static>(registry: &Registry, metric: T) -> T {
    if let Err(error) = registry.register(Box::new(metric.clone())) {
        tracing::error!(%error, "a metric is not exported");
    }
    metric
}

/// The reference page.
pub(super) fn markdown(defs: &[&Def]) -> String {
    let mut page = "# Metrics of the provider aws\n\n\
        `/metrics` shows these beside [those of the program](../../ccm/METRICS.md). Names and labels without `ccm_` in front are\n\
        those of the Go program; here every operation has its `request`.\n\n\
        This page is generated: `cargo xtask reference`.\n\n\
        | Name | Type | Labels | Meaning |\n|---|---|---|---|\n"
        .to_owned();
    for def in defs {
        let labels: Vec<String> = def.labels.iter().map(|label| format!("`{label}`")).collect();
        let buckets: Vec<String> = def.buckets.iter().map(ToString::to_string).collect();
        let bounds = if buckets.is_empty() { String::new() } else { format!(" Buckets: {}.", buckets.join(", ")) };
        let meaning = format!("{}{bounds}", def.help.replace('|', "\\|"));
        page.push_str(&format!("| `{}` | {} | {} | {meaning} |\n", def.name, def.kind, labels.join(", ")));
    }
    page
}
