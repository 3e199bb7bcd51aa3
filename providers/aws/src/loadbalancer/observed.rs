//! The objects in AWS for a Service: those with its ownership tags, and those that the desired state refers to.
//! Complete, or an error.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::client::Tags;
use crate::client::ec2::{AvailabilityZone, RouteTable, SecurityGroup, Subnet};
use crate::client::elb;
use crate::client::elbv2;

/// The observation for one desired state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) classic: Option<Classic>,
    pub(crate) network: Option<Network>,
    /// Target groups of this Service, by tags or name, that no listener of its balancer uses: leftovers.
    #[serde(alias = "loose_target_groups")]
    pub(crate) unattached_target_groups: Vec<TargetGroup>,
    /// By ID: groups with the cluster's tag in the VPC, of the balancer, of the wanted instances, named by the desired
    /// state or with the name of a managed group, and those with rules that refer to one of the balancer's or managed
    /// groups.
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    /// Subnets of the VPC and named ones, by ID.
    pub(crate) subnets: BTreeMap<String, Subnet>,
    /// Route tables of the VPC; empty if no subnets have to be discovered.
    pub(crate) route_tables: Vec<RouteTable>,
    /// By name; absent zones are unknown.
    pub(crate) zones: BTreeMap<String, AvailabilityZone>,
    /// The wanted instances that exist and are not shutting down, by ID.
    pub(crate) instances: BTreeMap<String, Instance>,
    /// IDs of the wanted instances that EC2 does not show.
    #[serde(default, alias = "unseen")]
    pub(crate) missing_instances: BTreeSet<String>,
    /// Other network balancers of the VPC by name, whose health-check rules must stay. Read only if
    /// `security_groups::nodes::gives_up_rules`; else empty.
    pub(crate) other_balancers: BTreeMap<String, Probes>,
}

impl Observed {
    /// All target groups, those in use first.
    pub(crate) fn target_groups(&self) -> impl Iterator<Item = &TargetGroup> {
        self.network.iter().flat_map(|network| &network.target_groups).chain(&self.unattached_target_groups)
    }
}

/// Ports and source networks of a network balancer's health checks.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probes {
    /// Health-check ports of its target groups; the group's own port where that is `traffic-port`.
    pub(crate) ports: BTreeSet<i32>,
    /// IPv4 blocks of its subnets.
    pub(crate) cidrs: BTreeSet<String>,
}

/// A classic balancer with everything that plans compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Classic {
    pub(crate) balancer: elb::LoadBalancer,
    pub(crate) attributes: elb::Attributes,
    /// Read only if policies are wanted or exist.
    pub(crate) policies: Vec<elb::Policy>,
    pub(crate) tags: Tags,
}

/// A network balancer with everything that plans compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) balancer: elbv2::LoadBalancer,
    pub(crate) attributes: elbv2::Attributes,
    pub(crate) listeners: Vec<elbv2::Listener>,
    /// The groups its listeners forward to.
    pub(crate) target_groups: Vec<TargetGroup>,
    pub(crate) tags: Tags,
}

/// A target group with everything that plans compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetGroup {
    pub(crate) group: elbv2::TargetGroup,
    /// `None` if not read: only read if attributes are annotated.
    pub(crate) attributes: Option<elbv2::Attributes>,
    pub(crate) targets: Vec<elbv2::TargetHealth>,
    pub(crate) tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) security_groups: Vec<String>,
}
