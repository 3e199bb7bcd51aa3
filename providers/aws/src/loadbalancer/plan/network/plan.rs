//! The writes that create or change a network balancer.

use ccm_provider::{Finding, ProviderError, Risk, Severity, Verb};

use super::security::{self, Security};
use super::{Context, KIND, group, port, step, warn};
use crate::annotations::{EIP_ALLOCATIONS, INTERNAL, Key, PRIVATE_IPV4, check_tags, invalid};
use crate::client::Id;
use crate::client::elbv2::{self, Attributes, SubnetMapping};
use crate::client::write::ElbV2Write;
use crate::loadbalancer::claim;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{self, Observed};
use crate::loadbalancer::step::{AFTER_RULES, Kind, Planned, Step, scheme};
use crate::loadbalancer::wanted::network::LOGS;
use crate::loadbalancer::wanted::{Network, Wanted};

/// The writes from the observed to the desired balancer.
///
/// The order keeps traffic flowing and lets a later plan complete any prefix: groups and rules are opened first (those of
/// the nodes once the balancer exists), a target group is filled before a listener forwards to it, the listener leaves
/// the old group before that is deleted, and rules are closed last. New objects carry the ownership tags from their
/// creation, so that a later plan finds them.
///
/// With [`Network::is_hosts_only`], only targets are updated.
pub(crate) fn plan(
    desired: &Wanted,
    network: &Network,
    observed: &Observed,
    env: &Env,
) -> Result<Planned, ProviderError> {
    let tags = env.ownership.tags(&network.common.tags, Some(&desired.service));
    let context = Context { desired, network, observed, env, tags };
    let mut planned = Planned::default();
    match context.existing() {
        Some(existing) => {
            let elbv2::LoadBalancer { name, kind, .. } = &existing.balancer;
            if kind != KIND {
                let message = format!("load balancer {name} is of type {kind}, not {KIND}; delete or rename it");
                return Err(ProviderError::unknown(message));
            }
            observed.check()?;
            claim::check(desired, &existing.tags, env)?;
            planned.steps = group::hosts(&context);
            if network.is_hosts_only() {
                return Ok(planned);
            }
            if let Some(error) = &observed.unread {
                planned.errors.push(error.clone());
                return Ok(planned);
            }
            planned.findings = warn::fixed(&context, existing);
        }
        None if network.common.must_exist => return Err(desired.not_found()),
        None => {}
    }
    let current: Vec<String> = match context.existing() {
        Some(existing) => existing.balancer.zones.iter().map(|zone| zone.subnet.clone()).collect(),
        None => context.subnets()?,
    };
    let mut close = Vec::new();
    // Without subnets, no rule for health checks would be wanted.
    let security = match &observed.unread_groups {
        Some(error) => Err(error.clone()),
        None if current.is_empty() => {
            Err(ProviderError::unknown(format!("AWS shows load balancer {} without its subnets", desired.name)))
        }
        None => security::plan(&context, &current),
    };
    match (security, context.existing()) {
        (Ok(security), existing) => {
            let Security { wanted, open, at_nodes, close: later, findings, errors } = security;
            planned.extend(Planned { steps: open, findings, errors });
            close = later;
            match existing {
                Some(existing) => {
                    planned.steps.extend(at_nodes);
                    planned.steps.extend(set_groups(&context, existing, wanted));
                }
                // The nodes are not opened for a balancer that AWS refuses.
                None => {
                    planned.steps.push(create(&context, &current, wanted)?.part(Kind::Frame, ""));
                    planned.steps.extend(at_nodes);
                }
            }
        }
        (Err(error), Some(_)) => planned.errors.push(error),
        (Err(error), None) => return Err(error),
    }
    let mut ports = port::plan(&context);
    if context.existing().is_none() && !ports.errors.is_empty() {
        return Err(ports.errors.remove(0));
    }
    planned.extend(ports);
    // Logs fail alone: AWS refuses a bucket that it may not write to.
    for (part, is_of_logs) in [("attributes", false), ("access logs", true)] {
        planned.steps.extend(attributes(&context, is_of_logs).map(|step| step.part(Kind::Settings, part)));
    }
    planned.steps.extend(close);
    Ok(planned)
}

