//! Decides whether a node is deleted, gets the shutdown taint, or stays. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, SystemTime};

use ccm_provider::node::ConditionStatus;
use ccm_provider::{Evidence, EvidenceKind, Lookup, Node, NodeName, NodeRef, ProviderError};
use ccm_runtime::writer::taint::shutdown_taint;

use crate::evidence::too_young;

/// The action for a node.
#[derive(Debug, Clone)]
pub(super) enum Verdict {
    /// No action.
    Keep,
    /// Gone, on this evidence.
    Delete(Evidence),
    /// Probably gone, but the evidence is not sufficient yet, for this reason.
    Wait(String),
    /// The instance is stopped: taint the node.
    Taint,
    /// The cloud returned no answer.
    Unknown(ProviderError),
}

/// Nodes missing in a complete list, with the time at which that list began: a second list must agree.
#[derive(Debug, Default)]
pub(super) struct Unconfirmed(BTreeMap<NodeName, (Box<str>, SystemTime)>);

/// Whether a node must be looked up in the cloud at all: only if the kubelet does not report it as Ready.
pub fn needs_answer(node: &Node) -> bool {
    node.ready != Some(ConditionStatus::True)
}

/// Whether a node that is Ready again still has the shutdown taint.
pub fn recovered(node: &Node) -> bool {
    let taint = shutdown_taint();
    !needs_answer(node) && node.taints.iter().any(|t| t.same_identity(&taint))
}

/// Whether the node was created less than this time ago.
pub(super) fn is_younger(node: &Node, than: Duration, now: SystemTime) -> bool {
    let created = node.created.map(SystemTime::from);
    created.is_some_and(|created| now.duration_since(created).unwrap_or_default() < than)
}

/// Judges one node that is not Ready. `now` is the wall clock as it would be without jumps since the start.
pub(super) fn judge(node: &Node, answer: &Lookup, now: SystemTime, unconfirmed: &mut Unconfirmed) -> Verdict {
    let evidence = match answer {
        Lookup::Gone(evidence) => evidence,
        Lookup::Found(instance) => {
            unconfirmed.0.remove(&node.name);
            return match &instance.shutdown {
                Ok(true) if node.taints.iter().any(|t| t.same_identity(&shutdown_taint())) => Verdict::Keep,
                Ok(true) => Verdict::Taint,
                Ok(false) => Verdict::Keep,
                Err(error) if error.is_not_implemented() || error.is_instance_not_found() => Verdict::Keep,
                Err(error) => Verdict::Unknown(error.clone()),
            };
        }
        Lookup::Foreign => return Verdict::Keep,
        // An error does not invalidate an earlier list: unconfirmed nodes stay unconfirmed.
        Lookup::Unknown(error) => return Verdict::Unknown(error.clone()),
    };
    if matches!(evidence.kind, EvidenceKind::Terminated { .. }) {
        return Verdict::Delete(evidence.clone());
    }
    if let Some(wait) = too_young(node, evidence, now) {
        return Verdict::Wait(wait);
    }
    if evidence.kind == EvidenceKind::Absent {
        return Verdict::Delete(evidence.clone());
    }
    match unconfirmed.0.get(&node.name) {
        Some((uid, earlier)) if *uid == node.uid && *earlier < evidence.read_began => Verdict::Delete(evidence.clone()),
        // Also after an earlier time: if the wall clock stepped back, the next list is later than this one.
        _ => {
            unconfirmed.0.insert(node.name.clone(), (node.uid.clone(), evidence.read_began));
            Verdict::Wait(format!("{evidence}; a second list must agree"))
        }
    }
}

impl Unconfirmed {
    /// Forgets nodes that are no longer checked.
    pub(super) fn retain(&mut self, asked: &[NodeRef]) {
        let asked: BTreeSet<&NodeName> = asked.iter().map(|node| &node.name).collect();
        self.0.retain(|name, _| asked.contains(name));
    }
}

/// The maximum number of nodes that one pass deletes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Budget {
    /// At least this many.
    pub nodes: usize,
    /// Or this share of the cluster, if that is more.
    pub percent: usize,
}

impl Budget {
    /// The larger of 10 nodes and 10 % of the cluster.
    pub const DEFAULT: Self = Self { nodes: 10, percent: 10 };

    /// The number for a cluster of this size.
    pub fn of(self, cluster: usize) -> usize {
        self.nodes.max(cluster.saturating_mul(self.percent) / 100)
    }
}
