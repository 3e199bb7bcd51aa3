//! `--cidr-allocator-type=CloudAllocator`: a node gets the pod ranges that the cloud assigned to its instance.
//!
//! Source of the behavior: `kubernetes/cloud-provider-gcp` `pkg/controller/nodeipam/ipam/cloud_cidr_allocator.go`.
//! Differences:
//!
//! * One read for all nodes that are due, at most once a second. Upstream reads each instance. After a read that hangs, its
//!   nodes are read in parts that do not wait for each other, down to the one at which it hangs.
//! * Nodes of other clouds are ignored, and those without provider ID until they have one. Upstream tries them 20
//!   times.
//! * A condition that is already `False` is not written again, even if another program set it. Upstream changes its
//!   reason.
//! * A node that has other ranges than its instance gets one event. Upstream tries 20 times to change it.
//! * Events contain the reason after upstream's text, even if only one family is missing, so that users see the remedy.
//! * `--cluster-cidr` may be omitted: it is not used here.

mod decide;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::deadline::READ_DEADLINE;
use ccm_provider::{EventSink, NodeName, NodeRef, ObjectChange, PodInterface, PodRanges, ProviderError};
use ccm_runtime::metrics::{Def, IntCounterVec};
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{self, Limits, Outcome, Reconciler, SyncError};
use ccm_runtime::writer::{Network, NodePatch};
use ccm_runtime::{Queue, RateLimit, metrics};
use futures::future::BoxFuture;
use futures::{FutureExt as _, StreamExt as _};
use parking_lot::{Mutex, MutexGuard};
use tokio::time::Instant;

pub use self::decide::Families;
use crate::Shared;
use crate::preview::{self, Preview, Scope};

/// Name of the queue, the label of its metrics.
const QUEUE: &str = "cloudCIDRAllocator";
/// Back-off of failed nodes.
const LIMIT: RateLimit =
    RateLimit { base: Duration::from_millis(250), max: Duration::from_secs(15), bucket: RateLimit::DEFAULT.bucket };
/// Retries of a node before it is dropped until it changes.
const RETRIES: u32 = 20;
/// Nodes that are written concurrently.
const WORKERS: usize = 30;
/// Pause between the starts of two reads: nodes that become due meanwhile are read together.
const PAUSE: Duration = Duration::from_secs(1);
/// The part of the nodes that no read has hung at.
const ALL: usize = 0;
/// The number of parts into which nodes are divided when a read for them hangs.
const PARTS: usize = 16;
/// The maximum number of parts: reads at once if the cloud does not answer at all.
const PARTS_AT_MOST: usize = 64;

metrics! {
    pub(crate) struct CloudMetrics {
        dropped: IntCounterVec = Def::counter("workqueue_dropped_objects", &["name"], "[ALPHA] Number of times objects have errored enough to be dropped from the workqueue.");
    }
}

struct CloudController {
    shared: Shared,
    events: Arc<dyn EventSink>,
    queue: Arc<Queue<NodeName>>,
    cloud: Arc<dyn PodRanges>,
    families: Families,
    metrics: CloudMetrics,
    // Nodes whose ranges have not been compared with the cloud's since they were first seen.
    unread: Mutex<BTreeSet<NodeName>>,
    // The start of the last read of `ALL`.
    read: Mutex<Option<Instant>>,
    // The parts of nodes at which a read hung.
    parts: Mutex<BTreeMap<NodeName, usize>>,
}

pub(super) fn start(
    shared: Shared,
    events: Arc<dyn EventSink>,
    cloud: Arc<dyn PodRanges>,
    families: Families,
) -> impl Future<Output = ()> + Send + use<> {
    let controller = Arc::new(CloudController::new(shared.clone(), events, cloud, families));
    let queue = controller.queue.clone();
    shared.on_managed_change({
        let controller = controller.clone();
        move |change| controller.changed(&change)
    });
    async move {
        if shared.leadership.until_ended(shared.nodes.synced()).await.is_none() {
            return;
        }
        runner::run(controller, queue, Limits { batch: 5000, groups: PARTS }, shared.leadership, shared.metrics).await;
    }
}

