//! Chooses the subnets of a balancer. Pure.
//!
//! Upstream: `findSubnets`, `findELBSubnets`, `resolveSubnetNameOrIDs`, `isSubnetPublic` in `pkg/providers/v1/aws.go`.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use ccm_kit::Glob;
use ccm_provider::ProviderError;

use super::env::Env;
use super::observed::Observed;
use super::step::scheme;
use super::wanted::{Common, Subnets};
use crate::annotations::SUBNETS;
use crate::client::ec2::{RouteTable, Subnet};
use crate::ownership::is_untagged;

/// Tags subnets for internet-facing balancers. Only presence matters.
pub(crate) const ROLE_PUBLIC: &str = "kubernetes.io/role/elb";
pub(crate) const ROLE_INTERNAL: &str = "kubernetes.io/role/internal-elb";
pub(crate) const NAME: &str = "Name";
const ID_PREFIX: &str = "subnet-";
const INTERNET_GATEWAY: &str = "igw";
/// Type of the zones that are chosen by default.
const ORDINARY_ZONE: &str = "availability-zone";

/// IDs of the subnets, in order. `current` are the balancer's present subnets: each stays while it qualifies, because
/// AWS refuses a second subnet of a zone and the removal of the last one.
pub(crate) fn wanted(
    subnets: &Subnets,
    internal: bool,
    current: &BTreeSet<String>,
    observed: &Observed,
    env: &Env,
) -> Result<Vec<String>, ProviderError> {
    match subnets {
        Subnets::Named(items) => named(items, observed, env),
        Subnets::Discover => discovered(internal, current, observed, env),
    }
}

/// The scheme that subnets are chosen for. AWS cannot change the scheme of an existing balancer, so that counts.
pub(crate) fn is_internal(common: &Common, observed: &Observed) -> bool {
    let existing = observed.classic.as_ref().map(|classic| &classic.balancer.scheme);
    existing.map_or(common.internal, |existing| existing == scheme(true))
}

/// Whether an item of the annotation is an ID; else it is a name.
pub(crate) fn is_id(item: &str) -> bool {
    item.starts_with(ID_PREFIX)
}

/// Whether a name of the annotation stands for a `Name` tag. Upstream sends it as a filter of EC2: `*` matches any
/// characters, `?` one, and `\` makes the next one literal.
pub(crate) fn matches(name: &str, tag: &str) -> bool {
    let literal = |char| match char {
        '*' => '\u{E000}',
        '?' => '\u{E001}',
        other => other,
    };
    let (mut pattern, mut chars) = (String::new(), name.chars());
    while let Some(char) = chars.next() {
        pattern.extend(if char == '\\' { chars.next().map(literal) } else { Some(char) });
    }
    Glob::new(&pattern).matches(&tag.chars().map(literal).collect::<String>())
}

/// In the order of the annotation, because addresses pair with subnets by position. Upstream returns EC2's order.
fn named(items: &[String], observed: &Observed, env: &Env) -> Result<Vec<String>, ProviderError> {
    let is_meant = |item: &str, subnet: &Subnet| match is_id(item) {
        true => subnet.id == item,
        false => subnet.vpc == env.vpc && subnet.tags.get(NAME).is_some_and(|name| matches(item, name)),
    };
    let mut left: Vec<&Subnet> = observed.subnets.values().collect();
    left.retain(|subnet| items.iter().any(|item| is_meant(item, subnet)));
    let found = left.len();
    let mut ids = Vec::new();
    let mut missing = Vec::new();
    for item in items {
        match left.iter().position(|subnet| is_meant(item, subnet)) {
            Some(place) => ids.push(left.remove(place).id.clone()),
            None => missing.push(item.as_str()),
        }
    }
    if found == items.len() {
        // The counts match, but not one to one: several subnets share a name and another name matches none.
        ids.extend(left.into_iter().map(|subnet| subnet.id.clone()));
        return Ok(ids);
    }
    let is_there = |item: &&str| observed.subnets.values().any(|subnet| is_meant(item, subnet));
    let (again, unknown): (Vec<&str>, Vec<&str>) = missing.into_iter().partition(is_there);
    let why = match (&*unknown, &*again) {
        ([], []) => {
            let more: Vec<&str> = left.iter().map(|subnet| &*subnet.id).collect();
            format!("{} too; write IDs where several subnets have one name", more.join(", "))
        }
        ([], again) => format!("{} is named twice; correct the annotation", again.join(", ")),
        (unknown, _) => format!("{} in VPC {} is none of them; correct the annotation", unknown.join(", "), env.vpc),
    };
    let (key, value) = (SUBNETS.row.key, items.join(","));
    let count = items.len();
    Err(ProviderError::unknown(format!("{key} {value:?}: expected to find {count}, but found {found} subnets: {why}")))
}

