//! The target group of a Service port: which one it is, what it takes to make it right.

use std::collections::BTreeSet;

use ccm_provider::{ProviderError, Risk, Verb};

use super::super::desired::Port;
use super::super::names;
use super::super::observe::{Network, TargetGroup};
use super::super::plan::{Step, spelled};
use super::plan::{Context, is_marked, step};
use crate::client::elbv2::{Attributes, HealthCheck, Target};
use crate::client::write::{ElbV2Write, Id, Object};

/// AWS takes so many targets in one call.
const CHUNK: usize = 100;

/// The group that a port shall have.
#[derive(Debug)]
pub(super) struct Chosen<'a> {
    pub(super) name: String,
    /// `None`: to be made.
    pub(super) found: Option<&'a TargetGroup>,
}

impl Chosen<'_> {
    /// To be named in writes.
    pub(super) fn id(&self) -> Id {
        match self.found {
            Some(found) => Id::Known(found.group.arn.clone()),
            None => Id::Made(Object::TargetGroup(self.name.clone())),
        }
    }

    /// Its ARN, when it is there.
    pub(super) fn arn(&self) -> Option<&str> {
        self.found.map(|found| &*found.group.arn)
    }
}

/// All groups that were found, those in use first.
pub(super) fn all<'a>(context: &Context<'a>) -> impl Iterator<Item = &'a TargetGroup> {
    let used = context.existing().map(|existing| existing.target_groups.iter()).into_iter().flatten();
    used.chain(&context.observed.unattached_target_groups)
}

/// What a group is called; its ARN where it was not found.
pub(super) fn name<'a>(context: &Context<'a>, arn: &'a str) -> &'a str {
    all(context).find(|found| found.group.arn == arn).map_or(arn, |found| &found.group.name)
}

/// Chooses the group of a port: the one that its listener leads to, if that fits; else the one that has its name, whether it
/// is in use, was left behind by an attempt that died, or was made by upstream; else a new one.
///
/// # Errors
///
/// The name is taken by a group that isn't ours to use.
pub(super) fn choose<'a>(
    context: &Context<'a>,
    port: &Port,
    current: Option<&str>,
) -> Result<Chosen<'a>, ProviderError> {
    let own = current.and_then(|arn| all(context).find(|found| found.group.arn == arn));
    if let Some(own) = own.filter(|own| fits(port, own)) {
        return Ok(Chosen { name: own.group.name.clone(), found: Some(own) });
    }
    let name = names::target_group(&context.env.ownership.cluster, &context.desired.service, port);
    let found = all(context).find(|found| found.group.name == name);
    if let Some(found) = found {
        check_adoption(context, port, found)?;
    }
    Ok(Chosen { name, found })
}

/// Whether a group can serve the port with nothing changed but what AWS lets change.
fn fits(port: &Port, found: &TargetGroup) -> bool {
    let check = &found.group.health_check;
    can_serve(port, found)
        && check.protocol.eq_ignore_ascii_case(&port.health_check.protocol)
        && check.interval == port.health_check.interval
}

/// Whether all that AWS never changes on a group is right.
fn can_serve(port: &Port, found: &TargetGroup) -> bool {
    let group = &found.group;
    group.port == port.node_port && group.protocol == port.traffic_protocol && group.target_type == names::TARGET_TYPE
}

fn check_adoption(context: &Context<'_>, port: &Port, found: &TargetGroup) -> Result<(), ProviderError> {
    let group = &found.group;
    let taken = |why: &str| {
        let name = &group.name;
        let message = format!("target group {name}, which port {} needs, {why}; delete it or the Service", port.port);
        Err(ProviderError::unknown(message))
    };
    if let Some(other) = other_balancer(context, found) {
        return taken(&format!("is used by another load balancer ({other})"));
    }
    if !is_marked(context.desired, context.env, &found.tags) {
        return taken("is not marked as made for this Service of this cluster");
    }
    if !can_serve(port, found) || group.vpc != context.vpc() {
        return taken("has another port, protocol, target type or VPC");
    }
    Ok(())
}

