//! cloud-node-lifecycle-controller: deletes nodes whose instance is gone, taints those whose instance is stopped.
//!
//! Source of the behavior: `kubernetes/cloud-provider` `controllers/nodelifecycle/node_lifecycle_controller.go`.
//! Unlike there, a node is deleted only on evidence that is sufficient for its age, and the deletions of one pass are
//! limited.

pub mod decide;
pub(crate) mod metrics;
mod steady;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use ccm_provider::{
    Aspects, Change, EventSink, EventType, Evidence, Lookup, Node, NodeName, NodeRef, Plan, Step, Subject, Taint, Verb,
};
use ccm_runtime::runner::{self, Pace};
use ccm_runtime::writer::NodePatch;
use ccm_runtime::writer::taint::{self, shutdown_taint};
use ccm_runtime::{ApiError, InstanceView, Permission};
use futures::StreamExt;
use parking_lot::Mutex;

use self::decide::{Budget, Unconfirmed, Verdict};
use self::metrics::LifecycleMetrics;
use self::steady::Steady;
use crate::ownership::Skips;
use crate::preview::{Preview, node_update};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "cloud-node-lifecycle-controller";
/// Component of its events.
pub const COMPONENT: &str = "cloud-node-lifecycle-controller";
/// RBAC permissions of this controller, without events and the shared stores.
pub const PERMISSIONS: &[Permission] = &[
    Permission::new("", "nodes", &["delete"], "nodes whose instance is gone"),
    Permission::new("", "nodes", &["patch"], "the taint of nodes whose instance is stopped"),
];
/// Concurrent writes of one pass by default.
const IN_FLIGHT: usize = 32;
/// How long a node without provider ID is left alone if other cloud controller managers share the cluster.
const WAIT_FOR_OTHERS: Duration = Duration::from_secs(30);
/// Attempts per deletion that the budget of a pass allows: if all are refused, the rest waits for the next pass.
const TRIES_PER_DELETION: usize = 2;

/// Settings of the controller.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// `--node-monitor-period`
    pub period: Duration,
    /// The maximum number of nodes that one pass deletes.
    pub budget: Budget,
    /// `--concurrent-node-lifecycle-syncs`: nodes that one pass writes at once; `None`: many.
    pub concurrent_syncs: Option<usize>,
    /// `--node-lifecycle-wait-timeout`; `None`: the default, which depends on whether other cloud controller managers
    /// share the cluster.
    pub wait_timeout: Option<Duration>,
}

struct LifecycleController {
    shared: Shared,
    view: Arc<InstanceView>,
    events: Arc<dyn EventSink>,
    config: Config,
    skips: Skips,
    unconfirmed: Mutex<Unconfirmed>,
    // The last node whose deletion was tried: the next pass begins after it, so that refused deletions do not block
    // others.
    last_tried: Mutex<Option<NodeName>>,
    // The last event message of each node, so that passes do not repeat it every few seconds.
    reported: Mutex<BTreeMap<NodeName, String>>,
    steady: Mutex<Steady>,
    metrics: LifecycleMetrics,
}

/// Starts the controller; the future runs until no new work may begin.
pub fn start(
    shared: Shared,
    events: Arc<dyn EventSink>,
    config: Config,
) -> Result<impl Future<Output = ()> + Send, NotStarted> {
    let view = shared.instances()?;
    let controller = Arc::new(LifecycleController::new(shared.clone(), view, events, config));
    Ok(async move {
        if shared.leadership.until_ended(shared.nodes.synced()).await.is_none() {
            return;
        }
        let pass = move || controller.clone().pass();
        runner::periodically(NAME, config.period, Pace::FromEnd, shared.leadership, shared.metrics, pass).await;
    })
}

/// Prepares one pass that only shows its plans. It emits an event for a node that waits for more evidence.
pub fn preview(shared: Shared, events: Arc<dyn EventSink>, config: Config) -> Result<Preview, NotStarted> {
    let view = shared.instances()?;
    let controller = Arc::new(LifecycleController::new(shared, view, events, config));
    Ok(Box::pin(async move {
        controller.pass().await;
        Vec::new()
    }))
}

impl LifecycleController {
    fn new(shared: Shared, view: Arc<InstanceView>, events: Arc<dyn EventSink>, config: Config) -> Self {
        let metrics = LifecycleMetrics::new(&shared.metrics);
        let steady = Mutex::new(Steady::new(shared.clock.now(), shared.clock.wall()));
        let (unconfirmed, last_tried, reported) = Default::default();
        let skips = Skips::new("nodelifecycle", view.clone(), &shared.metrics);
        Self { shared, view, events, config, skips, unconfirmed, last_tried, reported, steady, metrics }
    }

