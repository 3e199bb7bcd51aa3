//! Errors of a provider, and how the core handles them.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::plan::Finding;

/// Error of any provider call.
///
/// The variants with fixed texts are the sentinels of the Go interface; they are recognized through any number of
/// [`ProviderError::wrap`] calls. Everything else is [`ProviderError::Cloud`] with an [`ErrorClass`].
///
/// The serialized form, for snapshots, contains the fields that the core's decisions depend on and the text for users,
/// but not the log text.
#[derive(Debug, Clone, thiserror::Error, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ProviderError {
    /// The instance does not exist. Returned by a legacy existence lookup, it is evidence that the node may be deleted.
    #[error("instance not found")]
    InstanceNotFound,
    /// The provider does not support this call. The node controller continues without a provider ID; the lifecycle
    /// controller treats it as "not shut down".
    #[error("unimplemented")]
    NotImplemented,
    /// The instance of the node belongs to another installation of this cloud, such as another region or project.
    /// Returned by a lookup of one instance, it counts as [`crate::Lookup::Foreign`].
    #[error("node is not owned by this cloud provider")]
    NotOwned,
    /// Another controller manages this object. The service controller counts the call as a success and takes no further
    /// action.
    #[error("implemented by alternate to cloud provider")]
    ImplementedElsewhere,
    /// The disk of a volume does not exist. Volume labeling retries only at long intervals.
    #[error("disk is not found")]
    DiskNotFound,
    /// Retry after exactly this delay. The service queue does not count it as a failure.
    #[error("{message}")]
    Retry {
        /// The event text for the user.
        message: String,
        /// The delay.
        after: Duration,
    },
    /// Any other failure, classified.
    #[error("{}", .0.message)]
    Cloud(Arc<CloudError>),
    /// An error with more context: `<context>: <error>`.
    #[error("{context}: {source}")]
    Wrapped {
        /// The operation that failed.
        context: String,
        /// The inner error; see [`ProviderError::root`].
        source: Arc<ProviderError>,
    },
}

/// A failed cloud call: one text for the user, one for the log.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CloudError {
    /// Determines the reaction of the core.
    pub class: ErrorClass,
    /// Event text: what failed, why, and what the user can do. Never a secret.
    pub message: String,
    /// Log text: operation, request ID, chain of causes. May be empty. Never a secret.
    #[serde(skip)]
    pub detail: String,
}

/// The detail of [`ProviderError::deadline`].
const DROPPED: &str = "the call was dropped, and may still take effect";

impl ErrorClass {
    /// The name of the class in commands and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::NotFound => "not-found",
            Self::Unknown => "unknown",
            Self::Throttled { .. } => "throttled",
            Self::Transient { .. } => "transient",
            Self::InProgress { .. } => "in-progress",
            Self::Conflict => "conflict",
            Self::Denied { .. } => "denied",
            Self::Invalid { .. } => "invalid",
            Self::Unsupported => "unsupported",
            Self::Bug => "bug",
        }
    }

    /// The class with this name, without the details of its error.
    pub fn from_name(name: &str) -> Option<Self> {
        let all = [
            Self::NotFound,
            Self::Unknown,
            Self::Throttled { after: None },
            Self::Transient { after: None },
            Self::InProgress { after: Duration::ZERO },
            Self::Conflict,
            Self::Denied { action: String::new() },
            Self::Invalid { findings: Vec::new() },
            Self::Unsupported,
            Self::Bug,
        ];
        all.into_iter().find(|class| class.as_str() == name)
    }

    /// The remedy for the user.
    pub fn remediation(&self) -> String {
        match self {
            Self::NotFound => {
                "the object does not exist in the cloud: create it, or correct the reference to it".into()
            }
            Self::Unknown => {
                "the cloud gave no clear answer; the program asks again, and deletes nothing until then".into()
            }
            Self::Throttled { .. } => {
                "the cloud throttles the calls, which are retried automatically. If this persists, check what else \
                 uses the account"
                    .into()
            }
            Self::Transient { .. } => "probably temporary; it is retried automatically".into(),
            Self::InProgress { .. } => {
                "nothing to do: the cloud needs more time, and the state is checked again automatically".into()
            }
            Self::Conflict => "another client changed the object at the same time; it is retried automatically".into(),
            Self::Denied { action } if action.is_empty() => {
                "grant the missing permission to the identity of the controller manager".into()
            }
            Self::Denied { action } => format!("grant {action} to the identity of the controller manager"),
            Self::Invalid { .. } => "change the object as the message says; it is retried automatically".into(),
            Self::Unsupported => "the cloud does not support this: change the request".into(),
            Self::Bug => "this is a defect of the program: report it with the message and `ccm snapshot`".into(),
        }
    }
}