pub(super) fn preview(
    shared: Shared,
    events: Arc<dyn EventSink>,
    cloud: Arc<dyn PodRanges>,
    families: Families,
    scope: &Scope,
) -> Preview {
    let nodes = shared.managed_nodes().into_iter().map(|node| node.name.clone());
    let keys: Vec<NodeName> = nodes.filter(|name| scope.has_node(name)).collect();
    let controller = CloudController::new(shared, events, cloud, families);
    controller.unread().extend(keys.iter().cloned());
    Box::pin(async move { preview::sync_once(&controller, keys).await })
}

#[async_trait]
impl Reconciler for CloudController {
    type Key = NodeName;
    type Observed = ();
    /// A part. All nodes are one, [`ALL`], until a read hangs: there is one read at a time, for all nodes that became due
    /// during the previous one.
    type Group = usize;

    fn name(&self) -> &'static str {
        super::NAME
    }

    fn groups(&self, key: &NodeName) -> BTreeSet<usize> {
        [self.part(key)].into()
    }

    fn subject(&self, key: &NodeName) -> String {
        preview::node_subject(key)
    }

    fn reads_stores(&self) -> bool {
        true
    }

    /// Nothing: the read is part of the work, because it belongs to one part.
    async fn observe(&self, keys: &[NodeName]) -> Vec<Result<(), SyncError>> {
        keys.iter().map(|_| Ok(())).collect()
    }

    async fn reconcile(&self, work: Vec<(NodeName, ())>) -> Vec<(NodeName, Result<Outcome, SyncError>)> {
        let keys: Vec<NodeName> = work.into_iter().map(|(key, ())| key).collect();
        if keys.iter().any(|key| self.part(key) == ALL) && self.due(&keys).iter().any(Option::is_some) {
            self.wait().await;
        }
        let nodes = self.due(&keys);
        let asked: Vec<NodeRef> = nodes.iter().flatten().cloned().collect();
        let answers = match self.shared.read(self.read(&asked)).await {
            Ok(answers) => answers,
            Err(ending) => return keys.into_iter().map(|key| (key, Err(ending.clone()))).collect(),
        };
        for (node, _) in asked.iter().zip(&answers).filter(|(_, answer)| answer.is_ok()) {
            self.unread().remove(&node.name);
        }
        let mut answers = answers.into_iter();
        let syncs = keys.into_iter().zip(nodes).map(|(key, node)| {
            let answered = node.and_then(|node| Some((node, answers.next()?)));
            (key, answered)
        });
        let syncs = syncs.map(|(key, answered)| async move {
            let ended = match answered {
                // The node is gone, belongs to another cloud, or has its ranges.
                None => Ok(Outcome::Done),
                Some((node, answer)) => self.sync(&node, answer).await,
            };
            let ended = ended.map_err(|error| self.dropped(&key, error));
            (key, ended)
        });
        futures::stream::iter(syncs).buffer_unordered(WORKERS).collect().await
    }
}

impl CloudController {
    fn new(shared: Shared, events: Arc<dyn EventSink>, cloud: Arc<dyn PodRanges>, families: Families) -> Self {
        let queue = shared.queue(QUEUE, LIMIT);
        let metrics = CloudMetrics::new(&shared.metrics);
        let (unread, read, parts) = Default::default();
        Self { shared, events, queue, cloud, families, metrics, unread, read, parts }
    }

