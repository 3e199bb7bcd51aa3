//! One entry, and its two formats.

use std::fmt::{Debug, Write as _};

use tracing::field::{Field, Visit};
use tracing::{Level, Metadata};

use super::Format;

/// Field names that the JSON format sets itself.
const RESERVED: [&str; 5] = ["ts", "caller", "msg", "v", "err"];

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Value {
    /// A text, which is quoted.
    Text(String),
    /// A number or a boolean, which is not quoted.
    Bare(String),
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Fields {
    message: String,
    pairs: Vec<(&'static str, Value)>,
}

impl Fields {
    pub(super) fn message(message: String) -> Self {
        Self { message, pairs: Vec::new() }
    }

    /// Appends other fields; if several have the same name, the last one applies.
    pub(super) fn extend(&mut self, other: Self) {
        self.message.push_str(&other.message);
        for (name, value) in other.pairs {
            self.put(name, value);
        }
    }

    fn put(&mut self, name: &'static str, value: Value) {
        // The field `error` of tracing is `err` in klog.
        let name = if name == "error" { "err" } else { name };
        self.pairs.retain(|(other, _)| *other != name);
        self.pairs.push((name, value));
    }

    fn record(&mut self, field: &Field, value: Value) {
        match (field.name(), value) {
            ("message", Value::Text(text) | Value::Bare(text)) => self.message.push_str(&text),
            (name, value) => self.put(name, value),
        }
    }
}

impl Visit for Fields {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record(field, Value::Text(value.to_owned()));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.record(field, Value::Text(format!("{value:?}")));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.record(field, Value::Bare(value.to_string()));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.record(field, Value::Bare(value.to_string()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.record(field, Value::Bare(value.to_string()));
    }

    fn record_f64(&mut self, field: &Field, value: f64) {
        let text = value.to_string();
        self.record(field, if value.is_finite() { Value::Bare(text) } else { Value::Text(text) });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Severity {
    Info,
    Warning,
    Error,
}

impl Severity {
    pub(super) fn of(level: Level) -> Self {
        match level {
            Level::ERROR => Self::Error,
            Level::WARN => Self::Warning,
            _ => Self::Info,
        }
    }

    fn letter(self) -> char {
        match self {
            Self::Info => 'I',
            Self::Warning => 'W',
            Self::Error => 'E',
        }
    }
}

/// Source and time of an entry.
#[derive(Debug, Clone, Copy)]
pub(super) struct Origin<'a> {
    pub(super) severity: Severity,
    /// The lowest verbosity at which it is shown.
    pub(super) verbosity: u32,
    /// Path of the source file.
    pub(super) file: &'a str,
    pub(super) line: u32,
    pub(super) time: jiff::Timestamp,
    pub(super) process: u32,
}

impl<'a> Origin<'a> {
    pub(super) fn now(meta: &Metadata<'a>) -> Self {
        Self {
            severity: Severity::of(*meta.level()),
            verbosity: super::filter::needed(meta.target(), *meta.level()),
            file: meta.file().unwrap_or("unknown"),
            line: meta.line().unwrap_or_default(),
            time: jiff::Timestamp::now(),
            process: std::process::id(),
        }
    }
}

/// The entry as one line with its line break. Line breaks in fields are escaped.
pub(super) fn line(format: Format, origin: &Origin<'_>, fields: &Fields) -> String {
    let mut line = match format {
        Format::Text => text(origin, fields),
        Format::Json => json(origin, fields),
    };
    line.push('\n');
    line
}

/// `I0102 15:04:05.000006    4242 file.rs:12] "message" key="value"`; without fields the message is not quoted, as in
/// klog's older functions.
fn text(origin: &Origin<'_>, fields: &Fields) -> String {
    let time = origin.time.to_zoned(jiff::tz::TimeZone::UTC);
    let file = origin.file.rsplit('/').next().unwrap_or(origin.file);
    let (letter, time) = (origin.severity.letter(), time.strftime("%m%d %H:%M:%S.%6f"));
    let mut line = format!("{letter}{time} {:>7} {file}:{}] ", origin.process, origin.line);
    if fields.pairs.is_empty() {
        escape(&mut line, &fields.message, false);
    } else {
        quote(&mut line, &fields.message);
    }
    for (name, value) in &fields.pairs {
        line.push(' ');
        line.push_str(name);
        line.push('=');
        match value {
            Value::Text(value) => quote(&mut line, value),
            Value::Bare(value) => line.push_str(value),
        }
    }
    line
}

/// The form of `k8s.io/component-base/logs/json`: information has `v`, errors have `err` instead.
fn json(origin: &Origin<'_>, fields: &Fields) -> String {
    let mut parts = origin.file.rsplitn(3, '/');
    let (file, folder) = (parts.next().unwrap_or_default(), parts.next());
    let caller = match folder {
        Some(folder) => format!("{folder}/{file}:{}", origin.line),
        None => format!("{file}:{}", origin.line),
    };
    let mut line = format!(
        "{{\"ts\":{},\"caller\":{},\"msg\":{}",
        milliseconds(origin.time),
        json_text(&caller),
        json_text(&fields.message)
    );
    if origin.severity != Severity::Error {
        // Writing to a String cannot fail.
        let _ = write!(line, ",\"v\":{}", origin.verbosity);
    }
    let (errors, others): (Vec<_>, Vec<_>) = fields.pairs.iter().partition(|(name, _)| *name == "err");
    for (name, value) in others.into_iter().chain(errors) {
        let clash = if *name != "err" && RESERVED.contains(name) { "_" } else { "" };
        let value = match value {
            Value::Text(value) => json_text(value),
            Value::Bare(value) => value.clone(),
        };
        let _ = write!(line, ",{}:{value}", json_text(&format!("{name}{clash}")));
    }
    line.push('}');
    line
}

/// Milliseconds since 1970, with a fraction.
fn milliseconds(time: jiff::Timestamp) -> String {
    let microseconds = time.as_microsecond();
    let text = format!("{}.{:03}", microseconds / 1000, (microseconds % 1000).abs());
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn json_text(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

fn quote(line: &mut String, text: &str) {
    line.push('"');
    escape(line, text, true);
    line.push('"');
}

/// Escapes unprintable characters, like Go's `%q`; if quoted, also quotes and backslashes.
fn escape(line: &mut String, text: &str, quoted: bool) {
    for character in text.chars() {
        match character {
            '\n' => line.push_str("\\n"),
            '\r' => line.push_str("\\r"),
            '\t' if quoted => line.push_str("\\t"),
            '"' | '\\' if quoted => {
                line.push('\\');
                line.push(character);
            }
            ' '..='~' | '\t' => line.push(character),
            _ if character.is_control() && u32::from(character) < 0x80 => {
                let _ = write!(line, "\\x{:02x}", u32::from(character));
            }
            // Rust escapes unprintable characters, such as direction marks.
            _ if character.escape_debug().len() > 1 => {
                let _ = write!(line, "\\u{:04x}", u32::from(character));
            }
            _ => line.push(character),
        }
    }
}
