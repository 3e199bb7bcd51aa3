//! The stored state: the current objects of each kind, and a bounded history for watches and old lists.

use crate::kind::{KINDS, Kind};
use crate::selector::{self, Selector, Values};
use crate::signal::Signal;
use crate::value::{at, set, text};
use bytes::Bytes;
use serde_json::Value;
use std::borrow::Cow;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// One version of an object. Serialized once; lists and watches share the bytes.
#[derive(Debug)]
pub(crate) struct Stored {
    pub(crate) kind: &'static Kind,
    pub(crate) namespace: String,
    pub(crate) name: String,
    pub(crate) version: u64,
    /// The object as JSON, type first.
    pub(crate) bytes: Bytes,
    bare: usize,
    labels: Values,
    fields: Values,
}

impl Stored {
    /// Serializes `value` as version `version`.
    pub(crate) fn new(kind: &'static Kind, mut value: Value, version: u64) -> Stored {
        set(&mut value, "/metadata/resourceVersion", version.to_string());
        let labels = at(&value, "/metadata/labels").and_then(Value::as_object).map(|labels| {
            labels.iter().map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
        });
        let fields = selector::fields(kind, &value);
        let namespace = text(&value, "/metadata/namespace").to_owned();
        let name = text(&value, "/metadata/name").to_owned();
        if let Value::Object(map) = &mut value {
            map.remove("kind");
            map.remove("apiVersion");
        }
        let mut bytes = kind.prefix().into_bytes();
        let bare = bytes.len() + 1;
        // Writing a JSON value into memory cannot fail.
        serde_json::to_writer(&mut bytes, &value).unwrap_or_default();
        // The fields follow those of the type instead of starting an object.
        if let Some(brace) = bytes.get_mut(bare - 1) {
            *brace = b',';
        }
        let (labels, bytes) = (labels.unwrap_or_default(), Bytes::from(bytes));
        Stored { kind, namespace, name, version, bytes, bare, labels, fields }
    }

    /// The object as a JSON value.
    pub(crate) fn value(&self) -> Value {
        serde_json::from_slice(&self.bytes).unwrap_or_default()
    }

    /// The bytes after `{"kind":…,"apiVersion":…,`: list items have no type.
    pub(crate) fn bare(&self) -> &[u8] {
        self.bytes.get(self.bare..).unwrap_or_default()
    }

    pub(crate) fn key(&self) -> String {
        key(&self.namespace, &self.name)
    }

    pub(crate) fn matches(&self, scope: &Scope) -> bool {
        (scope.namespace.is_empty() || scope.namespace == self.namespace)
            && scope.labels.matches(&self.labels)
            && scope.fields.matches(&self.fields)
    }
}

/// `namespace/name`, in the order of keys in the real storage.
pub(crate) fn key(namespace: &str, name: &str) -> String {
    format!("{namespace}/{name}")
}

/// The objects of a kind that a list or watch covers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Scope {
    pub(crate) namespace: String,
    pub(crate) labels: Selector,
    pub(crate) fields: Selector,
}

impl Scope {
    /// Whether there are selectors in addition to the namespace.
    pub(crate) fn is_selective(&self) -> bool {
        !self.labels.is_empty() || !self.fields.is_empty()
    }
}

/// One entry of the history.
#[derive(Debug, Clone)]
pub(crate) struct Record {
    pub(crate) version: u64,
    pub(crate) deleted: bool,
    pub(crate) object: Arc<Stored>,
    pub(crate) previous: Option<Arc<Stored>>,
}

/// The current objects of a kind, in key order.
pub(crate) type Objects = BTreeMap<String, Arc<Stored>>;

/// The current objects and the history of one kind.
#[derive(Debug, Default)]
pub(crate) struct Collection {
    pub(crate) objects: Objects,
    pub(crate) history: VecDeque<Record>,
    /// Versions before this one are no longer available.
    pub(crate) floor: u64,
    /// The newest change that is no longer in `history`.
    pub(crate) dropped: u64,
    /// Woken by every write.
    pub(crate) signal: Signal,
}