    /// One pass over all nodes.
    async fn pass(self: Arc<Self>) {
        let (began, now) = (self.shared.clock.now(), self.now());
        let mut nodes = self.shared.managed_nodes();
        let cluster = nodes.len();
        nodes.retain(|node| !self.is_foreign(node));
        self.metrics.foreign.set(i64::try_from(cluster - nodes.len()).unwrap_or(i64::MAX));
        nodes.retain(|node| !self.must_wait(node, now));
        let asked: Vec<NodeRef> = nodes.iter().filter(|node| decide::needs_answer(node)).cloned().collect();
        let answers = match asked.is_empty() {
            true => Vec::new(),
            false => {
                let answers = self.view.get(&asked, Aspects::LIFECYCLE);
                let Some(answers) = self.shared.leadership.until_ended(answers).await else { return };
                answers
            }
        };
        answers.iter().for_each(|answer| self.metrics.answered(answer));
        let foreign = asked.iter().zip(&answers).filter(|(_, answer)| matches!(answer, Lookup::Foreign));
        foreign.for_each(|(node, _)| self.skips.foreign(node));
        let now = self.now();
        let verdicts: Vec<Verdict> = {
            let mut unconfirmed = self.unconfirmed.lock();
            unconfirmed.retain(&asked);
            let names: BTreeSet<&NodeName> = asked.iter().map(|node| &node.name).collect();
            self.reported.lock().retain(|name, _| names.contains(name));
            asked.iter().zip(&answers).map(|(node, a)| decide::judge(node, a, now, &mut unconfirmed)).collect()
        };
        let mut deletions = Vec::new();
        let mut taints: Vec<(&NodeRef, bool)> =
            nodes.iter().filter(|node| decide::recovered(node)).map(|node| (node, false)).collect();
        for (node, verdict) in asked.iter().zip(verdicts) {
            // The answer may have taken long: skip a node that is gone or Ready by now.
            let current = self.shared.managed_node(&node.name);
            let Some(current) = current.filter(|current| current.uid == node.uid && decide::needs_answer(current))
            else {
                continue;
            };
            match verdict {
                Verdict::Keep => {}
                // The node is already being deleted; only other finalizers keep it.
                Verdict::Delete(_) if current.deleting => {}
                Verdict::Delete(evidence) => deletions.push((node, evidence)),
                Verdict::Taint => taints.push((node, true)),
                Verdict::Wait(reason) => {
                    self.shared.metrics.guard_refused("node-evidence");
                    tracing::info!(node = %node.name, reason, "node is not deleted yet");
                    self.tell_once(node, "NodeDeletionDeferred", &format!("Not deleted yet: {reason}"));
                }
                Verdict::Unknown(error) => {
                    tracing::error!(node = %node.name, %error, "error checking if node exists or is shut down: left as it is");
                    let message = format!(
                        "The node is not Ready, and whether its instance exists or is shut down could not be determined: {error}. \
                         The node is left as it is until the cloud gives a clear answer"
                    );
                    self.tell_once(node, "InstanceStateUnknown", &message);
                }
            }
        }
        self.delete_within_budget(deletions, cluster).await;
        let taint = taints.into_iter().map(|(node, add)| self.set_shutdown_taint(node, add));
        futures::stream::iter(taint).for_each_concurrent(self.in_flight(), |taint| taint).await;
        let took = self.shared.clock.now().saturating_duration_since(began);
        self.metrics.duration.observe(took.as_secs_f64());
    }

    /// The wall clock as it would be without jumps.
    fn now(&self) -> SystemTime {
        let clock = &self.shared.clock;
        self.steady.lock().at(clock.now(), clock.wall())
    }

    /// Writes at once.
    fn in_flight(&self) -> usize {
        self.config.concurrent_syncs.unwrap_or(IN_FLIGHT)
    }

    fn is_foreign(&self, node: &Node) -> bool {
        let is_foreign = self.view.is_foreign(node.provider_id.as_deref());
        if is_foreign {
            self.skips.foreign(node);
        }
        is_foreign
    }

    /// Whether the node has no provider ID yet and is so young that another cloud controller manager may give it one.
    fn must_wait(&self, node: &Node, now: SystemTime) -> bool {
        let wait = match self.config.wait_timeout {
            Some(wait) => wait,
            None if self.skips.is_hybrid() => WAIT_FOR_OTHERS,
            None => return false,
        };
        let waits = node.provider_id.is_none() && decide::is_younger(node, wait, now);
        if waits {
            self.skips.note("timeout_wait");
        }
        waits
    }

