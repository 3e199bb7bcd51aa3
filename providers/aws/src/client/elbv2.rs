//! Objects of Elastic Load Balancing v2, with the fields that this program reads.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Selects the balancers or target groups to read.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Which {
    /// All in the account and region.
    All,
    Names(Vec<String>),
    /// Target groups to which the listeners of a balancer forward.
    OfBalancer(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) dns_name: String,
    /// `network`, `application`, `gateway`
    pub(crate) kind: String,
    /// `internal` or `internet-facing`.
    pub(crate) scheme: String,
    /// `provisioning`, `active`, `active_impaired`, `failed`
    pub(crate) state: String,
    pub(crate) vpc: String,
    pub(crate) zones: Vec<BalancerZone>,
    pub(crate) security_groups: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct BalancerZone {
    pub(crate) zone: String,
    pub(crate) subnet: String,
    /// Elastic IPs, by allocation ID.
    pub(crate) allocations: Vec<String>,
    pub(crate) private_ipv4: Vec<String>,
}

/// A subnet of a new balancer.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct SubnetMapping {
    pub(crate) subnet: String,
    pub(crate) allocation: Option<String>,
    pub(crate) private_ipv4: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Listener {
    pub(crate) arn: String,
    pub(crate) port: i32,
    /// `TCP`, `UDP`, `TLS`, `TCP_UDP`
    pub(crate) protocol: String,
    pub(crate) certificates: Vec<String>,
    pub(crate) ssl_policy: Option<String>,
    /// The target group of the default action.
    pub(crate) target_group: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TargetGroup {
    pub(crate) arn: String,
    pub(crate) name: String,
    pub(crate) protocol: String,
    pub(crate) port: i32,
    /// `instance`, `ip`, …
    pub(crate) target_type: String,
    pub(crate) vpc: String,
    pub(crate) health_check: HealthCheck,
    /// ARNs of the balancers whose listeners forward to it.
    pub(crate) balancers: Vec<String>,
}

/// The health check of a target group; times in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct HealthCheck {
    /// `TCP`, `HTTP`, `HTTPS`
    pub(crate) protocol: String,
    /// A number or `traffic-port`.
    pub(crate) port: String,
    /// Only with HTTP and HTTPS.
    pub(crate) path: Option<String>,
    pub(crate) interval: i32,
    /// In a write: `None` leaves AWS's default.
    pub(crate) timeout: Option<i32>,
    pub(crate) healthy_threshold: i32,
    pub(crate) unhealthy_threshold: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Target {
    /// Instance ID.
    pub(crate) id: String,
    pub(crate) port: i32,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct TargetHealth {
    pub(crate) target: Target,
    /// `initial`, `healthy`, `unhealthy`, `draining`, `unused`, …
    pub(crate) state: String,
    /// `Target.DeregistrationInProgress`, …; empty when there is none.
    pub(crate) reason: String,
}

impl TargetHealth {
    /// Whether the target was deregistered and gets no new connections.
    pub(crate) fn is_leaving(&self) -> bool {
        self.reason == "Target.DeregistrationInProgress"
    }

    pub(crate) fn is_healthy(&self) -> bool {
        self.state == "healthy"
    }
}

/// Attributes by key: `load_balancing.cross_zone.enabled`.
pub(crate) type Attributes = BTreeMap<String, String>;
