//! What AWS has of a Service's balancer: all that carries our marks, and what the wish refers to. Complete, or an error.

mod gather;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::client::Tags;
use crate::client::ec2::{AvailabilityZone, RouteTable, SecurityGroup, Subnet};
use crate::client::elb;
use crate::client::elbv2;

pub(crate) use gather::gather;

/// The observation for one wish.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) classic: Option<Classic>,
    pub(crate) network: Option<Network>,
    /// Target groups that our marks or names tie to this Service and that no listener of its balancer uses: leftovers.
    pub(crate) unattached_target_groups: Vec<TargetGroup>,
    /// By ID: groups with the cluster's tag in the VPC, groups of the balancer, groups of the wanted instances, groups that
    /// the wish or a name of ours points to, and groups with a rule that refers to any of the balancer's or of our names.
    pub(crate) groups: BTreeMap<String, SecurityGroup>,
    /// Subnets of the VPC (or those that the wish names), by ID.
    pub(crate) subnets: BTreeMap<String, Subnet>,
    /// Route tables of the VPC; empty where nothing has to be discovered.
    pub(crate) route_tables: Vec<RouteTable>,
    /// By name; zones that are absent are unknown.
    pub(crate) zones: BTreeMap<String, AvailabilityZone>,
    /// The wanted instances that exist and are not on their way out, by ID.
    pub(crate) instances: BTreeMap<String, Instance>,
    /// IDs of the wanted instances that EC2 does not show.
    #[serde(default)]
    pub(crate) unseen: BTreeSet<String>,
    /// Other live network balancers of the VPC by name: the rules for their health checks must survive. Read only where
    /// `security_groups::nodes::gives_up_rules` says that node rules of this Service's balancer go; else empty.
    pub(crate) other_balancers: BTreeMap<String, Probes>,
}

/// From where a network balancer probes which ports of the nodes.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Probes {
    /// Health-check ports of its target groups; the group's own port where that is `traffic-port`.
    pub(crate) ports: BTreeSet<i32>,
    /// IPv4 blocks of the subnets that it stands in.
    pub(crate) cidrs: BTreeSet<String>,
}

/// A classic balancer with all that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Classic {
    pub(crate) balancer: elb::LoadBalancer,
    pub(crate) attributes: elb::Attributes,
    /// Read only where the wish or the balancer has policies.
    pub(crate) policies: Vec<elb::Policy>,
    pub(crate) tags: Tags,
}

/// A network balancer with all that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) balancer: elbv2::LoadBalancer,
    pub(crate) attributes: elbv2::Attributes,
    pub(crate) listeners: Vec<elbv2::Listener>,
    /// The groups its listeners forward to.
    pub(crate) target_groups: Vec<TargetGroup>,
    pub(crate) tags: Tags,
}

/// A target group with all that is compared.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetGroup {
    pub(crate) group: elbv2::TargetGroup,
    /// `None` where it was not read: only read when the wish names attributes.
    pub(crate) attributes: Option<elbv2::Attributes>,
    pub(crate) targets: Vec<elbv2::TargetHealth>,
    pub(crate) tags: Tags,
}

/// What is needed of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    pub(crate) state: String,
    pub(crate) zone: String,
    pub(crate) vpc: String,
    /// IDs, in EC2's order.
    pub(crate) security_groups: Vec<String>,
}
