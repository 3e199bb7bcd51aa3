//! The desired state of a Service, from its spec and annotations alone. Makes no call; every mistake is reported before
//! anything is changed.

mod check;
pub(crate) mod classic;
mod hostname;
pub(crate) mod network;
mod of_service;
mod review;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ccm_provider::{ErrorClass, Finding, ProviderError, ServiceKey};
use ipnet::IpNet;

use crate::annotations::Kind;
use crate::client::{elb, elbv2};
use crate::loadbalancer::names;

pub(crate) use ccm_kit::inspect::first_few;
pub(crate) use of_service::{may_be_target, of_service, previous_balancer, shortened};
pub(crate) use review::review;

#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) service: ServiceKey,
    pub(crate) uid: Arc<str>,
    /// `--cluster-name`; part of the names of managed groups.
    pub(crate) cluster_name: Arc<str>,
    /// Name of the balancer, the same for both kinds.
    pub(crate) name: String,
    pub(crate) goal: Goal,
    /// Whether another controller has the Service, and nothing but the name can show that this program has left a
    /// balancer.
    pub(crate) elsewhere: bool,
    /// Whether the annotation or the hostname in the status show that there is, or was, a network balancer.
    pub(crate) network: bool,
    /// The kinds that the annotation and the hostname in the status show. One of another kind may be left from an
    /// earlier annotation.
    pub(crate) kinds: Vec<Kind>,
    /// Names of the target groups of the Service's ports, as far as it is valid.
    pub(crate) target_groups: BTreeSet<String>,
    /// Set for every goal: a deletion needs them too.
    pub(crate) named_groups: NamedGroups,
    pub(crate) findings: Vec<Finding>,
}

impl Wanted {
    pub(crate) fn not_found(&self) -> ProviderError {
        ProviderError::new(ErrorClass::NotFound, format!("Load balancer not found: {}", self.name))
    }
}

/// Security groups that annotations name, in the order written. The user manages them: they are never created, changed
/// or deleted.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct NamedGroups {
    /// `security-groups`; empty when there is no such annotation.
    pub(crate) instead: Vec<String>,
    /// `extra-security-groups`
    pub(crate) extra: Vec<String>,
}

#[derive(Debug, Clone)]
pub(crate) enum Goal {
    /// Nothing of either kind.
    Absent,
    Classic(Box<Classic>),
    Network(Box<Network>),
}

impl Goal {
    pub(crate) fn common(&self) -> Option<&Common> {
        match self {
            Self::Absent => None,
            Self::Classic(classic) => Some(&classic.common),
            Self::Network(network) => Some(&network.common),
        }
    }

    pub(crate) fn common_mut(&mut self) -> Option<&mut Common> {
        match self {
            Self::Absent => None,
            Self::Classic(classic) => Some(&mut classic.common),
            Self::Network(network) => Some(&mut network.common),
        }
    }
}

/// Fields of both kinds of balancers.
#[derive(Debug, Clone, Default)]
pub(crate) struct Common {
    /// Whether the balancer must exist already: only its nodes changed.
    pub(crate) must_exist: bool,
    pub(crate) internal: bool,
    /// Truncated to the network address, sorted, unique.
    pub(crate) source_ranges: Vec<IpNet>,
    /// The error if they allow no client: a balancer that exists is closed, and none is created.
    pub(crate) no_client: Option<ProviderError>,
    pub(crate) subnets: Subnets,
    /// `additional-resource-tags`, without reserved keys.
    pub(crate) tags: BTreeMap<String, String>,
    /// The names of the nodes that get traffic, by instance ID.
    pub(crate) targets: BTreeMap<String, String>,
    /// The number of nodes whose provider ID names no instance.
    pub(crate) wrong_ids: usize,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum Subnets {
    /// Found by tags and routes.
    #[default]
    Discover,
    /// IDs or Name tags, in the order written.
    Named(Vec<String>),
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Classic {
    pub(crate) common: Common,
    pub(crate) listeners: Vec<elb::Listener>,
    /// Complete: every field that upstream sends.
    pub(crate) attributes: elb::Attributes,
    pub(crate) health_check: elb::HealthCheck,
    pub(crate) proxy_protocol: bool,
    pub(crate) ssl_policy: Option<String>,
    /// Permissions of the managed group: protocol (`tcp`) and port of each Service port.
    pub(crate) open_ports: Vec<(String, i32)>,
}

#[derive(Debug, Clone, Default)]
pub(crate) struct Network {
    pub(crate) common: Common,
    /// One per Service port, sorted by port and protocol; empty only with [`Network::is_hosts_only`].
    pub(crate) ports: Vec<Port>,
    /// `eip-allocations`, one per subnet; used at creation only.
    pub(crate) allocations: Vec<String>,
    /// `private-ipv4-addresses`, one per subnet; used at creation only.
    pub(crate) private_ipv4: Vec<String>,
    /// The error if they cannot be read: no balancer is created.
    pub(crate) no_addresses: Option<ProviderError>,
    /// Balancer attributes that are kept equal, complete.
    pub(crate) attributes: elbv2::Attributes,
    /// `target-group-attributes`; `None` when there is no such annotation.
    pub(crate) target_group_attributes: Option<elbv2::Attributes>,
}

impl Network {
    /// The ports of the health checks.
    pub(crate) fn probed(&self) -> BTreeSet<i32> {
        self.ports.iter().map(Port::probed).collect()
    }

    /// Whether only its nodes are updated, because the rest of its desired state is invalid: all others have ports.
    pub(crate) fn is_hosts_only(&self) -> bool {
        self.ports.is_empty()
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Port {
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

impl Port {
    /// The name of the target group.
    pub(crate) fn target_group(&self, cluster: &str, service: &ServiceKey) -> String {
        let numbers = [self.port, self.node_port, self.health_check.interval].map(|number| number.to_string());
        let [port, node_port, interval] = &numbers;
        let settings = [port, node_port, &*self.traffic_protocol, &*self.health_check.protocol, interval];
        names::target_group(cluster, service, settings)
    }
}

impl Port {
    /// The port of the health check.
    pub(crate) fn probed(&self) -> i32 {
        // Else it is `traffic-port`.
        self.health_check.port.parse().unwrap_or(self.node_port)
    }

    /// Names the parts of a plan that are about the port.
    pub(crate) fn key(&self) -> String {
        format!("port {}", self.port)
    }
}
