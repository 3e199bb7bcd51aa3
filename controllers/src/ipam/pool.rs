//! The blocks of each node, and the choice of new ones. Pure.
//!
//! A block is used from the time when it is chosen for a node until that node is deleted, shows other blocks, or the
//! API server has refused to write it. So no block is ever chosen for two nodes.
//!
//! Source of the behavior: `kubernetes/kubernetes` `pkg/controller/nodeipam/ipam/range_allocator.go`.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ccm_provider::{Node, NodeName, address};
use ipnet::IpNet;

use super::cidr_set::CidrSet;
use super::config::{Range, Ranges};

/// The ranges, and the blocks of all nodes.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    sets: Vec<CidrSet>,
    services: Vec<IpNet>,
    nodes: BTreeMap<NodeName, Held>,
    // Nodes that found a range full.
    starved: BTreeSet<NodeName>,
}

#[derive(Debug, Clone)]
struct Held {
    uid: Box<str>,
    // The ranges on the node, or those to be written.
    texts: Box<[Box<str>]>,
    // The ranges that are within the cluster's ranges.
    blocks: Vec<IpNet>,
    state: State,
}

/// The state of the blocks of a node.
#[derive(Debug, Clone, PartialEq, Eq)]
enum State {
    /// Chosen for the node. `unsure`: a write may have taken effect, or may still do so.
    Reserved { unsure: bool },
    /// Written, in this version of the node; the watch has not shown it yet.
    Written(Box<str>),
    /// Seen on the node.
    Seen,
}

/// The result of observing a node.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Seen {
    /// Whether blocks were taken or released.
    pub(super) changed: bool,
    /// Blocks that are free now.
    pub(super) freed: u64,
    /// Problems of the ranges that the node has.
    pub(super) findings: Vec<Finding>,
}

/// A problem with a range of a node. Upstream ends the process on the first two of these, and does not notice the
/// others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Finding {
    /// It is not a valid range.
    Malformed(Box<str>),
    /// It is outside of the cluster's ranges.
    Outside(IpNet),
    /// It overlaps with a range of another node.
    Overlap(IpNet, NodeName),
    /// It overlaps with a range of Services.
    Services(IpNet, IpNet),
}

impl Finding {
    /// Reason of the event.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Malformed(_) => "InvalidPodCIDR",
            Self::Outside(_) => "PodCIDROutOfRange",
            Self::Overlap(..) | Self::Services(..) => "PodCIDROverlap",
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(text) => write!(
                f,
                "The pod range {text:?} of the node is not a CIDR address. Delete the Node object; it gets another range when it \
                 registers again"
            ),
            Self::Outside(range) => write!(
                f,
                "The pod range {range} of the node lies outside of --cluster-cidr. It is left as it is; correct --cluster-cidr, or \
                 delete the Node object: it gets a range of the cluster when it registers again"
            ),
            Self::Overlap(range, other) => write!(
                f,
                "The pod range {range} of the node overlaps with that of node {other}: their pods get the same addresses. Delete \
                 one of the two Node objects; it gets another range when it registers again"
            ),
            Self::Services(range, services) => write!(
                f,
                "The pod range {range} of the node overlaps with the range {services} of Services. Delete the Node object; it gets \
                 another range when it registers again"
            ),
        }
    }
}

/// A range without a free block.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "failed to allocate cidr from cluster cidr at idx:{index}: CIDR allocation failed; there are no remaining CIDRs left to \
     allocate in the accepted range ({range} holds {blocks} blocks of /{prefix}; remove nodes, or restart with a larger \
     --cluster-cidr or smaller blocks for new nodes)"
)]
pub(super) struct Full {
    /// The index of the range.
    pub(super) index: usize,
    /// The range.
    pub(super) range: IpNet,
    /// Blocks in it.
    pub(super) blocks: u64,
    /// Prefix length of a block.
    pub(super) prefix: u8,
}

