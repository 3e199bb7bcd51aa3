//! Errors of operations, with their meaning for the core and for the user.

use std::time::Duration;

use ccm_provider::{CloudError, ErrorClass, ProviderError};

use super::Operation;
use crate::batch::Interrupted;

/// A longer requested delay is treated as a mistake.
pub(super) const LONGEST_REQUESTED: Duration = Duration::from_secs(300);
/// Longer messages are truncated: an event holds 1,024 characters.
const TEXT_LIMIT: usize = 600;

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallError<O> {
    /// The operation.
    pub operation: O,
    /// The cloud's error code: `InvalidInstanceID.NotFound`. Empty if there was no answer.
    pub code: String,
    /// The cloud's message, or the transport error. Never contains a secret.
    pub message: String,
    /// The request ID, for a support case with the cloud.
    pub request_id: Option<String>,
    /// The kind of failure.
    pub kind: ErrorKind,
    /// The HTTP status of the answer, if any.
    pub status: Option<u16>,
    /// The delay that the cloud requested, if any: in seconds, rounded up, so that results stay small.
    pub after: Option<u16>,
}

/// The kind of failure of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    /// The cloud answered with [`CallError::code`].
    Refused,
    /// The cloud throttled the call.
    Throttled {
        /// The delay that the cloud requested, if any.
        after: Option<Duration>,
    },
    /// There are no credentials, or the cloud rejected them.
    Credentials,
    /// No connection: nothing was sent.
    NotSent,
    /// No answer, or none from the cloud: network, HTTP 5xx, HTML, truncated. A write may or may not have taken place.
    NoAnswer,
    /// A list whose pages are inconsistent.
    Incomplete,
    /// The request cannot be built: a bug in the provider.
    Malformed,
    /// A write of a process that is not the leader. Nothing was sent.
    NotLeading,
}

/// The meaning of an error code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meaning {
    /// The cloud throttles calls.
    Throttle,
    /// The server failed; a write may have taken place.
    Server,
    /// The cloud rejected the credentials, or the account is not ready.
    Credentials,
    /// A permission is missing.
    Denied,
    /// An object in the request does not exist.
    NotFound,
    /// The cloud has changed since it was observed.
    Conflict,
    /// Temporary: something else must end first, or must be created first.
    Passing,
    /// The object is busy with an earlier change: retry after this time, unless the cloud requests another delay. Not a
    /// failure.
    Busy(Duration),
    /// A quota is exhausted.
    Quota,
    /// The request is invalid and must change.
    Invalid,
    /// The cloud does not support the request here.
    Unsupported,
    /// None of these.
    Other,
}

/// A failed attempt, as reported by the transport.
#[derive(Debug, Clone, Default)]
pub struct Failure {
    /// The HTTP status, if any.
    pub status: Option<u16>,
    /// The cloud's error code, if any.
    pub code: String,
    /// The cloud's message, or the transport error.
    pub message: String,
    /// The request ID.
    pub request_id: Option<String>,
    /// The delay from `Retry-After`.
    pub after: Option<Duration>,
    /// The stage at which the attempt failed.
    pub cause: Cause,
}

/// The stage at which an attempt failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Cause {
    /// There was an answer.
    #[default]
    Answered,
    /// There are no credentials.
    Credentials,
    /// No connection.
    NotSent,
    /// No answer, or an unreadable one.
    NoAnswer,
    /// The request could not be built.
    Malformed,
}

impl<O: Operation> CallError<O> {
    /// Classifies a failed attempt.
    pub fn new(operation: O, failure: Failure) -> Self {
        let Failure { status, code, message, request_id, after, cause } = failure;
        let kind = match cause {
            Cause::Credentials => ErrorKind::Credentials,
            Cause::NotSent => ErrorKind::NotSent,
            Cause::Malformed => ErrorKind::Malformed,
            Cause::NoAnswer if asks_for_fewer(status, after) => ErrorKind::Throttled { after },
            Cause::NoAnswer => ErrorKind::NoAnswer,
            Cause::Answered => answered::<O>(&code, status, after),
        };
        let after = after.map(seconds);
        Self { operation, message: clean(O::redact(message.trim())), code, request_id, kind, status, after }
    }

