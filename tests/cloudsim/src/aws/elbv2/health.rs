//! The health of targets, which depends on the clock and on the instances.

use super::{Target, TargetGroup, group, targets};
use crate::aws::balancing::listing;
use crate::aws::ec2::{InstanceState, known_instance};
use crate::aws::{ApiError, Call, World, Xml};
use crate::core::clock::later;

/// The state, reason and description.
type Verdict = (&'static str, Option<&'static str>, Option<&'static str>);

const NOT_REGISTERED: Verdict =
    ("unused", Some("Target.NotRegistered"), Some("Target is not registered to the target group"));

/// All targets, or the requested ones; requested targets that are not registered are `unused`.
pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    targets::forget_gone(world, call.params.required("TargetGroupArn")?);
    let group = group(world, call.params.required("TargetGroupArn")?)?;
    let asked = call.params.items("Targets");
    let mut rows: Vec<(String, u16, Verdict)> = Vec::new();
    if asked.is_empty() {
        rows.extend(
            group.targets.values().map(|target| (target.id.clone(), target.port, verdict(world, group, target))),
        );
    }
    for item in asked {
        let (key, id, port) = group.read_target(item)?;
        let known = group.targets.get(&key).map(|target| verdict(world, group, target));
        rows.push((id, port, known.unwrap_or(NOT_REGISTERED)));
    }
    Ok(listing("TargetHealthDescriptions", rows, None, |xml, (id, port, (state, reason, description))| {
        xml.elem("Target", |xml| {
            xml.text("Id", &id);
            xml.value("Port", port);
        });
        let check = group.settings.check.port.as_str();
        xml.text("HealthCheckPort", if check == "traffic-port" { port.to_string() } else { check.to_owned() }.as_str());
        xml.elem("TargetHealth", |xml| {
            xml.text("State", state);
            xml.opt("Reason", reason);
            xml.opt("Description", description);
        });
    }))
}

fn verdict(world: &World, group: &TargetGroup, target: &Target) -> Verdict {
    if target.draining_until.is_some() {
        let text = "Target deregistration is in progress";
        return ("draining", Some("Target.DeregistrationInProgress"), Some(text));
    }
    let instance = known_instance(world, &target.id);
    if instance.is_some_and(|instance| instance.state != InstanceState::Running) {
        return ("unused", Some("Target.InvalidState"), Some("Target is in the stopped state"));
    }
    let balancers = world.elbv2.balancers_of(&group.arn);
    if balancers.is_empty() {
        let text = "Target group is not configured to receive traffic from the load balancer";
        return ("unused", Some("Target.NotInUse"), Some(text));
    }
    let subnets = balancers.iter().filter_map(|arn| world.elbv2.balancers.get(*arn)).flat_map(|b| b.subnets.keys());
    let mut zones = subnets.filter_map(|id| world.ec2.subnets.get(id)).map(|subnet| &subnet.zone);
    if let Some(instance) = instance
        && !zones.any(|zone| *zone == instance.zone)
    {
        let text = "Target is in an Availability Zone that is not enabled for the load balancer";
        return ("unused", Some("Target.NotInUse"), Some(text));
    }
    if later(target.since, world.options.delays.target_initial) > world.now() {
        let text = "Target registration is in progress";
        return ("initial", Some("Elb.RegistrationInProgress"), Some(text));
    }
    if world.elbv2.unhealthy.contains(&target.id) {
        return ("unhealthy", Some("Target.FailedHealthChecks"), Some("Health checks failed"));
    }
    ("healthy", None, None)
}
