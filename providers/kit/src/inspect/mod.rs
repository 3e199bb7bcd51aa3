//! The common parts of `ccm explain`, `ccm orphans`, `ccm migrate-check` and `ccm snapshot` for all clouds.
//!
//! Functions for the clouds, and one trait, [`Explained`]: the requirements on a cloud's load balancers in addition to
//! [`BalancerCloud`](crate::balancer::BalancerCloud).
//!
//! * [`Object`]: an object in the cloud; all reports about load balancers follow from lists of them.
//! * [`service`]: explains a Service.
//! * [`node`]: links between a node and the cloud.
//! * [`orphans`]: objects that nothing claims, and their deletion.
//! * [`migration`]: checks before a migration.
//! * [`replay`]: plans from snapshots.

use ccm_provider::{Check, ErrorClass, Fact, ProviderError};

mod current;
mod inventory;
mod members;
pub mod migration;
pub mod node;
pub mod orphans;
pub mod replay;
pub mod service;
#[cfg(test)]
mod tests;

pub use current::{DESIRED, Explained};
pub use inventory::{Claim, LOAD_BALANCER, Object};
pub use members::{Health, Member, first_few, members};

/// The remediation for an error of a command. Errors about no particular object contain their own remediation, and a
/// command ends: only the manager retries.
fn remediation(error: &ProviderError) -> String {
    match error.class() {
        ErrorClass::Unknown => "do what the message says, then run the command again".to_owned(),
        ErrorClass::Throttled { .. }
        | ErrorClass::Transient { .. }
        | ErrorClass::InProgress { .. }
        | ErrorClass::Conflict => "probably temporary: run the command again".to_owned(),
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

/// An object that is itself invalid, independently of the cloud.
fn refused(about: &str, error: &ProviderError) -> Fact {
    Fact::bad(about, error.to_string(), remediation(error))
}