/// The state behind the lock.
#[derive(Debug)]
pub(crate) struct State {
    pub(crate) version: u64,
    pub(crate) collections: Vec<Collection>,
    pub(crate) history_limit: usize,
    pub(crate) ids: Ids,
    pub(crate) allocations: crate::admission::Allocations,
}

impl State {
    pub(crate) fn new(history_limit: usize, seed: u64) -> State {
        let collections = KINDS.iter().map(|_| Collection::default()).collect();
        let allocations = crate::admission::Allocations::default();
        State { version: 1, collections, history_limit, ids: Ids(seed), allocations }
    }

    pub(crate) fn of(&self, kind: &Kind) -> &Collection {
        // One collection per entry of KINDS, created in `new`.
        self.collections.get(kind.index).unwrap_or_else(|| unreachable!())
    }

    pub(crate) fn of_mut(&mut self, kind: &Kind) -> &mut Collection {
        self.collections.get_mut(kind.index).unwrap_or_else(|| unreachable!())
    }

    pub(crate) fn find(&self, kind: &Kind, namespace: &str, name: &str) -> Option<Arc<Stored>> {
        self.of(kind).objects.get(&key(namespace, name)).cloned()
    }

    /// Stores a new version of an object.
    pub(crate) fn put(&mut self, kind: &'static Kind, value: Value) -> Arc<Stored> {
        self.record(kind, value, false)
    }

    /// Removes an object; watchers receive its last state with the version of the removal.
    pub(crate) fn take(&mut self, kind: &'static Kind, last: Value) -> Arc<Stored> {
        self.record(kind, last, true)
    }

    fn record(&mut self, kind: &'static Kind, value: Value, deleted: bool) -> Arc<Stored> {
        self.version += 1;
        let (version, limit) = (self.version, self.history_limit);
        let object = Arc::new(Stored::new(kind, value, version));
        let collection = self.of_mut(kind);
        let previous = match deleted {
            true => collection.objects.remove(&object.key()),
            false => collection.objects.insert(object.key(), Arc::clone(&object)),
        };
        collection.history.push_back(Record { version, deleted, object: Arc::clone(&object), previous });
        while collection.history.len() > limit {
            collection.dropped = collection.history.pop_front().map_or(0, |record| record.version);
            collection.floor = collection.dropped;
        }
        collection.signal.send();
        object
    }

    /// Drops the history of a kind.
    pub(crate) fn compact(&mut self, kind: &Kind) {
        let version = self.version;
        let collection = self.of_mut(kind);
        collection.dropped = collection.history.back().map_or(collection.dropped, |record| record.version);
        collection.history.clear();
        collection.floor = collection.floor.max(version);
        collection.signal.send();
    }

    /// Returns to an older version. Allocations made since then are kept.
    pub(crate) fn restore(&mut self, version: u64) {
        self.version = version;
        for kind in &KINDS {
            let objects = self.objects_at(kind, version).map(Cow::into_owned);
            let collection = self.of_mut(kind);
            collection.objects = objects.unwrap_or_default();
            collection.history.retain(|record| record.version <= version);
        }
    }

    /// The objects of a kind at `version`, or `None` if the history does not contain it.
    pub(crate) fn objects_at(&self, kind: &Kind, version: u64) -> Option<Cow<'_, Objects>> {
        let collection = self.of(kind);
        if version < collection.floor {
            return None;
        }
        if collection.history.back().is_none_or(|newest| newest.version <= version) {
            return Some(Cow::Borrowed(&collection.objects));
        }
        let mut objects = collection.objects.clone();
        for record in collection.history.iter().rev().take_while(|record| record.version > version) {
            match &record.previous {
                Some(previous) => objects.insert(previous.key(), Arc::clone(previous)),
                None => objects.remove(&record.object.key()),
            };
        }
        Some(Cow::Owned(objects))
    }
}

/// A source of UIDs: a sequence determined by a seed, so that runs are repeatable.
#[derive(Debug)]
pub(crate) struct Ids(u64);

impl Ids {
    /// The next number of the sequence (splitmix64).
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn uid(&mut self) -> String {
        let bits = (u128::from(self.next()) << 64) | u128::from(self.next());
        uuid::Builder::from_random_bytes(bits.to_be_bytes()).into_uuid().to_string()
    }
}
