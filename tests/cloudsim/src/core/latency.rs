//! The latency of calls in real time.

use super::throttle::matches;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// The latency of calls in real time; the effect occurs half-way.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// The latency of reads.
    #[serde(with = "crate::core::millis")]
    pub read: Duration,
    /// The latency of writes.
    #[serde(with = "crate::core::millis")]
    pub write: Duration,
    /// Milliseconds by action name (a trailing `*` matches any suffix); overrides `read` and `write`.
    pub actions: BTreeMap<String, u64>,
}

impl Latency {
    /// The latency of this action.
    pub fn of(&self, action: &str, mutating: bool) -> Duration {
        self.actions
            .iter()
            .find(|(pattern, _)| matches(pattern, action))
            .map_or(if mutating { self.write } else { self.read }, |(_, millis)| Duration::from_millis(*millis))
    }
}