/// The meaning of an error for the core.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ErrorClass {
    /// Positive knowledge that the object does not exist.
    NotFound,
    /// The state is unknown. The core never acts on it; it retries with back-off.
    Unknown,
    /// The cloud throttles calls. Retried after the delay, if the cloud returns one, else with back-off.
    Throttled {
        /// From `Retry-After` or similar.
        after: Option<Duration>,
    },
    /// Expected to be temporary. Retried after the delay, if known, else with back-off.
    Transient {
        /// The delay before the retry.
        after: Option<Duration>,
    },
    /// Not a failure: the work has started and the cloud needs time to finish it. Retried after the delay, without an
    /// event and without counting an error.
    InProgress {
        /// The delay before the retry.
        after: Duration,
    },
    /// The object was changed concurrently: observe again at once.
    Conflict,
    /// A permission is missing. Retried with back-off, since it may be granted.
    Denied {
        /// The permission in the cloud's spelling: `ec2:CreateTags`.
        action: String,
    },
    /// The object, or another one that it refers to, must change first. Retried with back-off: the time of that change
    /// is unknown.
    Invalid {
        /// The problems, each with key and value.
        findings: Vec<Finding>,
    },
    /// The cloud does not support the operation.
    Unsupported,
    /// The provider violated its contract, or panicked.
    Bug,
}

impl ProviderError {
    /// A failure of the given class.
    pub fn new(class: ErrorClass, message: impl Into<String>) -> Self {
        Self::Cloud(Arc::new(CloudError { class, message: message.into(), detail: String::new() }))
    }

