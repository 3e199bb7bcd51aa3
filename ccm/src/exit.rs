//! Exit codes of the process.

/// A failure that ends the process, with its exit code.
#[derive(Debug)]
pub struct Failure {
    /// Exit code.
    pub exit: Exit,
    /// The message for stderr.
    pub message: String,
    /// The usage text, printed before the message.
    pub usage: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Exit code 0: nothing to report, or nothing that needs action.
    Clean,
    /// Exit code 2: there are changes, findings or orphans.
    Findings,
}

/// Exit code of [`Verdict::Findings`].
pub(crate) const FINDINGS: u8 = 2;

/// Exit codes of failures.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Exit code 1: flags, validation, ports, kubeconfig; a lost lease.
    Error,
    /// Exit code 255, upstream's fatal errors: no provider, no cluster ID, a controller cannot start.
    Fatal,
}

impl Exit {
    /// The numeric exit code.
    pub fn code(self) -> u8 {
        match self {
            Self::Error => 1,
            Self::Fatal => 255,
        }
    }
}

impl Failure {
    /// Exit code 1.
    pub fn error(message: impl Into<String>) -> Self {
        Self { exit: Exit::Error, message: message.into(), usage: None }
    }

    /// Exit code 255.
    pub fn fatal(message: impl Into<String>) -> Self {
        Self { exit: Exit::Fatal, message: message.into(), usage: None }
    }

    /// The same failure with the usage text.
    #[must_use]
    pub fn with_usage(self, usage: String) -> Self {
        Self { usage: Some(usage), ..self }
    }
}
