//! Options of a simulated Azure.

use crate::core::clock::{Mode, later};
use crate::core::lag::Lag;
use crate::core::latency::Latency;
use crate::core::rest::Reply;
use crate::core::throttle::{BucketSpec, matches};
use jiff::Timestamp;
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
    /// The token buckets; none by default. [`Options::buckets`] has those of Azure.
    pub throttle: Vec<BucketSpec>,
    /// The `Retry-After` of a throttled call, in seconds.
    pub throttle_after: u64,
    /// The time for which reads see the old state after the operation of a write has ended, by type: `loadBalancers`,
    /// `publicIPAddresses`, …
    pub lag: Lag,
    /// The port; 0 selects any free one.
    pub port: u16,
    pub admin_port: u16,
    /// The number of calls that the ledger keeps.
    pub ledger_entries: usize,
    /// The scheme and host of links in answers, for callers that reach the simulation under another name
    /// (`https://management.azure.com`); empty: its own URL.
    pub public_url: String,
    /// The lifetime of tokens.
    #[serde(with = "crate::core::millis")]
    pub token_lifetime: Duration,
    /// The zones by location. `AZ1` style names are not simulated.
    pub zones: BTreeMap<String, Vec<String>>,
    /// The duration of operations.
    #[serde(with = "crate::core::millis")]
    pub operation: Duration,
    /// The duration by action, or by action and name (`loadBalancers.put kubernetes*`; a trailing `*` matches any suffix),
    /// in milliseconds; overrides `operation`. The longest pattern counts.
    pub operations: BTreeMap<String, u64>,
    /// The `Retry-After` of running operations, in seconds; 0: none.
    pub retry_after: u64,
    /// How answers say when to try again.
    pub retry_after_form: RetryAfter,
    /// The maximum number of resources in a page.
    pub page: usize,
    /// Whether a write that adds or drops a reference to a resource changes the ETag of that resource.
    pub coupled: bool,
    /// Whether the ETag of a resource changes once more when its operation ends. It does when a virtual machine has been
    /// created; `unverified` for the rest.
    pub etag_on_end: bool,
    /// Whether a load balancer that is changed shows the state Succeeded at once, with its last ETag, while the operation
    /// goes on. Recordings of Microsoft's command line show such answers; otherwise the state is Updating until the end.
    pub succeeds_at_once: bool,
    /// Whether the write of a load balancer is refused while a network interface in its pools is being updated.
    /// `unverified`; it is refused in any case while one is being deleted or has failed.
    pub updating_members_block: bool,
    /// What the list of a subscription's virtual machines with `statusOnly` has. `unverified`: it is documented to have the
    /// run-time status, and no example shows more.
    pub status_only: StatusOnly,
    /// Whether answers to writes have the header `Azure-AsyncOperation`; some have only `Location`, as Resource Manager
    /// allows it.
    pub async_operation: bool,
    /// The quotas of a subscription by type: `publicIPAddresses`, `loadBalancers`, …
    pub quotas: BTreeMap<String, usize>,
    pub limits: Limits,
    /// The actions that the caller may not call: `virtualMachines.listAll`; a trailing `*` matches any suffix.
    pub denied: Vec<String>,
    /// The rights that the role of the caller excludes: `Microsoft.Network/loadBalancers/write`. A trailing `*` as above.
    pub not_actions: Vec<String>,
    /// More of them for objects of single resource groups, by the name of the group.
    pub not_actions_in: BTreeMap<String, Vec<String>>,
    /// The rights of a role of the caller on one object and what is in it, by the ID of the object.
    pub actions_on: BTreeMap<String, Vec<String>>,
    /// The remaining budget that answers report.
    pub remaining: u64,
    /// Whether the API versions are those of Azure Stack.
    pub stack: bool,
    /// Whether requests and answers are checked against Microsoft's description of the API, if it is installed.
    pub check: bool,
}

/// The answer to the list of a subscription's virtual machines with `statusOnly`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StatusOnly {
    /// The instance views.
    #[default]
    View,
    /// The instance views without the fault domains.
    WithoutDomain,
    /// An error: API version 2017-12-01 has no such parameter.
    Refused,
}

/// The header that says when to try again.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetryAfter {
    /// `Retry-After: 10`
    #[default]
    Seconds,
    /// `Retry-After: Thu, 01 Jan 2026 00:00:10 GMT`
    Date,
    /// `retry-after-ms: 10000`
    Millis,
    /// `x-ms-retry-after-ms: 10000`
    MsMillis,
}

impl RetryAfter {
    /// Rewrites the header of an answer.
    pub(super) fn apply(self, reply: &mut Reply, now: Timestamp) {
        for (name, value) in reply.headers.iter_mut().filter(|(name, _)| *name == "retry-after") {
            let seconds = value.parse::<u64>().unwrap_or_default();
            (*name, *value) = match self {
                RetryAfter::Seconds => ("retry-after", seconds.to_string()),
                RetryAfter::Date => {
                    let at = later(now, Duration::from_secs(seconds));
                    ("retry-after", at.strftime("%a, %d %b %Y %H:%M:%S GMT").to_string())
                }
                RetryAfter::Millis => ("retry-after-ms", format!("{seconds}000")),
                RetryAfter::MsMillis => ("x-ms-retry-after-ms", format!("{seconds}000")),
            };
        }
    }
}

