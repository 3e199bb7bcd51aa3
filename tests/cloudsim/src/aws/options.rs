//! The options of a simulated AWS: all figures in one place, settable from Rust and as JSON.

use super::iam::Policy;
use crate::core::clock::Mode;
use crate::core::lag::Lag;
pub use crate::core::latency::Latency;
use crate::core::throttle::BucketSpec;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// All options. Durations are milliseconds in JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Options {
    pub region: String,
    pub account: String,
    /// The seed of IDs.
    pub seed: u64,
    pub clock: Mode,
    /// The latency of calls in real time.
    pub latency: Latency,
    /// The token buckets; none by default.
    pub throttle: Vec<BucketSpec>,
    /// The delay until new objects are visible, by kind: `instance`, `interface`, `security-group`, `route`, `volume`,
    /// `load-balancer`, `target-group`, `tags` (of load balancers and target groups), …
    pub lag: Lag,
    /// Reads see the state as it was this long ago.
    #[serde(with = "crate::core::millis")]
    pub stale_reads: Duration,
    pub limits: Limits,
    /// The policies of the caller; without any, every call is allowed.
    pub policies: Vec<Policy>,
    /// The durations of state changes.
    pub delays: Delays,
    /// The number of calls that the ledger keeps.
    pub ledger_entries: usize,
    /// Whether each call and answer is checked against the vendor's model, if the models are installed (see
    /// [`super::model`]). Disabled in benchmarks: it costs more than the call.
    pub validate: bool,
    /// The port; 0 selects any free one.
    pub port: u16,
    pub admin_port: u16,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            region: "us-west-2".to_owned(),
            account: "123456789012".to_owned(),
            seed: 1,
            clock: Mode::default(),
            latency: Latency::default(),
            throttle: Vec::new(),
            lag: Lag::default(),
            stale_reads: Duration::ZERO,
            limits: Limits::default(),
            policies: Vec::new(),
            delays: Delays::default(),
            ledger_entries: 100_000,
            validate: true,
            port: 0,
            admin_port: 0,
        }
    }
}

/// Quotas, with AWS's defaults where they are published.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Inbound rules of a security group (IPv4 and IPv6 are counted separately).
    pub rules_per_group: usize,
    pub groups_per_interface: usize,
    /// Security groups per region.
    pub groups: usize,
    pub routes_per_table: usize,
    /// Tags per resource.
    pub tags: usize,
    pub filter_values: usize,
    /// Filters per call. `unverified`
    pub filters: usize,
    /// Elastic IP addresses per region.
    pub addresses: usize,
    pub classic_balancers: usize,
    pub classic_listeners: usize,
    pub classic_instances: usize,
    pub network_balancers: usize,
    pub network_listeners: usize,
    pub target_groups: usize,
    pub targets_per_group: usize,
    pub groups_per_balancer: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            rules_per_group: 60,
            groups_per_interface: 5,
            groups: 2500,
            routes_per_table: 500,
            tags: 50,
            filter_values: 200,
            filters: 50,
            addresses: 5,
            classic_balancers: 20,
            classic_listeners: 100,
            classic_instances: 1000,
            network_balancers: 50,
            network_listeners: 50,
            target_groups: 3000,
            targets_per_group: 1000,
            groups_per_balancer: 3000,
        }
    }
}

/// Durations of state changes on the virtual clock. AWS documents the states, not the durations: all are `unverified`,
/// except the hour for which a terminated instance remains visible.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Delays {
    /// Instance: pending to running.
    #[serde(with = "crate::core::millis")]
    pub pending: Duration,
    /// Instance: stopping to stopped.
    #[serde(with = "crate::core::millis")]
    pub stopping: Duration,
    /// Instance: shutting-down to terminated.
    #[serde(with = "crate::core::millis")]
    pub shutting_down: Duration,
    /// Instance: terminated to no longer visible.
    #[serde(with = "crate::core::millis")]
    pub gone: Duration,
    /// Network Load Balancer: provisioning to active.
    #[serde(with = "crate::core::millis")]
    pub provisioning: Duration,
    /// Interfaces of a deleted load balancer: time until they, and their references to security groups, are deleted.
    #[serde(with = "crate::core::millis")]
    pub balancer_interfaces: Duration,
    /// Target groups of a deleted load balancer: time until they no longer show it and can be deleted.
    #[serde(with = "crate::core::millis")]
    pub balancer_arns: Duration,
    /// Target: initial to healthy.
    #[serde(with = "crate::core::millis")]
    pub target_initial: Duration,
    /// Target: draining time if no attribute sets it.
    #[serde(with = "crate::core::millis")]
    pub target_draining: Duration,
}

impl Default for Delays {
    fn default() -> Self {
        Delays {
            pending: Duration::from_secs(10),
            stopping: Duration::from_secs(30),
            shutting_down: Duration::from_secs(30),
            gone: Duration::from_secs(3600),
            provisioning: Duration::from_secs(90),
            balancer_interfaces: Duration::from_secs(60),
            balancer_arns: Duration::ZERO,
            target_initial: Duration::from_secs(30),
            target_draining: Duration::from_secs(300),
        }
    }
}

impl Delays {
    /// No delays, except that terminated instances remain visible for an hour.
    pub fn none() -> Self {
        Delays {
            pending: Duration::ZERO,
            stopping: Duration::ZERO,
            shutting_down: Duration::ZERO,
            provisioning: Duration::ZERO,
            balancer_interfaces: Duration::ZERO,
            target_initial: Duration::ZERO,
            target_draining: Duration::ZERO,
            ..Delays::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_written_as_json_with_defaults_and_typos_refused() {
        let options: Options = serde_json::from_str(
            r#"{"latency":{"read":50,"write":500,"actions":{"CreateLoadBalancer":900}},"lag":{"instance":2000},
                "clock":{"stepped":{"start":"2026-01-01T00:00:00Z"}},"throttle":[{"service":"ec2","burst":5,"rate":1}]}"#,
        )
        .unwrap();
        assert_eq!(options.latency.of("DescribeVpcs", false), Duration::from_millis(50));
        assert_eq!(options.latency.of("CreateTags", true), Duration::from_millis(500));
        assert_eq!(options.latency.of("CreateLoadBalancer", true), Duration::from_millis(900));
        assert_eq!(options.limits.rules_per_group, 60);
        assert!(serde_json::from_str::<Options>(r#"{"latencies":{}}"#).is_err());
    }
}
