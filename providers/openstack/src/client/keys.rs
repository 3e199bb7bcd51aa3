//! Barbican: the existence of certificates. Their content is never read.

use serde::Deserialize;

use super::operation::{CONTAINER_GET, SECRET_GET};
use super::{ApiError, Client};

const ENDS: &str = "write a URL that ends in containers/UUID or secrets/UUID";

/// The object of a certificate reference.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Certificate {
    /// A container of secrets, by its UUID.
    Container(String),
    /// A secret with the whole certificate, by its UUID.
    Secret(String),
}

impl Certificate {
    /// Parses a reference by its last two parts: `https://barbican/v1/containers/<UUID>`.
    pub(crate) fn parse(reference: &str) -> Result<Self, String> {
        let mut parts = reference.rsplit('/');
        match (parts.next(), parts.next()) {
            (Some(id), Some("containers")) => Ok(Self::Container(id.to_owned())),
            (Some(id), Some("secrets")) => Ok(Self::Secret(id.to_owned())),
            (_, Some(kind)) => Err(format!("tlsContainerRef type {kind} unknown; {ENDS}")),
            _ => Err(format!("invalid tlsContainerRef {reference:?}; {ENDS}")),
        }
    }
}

/// Metadata; no field is needed.
#[derive(Deserialize)]
struct Exists {}

impl Client {
    /// Whether a certificate is visible to the project.
    pub(crate) async fn has_certificate(&self, certificate: &Certificate) -> Result<bool, ApiError> {
        let (operation, list, id) = match certificate {
            Certificate::Container(id) => (CONTAINER_GET, "containers", id),
            Certificate::Secret(id) => (SECRET_GET, "secrets", id),
        };
        Ok(self.find_by_id::<Exists>(operation, (list, id), "").await?.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_two_parts_of_a_reference_count() {
        let container = Certificate::Container("u".to_owned());
        assert_eq!(Certificate::parse("https://barbican:9311/v1/containers/u"), Ok(container));
        assert_eq!(Certificate::parse("secrets/u"), Ok(Certificate::Secret("u".to_owned())));
        let other = Certificate::parse("https://barbican/v1/orders/u");
        assert_eq!(other.unwrap_err(), format!("tlsContainerRef type orders unknown; {ENDS}"));
        assert!(Certificate::parse("u").unwrap_err().starts_with("invalid tlsContainerRef"));
    }
}
