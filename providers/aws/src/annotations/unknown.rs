//! Keys that this provider does not read: misspelt ones, and those of the aws-load-balancer-controller.
//!
//! That controller reads `service.beta.kubernetes.io/` and `service.kubernetes.io/`
//! (`kubernetes-sigs/aws-load-balancer-controller`, `pkg/annotations/constants.go`).

use ccm_provider::{Finding, Severity};

use super::{INTERNAL, PREFIX, TABLE, TYPE};

const OTHER_DOMAIN: &str = "service.kubernetes.io";

/// Keys with this provider's prefix that only the aws-load-balancer-controller reads.
const OTHER_CONTROLLER_KEYS: &[&str] = &[
    "alpn-policy",
    "attributes",
    "disable-nlb-sg",
    "eip-allocations-discovery-tags",
    "enable-icmp-for-path-mtu-discovery",
    "enable-prefix-for-ipv6-source-nat",
    "enable-tcp-udp-listener",
    "healthcheck-success-codes",
    "inbound-sg-rules-on-private-link-traffic",
    "ip-address-type",
    "ipv6-addresses",
    "listener-attributes",
    "manage-backend-security-group-rules",
    "minimum-load-balancer-capacity",
    "multi-cluster-target-group",
    "name",
    "nlb-target-type",
    "proxy-protocol-per-target-group",
    "quic-enabled-containers",
    "quic-enabled-ports",
    SCHEME,
    "security-group-prefix-lists",
    "source-nat-ipv6-prefixes",
];

const SCHEME: &str = "scheme";

/// The controller that manages the Service's balancer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    ThisProgram,
    OtherController,
}

/// A finding about a key that looks like one of this provider but is not, with the key that may be meant.
pub(super) fn unknown(key: &str, value: &str, reader: Reader) -> Option<Finding> {
    let us = reader == Reader::ThisProgram;
    let theirs = |severity, message| us.then(|| Finding::new(severity, key, message).value(value));
    let (domain, name) = key.split_once('/').unwrap_or_default();
    let suffix = key.strip_prefix(PREFIX).unwrap_or_default();
    if suffix == SCHEME && value == "internal" {
        // The author expects a balancer that is not reachable from the internet.
        let message = format!(
            "only the aws-load-balancer-controller reads it: the load balancer of this Service is not internal; write {}: \"true\"",
            INTERNAL.row.key
        );
        return theirs(Severity::Warning, message);
    }
    if is_other_controllers(suffix) {
        let type_key = TYPE.row.key;
        let message = format!("belongs to the aws-load-balancer-controller ({type_key}: external); no effect here");
        return theirs(Severity::Info, message);
    }
    if domain == OTHER_DOMAIN && name.starts_with("aws-load-balancer-") {
        let hint = TABLE.meant(name).map(|key| format!("; did you mean {key:?}?")).unwrap_or_default();
        let message =
            format!("only the aws-load-balancer-controller reads keys of {OTHER_DOMAIN}; no effect here{hint}");
        return theirs(Severity::Warning, message);
    }
    TABLE.unknown(key, value, if us { &[] } else { OTHER_CONTROLLER_KEYS })
}

/// Whether the other controller has a key with this suffix. `listener-attributes.TCP-80` is one of
/// `listener-attributes`.
fn is_other_controllers(suffix: &str) -> bool {
    suffix.split('.').next().is_some_and(|name| OTHER_CONTROLLER_KEYS.contains(&name))
}
