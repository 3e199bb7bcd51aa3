//! The writes that make or change a classic balancer.

use ccm_provider::{ErrorClass, Finding, ProviderError, Severity, Verb};

use super::{groups, hosts, listeners, settings, step, subnets};
use crate::annotations::INTERNAL;
use crate::client::Id;
use crate::client::elb::LoadBalancer;
use crate::client::write::ElbWrite;
use crate::loadbalancer::desired::{Classic, Desired};
use crate::loadbalancer::observe::{self, Observed};
use crate::loadbalancer::plan::{Env, Planned, Step, scheme};
use crate::loadbalancer::security_groups::nodes;

/// What the parts of a plan are made from.
#[derive(Debug)]
pub(super) struct Context<'a> {
    pub(super) desired: &'a Desired,
    pub(super) classic: &'a Classic,
    pub(super) observed: &'a Observed,
    pub(super) env: &'a Env,
}

impl Context<'_> {
    /// Name of the balancer, for writes.
    pub(super) fn name(&self) -> String {
        self.desired.name.clone()
    }
}

/// The writes from observed to wanted. `subnets` are the subnets that the balancer shall stand in, in order.
///
/// Whatever lets traffic in is opened before it is needed and closed when nothing comes any more; whatever is made carries
/// its marks from the start. So a later plan finishes what one that died has begun. When only the hosts changed
/// ([`Common::must_exist`](crate::loadbalancer::desired::Common::must_exist)), only they are looked at.
///
/// # Errors
///
/// The wish cannot be met: the balancer or its group belongs to another cluster, or it cannot be told how to let the balancer
/// reach a node. Nothing must be written then.
pub(crate) fn plan(
    desired: &Desired,
    classic: &Classic,
    observed: &Observed,
    env: &Env,
    subnets: &dyn Fn() -> Result<Vec<String>, ProviderError>,
) -> Result<Planned, ProviderError> {
    let context = Context { desired, classic, observed, env };
    match &observed.classic {
        Some(existing) => {
            check_owner(&context, existing)?;
            match classic.common.must_exist {
                true => hosts_only(&context, existing),
                false => update(&context, existing, &subnets()?),
            }
        }
        None if classic.common.must_exist => {
            let message = format!("Load balancer not found: {}", desired.name);
            Err(ProviderError::new(ErrorClass::NotFound, message))
        }
        None => create(&context, subnets()?),
    }
}

/// The name of a balancer says which Service it is for, but not of which cluster: the same Service lives twice where a cluster
/// was restored beside the one that its backup was taken from.
fn check_owner(context: &Context<'_>, existing: &observe::Classic) -> Result<(), ProviderError> {
    let ownership = &context.env.ownership;
    if ownership.is_member(&existing.tags) {
        return Ok(());
    }
    Err(ProviderError::unknown(format!(
        "load balancer {} is not marked as belonging to this cluster; if it does, tag it {} = owned, otherwise delete it or \
         the Service",
        context.desired.name,
        ownership.cluster_key().unwrap_or_default()
    )))
}

fn create(context: &Context<'_>, subnets: Vec<String>) -> Result<Planned, ProviderError> {
    let Context { desired, classic, env, .. } = context;
    let groups = groups::plan(context, None)?;
    let rules = NodeRules::of(context, &groups.ids)?;
    let summary = |ids: Vec<String>, between: &str| Some(ids.join(between)).filter(|text| !text.is_empty());
    let scheme = scheme(classic.common.internal).to_owned();
    let listed = summary(classic.listeners.iter().map(listeners::text).collect(), ", ");
    let groups_told = summary(groups.ids.iter().map(ToString::to_string).collect(), " ");
    let write = ElbWrite::CreateLoadBalancer {
        balancer: context.name(),
        listeners: classic.listeners.clone(),
        subnets: subnets.clone(),
        security_groups: groups.ids,
        internal: classic.common.internal,
        tags: env.ownership.tags(&classic.common.tags, Some(&desired.service)),
    };
    let create = step(Verb::Create, "LoadBalancer", &desired.name, "the Service wants a classic load balancer", write)
        .change("scheme", None, Some(scheme))
        .change("subnets", None, summary(subnets, " "))
        .change("security groups", None, groups_told)
        .change("listeners", None, listed);

    let mut steps = groups.made;
    steps.push(create);
    steps.extend(listeners::policies(context, None));
    steps.extend(settings::attributes(context, None));
    steps.extend(settings::health_check(context, None));
    // Not before the balancer is there: without it, a rule for a group of the user's would be found by nobody.
    steps.extend(rules.open);
    steps.extend(hosts::register(context, None));
    steps.extend(rules.close);
    steps.extend(groups.removed);
    let findings = groups.findings.into_iter().chain(rules.findings).collect();
    Ok(Planned { steps, findings })
}