    /// A failure that does not show the state of the object: retried with back-off, never acted on.
    pub fn unknown(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Unknown, message)
    }

    /// A contract violation.
    pub fn bug(message: impl Into<String>) -> Self {
        Self::new(ErrorClass::Bug, message)
    }

    /// Asks for a retry after `after`.
    pub fn retry(message: impl Into<String>, after: Duration) -> Self {
        Self::Retry { message: message.into(), after }
    }

    /// The work is not finished yet, because of `reason`: retry after `after`. See [`ErrorClass::InProgress`].
    pub fn in_progress(reason: impl Into<String>, after: Duration) -> Self {
        Self::new(ErrorClass::InProgress { after }, reason)
    }

    /// The call took longer than the core allows.
    pub fn deadline(call: &str, after: Duration) -> Self {
        let message = format!("{call} did not answer within {}", crate::duration::format(after));
        let class = ErrorClass::Transient { after: None };
        Self::Cloud(Arc::new(CloudError { class, message, detail: DROPPED.to_owned() }))
    }

    /// Prepends `<context>: `; the kind stays recognizable.
    #[must_use]
    pub fn wrap(self, context: impl Into<String>) -> Self {
        Self::Wrapped { context: context.into(), source: Arc::new(self) }
    }

    /// The error without its context.
    pub fn root(&self) -> &Self {
        let mut error = self;
        while let Self::Wrapped { source, .. } = error {
            error = source;
        }
        error
    }

    /// The class, through any wrapping.
    pub fn class(&self) -> ErrorClass {
        match self.root() {
            Self::InstanceNotFound | Self::DiskNotFound => ErrorClass::NotFound,
            Self::NotImplemented | Self::ImplementedElsewhere => ErrorClass::Unsupported,
            Self::NotOwned => ErrorClass::Unknown,
            Self::Retry { after, .. } => ErrorClass::Transient { after: Some(*after) },
            Self::Cloud(error) => error.class.clone(),
            Self::Wrapped { .. } => ErrorClass::Unknown,
        }
    }

    /// The delay that the cloud or the provider requested, if any.
    pub fn retry_after(&self) -> Option<Duration> {
        match self.class() {
            ErrorClass::Throttled { after } | ErrorClass::Transient { after } => after,
            ErrorClass::InProgress { after } => Some(after),
            _ => None,
        }
    }

    /// Whether the cloud only needs more time and nothing failed. See [`ErrorClass::InProgress`].
    pub fn is_in_progress(&self) -> bool {
        matches!(self.class(), ErrorClass::InProgress { .. })
    }

    /// Whether this is [`ProviderError::deadline`], through any wrapping: a write that was dropped may still happen.
    pub fn is_deadline(&self) -> bool {
        matches!(self.root(), Self::Cloud(error) if error.detail == DROPPED)
    }

    /// Whether this is [`ProviderError::InstanceNotFound`], through any wrapping.
    pub fn is_instance_not_found(&self) -> bool {
        matches!(self.root(), Self::InstanceNotFound)
    }

    /// Whether this is [`ProviderError::NotImplemented`], through any wrapping.
    pub fn is_not_implemented(&self) -> bool {
        matches!(self.root(), Self::NotImplemented)
    }

    /// Whether this is [`ProviderError::NotOwned`], through any wrapping.
    pub fn is_not_owned(&self) -> bool {
        matches!(self.root(), Self::NotOwned)
    }

    /// Whether this is [`ProviderError::ImplementedElsewhere`], through any wrapping.
    pub fn is_implemented_elsewhere(&self) -> bool {
        matches!(self.root(), Self::ImplementedElsewhere)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kind_is_recognized_through_any_wrapping() {
        let error = ProviderError::retry("quota exhausted", Duration::from_secs(42)).wrap("inner").wrap("outer");
        assert_eq!(error.to_string(), "outer: inner: quota exhausted");
        assert_eq!(error.retry_after(), Some(Duration::from_secs(42)));
        assert!(ProviderError::ImplementedElsewhere.wrap("x").is_implemented_elsewhere());
        assert!(ProviderError::InstanceNotFound.wrap("x").is_instance_not_found());
        assert!(!ProviderError::unknown("instance not found").is_instance_not_found());
    }

    #[test]
    fn an_error_as_data_keeps_its_class_delay_and_words() {
        let again = |error: ProviderError| -> ProviderError {
            serde_json::from_value(serde_json::to_value(error).unwrap()).unwrap()
        };
        let throttled = ErrorClass::Throttled { after: Some(Duration::from_millis(1500)) };
        let denied = ErrorClass::Denied { action: "ec2:CreateTags".into() };
        for error in [
            ProviderError::InstanceNotFound,
            ProviderError::NotImplemented.wrap("x"),
            ProviderError::ImplementedElsewhere,
            ProviderError::DiskNotFound,
            ProviderError::retry("later", Duration::from_secs(42)).wrap("inner").wrap("outer"),
            ProviderError::new(throttled, "slow down"),
            ProviderError::new(denied, "no"),
            ProviderError::in_progress("being created", Duration::from_secs(10)).wrap("x"),
            ProviderError::new(
                ErrorClass::Invalid { findings: vec![Finding::new(crate::Severity::Error, "k", "m")] },
                "bad",
            ),
        ] {
            let after = again(error.clone());
            assert_eq!((after.to_string(), after.class()), (error.to_string(), error.class()));
            assert_eq!(after.is_implemented_elsewhere(), error.is_implemented_elsewhere());
        }
        let kept = CloudError { class: ErrorClass::Bug, message: "m".into(), detail: "request 7".into() };
        let text = serde_json::to_string(&ProviderError::Cloud(Arc::new(kept))).unwrap();
        assert!(!text.contains("request 7"), "the log text stays behind: {text}");
    }

    #[test]
    fn an_unknown_state_is_never_not_found() {
        assert_eq!(ProviderError::unknown("x").class(), ErrorClass::Unknown);
        assert_eq!(ProviderError::InstanceNotFound.class(), ErrorClass::NotFound);
    }
}
