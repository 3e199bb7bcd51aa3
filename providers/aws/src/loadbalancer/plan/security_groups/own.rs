//! The groups that a balancer has.

use std::collections::BTreeMap;

use ccm_provider::{ProviderError, Verb};

use super::steps::set_exactly;
use crate::client::ec2::{Permission, SecurityGroup};
use crate::client::write::Ec2Write;
use crate::client::{Id, Object, Tags, Write};
use crate::loadbalancer::env::Env;
use crate::loadbalancer::names;
use crate::loadbalancer::observed::Observed;
use crate::loadbalancer::rules::{Rule, peer};
use crate::loadbalancer::step::Step;
use crate::loadbalancer::wanted::{Classic, Common, Network, Wanted};

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Groups {
    pub(crate) ids: Vec<Id>,
    /// Creates or tags groups, before the balancer uses them.
    pub(crate) before: Vec<Step>,
    pub(crate) rules: Vec<Step>,
}

/// The groups of a classic balancer: those of the annotation, or `ElbSecurityGroup`, or a managed one; then the extra
/// ones.
pub(crate) fn classic(
    desired: &Wanted,
    classic: &Classic,
    observed: &Observed,
    env: &Env,
) -> Result<Groups, ProviderError> {
    let mut groups = match &env.shared_group {
        _ if !desired.named_groups.instead.is_empty() => named(&desired.named_groups.instead),
        Some(shared) => named(std::slice::from_ref(shared)),
        None => {
            let name = names::classic_group(&desired.name);
            let description = names::classic_group_description(&desired.name, &desired.service);
            let mut rules = Vec::new();
            for (protocol, port) in &classic.open_ports {
                let ranges = classic.common.source_ranges.iter();
                rules.extend(ranges.map(|range| Rule::port(protocol, *port, peer(range))));
            }
            managed(&name, &description, &classic.common, rules, observed, env)?
        }
    };
    for id in named(&desired.named_groups.extra).ids {
        if !groups.ids.contains(&id) {
            groups.ids.push(id);
        }
    }
    Ok(groups)
}

/// The groups of a network balancer.
///
/// | Mode | Balancer | Groups |
/// |---|---|---|
/// | not managed | exists | its current groups |
/// | not managed | does not exist | none |
/// | managed | exists, without groups | none: AWS cannot add any |
/// | managed | does not exist, or has groups | those of the annotation, or a managed one |
pub(crate) fn network(
    desired: &Wanted,
    network: &Network,
    observed: &Observed,
    env: &Env,
) -> Result<Groups, ProviderError> {
    let present = observed.network.as_ref().map(|network| &network.balancer.security_groups);
    match present {
        Some(present) if !env.managed_network_groups || present.is_empty() => return Ok(named(present)),
        None if !env.managed_network_groups => return Ok(Groups::default()),
        _ if !desired.named_groups.instead.is_empty() => return Ok(named(&desired.named_groups.instead)),
        _ => {}
    }
    let name = names::network_group(&desired.cluster_name, &desired.service, &desired.uid);
    let mut rules = Vec::new();
    for port in &network.ports {
        let (protocol, ranges) = (transport(&port.protocol), network.common.source_ranges.iter());
        rules.extend(ranges.map(|range| Rule::port(protocol, port.port, peer(range))));
    }
    managed(&name, names::NETWORK_GROUP_DESCRIPTION, &network.common, rules, observed, env)
}

/// EC2's name for the protocol of a listener or target group. (Upstream sends `tls`, which EC2 does not know.)
pub(crate) fn transport(protocol: &str) -> &'static str {
    if protocol == "UDP" { "udp" } else { "tcp" }
}

fn named(ids: &[String]) -> Groups {
    let mut groups = Groups::default();
    for id in ids {
        let id = Id::from(id.clone());
        if !groups.ids.contains(&id) {
            groups.ids.push(id);
        }
    }
    groups
}

/// A managed group, created for this balancer only; its rules are set exactly.
fn managed(
    name: &str,
    description: &str,
    common: &Common,
    mut rules: Vec<Rule>,
    observed: &Observed,
    env: &Env,
) -> Result<Groups, ProviderError> {
    rules.extend(common.source_ranges.iter().map(|range| Rule::too_big(peer(range))));
    let (id, before, found): (Id, Option<Step>, &[Permission]) = match by_name(name, &observed.groups, env) {
        Some(group) => (group.id.clone().into(), repair(group, env)?, &group.ingress),
        None => {
            let tags = env.ownership.tags(&common.tags, None);
            let made = Id::Made(Object::SecurityGroup(name.to_owned()));
            (made, Some(create(name, description, tags, env)), &[])
        }
    };
    let rules = set_exactly(&id, found, &rules, "the Service's clients need it");
    Ok(Groups { ids: vec![id], before: before.into_iter().collect(), rules })
}

/// In a VPC, EC2 keeps names unique.
pub(crate) fn by_name<'a>(
    name: &str,
    groups: &'a BTreeMap<String, SecurityGroup>,
    env: &Env,
) -> Option<&'a SecurityGroup> {
    groups.values().find(|group| group.name == name && group.vpc == env.vpc)
}

fn create(name: &str, description: &str, tags: Tags, env: &Env) -> Step {
    let write = Ec2Write::CreateSecurityGroup {
        name: name.to_owned(),
        description: description.to_owned(),
        vpc: env.vpc.clone(),
        tags,
    };
    let reason = "the load balancer needs a group of its own";
    Step::new(Verb::Create, "SecurityGroup", name, reason, Write::Ec2(write)).change("vpc", None, Some(env.vpc.clone()))
}

/// Adds the cluster's tags to a managed group without them: created when tags could not be part of the creation.
fn repair(group: &SecurityGroup, env: &Env) -> Result<Option<Step>, ProviderError> {
    let missing = env.ownership.repair(&group.id, &group.tags).map_err(ProviderError::unknown)?;
    if missing.is_empty() {
        return Ok(None);
    }
    let write = Ec2Write::CreateTags { resources: vec![group.id.clone().into()], tags: missing.clone() };
    let reason = "the managed group lacks the cluster's tags";
    let step = Step::new(Verb::Update, "SecurityGroup", &*group.id, reason, Write::Ec2(write));
    let step = missing.into_iter().fold(step, |step, (key, value)| {
        let before = group.tags.get(&key).cloned();
        step.change(format!("tag {key}"), before, Some(value))
    });
    Ok(Some(step))
}
