//! The target group of a Service port: selection and changes.

use std::collections::BTreeSet;

use ccm_provider::{ProviderError, Risk, Verb};

use super::{Context, step};
use crate::client::elbv2::{Attributes, HealthCheck, Target, TargetHealth};
use crate::client::write::{ElbV2Write, TARGETS_AT_ONCE};
use crate::client::{Id, Object, Write};
use crate::loadbalancer::claim::{self, Claim, Unread};
use crate::loadbalancer::names;
use crate::loadbalancer::observed::TargetGroup;
use crate::loadbalancer::step::{Besides, Kind, Step, abbreviated};
use crate::loadbalancer::wanted::Port;

#[derive(Debug)]
pub(super) struct Chosen<'a> {
    pub(super) name: String,
    /// `None`: to be created.
    pub(super) found: Option<&'a TargetGroup>,
}

impl Chosen<'_> {
    pub(super) fn id(&self) -> Id {
        match self.found {
            Some(found) => Id::Known(found.group.arn.clone()),
            None => Id::Made(Object::TargetGroup(self.name.clone())),
        }
    }

    pub(super) fn arn(&self) -> Option<&str> {
        self.found.map(|found| &*found.group.arn)
    }
}

/// The name of a group; its ARN if it was not observed.
pub(super) fn name<'a>(context: &Context<'a>, arn: &'a str) -> &'a str {
    context.observed.target_groups().find(|found| found.group.arn == arn).map_or(arn, |found| &found.group.name)
}

/// Chooses the group of a port: the one that its listener forwards to, if that fits; else the one with the port's name,
/// whether in use, left over from an interrupted sync, or created by upstream; else a new one.
pub(super) fn choose<'a>(
    context: &Context<'a>,
    port: &Port,
    current: Option<&str>,
) -> Result<Chosen<'a>, ProviderError> {
    let own = current.and_then(|arn| context.observed.target_groups().find(|found| found.group.arn == arn));
    if let Some(own) = own.filter(|own| fits(port, own)) {
        return Ok(Chosen { name: own.group.name.clone(), found: Some(own) });
    }
    let name = port.target_group(&context.env.ownership.cluster, &context.desired.service);
    let found = context.observed.target_groups().find(|found| found.group.name == name);
    if let Some(found) = found {
        check_adoption(context, port, found)?;
    }
    Ok(Chosen { name, found })
}

/// Whether a group can serve the port with changes that AWS allows in place.
pub(super) fn fits(port: &Port, found: &TargetGroup) -> bool {
    let check = &found.group.health_check;
    can_serve(port, found)
        && check.protocol.eq_ignore_ascii_case(&port.health_check.protocol)
        && check.interval == port.health_check.interval
}

/// Whether the immutable settings of a group fit.
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
    if let Some(other) = claim::is_used_elsewhere(context.desired, context.observed, found, context.env) {
        return taken(&format!("is used by another load balancer ({other})"));
    }
    match claim::target_group(context.desired, context.observed, found, context.env) {
        Claim::Unread(why @ (Unread::NotShown | Unread::Hidden)) => return Err(claim::group_not_shown(found, why)),
        claim if claim.is_ours() => {}
        _ => return taken("is not tagged as created for this Service of this cluster"),
    }
    if !can_serve(port, found) || group.vpc != context.vpc() {
        return taken("has another port, protocol, target type or VPC");
    }
    Ok(())
}

/// The writes that prepare the group before a listener forwards to it: creation, health check, attributes, targets.
/// The targets of a group that a listener forwards to already are those of [`hosts`].
pub(super) fn prepare(context: &Context<'_>, port: &Port, chosen: &Chosen<'_>) -> Vec<Step> {
    let mut steps = Vec::new();
    match chosen.found {
        // Nothing leads to it if AWS refuses the balancer.
        None => {
            let create = create(context, port, chosen).part(Kind::Frame, port.key());
            steps.push(create.needs(&[Kind::Claim, Kind::Frame]));
        }
        Some(found) => steps.extend(health_check(port, found)),
    }
    let attributes = attributes(context, chosen);
    steps.extend(attributes.map(|step| match chosen.found {
        Some(found) => step.part(Kind::Settings, format!("attributes of {}", found.group.name)),
        None => step.part(Kind::Settings, port.key()),
    }));
    let attached = |found: &TargetGroup| context.hosts().iter().any(|host| host.group.arn == found.group.arn);
    if !chosen.found.is_some_and(attached) {
        let targets = targets(context, port.node_port, chosen).into_iter();
        steps.extend(targets.map(|step| step.part(Kind::Members, port.key())));
    }
    steps
}