/// The limits of resources.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Load-balancing and NAT rules of all load balancers at a network interface. The documented limit is 300, and the
    /// error names 299: the limit is reached with this number. `unverified`: members by address do not count.
    pub rules_per_interface: usize,
    pub rules_per_load_balancer: usize,
    pub frontends_per_load_balancer: usize,
    pub private_link_services_per_load_balancer: usize,
    pub availability_sets_per_pool: usize,
    pub security_rules: usize,
    /// Source or destination prefixes of all rules of a security group.
    pub security_prefixes: usize,
    pub routes: usize,
    /// Models of a scale set that its instances use.
    pub models: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            rules_per_interface: 300,
            rules_per_load_balancer: 1500,
            frontends_per_load_balancer: 600,
            private_link_services_per_load_balancer: 8,
            availability_sets_per_pool: 150,
            security_rules: 1000,
            security_prefixes: 4000,
            routes: 1000,
            models: 10,
        }
    }
}

impl Options {
    /// The duration of an operation of an action on a resource.
    pub(super) fn operation_of(&self, action: &str, name: &str) -> Duration {
        let both = format!("{action} {name}");
        let fits = |pattern: &str| matches(pattern, action) || matches(pattern, &both);
        let own = self.operations.iter().filter(|(pattern, _)| fits(pattern)).max_by_key(|(pattern, _)| pattern.len());
        own.map_or(self.operation, |(_, millis)| Duration::from_millis(*millis))
    }

    /// The rights that are excluded in the resource group of a path.
    pub(super) fn not_actions_of(&self, path: &str) -> &[String] {
        let group = path.split('/').nth(4).unwrap_or_default();
        let own = self.not_actions_in.iter().find(|(name, _)| name.eq_ignore_ascii_case(group));
        own.map(|(_, actions)| &**actions).unwrap_or_default()
    }

    /// The rights that a role on an object of a path has.
    pub(super) fn actions_on(&self, path: &str) -> Vec<String> {
        let path = format!("{path}/").to_lowercase();
        let own = self.actions_on.iter().filter(|(id, _)| path.starts_with(&format!("{id}/").to_lowercase()));
        own.flat_map(|(_, actions)| actions.clone()).collect()
    }

    /// The buckets of Azure: those of Resource Manager for reads, writes and deletions, those of `Microsoft.Network`, and
    /// that of expensive reads of `Microsoft.Compute`, whose size users have seen in errors.
    pub fn buckets() -> Vec<BucketSpec> {
        let bucket = |service: Option<&str>, actions: &[&str], mutating, burst, rate| BucketSpec {
            service: service.map(str::to_owned),
            actions: actions.iter().map(|action| (*action).to_owned()).collect(),
            mutating,
            burst,
            rate,
        };
        let of = |service: &'static str| {
            [bucket(Some(service), &[], Some(false), 250.0, 25.0), bucket(Some(service), &[], Some(true), 200.0, 10.0)]
        };
        let mut all: Vec<BucketSpec> = of("network").into_iter().chain(of("compute")).collect();
        all.push(bucket(Some("network"), &[], Some(true), 1000.0, 1000.0 / 300.0));
        all.push(bucket(Some("network"), &[], Some(false), 10_000.0, 10_000.0 / 300.0));
        all.push(bucket(Some("compute"), super::routes::COSTLY, None, 140.0, 140.0 / 180.0));
        all
    }
}

impl Default for Options {
    fn default() -> Self {
        let three = || ["1", "2", "3"].map(str::to_owned).to_vec();
        Options {
            seed: 1,
            clock: Mode::default(),
            latency: Latency::default(),
            throttle: Vec::new(),
            throttle_after: 10,
            lag: Lag::default(),
            port: 0,
            admin_port: 0,
            ledger_entries: 100_000,
            public_url: String::new(),
            token_lifetime: Duration::from_secs(3600),
            zones: BTreeMap::from([("eastus".to_owned(), three()), ("westeurope".to_owned(), three())]),
            operation: Duration::from_millis(3),
            operations: BTreeMap::new(),
            retry_after: 0,
            retry_after_form: RetryAfter::Seconds,
            page: 1000,
            coupled: true,
            etag_on_end: true,
            succeeds_at_once: false,
            updating_members_block: false,
            status_only: StatusOnly::default(),
            async_operation: true,
            quotas: BTreeMap::new(),
            limits: Limits::default(),
            denied: Vec::new(),
            not_actions: Vec::new(),
            not_actions_in: BTreeMap::new(),
            actions_on: BTreeMap::new(),
            remaining: 11_999,
            stack: false,
            check: true,
        }
    }
}
