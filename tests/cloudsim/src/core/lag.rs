//! Eventual consistency: the time until calls see a new object.
//!
//! Two models. *Lag*: for some time after its creation, an object of a kind does not exist for reads and references.
//! *Stale reads*: every read is answered from an older state, which includes changes and deletions. The durations in
//! real clouds are `unverified`; it is only known that both occur.

use super::clock::later;
use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// The lag per kind of resource; kinds without an entry have none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Lag(BTreeMap<String, u64>);

impl Lag {
    /// Sets the lag of a kind, e.g. `instance`, `security-group`, `route`, `load-balancer`.
    #[must_use]
    pub fn with(mut self, kind: &str, lag: Duration) -> Self {
        self.0.insert(kind.to_owned(), u64::try_from(lag.as_millis()).unwrap_or(u64::MAX));
        self
    }

    /// The lag of a kind.
    pub fn of(&self, kind: &str) -> Duration {
        self.0.get(kind).copied().map(Duration::from_millis).unwrap_or_default()
    }

    /// Whether an object of this kind, created at `created`, is visible at `now`.
    pub fn known(&self, kind: &str, created: Timestamp, now: Timestamp) -> bool {
        self.0.get(kind).is_none_or(|millis| later(created, Duration::from_millis(*millis)) <= now)
    }
}

/// The state before each recent write, oldest first: stale reads see the first one.
#[derive(Debug, Clone)]
pub struct Past<T>(VecDeque<(Timestamp, T)>);

impl<T> Default for Past<T> {
    fn default() -> Self {
        Past(VecDeque::new())
    }
}

impl<T> Past<T> {
    /// Removes states that are older than `late`, which no stale read sees any more.
    pub fn forget(&mut self, now: Timestamp, late: Duration) {
        let late = SignedDuration::try_from(late).unwrap_or(SignedDuration::MAX);
        self.0.retain(|(at, _)| now.duration_since(*at) < late);
    }

    /// Stores the state before a write.
    pub fn keep(&mut self, now: Timestamp, before: T) {
        self.0.push_back((now, before));
    }

    /// The state that a stale read sees; `None` means the current state.
    pub fn shown(&mut self) -> Option<&mut T> {
        self.0.front_mut().map(|(_, before)| before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_is_known_once_its_lag_is_over() {
        let lag = Lag::default().with("instance", Duration::from_secs(2));
        let at = |s| Timestamp::from_second(s).unwrap();
        assert!(!lag.known("instance", at(10), at(11)));
        assert!(lag.known("instance", at(10), at(12)));
        assert!(lag.known("volume", at(10), at(10)));
    }
}
