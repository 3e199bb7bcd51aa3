//! What AWS answers when it refuses, and what that means to the core.

use std::time::Duration;

use ccm_provider::{CloudError, ErrorClass, ProviderError};

use super::operation::Operation;

/// A failed operation.
#[derive(Debug, Clone)]
pub(crate) struct ApiError {
    pub(crate) operation: Operation,
    /// AWS's error code: `InvalidInstanceID.NotFound`; empty when there was no answer.
    pub(crate) code: String,
    /// AWS's text, or what went wrong on the way. Never a secret.
    pub(crate) message: String,
    pub(crate) request_id: Option<String>,
    pub(crate) kind: ErrorKind,
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
    /// No answer, or one that is no AWS answer: network, HTTP 5xx, HTML, cut off. Whether a write took place is not known.
    NoAnswer,
    /// A read whose pages did not fit together.
    Incomplete,
}

impl ApiError {
    /// Whether AWS answered with one of the codes.
    pub(crate) fn is(&self, codes: &[&str]) -> bool {
        codes.contains(&&*self.code)
    }
}

impl From<ApiError> for ProviderError {
    fn from(error: ApiError) -> Self {
        let class = match error.kind {
            ErrorKind::Throttled { after } => ErrorClass::Throttled { after },
            _ => ErrorClass::Unknown,
        };
        let message = format!("{}: {}", error.operation.permission(), error.message);
        Self::Cloud(CloudError { class, message, detail: String::new() }.into())
    }
}
