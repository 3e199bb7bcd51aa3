//! The absence of an instance as evidence about a node. Pure.

use std::time::SystemTime;

use ccm_provider::{Evidence, Node};

/// The reason why absence proves nothing about this node: clouds list new instances with a delay, and it was young when
/// the read began.
pub(crate) fn too_young(node: &Node, evidence: &Evidence, now: SystemTime) -> Option<String> {
    if evidence.grace.is_zero() {
        return None;
    }
    let created = node.created.map(SystemTime::from);
    let age = created.and_then(|created| evidence.read_began.min(now).duration_since(created).ok());
    if age.is_some_and(|age| age >= evidence.grace) {
        return None;
    }
    // No age in the text: the event is emitted once per text, and a pass every few seconds would emit one per age.
    let grace = ccm_provider::duration::format(evidence.grace);
    Some(format!("{evidence}; but the node was younger than {grace} then, and clouds show new instances late"))
}
