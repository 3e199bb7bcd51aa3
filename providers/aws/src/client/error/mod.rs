//! What AWS answers when it refuses, and what that means to the core.

use std::time::Duration;

use ccm_provider::{CloudError, ErrorClass, ProviderError};

use super::codes::{self, Meaning};
use super::operation::Operation;

/// Longer texts of AWS are cut: an event holds 1,024 characters.
const TEXT_LIMIT: usize = 600;

/// A failed operation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) operation: Operation,
    /// AWS's error code: `InvalidInstanceID.NotFound`; empty when there was no answer.
    pub(crate) code: String,
    /// AWS's text, or what went wrong on the way. Never a secret.
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
    pub(crate) kind: ErrorKind,
    /// Of the answer, if one came.
    pub(crate) status: Option<u16>,
}

/// How an operation failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// AWS answered with [`ApiError::code`].
    Refused,
    /// Fewer calls are wanted; the delay that was asked for, if any.
    Throttled { after: Option<Duration> },
    /// No credentials, or none that AWS takes: expired, malformed, from the wrong clock.
    Credentials,
    /// No connection: nothing was sent.
    NotSent,
    /// No answer, or one that is no AWS answer: network, HTTP 5xx, HTML, cut off. Whether a write took place is not known.
    NoAnswer,
    /// A read whose pages did not fit together.
    Incomplete,
    /// The request cannot be made: a slip of ours.
    Malformed,
}

/// What came back from one attempt, before it is judged.
#[derive(Debug, Clone, Default)]
pub(crate) struct Failure {
    pub(crate) status: Option<u16>,
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
    /// From `Retry-After`.
    pub(crate) after: Option<Duration>,
    pub(crate) cause: Cause,
}

/// How far an attempt came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Cause {
    /// There was an answer.
    #[default]
    Answered,
    /// No credentials could be had.
    Credentials,
    /// No connection.
    NotSent,
    /// No answer, or an unreadable one.
    NoAnswer,
    /// The request could not be made.
    Malformed,
}

impl ApiError {
    /// Judges a failed attempt.
    pub(crate) fn new(operation: Operation, failure: Failure) -> Self {
        let Failure { status, code, message, request_id, after, cause } = failure;
        let kind = match cause {
            Cause::Credentials => ErrorKind::Credentials,
            Cause::NotSent => ErrorKind::NotSent,
            Cause::Malformed => ErrorKind::Malformed,
            Cause::NoAnswer if status == Some(429) => ErrorKind::Throttled { after },
            Cause::NoAnswer if status == Some(503) && after.is_some() => ErrorKind::Throttled { after },
            Cause::NoAnswer => ErrorKind::NoAnswer,
            Cause::Answered => answered(&code, status, after),
        };
        Self { operation, message: clean(&message), code, request_id, kind, status }
    }

    /// AWS's answer with a code.
    #[cfg(test)]
    pub(crate) fn refused(operation: Operation, code: &str, message: &str) -> Self {
        let failure =
            Failure { code: code.to_owned(), message: message.to_owned(), status: Some(400), ..Failure::default() };
        Self::new(operation, failure)
    }

    /// A failure without an answer.
    pub(crate) fn of_kind(operation: Operation, kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { operation, code: String::new(), message: message.into(), request_id: None, kind, status: None }
    }

