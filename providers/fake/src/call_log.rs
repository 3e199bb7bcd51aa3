//! The call log: one JSON object per line, two lines per call.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::Path;

use ccm_provider::{ErrorClass, ProviderError, duration};
use jiff::Timestamp;
use parking_lot::Mutex;
use serde::Serialize;
use serde_json::Value as Json;
use tokio::time::Instant;

/// An open log, or none. Several processes may write to one file: each line is one write at the end of the file.
#[derive(Debug, Default)]
pub(crate) struct CallLog {
    out: Option<Mutex<Out>>,
}

#[derive(Debug)]
struct Out {
    file: File,
    calls: u64,
    failed: bool,
}

/// The name of a call in the log.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallName {
    pub(crate) call: &'static str,
    /// The single call that a batch call replaces.
    pub(crate) stands_for: Option<&'static str>,
}

#[derive(Default, Serialize)]
struct Line<'a> {
    time: String,
    pid: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    phase: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    event: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    call: Option<&'static str>,
    #[serde(rename = "as", skip_serializing_if = "Option::is_none")]
    stands_for: Option<&'static str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    args: Option<&'a Json>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<Json>,
    #[serde(flatten)]
    error: ErrorFields,
    #[serde(skip_serializing_if = "Option::is_none")]
    fault: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ms: Option<u64>,
}

/// `error`, `kind` and `retryAfter` in the log.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub(crate) struct ErrorFields {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) error: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) kind: Option<&'static str>,
    #[serde(rename = "retryAfter", skip_serializing_if = "Option::is_none")]
    pub(crate) retry_after: Option<String>,
}

impl From<&ProviderError> for ErrorFields {
    fn from(error: &ProviderError) -> Self {
        let (kind, retry_after) = match error.root() {
            ProviderError::InstanceNotFound => ("InstanceNotFound", None),
            ProviderError::NotImplemented => ("NotImplemented", None),
            ProviderError::NotOwned => ("NotOwned", None),
            ProviderError::ImplementedElsewhere => ("ImplementedElsewhere", None),
            ProviderError::DiskNotFound => ("DiskNotFound", None),
            ProviderError::Retry { after, .. } => ("Retry", Some(duration::format(*after))),
            error => match error.class() {
                ErrorClass::InProgress { after } => ("InProgress", Some(duration::format(after))),
                ErrorClass::Throttled { after } => ("Throttled", after.map(duration::format)),
                ErrorClass::Denied { .. } => ("Denied", None),
                ErrorClass::Invalid { .. } => ("Invalid", None),
                _ => ("Other", None),
            },
        };
        Self { error: Some(error.to_string()), kind: Some(kind), retry_after }
    }
}

/// The outcome in the end line.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) result: Option<Json>,
    pub(crate) error: ErrorFields,
}

impl CallLog {
    /// Opens or creates the file for appending.
    pub(crate) fn open(path: Option<&Path>) -> std::io::Result<Self> {
        let Some(path) = path else { return Ok(Self::default()) };
        let file = OpenOptions::new().append(true).create(true).open(path)?;
        Ok(Self { out: Some(Mutex::new(Out { file, calls: 0, failed: false })) })
    }

    /// Logs that the file of the cloud changed, with the reason if it was rejected.
    pub(crate) fn reload(&self, error: Option<&str>) {
        self.write(|_| {
            let error = ErrorFields { error: error.map(str::to_owned), ..ErrorFields::default() };
            Line { event: Some("reload"), error, ..Line::new() }
        });
    }

    /// Writes the start line of a call. The end line is written by [`OpenCall::end`], or when the value is dropped.
    pub(crate) fn start(&self, name: CallName, args: Json) -> OpenCall<'_> {
        let mut id = 0;
        self.write(|out| {
            out.calls += 1;
            id = out.calls;
            let (call, stands_for) = (Some(name.call), name.stands_for);
            Line { id: Some(id), phase: Some("start"), call, stands_for, args: Some(&args), ..Line::new() }
        });
        OpenCall { log: self, name, args, id, began: Instant::now(), fault: None, ended: false }
    }

    fn write<'a>(&self, line: impl FnOnce(&mut Out) -> Line<'a>) {
        let Some(out) = &self.out else { return };
        // Numbers and times are taken under the lock, so that they increase within one process.
        let mut out = out.lock();
        let line = line(&mut out);
        let written = serde_json::to_vec(&line).map_err(std::io::Error::from).and_then(|mut bytes| {
            bytes.push(b'\n');
            out.file.write_all(&bytes)
        });
        match written {
            Ok(()) => out.failed = false,
            Err(error) if !std::mem::replace(&mut out.failed, true) => {
                tracing::error!(%error, "cannot write to the call log of the fake cloud");
            }
            Err(_) => {}
        }
    }
}

impl Line<'_> {
    fn new() -> Self {
        Self { time: format!("{:.6}", Timestamp::now()), pid: std::process::id(), ..Self::default() }
    }
}

/// A call whose end is not logged yet. A cancelled call (its future is dropped) gets its end line too.
#[derive(Debug)]
pub(crate) struct OpenCall<'a> {
    log: &'a CallLog,
    name: CallName,
    args: Json,
    id: u64,
    began: Instant,
    fault: Option<String>,
    ended: bool,
}

impl OpenCall<'_> {
    /// Records the applied rule.
    pub(crate) fn fault(&mut self, id: String) {
        self.fault = Some(id);
    }

    /// Writes the end line.
    pub(crate) fn end(mut self, outcome: Outcome) {
        self.write_end(outcome);
    }

    fn write_end(&mut self, outcome: Outcome) {
        self.ended = true;
        let ms = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.log.write(|_| Line {
            id: Some(self.id),
            phase: Some("end"),
            call: Some(self.name.call),
            stands_for: self.name.stands_for,
            args: Some(&self.args),
            result: outcome.result,
            error: outcome.error,
            fault: self.fault.take(),
            ms: Some(ms),
            ..Line::new()
        });
    }
}

impl Drop for OpenCall<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // The trait cancels by dropping, so a deadline and a shutdown look the same.
            let error = ErrorFields { error: Some("context canceled".into()), kind: Some("Other"), retry_after: None };
            self.write_end(Outcome { result: None, error });
        }
    }
}
