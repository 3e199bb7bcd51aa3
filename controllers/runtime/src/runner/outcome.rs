//! The result of a sync, and when its key is requeued.

use std::time::Duration;

use ccm_provider::{ErrorClass, ProviderError};

use crate::gate::GateError;

/// The result of a sync.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// Nothing is left to do until the object changes.
    Done,
    /// Sync again after this time, without counting a failure.
    After(Duration),
}

/// The failure of a sync. Decides when the key is requeued.
#[derive(Debug, Clone, thiserror::Error)]
pub enum SyncError {
    /// Requeued after the back-off of the queue.
    #[error("{0}")]
    Retry(String),
    /// Requeued after exactly this delay, without counting a failure.
    #[error("{message}")]
    RetryAfter {
        /// The message.
        message: String,
        /// The delay.
        after: Duration,
    },
    /// A provider error: requeued after the delay that it specifies, else after the back-off of the queue.
    #[error("{message}")]
    Provider {
        /// The message.
        message: String,
        /// The class of the failure.
        class: ErrorClass,
        /// The delay, without counting a failure; `None`: the back-off.
        after: Option<Duration>,
    },
    /// Synced again only when the object changes.
    #[error("{0}")]
    Terminal(String),
    /// The write gate is closed: another process writes now, or this is a dry run. Not a failure.
    #[error("{0}")]
    Closed(GateError),
}

impl SyncError {
    /// `<context>: <error>`, with the delay that the provider specified.
    pub fn provider(context: &str, error: &ProviderError) -> Self {
        let message = if context.is_empty() { error.to_string() } else { format!("{context}: {error}") };
        Self::Provider { message, class: error.class(), after: error.retry_after() }
    }

    /// The class of the error, if the provider returned one.
    pub fn class(&self) -> Option<&ErrorClass> {
        match self {
            Self::Provider { class, .. } => Some(class),
            _ => None,
        }
    }

    /// Whether the provider only needs more time, so that nothing failed.
    pub fn is_in_progress(&self) -> bool {
        matches!(self.class(), Some(ErrorClass::InProgress { .. }))
    }

    /// `<context>: <error>`; a closed gate stays recognizable.
    pub fn gate(context: &str, error: GateError) -> Self {
        match error {
            GateError::Api(error) => {
                let message = format!("{context}: {error}");
                match error.retry_after() {
                    Some(after) => Self::RetryAfter { message, after },
                    None => Self::Retry(message),
                }
            }
            GateError::Late => Self::Retry(format!("{context}: {error}")),
            closed => Self::Closed(closed),
        }
    }
}
