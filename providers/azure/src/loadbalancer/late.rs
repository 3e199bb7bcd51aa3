//! What this process has written recently, and reads that do not show it yet.
//!
//! Lists may be late. A deletion that rests on a late one would leave behind what that does not show.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;
use tokio::time::Instant;

use super::json;
use crate::client::id::ArmId;

/// The time for which reads may be late.
const LATE: Duration = Duration::from_secs(60);
/// The time for which an entry is kept: the longest that a call with its operations takes.
const KEPT: Duration = Duration::from_secs(3600);

/// What was written recently, by ID in lower case.
#[derive(Debug, Default)]
pub(super) struct Recent(Mutex<BTreeMap<String, Write>>);

#[derive(Debug)]
struct Write {
    at: Instant,
    /// The ETags that copies from before have, and when they were replaced.
    replaced: BTreeMap<String, Instant>,
    now: Now,
}

/// What is known of an object after its write.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Now {
    Unseen,
    Seen(Arc<Value>),
    /// Somebody else has written it.
    Foreign,
    Deleted,
}

impl Recent {
    /// Records a write; `etag` is that of the object before, if it is not new.
    pub(super) fn add(&self, id: &ArmId, etag: Option<&str>) {
        self.record(id, |write| {
            write.now = Now::Unseen;
            write.replaced.extend(etag.map(|etag| (etag.to_owned(), write.at)));
        });
    }

    /// Records that the object has another ETag than this one: a write was refused for it.
    pub(super) fn outdated(&self, id: &ArmId, etag: &str) {
        self.record(id, |write| {
            write.now = Now::Foreign;
            write.replaced.insert(etag.to_owned(), write.at);
        });
    }

    /// Records a deletion. What reads show of the object is not late.
    pub(super) fn deleted(&self, id: &ArmId) {
        self.record(id, |write| write.now = Now::Deleted);
    }

    /// The object after its write.
    pub(super) fn shows(&self, id: &ArmId, object: Arc<Value>) {
        if let Some(write) = self.0.lock().get_mut(&id.folded()) {
            write.now = Now::Seen(object);
        }
    }

    /// Forgets an object whose write has failed.
    pub(super) fn forget(&self, id: &ArmId) {
        self.0.lock().remove(&id.folded());
    }

    /// What has become of the objects that were written since.
    pub(super) fn since(&self, since: Instant) -> Vec<(String, Now)> {
        let recent = self.0.lock();
        recent
            .iter()
            .filter(|(_, write)| write.at >= since)
            .map(|(id, write)| (id.clone(), write.now.clone()))
            .collect()
    }

    /// An object as it was seen after its write.
    pub(super) fn seen(&self, id: &ArmId) -> Option<Arc<Value>> {
        match self.0.lock().get(&id.folded()).filter(|write| write.at.elapsed() < LATE)?.now.clone() {
            Now::Seen(object) => Some(object),
            Now::Unseen | Now::Foreign | Now::Deleted => None,
        }
    }

    /// Whether this is the object as it was before a write.
    pub(super) fn has_replaced(&self, id: &ArmId, object: &Value) -> bool {
        self.0.lock().get(&id.folded()).is_some_and(|write| write.replaced.contains_key(json::text(object, &["etag"])))
    }

    /// Whether the objects of a kind in a resource group were read as they were before a write, or without a new one.
    pub(super) fn is_late(&self, kind: &str, group: &str, read: &[Arc<Value>]) -> bool {
        let (kind, group) =
            (format!("/{}/", kind.to_lowercase()), format!("/resourcegroups/{}/", group.to_lowercase()));
        let recent = self.0.lock();
        let mut own = recent.iter().filter(|(id, write)| {
            id.contains(&kind) && id.contains(&group) && !matches!(write.now, Now::Deleted) && write.at.elapsed() < LATE
        });
        let read: BTreeMap<String, &str> = read
            .iter()
            .map(|object| (json::text(object, &["id"]).to_ascii_lowercase(), json::text(object, &["etag"])))
            .collect();
        own.any(|(id, write)| match read.get(id) {
            Some(etag) => write.replaced.contains_key(*etag),
            None => write.now != Now::Foreign,
        })
    }

    fn record(&self, id: &ArmId, change: impl FnOnce(&mut Write)) {
        let now = Instant::now();
        let mut recent = self.0.lock();
        recent.retain(|_, write| write.at.elapsed() < KEPT);
        let fresh = || Write { at: now, replaced: BTreeMap::new(), now: Now::Unseen };
        let write = recent.entry(id.folded()).or_insert_with(fresh);
        write.at = now;
        write.replaced.retain(|_, at| at.elapsed() < KEPT);
        change(write);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn id() -> ArmId {
        ArmId::new("s", "RG", "Microsoft.Network/loadBalancers", "Web")
    }

    fn object(etag: &str) -> Arc<Value> {
        json!({"id": id().as_str(), "etag": etag}).into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_read_is_late_until_it_shows_the_new_object_with_another_etag() {
        let recent = Recent::default();
        let id = id();
        let read = |etag: &str| vec![object(etag)];
        let is_late = |read: &[Arc<Value>]| recent.is_late("loadBalancers", "rg", read);
        assert!(!is_late(&[]), "nothing was written");
        recent.add(&id, None);
        assert!(is_late(&[]) && !is_late(&read("a")));
        assert!(!recent.is_late("loadBalancers", "other", &[]) && !recent.is_late("publicIPAddresses", "rg", &[]));
        recent.add(&id, Some("a"));
        recent.add(&id, Some("b"));
        assert!(is_late(&read("a")) && is_late(&read("b")) && !is_late(&read("c")));
        assert!(recent.has_replaced(&id, &object("b")) && !recent.has_replaced(&id, &object("c")));
        tokio::time::advance(LATE).await;
        assert!(!is_late(&[]), "somebody else has deleted it");
        recent.add(&id, Some("a"));
        assert!(is_late(&read("a")));
        recent.forget(&id);
        assert!(!is_late(&read("a")));
        recent.add(&id, Some("a"));
        recent.deleted(&id);
        assert!(!is_late(&[]) && !is_late(&read("a")));
        recent.outdated(&id, "c");
        assert!(is_late(&read("c")) && !is_late(&read("d")) && !is_late(&[]), "somebody else may have deleted it");
    }

    #[tokio::test(start_paused = true)]
    async fn what_became_of_a_write_is_known_until_the_next_one() {
        let recent = Recent::default();
        let (id, before) = (id(), Instant::now());
        let now = |since: Instant| recent.since(since).into_iter().map(|(_, now)| now).collect::<Vec<_>>();
        recent.shows(&id, object("a"));
        assert_eq!(now(before), [], "it was not written");
        recent.add(&id, None);
        assert_eq!((now(before), recent.seen(&id)), (vec![Now::Unseen], None));
        recent.shows(&id, object("a"));
        assert_eq!((now(before), recent.seen(&id)), (vec![Now::Seen(object("a"))], Some(object("a"))));
        tokio::time::advance(LATE).await;
        assert_eq!((now(before).len(), recent.seen(&id)), (1, None));
        assert_eq!(now(Instant::now()), [], "it was written before");
        recent.add(&id, Some("a"));
        assert_eq!(now(before), [Now::Unseen]);
        recent.deleted(&id);
        assert_eq!(now(before), [Now::Deleted]);
    }
}
