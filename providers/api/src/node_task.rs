//! A provider's own node controllers: tags of instances, pod ranges that the cloud delegates, taints.
//!
//! The core handles the queue, retries, rate and every write to the cluster; the provider selects the nodes, does the
//! work in the cloud, and returns the changes to write to the node.

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use crate::error::ProviderError;
use crate::flag::FlagValues;
use crate::node::{Node, NodeName, NodeRef, TaintEffect, TaintId};
use crate::plan::{Change, Plan, Risk, Step, Verb};

/// A node controller, as listed by `--controllers`. Its flags are among [`crate::ProviderFactory::flags`].
#[derive(Debug, Clone, Copy)]
pub struct NodeTaskSpec {
    /// Canonical name, for `--controllers` and the health check.
    pub name: &'static str,
    /// Other names that `--controllers` accepts.
    pub aliases: &'static [&'static str],
    /// Name of the work queue and value of the label of its metrics.
    pub queue: &'static str,
    /// Whether `*` in `--controllers` includes it.
    pub on_by_default: bool,
    /// The taints that it adds and removes; no other part of the program changes them. They have no value; an existing
    /// taint keeps its value.
    pub taints: &'static [TaintId],
    /// Validates the flags. Called only if the controller is enabled and its provider is selected; any error ends the
    /// process.
    pub check: fn(&FlagValues) -> Vec<String>,
}

/// The work of such a controller. Created by [`crate::CloudProvider::node_task`].
#[async_trait]
pub trait NodeTask: Send + Sync {
    /// Limits for rate, batches and retries.
    fn limits(&self) -> NodeTaskLimits;

    /// Whether an existing node needs work. Called by the watch: no I/O.
    fn is_due(&self, node: &Node) -> bool;

    /// Whether the task also handles deleted nodes.
    fn minds_deletion(&self) -> bool {
        false
    }

    /// Does the work in the cloud for all nodes at once; one answer per node, in order. Any error is retried with
    /// back-off, at most [`NodeTaskLimits::tries`] times. Passes the write gate; limited to
    /// [`crate::deadline::WRITE_DEADLINE`].
    async fn run(&self, work: &[NodeWork]) -> Vec<Result<NodeChanges, ProviderError>>;

    /// The plan of [`NodeTask::run`], for `--dry-run`. Must not write to the cloud.
    async fn plan(&self, work: &NodeWork) -> Result<Plan, ProviderError>;

    /// Called after the changes of a node were written, with the node before the changes.
    fn written(&self, _node: &Node) {}

    /// Called after each failure; `last` if there are no more retries.
    fn failed(&self, _work: &NodeWork, _error: &ProviderError, _last: bool) {}
}

/// Limits for the rate, batches and retries of a [`NodeTask`].
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct NodeTaskLimits {
    /// Maximum nodes per batch.
    pub batch: usize,
    /// Concurrent calls of [`NodeTask::run`].
    pub workers: usize,
    /// Nodes per second, and burst; applies to first attempts too.
    pub rate: Option<(f64, u32)>,
    /// Retries after a failure; `None`: no limit.
    pub tries: Option<u32>,
}

/// One node of a batch.
#[derive(Debug, Clone)]
pub struct NodeWork {
    /// Name of the node.
    pub name: NodeName,
    /// The last known `spec.providerID`.
    pub provider_id: Option<Box<str>>,
    /// The node; `None` if it was deleted.
    pub node: Option<NodeRef>,
}

/// The changes to write to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NodeChanges {
    /// Labels to set.
    pub labels: BTreeMap<String, String>,
    /// The [`NodeTaskSpec::taints`] that the node must or must not have; other taints stay unchanged. Written only if
    /// the node has not changed since the task read it; otherwise the task runs again.
    pub taints: BTreeMap<TaintId, bool>,
    /// `spec.podCIDRs` of a node that has none; empty for "leave unchanged".
    pub pod_cidrs: Vec<String>,
}

