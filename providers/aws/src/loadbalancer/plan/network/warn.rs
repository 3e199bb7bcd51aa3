//! Settings that are fixed at creation and differ from the Service. Upstream ignores them silently.

use std::collections::BTreeSet;

use ccm_provider::Finding;

use super::Context;
use crate::annotations::{ADDITIONAL_TAGS, EIP_ALLOCATIONS, INTERNAL, Key, PRIVATE_IPV4, SECURITY_GROUPS, SUBNETS};
use crate::loadbalancer::observed;
use crate::loadbalancer::step::scheme;
use crate::loadbalancer::wanted::Subnets;

const REMEDIATION: &str = "to change it, delete the Service and create it again";

/// Findings about settings that AWS does not change on an existing balancer.
pub(super) fn fixed(context: &Context<'_>, existing: &observed::Network) -> Vec<Finding> {
    let (network, balancer) = (context.network, &existing.balancer);
    let mut findings = Vec::new();
    let wanted = scheme(network.common.internal);
    if balancer.scheme != wanted {
        findings.push(finding(&INTERNAL, wanted, &balancer.scheme));
    }
    let allocations = sorted(balancer.zones.iter().flat_map(|zone| &zone.allocations));
    if sorted(&network.allocations) != allocations {
        findings.push(finding(&EIP_ALLOCATIONS, &network.allocations.join(","), &words(allocations)));
    }
    // AWS may report addresses without the annotation, so an absent annotation is no difference.
    let addresses = sorted(balancer.zones.iter().flat_map(|zone| &zone.private_ipv4));
    if !network.private_ipv4.is_empty() && sorted(&network.private_ipv4) != addresses {
        findings.push(finding(&PRIVATE_IPV4, &network.private_ipv4.join(","), &words(addresses)));
    }
    let current = sorted(balancer.zones.iter().map(|zone| &zone.subnet));
    if let Subnets::Named(names) = &network.common.subnets
        && !context.subnets().is_ok_and(|wanted| sorted(&wanted) == current)
    {
        findings.push(finding(&SUBNETS, &names.join(","), &words(current)));
    }
    let named = &context.desired.named_groups.instead;
    if context.env.managed_network_groups && !named.is_empty() && balancer.security_groups.is_empty() {
        findings.push(finding(&SECURITY_GROUPS, &named.join(","), "created without security groups"));
    }
    let mut missing = context.env.ownership.user_tags(&network.common.tags);
    missing.retain(|_, _| existing.tags.read().is_some());
    missing.retain(|key, value| existing.tags.get(key) != Some(value));
    let missing: Vec<String> = missing.iter().map(|(key, value)| format!("{key}={value}")).collect();
    if !missing.is_empty() {
        findings.push(finding(&ADDITIONAL_TAGS, &missing.join(","), "created without these"));
    }
    findings
}

fn finding<T>(key: &Key<T>, wanted: &str, is: &str) -> Finding {
    let is = if is.is_empty() { "none" } else { is };
    Finding::warning(
        key.row.key,
        format!("no effect on an existing network load balancer, which stays as it is ({is}); {REMEDIATION}"),
    )
    .value(wanted)
}

fn sorted<'a>(texts: impl IntoIterator<Item = &'a String>) -> BTreeSet<&'a str> {
    texts.into_iter().map(String::as_str).collect()
}

fn words(texts: BTreeSet<&str>) -> String {
    texts.into_iter().collect::<Vec<_>>().join(",")
}
