//! Controllers over nodes that a provider brings along: tags on instances, pod ranges that the cloud delegates.
//!
//! The core owns queue, retries, pace and every write to the cluster; the provider says which nodes are due, works on
//! the cloud, and returns what to write to the node.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::ProviderError;
use crate::flag::FlagValues;
use crate::node::{Node, NodeName, NodeRef};
use crate::plan::Plan;

/// A controller over nodes, as `--controllers` lists it. Its flags are among [`crate::ProviderFactory::flags`].
#[derive(Debug, Clone, Copy)]
pub struct NodeTaskSpec {
    /// Canonical name, for `--controllers` and the health check.
    pub name: &'static str,
    /// Other names that `--controllers` takes.
    pub aliases: &'static [&'static str],
    /// Name of the work queue, the label of its metrics.
    pub queue: &'static str,
    /// Whether `*` in `--controllers` includes it.
    pub on_by_default: bool,
    /// What is wrong with the flags. Checked only when the controller is enabled and its provider is chosen; any error
    /// ends the process.
    pub check: fn(&FlagValues) -> Vec<String>,
}

/// The work of such a controller. Made by [`crate::CloudProvider::node_task`].
#[async_trait]
pub trait NodeTask: Send + Sync {
    /// How fast and how often.
    fn limits(&self) -> NodeTaskLimits;

    /// Whether an existing node needs work. Runs on the path of the watch: no I/O.
    fn is_due(&self, node: &Node) -> bool;

    /// Whether deleted nodes are work too.
    fn minds_deletion(&self) -> bool {
        false
    }

    /// Does the work in the cloud for all nodes at once; one answer per node, in order. An error of any class is
    /// tried again with back-off, at most [`NodeTaskLimits::tries`] times. Goes through the write gate, and may take at most
    /// [`crate::deadline::WRITE_DEADLINE`].
    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>>;

    /// What [`NodeTask::run`] would do: for `--dry-run`. Must not write to the cloud.
    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError>;

    /// Called after the changes of a node were written: the node before them.
    fn written(&self, _node: &Node) {}

    /// Called after each failure; `last`: no more retries.
    fn failed(&self, _work: &NodeWork, _error: &ProviderError, _last: bool) {}
}

/// How fast and how often a [`NodeTask`] works.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeTaskLimits {
    /// Nodes handed over at once.
    pub batch: usize,
    /// Calls of [`NodeTask::run`] at once.
    pub workers: usize,
    /// Nodes per second and burst, of first tries too.
    pub rate: Option<(f64, u32)>,
    /// Retries after a failure; `None`: no limit.
    pub tries: Option<u32>,
}

/// One node to work on.
#[derive(Debug, Clone)]
pub struct NodeWork {
    /// Name of the node.
    pub name: NodeName,
    /// `spec.providerID` as last seen.
    pub provider_id: Option<Box<str>>,
    /// The node; `None` when it was deleted.
    pub node: Option<NodeRef>,
}

/// What to write to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeChanges {
    /// Labels that are set.
    pub labels: BTreeMap<String, String>,
    /// `spec.podCIDRs` of a node that has none; empty for "leave alone".
    pub pod_cidrs: Vec<String>,
}

impl NodeChanges {
    /// Whether the node stays as it is.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.pod_cidrs.is_empty()
    }
}