/// A balancer other than ours that leads to the group.
fn other_balancer<'a>(context: &Context<'_>, found: &'a TargetGroup) -> Option<&'a str> {
    let own = context.existing().map(|existing| &*existing.balancer.arn);
    found.group.balancers.iter().map(String::as_str).find(|arn| Some(*arn) != own)
}

/// Whether a group that no port needs any more may be deleted.
pub(super) fn is_disposable(context: &Context<'_>, found: &TargetGroup) -> bool {
    is_marked(context.desired, context.env, &found.tags) && other_balancer(context, found).is_none()
}

/// The writes that make the group right before a listener leads to it: made, health check, attributes, targets.
pub(super) fn prepare(context: &Context<'_>, port: &Port, chosen: &Chosen<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    match chosen.found {
        None => steps.push(create(context, port, chosen)),
        Some(found) => steps.extend(health_check(port, found)),
    }
    steps.extend(attributes(context, chosen));
    steps.extend(targets(context, port.node_port, chosen));
    steps
}

/// Brings the nodes behind the groups of a balancer in line whose other wishes are not to be had.
pub(super) fn hosts(context: &Context<'_>, existing: &Network) -> Vec<Step> {
    let ours = existing
        .target_groups
        .iter()
        .filter(|found| is_disposable(context, found) && found.group.target_type == names::TARGET_TYPE);
    ours.flat_map(|found| {
        let chosen = Chosen { name: found.group.name.clone(), found: Some(found) };
        targets(context, found.group.port, &chosen)
    })
    .collect()
}

fn create(context: &Context<'_>, port: &Port, chosen: &Chosen<'_>) -> Step {
    let reason = format!("port {} has no target group with these settings", port.port);
    let write = ElbV2Write::CreateTargetGroup {
        name: chosen.name.clone(),
        protocol: port.traffic_protocol.clone(),
        port: port.node_port,
        vpc: context.vpc().to_owned(),
        health_check: port.health_check.clone(),
        tags: context.tags.clone(),
    };
    step(Verb::Create, "TargetGroup", &chosen.name, reason, write)
        .change("port", None, Some(format!("{} {}", port.traffic_protocol, port.node_port)))
        .change("health check", None, Some(check_text(&port.health_check)))
}

fn check_text(check: &HealthCheck) -> String {
    let HealthCheck { protocol, port, path, interval, timeout, healthy_threshold, unhealthy_threshold } = check;
    let path = path.as_deref().map(|path| format!(" {path}")).unwrap_or_default();
    let timeout = timeout.map(|timeout| format!(", timeout {timeout}s")).unwrap_or_default();
    format!(
        "{protocol} {port}{path} every {interval}s{timeout}, healthy after {healthy_threshold}, unhealthy after {unhealthy_threshold}"
    )
}

/// Changes the health check of a group in place. Protocol and interval differ only where somebody changed them by hand on the
/// group that has the port's name: for all other cases the name changes with them.
fn health_check(port: &Port, found: &TargetGroup) -> Option<Step> {
    let (is, shall) = (&found.group.health_check, &port.health_check);
    let mut changes = Vec::new();
    let mut compare = |field: &'static str, is: String, shall: String| {
        if is != shall {
            changes.push((field, is, shall));
        }
    };
    compare("protocol", is.protocol.to_uppercase(), shall.protocol.clone());
    compare("port", is.port.clone(), shall.port.clone());
    if shall.path.is_some() {
        compare("path", is.path.clone().unwrap_or_default(), shall.path.clone().unwrap_or_default());
    }
    compare("interval", is.interval.to_string(), shall.interval.to_string());
    if let Some(timeout) = shall.timeout {
        compare("timeout", is.timeout.unwrap_or_default().to_string(), timeout.to_string());
    }
    compare("healthy threshold", is.healthy_threshold.to_string(), shall.healthy_threshold.to_string());
    compare("unhealthy threshold", is.unhealthy_threshold.to_string(), shall.unhealthy_threshold.to_string());
    if changes.is_empty() {
        return None;
    }
    let target_group = found.group.arn.clone();
    let write = ElbV2Write::ModifyTargetGroup { target_group, health_check: shall.clone() };
    let mut summary = step(Verb::Update, "TargetGroup", &found.group.name, "its health check differs", write);
    for (field, is, shall) in changes {
        summary = summary.change(field, Some(is), Some(shall));
    }
    Some(summary)
}

