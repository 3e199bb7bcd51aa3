//! Keys that nobody reads here: misspelt ones, and those of the aws-load-balancer-controller.
//!
//! That controller reads `service.beta.kubernetes.io/` and `service.kubernetes.io/`
//! (`kubernetes-sigs/aws-load-balancer-controller`, `pkg/annotations/constants.go`).

use ccm_kit::document::nearest;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, Severity};

use super::{INTERNAL, PREFIX, TABLE, TYPE};

/// What stands before the name in every key of ours.
const DOMAIN: &str = "service.beta.kubernetes.io";
/// The other spelling, which only the other controller knows.
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
    let (severity, message) = match key.strip_prefix(PREFIX) {
        Some(suffix) => under_our_prefix(key, suffix, value, reader),
        None => alike(key, reader).map(|message| (Severity::Warning, message)),
    }?;
    Some(Finding { severity, key: key.to_owned(), value: Some(value.to_owned()), message })
}

/// Whether the other controller has a key of this end. `listener-attributes.TCP-80` is one of `listener-attributes`.
fn is_elsewhere(suffix: &str) -> bool {
    suffix.split('.').next().is_some_and(|name| ELSEWHERE.contains(&name))
}

fn under_our_prefix(key: &str, suffix: &str, value: &str, reader: Reader) -> Option<(Severity, String)> {
    if TABLE.iter().any(|row| row.key == key) {
        return None;
    }
    let (elsewhere, us) = (is_elsewhere(suffix), reader == Reader::Us);
    if elsewhere && us && suffix == SCHEME && value == "internal" {
        // Who wrote this wants no balancer that the internet can reach.
        let message = format!(
            "only the aws-load-balancer-controller reads it: the balancer made here is not internal; write {}: \"true\"",
            INTERNAL.row.key
        );
        return Some((Severity::Warning, message));
    }
    if elsewhere {
        return us.then(|| {
            let type_key = TYPE.row.key;
            let message = format!("belongs to the aws-load-balancer-controller ({type_key}: external); no effect here");
            (Severity::Info, message)
        });
    }
    let ends = TABLE.iter().map(|row| end(row.key));
    let known: Vec<&str> = if us { ends.collect() } else { ends.chain(ELSEWHERE.iter().copied()).collect() };
    // By its end alone: of whole keys all would be alike.
    let hint = nearest(suffix, &known)
        .or_else(|| shortened(suffix, &known))
        .map(|end| format!("; did you mean {:?}?", format!("{PREFIX}{end}")));
    // A key that we never heard of may be a new one of the other controller.
    if hint.is_none() && !us {
        return None;
    }
    Some((Severity::Warning, format!("unknown key, no effect{}", hint.unwrap_or_default())))
}

/// The only key that has all words of this one, of which there are several: `cross-zone`, `additional-tags`.
fn shortened<'a>(suffix: &str, known: &[&'a str]) -> Option<&'a str> {
    let words: Vec<&str> = suffix.split(['-', '_', '.']).collect();
    let mut having = known.iter().filter(|end| words.iter().all(|word| end.split('-').any(|of_it| of_it == *word)));
    let only = having.next().filter(|_| having.next().is_none() && words.len() > 1)?;
    Some(only)
}

/// What is wrong with a key that has another prefix than ours, and one that looks like ours.
fn alike(key: &str, reader: Reader) -> Option<String> {
    if key == ANNOTATION_SOURCE_RANGES {
        return None;
    }
    if nearest(key, &[ANNOTATION_SOURCE_RANGES]).is_some() {
        return Some(format!("unknown key, no effect; did you mean {ANNOTATION_SOURCE_RANGES:?}?"));
    }
    let (domain, name) = key.split_once('/').unwrap_or(("", key));
    if domain == OTHER_DOMAIN && format!("{DOMAIN}/{name}").starts_with(PREFIX) {
        let message = format!(
            "only the aws-load-balancer-controller reads keys of {OTHER_DOMAIN}; no effect here{}",
            meant(name).map(|key| format!("; did you mean {key:?}?")).unwrap_or_default()
        );
        return (reader == Reader::Us).then_some(message);
    }
    let meant = meant(name);
    let familiar = domain.is_empty() || domain.contains("kubernetes") || domain.contains("k8s");
    let rest = plain(name).strip_prefix("aws").map(str::to_owned);
    let of_balancers = rest.is_some_and(|rest| NAMES.iter().any(|word| rest.starts_with(word)));
    let looks = is_nearly_aws(name)
        && (familiar || nearest(domain, &[DOMAIN]).is_some())
        && (of_balancers || meant.is_some() || domain == DOMAIN);
    looks.then(|| match meant {
        Some(key) => format!("unknown key, no effect; did you mean {key:?}?"),
        None => format!("unknown key, no effect; keys for load balancers begin with {PREFIX:?}"),
    })
}

/// Letters and digits, in lower case.
fn plain(text: &str) -> String {
    text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect()
}

/// How people call a balancer between `aws` and the end of a key.
const NAMES: [&str; 4] = ["loadbalancer", "elb", "nlb", "lb"];
/// How our keys begin, without what stands between words.
const SQUEEZED: &str = "awsloadbalancer";

/// What stands after our prefix.
fn end(key: &str) -> &str {
    key.strip_prefix(PREFIX).unwrap_or(key)
}

/// The key of ours that a name may mean, whatever stands between its words.
fn meant(name: &str) -> Option<&'static str> {
    let name = plain(name);
    let ends: Vec<(String, &str)> = TABLE.iter().map(|row| (plain(end(row.key)), row.key)).collect();
    let of_end = |end: &str| ends.iter().find(|(known, _)| known == end).map(|(_, key)| *key);
    let rest = name.strip_prefix("aws");
    if let Some(rest) = rest.and_then(|rest| NAMES.iter().find_map(|word| rest.strip_prefix(word))) {
        let known: Vec<&str> = ends.iter().map(|(end, _)| end.as_str()).collect();
        return of_end(nearest(rest, &known)?);
    }
    let full: Vec<String> = ends.iter().map(|(end, _)| format!("{SQUEEZED}{end}")).collect();
    let full: Vec<&str> = full.iter().map(String::as_str).collect();
    rest.and_then(of_end).or_else(|| of_end(nearest(&name, &full)?.strip_prefix(SQUEEZED)?))
}

/// Whether the first word of a name is `aws`, or one mistake away from it. Other clouds have keys of the same form.
fn is_nearly_aws(name: &str) -> bool {
    let first = name.split(['-', '_', '.']).next().unwrap_or_default();
    let mut letters: Vec<char> = first.to_lowercase().chars().collect();
    letters.sort_unstable();
    nearest(first, &["aws"]).is_some() || letters == ['a', 's', 'w'] || plain(first).starts_with("awsl")
}
