//! Options of a simulated OpenStack.

use crate::core::clock::Mode;
use crate::core::lag::Lag;
use crate::core::latency::Latency;
use crate::core::throttle::BucketSpec;
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
    /// The token buckets; none by default. A throttled call gets 429 (503 from Octavia) with `Retry-After`.
    pub throttle: Vec<BucketSpec>,
    /// The `Retry-After` of a throttled call, in seconds.
    pub retry_after: u64,
    /// The delay until reads see new objects, by kind: `loadbalancer`, `listener`, `floatingip`, `security_group`, …
    pub lag: Lag,
    /// The age of the state that reads see, for all services except Keystone, like a lagging database replica. Direct
    /// changes by tests do not count as writes.
    #[serde(with = "crate::core::millis")]
    pub stale_reads: Duration,
    /// The port; 0 selects any free one.
    pub port: u16,
    pub admin_port: u16,
    /// The number of calls that the ledger keeps.
    pub ledger_entries: usize,
    /// The lifetime of tokens.
    #[serde(with = "crate::core::millis")]
    pub token_lifetime: Duration,
    /// The service catalog.
    pub catalog: Vec<CatalogEntry>,
    /// The aliases of Neutron's extensions.
    pub extensions: Vec<String>,
    /// The highest microversion of Nova, the part after `2.`.
    pub compute_version: u32,
    /// Whether Nova's filter by name distinguishes case: it does with PostgreSQL, and does not with MySQL.
    pub compute_is_case_sensitive: bool,
    /// The maximum number of servers in a page of Nova.
    pub compute_page: usize,
    /// The versions of Octavia, as in its version document; the last one is the current one.
    pub balancer_versions: Vec<String>,
    /// The enabled providers of Octavia; the first one is the default.
    pub providers: Vec<String>,
    /// The duration of a change until a load balancer is ACTIVE or deleted.
    #[serde(with = "crate::core::millis")]
    pub provisioning: Duration,
    /// The maximum number of routes of a router (`max_routes`) in Neutron before 2026.2. Later versions have the quota
    /// `router_route`.
    pub max_routes: Option<usize>,
    /// The quotas of each project by kind: `loadbalancer` and its parts, `floatingip`, `security_group`,
    /// `security_group_rule`;
    /// `router_route` applies to each router. Kinds without an entry have no quota.
    pub quotas: BTreeMap<String, usize>,
}

/// An endpoint of a service, for each of its regions and interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CatalogEntry {
    /// Service type, e.g. `network`.
    pub kind: String,
    /// Service name, e.g. `neutron`.
    pub name: String,
    /// The path below the URL of the simulation, or a full URL.
    pub path: String,
    pub regions: Vec<String>,
    pub interfaces: Vec<String>,
}

impl CatalogEntry {
    /// An endpoint with all interfaces in `RegionOne`.
    pub fn new(kind: &str, name: &str, path: &str) -> Self {
        CatalogEntry {
            kind: kind.to_owned(),
            name: name.to_owned(),
            path: path.to_owned(),
            regions: vec!["RegionOne".to_owned()],
            interfaces: ["public", "internal", "admin"].map(str::to_owned).to_vec(),
        }
    }
}

impl Default for Options {
    fn default() -> Self {
        Options {
            seed: 1,
            clock: Mode::default(),
            latency: Latency::default(),
            throttle: Vec::new(),
            retry_after: 1,
            lag: Lag::default(),
            stale_reads: Duration::ZERO,
            port: 0,
            admin_port: 0,
            ledger_entries: 100_000,
            token_lifetime: Duration::from_secs(3600),
            catalog: vec![
                CatalogEntry::new("identity", "keystone", "/identity/v3"),
                CatalogEntry::new("compute", "nova", "/compute/v2.1"),
                CatalogEntry::new("network", "neutron", "/network"),
                CatalogEntry::new("load-balancer", "octavia", "/load-balancer"),
                CatalogEntry::new("key-manager", "barbican", "/key-manager"),
                CatalogEntry::new("block-storage", "cinder", "/volume/v3"),
            ],
            extensions: super::neutron::EXTENSIONS.iter().map(|(alias, ..)| (*alias).to_owned()).collect(),
            compute_version: 104,
            compute_is_case_sensitive: false,
            compute_page: 1000,
            balancer_versions: (0..=30).map(|minor| format!("v2.{minor}")).collect(),
            providers: ["amphora", "octavia", "ovn"].map(str::to_owned).to_vec(),
            provisioning: Duration::from_millis(3),
            max_routes: None,
            quotas: [("router_route".to_owned(), 30)].into(),
        }
    }
}