/// Sends the attributes of the annotation that differ, of those that AWS reports at all.
fn attributes(context: &Context<'_>, chosen: &Chosen<'_>) -> Option<Step> {
    let wanted = context.network.target_group_attributes.as_ref()?;
    let found = chosen.found.map(|found| found.attributes.as_ref());
    let is = |key: &str| match found {
        // What AWS does not report, it does not have.
        Some(Some(attributes)) => attributes.get(key).cloned(),
        // Not read: sent anyway, which changes nothing if it is so already.
        Some(None) => Some(String::new()),
        // A new group has AWS's defaults.
        None => Some((key == "preserve_client_ip.enabled").to_string()),
    };
    let differs = |(key, value): &(&String, &String)| is(key).is_some_and(|is| is != **value);
    let changed: Attributes = wanted.iter().filter(differs).map(|(k, v)| (k.clone(), v.clone())).collect();
    let write = ElbV2Write::ModifyTargetGroupAttributes { target_group: chosen.id(), attributes: changed.clone() };
    let summary = step(Verb::Update, "TargetGroup", &chosen.name, "its attributes differ from the annotation", write);
    let risk = if chosen.found.is_some() { Risk::Brief } else { Risk::None };
    with_attributes(summary.risk(risk), &changed, |key| is(key).unwrap_or_default())
}

/// The step with its attributes told; none where nothing changes.
pub(super) fn with_attributes(step: Step, changed: &Attributes, is: impl Fn(&str) -> String) -> Option<Step> {
    let mut step = Some(step).filter(|_| !changed.is_empty())?;
    for (key, value) in changed {
        step = step.change(key.clone(), Some(is(key)).filter(|is| !is.is_empty()), Some(value.clone()));
    }
    Some(step)
}

/// Untargets the nodes that went, then targets those that came: in this order, because a group may be at its quota.
fn targets(context: &Context<'_>, node_port: i32, chosen: &Chosen<'_>) -> Vec<Step> {
    let wanted: BTreeSet<Target> = context
        .network
        .common
        .targets
        .keys()
        .filter(|id| context.observed.instances.contains_key(*id))
        .map(|id| Target { id: id.clone(), port: node_port })
        .collect();
    let found: BTreeSet<Target> = chosen
        .found
        .iter()
        .flat_map(|found| &found.targets)
        .filter(|health| !health.is_leaving())
        .map(|health| health.target.clone())
        .collect();
    let gone: Vec<Target> = found.difference(&wanted).cloned().collect();
    let new: Vec<Target> = wanted.difference(&found).cloned().collect();
    let text = |target: &Target| format!("{}:{}", target.id, target.port);
    let mut steps = Vec::new();
    for chunk in gone.chunks(CHUNK) {
        let target_group = chosen.arn().unwrap_or_default().to_owned();
        let write = ElbV2Write::DeregisterTargets { target_group, targets: chunk.to_vec() };
        let summary = step(Verb::Detach, "TargetGroup", &chosen.name, "these nodes get no traffic any more", write)
            .change("targets", Some(spelled(chunk, text)), None);
        steps.push(summary.risk(Risk::Brief));
    }
    for chunk in new.chunks(CHUNK) {
        let write = ElbV2Write::RegisterTargets { target_group: chosen.id(), targets: chunk.to_vec() };
        let summary = step(Verb::Attach, "TargetGroup", &chosen.name, "these nodes get traffic", write);
        steps.push(summary.change("targets", None, Some(spelled(chunk, text))));
    }
    steps
}

/// Deletes a group that no listener leads to.
pub(super) fn delete(found: &TargetGroup, reason: &str) -> Step {
    let write = ElbV2Write::DeleteTargetGroup { target_group: found.group.arn.clone() };
    step(Verb::Delete, "TargetGroup", &found.group.name, reason, write)
}
