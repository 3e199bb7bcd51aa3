//! The operations that this program calls, with their requirements: the source of the IAM policies, of metric labels,
//! and of the permission that an error names.

use ccm_kit::call::{self, Budget, Meaning, Pace};

use super::codes;
use super::write::Write;

/// An AWS service that this program calls.
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
    /// The SDK's service ID, also used as metric label and in `[ServiceOverride]`.
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

    /// The dry run of the operation.
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

    /// Below AWS's limits per account and region: EC2 publishes 20 paged reads and 5 writes a second, Elastic Load
    /// Balancing publishes none. Both kinds of balancers share their budgets.
    fn budget(&self) -> Budget {
        let (name, per_second, burst, at_once) = match (self.service, self.is_mutating()) {
            (Service::Ec2 | Service::Sts, false) => ("ec2-read", 15.0, 60.0, 10),
            (Service::Ec2 | Service::Sts, true) => ("ec2-write", 5.0, 40.0, 8),
            (Service::Elb | Service::ElbV2, false) => ("elb-read", 10.0, 40.0, 8),
            (Service::Elb | Service::ElbV2, true) => ("elb-write", 4.0, 20.0, 5),
        };
        Budget { name, pace: Pace { per_second, burst, at_once } }
    }

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

    fn lacking(message: &str) -> Option<String> {
        codes::lacking(message)
    }

    fn redact(message: &str) -> &str {
        codes::redact(message)
    }
}

/// Writes that must not be repeated: a second request creates another object, fails because of the first, or fails as a
/// whole after a part succeeded. The caller observes again instead. None of them takes a client token. A repeated
/// deletion may report a missing object, which its caller treats as success.
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

impl Write {
    pub(crate) fn operation(&self) -> Operation {
        match self {
            Self::Ec2(write) => Operation::new(Service::Ec2, write.name()),
            Self::Elb(write) => Operation::new(Service::Elb, write.name()),
            Self::ElbV2(write) => Operation::new(Service::ElbV2, write.name()),
        }
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
pub(crate) use tests::READS;
