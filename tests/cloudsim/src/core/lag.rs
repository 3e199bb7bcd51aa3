//! Eventual consistency: how long the calls after its creation do not see a new object.
//!
//! Two models. *Lag*: for some time after its creation an object of a kind does not exist for reads and references.
//! *Stale reads*: every read is answered from an older state, which covers changes and deletions too. How long either
//! takes in real clouds is `unverified`; it is only known that it happens.

use super::clock::later;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// Lag per kind of resource; kinds without an entry have none.
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
