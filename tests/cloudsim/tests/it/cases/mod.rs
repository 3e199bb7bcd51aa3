//! The cases, by service. What AWS documents decides what is expected; `unverified` behaviour is not in here.

mod ec2;
mod elb;
mod elbv2;
mod sts;

use crate::case::Case;

/// All cases.
pub(crate) fn all() -> Vec<Case> {
    [ec2::cases(), elb::cases(), elbv2::cases(), sts::cases()].into_iter().flatten().collect()
}

/// Cases that send what the model forbids, and a part of the complaint: the error code that AWS answers is the point of the case.
pub(crate) const BREAKS_THE_MODEL: &[(&str, &str)] = &[
    ("elb: a health check outside of its limits", "HealthCheck"),
    ("elbv2: a listener needs a group", "DefaultActions"),
    ("elbv2: thresholds outside of their limits", "HealthyThresholdCount"),
    ("elbv2: unknown words for scheme and address type", "is none of"),
    ("elbv2: a target group of a protocol that there isn't", "is none of"),
    ("elbv2: a group's port outside of its limits", "Port"),
];
