//! The instances to add to and to remove from target pools and instance groups. Pure.

use std::collections::BTreeSet;

use ccm_provider::ProviderError;

use super::super::hosts::{Host, Hosts};
use super::super::observed::Observed;

/// The most instances in one call.
pub(super) const BATCH: usize = 1000;

/// Instances to add and to remove.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Difference {
    pub(super) join: Vec<Host>,
    pub(super) leave: Vec<Host>,
    /// Whether a wanted instance is a member already.
    pub(super) has_others: bool,
}

/// The changes from the current to the wanted members. Instances of nodes without a zone are not removed.
pub(super) fn difference(current: &BTreeSet<Host>, wanted: &BTreeSet<Host>, unplaced: &BTreeSet<String>) -> Difference {
    Difference {
        join: wanted.difference(current).cloned().collect(),
        leave: current.difference(wanted).filter(|host| !unplaced.contains(&host.name)).cloned().collect(),
        has_others: !wanted.is_disjoint(current),
    }
}

/// The hosts of a Service that exist. It is an error if none of its nodes has an instance.
pub(super) fn present(observed: &Observed, hosts: &Hosts) -> Result<BTreeSet<Host>, ProviderError> {
    let all = hosts.all();
    let present: BTreeSet<Host> = all.difference(&observed.missing).cloned().collect();
    let has_nodes = !all.is_empty() || !hosts.unplaced.is_empty();
    if present.is_empty() && has_nodes {
        return Err(ProviderError::unknown(
            "instance not found: none of the nodes has an instance in this project; look at their provider IDs and zones",
        ));
    }
    Ok(present)
}