    /// An answer of the cloud with a code and HTTP 400.
    pub fn refused(operation: O, code: &str, message: &str) -> Self {
        let failure =
            Failure { code: code.to_owned(), message: message.to_owned(), status: Some(400), ..Failure::default() };
        Self::new(operation, failure)
    }

    /// A failure without an answer.
    pub fn of_kind(operation: O, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self {
            operation,
            code: String::new(),
            message: message.into(),
            request_id: None,
            kind,
            status: None,
            after: None,
        }
    }

    /// A shared call that ended without an answer.
    pub fn interrupted(operation: O, how: Interrupted) -> Self {
        Self::of_kind(operation, ErrorKind::NoAnswer, how.to_string())
    }

    /// Whether the error code is one of `codes`.
    pub fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&&*self.code)
    }

    /// The outcome of the attempt, as a metric label.
    pub fn outcome(&self) -> &'static str {
        match self.kind {
            ErrorKind::Refused => "refused",
            ErrorKind::Throttled { .. } => "throttled",
            ErrorKind::Credentials => "credentials",
            ErrorKind::NotSent => "not-sent",
            ErrorKind::NoAnswer => "no-answer",
            ErrorKind::Incomplete => "incomplete",
            ErrorKind::Malformed => "malformed",
            ErrorKind::NotLeading => "not-leading",
        }
    }

    /// The meaning of the code.
    pub fn meaning(&self) -> Meaning {
        O::meaning(&self.code, self.status)
    }

    fn class(&self) -> ErrorClass {
        match self.kind {
            ErrorKind::Throttled { after } => ErrorClass::Throttled { after },
            ErrorKind::NotSent | ErrorKind::NoAnswer => ErrorClass::Transient { after: None },
            ErrorKind::Credentials | ErrorKind::Incomplete | ErrorKind::NotLeading => ErrorClass::Unknown,
            ErrorKind::Malformed => ErrorClass::Bug,
            ErrorKind::Refused => self.refusal(),
        }
    }

    fn refusal(&self) -> ErrorClass {
        match self.meaning() {
            // A write names several objects, and the missing one may be another than the caller's.
            Meaning::NotFound if self.operation.is_mutating() => ErrorClass::Conflict,
            Meaning::NotFound => ErrorClass::NotFound,
            Meaning::Conflict => ErrorClass::Conflict,
            Meaning::Denied => ErrorClass::Denied { action: self.action() },
            Meaning::Passing => ErrorClass::Transient { after: None },
            Meaning::Busy(usual) => {
                let asked = self.after.map(|after| Duration::from_secs(after.into()).min(LONGEST_REQUESTED));
                ErrorClass::InProgress { after: asked.unwrap_or(usual) }
            }
            Meaning::Invalid => ErrorClass::Invalid { findings: Vec::new() },
            Meaning::Unsupported => ErrorClass::Unsupported,
            Meaning::Quota | Meaning::Other | Meaning::Throttle | Meaning::Credentials | Meaning::Server => {
                ErrorClass::Unknown
            }
        }
    }

    /// What was not possible: the right that is missing, else that of the operation.
    fn action(&self) -> String {
        let is_denied = self.kind == ErrorKind::Refused && self.meaning() == Meaning::Denied;
        let named = is_denied.then(|| O::lacking(&self.message)).flatten();
        named.unwrap_or_else(|| self.operation.permission())
    }

    /// The message for the user: what failed, why, and what to do.
    fn text(&self) -> String {
        let (action, cloud, message) = (self.action(), O::CLOUD, &self.message);
        let remediation = |meaning| O::remediation(meaning, &self.code);
        let answer = self.answer();
        match self.kind {
            ErrorKind::Throttled { .. } => {
                let more = remediation(Meaning::Throttle).unwrap_or("other programs share the limits");
                format!("{action}: {cloud} asks for fewer calls; retried later. If it lasts, {more}{answer}")
            }
            ErrorKind::Credentials if self.code.is_empty() => {
                format!("{action}: no credentials for {cloud}: {message}")
            }
            ErrorKind::Credentials => match remediation(Meaning::Credentials) {
                Some(remediation) => format!("{action}: {remediation}{answer}"),
                None => format!("{action}: {cloud} doesn't take the credentials: renew them{answer}"),
            },
            ErrorKind::NotSent => format!(
                "{action}: no connection to {cloud} ({message}): check the endpoint, DNS, proxy and firewall of this host"
            ),
            ErrorKind::NoAnswer => format!("{action}: no usable answer from {cloud} ({message})"),
            ErrorKind::Incomplete => {
                format!("{action}: the answer is incomplete ({message}), so nothing follows from it")
            }
            ErrorKind::Malformed => format!("{action}: the request cannot be made ({message}): please report this"),
            ErrorKind::NotLeading => "another process leads now: nothing is written".to_owned(),
            ErrorKind::Refused => match (self.meaning(), remediation(self.meaning())) {
                (Meaning::Denied, remediation) => {
                    let remediation = remediation.unwrap_or("grant it to the identity of this program");
                    format!("ccm lacks {action}: {remediation}{answer}")
                }
                (_, Some(remediation)) => format!("{action}: {remediation}{answer}"),
                (Meaning::Quota, None) => {
                    format!("{action}: a quota is exhausted: ask for more or remove what is not needed{answer}")
                }
                (_, None) => format!("{action}{answer}"),
            },
        }
    }

    /// `; AWS says Code: message`
    fn answer(&self) -> String {
        match (self.code.is_empty(), self.message.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!(": {}", self.message),
            (false, true) => format!("; {} says {}", O::CLOUD, self.code),
            (false, false) => format!("; {} says {}: {}", O::CLOUD, self.code, self.message),
        }
    }

    /// The details for the log.
    fn detail(&self) -> String {
        let mut detail = format!("{} {}: {}", self.operation.service(), self.operation.name(), self.outcome());
        if let Some(status) = self.status {
            detail.push_str(&format!(", HTTP {status}"));
        }
        if !self.code.is_empty() {
            detail.push_str(&format!(", code {}", self.code));
        }
        if let Some(id) = &self.request_id {
            detail.push_str(&format!(", request ID {id}"));
        }
        format!("{detail}: {}", self.message)
    }
}

