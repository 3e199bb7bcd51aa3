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

/// All reads of [`super::Api`].
#[cfg(test)]
pub(crate) const READS: &[Operation] = &[
    Operation::new(Service::Ec2, "DescribeInstances"),
    Operation::new(Service::Ec2, "DescribeInstanceTopology"),
    Operation::new(Service::Ec2, "DescribeNetworkInterfaces"),
    Operation::new(Service::Ec2, "DescribeAvailabilityZones"),
    Operation::new(Service::Ec2, "DescribeSubnets"),
    Operation::new(Service::Ec2, "DescribeRouteTables"),
    Operation::new(Service::Ec2, "DescribeSecurityGroups"),
    Operation::new(Service::Ec2, "DescribeVolumes"),
    Operation::new(Service::Elb, "DescribeLoadBalancers"),
    Operation::new(Service::Elb, "DescribeLoadBalancerAttributes"),
    Operation::new(Service::Elb, "DescribeLoadBalancerPolicies"),
    Operation::new(Service::Elb, "DescribeTags"),
    Operation::new(Service::ElbV2, "DescribeLoadBalancers"),
    Operation::new(Service::ElbV2, "DescribeLoadBalancerAttributes"),
    Operation::new(Service::ElbV2, "DescribeListeners"),
    Operation::new(Service::ElbV2, "DescribeTargetGroups"),
    Operation::new(Service::ElbV2, "DescribeTargetGroupAttributes"),
    Operation::new(Service::ElbV2, "DescribeTargetHealth"),
    Operation::new(Service::ElbV2, "DescribeTags"),
];

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
            #[cfg(test)]
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
    UpdateSecurityGroupRuleDescriptionsIngress CreateTags DeleteTags CreateRoute ReplaceRoute DeleteRoute ModifyInstanceAttribute ModifyNetworkInterfaceAttribute);
names!(ElbWrite: CreateLoadBalancer DeleteLoadBalancer AddTags CreateLoadBalancerListeners DeleteLoadBalancerListeners
    AttachLoadBalancerToSubnets DetachLoadBalancerFromSubnets ApplySecurityGroupsToLoadBalancer ConfigureHealthCheck
    ModifyLoadBalancerAttributes CreateLoadBalancerPolicy SetLoadBalancerPoliciesForBackendServer
    SetLoadBalancerPoliciesOfListener RegisterInstancesWithLoadBalancer DeregisterInstancesFromLoadBalancer);
names!(ElbV2Write: CreateLoadBalancer DeleteLoadBalancer ModifyLoadBalancerAttributes SetSecurityGroups
    CreateListener ModifyListener DeleteListener CreateTargetGroup ModifyTargetGroup DeleteTargetGroup
    ModifyTargetGroupAttributes RegisterTargets DeregisterTargets);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// The documentation of each method of the trait begins with the permission that it needs.
    #[test]
    fn the_reads_are_those_of_the_trait() {
        let source = include_str!("mod.rs");
        let (_, of_trait) = source.split_once("pub(crate) trait Api").unwrap();
        let (of_trait, _) = of_trait.split_once("async fn write").unwrap();
        let documented: Vec<&str> =
            of_trait.split('`').filter(|text| text.contains(":Describe") && !text.contains(' ')).collect();
        assert_eq!(documented.len(), of_trait.matches("async fn ").count(), "{documented:?}");
        let permissions: Vec<String> = READS.iter().copied().map(Operation::permission).collect();
        assert_eq!(documented, permissions);
        let distinct: BTreeSet<&Operation> = READS.iter().collect();
        assert_eq!(distinct.len(), READS.len());
    }
}
