//! Logs in klog's text format: `I0102 15:04:05.000006    4242 file.rs:12] message key="value"`.

use std::fmt::Write as _;

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::FmtContext;
use tracing_subscriber::fmt::format::{FormatEvent, FormatFields, Writer};
use tracing_subscriber::registry::LookupSpan;

/// Sends logs to stderr. `-v=0` and `1` show what was done and what is wrong, from 2 on also decisions, from 6 on all.
///
/// Without effect when logs go somewhere already, as in a test that starts several programs.
pub fn init(verbosity: u8) {
    init_to(verbosity, std::io::stderr);
}

/// The same to somewhere else: `writer` makes what takes one entry, in one write, line break included.
pub fn init_to<W: std::io::Write + 'static>(verbosity: u8, writer: impl Fn() -> W + Send + Sync + 'static) {
    let level = match verbosity {
        0..=1 => LevelFilter::INFO,
        2..=5 => LevelFilter::DEBUG,
        _ => LevelFilter::TRACE,
    };
    let subscriber = tracing_subscriber::fmt().with_max_level(level).with_writer(writer).event_format(Klog).finish();
    // The libraries below log their own business at DEBUG; that is of use only at the highest verbosity.
    let filter = tracing_subscriber::filter::Targets::new()
        .with_default(if verbosity >= 8 { LevelFilter::TRACE } else { LevelFilter::WARN })
        .with_target("ccm", level)
        .with_target("ccm_", level);
    let subscriber = tracing_subscriber::layer::SubscriberExt::with(subscriber, filter);
    if tracing::subscriber::set_global_default(subscriber).is_err() {
        tracing::debug!("logging is set up already");
    }
}

struct Klog;

impl<S, N> FormatEvent<S, N> for Klog
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut to: Writer<'_>, event: &Event<'_>) -> std::fmt::Result {
        let meta = event.metadata();
        let letter = match *meta.level() {
            Level::ERROR => 'E',
            Level::WARN => 'W',
            _ => 'I',
        };
        let now = jiff::Timestamp::now().to_zoned(jiff::tz::TimeZone::UTC);
        let time = now.strftime("%m%d %H:%M:%S.%6f");
        let file = meta.file().and_then(|path| path.rsplit('/').next()).unwrap_or("unknown");
        let mut line = Line::default();
        event.record(&mut line);
        writeln!(
            to,
            "{letter}{time} {:>7} {file}:{}] {}{}",
            std::process::id(),
            meta.line().unwrap_or_default(),
            line.message,
            line.fields
        )
    }
}

#[derive(Default)]
struct Line {
    message: String,
    fields: String,
}

impl Line {
    fn push(&mut self, field: &Field, value: &str) {
        if field.name() == "message" {
            self.message.push_str(value);
        } else {
            // Writing to a String cannot fail.
            let _ = write!(self.fields, " {}={value:?}", field.name());
        }
    }
}

impl Visit for Line {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        self.push(field, &format!("{value:?}"));
    }
}
