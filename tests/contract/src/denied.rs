//! What tests with the roles of the field note: which work a cloud denies.

use std::collections::BTreeMap;

use ccm_provider::{ErrorClass, ProviderError};

/// The work that was denied, with the missing permission.
#[derive(Debug, Default)]
pub struct Denied(pub BTreeMap<String, String>);

impl Denied {
    /// Notes an error.
    ///
    /// # Panics
    ///
    /// For an error of another kind, or one that does not name the permission.
    pub fn note<T>(&mut self, work: &str, result: Result<T, ProviderError>) {
        let Err(error) = result else { return };
        let action = if let ErrorClass::Denied { action } = error.class() { action } else { String::new() };
        assert!(!action.is_empty() && error.to_string().contains(&action), "{work}: {error:?}");
        self.0.insert(work.to_owned(), action);
    }
}