/// What a listener needs besides to move to a group.
pub(super) fn filling(context: &Context<'_>, port: &Port, chosen: &Chosen<'_>) -> Besides {
    let (wanted, observed) = (&context.network.common.targets, context.observed);
    let target = |id: &String| Target { id: id.clone(), port: port.node_port };
    let targets: Vec<Target> = wanted.keys().filter(|id| observed.can_join(id)).map(target).collect();
    let is_filled = chosen.found.is_some_and(|found| !found.targets.iter().all(TargetHealth::is_leaving));
    if is_filled || targets.is_empty() {
        return Besides::Nothing;
    }
    let target_group = chosen.id();
    Besides::Filling(Box::new(Write::ElbV2(ElbV2Write::RegisterTargets { target_group, targets })))
}

/// Updates the nodes of all groups that serve, whether the Service still wants them or not.
pub(super) fn hosts(context: &Context<'_>) -> Vec<Step> {
    let of_group = |found: &TargetGroup| {
        let chosen = Chosen { name: found.group.name.clone(), found: Some(found) };
        // Each on its own: a role may lack the permission for one of them. But none leaves if its successors fail.
        let steps = targets(context, found.group.port, &chosen).into_iter();
        let replaces_all = |step: &Step| matches!(step.besides, Besides::Successors { .. });
        let together = steps.as_slice().iter().any(replaces_all);
        let part = |n: usize| format!("{} {}", found.group.name, if together { 0 } else { n });
        steps.enumerate().map(|(n, step)| step.part(Kind::Members, part(n))).collect::<Vec<_>>()
    };
    context.hosts().into_iter().flat_map(of_group).collect()
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

/// Changes the health check of a group in place. Protocol and interval can differ only after a manual change of the
/// group with the port's name: otherwise the name changes with them.
fn health_check(port: &Port, found: &TargetGroup) -> Option<Step> {
    let (is, wanted) = (&found.group.health_check, &port.health_check);
    let number = |number: i32| Some(number.to_string());
    let fields = [
        ("protocol", is.protocol.to_uppercase(), Some(wanted.protocol.clone())),
        ("port", is.port.clone(), Some(wanted.port.clone())),
        ("path", is.path.clone().unwrap_or_default(), wanted.path.clone()),
        ("interval", is.interval.to_string(), number(wanted.interval)),
        ("timeout", is.timeout.unwrap_or_default().to_string(), wanted.timeout.and_then(number)),
        ("healthy threshold", is.healthy_threshold.to_string(), number(wanted.healthy_threshold)),
        ("unhealthy threshold", is.unhealthy_threshold.to_string(), number(wanted.unhealthy_threshold)),
    ];
    let pace = !is.protocol.eq_ignore_ascii_case(&wanted.protocol) || is.interval != wanted.interval;
    let timeout = wanted.timeout.filter(|timeout| is.timeout != Some(*timeout));
    let health_check = HealthCheck { timeout, ..wanted.clone() };
    let write = ElbV2Write::ModifyTargetGroup { target_group: found.group.arn.clone(), health_check, pace };
    let step = step(Verb::Update, "TargetGroup", &found.group.name, "its health check differs", write)
        .part(Kind::Settings, format!("health check of {}", found.group.name));
    let differing = fields.into_iter().filter(|(_, is, wanted)| wanted.as_ref().is_some_and(|wanted| wanted != is));
    let step = differing.fold(step, |step, (field, is, wanted)| step.change(field, Some(is), wanted));
    (!step.summary.changes.is_empty()).then_some(step)
}

/// Sends the annotated attributes that differ, of those that AWS reports; nothing if they could not be read.
fn attributes(context: &Context<'_>, chosen: &Chosen<'_>) -> Option<Step> {
    let wanted = context.network.target_group_attributes.as_ref()?;
    let found = match chosen.found {
        Some(found) => Some(found.attributes.as_ref()?),
        None => None,
    };
    let is = |key: &str| match found {
        // AWS does not report attributes that the group does not support.
        Some(attributes) => attributes.get(key).cloned(),
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

/// The step with its changed attributes; `None` if nothing changes.
pub(super) fn with_attributes(step: Step, changed: &Attributes, is: impl Fn(&str) -> String) -> Option<Step> {
    let change = |step: Step, (key, value): (&String, &String)| {
        step.change(key.clone(), Some(is(key)).filter(|is| !is.is_empty()), Some(value.clone()))
    };
    (!changed.is_empty()).then(|| changed.iter().fold(step, change))
}

/// Registers new targets, then deregisters surplus ones, so that the group is never without. (Upstream deregisters first,
/// because a group may be at its quota; there, those that leave make room for what did not fit before.) If all that serve
/// leave, they do not before another one has come, and the healthy ones go last.
fn targets(context: &Context<'_>, node_port: i32, chosen: &Chosen<'_>) -> Vec<Step> {
    let (wanted, observed) = (&context.network.common.targets, context.observed);
    let target = |id: &String| Target { id: id.clone(), port: node_port };
    let joining: BTreeSet<Target> = wanted.keys().filter(|id| observed.can_join(id)).map(target).collect();
    let staying: BTreeSet<Target> = wanted.keys().filter(|id| observed.may_stay(id)).map(target).collect();
    let (left, registered): (Vec<&TargetHealth>, Vec<_>) =
        chosen.found.iter().flat_map(|found| &found.targets).partition(|health| health.is_leaving());
    let found: BTreeSet<Target> = registered.iter().map(|health| health.target.clone()).collect();
    let (stay, mut leave): (Vec<&TargetHealth>, Vec<_>) =
        registered.into_iter().partition(|health| staying.contains(&health.target));
    leave.sort_by_key(|health| (health.is_healthy(), &health.target));
    let serve = |all: &[&TargetHealth]| all.iter().any(|health| health.is_healthy());
    let some_stay = !stay.is_empty() && (serve(&stay) || !serve(&leave));
    let gone: Vec<Target> = leave.into_iter().map(|health| health.target.clone()).collect();
    let new: Vec<Target> = joining.difference(&found).cloned().collect();
    let text = |target: &Target| format!("{}:{}", target.id, target.port);
    let mut steps = Vec::new();
    for chunk in new.chunks(TARGETS_AT_ONCE) {
        let write = ElbV2Write::RegisterTargets { target_group: chosen.id(), targets: chunk.to_vec() };
        let summary = step(Verb::Attach, "TargetGroup", &chosen.name, "these nodes get traffic", write);
        steps.push(summary.change("targets", None, Some(abbreviated(chunk, text))));
    }
    for chunk in gone.chunks(TARGETS_AT_ONCE) {
        let target_group = chosen.arn().unwrap_or_default().to_owned();
        let write = ElbV2Write::DeregisterTargets { target_group, targets: chunk.to_vec() };
        let summary = step(Verb::Detach, "TargetGroup", &chosen.name, "these nodes get no traffic any more", write)
            .change("targets", Some(abbreviated(chunk, text)), None);
        let mut leaves = summary.risk(Risk::Brief);
        if !some_stay && !new.is_empty() {
            let ids = new.iter().map(|target| target.id.clone()).collect();
            leaves.besides = Besides::Successors { ids, waits: !left.is_empty() };
        }
        steps.push(leaves);
    }
    steps
}

pub(super) fn delete(found: &TargetGroup, reason: &str) -> Step {
    let write = ElbV2Write::DeleteTargetGroup { target_group: found.group.arn.clone() };
    step(Verb::Delete, "TargetGroup", &found.group.name, reason, write)
}
