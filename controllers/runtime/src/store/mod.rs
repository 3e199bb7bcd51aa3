//! Watched stores: slim copies of Kubernetes objects, kept current by a list and a watch.
//!
//! Objects are parsed straight into their kept form ([`kept`]); what nobody reads never reaches memory. The
//! [`reflector`] fills a [`Store`]; readers get shared pointers; handlers get every change in order.

pub mod intern;
pub mod kept;
pub mod reflector;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};

use ccm_provider::{Node, NodeReader, NodeRef, ObjectChange, Service, ServiceKey, ServiceReader, SharedInformers};
use tokio::sync::Notify;

pub use kept::{Keep, Kept};
pub use reflector::Reflector;

type Handler<T> = Box<dyn Fn(ObjectChange<Arc<T>>) + Send + Sync>;

/// The known objects of one kind.
pub struct Store<T: Kept> {
    keep: Keep,
    objects: RwLock<BTreeMap<T::Key, Arc<T>>>,
    // Also taken around each change, so that a handler registered late sees every object once and then every change.
    handlers: Mutex<Vec<Handler<T>>>,
    synced: AtomicBool,
    // Wakes in the order of waiting, unlike tokio's watch: so that a simulation repeats itself.
    became_synced: Notify,
}

impl<T: Kept> std::fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("kind", &T::NAME).field("objects", &self.len()).finish_non_exhaustive()
    }
}

impl<T: Kept> Store<T> {
    /// An empty store that keeps of each object what `keep` says.
    pub fn new(keep: Keep) -> Arc<Self> {
        Arc::new(Self {
            keep,
            objects: RwLock::default(),
            handlers: Mutex::default(),
            synced: AtomicBool::new(false),
            became_synced: Notify::new(),
        })
    }

    /// What is kept of each object.
    pub fn keep(&self) -> &Keep {
        &self.keep
    }

    /// One object.
    pub fn get(&self, key: &T::Key) -> Option<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(key).cloned()
    }

    /// All objects in the order of their keys.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list was complete.
    pub async fn synced(&self) {
        let became_synced = self.became_synced.notified();
        tokio::pin!(became_synced);
        // Registered before the look, so that it is not missed in between.
        became_synced.as_mut().enable();
        if !self.is_synced() {
            became_synced.await;
        }
    }

    /// Whether the first list was complete.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Registers a handler. It sees all present objects as additions, then every change, in order; it must not block.
    pub fn on_change(&self, handler: impl Fn(ObjectChange<Arc<T>>) + Send + Sync + 'static) {
        let mut handlers = self.lock_handlers();
        for object in self.list() {
            handler(ObjectChange::Added(object));
        }
        handlers.push(Box::new(handler));
    }

    fn lock_handlers(&self) -> MutexGuard<'_, Vec<Handler<T>>> {
        self.handlers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(handlers: &[Handler<T>], change: &ObjectChange<Arc<T>>) {
        for handler in handlers {
            handler(change.clone());
        }
    }

    /// An object was added or changed. The same version again, or an older one, is no change.
    pub fn apply(&self, object: T) {
        let known = self.get(&object.key());
        if !known.is_some_and(|known| is_older(object.resource_version(), known.resource_version())) {
            self.replace(object);
        }
    }

    /// The API server's answer to a write of ours: known at once, before the watch shows it. A new object is left to the
    /// watch, since the answer may be that to a write of an object deleted meanwhile.
    pub fn written(&self, answer: &[u8]) {
        let Ok(Ok(object)) = std::str::from_utf8(answer).map(|json| T::decode(json, &self.keep)) else { return };
        if self.get(&object.key()).is_some() {
            self.apply(object);
        }
    }

    /// The API server's answer to a write that was bound to the version of `base`: `base` as `change` leaves it is what the
    /// server has now. Only the version is taken from the answer.
    pub fn written_over(&self, base: &T, answer: &[u8], change: impl FnOnce(&mut T))
    where
        T: Clone,
    {
        let Some(version) = version_of(answer) else { return };
        let mut object = base.clone();
        change(&mut object);
        object.set_resource_version(&version);
        if self.get(&object.key()).is_some() {
            self.apply(object);
        }
    }

    /// As [`Store::apply`], but an older version is believed too.
    pub fn replace(&self, object: T) {
        let handlers = self.lock_handlers();
        let object = Arc::new(object);
        let old = self.get(&object.key());
        if old.as_ref().is_some_and(|old| old.resource_version() == object.resource_version()) {
            return;
        }
        self.objects.write().unwrap_or_else(PoisonError::into_inner).insert(object.key(), object.clone());
        let change = match old {
            Some(old) => ObjectChange::Updated(old, object),
            None => ObjectChange::Added(object),
        };
        Self::tell(&handlers, &change);
    }

    /// An object is gone.
    pub fn remove(&self, key: &T::Key) {
        let handlers = self.lock_handlers();
        let old = self.objects.write().unwrap_or_else(PoisonError::into_inner).remove(key);
        if let Some(old) = old {
            Self::tell(&handlers, &ObjectChange::Deleted(old));
        }
    }

    /// A list is complete: what it did not show is gone.
    pub fn complete(&self, seen: &BTreeSet<T::Key>) {
        let gone: Vec<T::Key> = {
            let objects = self.objects.read().unwrap_or_else(PoisonError::into_inner);
            objects.keys().filter(|key| !seen.contains(*key)).cloned().collect()
        };
        for key in gone {
            self.remove(&key);
        }
        self.synced.store(true, Ordering::Release);
        self.became_synced.notify_waiters();
    }

    /// Shows every object to the handlers again, unchanged.
    pub fn resync(&self) {
        let handlers = self.lock_handlers();
        for object in self.list() {
            Self::tell(&handlers, &ObjectChange::Updated(object.clone(), object));
        }
    }
}