fn update(context: &Context<'_>, existing: &observe::Classic, wanted: &[String]) -> Result<Planned, ProviderError> {
    let balancer = &existing.balancer;
    let groups = groups::plan(context, Some(balancer))?;
    let rules = NodeRules::of(context, &groups.ids)?;
    let subnets = subnets::sync(context, balancer, wanted);

    let mut steps = groups.made;
    // The nodes let the main group in before the balancer comes from there alone.
    match groups.change {
        Some(change) => steps.extend(change.steps(rules.open)),
        None => steps.extend(rules.open),
    }
    steps.extend(subnets.steps);
    steps.extend(listeners::sync(context, balancer));
    steps.extend(listeners::policies(context, Some(existing)));
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

/// As upstream's `UpdateLoadBalancer`: hosts, their groups, and the TLS policy.
fn hosts_only(context: &Context<'_>, existing: &observe::Classic) -> Result<Planned, ProviderError> {
    let balancer = &existing.balancer;
    let ids: Vec<Id> = balancer.security_groups.iter().cloned().map(Id::Known).collect();
    let rules = NodeRules::of(context, &ids)?;
    let mut steps = listeners::ssl_policies(context, Some(existing));
    steps.extend(rules.open);
    steps.extend(hosts::register(context, Some(balancer)));
    steps.extend(hosts::deregister(context, balancer));
    steps.extend(rules.close);
    Ok(Planned { steps, findings: rules.findings })
}

/// What lets the balancer reach the nodes.
#[derive(Debug, Default)]
struct NodeRules {
    open: Vec<Step>,
    close: Vec<Step>,
    findings: Vec<Finding>,
}

impl NodeRules {
    /// For a balancer with these groups.
    fn of(context: &Context<'_>, ids: &[Id]) -> Result<Self, ProviderError> {
        let Context { desired, classic, observed, env } = context;
        if env.node_groups_untouched {
            return Ok(Self::default());
        }
        let Some(main) = nodes::main_group(ids, desired, observed, env) else { return Ok(Self::default()) };
        let wanted = nodes::groups(&classic.common, observed, env)?;
        let nodes::ClassicRules { open, close } = nodes::classic(main, &wanted.ids, observed, env);
        Ok(Self { open, close, findings: wanted.findings })
    }
}

/// Wishes that an existing balancer cannot be given, and what AWS tells that nobody understands.
fn noticed(context: &Context<'_>, balancer: &LoadBalancer) -> Vec<Finding> {
    let mut findings = Vec::new();
    let wanted = scheme(context.classic.common.internal);
    if !balancer.scheme.is_empty() && balancer.scheme != wanted {
        findings.push(Finding {
            severity: Severity::Warning,
            key: INTERNAL.row.key.to_owned(),
            value: Some(context.classic.common.internal.to_string()),
            message: format!(
                "the balancer stays {}: AWS cannot change the scheme; delete the Service and create it again",
                balancer.scheme
            ),
        });
    }
    if balancer.listeners.iter().any(|description| description.listener.is_none()) {
        findings.push(Finding {
            severity: Severity::Info,
            key: "load balancer".to_owned(),
            value: Some(balancer.name.clone()),
            message: "AWS tells of a listener without saying which; it is left alone".to_owned(),
        });
    }
    findings
}