impl<O: Operation> std::fmt::Display for CallError<O> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail())
    }
}

impl<O: Operation> std::error::Error for CallError<O> {}

impl<O: Operation> From<CallError<O>> for ProviderError {
    fn from(error: CallError<O>) -> Self {
        let (class, message, detail) = (error.class(), error.text(), error.detail());
        Self::Cloud(CloudError { class, message, detail }.into())
    }
}

fn seconds(delay: Duration) -> u16 {
    let whole = delay.as_secs().saturating_add(u64::from(delay.subsec_nanos() > 0));
    u16::try_from(whole).unwrap_or(u16::MAX)
}

/// Whether the HTTP answer alone means throttling. A 503 with `Retry-After` does, whatever the error code.
fn asks_for_fewer(status: Option<u16>, after: Option<Duration>) -> bool {
    status == Some(429) || (status == Some(503) && after.is_some())
}

fn answered<O: Operation>(code: &str, status: Option<u16>, after: Option<Duration>) -> ErrorKind {
    match O::meaning(code, status) {
        Meaning::Throttle => ErrorKind::Throttled { after },
        Meaning::Credentials => ErrorKind::Credentials,
        // One object is busy: the calls for others go on, whatever the status.
        Meaning::Busy(_) => ErrorKind::Refused,
        _ if asks_for_fewer(status, after) => ErrorKind::Throttled { after },
        // Without a code, the answer may be that of a proxy.
        _ if code.is_empty() => ErrorKind::NoAnswer,
        Meaning::Server => ErrorKind::NoAnswer,
        // A code with a meaning is an answer of the cloud, whatever the status: 501 refuses.
        Meaning::Other if status.is_some_and(|status| status >= 500) => ErrorKind::NoAnswer,
        _ => ErrorKind::Refused,
    }
}

fn clean(text: &str) -> String {
    let mut clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_LIMIT).collect();
    if clean.len() < text.len() {
        clean.push('…');
    }
    clean
}
