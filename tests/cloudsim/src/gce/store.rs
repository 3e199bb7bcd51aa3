//! All objects by key, and the older states that reads still see because of lag.

use crate::core::rows::{Row, Table};
use jiff::Timestamp;
use std::collections::BTreeMap;
use std::ops::Bound;

/// The objects of the cloud.
#[derive(Debug, Default)]
pub struct Store {
    /// The objects by collection, then by key.
    rows: BTreeMap<String, Table>,
    /// By key, oldest first.
    past: BTreeMap<String, Vec<Past>>,
    /// The number of changes of a collection.
    changes: BTreeMap<String, u64>,
}

/// The state of an object before a write that reads do not see yet.
#[derive(Debug)]
struct Past {
    /// The state that reads see; `None`: the object did not exist.
    row: Option<Row>,
    /// The end of the operation.
    done: Timestamp,
    /// The time until which reads see this state.
    shown: Timestamp,
}

/// The times at which a write begins, ends, and becomes visible to reads.
#[derive(Debug, Clone, Copy)]
pub(super) struct Due {
    pub(super) now: Timestamp,
    pub(super) done: Timestamp,
    pub(super) shown: Timestamp,
}

impl Store {
    /// The current state of an object, regardless of lag.
    pub fn get(&self, key: &str) -> Option<&Row> {
        self.rows.get(collection(key))?.get(key)
    }

    /// The number of creations, changes and removals in a collection.
    pub(super) fn changes(&self, collection: &str) -> u64 {
        self.changes.get(collection).copied().unwrap_or_default()
    }

    fn changed(&mut self, key: &str) {
        match self.changes.get_mut(collection(key)) {
            Some(count) => *count += 1,
            None => drop(self.changes.insert(collection(key).to_owned(), 1)),
        }
    }

    /// An object, for an immediate change outside of the API.
    pub fn get_mut(&mut self, key: &str) -> Option<&mut Row> {
        self.changed(key);
        self.rows.get_mut(collection(key))?.get_mut(key)
    }

    /// The current state of all objects except operations.
    pub fn every(&self) -> impl Iterator<Item = (&str, &Row)> {
        let tables = self.rows.iter().filter(|(collection, _)| *collection != "operations");
        tables.flat_map(|(_, rows)| rows).map(|(key, row)| (key.as_str(), row))
    }

    /// The current state of the objects of a collection in all places, by key.
    pub fn all(&self, collection: &str) -> impl Iterator<Item = (&str, &Row)> {
        self.rows.get(collection).into_iter().flatten().map(|(key, row)| (key.as_str(), row))
    }