/// Blocks for a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reserved {
    /// One per range, in order, in written form.
    pub(super) texts: Box<[Box<str>]>,
    /// The number of used blocks that the search skipped in each range; empty if the blocks had been chosen before.
    pub(super) tries: Vec<u64>,
}

impl Pool {
    /// A pool in which all blocks but those of Services are free.
    ///
    /// # Errors
    /// A range that cannot be cut into blocks of its size.
    pub(super) fn new(config: &Ranges) -> Result<Self, Range> {
        let cut = |range: &Range| CidrSet::new(range.cidr, range.node_prefix).ok_or(*range);
        let mut sets = config.ranges.iter().map(cut).collect::<Result<Vec<CidrSet>, Range>>()?;
        for set in &mut sets {
            for services in &config.services {
                set.occupy(services);
            }
        }
        Ok(Self { sets, services: config.services.clone(), nodes: BTreeMap::new(), starved: BTreeSet::new() })
    }

    /// The ranges.
    pub(super) fn sets(&self) -> &[CidrSet] {
        &self.sets
    }

    /// Records the ranges that a node has.
    pub(super) fn see(&mut self, node: &Node) -> Seen {
        let held = self.nodes.get_mut(&node.name).filter(|held| held.uid == node.uid);
        match held {
            Some(held) if node.pod_cidrs.is_empty() => {
                // The node no longer shows its ranges: data from before the write, or from a backup. It keeps the
                // blocks.
                let late =
                    matches!(&held.state, State::Written(version) if !is_at_least(&node.resource_version, version));
                if !late && !matches!(held.state, State::Reserved { .. }) {
                    held.state = State::Reserved { unsure: true };
                }
                return Seen::default();
            }
            Some(held) if held.texts == node.pod_cidrs => {
                held.state = State::Seen;
                return Seen::default();
            }
            _ => {}
        }
        let freed = self.drop_held(&node.name);
        if node.pod_cidrs.is_empty() {
            return Seen { changed: freed > 0, freed, findings: Vec::new() };
        }
        self.starved.remove(&node.name);
        let (blocks, findings) = self.occupy(node);
        let held = Held { uid: node.uid.clone(), texts: node.pod_cidrs.clone(), blocks, state: State::Seen };
        self.nodes.insert(node.name.clone(), held);
        Seen { changed: true, freed, findings }
    }

    /// Records the node's ranges as used, whichever range of the cluster they belong to.
    fn occupy(&mut self, node: &Node) -> (Vec<IpNet>, Vec<Finding>) {
        let (mut blocks, mut findings) = (Vec::new(), Vec::new());
        for text in &node.pod_cidrs {
            let Some(range) = address::parse_cidr(text) else {
                findings.push(Finding::Malformed(text.clone()));
                continue;
            };
            let touched: Vec<bool> = self.sets.iter_mut().filter_map(|set| set.occupy(&range)).collect();
            if touched.is_empty() {
                findings.push(Finding::Outside(range));
                continue;
            }
            if touched.contains(&true) {
                findings.extend(self.overlap(&range));
            }
            blocks.push(range);
        }
        (blocks, findings)
    }

    /// The overlap of a range, if any. Two small ranges within one block do not overlap.
    fn overlap(&self, range: &IpNet) -> Option<Finding> {
        let meets = |other: &&IpNet| other.contains(range) || range.contains(*other);
        let node = self.nodes.iter().find(|(_, held)| held.blocks.iter().any(|block| meets(&block)));
        node.map(|(name, _)| Finding::Overlap(*range, name.clone()))
            .or_else(|| self.services.iter().find(meets).map(|services| Finding::Services(*range, *services)))
    }

    /// Removes a deleted node. Returns the number of blocks that became free.
    pub(super) fn gone(&mut self, node: &Node) -> u64 {
        self.starved.remove(&node.name);
        let ours = self.nodes.get(&node.name).is_some_and(|held| held.uid == node.uid);
        if ours { self.drop_held(&node.name) } else { 0 }
    }

