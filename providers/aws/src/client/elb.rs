//! Objects of Elastic Load Balancing for classic balancers, with the fields that this program reads.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct LoadBalancer {
    pub(crate) name: String,
    pub(crate) dns_name: String,
    /// `internal` or `internet-facing`.
    pub(crate) scheme: String,
    pub(crate) vpc: String,
    pub(crate) subnets: BTreeSet<String>,
    /// IDs, in the order of the answer.
    pub(crate) security_groups: Vec<String>,
    pub(crate) listeners: Vec<ListenerDescription>,
    /// Policies of the backends, by instance port.
    pub(crate) backend_policies: BTreeMap<i32, BTreeSet<String>>,
    pub(crate) health_check: Option<HealthCheck>,
    pub(crate) instances: BTreeSet<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) created: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ListenerDescription {
    /// `None`: an entry without listener, ignored with a warning.
    pub(crate) listener: Option<Listener>,
    pub(crate) policies: BTreeSet<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Default, Serialize, Deserialize)]
pub(crate) struct Listener {
    pub(crate) port: i32,
    pub(crate) protocol: String,
    pub(crate) instance_port: i32,
    pub(crate) instance_protocol: String,
    /// ARN; `None` without TLS.
    pub(crate) certificate: Option<String>,
}

/// A health check; times in seconds.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct HealthCheck {
    /// `TCP:31000`, `HTTP:31000/healthz`
    pub(crate) target: String,
    pub(crate) interval: i32,
    pub(crate) timeout: i32,
    pub(crate) healthy_threshold: i32,
    pub(crate) unhealthy_threshold: i32,
}

/// Attributes: in an observation the current ones; in a write the desired ones, where `None` changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Attributes {
    pub(crate) access_log: Option<AccessLog>,
    pub(crate) connection_draining: Option<ConnectionDraining>,
    /// Seconds.
    pub(crate) idle_timeout: Option<i32>,
    pub(crate) cross_zone: Option<bool>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct AccessLog {
    pub(crate) enabled: bool,
    /// Minutes.
    pub(crate) emit_interval: Option<i32>,
    pub(crate) bucket: Option<String>,
    pub(crate) prefix: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct ConnectionDraining {
    pub(crate) enabled: bool,
    /// Seconds.
    pub(crate) timeout: Option<i32>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Policy {
    pub(crate) name: String,
    /// `ProxyProtocolPolicyType`, `SSLNegotiationPolicyType`, …
    pub(crate) kind: String,
    pub(crate) attributes: BTreeMap<String, String>,
}