fn discovered(
    internal: bool,
    current: &BTreeSet<String>,
    observed: &Observed,
    env: &Env,
) -> Result<Vec<String>, ProviderError> {
    let mut candidates: Vec<&Subnet> = observed
        .subnets
        .values()
        .filter(|subnet| subnet.vpc == env.vpc)
        .filter(|subnet| env.ownership.is_member(&subnet.tags) || is_untagged(&subnet.tags))
        .collect();
    if candidates.is_empty() {
        let last_resort = observed.subnets.get(&env.self_subnet);
        tracing::warn!(vpc = env.vpc, subnet = env.self_subnet, "no subnet is tagged for this cluster");
        candidates.extend(last_resort);
    }
    if !internal {
        let mut public = Vec::new();
        for subnet in candidates {
            if is_public(&subnet.id, &observed.route_tables)? {
                public.push(subnet);
            }
        }
        candidates = public;
    }
    let mut by_zone: BTreeMap<&str, &Subnet> = BTreeMap::new();
    for subnet in candidates {
        let known = observed.zones.get(&subnet.zone);
        let here = current.contains(&subnet.id);
        if known.is_some_and(|zone| zone.kind != ORDINARY_ZONE) && !here {
            continue;
        }
        by_zone
            .entry(&subnet.zone)
            .and_modify(|best| {
                if rank(subnet, internal, current, env) < rank(best, internal, current, env) {
                    *best = subnet;
                }
            })
            .or_insert(subnet);
    }
    if by_zone.is_empty() {
        return Err(none(internal, env));
    }
    Ok(by_zone.into_values().map(|subnet| subnet.id.clone()).collect())
}

/// Smaller is better: the present subnet, then one with the role tag, then one with the cluster's tag, then the
/// smallest ID.
fn rank<'a>(
    subnet: &'a Subnet,
    internal: bool,
    current: &BTreeSet<String>,
    env: &Env,
) -> (Reverse<bool>, Reverse<bool>, Reverse<bool>, &'a str) {
    let role = if internal { ROLE_INTERNAL } else { ROLE_PUBLIC };
    (
        Reverse(current.contains(&subnet.id)),
        Reverse(subnet.tags.contains_key(role)),
        Reverse(env.ownership.is_member(&subnet.tags)),
        &subnet.id,
    )
}

/// Whether the route table of a subnet (its own or the main one) has a route to an internet gateway.
fn is_public(subnet: &str, tables: &[RouteTable]) -> Result<bool, ProviderError> {
    let own = tables.iter().find(|table| table.subnets.iter().any(|associated| associated == subnet));
    let table = own.or_else(|| tables.iter().find(|table| table.main)).ok_or_else(|| {
        ProviderError::unknown(format!(
            "could not locate routing table for subnet {subnet}: it has none of its own and the VPC has no main one; \
             associate one with it"
        ))
    })?;
    Ok(table.routes.iter().any(|route| route.gateway.starts_with(INTERNET_GATEWAY)))
}

fn none(internal: bool, env: &Env) -> ProviderError {
    let kind = if internal { "" } else { " public" };
    let key = env.ownership.cluster_key().unwrap_or_default();
    ProviderError::unknown(format!(
        "could not find any suitable subnets for creating the ELB: VPC {} has no{kind} subnet in an availability zone that is \
         tagged {key} or not tagged for any cluster; tag one, or name subnets in {}",
        env.vpc, SUBNETS.row.key
    ))
}
