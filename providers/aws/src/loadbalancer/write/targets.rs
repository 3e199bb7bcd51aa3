//! Targets that AWS refuses; the others are registered without them.

use super::super::reads::Refused;
use crate::client::elbv2::Target;
use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{ApiError, Id, Write, names};

/// The targets of the write that AWS refuses, if the error is about single targets and names them.
pub(super) fn named(write: &Write, error: &ApiError) -> Vec<Refused> {
    use ElbV2Write::{DeregisterTargets, RegisterTargets};
    use ElbWrite::{DeregisterInstancesFromLoadBalancer, RegisterInstancesWithLoadBalancer};
    let (adding, codes, ids): (_, &[&str], Vec<&String>) = match write {
        Write::ElbV2(RegisterTargets { targets, .. } | DeregisterTargets { targets, .. }) => {
            let adding = matches!(write, Write::ElbV2(RegisterTargets { .. }));
            (adding, &["InvalidTarget"], targets.iter().map(|target| &target.id).collect())
        }
        Write::Elb(
            RegisterInstancesWithLoadBalancer { instances, .. } | DeregisterInstancesFromLoadBalancer { instances, .. },
        ) => {
            let adding = matches!(write, Write::Elb(RegisterInstancesWithLoadBalancer { .. }));
            (adding, &["InvalidInstance", "InvalidEndPoint"], instances.iter().collect())
        }
        _ => return Vec::new(),
    };
    let is_refused = |id: &&String| error.is(codes) && names(&error.message, id);
    let named = ids.into_iter().filter(is_refused).cloned().collect();
    let refused = refused(write, named, error, false);
    refused.into_iter().map(|one| Refused { adding, ..one }).collect()
}

/// The target group or balancer and the targets of a write, and whether it registers them.
pub(super) fn of(write: &Write) -> Option<(String, Vec<String>, bool)> {
    let ids = |targets: &[Target]| targets.iter().map(|target| target.id.clone()).collect();
    Some(match write {
        Write::ElbV2(ElbV2Write::RegisterTargets { target_group, targets }) => {
            (target_group.to_string(), ids(targets), true)
        }
        Write::ElbV2(ElbV2Write::DeregisterTargets { target_group, targets }) => {
            (target_group.clone(), ids(targets), false)
        }
        Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { balancer, instances }) => {
            (balancer.clone(), instances.clone(), true)
        }
        Write::Elb(ElbWrite::DeregisterInstancesFromLoadBalancer { balancer, instances }) => {
            (balancer.clone(), instances.clone(), false)
        }
        _ => return None,
    })
}

/// The write without the refused targets; `None` when nothing is left. Another group may have room for those that did
/// not fit.
pub(super) fn without(write: Write, refused: &[Refused]) -> Option<Write> {
    retain(write, |id| !refused.iter().any(|refused| !refused.full && refused.id == id))
}

/// The write for these targets.
pub(super) fn only(write: Write, ids: &[String]) -> Write {
    retain(write.clone(), |id| ids.iter().any(|wanted| wanted == id)).unwrap_or(write)
}

fn retain(mut write: Write, stays: impl Fn(&str) -> bool) -> Option<Write> {
    let left = match &mut write {
        Write::ElbV2(ElbV2Write::RegisterTargets { targets, .. } | ElbV2Write::DeregisterTargets { targets, .. }) => {
            targets.retain(|target| stays(&target.id));
            targets.len()
        }
        Write::Elb(
            ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. }
            | ElbWrite::DeregisterInstancesFromLoadBalancer { instances, .. },
        ) => {
            instances.retain(|id| stays(id));
            instances.len()
        }
        _ => return Some(write),
    };
    (left > 0).then_some(write)
}

/// Targets that a call could not add.
pub(super) fn refused(write: &Write, ids: Vec<String>, error: &ApiError, full: bool) -> Vec<Refused> {
    let Some((of, ..)) = of(write) else { return Vec::new() };
    let port = match write {
        Write::ElbV2(ElbV2Write::RegisterTargets { targets, .. }) => targets.first().map(|target| target.port),
        _ => None,
    };
    // A full classic balancer has no code of its own.
    let needs_room = full && (port.is_none() || error.is(&["TooManyTargets"]));
    let said = &error.message;
    let refused = |id| Refused { of: of.clone(), id, port, adding: true, full, needs_room, said: said.clone() };
    ids.into_iter().map(refused).collect()
}

/// The registration of targets that were refused for a target group or a classic balancer.
pub(super) fn registration(of: &str, refused: &[Refused]) -> Write {
    let target = |one: &Refused| Some(Target { id: one.id.clone(), port: one.port? });
    let targets: Vec<Target> = refused.iter().filter_map(target).collect();
    if targets.is_empty() {
        let instances = refused.iter().map(|one| one.id.clone()).collect();
        return Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { balancer: of.to_owned(), instances });
    }
    Write::ElbV2(ElbV2Write::RegisterTargets { target_group: Id::Known(of.to_owned()), targets })
}

pub(super) fn summary<'a>(refused: impl Iterator<Item = &'a Refused>) -> Option<String> {
    let mut added: Vec<&Refused> = refused.filter(|refused| refused.adding).collect();
    added.sort_by(|a, b| a.id.cmp(&b.id));
    added.dedup_by(|a, b| a.id == b.id);
    let first = added.first()?;
    let ids: Vec<&str> = added.iter().map(|refused| &*refused.id).collect();
    Some(format!(
        "AWS refuses {} as target: {}; all others are registered; will be retried",
        crate::loadbalancer::wanted::first_few(&ids),
        first.said
    ))
}