    /// Applies a change of a node. There is nothing to release: the cloud owns the ranges.
    fn changed(&self, change: &ObjectChange<NodeRef>) {
        match change {
            // This includes a node that has ranges: those of its instance may differ.
            ObjectChange::Added(node) if self.concerns(node) => {
                self.unread().insert(node.name.clone());
                self.queue.add(node.name.clone());
            }
            // A node that failed keeps its back-off, whatever its kubelet reports meanwhile.
            ObjectChange::Updated(_, node)
                if self.concerns(node) && decide::is_due(node) && self.queue.failures(&node.name) == 0 =>
            {
                self.queue.add(node.name.clone());
            }
            ObjectChange::Deleted(node) => {
                self.unread().remove(&node.name);
                self.parts.lock().remove(&node.name);
                self.queue.forget(&node.name);
                // One that was dropped is not tried again, which would settle it.
                self.shared.metrics.failures().settled(super::NAME, &preview::node_subject(&node.name));
            }
            _ => {}
        }
    }

    /// The nodes to look up, without those that a read has covered while they waited.
    fn due(&self, keys: &[NodeName]) -> Vec<Option<NodeRef>> {
        let unread = self.unread();
        let due = |node: &NodeRef| self.concerns(node) && (decide::is_due(node) || unread.contains(&node.name));
        keys.iter().map(|key| self.shared.managed_node(key).filter(due)).collect()
    }

