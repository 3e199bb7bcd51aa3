use std::collections::BTreeSet;

use ccm_kit::call::Operation as _;

use super::*;
use crate::client::write::{Ec2Write, ElbV2Write, ElbWrite};

/// All reads of [`crate::client::Api`].
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
    let source = include_str!("../mod.rs");
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
