//! Watched stores: slim copies of Kubernetes objects, kept current by a list and a watch.
//!
//! Objects are parsed directly into their kept form ([`kept`]); unused fields never reach memory. The [`reflector`]
//! fills a [`Store`]; readers get shared pointers; handlers get every change in order.

pub mod intern;
pub mod kept;
pub mod reflector;
pub mod related;
mod wire;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ccm_provider::{Node, NodeReader, NodeRef, ObjectChange, Service, ServiceKey, ServiceReader, SharedInformers};
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::metrics::{Def, GaugeVec, Metrics};
use crate::panics::panic_text;

pub use kept::{Cached, FieldFilter};
pub use reflector::Reflector;
pub use related::{EndpointSlice, Namespace};

type Handler<T> = Box<dyn Fn(ObjectChange<Arc<T>>) + Send + Sync>;

/// Three bookmark periods: a store without any event for this long is stale.
const SILENT_AFTER: Duration = Duration::from_secs(180);
/// Longer than any single wait of a reflector: one that did nothing for this long hangs or has ended.
const STUCK_AFTER: Duration = Duration::from_secs(300);

/// The known objects of one kind.
pub struct Store<T: Cached> {
    keep: FieldFilter,
    objects: RwLock<BTreeMap<T::Key, Arc<T>>>,
    // The objects that are stored as a write should have made them, and which the watch has not shown since.
    assumed: Mutex<BTreeSet<T::Key>>,
    // Held for each change, from the comparison of versions to the end of the last handler: no older version wins, and
    // a handler registered late sees every object once and then every change.
    handlers: Mutex<Vec<Handler<T>>>,
    metrics: OnceLock<Metrics>,
    // The times of the last data from the API server, and of the last activity of the reflector.
    pulse: Mutex<(Option<Instant>, Instant)>,
    synced: AtomicBool,
    // Wakes waiters in FIFO order, unlike tokio's watch, so that simulations are reproducible.
    became_synced: Notify,
}

impl<T: Cached> std::fmt::Debug for Store<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("kind", &T::NAME).field("objects", &self.len()).finish_non_exhaustive()
    }
}

crate::metrics! {
    pub(crate) struct StoreMetrics {
        age: GaugeVec = Def::gauge(
            "ccm_store_age_seconds", &["resource"],
            "Time since the API server last sent anything for the store of a watched resource: a page, an event or a bookmark, which comes once a minute; absent until the first time.",
        );
    }
}

impl<T: Cached> Store<T> {
    /// An empty store; `keep` selects the parts of each object that are kept.
    pub fn new(keep: FieldFilter) -> Arc<Self> {
        Arc::new(Self {
            keep,
            objects: RwLock::default(),
            assumed: Mutex::default(),
            handlers: Mutex::default(),
            metrics: OnceLock::new(),
            pulse: Mutex::new((None, Instant::now())),
            synced: AtomicBool::new(false),
            became_synced: Notify::new(),
        })
    }

    /// The parts of each object that are kept.
    pub fn keep(&self) -> &FieldFilter {
        &self.keep
    }

    /// One object.
    pub fn get(&self, key: &T::Key) -> Option<Arc<T>> {
        self.objects.read().get(key).cloned()
    }

    /// All objects in the order of their keys.
    pub fn list(&self) -> Vec<Arc<T>> {
        self.objects.read().values().cloned().collect()
    }

    /// Number of objects.
    pub fn len(&self) -> usize {
        self.objects.read().len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Waits until the first list is complete.
    pub async fn synced(&self) {
        let became_synced = self.became_synced.notified();
        tokio::pin!(became_synced);
        // Registered before the check, so that no notification is missed.
        became_synced.as_mut().enable();
        if !self.is_synced() {
            became_synced.await;
        }
    }

    /// Whether the first list is complete.
    pub fn is_synced(&self) -> bool {
        self.synced.load(Ordering::Acquire)
    }

    /// Registers a handler. It sees all present objects as additions, then every change, in order; it must not block.
    pub fn on_change(&self, handler: impl Fn(ObjectChange<Arc<T>>) + Send + Sync + 'static) {
        let handler: Handler<T> = Box::new(handler);
        let mut handlers = self.lock_handlers();
        for object in self.list() {
            self.notify(std::slice::from_ref(&handler), &ObjectChange::Added(object));
        }
        handlers.push(handler);
    }

    /// Drops all handlers. For when the controllers that registered them have ended.
    pub fn forget_handlers(&self) {
        self.lock_handlers().clear();
    }

    /// Exports the age of the store and counts panics of its handlers.
    fn export(self: &Arc<Self>, metrics: &Metrics) {
        if self.metrics.set(metrics.clone()).is_ok() {
            let store = Arc::downgrade(self);
            let gauge = metrics.part::<StoreMetrics>();
            metrics.at_scrape(T::NAME, move || match store.upgrade().and_then(|store| store.age()) {
                Some(age) => gauge.age.with_label_values(&[T::NAME]).set(age.as_secs_f64()),
                None => drop(gauge.age.remove_label_values(&[T::NAME])),
            });
        }
    }

    fn pulse(&self) -> MutexGuard<'_, (Option<Instant>, Instant)> {
        self.pulse.lock()
    }

