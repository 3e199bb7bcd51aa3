//! Targets of target groups: registration and deregistration.

use super::{Target, TargetGroup, group};
use crate::aws::ec2::InstanceState;
use crate::aws::query::Params;
use crate::aws::{ApiError, Call, World, Xml, lbnet};
use crate::core::clock::later;
use std::collections::BTreeMap;
use std::time::Duration;

impl TargetGroup {
    /// Reads a target of a request; its default port is that of the group.
    pub(super) fn read_target(&self, item: &Params) -> Result<(String, String, u16), ApiError> {
        let id = item.required("Id")?.to_owned();
        let port = item.within("Port", 1, 65535)?.unwrap_or(self.settings.port);
        Ok((format!("{id}:{port}"), id, port))
    }
}

fn items(call: &Call) -> Result<Vec<&Params>, ApiError> {
    let items = call.params.items("Targets");
    if items.is_empty() { Err(ApiError::missing("Targets")) } else { Ok(items) }
}

/// Registers all targets or none. A registered target is unchanged, a draining one is registered again.
pub(super) fn register(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    forget_gone(world, call.params.required("TargetGroupArn")?);
    let group = group(world, call.params.required("TargetGroupArn")?)?;
    let mut targets = group.targets.clone();
    let (mut foreign, mut asleep) = (Vec::new(), Vec::new());
    for item in items(call)? {
        let (key, id, port) = group.read_target(item)?;
        if group.settings.target_type == "instance" {
            match lbnet::alive(world, &id) {
                Some(instance) if instance.vpc == group.settings.vpc => {
                    if instance.state != InstanceState::Running {
                        asleep.push(id.clone());
                    }
                }
                _ => foreign.push(id.clone()),
            }
        }
        let old = targets.get(&key).filter(|target| target.draining_until.is_none());
        if old.is_none() {
            targets.insert(key, Target { id, port, since: world.now(), draining_until: None });
        }
    }
    if !foreign.is_empty() {
        let text = format!("The following targets are not in the target group VPC: '{}'", foreign.join("', '"));
        return Err(ApiError::new("InvalidTarget", text));
    }
    if !asleep.is_empty() {
        let what = "The following targets are not in a running state and cannot be registered";
        return Err(ApiError::new("InvalidTarget", format!("{what}: '{}'", asleep.join("', '"))));
    }
    if targets.len() > world.options.limits.targets_per_group {
        return Err(ApiError::new("TooManyTargets", "The quota for the number of targets has been reached"));
    }
    let arn = group.arn.clone();
    Ok(store(world, &arn, targets))
}

/// A target drains if a balancer uses the group; otherwise it is removed immediately. Unregistered targets are ignored.
pub(super) fn deregister(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    forget_gone(world, call.params.required("TargetGroupArn")?);
    let group = group(world, call.params.required("TargetGroupArn")?)?;
    let in_use = !world.elbv2.balancers_of(&group.arn).is_empty();
    let until = later(world.now(), group.deregistration_delay(world));
    let mut targets = group.targets.clone();
    for item in items(call)? {
        let (key, _, _) = group.read_target(item)?;
        match targets.get_mut(&key) {
            Some(target) if in_use && until > world.now() => {
                target.draining_until.get_or_insert(until);
            }
            Some(_) => {
                targets.remove(&key);
            }
            None => {}
        }
    }
    let arn = group.arn.clone();
    Ok(store(world, &arn, targets))
}

fn store(world: &mut World, arn: &str, targets: BTreeMap<String, Target>) -> Xml {
    if let Some(group) = world.elbv2.groups.get_mut(arn) {
        group.targets = targets;
    }
    Xml::new()
}

impl TargetGroup {
    fn deregistration_delay(&self, world: &World) -> Duration {
        let set = self.attributes.get("deregistration_delay.timeout_seconds").and_then(|text| text.parse().ok());
        set.map_or(world.options.delays.target_draining, Duration::from_secs)
    }
}

/// Removes the targets of a group that have drained, and those whose instance is gone.
pub(super) fn forget_gone(world: &mut World, arn: &str) {
    let now = world.now();
    let Some(mut group) = world.elbv2.groups.remove(arn) else { return };
    group.targets.retain(|_, target| {
        let drained = target.draining_until.is_some_and(|until| until <= now);
        !(drained || (target.id.starts_with("i-") && lbnet::alive(world, &target.id).is_none()))
    });
    world.elbv2.groups.insert(arn.to_owned(), group);
}
