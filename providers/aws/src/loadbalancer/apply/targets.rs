//! Targets that AWS refuses; the others are registered without them.

use crate::client::write::{ElbV2Write, ElbWrite};
use crate::client::{ApiError, Write};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Refused {
    pub(super) id: String,
    /// Whether it was being added. A target that cannot be removed is gone already.
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

/// The write without the refused targets; `None` when nothing is left.
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

pub(super) fn summary(refused: &[Refused]) -> Option<String> {
    let mut added: Vec<&Refused> = refused.iter().filter(|refused| refused.adding).collect();
    added.sort_by(|a, b| a.id.cmp(&b.id));
    added.dedup_by(|a, b| a.id == b.id);
    let first = added.first()?;
    let ids: Vec<&str> = added.iter().map(|refused| &*refused.id).collect();
    Some(format!(
        "AWS refuses {} as target: {}; all others are registered; will be retried",
        crate::loadbalancer::desired::first_few(&ids),
        first.said
    ))
}
