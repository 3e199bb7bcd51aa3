//! Reads that do not show yet what this process has written.
//!
//! Lists may be late. A deletion that rests on a late one would leave behind what that does not show.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::lock;
use serde_json::Value;
use tokio::time::Instant;

use super::json;
use crate::client::id::ArmId;

/// The time for which reads may be late.
const LATE: Duration = Duration::from_secs(60);

/// What was written recently, by ID in lower case.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<BTreeMap<String, Write>>);

#[derive(Debug)]
struct Write {
    at: Instant,
    /// The ETags that copies from before have.
    replaced: BTreeSet<String>,
}

impl Recent {
    /// Records a write; `etag` is that of the object before, if it is not new.
    pub(super) fn add(&self, id: &ArmId, etag: Option<&str>) {
        let now = Instant::now();
        let mut recent = lock(&self.0);
        recent.retain(|_, write| write.at.elapsed() < LATE);
        let write = recent.entry(id.folded()).or_insert_with(|| Write { at: now, replaced: BTreeSet::new() });
        write.at = now;
        write.replaced.extend(etag.map(str::to_owned));
    }

    /// Forgets an object that was deleted, or whose write has failed.
    pub(super) fn forget(&self, id: &ArmId) {
        lock(&self.0).remove(&id.folded());
    }

    /// Whether the objects of a kind in a resource group were read as they were before a write, or without a new one.
    pub(super) fn is_late(&self, kind: &str, group: &str, read: &[Value]) -> bool {
        let (kind, group) =
            (format!("/{}/", kind.to_lowercase()), format!("/resourcegroups/{}/", group.to_lowercase()));
        let recent = lock(&self.0);
        let mut own =
            recent.iter().filter(|(id, write)| id.contains(&kind) && id.contains(&group) && write.at.elapsed() < LATE);
        own.any(|(id, write)| {
            let shown = read.iter().find(|object| json::same(json::text(object, &["id"]), id));
            shown.is_none_or(|object| write.replaced.contains(json::text(object, &["etag"])))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_read_is_late_until_it_shows_the_new_object_with_another_etag() {
        let recent = Recent::default();
        let id = ArmId::new("s", "RG", "Microsoft.Network/loadBalancers", "Web");
        let read = |etag: &str| vec![json!({"id": id.as_str(), "etag": etag})];
        let is_late = |read: &[Value]| recent.is_late("loadBalancers", "rg", read);
        assert!(!is_late(&[]), "nothing was written");
        recent.add(&id, None);
        assert!(is_late(&[]) && !is_late(&read("a")));
        assert!(!recent.is_late("loadBalancers", "other", &[]) && !recent.is_late("publicIPAddresses", "rg", &[]));
        recent.add(&id, Some("a"));
        recent.add(&id, Some("b"));
        assert!(is_late(&read("a")) && is_late(&read("b")) && !is_late(&read("c")));
        tokio::time::advance(LATE).await;
        assert!(!is_late(&[]), "somebody else has deleted it");
        recent.add(&id, Some("a"));
        assert!(is_late(&read("a")));
        recent.forget(&id);
        assert!(!is_late(&read("a")));
    }
}
