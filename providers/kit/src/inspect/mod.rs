//! What `ccm explain` and `ccm migrate-check` say where the cloud could not be asked.

use ccm_provider::{Check, ErrorClass, Fact, ProviderError};

pub mod replay;
#[cfg(test)]
mod tests;

/// The remediation for an error. Errors about no particular object contain their own.
pub fn remediation(error: &ProviderError) -> String {
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
