//! Logs in the two formats of Kubernetes: klog's text, and JSON.
//!
//! Call [`start`] once, early, and [`flush`] before the process ends. `-v` maps to the levels of `tracing`:
//!
//! | `-v` | shows |
//! |---|---|
//! | 0, 1 | ERROR, WARN, INFO: actions and errors |
//! | 2 to 5 | also DEBUG: decisions |
//! | 6 to 9 | also TRACE |
//! | 8 | also INFO and DEBUG of the libraries, 10 all of them |
//!
//! In the JSON format `v` is the lowest verbosity at which an entry is shown. A slow reader of stderr blocks nothing:
//! entries are written through a bounded buffer; if it is full they are dropped, and the log states their number.

mod entry;
mod filter;
mod options;
mod stream;
#[cfg(test)]
mod tests;

use std::io::Write;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::span::{Attributes, Id, Record};
use tracing::subscriber::Interest;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use entry::{Fields, Origin, Severity};
use filter::Filter;
use stream::{Pace, Stream};

pub use options::{
    Format, LoggingGates, LoggingOptions, Routing, VmoduleItem, parse_buffer_size, parse_verbosity, parse_vmodule,
};

/// The time for which the exit waits for the readers of the log.
const PATIENCE: Duration = Duration::from_secs(10);

struct Running {
    filter: Arc<Filter>,
    /// stderr, and stdout if the streams are split.
    streams: Vec<Arc<Stream>>,
}

static RUNNING: OnceLock<Running> = OnceLock::new();

/// Starts logging to stderr or to the streams of the options. Options that [`LoggingOptions::validate`] rejects are
/// ignored.
///
/// Panics are logged as entries, so that the output is all JSON. No effect if logging has already started, as in a
/// test that starts several programs.
pub fn start(options: &LoggingOptions) {
    match Sink::streams(options) {
        Ok((sink, streams)) => set_up(options, sink, streams),
        // A log that may block is better than none.
        Err(_) => set_up(options, Sink::writer(std::io::stderr), Vec::new()),
    }
}

/// Starts logging as text to `writer`, unbuffered: it is called once per entry, which is written in one write.
pub fn init_to<W: Write + 'static>(verbosity: u8, writer: impl Fn() -> W + Send + Sync + 'static) {
    let options = LoggingOptions { verbosity: verbosity.into(), ..LoggingOptions::default() };
    set_up(&options, Sink::writer(writer), Vec::new());
}

/// Changes the verbosity at run time; see the table above. False if logging was not started.
pub fn set_verbosity(verbosity: u32) -> bool {
    let running = RUNNING.get();
    if let Some(running) = running {
        running.filter.set(verbosity);
    }
    running.is_some()
}

/// Waits until all entries are written, at most ten seconds: a blocked reader must not prevent the exit.
pub fn flush() {
    flush_within(PATIENCE);
}

/// The same with a different limit.
pub fn flush_within(limit: Duration) {
    let deadline = Instant::now() + limit;
    for stream in RUNNING.get().iter().flat_map(|running| &running.streams) {
        stream.flush(deadline.saturating_duration_since(Instant::now()));
    }
}

fn set_up(options: &LoggingOptions, sink: Sink, streams: Vec<Arc<Stream>>) {
    let buffered = !streams.is_empty();
    let filter = Arc::new(Filter::new(options.verbosity, &options.vmodule, options.quiet));
    let layer = Log { filter: filter.clone(), format: options.format(), sink };
    if tracing::subscriber::set_global_default(Registry::default().with(layer)).is_err() {
        tracing::debug!("logging is already set up");
        return;
    }
    // Cannot fail: the code above ensures that this runs once.
    let _ = RUNNING.set(Running { filter, streams });
    if buffered {
        std::panic::set_hook(Box::new(|panic| {
            let place = panic.location().map(ToString::to_string);
            let text = panic.payload_as_str().unwrap_or("of unknown type");
            let thread = std::thread::current();
            tracing::error!(place, thread = thread.name(), "panic: {text}");
        }));
    }
}

/// Accepts one line.
type Put = Box<dyn FnMut(&[u8]) + Send>;

enum Sink {
    /// Written synchronously by the logging thread.
    Writer(Mutex<Put>),
    Streams {
        information: Arc<Stream>,
        rest: Arc<Stream>,
        /// Whether warnings are written to the stream of information.
        warnings: bool,
    },
}

impl Sink {
    fn writer<W: Write + 'static>(writer: impl Fn() -> W + Send + Sync + 'static) -> Self {
        // A write error of the log cannot be reported.
        Self::Writer(Mutex::new(Box::new(move |line| drop(writer().write_all(line)))))
    }

    fn streams(options: &LoggingOptions) -> std::io::Result<(Self, Vec<Arc<Stream>>)> {
        let (format, routing) = (options.format(), options.routing());
        let hold = if routing.split_stream { usize::try_from(routing.info_buffer_size).unwrap_or(0) } else { 0 };
        let at_once = Pace { hold: 0, flush: Duration::ZERO };
        let rest = Stream::start(std::io::stderr(), at_once, move |count| missing(format, count))?;
        let mut streams = vec![rest.clone()];
        let information = if routing.split_stream {
            // At most 2 GiB, as in Go.
            let pace = Pace { hold: hold.min(2 << 30), flush: options.flush_frequency };
            let stream = Stream::start(std::io::stdout(), pace, move |count| missing(format, count))?;
            streams.push(stream.clone());
            stream
        } else {
            rest.clone()
        };
        Ok((Self::Streams { information, rest, warnings: format == Format::Json }, streams))
    }

    fn put(&self, severity: Severity, line: &[u8]) {
        match self {
            Self::Writer(write) => write.lock()(line),
            Self::Streams { information, rest, warnings } => {
                let informs = severity == Severity::Info || (severity == Severity::Warning && *warnings);
                let stream = if informs { information } else { rest };
                stream.push(line, severity != Severity::Info);
            }
        }
    }
}

/// The entry that replaces dropped ones.
fn missing(format: Format, count: u64) -> String {
    let origin = Origin {
        severity: Severity::Warning,
        verbosity: 0,
        file: file!(),
        line: line!(),
        time: jiff::Timestamp::now(),
        process: std::process::id(),
    };
    let text = format!("{count} log entries are missing here: the log is read more slowly than it is written");
    entry::line(format, &origin, &Fields::message(text))
}

struct Log {
    filter: Arc<Filter>,
    format: Format,
    sink: Sink,
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn register_callsite(&self, meta: &'static Metadata<'static>) -> Interest {
        if self.filter.shows(meta) { Interest::always() } else { Interest::never() }
    }

    fn enabled(&self, meta: &Metadata<'_>, _: Context<'_, S>) -> bool {
        self.filter.shows(meta)
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let mut fields = Fields::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(fields);
    }

    fn on_record(&self, id: &Id, record: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(fields) = span.extensions_mut().get_mut::<Fields>() {
            record.record(fields);
        }
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::default();
        for span in context.event_scope(event).into_iter().flatten().collect::<Vec<_>>().iter().rev() {
            if let Some(of_span) = span.extensions().get::<Fields>() {
                fields.extend(of_span.clone());
            }
        }
        event.record(&mut fields);
        let origin = Origin::now(event.metadata());
        self.sink.put(origin.severity, entry::line(self.format, &origin, &fields).as_bytes());
    }
}