    fn unread(&self) -> MutexGuard<'_, BTreeSet<NodeName>> {
        self.unread.lock()
    }

    fn concerns(&self, node: &NodeRef) -> bool {
        let id = node.provider_id.as_deref();
        !node.deleting && id.is_some() && !self.shared.schemes.is_foreign(id)
    }

    /// Waits until the next read may begin.
    async fn wait(&self) {
        let last = *self.read.lock();
        if let Some(last) = last {
            tokio::time::sleep_until(last + PAUSE).await;
        }
        *self.read.lock() = Some(Instant::now());
    }

    /// One answer per node.
    async fn read(&self, nodes: &[NodeRef]) -> Vec<Result<Vec<PodInterface>, ProviderError>> {
        if nodes.is_empty() {
            return Vec::new();
        }
        let began = Instant::now();
        let answers = match tokio::time::timeout(READ_DEADLINE, self.ask(nodes)).await {
            Ok(answers) => {
                let mut parts = self.parts.lock();
                for node in nodes {
                    parts.remove(&node.name);
                }
                answers
            }
            Err(_) => {
                self.divide(nodes);
                let error = ProviderError::deadline("PodRanges", READ_DEADLINE);
                nodes.iter().map(|_| Err(error.clone())).collect()
            }
        };
        let failed = answers.iter().filter_map(|answer| answer.as_ref().err());
        self.shared.metrics.provider_call(
            "PodRanges",
            failed.min_by_key(|error| error.is_in_progress()),
            began.elapsed(),
        );
        answers
    }

    fn part(&self, node: &NodeName) -> usize {
        self.parts.lock().get(node).copied().unwrap_or(ALL)
    }

    /// Divides nodes at which a read hung, as far as there are free parts.
    fn divide(&self, nodes: &[NodeRef]) {
        let mut parts = self.parts.lock();
        let theirs = nodes.first().and_then(|node| parts.get(&node.name).copied());
        let is_free = |part: &usize| Some(*part) == theirs || !parts.values().any(|used| used == part);
        let free: Vec<usize> = (ALL + 1..=PARTS_AT_MOST).filter(is_free).take(PARTS).collect();
        parts.extend(nodes.iter().map(|node| node.name.clone()).zip(free.into_iter().cycle()));
    }

    /// Calls the provider. A call that panics, or has too few answers, is halved down to the node that causes it: the
    /// others get their ranges.
    fn ask<'a>(&'a self, nodes: &'a [NodeRef]) -> BoxFuture<'a, Vec<Result<Vec<PodInterface>, ProviderError>>> {
        Box::pin(async move {
            let error = match AssertUnwindSafe(self.cloud.pod_ranges(nodes)).catch_unwind().await {
                Ok(answers) if answers.len() == nodes.len() => return answers,
                Ok(answers) => format!("the provider gave {} answers for {} nodes", answers.len(), nodes.len()),
                Err(panic) => {
                    self.shared.metrics.panicked("provider");
                    format!("the provider panicked: {}", panic_text(&*panic))
                }
            };
            tracing::error!(nodes = nodes.len(), "reading pod ranges: {error}");
            if let [_] = nodes {
                return vec![Err(ProviderError::bug(error))];
            }
            let (left, right) = nodes.split_at(nodes.len() / 2);
            let (mut left, right) = futures::join!(self.ask(left), self.ask(right));
            left.extend(right);
            left
        })
    }

    async fn sync(
        &self,
        node: &NodeRef,
        answer: Result<Vec<PodInterface>, ProviderError>,
    ) -> Result<Outcome, SyncError> {
        let wanted = match answer {
            Ok(interfaces) => decide::ranges(node, &interfaces, self.families).map_err(SyncError::Retry),
            Err(error) => Err(SyncError::provider("failed to get instance from provider", &error)),
        };
        let wanted = wanted.inspect_err(|error| {
            if !error.is_in_progress() {
                self.emit_status(node, "CIDRNotAvailable", error);
            }
        })?;
        let changes = decide::changes(node, &wanted).map_err(|error| {
            let error = SyncError::Terminal(error);
            self.emit_status(node, "CIDRAssignmentFailed", &error);
            error
        })?;
        self.shared.gate.show(&changes.plan(node));
        if !changes.pod_cidrs.is_empty() {
            self.write_ranges(node, &changes.pod_cidrs).await?;
        }
        if changes.network.is_some() {
            self.write_condition(node, &wanted).await?;
        }
        Ok(Outcome::Done)
    }

    async fn write_ranges(&self, node: &NodeRef, wanted: &[String]) -> Result<(), SyncError> {
        let decide = |node: &NodeRef| {
            let pod_cidrs = decide::changes(node, wanted).ok()?.pod_cidrs;
            (!pod_cidrs.is_empty()).then(|| NodePatch { pod_cidrs, ..NodePatch::default() })
        };
        match self.shared.node_writer().write(node, decide).await {
            Ok(written) => {
                if written.is_some() {
                    tracing::info!(node = %node.name, podCIDRs = wanted.join(","), "Set the node PodCIDRs");
                }
                Ok(())
            }
            Err(error) => {
                let error = SyncError::gate("failed to patch node CIDRs", error);
                if !matches!(error, SyncError::Closed(_)) {
                    self.emit_status(node, "CIDRAssignmentFailed", &error);
                }
                Err(error)
            }
        }
    }

    /// Writes the condition: the pods of a node with ranges of the cloud need no routes.
    async fn write_condition(&self, node: &NodeRef, wanted: &[String]) -> Result<(), SyncError> {
        let now = ccm_runtime::clock::timestamp(self.shared.clock.wall());
        let decide = |node: &NodeRef| {
            let network: Network = decide::changes(node, wanted).ok()?.network?;
            Some(NodePatch { network: Some((network, now)), ..NodePatch::default() })
        };
        let written = self.shared.node_writer().write(node, decide).await;
        written.map(drop).map_err(|error| SyncError::gate("Error setting route status for the node", error))
    }

    /// Stops the retries of a node that failed too often, until it changes.
    fn dropped(&self, key: &NodeName, error: SyncError) -> SyncError {
        let counts = matches!(error, SyncError::Retry(_) | SyncError::Provider { after: None, .. });
        if !counts || error.is_in_progress() || self.queue.failures(key) < RETRIES {
            return error;
        }
        tracing::error!(node = %key, %error, "Exceeded retry count, dropping from queue");
        self.metrics.dropped.with_label_values(&[QUEUE]).inc();
        SyncError::Terminal(error.to_string())
    }

    fn emit_status(&self, node: &NodeRef, reason: &str, why: &SyncError) {
        super::emit_status(&*self.events, node, reason, &format!(" ({why})"));
    }
}
