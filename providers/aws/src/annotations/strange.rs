//! Keys that nobody reads here: misspelt ones, and those of the aws-load-balancer-controller.
//!
//! That controller reads `service.beta.kubernetes.io/` and `service.kubernetes.io/`
//! (`kubernetes-sigs/aws-load-balancer-controller`, `pkg/annotations/constants.go`).

use ccm_provider::{Finding, Severity};

use super::{INTERNAL, PREFIX, TABLE, TYPE};

/// The other spelling of our domain, which only the other controller knows.
const OTHER_DOMAIN: &str = "service.kubernetes.io";

/// Keys under our prefix that only the aws-load-balancer-controller reads.
const ELSEWHERE: &[&str] = &[
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

/// What makes an internal balancer of the other controller.
const SCHEME: &str = "scheme";

/// Who makes the balancer of the Service whose keys are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    Us,
    OtherController,
}

/// A key that looks like one of ours and is none: what is wrong, with the key that may be meant.
pub(super) fn strange(key: &str, value: &str, reader: Reader) -> Option<Finding> {
    let us = reader == Reader::Us;
    let theirs = |severity, message| {
        us.then(|| Finding { severity, key: key.to_owned(), value: Some(value.to_owned()), message })
    };
    let (domain, name) = key.split_once('/').unwrap_or_default();
    let suffix = key.strip_prefix(PREFIX).unwrap_or_default();
    if suffix == SCHEME && value == "internal" {
        // The author wants a balancer that the internet cannot reach.
        let message = format!(
            "only the aws-load-balancer-controller reads it: the balancer made here is not internal; write {}: \"true\"",
            INTERNAL.row.key
        );
        return theirs(Severity::Warning, message);
    }
    if is_elsewhere(suffix) {
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
    TABLE.unknown(key, value, if us { &[] } else { ELSEWHERE })
}

/// Whether the other controller has a key of this end. `listener-attributes.TCP-80` is one of `listener-attributes`.
fn is_elsewhere(suffix: &str) -> bool {
    suffix.split('.').next().is_some_and(|name| ELSEWHERE.contains(&name))
}