impl NodeChanges {
    /// Whether there is no change.
    pub fn is_empty(&self) -> bool {
        self.labels.is_empty() && self.taints.is_empty() && self.pod_cidrs.is_empty()
    }

    /// The changes that the node does not have yet.
    #[must_use]
    pub fn against(mut self, node: &Node) -> Self {
        self.labels.retain(|key, value| node.labels.get(key) != Some(value));
        self.taints.retain(|taint, wanted| taint.is_on(node) != *wanted);
        if node.pod_cidrs.iter().map(AsRef::as_ref).eq(&self.pod_cidrs) {
            self.pod_cidrs.clear();
        }
        self
    }

    /// The write as a step of [`NodeTask::plan`]; `None` if the node has all changes already.
    pub fn step(self, node: &Node, reason: &str) -> Option<Step> {
        let Self { labels, taints, pod_cidrs } = self.against(node);
        let evicts = taints.iter().any(|(taint, wanted)| *wanted && taint.effect == TaintEffect::NoExecute);
        let labels = labels.into_iter().map(|(key, value)| Change {
            field: format!("label {key}").into(),
            before: node.labels.get(&key).map(str::to_owned),
            after: Some(value),
        });
        let taints = taints.into_iter().map(|(taint, wanted)| {
            let text = Some(taint.to_string());
            let (before, after) = if wanted { (None, text) } else { (text, None) };
            Change { field: "taint".into(), before, after }
        });
        let ranges = Some(pod_cidrs.join(",")).filter(|ranges| !ranges.is_empty());
        let ranges = ranges.map(|after| Change { field: "spec.podCIDRs".into(), before: None, after: Some(after) });
        let changes: Vec<Change> = labels.chain(taints).chain(ranges).collect();
        (!changes.is_empty()).then(|| Step {
            verb: Verb::Update,
            kind: "Node".into(),
            id: node.name.to_string(),
            changes,
            reason: reason.to_owned(),
            risk: if evicts { Risk::Disruptive } else { Risk::None },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::Taint;

    const OUT: TaintId = TaintId { key: "example.com/out", effect: TaintEffect::NoExecute };
    const SLOW: TaintId = TaintId { key: "example.com/slow", effect: TaintEffect::NoSchedule };

    fn node() -> Node {
        let taint = |value: &str, effect: &str| Taint {
            key: OUT.key.into(),
            value: value.into(),
            effect: effect.into(),
            time_added: None,
        };
        Node {
            name: "a".into(),
            labels: [("x", "1"), ("y", "1")].into_iter().collect(),
            taints: [taint("by hand", "NoExecute"), taint("", "NoSchedule")].into(),
            pod_cidrs: ["10.0.0.0/24".into()].into(),
            ..Node::default()
        }
    }

    fn changes(label: &str, out: bool, slow: bool) -> NodeChanges {
        NodeChanges {
            labels: [("x".to_owned(), label.to_owned())].into(),
            taints: [(OUT, out), (SLOW, slow)].into(),
            pod_cidrs: vec!["10.0.0.0/24".to_owned()],
        }
    }

    #[test]
    fn present_values_are_no_change() {
        assert!(changes("1", true, false).against(&node()).is_empty());
        assert_eq!(changes("1", true, false).step(&node(), "why"), None);
        let left = changes("2", false, true).against(&node());
        assert_eq!((left.labels.len(), left.taints.len(), left.pod_cidrs.len()), (1, 2, 0));
    }

    #[test]
    fn a_plan_shows_each_change_and_that_pods_are_evicted() {
        let step = changes("2", false, true).step(&node(), "why").unwrap();
        assert_eq!(
            Plan::new("node a").with(step).to_string(),
            "node a:\n  1. update Node a: label x 1 -> 2, taint example.com/out:NoExecute removed, \
             taint = example.com/slow:NoSchedule (because why)"
        );
        let bare = Node { name: "a".into(), ..Node::default() };
        assert_eq!(changes("1", true, false).step(&bare, "why").unwrap().risk, Risk::Disruptive);
    }
}
