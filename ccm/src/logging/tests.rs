use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use tracing::Level;

use super::entry::{Fields, Origin, Severity, line};
use super::filter::{Filter, needed};
use super::stream::{Pace, Stream};
use super::*;

const AT_ONCE: Pace = Pace { hold: 0, flush: Duration::ZERO };
const LONG: Duration = Duration::from_secs(30);

/// The log of some events, without a process-wide subscriber.
fn logged(format: Format, verbosity: u32, vmodule: &str, events: impl FnOnce()) -> String {
    let (sender, lines) = mpsc::channel();
    let sink = Sink::Writer(Mutex::new(Box::new(move |line: &[u8]| {
        sender.send(String::from_utf8(line.to_vec()).unwrap()).unwrap();
    })));
    let filter = Arc::new(Filter::new(verbosity, &parse_vmodule(vmodule).unwrap(), false));
    let log = Log { filter, format, sink };
    tracing::subscriber::with_default(Registry::default().with(log), events);
    lines.try_iter().collect()
}

fn text(fields: &Fields) -> String {
    line(Format::Text, &origin(Severity::Warning), fields)
}

fn origin(severity: Severity) -> Origin<'static> {
    let time = "2026-01-02T15:04:05.000006Z".parse().unwrap();
    Origin { severity, verbosity: 2, file: "controllers/src/node/mod.rs", line: 12, time, process: 4242 }
}

#[test]
fn a_line_of_text_is_klogs() {
    let bare = Fields::message("Started \"x\"".into());
    assert_eq!(text(&bare), "W0102 15:04:05.000006    4242 mod.rs:12] Started \"x\"\n");
    let logged = logged(Format::Text, 0, "", || {
        tracing::info!(node = %"a", count = 3, ok = true, share = 0.5, missing = f64::NAN, error = "no", "deleting");
    });
    let (head, tail) = logged.split_once("] ").unwrap();
    assert!(head.starts_with('I') && head.contains(" tests.rs:"), "{head}");
    assert_eq!(tail, "\"deleting\" node=\"a\" count=3 ok=true share=0.5 missing=\"NaN\" err=\"no\"\n");
}

#[test]
fn a_line_of_json_has_the_fields_of_kubernetes() {
    let mut fields = Fields::message("it \"failed\"".into());
    assert_eq!(
        line(Format::Json, &origin(Severity::Info), &fields),
        "{\"ts\":1767366245000.006,\"caller\":\"node/mod.rs:12\",\"msg\":\"it \\\"failed\\\"\",\"v\":2}\n"
    );
    fields = Fields::default();
    let error = line(Format::Json, &origin(Severity::Error), &fields);
    assert!(serde_json::from_str::<serde_json::Value>(&error).unwrap().get("v").is_none(), "errors have no v: {error}");
    let logged = logged(Format::Json, 0, "", || {
        tracing::error!(error = %"boom\n", node = "a", after = 3, ok = false, nan = f64::INFINITY, ts = 1, msg = "x", "said");
    });
    let read: serde_json::Value = serde_json::from_str(&logged).unwrap();
    let read = read.as_object().unwrap();
    let expected = [("msg", "\"said\""), ("node", "\"a\""), ("after", "3"), ("ok", "false"), ("nan", "\"inf\"")];
    for (key, value) in expected.into_iter().chain([("err", "\"boom\\n\""), ("ts_", "1"), ("msg_", "\"x\"")]) {
        assert_eq!(read[key].to_string(), value, "{key} in {logged}");
    }
    assert!(read["ts"].is_number() && read["caller"].as_str().unwrap().starts_with("logging/tests.rs:"), "{logged}");
    assert!(logged.ends_with(",\"err\":\"boom\\n\"}\n"), "the error comes last: {logged}");
}

