//! The operations that are called, with what each needs: the source of the IAM policies, of metric labels, and of the
//! permission that an error names.

use super::write::{Ec2Write, ElbV2Write, ElbWrite, Write};

/// An AWS service, as far as it is called here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Service {
    Ec2,
    /// Classic balancers.
    Elb,
    /// Network balancers.
    ElbV2,
    Sts,
}

impl Service {
    /// The SDK's service ID, also the label of metrics and the word of a `[ServiceOverride]`.
    pub(crate) fn id(self) -> &'static str {
        match self {
            Self::Ec2 => "EC2",
            Self::Elb => "Elastic Load Balancing",
            Self::ElbV2 => "Elastic Load Balancing v2",
            Self::Sts => "STS",
        }
    }

    /// The prefix of its actions in IAM policies.
    pub(crate) fn iam(self) -> &'static str {
        match self {
            Self::Ec2 => "ec2",
            Self::Elb | Self::ElbV2 => "elasticloadbalancing",
            Self::Sts => "sts",
        }
    }
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Operation {
    pub(crate) service: Service,
    /// `DescribeInstances`
    pub(crate) name: &'static str,
}

impl Operation {
    pub(crate) const fn new(service: Service, name: &'static str) -> Self {
        Self { service, name }
    }

    /// The permission it needs: `ec2:DescribeInstances`.
    pub(crate) fn permission(self) -> String {
        format!("{}:{}", self.service.iam(), self.name)
    }

    /// Whether it changes anything.
    pub(crate) fn is_mutating(self) -> bool {
        !self.name.starts_with("Describe") && self.service != Service::Sts
    }
}

impl Write {
    /// The operation that it is.
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Ec2(write) => Operation::new(Service::Ec2, write.name()),
            Self::Elb(write) => Operation::new(Service::Elb, write.name()),
            Self::ElbV2(write) => Operation::new(Service::ElbV2, write.name()),
        }
    }
}

macro_rules! names {
    ($kind:ident: $($variant:ident)*) => {
        impl $kind {
            /// Names of all operations of this kind.
            pub(crate) const NAMES: &[&str] = &[$(stringify!($variant)),*];

            /// The name of the operation.
            pub(crate) fn name(&self) -> &'static str {
                match self {
                    $(Self::$variant { .. } => stringify!($variant),)*
                }
            }
        }
    };
}

names!(Ec2Write: CreateSecurityGroup DeleteSecurityGroup AuthorizeSecurityGroupIngress RevokeSecurityGroupIngress
    CreateTags DeleteTags CreateRoute ReplaceRoute DeleteRoute ModifyInstanceAttribute ModifyNetworkInterfaceAttribute);
names!(ElbWrite: CreateLoadBalancer DeleteLoadBalancer AddTags CreateLoadBalancerListeners DeleteLoadBalancerListeners
    AttachLoadBalancerToSubnets DetachLoadBalancerFromSubnets ApplySecurityGroupsToLoadBalancer ConfigureHealthCheck
    ModifyLoadBalancerAttributes CreateLoadBalancerPolicy SetLoadBalancerPoliciesForBackendServer
    SetLoadBalancerPoliciesOfListener RegisterInstancesWithLoadBalancer DeregisterInstancesFromLoadBalancer);
names!(ElbV2Write: CreateLoadBalancer DeleteLoadBalancer ModifyLoadBalancerAttributes SetSecurityGroups SetSubnets
    SetIpAddressType CreateListener ModifyListener DeleteListener CreateTargetGroup ModifyTargetGroup DeleteTargetGroup
    ModifyTargetGroupAttributes RegisterTargets DeregisterTargets AddTags RemoveTags);
