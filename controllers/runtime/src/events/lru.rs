//! A map that evicts the least recently used entry.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hash;

pub(super) struct Lru<K, V> {
    size: usize,
    tick: u64,
    entries: HashMap<K, (u64, V)>,
    by_use: BTreeMap<u64, K>,
}

impl<K: Eq + Hash + Clone, V> Lru<K, V> {
    pub(super) fn new(size: usize) -> Self {
        Self { size, tick: 0, entries: HashMap::new(), by_use: BTreeMap::new() }
    }

    /// The value of a key, which becomes the most recently used; created if absent.
    pub(super) fn entry(&mut self, key: &K, make: impl FnOnce() -> V) -> &mut V {
        self.tick += 1;
        if !self.entries.contains_key(key)
            && self.entries.len() >= self.size
            && let Some((_, oldest)) = self.by_use.pop_first()
        {
            self.entries.remove(&oldest);
        }
        let tick = self.tick;
        let (used, value) = self.entries.entry(key.clone()).or_insert_with(|| (0, make()));
        self.by_use.remove(used);
        *used = tick;
        self.by_use.insert(tick, key.clone());
        value
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recently_used_is_forgotten() {
        let mut lru = Lru::new(2);
        *lru.entry(&"a", || 0) += 1;
        *lru.entry(&"b", || 0) += 1;
        *lru.entry(&"a", || 0) += 1;
        *lru.entry(&"c", || 0) += 1;
        assert_eq!(*lru.entry(&"a", || 0), 2);
        assert_eq!(*lru.entry(&"b", || 0), 0);
        assert_eq!(lru.entries.len(), 2);
        assert_eq!(lru.by_use.len(), 2);
    }
}
