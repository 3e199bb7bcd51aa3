//! Checks that the certificates of Services exist: Octavia would accept a listener without one and set it to ERROR.
//!
//! Upstream: `checkService` in `pkg/openstack/loadbalancer.go`, which checks at every reconcile.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_provider::{ProviderError, ServiceAction};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::wanted::Item;
use crate::annotations::DEFAULT_TLS_CONTAINER_REF;
use crate::client::Client;
use crate::client::keys::Certificate;
use crate::client::operation::Service;

/// A certificate that was found is not checked again for this time.
const FOUND_AGE: Duration = Duration::from_secs(300);

/// Certificates that were found, with the time.
#[derive(Debug, Default)]
pub(super) struct Certificates(Mutex<BTreeMap<Certificate, Instant>>);

impl Certificates {
    /// The reason why a Service's certificate cannot be used; `None`: it can, or there is none to check.
    pub(super) async fn problem(&self, client: &Client, item: &Item) -> Result<Option<String>, ProviderError> {
        let settings = item.settings.as_ref().filter(|_| item.action == ServiceAction::Ensure);
        let Some((settings, certificate)) =
            settings.and_then(|settings| Some((settings, settings.certificate.as_ref()?)))
        else {
            return Ok(None);
        };
        if self.was_found(certificate) {
            return Ok(None);
        }
        if let Err(failure) = client.session().endpoint(Service::KeyManager).await {
            return match failure.cause {
                ccm_kit::call::Cause::Malformed => Ok(Some(format!(
                    "{}: {}; container-store = external does without it",
                    settings.tls_container, failure.message
                ))),
                _ => Err(client.unusable(failure)),
            };
        }
        if !client.has_certificate(certificate).await? {
            return Ok(Some(format!(
                "failed to get tls container {}: Barbican has none; correct the annotation {}, or default-tls-container-ref in \
                 cloud.conf",
                settings.tls_container, DEFAULT_TLS_CONTAINER_REF.row.key
            )));
        }
        let mut found = self.0.lock();
        found.retain(|_, when| when.elapsed() < FOUND_AGE);
        found.insert(certificate.clone(), Instant::now());
        Ok(None)
    }

    fn was_found(&self, certificate: &Certificate) -> bool {
        let found = self.0.lock();
        found.get(certificate).is_some_and(|when| when.elapsed() < FOUND_AGE)
    }
}
