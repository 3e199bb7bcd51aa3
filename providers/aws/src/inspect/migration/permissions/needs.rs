//! What of the cluster needs a permission: only that makes its absence an error.

use std::collections::BTreeSet;

use ccm_provider::{Claims, Service, ServiceAction, ServiceWork};

use super::super::nodes::NodeInstances;
use super::INSTANCE_TAGS;
use crate::inspect::Inspector;
use crate::loadbalancer::wanted::{Goal, Wanted, of_service};
use crate::node::identity::{self, Machine};
use crate::permissions::{LOAD_BALANCER, NODE, ROUTE};

#[derive(Debug, Default)]
pub(super) struct Needs {
    /// The cluster's route table has routes to instances.
    routes: bool,
    fargate: bool,
    /// A node has an instance with several interfaces.
    several_interfaces: bool,
    balancers: bool,
    network: bool,
    /// A load balancer has a security group of its own.
    own_groups: bool,
    /// The rules of the nodes' groups follow the load balancers.
    node_groups: bool,
    tls_policy: bool,
    target_group_attributes: bool,
    tags_instances: bool,
}

impl Needs {
    pub(super) fn of(
        aws: &Inspector,
        cluster: &str,
        claims: &Claims,
        read: Option<&NodeInstances>,
        routes: bool,
    ) -> Self {
        let mut machines = claims.nodes.iter().map(|node| identity::wanted(node, None));
        let mut instances = read.iter().flat_map(|read| read.instances());
        let mut needs = Self {
            routes,
            fargate: machines.any(|it| matches!(it, identity::Wanted::Machine(Machine::Fargate(_)))),
            several_interfaces: instances.any(|instance| instance.interfaces.len() > 1),
            tags_instances: aws.tags_instances,
            ..Self::default()
        };
        let services = claims.services.iter().filter(|service| Service::wants_load_balancer(service));
        for service in services {
            // For a change of nodes, an invalid Service has a kind too.
            let work = ServiceWork::new(service, &[], ServiceAction::UpdateHosts);
            if let Ok(wanted) = of_service(cluster, &work, aws.env()) {
                needs.add(aws, &wanted);
            }
        }
        needs
    }

    fn add(&mut self, aws: &Inspector, wanted: &Wanted) {
        let env = aws.env();
        self.balancers = true;
        self.node_groups |= !env.node_groups_untouched;
        let makes_group = match &wanted.goal {
            Goal::Absent => false,
            Goal::Classic(classic) => {
                self.tls_policy |= classic.ssl_policy.is_some();
                env.shared_group.is_none()
            }
            Goal::Network(network) => {
                self.network = true;
                self.target_group_attributes |= network.target_group_attributes.is_some();
                env.managed_network_groups
            }
        };
        self.own_groups |= makes_group && wanted.named_groups.instead.is_empty();
    }

    /// Whether work of the cluster fails without a permission, which is in these files.
    pub(super) fn include(&self, permission: &str, files: &BTreeSet<&str>) -> bool {
        match permission {
            "ec2:DescribeNetworkInterfaces" => self.fargate,
            "ec2:ModifyNetworkInterfaceAttribute" => self.routes && self.several_interfaces,
            "ec2:CreateSecurityGroup" | "ec2:DeleteSecurityGroup" | "ec2:CreateTags" => self.own_groups,
            "ec2:DescribeSecurityGroups" | "ec2:AuthorizeSecurityGroupIngress" | "ec2:RevokeSecurityGroupIngress" => {
                self.own_groups || self.node_groups
            }
            INSTANCE_TAGS | "ec2:DeleteTags" => self.tags_instances,
            "elasticloadbalancing:DescribeLoadBalancerPolicies" => self.tls_policy,
            "elasticloadbalancing:DescribeTargetGroupAttributes" => self.target_group_attributes,
            "elasticloadbalancing:DescribeListeners"
            | "elasticloadbalancing:DescribeTargetGroups"
            | "elasticloadbalancing:DescribeTargetHealth" => self.network,
            _ => {
                files.contains(NODE)
                    || (self.balancers && files.contains(LOAD_BALANCER))
                    || (self.routes && files.contains(ROUTE))
            }
        }
    }
}
