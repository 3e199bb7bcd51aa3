//! One copy of each text that many objects repeat.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// A set of shared texts. Unused texts are dropped when the set has doubled.
#[derive(Debug)]
pub struct Interner(Mutex<Inner>);

#[derive(Debug)]
struct Inner {
    texts: HashSet<Arc<str>>,
    sweep_at: usize,
}

impl Default for Interner {
    fn default() -> Self {
        Self(Mutex::new(Inner { texts: HashSet::new(), sweep_at: 1024 }))
    }
}

impl Interner {
    /// The shared copy of a text.
    pub fn get(&self, text: &str) -> Arc<str> {
        let mut inner = self.0.lock();
        if let Some(shared) = inner.texts.get(text) {
            return shared.clone();
        }
        if inner.texts.len() >= inner.sweep_at {
            inner.texts.retain(|text| Arc::strong_count(text) > 1);
            inner.sweep_at = (inner.texts.len() * 2).max(1024);
        }
        let shared: Arc<str> = Arc::from(text);
        inner.texts.insert(shared.clone());
        shared
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_texts_share_one_copy_and_unused_ones_are_dropped() {
        let interner = Interner::default();
        let a = interner.get("zone-a");
        assert!(Arc::ptr_eq(&a, &interner.get("zone-a")));
        for i in 0..5000 {
            interner.get(&format!("host-{i}"));
        }
        assert!(interner.0.lock().texts.len() <= 1024);
        assert!(Arc::ptr_eq(&a, &interner.get("zone-a")));
    }
}