    /// Records that the API server sent something.
    fn heard(&self) {
        let now = Instant::now();
        *self.pulse() = (Some(now), now);
    }

    /// Records activity of the reflector.
    fn alive(&self) {
        self.pulse().1 = Instant::now();
    }

    /// The time since the API server last sent anything for this store.
    pub fn age(&self) -> Option<Duration> {
        Some(self.pulse().0?.elapsed())
    }

    /// Checks that the store is current, for readiness.
    ///
    /// # Errors
    ///
    /// The reason why it is not.
    pub fn check_current(&self) -> Result<(), String> {
        match self.age() {
            _ if !self.is_synced() => Err(format!("{} are not listed yet", T::NAME)),
            Some(age) if age > SILENT_AFTER => Err(format!("no data about {} for {}s", T::NAME, age.as_secs())),
            _ => Ok(()),
        }
    }

    /// Checks that the reflector of the store makes progress, whatever the API server does, for liveness.
    ///
    /// # Errors
    ///
    /// The time for which it did nothing.
    pub fn check_alive(&self) -> Result<(), String> {
        match self.pulse().1.elapsed() {
            idle if idle > STUCK_AFTER => Err(format!("the watch of {} is stuck for {}s", T::NAME, idle.as_secs())),
            _ => Ok(()),
        }
    }

    fn lock_handlers(&self) -> MutexGuard<'_, Vec<Handler<T>>> {
        self.handlers.lock()
    }

    /// Calls all handlers. A panic of one handler neither reaches the others nor ends the watch.
    fn notify(&self, handlers: &[Handler<T>], change: &ObjectChange<Arc<T>>) {
        for handler in handlers {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| handler(change.clone()))) {
                if let Some(metrics) = self.metrics.get() {
                    metrics.panicked(T::NAME);
                }
                tracing::error!(kind = T::NAME, panic = panic_text(&*panic), "a watch handler panicked");
            }
        }
    }

    /// Stores an object that was added or changed. The same version, or an older one, is ignored.
    pub fn apply(&self, object: T) {
        self.put(object, |known, new| known.is_none_or(|known| self.is_news(known, new)));
    }

    /// Stores an object from a list. The stored object counts as newer only if it is newer than everything that lists
    /// and watches have shown (`seen`): then it is the answer to a write. Otherwise etcd was restored to an older
    /// state.
    pub fn apply_listed(&self, object: T, seen: &str) {
        let differs = |known: &str, new: &str| new != known && !(is_older(new, known) && is_older(seen, known));
        self.put(object, |known, new| {
            known.is_none_or(|known| {
                differs(known.resource_version(), new.resource_version()) || self.is_news(known, new)
            })
        });
    }

    /// Stores the API server's answer to a write at once, before the watch shows it. A new object is left to the watch,
    /// since the answer may be that to a write of an object deleted meanwhile.
    pub fn written(&self, answer: &[u8]) {
        let Ok(Ok(object)) = std::str::from_utf8(answer).map(|json| T::decode(json, &self.keep)) else { return };
        self.put(object, |known, new| known.is_some_and(|known| supersedes(new, known)));
    }

    /// Stores the result of a write with the version of `base` as its precondition: `base` with `change` applied, which
    /// also sets the new version. Only that is taken from the API server's answer.
    pub fn apply_patch_response(&self, base: &T, answer: &[u8], change: impl FnOnce(&mut T, &str))
    where
        T: Clone,
    {
        let Some(version) = version_of(answer) else { return };
        let mut object = base.clone();
        change(&mut object, &version);
        self.put(object, |known, new| {
            let is_newer = known.is_some_and(|known| supersedes(new, known));
            if is_newer {
                self.assumed.lock().insert(new.key());
            }
            is_newer
        });
    }

    /// Whether the API server shows a newer object, or under the version of an assumed one another one: admission has
    /// changed what was written.
    fn is_news(&self, known: &T, new: &T) -> bool {
        let is_older = is_older(new.resource_version(), known.resource_version());
        let was_assumed = !is_older && self.assumed.lock().remove(&new.key());
        supersedes(new, known) || was_assumed && known != new
    }

    /// As [`Store::apply`], but an older version is accepted too, and the same version may be another object: a
    /// restored etcd reuses versions.
    pub fn replace(&self, object: T) {
        self.put(object, |_, _| true);
    }

    /// Stores an object if `wins` accepts it over the known one, if any.
    fn put(&self, object: T, wins: impl FnOnce(Option<&T>, &T) -> bool) {
        let handlers = self.lock_handlers();
        let object = Arc::new(object);
        let old = self.get(&object.key());
        if !wins(old.as_deref(), &object) {
            return;
        }
        self.objects.write().insert(object.key(), object.clone());
        let change = match old {
            Some(old) => ObjectChange::Updated(old, object),
            None => ObjectChange::Added(object),
        };
        self.notify(&handlers, &change);
    }

    /// Removes an object that was deleted as of a version. An object with a newer version was created since, and stays.
    pub fn remove(&self, key: &T::Key, version: &str) {
        let handlers = self.lock_handlers();
        if self.get(key).is_none_or(|known| is_older(version, known.resource_version())) {
            return;
        }
        let old = self.objects.write().remove(key);
        self.assumed.lock().remove(key);
        if let Some(old) = old {
            self.notify(&handlers, &ObjectChange::Deleted(old));
        }
    }

    /// Completes a list of this version: removes the objects that it did not contain.
    pub fn complete(&self, seen: &BTreeSet<T::Key>, version: &str) {
        let gone: Vec<T::Key> = {
            let objects = self.objects.read();
            objects.keys().filter(|key| !seen.contains(*key)).cloned().collect()
        };
        for key in gone {
            self.remove(&key, version);
        }
        self.synced.store(true, Ordering::Release);
        self.became_synced.notify_waiters();
    }

    /// Shows every object to the handlers again, unchanged.
    pub fn resync(&self) {
        let handlers = self.lock_handlers();
        for object in self.list() {
            self.notify(&handlers, &ObjectChange::Updated(object.clone(), object));
        }
    }
}

