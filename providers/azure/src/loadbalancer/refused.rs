//! Services whose part of a shared object the cloud refuses: they are left out of it, so that the others get theirs.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::lock;
use ccm_provider::{ProviderError, ServiceAction};
use tokio::time::Instant;

use super::wanted::Wanted;

/// A refused part is sent again after this time: what was missing may have been created.
const REFUSED: Duration = Duration::from_secs(3600);

/// The refusals, by Service.
#[derive(Debug, Default)]
pub(super) struct Refused(Mutex<BTreeMap<String, Refusal>>);

#[derive(Debug)]
struct Refusal {
    fingerprint: u64,
    at: Instant,
    error: ProviderError,
}

impl Refused {
    /// Records that the cloud refuses the part of a Service.
    pub(super) fn note(&self, key: &str, fingerprint: u64, error: ProviderError) {
        lock(&self.0).insert(key.to_owned(), Refusal { fingerprint, at: Instant::now(), error });
    }

    /// The refusals that still hold for these Services.
    pub(super) fn of(&self, wanted: &Wanted) -> BTreeMap<String, ProviderError> {
        let mut refused = lock(&self.0);
        refused.retain(|_, refusal| refusal.at.elapsed() < REFUSED);
        let mut found = BTreeMap::new();
        for item in wanted.items.values() {
            let Some(refusal) = refused.get(&item.key) else { continue };
            match refusal.fingerprint == item.fingerprint && item.action != ServiceAction::Delete {
                true => drop(found.insert(item.key.clone(), refusal.error.clone())),
                false => drop(refused.remove(&item.key)),
            }
        }
        found
    }
}
