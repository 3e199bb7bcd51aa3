//! The text format of Prometheus, with numbers formatted as in Go: rules compare the bounds of buckets as text.

use std::fmt::Write as _;

use prometheus::proto::{LabelPair, MetricFamily, MetricType};

/// All families, one after another.
pub(super) fn encode(families: &[MetricFamily]) -> String {
    let mut text = String::new();
    for family in families {
        let kind = match family.get_field_type() {
            MetricType::COUNTER => "counter",
            MetricType::HISTOGRAM => "histogram",
            _ => "gauge",
        };
        let name = family.name();
        head(&mut text, name, kind, family.help());
        for metric in family.get_metric() {
            let labels = metric.get_label();
            match family.get_field_type() {
                MetricType::COUNTER => sample(&mut text, name, "", labels, None, metric.get_counter().get_value()),
                MetricType::HISTOGRAM => {
                    let histogram = metric.get_histogram();
                    let count = float(histogram.get_sample_count());
                    for bucket in histogram.get_bucket().iter().filter(|bucket| bucket.upper_bound().is_finite()) {
                        let bound = number(bucket.upper_bound());
                        sample(&mut text, name, "_bucket", labels, Some(&bound), float(bucket.cumulative_count()));
                    }
                    sample(&mut text, name, "_bucket", labels, Some("+Inf"), count);
                    sample(&mut text, name, "_sum", labels, None, histogram.get_sample_sum());
                    sample(&mut text, name, "_count", labels, None, count);
                }
                _ => sample(&mut text, name, "", labels, None, metric.get_gauge().get_value()),
            }
        }
    }
    text
}

/// The two lines before the samples of a metric.
pub(super) fn head(text: &mut String, name: &str, kind: impl std::fmt::Display, help: &str) {
    let help = help.replace('\\', "\\\\").replace('\n', "\\n");
    // Writing to a String cannot fail.
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// One line.
pub(super) fn sample(text: &mut String, name: &str, suffix: &str, labels: &[LabelPair], le: Option<&str>, value: f64) {
    text.push_str(name);
    text.push_str(suffix);
    let labels = labels.iter().map(|label| (label.name(), label.value())).chain(le.map(|bound| ("le", bound)));
    let mut open = '{';
    for (name, value) in labels {
        let value = value.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"");
        let _ = write!(text, "{open}{name}=\"{value}\"");
        open = ',';
    }
    if open == ',' {
        text.push('}');
    }
    let _ = writeln!(text, " {}", number(value));
}

#[allow(clippy::cast_precision_loss)] // the format has no integers
fn float(count: u64) -> f64 {
    count as f64
}

/// As Go's `strconv.FormatFloat(value, 'g', -1, 64)`.
pub(super) fn number(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "+Inf" } else { "-Inf" }.into();
    }
    let text = format!("{value:e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or_default();
    if (-4..6).contains(&exponent) {
        return value.to_string();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{digits}e{sign}{:02}", exponent.abs())
}