#[test]
fn no_input_makes_a_second_line_or_leaves_its_quotes() {
    let forged =
        "a\" other=\"b\nE0102 15:04:05.000006    4242 mod.rs:12] forged\r\u{1b}[2J\u{0}\u{2028}\u{202e}\u{85}\\";
    for format in [Format::Text, Format::Json] {
        let as_field = logged(format, 0, "", || tracing::info!(input = forged, "said"));
        let as_message = logged(format, 0, "", || tracing::info!("{forged}"));
        let as_both = logged(format, 0, "", || tracing::info!(input = %forged, "{forged}"));
        for line in [as_field, as_message, as_both] {
            assert_eq!(line.lines().count(), 1, "{line}");
            let printable = |c: char| !c.is_control() && !['\u{2028}', '\u{202e}'].contains(&c);
            let raw = format == Format::Json;
            assert!(line.trim_end().chars().all(|c| printable(c) || (raw && !c.is_ascii_control())), "{line:?}");
        }
    }
    let quoted = logged(Format::Text, 0, "", || tracing::info!(input = forged, "said"));
    assert!(quoted.contains(r#" input="a\" other=\"b\nE0102"#), "{quoted}");
    assert!(quoted.contains(r"\r\x1b[2J\x00\u2028\u202e\u0085\\"), "{quoted}");
}

#[test]
fn fields_of_spans_come_first_and_of_one_name_the_last_counts() {
    let logged = logged(Format::Text, 0, "", || {
        let outer = tracing::info_span!("sync", controller = "node", key = "a");
        let _in = outer.enter();
        let inner = tracing::info_span!("inner", attempt = tracing::field::Empty);
        inner.record("attempt", 2);
        let _in = inner.enter();
        tracing::warn!(key = "b", "failed");
    });
    assert!(logged.ends_with("] \"failed\" controller=\"node\" attempt=2 key=\"b\"\n"), "{logged}");
}

#[test]
fn verbosity_shows_decisions_from_2_details_from_6_and_libraries_from_8() {
    let table = [
        ("ccm::manager", Level::ERROR, 0),
        ("ccm_controllers::node", Level::WARN, 0),
        ("ccm_runtime::queue", Level::INFO, 0),
        ("somebodys_provider", Level::INFO, 0),
        ("ccm_runtime::queue", Level::DEBUG, 2),
        ("ccm_runtime::queue", Level::TRACE, 6),
        ("hyper_util::client", Level::WARN, 0),
        ("hyper_util::client", Level::INFO, 8),
        ("rustls::client", Level::DEBUG, 8),
        ("h2::codec", Level::TRACE, 10),
    ];
    for (target, level, expected) in table {
        assert_eq!(needed(target, level), expected, "{target} {level}");
    }
    let events = || {
        tracing::info!("one");
        tracing::debug!("two");
        tracing::trace!("three");
    };
    for (verbosity, count) in [(0, 1), (1, 1), (2, 2), (5, 2), (6, 3), (1000, 3)] {
        assert_eq!(logged(Format::Text, verbosity, "", events).lines().count(), count, "-v={verbosity}");
    }
}

#[test]
fn vmodule_raises_single_files_and_the_first_match_counts() {
    let events = || {
        tracing::debug!("two");
        tracing::trace!("three");
    };
    for (vmodule, count) in [
        ("tests=2", 1),
        ("tests=6", 2),
        ("te*s=9", 2),
        ("other=9", 0),
        ("tests=2,t*=9", 1),
        ("test=9", 0),
        ("tests=0", 0),
    ] {
        assert_eq!(logged(Format::Text, 0, vmodule, events).lines().count(), count, "--vmodule={vmodule}");
    }
    assert_eq!(logged(Format::Text, 2, "tests=1", events).lines().count(), 1, "it never lowers");
}

#[test]
fn validation_speaks_as_upstream() {
    let with = |change: fn(&mut LoggingOptions)| {
        let mut options = LoggingOptions::default();
        change(&mut options);
        options
    };
    let off = LoggingGates { alpha: false, beta: false };
    let on = LoggingGates { alpha: true, beta: true };
    let usual = LoggingGates::default();
    let json = with(|o| o.format = "json".into());
    let all = with(|o| {
        o.format = "xml".into();
        o.flush_frequency = Duration::ZERO;
        o.text.split_stream = true;
        o.vmodule = parse_vmodule("a=1").unwrap();
    });
    let buffers = with(|o| {
        o.text.info_buffer_size = -5;
        o.json = Routing { split_stream: true, info_buffer_size: 1 };
    });
    let table: [(LoggingOptions, LoggingGates, &[&str]); 7] = [
        (LoggingOptions::default(), off, &[]),
        (json.clone(), usual, &[]),
        (json, off, &["format: Forbidden: Log format json is disabled, see LoggingBetaOptions feature"]),
        (with(|o| o.format.clear()), on, &["format: Invalid value: \"\": Unsupported log format"]),
        (
            all,
            usual,
            &[
                "flushFrequency: Invalid value: \"0s\": Must be greater than zero",
                "format: Invalid value: \"xml\": Unsupported log format",
                "vmodule: Forbidden: Only supported for text log format",
                "options.text.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
            ],
        ),
        (
            buffers.clone(),
            usual,
            &[
                "options.text.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
                "options.json.splitStream: Forbidden: Feature LoggingAlphaOptions is disabled",
                "options.json.infoBufferSize: Forbidden: Feature LoggingAlphaOptions is disabled",
            ],
        ),
        (buffers, on, &[]),
    ];
    for (options, gates, expected) in table {
        assert_eq!(options.validate(gates), expected, "{options:?} {gates:?}");
    }
}

#[test]
fn values_of_flags_are_parsed_as_upstream() {
    let item = |pattern: &str, verbosity| VmoduleItem { pattern: pattern.into(), verbosity };
    assert_eq!(parse_vmodule(",a=1,,b*=2,").unwrap(), [item("a", 1), item("b*", 2)]);
    assert_eq!(parse_vmodule("").unwrap(), []);
    for bad in ["a", "=3", "a=", "a=1=2"] {
        assert_eq!(parse_vmodule(bad).unwrap_err(), format!("{bad:?} does not have the pattern=N format"));
    }
    let number = "parsing verbosity in \"a=-1\": strconv.ParseUint: parsing \"-1\": invalid syntax";
    assert_eq!(parse_vmodule("a=-1").unwrap_err(), number);
    assert_eq!(parse_verbosity("010"), Ok(10));
    assert_eq!(parse_verbosity("2147483647"), Ok(2_147_483_647));
    for (bad, why) in [
        ("x", "invalid syntax"),
        ("", "invalid syntax"),
        ("+1", "invalid syntax"),
        ("2147483648", "value out of range"),
        ("99999999999999999999", "value out of range"),
    ] {
        assert_eq!(parse_verbosity(bad).unwrap_err(), format!("strconv.ParseUint: parsing {bad:?}: {why}"));
    }
    for (text, bytes) in [
        ("0", 0),
        ("-5", -5),
        ("+1.", 1),
        (".5", 1),
        ("100m", 1),
        ("1.5G", 1_500_000_000),
        ("1.5e3", 1_500),
        ("15E-1", 2),
        ("1E", 1_000_000_000_000_000_000),
        ("1Ki", 1024),
        ("1.5Gi", 3 << 29),
        ("0.1Ki", 103),
        ("-1.5Gi", -(3 << 29)),
        ("8Ei", i64::MAX),
        ("1e99", i64::MAX),
    ] {
        assert_eq!(parse_buffer_size(text), Ok(bytes), "{text}");
    }
    for text in
        ["", ".", "-", "Gi", "abc", "1K", "1gi", "1 Gi", "1Gib", "1e", "1e1.5", "--1", "0x1", "1,5", "inf", "1.2.3"]
    {
        let error = parse_buffer_size(text).unwrap_err();
        assert!(error.starts_with("quantities must match the regular expression '^("), "{text}: {error}");
    }
}

/// Blocks each write until the test permits it.
struct Gated {
    permits: mpsc::Receiver<()>,
    written: mpsc::Sender<Vec<u8>>,
}

impl Write for Gated {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.permits.recv().is_err() {
            return Ok(bytes.len());
        }
        self.written.send(bytes.to_vec()).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn gated(pace: Pace) -> (Arc<Stream>, mpsc::Sender<()>, mpsc::Receiver<Vec<u8>>) {
    let ((permit, permits), (written, writes)) = (mpsc::channel(), mpsc::channel());
    let notice = |count| format!("{count} missing\n");
    (Stream::start(Gated { permits, written }, pace, notice).unwrap(), permit, writes)
}

#[test]
fn a_stopped_reader_blocks_no_thread_and_the_log_counts_missing_entries() {
    let (stream, permit, writes) = gated(AT_ONCE);
    let line = [b'x'; 1024];
    // Does not block, although nothing is read: the buffer is full after 1 MiB.
    for _ in 0..3000 {
        stream.push(&line, false);
    }
    stream.push(b"important\n", true);
    assert!(!stream.flush(Duration::from_millis(10)), "nothing was read");
    for _ in 0..4 {
        permit.send(()).unwrap();
    }
    assert!(stream.flush(LONG));
    let all = writes.try_iter().flatten().collect::<Vec<_>>();
    let text = String::from_utf8(all).unwrap();
    assert!(text.contains("important\n"), "what matters has room of its own");
    // Reported more than once if the writer starts only after the buffer was full.
    let counts = text.split(" missing\n").map(|before| before.rsplit(|c: char| !c.is_ascii_digit()).next().unwrap());
    let missing: usize = counts.filter_map(|count| count.parse::<usize>().ok()).sum();
    assert!(text.contains(" missing\n"), "says how many");
    assert_eq!(text.matches('x').count() / 1024 + missing, 3000);
    assert!(missing >= 900, "{missing}");
}

#[test]
fn an_entry_larger_than_the_buffer_is_written_whole() {
    let (stream, permit, writes) = gated(AT_ONCE);
    permit.send(()).unwrap();
    stream.push(&vec![b'x'; 3 << 20], false);
    assert!(stream.flush(LONG));
    assert_eq!(writes.recv().unwrap().len(), 3 << 20);
}

#[test]
fn held_entries_go_out_when_they_fill_the_buffer_when_flushed_and_when_old() {
    let (stream, permit, writes) = gated(Pace { hold: 10, flush: Duration::from_secs(3600) });
    for _ in 0..3 {
        permit.send(()).unwrap();
    }
    stream.push(b"12345", false);
    stream.push(b"67890", false);
    assert_eq!(writes.recv_timeout(LONG).unwrap(), b"1234567890");
    stream.push(b"abc", false);
    assert!(writes.try_recv().is_err(), "held");
    assert!(stream.flush(LONG));
    assert_eq!(writes.try_recv().unwrap(), b"abc");

    let (stream, permit, writes) = gated(Pace { hold: 10, flush: Duration::from_millis(50) });
    permit.send(()).unwrap();
    stream.push(b"abc", false);
    assert_eq!(writes.recv_timeout(LONG).unwrap(), b"abc", "flushed by itself");
}

#[test]
fn a_stream_that_fails_or_would_block_loses_nothing_that_it_can_take() {
    struct Flaky(u32, mpsc::Sender<Vec<u8>>);
    impl Write for Flaky {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            match self.0 % 3 {
                0 => Err(io::ErrorKind::WouldBlock.into()),
                1 => Err(io::ErrorKind::Interrupted.into()),
                _ => {
                    let some = &bytes[..bytes.len().min(7)];
                    self.1.send(some.to_vec()).map_err(io::Error::other)?;
                    Ok(some.len())
                }
            }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let (written, writes) = mpsc::channel();
    let stream = Stream::start(Flaky(0, written), AT_ONCE, |_| String::new()).unwrap();
    let text = "a line of some length, longer than one write takes\n";
    stream.push(text.as_bytes(), false);
    assert!(stream.flush(LONG));
    assert_eq!(writes.try_iter().flatten().collect::<Vec<_>>(), text.as_bytes());
}
