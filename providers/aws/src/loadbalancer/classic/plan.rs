//! The writes that create or change a classic balancer.

use ccm_provider::{Finding, ProviderError, Severity, Verb};

use super::{Context, groups, hosts, listeners, settings, subnets};
use crate::annotations::INTERNAL;
use crate::client::Id;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::desired::{Classic, Desired};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{self, Observed};
use crate::loadbalancer::security_groups::nodes;
use crate::loadbalancer::step::{Planned, scheme};

/// The writes from the observed to the desired balancer.
///
/// Rules are opened before they are needed and closed after their last use; new objects carry the ownership tags from
/// their creation. So a later plan completes an interrupted one. If only the nodes changed
/// ([`Common::must_exist`](crate::loadbalancer::desired::Common::must_exist)), nothing else is compared.
pub(crate) fn plan(
    desired: &Desired,
    classic: &Classic,
    observed: &Observed,
    env: &Env,
) -> Result<Planned, ProviderError> {
    let context = Context { desired, classic, observed, env };
    match &observed.classic {
        Some(existing) => {
            desired.check_owner(&existing.tags, env)?;
            match classic.common.must_exist {
                true => hosts_only(&context, existing),
                false => update(&context, existing, &context.subnets()?),
            }
        }
        None if classic.common.must_exist => Err(desired.not_found()),
        None => create(&context, context.subnets()?),
    }
}

fn create(context: &Context<'_>, subnets: Vec<String>) -> Result<Planned, ProviderError> {
    let Context { desired, classic, env, .. } = context;
    let groups = groups::plan(context, None)?;
    let rules = node_rules(context, &groups.ids)?;
    let summary = |ids: Vec<String>, between: &str| Some(ids.join(between)).filter(|text| !text.is_empty());
    let scheme = scheme(classic.common.internal).to_owned();
    let listed = summary(classic.listeners.iter().map(listeners::text).collect(), ", ");
    let group_ids = summary(groups.ids.iter().map(ToString::to_string).collect(), " ");
    let write = ElbWrite::CreateLoadBalancer {
        balancer: context.name(),
        listeners: classic.listeners.clone(),
        subnets: subnets.clone(),
        security_groups: groups.ids,
        internal: classic.common.internal,
        tags: env.ownership.tags(&classic.common.tags, Some(&desired.service)),
    };
    let create = context
        .step(Verb::Create, "LoadBalancer", "the Service wants a classic load balancer", write)
        .change("scheme", None, Some(scheme))
        .change("subnets", None, summary(subnets, " "))
        .change("security groups", None, group_ids)
        .change("listeners", None, listed);

    let mut steps = groups.made;
    steps.push(create);
    steps.extend(listeners::proxy_protocol(context, None));
    steps.extend(listeners::ssl_policies(context, None));
    steps.extend(settings::attributes(context, None));
    steps.extend(settings::health_check(context, None));
    // Not before the balancer exists: without it, nothing would find a rule for a group of the user.
    steps.extend(rules.open);
    steps.extend(hosts::register(context, None));
    steps.extend(rules.close);
    steps.extend(groups.removed);
    let findings = groups.findings.into_iter().chain(rules.findings).collect();
    Ok(Planned { steps, findings })
}

fn update(context: &Context<'_>, existing: &observed::Classic, wanted: &[String]) -> Result<Planned, ProviderError> {
    let balancer = &existing.balancer;
    let groups = groups::plan(context, Some(balancer))?;
    let rules = node_rules(context, &groups.ids)?;
    let subnets = subnets::sync(context, balancer, wanted);

    let mut steps = groups.made;
    // The nodes allow the main group before the balancer uses it alone.
    match groups.change {
        Some(change) => steps.extend(change.steps(rules.open)),
        None => steps.extend(rules.open),
    }
    steps.extend(subnets.steps);
    steps.extend(listeners::sync(context, balancer));
    steps.extend(listeners::proxy_protocol(context, Some(existing)));
    steps.extend(listeners::ssl_policies(context, Some(existing)));
    steps.extend(settings::tags(context, existing));
    steps.extend(settings::attributes(context, Some(&existing.attributes)));
    steps.extend(settings::health_check(context, balancer.health_check.as_ref()));
    steps.extend(hosts::register(context, Some(balancer)));
    steps.extend(hosts::deregister(context, balancer));
    steps.extend(rules.close);
    steps.extend(groups.removed);
    let findings = [groups.findings, rules.findings, subnets.findings, noticed(context, balancer)];
    Ok(Planned { steps, findings: findings.into_iter().flatten().collect() })
}

/// As upstream's `UpdateLoadBalancer`: nodes, their groups, and the TLS policy.
fn hosts_only(context: &Context<'_>, existing: &observed::Classic) -> Result<Planned, ProviderError> {
    let balancer = &existing.balancer;
    let ids: Vec<Id> = balancer.security_groups.iter().cloned().map(Id::Known).collect();
    let rules = node_rules(context, &ids)?;
    let mut steps = listeners::ssl_policies(context, Some(existing));
    steps.extend(rules.open);
    steps.extend(hosts::register(context, Some(balancer)));
    steps.extend(hosts::deregister(context, balancer));
    steps.extend(rules.close);
    Ok(Planned { steps, findings: rules.findings })
}

fn node_rules(context: &Context<'_>, ids: &[Id]) -> Result<nodes::ClassicRules, ProviderError> {
    let Context { desired, classic, observed, env } = context;
    let main = nodes::main_group(ids, desired, observed, env).filter(|_| !env.node_groups_untouched);
    let Some(main) = main else { return Ok(Default::default()) };
    let nodes::NodeGroups { ids, findings } = nodes::groups(&classic.common, observed, env)?;
    Ok(nodes::ClassicRules { findings, ..nodes::classic(main, &ids, observed, env) })
}

/// Settings that an existing balancer cannot get, and unknown listeners.
fn noticed(context: &Context<'_>, balancer: &LoadBalancer) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = scheme(context.classic.common.internal);
    if !balancer.scheme.is_empty() && balancer.scheme != wanted {
        let is = &balancer.scheme;
        let text =
            format!("the balancer stays {is}: AWS cannot change the scheme; delete the Service and create it again");
        let value = context.classic.common.internal.to_string();
        findings.push(Finding::warning(INTERNAL.row.key, text).value(value));
    }
    if balancer.listeners.iter().any(|description| description.listener.is_none()) {
        let text = "AWS reports a listener without its settings; it is left unchanged";
        findings.push(Finding::new(Severity::Info, "load balancer", text).value(balancer.name.clone()));
    }
    findings
}
