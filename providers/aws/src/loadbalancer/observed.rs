//! The objects in AWS for a Service: those with its ownership tags, and those that the desired state refers to.
//! Complete, or an error.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;
use serde::{Deserialize, Serialize};

use crate::client::Tags;
use crate::client::ec2::{AvailabilityZone, RouteTable, SecurityGroup, Subnet};
use crate::client::elb;
use crate::client::elbv2;
use crate::loadbalancer::marks::Marks;

/// The observation for one desired state.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) classic: Option<Classic>,
    pub(crate) network: Option<Network>,
    /// Target groups of this Service, by tags or name, that no listener of its balancer uses: leftovers.
    #[serde(alias = "loose_target_groups")]
    pub(crate) unattached_target_groups: Vec<TargetGroup>,
    /// Whether the role may not list target groups, and none are expected.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) target_groups_denied: bool,
    /// Whether the role may not list security groups, and none are needed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) groups_denied: bool,
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
    /// The wanted instances of the cluster that exist and are not shutting down, by ID.
    pub(crate) instances: BTreeMap<String, Instance>,
    /// IDs of the wanted instances that EC2 does not show.
    #[serde(default, alias = "unseen")]
    pub(crate) missing_instances: BTreeSet<String>,
    /// IDs of the wanted instances that do not have the cluster's tag.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) foreign_instances: BTreeSet<String>,
    /// Those of the missing ones that were not shown for the first time: an instance is only gone if a second read, some time later,
    /// does not show it either.
    #[serde(default)]
    pub(crate) doubtful_instances: BTreeSet<String>,
    /// Other network balancers of the VPC by name, whose health-check rules must stay. Read only if
    /// `security_groups::nodes::gives_up_rules`; else empty.
    pub(crate) other_balancers: BTreeMap<String, Probes>,
    /// The health checks of this Service's balancer and the names of all network balancers, read at the same time.
    #[serde(default)]
    pub(crate) own_probes: Probes,
    #[serde(default)]
    pub(crate) network_balancers: BTreeSet<String>,
    /// Security groups of the user that other classic balancers of the cluster have too. Read only if the plan would
    /// revoke the rules for such a group.
    #[serde(default)]
    pub(crate) shared_groups: BTreeSet<String>,
    /// The security groups of all nodes of the cluster; `None` if not read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) node_groups: Option<BTreeSet<String>>,
    /// The ARNs of target groups whose targets could not be read.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) unread_targets: BTreeSet<String>,
    /// Set if only the balancer, its targets and the instances could be read: enough for the nodes to be followed.
    #[serde(default)]
    pub(crate) unread: Option<ProviderError>,
    /// Set if the security groups of an existing network balancer and of the nodes could not be read: everything else is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread_groups: Option<ProviderError>,
    /// Set if attributes or policies could not be read: everything else is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread_settings: Option<ProviderError>,
    /// Set if nothing shows whether a classic balancer is left from an earlier annotation: everything else is planned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread_classic: Option<ProviderError>,
    /// The same for a network balancer or its target groups.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) unread_network: Option<ProviderError>,
    /// Whether not even targets and instances could be read: only the address of the balancer is known.
    #[serde(default)]
    pub(crate) only_address: bool,
}

impl Observed {
    pub(crate) fn neighbors(&mut self, found: Neighbors) {
        self.other_balancers = found.others;
        self.own_probes = found.own;
        self.network_balancers = found.living;
    }

    /// An error if nothing can be planned.
    pub(crate) fn check(&self) -> Result<(), ProviderError> {
        self.unread.clone().filter(|_| self.only_address).map_or(Ok(()), Err)
    }

    /// The security groups of the balancers.
    pub(crate) fn attached_groups(&self) -> impl Iterator<Item = &String> {
        let classic = self.classic.iter().flat_map(|classic| &classic.balancer.security_groups);
        classic.chain(self.network.iter().flat_map(|network| &network.balancer.security_groups))
    }

    /// Whether an instance is registered if it is wanted: a stopped one is refused.
    pub(crate) fn can_join(&self, id: &str) -> bool {
        self.instances.get(id).is_some_and(|instance| !instance.is_stopped)
    }

    /// Whether an instance stays registered if it is wanted.
    pub(crate) fn may_stay(&self, id: &str) -> bool {
        self.instances.contains_key(id) || self.doubtful_instances.contains(id)
    }

    /// All target groups, those in use first.
    pub(crate) fn target_groups(&self) -> impl Iterator<Item = &TargetGroup> {
        self.network.iter().flat_map(|network| &network.target_groups).chain(&self.unattached_target_groups)
    }
}

/// The health checks of network balancers, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Neighbors {
    pub(crate) own: Probes,
    pub(crate) others: BTreeMap<String, Probes>,
    /// The names of all network balancers, also of those that are about to be created.
    pub(crate) living: BTreeSet<String>,
    /// The IPv4 blocks of all subnets.
    pub(crate) blocks: BTreeSet<String>,
}

impl Neighbors {
    /// With the balancers, other than the one of this name, that are about to check these ports.
    pub(crate) fn with_probed(mut self, probed: BTreeMap<String, BTreeSet<i32>>, balancer: &str) -> Self {
        for (name, ports) in probed.into_iter().filter(|(name, _)| name != balancer) {
            // One that does not exist yet may be created in any subnet.
            let new = || Probes { ports: BTreeSet::new(), cidrs: self.blocks.clone() };
            self.others.entry(name.clone()).or_insert_with(new).ports.extend(ports);
            self.living.insert(name);
        }
        self
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
    /// `None` if not read.
    pub(crate) attributes: Option<elb::Attributes>,
    /// `None` if not read; empty if no policies are wanted.
    pub(crate) policies: Option<Vec<elb::Policy>>,
    pub(crate) tags: Marks,
    /// The tags that this process has written, for the case that it may not read them.
    #[serde(default, skip_serializing_if = "Tags::is_empty")]
    pub(crate) added_tags: Tags,
}

/// A network balancer with everything that plans compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Network {
    pub(crate) balancer: elbv2::LoadBalancer,
    /// `None` if not read.
    pub(crate) attributes: Option<elbv2::Attributes>,
    pub(crate) listeners: Vec<elbv2::Listener>,
    /// The groups its listeners forward to.
    pub(crate) target_groups: Vec<TargetGroup>,
    pub(crate) tags: Marks,
}

/// A target group with everything that plans compare.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct TargetGroup {
    pub(crate) group: elbv2::TargetGroup,
    /// `None` if not read, as without annotated attributes.
    pub(crate) attributes: Option<elbv2::Attributes>,
    pub(crate) targets: Vec<elbv2::TargetHealth>,
    pub(crate) tags: Marks,
    /// Whether this process saw it behind the Service's balancer; known only if its tags may not be read.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub(crate) was_behind: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) security_groups: Vec<String>,
    #[serde(default)]
    pub(crate) is_stopped: bool,
}
