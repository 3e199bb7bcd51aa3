//! Targets that AWS refuses: the others must not wait for them.

use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{ApiError, Write};

/// An instance that AWS did not take, and what it said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) id: String,
    /// Whether it was to be added; what cannot be removed is gone already.
    pub(super) adding: bool,
    pub(super) said: String,
}

/// Whether the error is about single targets of the write.
pub(super) fn is_about_targets(write: &Write, error: &ApiError) -> bool {
    match write {
        Write::ElbV2(ElbV2Write::RegisterTargets { .. } | ElbV2Write::DeregisterTargets { .. }) => {
            error.is(&["InvalidTarget"])
        }
        Write::Elb(
            ElbWrite::RegisterInstancesWithLoadBalancer { .. } | ElbWrite::DeregisterInstancesFromLoadBalancer { .. },
        ) => error.is(&["InvalidInstance", "InvalidEndPoint"]),
        _ => false,
    }
}

/// The targets of the write that the error names.
pub(super) fn named(write: &Write, error: &ApiError) -> Vec<Refused> {
    let adding = matches!(
        write,
        Write::ElbV2(ElbV2Write::RegisterTargets { .. })
            | Write::Elb(ElbWrite::RegisterInstancesWithLoadBalancer { .. })
    );
    let words: Vec<&str> = error.message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').collect();
    let ids = ids(write).into_iter().filter(|id| words.contains(&&**id));
    ids.map(|id| Refused { id, adding, said: error.message.clone() }).collect()
}

fn ids(write: &Write) -> Vec<String> {
    match write {
        Write::ElbV2(ElbV2Write::RegisterTargets { targets, .. } | ElbV2Write::DeregisterTargets { targets, .. }) => {
            targets.iter().map(|target| target.id.clone()).collect()
        }
        Write::Elb(
            ElbWrite::RegisterInstancesWithLoadBalancer { instances, .. }
            | ElbWrite::DeregisterInstancesFromLoadBalancer { instances, .. },
        ) => instances.clone(),
        _ => Vec::new(),
    }
}

/// The write without what was refused; `None` when nothing is left of it.
pub(super) fn without(mut write: Write, refused: &[Refused]) -> Option<Write> {
    let stays = |id: &str| !refused.iter().any(|refused| refused.id == id);
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

/// What the user reads of targets that could not be added.
pub(super) fn summary(refused: &[Refused]) -> Option<String> {
    let mut added: Vec<&Refused> = refused.iter().filter(|refused| refused.adding).collect();
    added.sort_by(|a, b| a.id.cmp(&b.id));
    added.dedup_by(|a, b| a.id == b.id);
    let first = added.first()?;
    let ids: Vec<&str> = added.iter().map(|refused| &*refused.id).collect();
    Some(format!(
        "AWS refuses {} as target: {}; all others are registered, tried again later",
        crate::loadbalancer::desired::first_few(&ids),
        first.said
    ))
}