    /// The existing objects of a collection, including those whose deletion has not ended.
    pub(super) fn alive<'a>(&'a self, of: &'a str, now: Timestamp) -> impl Iterator<Item = (&'a str, &'a Row)> {
        let going = self.past.iter().filter(move |(key, _)| collection(key) == of && self.get(key).is_none());
        let last = move |past: &'a [Past]| past.iter().rev().find(|past| past.done > now)?.row.as_ref();
        self.all(of).chain(going.filter_map(move |(key, past)| Some((key.as_str(), last(past)?))))
    }

    /// The object that reads see.
    pub(super) fn seen(&self, key: &str, now: Timestamp) -> Option<&Row> {
        match self.hidden(key, now) {
            Some(past) => past.row.as_ref(),
            None => self.get(key),
        }
    }

    /// The older state of an object that reads see.
    fn hidden(&self, key: &str, now: Timestamp) -> Option<&Past> {
        self.past.get(key)?.iter().find(|past| past.shown > now)
    }

    /// The objects of a collection in one region or zone that reads see, by key; all keys begin with the prefix.
    pub(super) fn seen_under(&self, prefix: &str, now: Timestamp) -> Vec<(&str, &Row)> {
        let range = (Bound::Included(prefix), Bound::Unbounded);
        let late = self.past.range::<str, _>(range).take_while(|(key, _)| key.starts_with(prefix));
        let late: Vec<_> = late.filter_map(|(key, _)| Some((key, self.hidden(key, now)?))).collect();
        let rows = self.rows.get(collection(prefix)).into_iter().flat_map(|rows| rows.range::<str, _>(range));
        let mut found: Vec<(&str, &Row)> = Vec::new();
        for (key, row) in rows.take_while(|(key, _)| key.starts_with(prefix)) {
            if late.is_empty() || self.hidden(key, now).is_none() {
                found.push((key, row));
            }
        }
        if !late.is_empty() {
            found.extend(late.into_iter().filter_map(|(key, past)| Some((key.as_str(), past.row.as_ref()?))));
            found.sort_by_key(|(key, _)| *key);
        }
        found
    }

    /// Whether an object is being created or deleted.
    pub(super) fn busy(&self, key: &str, now: Timestamp) -> bool {
        let mut past = self.past.get(key).into_iter().flatten().filter(|past| past.done > now);
        past.any(|past| past.row.is_none() || self.get(key).is_none())
    }

    /// Creates or replaces an object.
    pub(super) fn put(&mut self, key: &str, row: Row, due: Due) {
        self.changed(key);
        let old = self.rows.entry(collection(key).to_owned()).or_default().insert(key.to_owned(), row);
        self.keep(key, old, due);
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, key: &str, due: Due) -> Option<Row> {
        self.changed(key);
        let old = self.rows.get_mut(collection(key))?.remove(key)?;
        self.keep(key, Some(old.clone()), due);
        Some(old)
    }

    /// Keeps the old state of an object while reads see it, after those that they see before.
    fn keep(&mut self, key: &str, old: Option<Row>, due: Due) {
        if due.shown > due.now || due.done > due.now {
            self.past.entry(key.to_owned()).or_default().push(Past { row: old, done: due.done, shown: due.shown });
        }
    }

    /// Drops old states that reads no longer see.
    pub(super) fn settle(&mut self, now: Timestamp) {
        self.past.retain(|_, past| {
            past.retain(|past| past.shown > now || past.done > now);
            !past.is_empty()
        });
    }
}

/// The collection of a key or of a prefix of keys.
pub(super) fn collection(key: &str) -> &str {
    key.rsplit('/').nth(1).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Map, json};

    fn row(n: i64) -> Row {
        Row { seq: 0, made: Timestamp::UNIX_EPOCH, fields: Map::from_iter([("n".to_owned(), json!(n))]) }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn due(now: i64, done: i64, shown: i64) -> Due {
        Due { now: at(now), done: at(done), shown: at(shown) }
    }

    #[test]
    fn reads_show_the_old_state_until_a_write_is_visible() {
        let mut store = Store::default();
        store.put("p/a/1", row(1), due(0, 0, 0));
        store.put("p/a/1", row(2), due(1, 2, 4));
        store.put("p/a/2", row(1), due(1, 2, 4));
        let seen = |store: &Store, now| {
            store
                .seen_under("p/a/", at(now))
                .iter()
                .map(|(key, row)| format!("{key}={}", row.number("n")))
                .collect::<Vec<_>>()
        };
        assert_eq!(seen(&store, 3), ["p/a/1=1"]);
        assert_eq!(seen(&store, 4), ["p/a/1=2", "p/a/2=1"]);
        assert!(store.busy("p/a/2", at(1)) && !store.busy("p/a/2", at(2)) && !store.busy("p/a/1", at(1)));
        store.remove("p/a/2", due(5, 6, 6));
        assert!(store.busy("p/a/2", at(5)) && store.get("p/a/2").is_none());
        assert_eq!(store.alive("a", at(5)).count(), 2);
        assert_eq!(seen(&store, 5), ["p/a/1=2", "p/a/2=1"]);
        store.settle(at(6));
        assert_eq!(seen(&store, 6), ["p/a/1=2"]);
        assert_eq!(store.alive("a", at(6)).count(), 1);
    }

    #[test]
    fn reads_lag_by_the_same_time_while_somebody_writes() {
        let mut store = Store::default();
        for second in 0..9 {
            store.put("p/a/1", row(second), due(second, second, second + 3));
            let seen = store.seen("p/a/1", at(second)).map(|row| row.number("n"));
            assert_eq!(seen, (second >= 3).then_some(second - 3), "{second}");
        }
        assert_eq!(store.seen("p/a/1", at(11)).map(|row| row.number("n")), Some(8));
    }
}
