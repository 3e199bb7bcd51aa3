//! Cached answers by key, including keys that do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::batch::{Batcher, Bulk, Limits};

/// Cached answers of a cloud by key. Only keys that are unknown or too old are requested, joined with concurrent
/// requests of other callers. Cheap to clone.
#[derive(Debug)]
pub struct Known<B: Bulk>(Arc<Inner<B>>);

impl<B: Bulk> Clone for Known<B> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

#[derive(Debug)]
struct Inner<B: Bulk> {
    batcher: Batcher<B>,
    kept: Duration,
    miss_kept: Duration,
    answers: Mutex<BTreeMap<B::Item, Answer<B::Answer>>>,
}

/// The last answer for a key; without a value, the key did not exist.
#[derive(Debug, Clone)]
struct Answer<V> {
    // The time before the request.
    asked: Instant,
    value: Option<V>,
}

impl<B: Bulk> Known<B> {
    /// An empty cache. Values are kept for `kept`, and missing keys for `miss_kept`.
    pub fn new(bulk: B, limits: Limits, kept: Duration, miss_kept: Duration) -> Self {
        Self(Arc::new(Inner { batcher: Batcher::new(bulk, limits), kept, miss_kept, answers: Mutex::default() }))
    }

    /// The values of the keys that exist, read at most `max_age` ago and not before `not_before`, the time of the last
    /// write to one of them.
    ///
    /// # Errors
    ///
    /// Some of the keys could not be read.
    pub async fn get(
        &self,
        keys: &BTreeSet<B::Item>,
        max_age: Duration,
        not_before: Option<Instant>,
    ) -> Result<BTreeMap<B::Item, B::Answer>, B::Error> {
        let mut values = BTreeMap::new();
        let mut missing = Vec::new();
        {
            let answers = self.0.answers.lock();
            for key in keys {
                match answers.get(key).filter(|answer| self.is_fresh(answer, max_age, not_before)) {
                    Some(answer) => values.extend(answer.value.clone().map(|value| (key.clone(), value))),
                    None => missing.push(key.clone()),
                }
            }
        }
        if missing.is_empty() {
            return Ok(values);
        }
        let asked = Instant::now();
        let outcomes = self.0.batcher.ask(missing).await;
        let mut answers = self.0.answers.lock();
        answers.retain(|_, answer| self.is_fresh(answer, Duration::MAX, None));
        let mut failed = None;
        for (key, outcome) in outcomes {
            match outcome {
                Ok(value) => {
                    values.extend(value.clone().map(|value| (key.clone(), value)));
                    answers.insert(key, Answer { asked, value });
                }
                Err(error) => failed = Some(error),
            }
        }
        failed.map_or(Ok(values), Err)
    }

    /// Drops the cached answer for a key after a write to it.
    pub fn forget(&self, key: &B::Item) {
        self.0.answers.lock().remove(key);
    }

    fn is_fresh(&self, answer: &Answer<B::Answer>, max_age: Duration, not_before: Option<Instant>) -> bool {
        let kept = if answer.value.is_some() { self.0.kept } else { self.0.miss_kept };
        answer.asked.elapsed() < kept.min(max_age) && not_before.is_none_or(|not_before| answer.asked >= not_before)
    }
}