    /// Blocks for a node without any: those that were chosen before, or the next free ones, all or none. `Ok(None)` if
    /// they are written already and the watch is late.
    pub(super) fn reserve(&mut self, node: &Node) -> Result<Option<Reserved>, Full> {
        match self.nodes.get(&node.name) {
            Some(held) if held.uid == node.uid => {
                return Ok(match held.state {
                    State::Reserved { .. } => Some(Reserved { texts: held.texts.clone(), tries: Vec::new() }),
                    State::Written(_) | State::Seen => None,
                });
            }
            _ => self.drop_held(&node.name),
        };
        let full = |(index, set): (usize, &CidrSet)| {
            let (range, blocks, prefix) = (set.range(), set.blocks(), set.prefix());
            set.candidate().ok_or(Full { index, range, blocks, prefix })
        };
        let chosen = match self.sets.iter().enumerate().map(full).collect::<Result<Vec<_>, _>>() {
            Ok(chosen) => chosen,
            Err(full) => {
                self.starved.insert(node.name.clone());
                return Err(full);
            }
        };
        self.starved.remove(&node.name);
        for (set, candidate) in self.sets.iter_mut().zip(&chosen) {
            set.take(candidate);
        }
        let blocks: Vec<IpNet> = chosen.iter().map(|candidate| candidate.block).collect();
        let texts: Box<[Box<str>]> = blocks.iter().map(|block| block.to_string().into()).collect();
        let state = State::Reserved { unsure: false };
        self.nodes.insert(node.name.clone(), Held { uid: node.uid.clone(), texts: texts.clone(), blocks, state });
        Ok(Some(Reserved { texts, tries: chosen.iter().map(|candidate| candidate.tries).collect() }))
    }

    /// Records that the API server has written the blocks of a node, which has this version now.
    pub(super) fn written(&mut self, node: &Node, version: &str) {
        if let Some(state @ State::Reserved { .. }) = self.state(node) {
            *state = State::Written(version.into());
        }
    }

    /// Records that it is unknown whether the blocks of a node are written: it keeps them until it is observed.
    pub(super) fn unsure(&mut self, node: &Node) {
        if let Some(State::Reserved { unsure }) = self.state(node) {
            *unsure = true;
        }
    }

    /// Records that the API server refused to write the blocks of a node. Unless an earlier try may have written them,
    /// they become free. Returns the number of free blocks.
    pub(super) fn refused(&mut self, node: &Node) -> u64 {
        match self.state(node) {
            Some(State::Reserved { unsure: false }) => self.drop_held(&node.name),
            _ => 0,
        }
    }

    fn state(&mut self, node: &Node) -> Option<&mut State> {
        self.nodes.get_mut(&node.name).filter(|held| held.uid == node.uid).map(|held| &mut held.state)
    }

    /// Whether a node waits for a free block.
    pub(super) fn is_starved(&self, name: &NodeName) -> bool {
        self.starved.contains(name)
    }

    /// Waiting nodes, as many as there are free blocks.
    pub(super) fn wake(&mut self, freed: u64) -> Vec<NodeName> {
        let count = usize::try_from(freed).unwrap_or(usize::MAX);
        let names: Vec<NodeName> = self.starved.iter().take(count).cloned().collect();
        self.starved.retain(|name| !names.contains(name));
        names
    }

    fn drop_held(&mut self, name: &NodeName) -> u64 {
        let Some(held) = self.nodes.remove(name) else { return 0 };
        let sets = &mut self.sets;
        held.blocks.iter().map(|block| sets.iter_mut().map(|set| set.release(block)).sum::<u64>()).sum()
    }
}

/// Resource versions of one API server are increasing numbers; others are only compared for equality.
pub(super) fn is_at_least(version: &str, wanted: &str) -> bool {
    match (version.parse::<u64>(), wanted.parse::<u64>()) {
        (Ok(version), Ok(wanted)) => version >= wanted,
        _ => version == wanted,
    }
}
