//! The calls that a simulated cloud receives, and a fault for some of them.

use jiff::Timestamp;

/// A call to a simulated cloud.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// `service:action`, as in the ledger of the cloud.
    pub operation: String,
    /// Whether it is a write.
    pub writes: bool,
    /// Whether it requests a further page of a list.
    pub continued: bool,
    /// All parameters, and the names of the objects that they refer to.
    pub text: String,
    /// Whether it got the fault.
    pub struck: bool,
    /// The time of the cloud at its arrival.
    pub at: Timestamp,
}

impl Call {
    /// Whether the call concerns an object with one of these names.
    pub fn is_about(&self, names: &[String]) -> bool {
        names.iter().any(|name| self.text.contains(name))
    }
}

/// A fault, and the calls that get it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strike {
    /// [`Call::operation`]
    pub operation: String,
    /// Only calls about one of these names; empty: any call.
    pub about: Vec<String>,
    /// No call about one of these names.
    pub besides: Vec<String>,
    /// Only requests for further pages.
    pub continued: bool,
    /// What these calls get.
    pub effect: Effect,
}

impl Strike {
    /// Whether a call gets the fault.
    pub fn hits(&self, call: &Call) -> bool {
        self.operation == call.operation
            && (self.about.is_empty() || call.is_about(&self.about))
            && !call.is_about(&self.besides)
            && (call.continued || !self.continued)
    }
}

/// What a call gets instead of its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// The error for a missing permission.
    Denied,
    /// The error for too many calls.
    Throttled,
    /// An error of the cloud, without effect.
    Code {
        /// The HTTP status.
        status: u16,
        /// The error code of the cloud.
        code: String,
        /// The message.
        message: String,
    },
    /// A web page with HTTP 502.
    Html,
    /// The call takes effect, then the connection is reset.
    AnswerLost,
    /// The body of the answer ends in the middle.
    AnswerCut,
    /// The call is accepted; the change that it began fails.
    FailsLater {
        /// The HTTP status of the change.
        status: u16,
        /// The error code of the change.
        code: String,
        /// Its message.
        message: String,
    },
    /// There is no answer, and no effect.
    Hangs,
    /// The call is served: it is only found among the others.
    Served,
}

impl Effect {
    /// An error of the cloud.
    pub fn code(status: u16, code: &str, message: &str) -> Self {
        Self::Code { status, code: code.to_owned(), message: message.to_owned() }
    }
}
