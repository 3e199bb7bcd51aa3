//! What was read in the last seconds. It answers a call that changes nothing, and is never the base of a write.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::time::Duration;

use ccm_kit::lock;
use serde_json::Value;
use tokio::time::Instant;

/// The time for which reads may show the state before a write.
const LATE: Duration = Duration::from_secs(10);
/// The time for which a write without an answer may still change something.
const DOUBT: Duration = Duration::from_secs(60);

/// Lists of objects, by what they are.
#[derive(Debug, Default)]
pub(super) struct Known(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of writes that have begun or ended.
    writes: u64,
    doubtful_until: Option<Instant>,
    lists: BTreeMap<String, (Instant, Vec<Value>)>,
}

/// The beginning of a read.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reading {
    writes: u64,
    at: Instant,
}

/// A write that goes on. Without [`Writing::ended`], its effect may come later.
#[derive(Debug)]
pub(super) struct Writing<'a> {
    known: &'a Known,
    has_ended: bool,
}

impl Known {
    pub(super) fn reading(&self) -> Reading {
        Reading { writes: lock(&self.0).writes, at: Instant::now() }
    }

    /// Keeps what was read, unless something was written meanwhile.
    pub(super) fn keep(&self, reading: Reading, what: &str, list: &[Value]) {
        let mut state = lock(&self.0);
        let is_certain = state.doubtful_until.is_none_or(|until| until < reading.at);
        if is_certain && state.writes == reading.writes {
            state.lists.insert(what.to_owned(), (reading.at, list.to_vec()));
        }
    }

    /// What was read within this time.
    pub(super) fn get(&self, what: &str, age: Duration) -> Option<Vec<Value>> {
        let state = lock(&self.0);
        let (at, list) = state.lists.get(what)?;
        (at.elapsed() < age).then(|| list.clone())
    }

    /// Forgets everything: something has changed, or is changing.
    fn changes(&self, doubt: Duration) {
        let until = Some(Instant::now() + doubt);
        let mut state = lock(&self.0);
        state.writes += 1;
        state.lists.clear();
        state.doubtful_until = state.doubtful_until.max(until);
    }

    /// An operation goes on, or has just ended.
    pub(super) fn polled(&self) {
        self.changes(LATE);
    }

    pub(super) fn writing(&self) -> Writing<'_> {
        self.changes(LATE);
        Writing { known: self, has_ended: false }
    }
}

impl Writing<'_> {
    pub(super) fn ended(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.known.changes(if self.has_ended { LATE } else { DOUBT });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const AGE: Duration = Duration::from_secs(120);

    #[tokio::test(start_paused = true)]
    async fn a_list_is_kept_for_its_age_and_until_a_write() {
        let known = Known::default();
        let read = || known.keep(known.reading(), "it", &[json!(1)]);
        read();
        assert_eq!(known.get("it", AGE), Some(vec![json!(1)]));
        assert_eq!(known.get("it", Duration::ZERO), None);
        tokio::time::advance(AGE).await;
        assert_eq!(known.get("it", AGE), None);
        let reading = known.reading();
        known.writing().ended();
        known.keep(reading, "it", &[]);
        assert_eq!(known.get("it", AGE), None, "it was read while something was written");
        read();
        assert_eq!(known.get("it", AGE), None, "a read may be late");
        tokio::time::advance(LATE + Duration::from_secs(1)).await;
        read();
        assert!(known.get("it", AGE).is_some());
        drop(known.writing());
        tokio::time::advance(LATE + Duration::from_secs(1)).await;
        read();
        assert_eq!(known.get("it", AGE), None, "the write may still change something");
        tokio::time::advance(DOUBT).await;
        read();
        assert!(known.get("it", AGE).is_some());
    }
}