    /// Whether AWS answered with one of the codes.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&&*self.code)
    }

    /// The word for metrics: what became of an attempt.
    pub(crate) fn outcome(&self) -> &'static str {
        match self.kind {
            ErrorKind::Refused => "refused",
            ErrorKind::Throttled { .. } => "throttled",
            ErrorKind::Credentials => "credentials",
            ErrorKind::NotSent => "not-sent",
            ErrorKind::NoAnswer => "no-answer",
            ErrorKind::Incomplete => "incomplete",
            ErrorKind::Malformed => "malformed",
        }
    }

    fn meaning(&self) -> Meaning {
        codes::meaning(&self.code)
    }

    fn class(&self) -> ErrorClass {
        match self.kind {
            ErrorKind::Throttled { after } => ErrorClass::Throttled { after },
            ErrorKind::NotSent | ErrorKind::NoAnswer => ErrorClass::Transient { after: None },
            ErrorKind::Credentials | ErrorKind::Incomplete => ErrorClass::Unknown,
            ErrorKind::Malformed => ErrorClass::Bug,
            ErrorKind::Refused => self.refusal(),
        }
    }

    fn refusal(&self) -> ErrorClass {
        match self.meaning() {
            // A write names several objects, and the one that is missing need not be the one that is asked about.
            Meaning::NotFound if self.operation.is_mutating() => ErrorClass::Conflict,
            Meaning::NotFound => ErrorClass::NotFound,
            Meaning::Conflict => ErrorClass::Conflict,
            Meaning::Denied => ErrorClass::Denied { action: self.operation.permission() },
            Meaning::Passing => ErrorClass::Transient { after: None },
            Meaning::Invalid => ErrorClass::Invalid { findings: Vec::new() },
            Meaning::Unsupported => ErrorClass::Unsupported,
            Meaning::Quota
            | Meaning::Other
            | Meaning::Throttle
            | Meaning::Keys
            | Meaning::Clock
            | Meaning::Account
            | Meaning::Server => ErrorClass::Unknown,
        }
    }

    /// What the operator reads: what failed, why, and what to do.
    fn text(&self) -> String {
        let (action, said) = (self.operation.permission(), self.said());
        match self.kind {
            ErrorKind::Throttled { .. } => {
                format!(
                    "{action}: AWS asks for fewer calls; tried again later. If it lasts, other programs share the limits of this account and region{said}"
                )
            }
            ErrorKind::Credentials => self.credentials(),
            ErrorKind::NotSent => format!(
                "{action}: no connection to AWS ({}): check the endpoint, DNS, proxy and firewall of this host",
                self.message
            ),
            ErrorKind::NoAnswer => format!("{action}: no usable answer from AWS ({})", self.message),
            ErrorKind::Incomplete => {
                format!("{action}: the answer is incomplete ({}), so nothing follows from it", self.message)
            }
            ErrorKind::Malformed => {
                format!("{action}: the request cannot be made ({}): please report this", self.message)
            }
            ErrorKind::Refused => match self.meaning() {
                Meaning::Denied => format!(
                    "ccm lacks {action}: add it to the policy of its role (manifests/aws/iam) and see that no boundary or service control policy denies it{said}"
                ),
                Meaning::Quota => format!(
                    "{action}: a quota of the account is exhausted: ask AWS for more or remove what is not needed{said}"
                ),
                _ => match annotation(&self.code) {
                    Some(keys) => format!("{action}: correct {keys}{said}"),
                    None => format!("{action}{said}"),
                },
            },
        }
    }

    fn credentials(&self) -> String {
        let (action, said) = (self.operation.permission(), self.said());
        if self.code.is_empty() {
            return format!("{action}: no credentials for AWS: {}", self.message);
        }
        let step = match self.meaning() {
            Meaning::Clock => "AWS doesn't take the signature: check the clock of this host, then the keys",
            Meaning::Account => "the AWS account is not ready for this service: look into its console",
            _ => "AWS doesn't take the credentials: renew them, or check the role that they come from",
        };
        format!("{action}: {step}{said}")
    }

    /// `; AWS says Code: text`
    fn said(&self) -> String {
        match (self.code.is_empty(), self.message.is_empty()) {
            (true, true) => String::new(),
            (true, false) => format!(": {}", self.message),
            (false, true) => format!("; AWS says {}", self.code),
            (false, false) => format!("; AWS says {}: {}", self.code, self.message),
        }
    }

    /// For the log: what was asked and how it can be found again.
    fn detail(&self) -> String {
        let Operation { service, name } = self.operation;
        let mut detail = format!("{} {name}: {}", service.id(), self.outcome());
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

impl std::fmt::Display for ApiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.detail())
    }
}

impl std::error::Error for ApiError {}

impl From<ApiError> for ProviderError {
    fn from(error: ApiError) -> Self {
        let (class, message, detail) = (error.class(), error.text(), error.detail());
        Self::Cloud(CloudError { class, message, detail }.into())
    }
}

fn answered(code: &str, status: Option<u16>, after: Option<Duration>) -> ErrorKind {
    match codes::meaning(code) {
        Meaning::Throttle => ErrorKind::Throttled { after },
        Meaning::Keys | Meaning::Clock | Meaning::Account => ErrorKind::Credentials,
        _ if status == Some(429) => ErrorKind::Throttled { after },
        // A server that says when to come back wants fewer calls, whatever it calls that.
        _ if status == Some(503) && after.is_some() => ErrorKind::Throttled { after },
        Meaning::Server => ErrorKind::NoAnswer,
        _ if status.is_some_and(|status| status >= 500) => ErrorKind::NoAnswer,
        _ if code.is_empty() => ErrorKind::NoAnswer,
        _ => ErrorKind::Refused,
    }
}

/// The annotations that can be the reason of a code: AWS repeats the value and does not know the key.
fn annotation(code: &str) -> Option<&'static str> {
    Some(match code {
        "CertificateNotFound" | "UnsupportedCertificate" => "service.beta.kubernetes.io/aws-load-balancer-ssl-cert",
        "SSLPolicyNotFound" => "service.beta.kubernetes.io/aws-load-balancer-ssl-negotiation-policy",
        "InvalidSecurityGroup" => {
            "service.beta.kubernetes.io/aws-load-balancer-security-groups or -extra-security-groups"
        }
        "AllocationIdNotFound" | "InvalidAllocationID.NotFound" => {
            "service.beta.kubernetes.io/aws-load-balancer-eip-allocations"
        }
        _ => return None,
    })
}

/// AWS's text without what is a secret, differs each time, or is of no use: the encoded authorization message, and the
/// canonical request that comes with a wrong signature and holds the session token.
fn clean(message: &str) -> String {
    let mut text = message.trim();
    for start in ["Encoded authorization failure message", "The Canonical String", "The String-to-Sign"] {
        if let Some((before, _)) = text.split_once(start) {
            text = before.trim_end();
        }
    }
    let mut clean: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(TEXT_LIMIT).collect();
    if clean.len() < text.len() {
        clean.push('…');
    }
    clean
}

#[cfg(test)]
mod tests;
