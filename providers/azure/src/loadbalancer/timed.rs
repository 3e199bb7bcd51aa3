//! The writes that the Go program counts as operations of their own.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::balancer::{Progress, Written};
use ccm_provider::ProviderError;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::plan::step::Write;

/// Those that go on, by operation: the name in metrics, and the beginning.
#[derive(Debug, Default)]
pub(super) struct Timed(Mutex<BTreeMap<String, (&'static str, Instant)>>);

/// One that has ended: its name in metrics, whether it succeeded, and its duration.
pub(super) type Ended = (&'static str, bool, Duration);

fn request_of(write: &Write) -> Option<&'static str> {
    match write {
        Write::Link { .. } => Some("services_ensure_privatelinkservice"),
        Write::DeleteLink(_) => Some("services_ensure_privatelinkservice_deleted"),
        Write::Migrate { .. } => Some("services_migrate_to_ip_based_backend_pool"),
        Write::Pool(change) if change.service.is_some() => Some("services_local_update_backend_pool"),
        _ => None,
    }
}

impl Timed {
    pub(super) fn written(
        &self,
        write: &Write,
        began: Instant,
        written: &Result<Written, ProviderError>,
    ) -> Option<Ended> {
        let request = request_of(write)?;
        match written {
            Ok(Written::Accepted(operation)) => {
                self.0.lock().insert(operation.name.clone(), (request, began));
                None
            }
            Ok(Written::Done) => Some((request, true, began.elapsed())),
            Ok(Written::Failed(_)) | Err(_) => Some((request, false, began.elapsed())),
        }
    }

    pub(super) fn polled(&self, operation: &str, progress: &Result<Progress, ProviderError>) -> Option<Ended> {
        let succeeded = match progress {
            Ok(Progress::Done) => true,
            Ok(Progress::Failed(_)) => false,
            Ok(Progress::Running) | Err(_) => return None,
        };
        let (request, began) = self.0.lock().remove(operation)?;
        Some((request, succeeded, began.elapsed()))
    }
}
