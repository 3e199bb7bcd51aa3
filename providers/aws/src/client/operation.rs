//! The operations that are called, with what each needs: the source of the IAM policies, of metric labels, and of the
//! permission that an error names.

use ccm_kit::call::{self, Budget, Meaning, Pace};

use super::codes;
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
    is_dry_run: bool,
}

impl Operation {
    pub(crate) const fn new(service: Service, name: &'static str) -> Self {
        Self { service, name, is_dry_run: false }
    }

    /// The question whether EC2 would carry the operation out.
    pub(crate) fn dry_run(self) -> Self {
        Self { is_dry_run: true, ..self }
    }
}

impl call::Operation for Operation {
    const CLOUD: &'static str = "AWS";

    fn service(&self) -> &'static str {
        self.service.id()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// Below what AWS gives an account and region: EC2 publishes 20 paged reads and 5 writes a second, Elastic Load
    /// Balancing publishes nothing. Both kinds of balancers share their budgets.
    fn budget(&self) -> Budget {
        let (name, per_second, burst, at_once) = match (self.service, self.is_mutating()) {
            (Service::Ec2 | Service::Sts, false) => ("ec2-read", 15.0, 60.0, 10),
            (Service::Ec2 | Service::Sts, true) => ("ec2-write", 5.0, 40.0, 8),
            (Service::Elb | Service::ElbV2, false) => ("elb-read", 10.0, 40.0, 8),
            (Service::Elb | Service::ElbV2, true) => ("elb-write", 4.0, 20.0, 5),
        };
        Budget { name, pace: Pace { per_second, burst, at_once } }
    }

    /// `ec2:DescribeInstances`
    fn permission(&self) -> String {
        format!("{}:{}", self.service.iam(), self.name)
    }

    fn is_mutating(&self) -> bool {
        !self.name.starts_with("Describe") && self.service != Service::Sts
    }

    fn needs_lease(&self) -> bool {
        self.is_mutating() && !self.is_dry_run
    }

    fn is_repeatable(&self) -> bool {
        !ONCE.iter().any(|(service, name)| *service == self.service && *name == self.name)
    }

    fn meaning(code: &str, _: Option<u16>) -> Meaning {
        codes::meaning(code)
    }

    fn remediation(meaning: Meaning, code: &str) -> Option<&'static str> {
        codes::remediation(meaning, code)
    }

    fn redact(message: &str) -> &str {
        codes::redact(message)
    }
}

/// Writes whose second request creates another object, fails on what the first one created, or fails as a whole when a
/// part took place. The caller observes again instead. None of them takes a client token. A repeated deletion may answer
/// that nothing is there, which its caller counts as done.
const ONCE: &[(Service, &str)] = &[
    (Service::Ec2, "CreateSecurityGroup"),
    (Service::Ec2, "AuthorizeSecurityGroupIngress"),
    (Service::Ec2, "RevokeSecurityGroupIngress"),
    (Service::Ec2, "CreateRoute"),
    (Service::Elb, "CreateLoadBalancer"),
    (Service::Elb, "CreateLoadBalancerListeners"),
    (Service::Elb, "CreateLoadBalancerPolicy"),
    (Service::ElbV2, "CreateLoadBalancer"),
    (Service::ElbV2, "CreateListener"),
    (Service::ElbV2, "CreateTargetGroup"),
];

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

    use ccm_kit::call::Operation as _;

    use super::*;

    #[test]
    fn what_is_sent_once_exists_and_has_all_that_create() {
        let writes =
            [(Service::Ec2, Ec2Write::NAMES), (Service::Elb, ElbWrite::NAMES), (Service::ElbV2, ElbV2Write::NAMES)];
        let known =
            |row: &(Service, &str)| writes.iter().any(|(service, names)| *service == row.0 && names.contains(&row.1));
        assert!(ONCE.iter().all(known), "a row names nothing");
        for (service, names) in writes {
            for name in names.iter().filter(|name| name.starts_with("Create") && **name != "CreateTags") {
                assert!(!Operation::new(service, name).is_repeatable(), "{name}");
            }
        }
        assert!(Operation::new(Service::Ec2, "DescribeInstances").is_repeatable());
        assert!(Operation::new(Service::ElbV2, "RegisterTargets").is_repeatable());
    }

    #[test]
    fn both_kinds_of_balancers_share_a_budget() {
        let budget = |service, name| Operation::new(service, name).budget().name;
        let read = budget(Service::Elb, "DescribeLoadBalancers");
        assert_eq!(read, budget(Service::ElbV2, "DescribeTargetHealth"));
        assert_ne!(read, budget(Service::ElbV2, "RegisterTargets"));
    }

    /// The documentation of each method of the traits begins with the permission that it needs.
    #[test]
    fn the_reads_are_those_of_the_traits() {
        let source = include_str!("mod.rs");
        let (_, of_traits) = source.split_once("pub(crate) trait ReadEc2").unwrap();
        let (of_traits, _) = of_traits.split_once("pub(crate) trait Api").unwrap();
        let documented: Vec<&str> =
            of_traits.split('`').filter(|text| text.contains(":Describe") && !text.contains(' ')).collect();
        assert_eq!(documented.len(), of_traits.matches("async fn ").count(), "{documented:?}");
        let permissions: Vec<String> = READS.iter().map(Operation::permission).collect();
        assert_eq!(documented, permissions);
        let distinct: BTreeSet<&Operation> = READS.iter().collect();
        assert_eq!(distinct.len(), READS.len());
    }
}
