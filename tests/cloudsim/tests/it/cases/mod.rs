//! The cases, by service. The expectations follow AWS's documentation; there are no cases for `unverified` behavior.

mod ec2;
mod elb;
mod elbv2;

use crate::case::Case;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    [ec2::cases(), elb::cases(), elbv2::cases()].into_iter().flatten().collect()
}

/// Cases that intentionally violate the service model, to test the error code of AWS, each with a part of the reported
/// violation.
pub(crate) const BREAKS_THE_MODEL: &[(&str, &str)] = &[
    ("elb: a health check outside of its limits", "HealthCheck"),
    ("elbv2: a listener needs a group", "DefaultActions"),
    ("elbv2: thresholds outside of their limits", "HealthyThresholdCount"),
    ("elbv2: unknown words for scheme and address type", "is none of"),
    ("elbv2: a target group of a protocol that there isn't", "is none of"),
    ("elbv2: a group's port outside of its limits", "Port"),
];
