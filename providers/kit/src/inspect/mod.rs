//! What `ccm explain`, `ccm orphans`, `ccm migrate-check` and `ccm snapshot` do alike in every cloud.
//!
//! Functions that a cloud calls where it needs them, and one trait, [`Explained`]: what they need of a cloud's load balancers
//! beside [`Planned`](ccm_provider::Planned).
//!
//! * [`Current`]: the desired and the observed state of one Service, and what is left to do.
//! * [`service`]: explains a Service.
//! * [`node`]: links between a node and the cloud.
//! * [`orphans`]: what nothing claims, and its deletion.
//! * [`migration`]: checks before a take-over.
//! * [`replay`]: plans from snapshots.

use ccm_provider::{Check, ErrorClass, Fact, ProviderError};

mod current;
pub mod migration;
pub mod node;
pub mod orphans;
pub mod replay;
pub mod service;
#[cfg(test)]
mod tests;

pub use current::{Current, DESIRED, Explained};

/// The remediation for an error. Errors about no particular object contain their own.
fn remediation(error: &ProviderError) -> String {
    match error.class() {
        ErrorClass::Unknown => "do what the message says; it is retried automatically".to_owned(),
        class => class.remediation(),
    }
}

/// An object that could not be read.
pub fn unreadable(about: impl Into<String>, error: impl Into<ProviderError>) -> Fact {
    let error = error.into();
    Fact::bad(about, format!("could not be read: {error}"), remediation(&error))
}

/// A check that could not be made.
pub fn unchecked(check: &str, subject: impl Into<String>, error: impl Into<ProviderError>) -> Check {
    let error = error.into();
    Check::error(check, subject, format!("could not be checked: {error}"), remediation(&error))
}

/// What is wrong in itself, and not because of the cloud.
fn refused(about: &str, error: &ProviderError) -> Fact {
    Fact::bad(about, error.to_string(), remediation(error))
}