/// `metadata.resourceVersion` of an answer.
pub(crate) fn version_of(answer: &[u8]) -> Option<String> {
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

fn supersedes<T: Cached>(object: &T, known: &T) -> bool {
    let (version, known) = (object.resource_version(), known.resource_version());
    version != known && !is_older(version, known)
}

/// Resource versions of one API server are increasing numbers; anything else is not compared.
pub(crate) fn is_older(version: &str, than: &str) -> bool {
    matches!((version.parse::<u64>(), than.parse::<u64>()), (Ok(version), Ok(than)) if version < than)
}

impl NodeReader for Store<Node> {
    fn get(&self, name: &str) -> Option<NodeRef> {
        self.objects.read().get(name).cloned()
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

/// The stores of the core that providers may also use.
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
                log.lock().push(match change {
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
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        let log = recorded(&store);
        store.apply(node("b", "2"));
        store.apply(node("a", "3"));
        store.remove(&"b".into(), "4");
        assert_eq!(*log.lock(), ["+a", "+b", "a:1>3", "-b"]);
    }

    #[test]
    fn an_answer_to_a_write_is_known_before_the_watch_and_older_events_do_not_undo_it() {
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        store.written(br#"{"metadata": {"name": "a", "resourceVersion": "5"}}"#);
        store.apply(node("a", "3"));
        assert_eq!(&*store.get(&"a".into()).unwrap().resource_version, "5");
        store.written(br#"{"metadata": {"name": "gone", "resourceVersion": "6"}}"#);
        store.written(b"<html>");
        assert_eq!(store.len(), 1);
    }

    /// An object that runs a hook whenever its version is read, to simulate a concurrent change after a comparison.
    #[derive(Clone)]
    struct Slow(String, Option<Arc<dyn Fn() + Send + Sync>>);

    impl PartialEq for Slow {
        fn eq(&self, other: &Self) -> bool {
            self.0 == other.0
        }
    }

    impl Cached for Slow {
        type Key = String;
        const PATH: &'static str = "";
        const NAME: &'static str = "slow";

        fn parse(json: &str, _keep: &FieldFilter) -> Result<Self, serde_json::Error> {
            Ok(Self(serde_json::from_str(json)?, None))
        }

        fn key(&self) -> String {
            String::new()
        }

        fn key_of(_namespace: &str, _name: &str) -> String {
            String::new()
        }

        fn resource_version(&self) -> &str {
            if let Some(meanwhile) = &self.1 {
                meanwhile();
            }
            &self.0
        }
    }

    /// The content of the store after `first`, which tries to store version 3 over 1 while another thread runs
    /// `second`.
    fn raced(first: fn(&Store<Slow>, Slow), second: fn(&Store<Slow>)) -> Option<String> {
        let store = Store::new(FieldFilter::default());
        store.apply(Slow("1".into(), None));
        let other = Mutex::new(None);
        let meanwhile = {
            let (store, other) = (store.clone(), Arc::new(other));
            let (thread, once) = (other.clone(), AtomicBool::new(false));
            let act = move || {
                if !once.swap(true, Ordering::SeqCst) {
                    let (done, wait) = std::sync::mpsc::channel();
                    let store = store.clone();
                    *other.lock() = Some(std::thread::spawn(move || {
                        second(&store);
                        let _ = done.send(());
                    }));
                    // If `second` has to wait for the lock, it is done later.
                    let _ = wait.recv_timeout(Duration::from_millis(200));
                }
            };
            (thread, Arc::new(act))
        };
        first(&store, Slow("3".into(), Some(meanwhile.1)));
        let thread = meanwhile.0.lock().take();
        thread.unwrap().join().unwrap();
        Some(store.get(&String::new())?.0.clone())
    }

    #[test]
    fn nothing_comes_between_the_comparison_and_the_change() {
        assert_eq!(raced(Store::apply, |store| store.apply(Slow("5".into(), None))).as_deref(), Some("5"));
        let patched: fn(&Store<Slow>, Slow) = |store, object| {
            let answer = br#"{"metadata": {"resourceVersion": "3"}}"#;
            store.apply_patch_response(&object, answer, |object, version| version.clone_into(&mut object.0));
        };
        assert_eq!(raced(patched, |store| store.apply(Slow("5".into(), None))).as_deref(), Some("5"));
        assert_eq!(raced(patched, |store| store.remove(&String::new(), "4")), None, "deleted is deleted");
    }

    #[test]
    fn an_object_newer_than_its_deletion_stays() {
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        store.written(br#"{"metadata": {"name": "a", "resourceVersion": "9"}}"#);
        store.remove(&"a".into(), "5");
        store.complete(&BTreeSet::new(), "6");
        assert_eq!(store.len(), 1);
        store.complete(&BTreeSet::new(), "");
        assert!(store.is_empty());
    }

    #[test]
    fn a_restored_etcd_may_show_another_object_under_the_same_version() {
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "5"));
        store.replace(Node { deleting: true, ..node("a", "5") });
        assert!(store.get(&"a".into()).unwrap().deleting);
        store.replace(node("a", "3"));
        assert_eq!(&*store.get(&"a".into()).unwrap().resource_version, "3");
    }

    #[test]
    fn a_write_bound_to_a_version_is_known_from_its_new_version_alone() {
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        let base = store.get(&"a".into()).unwrap();
        let change = |node: &mut Node, version: &str| {
            node.deleting = true;
            node.resource_version = version.into();
        };
        store.apply_patch_response(&base, br#"{"metadata": {"resourceVersion": "4"}}"#, change);
        let now = store.get(&"a".into()).unwrap();
        assert_eq!((&*now.resource_version, now.deleting), ("4", true));
        store.apply_patch_response(&base, b"<html>", |node, _| node.deleting = false);
        assert!(store.get(&"a".into()).unwrap().deleting);
    }

    #[test]
    fn what_admission_makes_of_a_write_is_known_from_the_watch_or_a_list() {
        for listed in [false, true] {
            let store = Store::new(FieldFilter::default());
            store.apply(node("a", "1"));
            let log = recorded(&store);
            let base = store.get(&"a".into()).unwrap();
            let change = |node: &mut Node, version: &str| node.resource_version = version.into();
            store.apply_patch_response(&base, br#"{"metadata": {"resourceVersion": "4"}}"#, change);
            // An event from before the write.
            store.apply(Node { deleting: true, ..node("a", "3") });
            assert!(!store.get(&"a".into()).unwrap().deleting);
            let shown = || Node { deleting: true, ..node("a", "4") };
            match listed {
                true => store.apply_listed(shown(), "4"),
                false => store.apply(shown()),
            }
            assert!(store.get(&"a".into()).unwrap().deleting, "{listed}");
            assert_eq!(*log.lock(), ["+a", "a:1>4", "a:4>4"]);
            // Only the first time: the object is what the server has.
            store.apply(node("a", "4"));
            assert!(store.get(&"a".into()).unwrap().deleting);
        }
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        let log = recorded(&store);
        let change = |node: &mut Node, version: &str| node.resource_version = version.into();
        store.apply_patch_response(&node("a", "1"), br#"{"metadata": {"resourceVersion": "4"}}"#, change);
        store.apply(node("a", "4"));
        assert_eq!(*log.lock(), ["+a", "a:1>4"], "nothing was changed by others");
    }

    #[test]
    fn an_object_of_the_same_version_in_a_list_is_no_change_and_a_missing_one_is_deleted() {
        let store = Store::new(FieldFilter::default());
        store.apply(node("a", "1"));
        store.apply(node("b", "2"));
        let log = recorded(&store);
        log.lock().clear();
        store.apply(node("a", "1"));
        store.complete(&BTreeSet::from(["a".into()]), "4");
        assert_eq!(*log.lock(), ["-b"]);
        assert!(store.is_synced());
    }
}
