//! Tags, attributes and health check.

use ccm_provider::{Change, Verb};

use super::Context;
use crate::client::Tags;
use crate::client::elb::{AccessLog, Attributes, ConnectionDraining, HealthCheck};
use crate::client::write::ElbWrite;
use crate::loadbalancer::observed;
use crate::loadbalancer::step::{Kind, Step};
use crate::loadbalancer::wanted::classic::{DRAINING_TIMEOUT_DEFAULT, EMIT_INTERVAL_DEFAULT, IDLE_TIMEOUT_DEFAULT};

/// Adds the tags of the annotation that the balancer lacks; tags are never removed. Where the role may not read tags,
/// each process adds them once.
pub(super) fn tags(context: &Context<'_>, existing: &observed::Classic) -> Option<Step> {
    // Ownership tags are reserved; upstream filters them only on creation.
    let mut tags: Tags = context.env.ownership.user_tags(&context.classic.common.tags);
    let known = existing.tags.read().unwrap_or(&existing.added_tags);
    tags.retain(|key, value| known.get(key) != Some(value));
    if tags.is_empty() {
        return None;
    }
    let write = ElbWrite::AddTags { balancer: context.name(), tags: tags.clone() };
    let step = context.step(Verb::Update, "LoadBalancer", "the annotation names these tags", write);
    let step = step.part(Kind::Settings, "tags");
    let summary = |step: Step, (key, value): (String, String)| {
        let before = known.get(&key).cloned();
        step.change(format!("tag {key}"), before, Some(value))
    };
    Some(tags.into_iter().fold(step, summary))
}

fn defaults() -> Attributes {
    Attributes {
        access_log: Some(AccessLog { emit_interval: Some(EMIT_INTERVAL_DEFAULT), ..AccessLog::default() }),
        connection_draining: Some(ConnectionDraining { enabled: false, timeout: Some(DRAINING_TIMEOUT_DEFAULT) }),
        idle_timeout: Some(IDLE_TIMEOUT_DEFAULT),
        cross_zone: Some(false),
    }
}

/// Sends the attributes that differ; `None` is a new balancer. AWS returns more than is set here and fills in defaults,
/// so only desired fields are compared, and the settings of a feature only while it is on. Logs fail alone: AWS refuses a
/// bucket that it may not write to.
pub(super) fn attributes(context: &Context<'_>, found: Option<&Attributes>) -> impl Iterator<Item = Step> {
    let Attributes { access_log, connection_draining, idle_timeout, cross_zone } = context.classic.attributes.clone();
    let logs = Attributes { access_log, ..Attributes::default() };
    let others = Attributes { access_log: None, connection_draining, idle_timeout, cross_zone };
    let steps = [(others, "attributes"), (logs, "access logs")];
    steps.map(|(wanted, part)| some_attributes(context, found, &wanted, part)).into_iter().flatten()
}

fn some_attributes(
    context: &Context<'_>,
    found: Option<&Attributes>,
    wanted: &Attributes,
    part: &'static str,
) -> Option<Step> {
    let defaults = defaults();
    let found = found.unwrap_or(&defaults);
    let mut changes = Vec::new();
    let mut differs = |mut part: Vec<Change>| {
        part.retain(|change| change.before != change.after);
        changes.extend(part.iter().cloned());
        !part.is_empty()
    };
    let log = |wanted: &AccessLog| access_log(wanted, found.access_log.as_ref());
    let drains = |wanted: &ConnectionDraining| draining(wanted, found.connection_draining.as_ref());
    let idle = |wanted: i32| vec![field("idle timeout", found.idle_timeout, Some(wanted))];
    let cross = |wanted: bool| vec![field("cross-zone", found.cross_zone, Some(wanted))];
    let attributes = Attributes {
        access_log: wanted.access_log.clone().filter(|wanted| differs(log(wanted))),
        connection_draining: wanted.connection_draining.clone().filter(|wanted| differs(drains(wanted))),
        idle_timeout: wanted.idle_timeout.filter(|wanted| differs(idle(*wanted))),
        cross_zone: wanted.cross_zone.filter(|wanted| differs(cross(*wanted))),
    };
    if changes.is_empty() {
        return None;
    }
    let write = ElbWrite::ModifyLoadBalancerAttributes { balancer: context.name(), attributes };
    let mut step = context.step(Verb::Update, "LoadBalancer", "its attributes differ from the annotations", write);
    step.summary.changes = changes;
    Some(step.part(Kind::Settings, part))
}

fn field<T: ToString>(name: &'static str, before: Option<T>, after: Option<T>) -> Change {
    let text = |value: Option<T>| value.map(|value| value.to_string());
    Change { field: name.into(), before: text(before), after: text(after) }
}

fn access_log(wanted: &AccessLog, found: Option<&AccessLog>) -> Vec<Change> {
    let mut changes = vec![field("access log", found.map(|log| log.enabled), Some(wanted.enabled))];
    if wanted.enabled {
        let found = found.cloned().unwrap_or_default();
        let text = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
        changes.push(field("access log bucket", text(&found.bucket), text(&wanted.bucket)));
        changes.push(field("access log prefix", text(&found.prefix), text(&wanted.prefix)));
        if wanted.emit_interval.is_some() {
            changes.push(field("access log interval", found.emit_interval, wanted.emit_interval));
        }
    }
    changes
}

fn draining(wanted: &ConnectionDraining, found: Option<&ConnectionDraining>) -> Vec<Change> {
    let mut changes = vec![field("connection draining", found.map(|draining| draining.enabled), Some(wanted.enabled))];
    if wanted.enabled && wanted.timeout.is_some() {
        changes.push(field("draining timeout", found.and_then(|draining| draining.timeout), wanted.timeout));
    }
    changes
}

pub(super) fn health_check(context: &Context<'_>, found: Option<&HealthCheck>) -> Option<Step> {
    let wanted = &context.classic.health_check;
    let is = |get: fn(&HealthCheck) -> String| (found.map(get), Some(get(wanted)));
    let fields = [
        ("target", is(|check| check.target.clone())),
        ("interval", is(|check| check.interval.to_string())),
        ("timeout", is(|check| check.timeout.to_string())),
        ("healthy threshold", is(|check| check.healthy_threshold.to_string())),
        ("unhealthy threshold", is(|check| check.unhealthy_threshold.to_string())),
    ];
    let differing: Vec<_> = fields.into_iter().filter(|(_, (before, after))| before != after).collect();
    if differing.is_empty() {
        return None;
    }
    let write = ElbWrite::ConfigureHealthCheck { balancer: context.name(), check: wanted.clone() };
    let step = context.step(Verb::Update, "HealthCheck", "the health check differs from the Service", write);
    let step = step.part(Kind::Settings, "health check");
    Some(differing.into_iter().fold(step, |step, (field, (before, after))| step.change(field, before, after)))
}