fn create(context: &Context<'_>, subnets: &[String], security_groups: Vec<Id>) -> Result<Step, ProviderError> {
    let Network { common, allocations, private_ipv4, .. } = context.network;
    check_tags(&common.tags)?;
    check_addresses(context.network)?;
    check_count(&EIP_ALLOCATIONS, "EIP AllocationIDs", allocations, subnets)?;
    check_count(&PRIVATE_IPV4, "Private IPv4Addresses", private_ipv4, subnets)?;
    let mapping = |(index, subnet): (usize, &String)| SubnetMapping {
        subnet: subnet.clone(),
        allocation: allocations.get(index).cloned(),
        private_ipv4: private_ipv4.get(index).cloned(),
    };
    let mappings: Vec<SubnetMapping> = subnets.iter().enumerate().map(mapping).collect();
    let summary: Vec<String> = mappings.iter().map(mapping_text).collect();
    let groups: Vec<String> = security_groups.iter().map(ToString::to_string).collect();
    let write = ElbV2Write::CreateLoadBalancer {
        name: context.desired.name.clone(),
        mappings,
        security_groups,
        internal: common.internal,
        tags: context.tags.clone(),
    };
    let step =
        step(Verb::Create, "LoadBalancer", &context.desired.name, "the Service wants a network load balancer", write)
            .change("scheme", None, Some(scheme(common.internal).to_owned()))
            .change("subnets", None, Some(summary.join(" ")));
    Ok(if groups.is_empty() { step } else { step.change("security groups", None, Some(groups.join(" "))) })
}

fn mapping_text(mapping: &SubnetMapping) -> String {
    let address = mapping.allocation.as_ref().or(mapping.private_ipv4.as_ref());
    address.map_or_else(|| mapping.subnet.clone(), |address| format!("{} ({address})", mapping.subnet))
}

/// AWS refuses these only after a managed group was created. An existing balancer keeps its addresses, so they do not
/// matter to it.
fn check_addresses(network: &Network) -> Result<(), ProviderError> {
    let Network { common, allocations, private_ipv4, no_addresses, .. } = network;
    if let Some(error) = no_addresses {
        return Err(error.clone());
    }
    let refuse = |key: &str, given: &[String], message: String| {
        Err(invalid(Finding::new(Severity::Error, key, message).value(given.join(","))))
    };
    let (eips, private) = (EIP_ALLOCATIONS.row.key, PRIVATE_IPV4.row.key);
    match (common.internal, allocations.is_empty(), private_ipv4.is_empty()) {
        (true, false, _) => {
            refuse(eips, allocations, format!("AWS refuses Elastic IPs with {}; remove one of them", INTERNAL.row.key))
        }
        (false, _, false) => refuse(
            private,
            private_ipv4,
            format!("AWS takes them for internal load balancers only; add {}: \"true\"", INTERNAL.row.key),
        ),
        _ => Ok(()),
    }
}

fn check_count<T>(key: &Key<T>, what: &str, given: &[String], subnets: &[String]) -> Result<(), ProviderError> {
    if given.is_empty() || given.len() == subnets.len() {
        return Ok(());
    }
    let (count, of, names) = (given.len(), subnets.len(), subnets.join(" "));
    let message = format!(
        "Must have same number of {what} ({count}) and SubnetIDs ({of}): write one for each of {names}, in this order"
    );
    Err(invalid(Finding::new(Severity::Error, key.row.key, message).value(given.join(","))))
}

/// Replaces the balancer's security groups. AWS cannot remove the last one, nor add one to a balancer that was created
/// without.
fn set_groups(context: &Context<'_>, existing: &observed::Network, wanted: Vec<Id>) -> Option<Step> {
    if wanted.is_empty() {
        return None;
    }
    let mut before = existing.balancer.security_groups.clone();
    let mut after: Vec<String> = wanted.iter().map(ToString::to_string).collect();
    before.sort();
    after.sort();
    if before == after {
        return None;
    }
    let write = ElbV2Write::SetSecurityGroups { balancer: existing.balancer.arn.clone(), security_groups: wanted };
    Some(
        step(Verb::Update, "LoadBalancer", &context.desired.name, "other security groups are wanted", write)
            .change("security groups", Some(before.join(" ")), Some(after.join(" ")))
            .risk(Risk::Brief)
            .part(Kind::Settings, security::PART)
            .needs(AFTER_RULES),
    )
}

/// Sends the balancer attributes that differ: those of access logs, or the others. A new balancer has AWS's defaults.
fn attributes(context: &Context<'_>, is_of_logs: bool) -> Option<Step> {
    let wanted = &context.network.attributes;
    let found = match context.existing() {
        Some(existing) => Some(existing.attributes.as_ref()?),
        None => None,
    };
    let is = |key: &str| match found {
        Some(found) => found.get(key).cloned().unwrap_or_default(),
        None if key.ends_with(".enabled") => "false".to_owned(),
        None => String::new(),
    };
    let differs = |(key, value): &(&String, &String)| key.starts_with(LOGS) == is_of_logs && is(key) != **value;
    let changed: Attributes = wanted.iter().filter(differs).map(|(k, v)| (k.clone(), v.clone())).collect();
    let (balancer, attributes) = (context.balancer(), changed.clone());
    let write = ElbV2Write::ModifyLoadBalancerAttributes { balancer, attributes };
    let step =
        step(Verb::Update, "LoadBalancer", &context.desired.name, "its attributes differ from the annotations", write);
    group::with_attributes(step, &changed, is)
}