/// `metadata.resourceVersion` of an answer.
fn version_of(answer: &[u8]) -> Option<String> {
    #[derive(serde::Deserialize)]
    struct Answer {
        metadata: Metadata,
    }
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Metadata {
        resource_version: String,
    }
    let answer: Answer = serde_json::from_slice(answer).ok()?;
    Some(answer.metadata.resource_version).filter(|version| !version.is_empty())
}

/// Versions of one API server are numbers that grow; anything else is not compared.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

impl NodeReader for Store<Node> {
    fn get(&self, name: &str) -> Option<NodeRef> {
        self.objects.read().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn list(&self) -> Vec<NodeRef> {
        Self::list(self)
    }
}

impl ServiceReader for Store<Service> {
    fn get(&self, key: &ServiceKey) -> Option<Arc<Service>> {
        Self::get(self, key)
    }

    fn list(&self) -> Vec<Arc<Service>> {
        Self::list(self)
    }
}

/// What providers may watch along with the core.
#[derive(Debug, Clone)]
pub struct Informers {
    /// Nodes.
    pub nodes: Arc<Store<Node>>,
    /// Services.
    pub services: Arc<Store<Service>>,
}

impl SharedInformers for Informers {
    fn on_node(&self, handler: Box<dyn Fn(ObjectChange<NodeRef>) + Send + Sync>) {
        self.nodes.on_change(handler);
    }

    fn on_service(&self, handler: Box<dyn Fn(ObjectChange<Arc<Service>>) + Send + Sync>) {
        self.services.on_change(handler);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, version: &str) -> Node {
        Node { name: name.into(), resource_version: version.into(), ..Node::default() }
    }

    fn recorded(store: &Store<Node>) -> Arc<Mutex<Vec<String>>> {
        let log = Arc::new(Mutex::new(Vec::new()));
        store.on_change({
            let log = log.clone();
            move |change| {
                log.lock().unwrap().push(match change {
                    ObjectChange::Added(n) => format!("+{}", n.name),
                    ObjectChange::Updated(o, n) => format!("{}:{}>{}", n.name, o.resource_version, n.resource_version),
                    ObjectChange::Deleted(n) => format!("-{}", n.name),
                });
            }
        });
        log
    }

    #[test]
    fn a_late_handler_sees_every_object_once_and_then_every_change() {
        let store = Store::new(Keep::default());
        store.apply(node("a", "1"));
        let log = recorded(&store);
        store.apply(node("b", "2"));
        store.apply(node("a", "3"));
        store.remove(&"b".into());
        assert_eq!(*log.lock().unwrap(), ["+a", "+b", "a:1>3", "-b"]);
    }

    #[test]
    fn an_answer_to_a_write_is_known_before_the_watch_and_older_events_do_not_undo_it() {
        let store = Store::new(Keep::default());
        store.apply(node("a", "1"));
        store.written(br#"{"metadata": {"name": "a", "resourceVersion": "5"}}"#);
        store.apply(node("a", "3"));
        assert_eq!(&*store.get(&"a".into()).unwrap().resource_version, "5");
        store.written(br#"{"metadata": {"name": "gone", "resourceVersion": "6"}}"#);
        store.written(b"<html>");
        assert_eq!(store.len(), 1);
    }

    #[test]
    fn a_write_bound_to_a_version_is_known_from_its_new_version_alone() {
        let store = Store::new(Keep::default());
        store.apply(node("a", "1"));
        let base = store.get(&"a".into()).unwrap();
        store.written_over(&base, br#"{"metadata": {"resourceVersion": "4"}}"#, |n| n.deleting = true);
        let now = store.get(&"a".into()).unwrap();
        assert_eq!((&*now.resource_version, now.deleting), ("4", true));
        store.written_over(&base, b"<html>", |n| n.deleting = false);
        assert!(store.get(&"a".into()).unwrap().deleting);
    }

    #[test]
    fn a_list_that_shows_the_same_version_is_no_change_and_what_it_lacks_is_deleted() {
        let store = Store::new(Keep::default());
        store.apply(node("a", "1"));
        store.apply(node("b", "2"));
        let log = recorded(&store);
        log.lock().unwrap().clear();
        store.apply(node("a", "1"));
        store.complete(&BTreeSet::from(["a".into()]));
        assert_eq!(*log.lock().unwrap(), ["-b"]);
        assert!(store.is_synced());
    }
}
