//! Options of a simulated Compute Engine.

use crate::core::clock::Mode;
use crate::core::lag::Lag;
use crate::core::latency::Latency;
use crate::core::throttle::{BucketSpec, matches};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// All options. Durations are milliseconds in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    /// The seed of IDs.
    pub seed: u64,
    pub clock: Mode,
    /// The latency of calls in real time.
    pub latency: Latency,
    /// The token buckets; none by default.
    pub throttle: Vec<BucketSpec>,
    /// The status of a throttled call: 403 with the reason `rateLimitExceeded`, or 429.
    pub throttle_status: u16,
    /// The time for which reads see the old state after the operation of a write has ended, by resource:
    /// `forwardingRules`, `routes`, …
    pub lag: Lag,
    /// The port; 0 selects any free one.
    pub port: u16,
    pub admin_port: u16,
    /// The number of calls that the ledger keeps.
    pub ledger_entries: usize,
    /// The lifetime of tokens.
    #[serde(with = "crate::core::millis")]
    pub token_lifetime: Duration,
    /// The zones by region, the same for all projects.
    pub regions: BTreeMap<String, Vec<String>>,
    /// The duration of operations.
    #[serde(with = "crate::core::millis")]
    pub operation: Duration,
    /// The duration by method, or by method and name of the object (`forwardingRules.insert a1*`; a trailing `*` matches
    /// any suffix), in milliseconds; overrides `operation`. The longest pattern counts.
    pub operations: BTreeMap<String, u64>,
    /// The maximum time of a `wait` call.
    #[serde(with = "crate::core::millis")]
    pub wait: Duration,
    /// The maximum number of objects in a page.
    pub page: usize,
    /// The quotas of each project by metric: `FORWARDING_RULES`, `ROUTES`, `STATIC_ADDRESSES`, `INTERNAL_ADDRESSES`, …; for regional objects the quotas of each
    /// region. Metrics without an entry have no quota.
    pub quotas: BTreeMap<String, usize>,
    /// Permissions that the caller lacks, by project (`*`: all projects): `compute.firewalls.create`; a trailing `*`
    /// matches any suffix.
    pub denied: BTreeMap<String, Vec<String>>,
    /// Permissions that the caller has on one object whatever it lacks in the project, by path:
    /// `projects/p/regions/us-central1/subnetworks/sub`. A trailing `*` matches any suffix.
    pub granted: BTreeMap<String, Vec<String>>,
    /// Projects in which the caller may only read.
    pub read_only: Vec<String>,
    /// Whether a target pool accepts instances that do not exist. `unverified`: reports contradict each other.
    pub absent_pool_members: bool,
    /// Whether requests and answers are checked against Google's description of the API, if it is installed.
    pub check: bool,
}

impl Options {
    /// The duration of an operation of a method on an object.
    pub(super) fn operation_of(&self, method: &str, name: &str) -> Duration {
        let both = format!("{method} {name}");
        let fits = |pattern: &str| matches(pattern, method) || matches(pattern, &both);
        let own = self.operations.iter().filter(|(pattern, _)| fits(pattern)).max_by_key(|(pattern, _)| pattern.len());
        own.map_or(self.operation, |(_, millis)| Duration::from_millis(*millis))
    }
}

impl Default for Options {
    fn default() -> Self {
        let zones = |region: &str, letters: &str| {
            (region.to_owned(), letters.chars().map(|letter| format!("{region}-{letter}")).collect())
        };
        Options {
            seed: 1,
            clock: Mode::default(),
            latency: Latency::default(),
            throttle: Vec::new(),
            throttle_status: 403,
            lag: Lag::default(),
            port: 0,
            admin_port: 0,
            ledger_entries: 100_000,
            token_lifetime: Duration::from_secs(3600),
            regions: BTreeMap::from([zones("us-central1", "abcf"), zones("us-east1", "bcd")]),
            operation: Duration::from_millis(3),
            operations: BTreeMap::new(),
            wait: Duration::from_secs(120),
            page: 500,
            quotas: BTreeMap::new(),
            denied: BTreeMap::new(),
            granted: BTreeMap::new(),
            read_only: Vec::new(),
            absent_pool_members: false,
            check: true,
        }
    }
}
