//! What a metric is, as data: the metric, its reference and the tests come from the same entry.

use std::fmt;

use prometheus::core::{Atomic, GenericGaugeVec};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Opts};

use super::Registrar;

/// The kind of a metric, spelled as in `# TYPE`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Only grows.
    Counter,
    /// Goes up and down.
    Gauge,
    /// Counts in buckets.
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
    /// Its name: upstream's, or one that begins with `ccm_`.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// Names of its labels. The values must be few: never an ID, a node or a Service.
    pub labels: &'static [&'static str],
    /// Upper bounds of a histogram.
    pub buckets: &'static [f64],
    /// Meaning; upstream's sentence, with its stability in front, where upstream has the metric.
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

// The constructors below fail only on malformed constant names, which the test of the table would show. A metric without
// labels is there from the start, as upstream's are.
#[allow(clippy::expect_used)]
impl Registrar {
    pub(super) fn counter(&self, def: &Def) -> IntCounterVec {
        let made = super::register(&self.0, IntCounterVec::new(def.opts(), def.labels).expect("constant"));
        if def.labels.is_empty() {
            made.with_label_values::<&str>(&[]);
        }
        made
    }

    pub(super) fn gauge<P: Atomic + 'static>(&self, def: &Def) -> GenericGaugeVec<P> {
        let made = super::register(&self.0, GenericGaugeVec::new(def.opts(), def.labels).expect("constant"));
        if def.labels.is_empty() {
            made.with_label_values::<&str>(&[]);
        }
        made
    }

    pub(super) fn histogram(&self, def: &Def) -> HistogramVec {
        let opts = HistogramOpts::from(def.opts()).buckets(def.buckets.to_vec());
        let made = super::register(&self.0, HistogramVec::new(opts, def.labels).expect("constant"));
        if def.labels.is_empty() {
            made.with_label_values::<&str>(&[]);
        }
        made
    }
}

/// The reference page of these metrics: a table in Markdown, sorted by name, ours apart.
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
