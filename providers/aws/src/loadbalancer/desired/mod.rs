//! What a Service wants, read from its spec and annotations alone: no call is made, and whatever is wrong is said before
//! anything is touched.

mod check;
mod hostname;
mod of_service;
mod review;

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use ccm_provider::{Finding, ServiceKey};
use ipnet::IpNet;

use crate::client::elb;
use crate::client::elbv2;

pub(crate) use of_service::{first_few, left_behind, of_service};
pub(crate) use review::review;

/// The wish of one Service.
#[derive(Debug, Clone)]
pub(crate) struct Desired {
    pub(crate) service: ServiceKey,
    pub(crate) uid: Arc<str>,
    /// `--cluster-name`; part of the names of managed groups.
    pub(crate) cluster_name: Arc<str>,
    /// Name of the balancer, of either kind.
    pub(crate) name: String,
    pub(crate) goal: Goal,
    /// Whether annotation or hostname say that it has, or had, a network balancer.
    pub(crate) network: bool,
    /// Read for every goal: a deletion needs them too.
    pub(crate) named_groups: NamedGroups,
    /// What was noticed in the annotations.
    pub(crate) findings: Vec<Finding>,
}

/// Security groups that annotations name, in the order written. They are the user's: never created, changed or deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedGroups {
    /// `security-groups`; empty when there is no such annotation.
    pub(crate) instead: Vec<String>,
    /// `extra-security-groups`
    pub(crate) extra: Vec<String>,
}

/// What the Service shall have in the end.
#[derive(Debug, Clone)]
pub(crate) enum Goal {
    /// Nothing of either kind.
    Absent,
    Classic(Box<Classic>),
    Network(Box<Network>),
}

/// What both kinds of balancers have.
#[derive(Debug, Clone)]
pub(crate) struct Common {
    /// Whether a balancer must exist already: only its hosts changed.
    pub(crate) must_exist: bool,
    pub(crate) internal: bool,
    /// In network form, sorted, each once.
    pub(crate) source_ranges: Vec<IpNet>,
    pub(crate) subnets: Subnets,
    /// `additional-resource-tags`, without reserved keys.
    pub(crate) tags: BTreeMap<String, String>,
    /// The nodes that shall get traffic, by instance ID.
    pub(crate) targets: BTreeMap<String, TargetNode>,
}

/// A node behind the balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct TargetNode {
    /// Name of the node, for messages.
    pub(crate) name: String,
}

/// Where a balancer shall stand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Subnets {
    /// Found by tags and routes.
    Discover,
    /// IDs or Name tags, in the order written.
    Named(Vec<String>),
}

/// A classic balancer.
#[derive(Debug, Clone)]
pub(crate) struct Classic {
    pub(crate) common: Common,
    /// Sorted by port.
    pub(crate) listeners: Vec<elb::Listener>,
    /// Complete: every field that upstream sends.
    pub(crate) attributes: elb::Attributes,
    pub(crate) health_check: elb::HealthCheck,
    pub(crate) proxy_protocol: bool,
    /// `ssl-negotiation-policy`
    pub(crate) ssl_policy: Option<String>,
    /// Permissions of the managed group: protocol (`tcp`) and port of each Service port.
    pub(crate) open_ports: Vec<(String, i32)>,
}

/// A network balancer.
#[derive(Debug, Clone)]
pub(crate) struct Network {
    pub(crate) common: Common,
    /// One per Service port, sorted by port and protocol; never empty, save in [`Network::hosts_only`].
    pub(crate) ports: Vec<Port>,
    /// `eip-allocations`, one per subnet; used at creation only.
    pub(crate) allocations: Vec<String>,
    /// `private-ipv4-addresses`, one per subnet; used at creation only.
    pub(crate) private_ipv4: Vec<String>,
    /// Balancer attributes that are kept equal, complete.
    pub(crate) attributes: elbv2::Attributes,
    /// `target-group-attributes`; `None` when there is no such annotation.
    pub(crate) target_group_attributes: Option<elbv2::Attributes>,
}

impl Classic {
    /// The hosts of a balancer whose other wishes cannot be read.
    pub(crate) fn hosts_only(common: Common) -> Self {
        Self {
            common,
            listeners: Vec::new(),
            attributes: elb::Attributes::default(),
            health_check: elb::HealthCheck::default(),
            proxy_protocol: false,
            ssl_policy: None,
            open_ports: Vec::new(),
        }
    }
}

impl Network {
    /// The hosts of a balancer whose other wishes cannot be read.
    pub(crate) fn hosts_only(common: Common) -> Self {
        Self {
            common,
            ports: Vec::new(),
            allocations: Vec::new(),
            private_ipv4: Vec::new(),
            attributes: elbv2::Attributes::new(),
            target_group_attributes: None,
        }
    }

    /// Whether it is such a one: all others have ports.
    pub(crate) fn is_hosts_only(&self) -> bool {
        self.ports.is_empty()
    }
}

/// One Service port of a network balancer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Port {
    /// `spec.ports[].port`
    pub(crate) port: i32,
    /// Of the listener: `TCP`, `UDP`, `TLS`.
    pub(crate) protocol: String,
    pub(crate) node_port: i32,
    /// Of the target group: `TCP`, `UDP`, `TLS`.
    pub(crate) traffic_protocol: String,
    /// ARN, with `TLS`.
    pub(crate) certificate: Option<String>,
    /// With `TLS`; `None` leaves whatever the listener has.
    pub(crate) ssl_policy: Option<String>,
    pub(crate) health_check: elbv2::HealthCheck,
}
