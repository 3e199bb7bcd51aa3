//! Barbican: whether certificates exist. What is in them is never read.

use serde::Deserialize;

use super::operation::{CONTAINER_GET, SECRET_GET};
use super::{ApiError, Client};

/// What a reference to a certificate names.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certificate {
    /// A container of secrets, by its UUID.
    Container(String),
    /// A secret with everything in it, by its UUID.
    Secret(String),
}

/// Metadata, none of which matters.
#[derive(Deserialize)]
struct Exists {}

impl Client {
    /// Whether the project sees a certificate.
    pub(crate) async fn has_certificate(&self, certificate: &Certificate) -> Result<bool, ApiError> {
        let (operation, path) = match certificate {
            Certificate::Container(id) => (CONTAINER_GET, format!("containers/{id}")),
            Certificate::Secret(id) => (SECRET_GET, format!("secrets/{id}")),
        };
        Ok(self.find::<Exists>(operation, path, "").await?.is_some())
    }
}
