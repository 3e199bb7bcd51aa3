//! The writes that create or change a classic balancer.

use ccm_provider::{Finding, ProviderError, Severity, Verb};

use super::{Context, groups, hosts, listeners, settings, subnets};
use crate::annotations::{INTERNAL, check_tags};
use crate::client::Id;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::claim;
use crate::loadbalancer::env::Env;
use crate::loadbalancer::observed::{self, Observed};
use crate::loadbalancer::plan::security_groups::nodes;
use crate::loadbalancer::step::{Besides, Kind, Planned, Step, scheme};
use crate::loadbalancer::wanted::{Classic, Wanted};

/// The writes from the observed to the desired balancer.
///
/// Rules are opened before they are needed and closed after their last use; new objects carry the ownership tags from
/// their creation. So a later plan completes an interrupted one. If only the nodes changed
/// ([`Common::must_exist`](crate::loadbalancer::wanted::Common::must_exist)), nothing else is compared.
pub(crate) fn plan(
    desired: &Wanted,
    classic: &Classic,
    observed: &Observed,
    env: &Env,
) -> Result<Planned, ProviderError> {
    let context = Context { desired, classic, observed, env };
    match &observed.classic {
        Some(existing) => {
            observed.check()?;
            claim::check(desired, &existing.tags, env)?;
            match classic.common.must_exist {
                true => Ok(hosts_only(&context, existing)),
                false => Ok(update(&context, existing)),
            }
        }
        None if classic.common.must_exist => Err(desired.not_found()),
        None => create(&context, context.subnets()?),
    }
}

fn create(context: &Context<'_>, subnets: Vec<String>) -> Result<Planned, ProviderError> {
    let Context { desired, classic, env, .. } = context;
    check_tags(&classic.common.tags)?;
    let groups = groups::plan(context, None)?;
    let rules = node_rules(context, &groups.ids);
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
    steps.push(create.part(Kind::Frame, ""));
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
    Ok(Planned { steps, findings, errors: rules.errors })
}

/// The nodes first: they follow whatever else is refused.
fn update(context: &Context<'_>, existing: &observed::Classic) -> Planned {
    let balancer = &existing.balancer;
    let mut planned = Planned { findings: noticed(context, balancer), ..Planned::default() };
    planned.steps.extend(hosts::register(context, Some(balancer)));
    planned.steps.extend(hosts::deregister(context, balancer));
    if let Some(error) = &context.observed.unread {
        planned.errors.push(error.clone());
        return planned;
    }
    let mut last = Vec::new();
    match groups::plan(context, Some(balancer)) {
        Ok(groups) => {
            let rules = node_rules(context, &groups.ids);
            planned.steps.extend(groups.made);
            // The nodes allow the main group before the balancer uses it alone.
            match groups.change {
                Some(change) => planned.steps.extend(change.steps(rules.open)),
                None => planned.steps.extend(rules.open),
            }
            last.extend(rules.close);
            last.extend(groups.removed);
            planned.findings.extend(groups.findings.into_iter().chain(rules.findings));
            planned.errors.extend(rules.errors);
        }
        Err(error) => planned.errors.push(error),
    }
    match context.subnets() {
        Ok(wanted) => planned.extend(subnets::sync(context, balancer, &wanted)),
        Err(error) => planned.errors.push(error),
    }
    planned.steps.extend(listeners::sync(context, balancer));
    planned.steps.extend(listeners::proxy_protocol(context, Some(existing)));
    planned.steps.extend(listeners::ssl_policies(context, Some(existing)));
    planned.steps.extend(settings::tags(context, existing));
    if let Some(attributes) = &existing.attributes {
        planned.steps.extend(settings::attributes(context, Some(attributes)));
    }
    planned.steps.extend(settings::health_check(context, balancer.health_check.as_ref()));
    planned.steps.extend(last);
    planned
}

/// As upstream's `UpdateLoadBalancer`: nodes, their groups, and the TLS policy.
fn hosts_only(context: &Context<'_>, existing: &observed::Classic) -> Planned {
    let balancer = &existing.balancer;
    let mut planned = Planned::default();
    planned.steps.extend(hosts::register(context, Some(balancer)));
    planned.steps.extend(hosts::deregister(context, balancer));
    if let Some(error) = &context.observed.unread {
        planned.errors.push(error.clone());
        return planned;
    }
    let ids: Vec<Id> = balancer.security_groups.iter().cloned().map(Id::Known).collect();
    let rules = node_rules(context, &ids);
    planned.steps.extend(listeners::ssl_policies(context, Some(existing)));
    planned.steps.extend(rules.open);
    planned.steps.extend(rules.close);
    planned.extend(Planned { steps: Vec::new(), findings: rules.findings, errors: rules.errors });
    planned
}

/// The rules of the nodes, those of each group as a part.
fn node_rules(context: &Context<'_>, ids: &[Id]) -> nodes::ClassicRules {
    let Context { desired, classic, observed, env } = context;
    let main = nodes::main_group(ids, desired, observed, env).filter(|_| !env.node_groups_untouched);
    let Some(main) = main else { return nodes::ClassicRules::default() };
    let of_nodes = nodes::groups(&classic.common, observed, env);
    let mut rules = nodes::classic(main, of_nodes, observed, env);
    let of_group = |step: Step| {
        let of = step.summary.id.clone();
        step.part(Kind::Rules, of).needs(&[Kind::Frame])
    };
    rules.open = rules.open.into_iter().map(of_group).collect();
    // Another balancer may get a group of the user meanwhile.
    let user = main.known().filter(|id| !groups::is_managed(context, id)).map(str::to_owned);
    let besides = user.map_or(Besides::Nothing, |group| Besides::Users { group, close: Vec::new() });
    let close = |step: Step| Step { besides: besides.clone(), ..step.part(Kind::Release, "") };
    rules.close = rules.close.into_iter().map(close).collect();
    rules
}

/// Settings that an existing balancer cannot get, and unknown listeners.
fn noticed(context: &Context<'_>, balancer: &LoadBalancer) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = scheme(context.classic.common.internal);
    if !balancer.scheme.is_empty() && balancer.scheme != wanted {
        let is = &balancer.scheme;
        let text = format!(
            "the load balancer stays {is}: AWS cannot change the scheme; delete the Service and create it again"
        );
        let value = context.classic.common.internal.to_string();
        findings.push(Finding::warning(INTERNAL.row.key, text).value(value));
    }
    if balancer.listeners.iter().any(|description| description.listener.is_none()) {
        let text = "AWS reports a listener without its settings; it is left unchanged";
        findings.push(Finding::new(Severity::Info, "load balancer", text).value(balancer.name.clone()));
    }
    findings
}