    /// Deletes as many nodes as the budget allows; refused deletions are replaced by others. Defers the rest to a later
    /// pass, and emits events about it.
    async fn delete_within_budget(&self, mut due: Vec<(&NodeRef, Evidence)>, cluster: usize) {
        let allowed = self.config.budget.of(cluster);
        let last_tried = self.last_tried.lock().clone();
        let behind = due.partition_point(|(node, _)| last_tried.as_ref().is_some_and(|last| node.name <= *last));
        due.rotate_left(behind);
        let (mut left, mut tries) = (allowed, allowed.saturating_mul(TRIES_PER_DELETION));
        let mut due = due.into_iter();
        while left.min(tries) > 0 && due.len() > 0 {
            let now: Vec<_> = due.by_ref().take(left.min(tries)).collect();
            let mut delete = Vec::new();
            for (node, evidence) in &now {
                delete.push(self.delete(node, evidence));
            }
            let deleted = futures::stream::iter(delete).buffer_unordered(self.in_flight());
            left -= deleted.filter(|deleted| std::future::ready(*deleted)).count().await;
            tries -= now.len();
            // A dry run deletes nothing, and shows the same plan each time.
            if let (Some((node, _)), false) = (now.last(), self.shared.gate.is_dry_run()) {
                *self.last_tried.lock() = Some(node.name.clone());
            }
        }
        let deferred: Vec<_> = due.collect();
        self.metrics.deferred.set(i64::try_from(deferred.len()).unwrap_or(i64::MAX));
        if deferred.is_empty() {
            return;
        }
        tracing::warn!(
            deferred = deferred.len(),
            allowed,
            "more nodes are gone than one pass may delete; the rest waits for the next passes"
        );
        for (node, evidence) in deferred {
            self.shared.metrics.guard_refused("node-deletion-budget");
            let message = format!(
                "Not deleted in this pass: {evidence}, but one pass deletes at most {allowed} of {cluster} nodes. It \
                 is retried in the next pass; --node-deletion-budget raises the limit"
            );
            self.tell_once(node, "NodeDeletionDeferred", &message);
        }
    }

    fn tell_once(&self, node: &Node, reason: &str, message: &str) {
        let mut reported = self.reported.lock();
        if reported.get(&node.name).is_some_and(|last| last == message) {
            return;
        }
        reported.insert(node.name.clone(), message.to_owned());
        let subject = Subject::node(&node.name, &node.uid);
        self.events.event(&subject, EventType::Warning, reason, message);
    }

    /// Deletes a node; returns whether that counts against the budget.
    async fn delete(&self, node: &Node, evidence: &Evidence) -> bool {
        let subject = Subject::node(&node.name, &node.uid);
        let step = Step { verb: Verb::Delete, ..node_update(node, Vec::new(), &evidence.to_string()) };
        self.shared.gate.show(&Plan::new(format!("node {}", node.name)).with(step));
        if self.shared.gate.is_dry_run() {
            return true;
        }
        // After a shutdown has begun, it is left to the next leader.
        if !self.shared.leadership.may_begin() {
            return true;
        }
        tracing::info!(node = %node.name, %evidence, "deleting node");
        let message = format!("Deleting node {} because it does not exist in the cloud provider", node.name);
        self.events.event(&subject, EventType::Normal, "DeletingNode", &message);
        match self.shared.node_writer().delete(node).await {
            Ok(deleted) => deleted,
            Err(error) if error.is_closed() => true,
            Err(error) => {
                tracing::error!(node = %node.name, %error, "unable to delete node");
                let message = format!("Failed deleting node {}: {error}", node.name);
                self.events.event(&subject, EventType::Warning, "DeletingNodeFailed", &message);
                // If the outcome is unknown, the deletion may have taken effect.
                !error.api().is_some_and(ApiError::is_refused)
            }
        }
    }

    async fn set_shutdown_taint(&self, node: &NodeRef, add: bool) {
        let decide = |node: &NodeRef| {
            let taints = Some(changed_taints(node, add)?);
            self.shared.gate.show(&taint_plan(node, add));
            Some(NodePatch { taints, ..NodePatch::default() })
        };
        match self.shared.node_writer().write(node, decide).await {
            Err(error) if !error.is_closed() => {
                tracing::error!(node = %node.name, %error, add, "failed to change the shutdown taint");
            }
            _ => {}
        }
    }
}

fn changed_taints(node: &Node, add: bool) -> Option<Vec<Taint>> {
    match add {
        true => taint::add_or_update(&node.taints, shutdown_taint()),
        false => taint::remove(&node.taints, &shutdown_taint()),
    }
}

fn taint_plan(node: &Node, add: bool) -> Plan {
    let key = Some(shutdown_taint().key.to_string());
    let (before, after) = if add { (None, key) } else { (key, None) };
    let change = Change { field: "taint".into(), before, after };
    let reason = if add { "the instance is stopped" } else { "the node is Ready again" };
    Plan::new(format!("node {} shutdown taint", node.name)).with(node_update(node, vec![change], reason))
}
