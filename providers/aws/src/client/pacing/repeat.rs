//! Which operations may be sent again when the answer to the first sending was lost.

use crate::client::operation::{Operation, Service};

/// Whether a second sending does no more than the first. All reads; and writes that state what shall be. A repeated
/// deletion may answer that there is nothing to delete, which its caller counts as done in any case.
pub(super) fn is_safe(operation: Operation) -> bool {
    !ONCE.iter().any(|(service, name)| *service == operation.service && *name == operation.name)
}

/// Writes whose second sending makes another object, fails on what the first one made, or fails as a whole when a part
/// took place. The caller looks again instead. None of them takes a client token.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};

    #[test]
    fn the_table_names_operations_that_exist_and_all_that_create() {
        let writes =
            [(Service::Ec2, Ec2Write::NAMES), (Service::Elb, ElbWrite::NAMES), (Service::ElbV2, ElbV2Write::NAMES)];
        let known =
            |row: &(Service, &str)| writes.iter().any(|(service, names)| *service == row.0 && names.contains(&row.1));
        assert!(ONCE.iter().all(known), "a row names nothing");
        for (service, names) in writes {
            for name in names.iter().filter(|name| name.starts_with("Create") && **name != "CreateTags") {
                assert!(!is_safe(Operation::new(service, name)), "{name}");
            }
        }
        assert!(is_safe(Operation::new(Service::Ec2, "DescribeInstances")));
        assert!(is_safe(Operation::new(Service::ElbV2, "RegisterTargets")));
    }
}
