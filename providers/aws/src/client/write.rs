//! Writes as data.
//!
//! A write refers to other objects by [`Id`]: known, or created by an earlier write of the same plan. So a whole first
//! creation can be printed and tested as one plan, and [`Write::complete`] completes each write just before it is sent.

use std::collections::BTreeMap;

use super::ec2::{Peer, Permission};
use super::elb::{Attributes as ClassicAttributes, HealthCheck as ClassicHealthCheck, Listener as ClassicListener};
use super::elbv2::{HealthCheck, SubnetMapping, Target};
use super::{Id, Made, Object, Tags};

/// One write: one operation of one service.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Write {
    Ec2(Ec2Write),
    /// Classic balancers.
    Elb(ElbWrite),
    /// Network balancers.
    ElbV2(ElbV2Write),
}

/// The writes of a service, each named after its operation.
macro_rules! writes {
    ($(#[$doc:meta])* $kind:ident {
        $($(#[$note:meta])* $operation:ident { $($field:ident: $type:ty),+ $(,)? },)+
    }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub(crate) enum $kind {
            $($(#[$note])* $operation { $($field: $type),+ },)+
        }

        impl $kind {
            #[cfg(test)]
            pub(crate) const NAMES: &[&str] = &[$(stringify!($operation)),+];

            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$operation { .. } => stringify!($operation),)+
                }
            }
        }
    };
}

writes! {
    Ec2Write {
        CreateSecurityGroup { name: String, description: String, vpc: String, tags: Tags },
        DeleteSecurityGroup { group: Id },
        AuthorizeSecurityGroupIngress { group: Id, permissions: Vec<Permission> },
        RevokeSecurityGroupIngress { group: Id, permissions: Vec<Permission> },
        /// Sets the descriptions of existing rules.
        UpdateSecurityGroupRuleDescriptionsIngress { group: Id, permissions: Vec<Permission> },
        CreateTags { resources: Vec<Id>, tags: Tags },
        /// Removes a tag only if it has the given value.
        DeleteTags { resources: Vec<String>, tags: Tags },
        CreateRoute { table: String, destination: String, target: RouteTarget },
        ReplaceRoute { table: String, destination: String, target: RouteTarget },
        DeleteRoute { table: String, destination: String },
        /// Lets an instance forward packets: `SourceDestCheck` off.
        ModifyInstanceAttribute { instance: String },
        /// The same for one network interface.
        ModifyNetworkInterfaceAttribute { interface: String },
    }
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum RouteTarget {
    Instance(String),
    Interface(String),
}

writes! {
    /// Writes to classic balancers. `balancer` is the name.
    ElbWrite {
        CreateLoadBalancer {
            balancer: String, listeners: Vec<ClassicListener>, subnets: Vec<String>, security_groups: Vec<Id>, internal: bool,
            tags: Tags,
        },
        DeleteLoadBalancer { balancer: String },
        AddTags { balancer: String, tags: Tags },
        CreateLoadBalancerListeners { balancer: String, listeners: Vec<ClassicListener> },
        DeleteLoadBalancerListeners { balancer: String, ports: Vec<i32> },
        AttachLoadBalancerToSubnets { balancer: String, subnets: Vec<String> },
        DetachLoadBalancerFromSubnets { balancer: String, subnets: Vec<String> },
        ApplySecurityGroupsToLoadBalancer { balancer: String, security_groups: Vec<Id> },
        ConfigureHealthCheck { balancer: String, check: ClassicHealthCheck },
        ModifyLoadBalancerAttributes { balancer: String, attributes: ClassicAttributes },
        CreateLoadBalancerPolicy { balancer: String, policy: String, kind: String, attributes: BTreeMap<String, String> },
        SetLoadBalancerPoliciesForBackendServer { balancer: String, instance_port: i32, policies: Vec<String> },
        SetLoadBalancerPoliciesOfListener { balancer: String, port: i32, policies: Vec<String> },
        SetLoadBalancerListenerSSLCertificate { balancer: String, port: i32, certificate: String },
        RegisterInstancesWithLoadBalancer { balancer: String, instances: Vec<String> },
        DeregisterInstancesFromLoadBalancer { balancer: String, instances: Vec<String> },
    }
}

writes! {
    ElbV2Write {
        CreateLoadBalancer {
            name: String, mappings: Vec<SubnetMapping>, security_groups: Vec<Id>, internal: bool, tags: Tags,
        },
        DeleteLoadBalancer { balancer: String },
        ModifyLoadBalancerAttributes { balancer: Id, attributes: BTreeMap<String, String> },
        SetSecurityGroups { balancer: String, security_groups: Vec<Id> },
        CreateListener { balancer: Id, listener: ListenerSettings, tags: Tags },
        ModifyListener { listener: String, desired: ListenerSettings },
        DeleteListener { listener: String },
        CreateTargetGroup { name: String, protocol: String, port: i32, vpc: String, health_check: HealthCheck, tags: Tags },
        /// Sends the health check; path and timeout only if they are set, protocol and interval only with `pace`: AWS
        /// refused them on network balancers for years, even unchanged.
        ModifyTargetGroup { target_group: String, health_check: HealthCheck, pace: bool },
        DeleteTargetGroup { target_group: String },
        ModifyTargetGroupAttributes { target_group: Id, attributes: BTreeMap<String, String> },
        /// At most [`TARGETS_AT_ONCE`].
        RegisterTargets { target_group: Id, targets: Vec<Target> },
        /// At most [`TARGETS_AT_ONCE`].
        DeregisterTargets { target_group: String, targets: Vec<Target> },
    }
}

/// The number of targets of a target group that a call may name.
pub(crate) const TARGETS_AT_ONCE: usize = 100;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ListenerSettings {
    pub(crate) port: i32,
    /// `TCP`, `UDP`, `TLS`, `TCP_UDP`
    pub(crate) protocol: String,
    /// ARN of the certificate, with `TLS`.
    pub(crate) certificate: Option<String>,
    /// With `TLS`; `None` leaves what the listener has, or AWS's default if it is new.
    pub(crate) ssl_policy: Option<String>,
    pub(crate) target_group: Id,
}

impl Write {
    /// The name of the operation.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Ec2(write) => write.name(),
            Self::Elb(write) => write.name(),
            Self::ElbV2(write) => write.name(),
        }
    }

    /// The object that the write creates, so that later writes of the plan can refer to it.
    pub(crate) fn makes(&self) -> Option<Object> {
        match self {
            Self::Ec2(Ec2Write::CreateSecurityGroup { name, .. }) => Some(Object::SecurityGroup(name.clone())),
            Self::ElbV2(ElbV2Write::CreateLoadBalancer { name, .. }) => Some(Object::Balancer(name.clone())),
            Self::ElbV2(ElbV2Write::CreateTargetGroup { name, .. }) => Some(Object::TargetGroup(name.clone())),
            _ => None,
        }
    }

    /// The write with every [`Id::Made`] replaced by the ID from the write that created the object.
    /// The error is the object whose creation is missing.
    pub(crate) fn complete(&self, made: &Made) -> Result<Self, Object> {
        let mut write = self.clone();
        for id in write.ids_mut() {
            if let Id::Made(object) = id {
                let known = made.get(object).ok_or_else(|| object.clone())?;
                *id = Id::Known(known.clone());
            }
        }
        Ok(write)
    }

    /// The IDs and ARNs of the objects that the write names, as far as they are known.
    pub(crate) fn known_ids(&self) -> Vec<String> {
        self.clone().ids_mut().into_iter().filter_map(|id| id.known().map(str::to_owned)).collect()
    }

    /// The name of the balancer, target group or security group that the write creates.
    pub(crate) fn creates(&self) -> Option<&str> {
        match self {
            Self::Ec2(Ec2Write::CreateSecurityGroup { name, .. })
            | Self::ElbV2(ElbV2Write::CreateLoadBalancer { name, .. } | ElbV2Write::CreateTargetGroup { name, .. })
            | Self::Elb(ElbWrite::CreateLoadBalancer { balancer: name, .. }) => Some(name),
            Self::Ec2(_) | Self::Elb(_) | Self::ElbV2(_) => None,
        }
    }

    fn ids_mut(&mut self) -> Vec<&mut Id> {
        match self {
            Self::Ec2(Ec2Write::DeleteSecurityGroup { group }) => vec![group],
            Self::Ec2(
                Ec2Write::AuthorizeSecurityGroupIngress { group, permissions }
                | Ec2Write::RevokeSecurityGroupIngress { group, permissions }
                | Ec2Write::UpdateSecurityGroupRuleDescriptionsIngress { group, permissions },
            ) => {
                let sources = permissions.iter_mut().flat_map(|permission| &mut permission.sources);
                let groups = sources.filter_map(|source| match &mut source.from {
                    Peer::Group { id, .. } => Some(id),
                    Peer::Ipv4(_) | Peer::Ipv6(_) | Peer::PrefixList(_) => None,
                });
                std::iter::once(group).chain(groups).collect()
            }
            Self::Ec2(Ec2Write::CreateTags { resources, .. }) => resources.iter_mut().collect(),
            Self::Elb(
                ElbWrite::CreateLoadBalancer { security_groups, .. }
                | ElbWrite::ApplySecurityGroupsToLoadBalancer { security_groups, .. },
            )
            | Self::ElbV2(
                ElbV2Write::CreateLoadBalancer { security_groups, .. }
                | ElbV2Write::SetSecurityGroups { security_groups, .. },
            ) => security_groups.iter_mut().collect(),
            Self::ElbV2(
                ElbV2Write::ModifyLoadBalancerAttributes { balancer: id, .. }
                | ElbV2Write::ModifyTargetGroupAttributes { target_group: id, .. }
                | ElbV2Write::RegisterTargets { target_group: id, .. },
            ) => vec![id],
            Self::ElbV2(ElbV2Write::CreateListener { balancer, listener, .. }) => {
                vec![balancer, &mut listener.target_group]
            }
            Self::ElbV2(ElbV2Write::ModifyListener { desired, .. }) => vec![&mut desired.target_group],
            Self::Ec2(_) | Self::Elb(_) | Self::ElbV2(_) => Vec::new(),
        }
    }
}
