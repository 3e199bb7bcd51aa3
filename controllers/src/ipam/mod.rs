//! node-ipam-controller: assigns every node its pod ranges (`spec.podCIDR`, `spec.podCIDRs`): a block of each range of
//! the cluster or, with `--cidr-allocator-type=CloudAllocator`, the ranges that the cloud assigned to its instance
//! (module `cloud`).
//!
//! Disabled unless the provider enables it, since in most clusters kube-controller-manager does this. Two allocators
//! for one cluster assign a block to two nodes.
//!
//! Source of the behavior: `kubernetes/kubernetes` `pkg/controller/nodeipam/**`. Differences, all on the safe side:
//!
//! * A node whose range is no CIDR or is outside of `--cluster-cidr` gets an event and a log line; the process
//!   continues. Upstream never starts again, and no node gets a range.
//! * Ranges that overlap with those of another node or of Services get an event (`PodCIDROverlap`). Upstream is silent,
//!   and frees the block of both when one is deleted.
//! * A service range that cannot be read is an error. Upstream ignores it and assigns its addresses to pods.
//! * Nothing is assigned before the state of every node at the start of leading is known: a block that the last leader
//!   wrote to a node is not assigned again.
//! * A write ends within the lease: the next leader may not see one that takes effect later.
//! * A block whose write may have taken effect stays with its node, and the same block is tried again. Upstream tries
//!   another one, and loses the first.
//! * Two ranges: both blocks or none. Upstream loses the block of the first when the second is full.
//! * A full range is tried again when a block becomes free, and every five minutes. Upstream tries each node in a
//!   growing interval.

mod cidr_set;
pub(crate) mod cloud;
mod config;
mod fresh;
pub(crate) mod metrics;
mod pool;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::{Change, EventSink, EventType, Node, NodeName, NodeRef, ObjectChange, Plan, PodRanges, Subject};
use ccm_runtime::permission::Permission;
use ccm_runtime::runner::{self, Limits, Outcome, Reconciler, SyncError};
use ccm_runtime::writer::NodePatch;
use ccm_runtime::{ApiError, GateError, Queue, RateLimit};
use futures::future::BoxFuture;
use parking_lot::{Mutex, MutexGuard};

pub use self::cloud::Families;
pub use self::config::{CLOUD_ALLOCATOR, Config, Flags, RANGE_ALLOCATOR, Range, Ranges, validate};
use self::metrics::IpamMetrics;
use self::pool::{Full, Pool};
use crate::preview::{self, Preview, Scope};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "node-ipam-controller";
/// Component of the events.
pub const COMPONENT: &str = "cidrAllocator";
/// RBAC permissions of this controller.
pub const PERMISSIONS: &[Permission] = &[
    Permission::new("", "nodes", &["list"], "the state of all nodes before the first pod range is assigned"),
    Permission::new("", "nodes", &["patch"], "pod ranges of nodes"),
    Permission::new("", "nodes/status", &["patch"], "the condition NetworkUnavailable"),
];
/// Concurrent writes.
const WORKERS: usize = 30;
/// Attempts of a write before an event is emitted on the node, and the pause before the second.
const TRIES: u32 = 3;
const PAUSE: Duration = Duration::from_millis(100);
/// The maximum time of a write, if the lease does not end earlier.
const DEADLINE: Duration = Duration::from_secs(10);
/// The time until a node that found no free block is tried again if none becomes free.
const STARVED: Duration = Duration::from_secs(300);

const NOT_ASKED_FOR: &str = "--allocate-node-cidrs=false: pod ranges are not assigned here";
const NO_RANGES: &str = "the cloud provider gives instances no pod ranges";

struct IpamController {
    shared: Shared,
    events: Arc<dyn EventSink>,
    queue: Arc<Queue<NodeName>>,
    pool: Mutex<Pool>,
    metrics: IpamMetrics,
}

/// The observed state of a key.
enum Observed {
    /// The node is gone, is being deleted, or has its ranges.
    Settled,
    /// The node gets these blocks, which are written unchanged.
    Reserved(NodeRef, Box<[Box<str>]>),
    /// No block is free.
    Full(NodeRef, Full),
}

/// Starts the controller with the result of [`validate`]; the future runs until no new work may begin. `cloud`: the
/// provider's pod ranges, if it has any.
pub fn start(
    shared: Shared,
    events: Arc<dyn EventSink>,
    config: Option<&Config>,
    cloud: Option<Arc<dyn PodRanges>>,
) -> Result<BoxFuture<'static, ()>, NotStarted> {
    match (config, cloud) {
        (None, _) => Err(NotStarted(NOT_ASKED_FOR.into())),
        (Some(Config::Range(ranges)), _) => Ok(Box::pin(start_ranges(shared, events, ranges)?)),
        (Some(Config::Cloud(families)), Some(cloud)) => Ok(Box::pin(cloud::start(shared, events, cloud, *families))),
        (Some(Config::Cloud(_)), None) => Err(NotStarted(NO_RANGES.into())),
    }
}

fn start_ranges(
    shared: Shared,
    events: Arc<dyn EventSink>,
    config: &Ranges,
) -> Result<impl Future<Output = ()> + Send + use<>, NotStarted> {
    let queue = shared.queue("cidrallocator_node", RateLimit::DEFAULT);
    let controller = Arc::new(IpamController::new(shared.clone(), events, queue.clone(), config)?);
    if config.services.is_empty() {
        tracing::info!("No Service CIDR provided. Skipping filtering out service addresses");
    }
    shared.nodes.on_change({
        let controller = controller.clone();
        move |change| controller.changed(&change)
    });
    Ok(async move {
        let leadership = shared.leadership.clone();
        tokio::select! {
            biased;
            () = leadership.ended() => return,
            () = fresh::until_current(shared.gate.client(), &shared.nodes) => {}
        }
        let limits = Limits { batch: 5000, groups: WORKERS };
        runner::run(controller, queue, limits, leadership, shared.metrics).await;
    })
}

/// Prepares one pass over the nodes that only shows its plans.
pub fn preview(
    shared: Shared,
    events: Arc<dyn EventSink>,
    config: Option<&Config>,
    cloud: Option<Arc<dyn PodRanges>>,
    scope: &Scope,
) -> Result<Preview, NotStarted> {
    let config = match (config, cloud) {
        (None, _) => return Err(NotStarted(NOT_ASKED_FOR.into())),
        (Some(Config::Range(ranges)), _) => ranges,
        (Some(Config::Cloud(families)), Some(cloud)) => {
            return Ok(cloud::preview(shared, events, cloud, *families, scope));
        }
        (Some(Config::Cloud(_)), None) => return Err(NotStarted(NO_RANGES.into())),
    };
    let queue = shared.queue("cidrallocator_node", RateLimit::DEFAULT);
    let nodes = shared.nodes.list();
    let keys = nodes.iter().map(|node| node.name.clone()).filter(|name| scope.has_node(name)).collect();
    let controller = IpamController::new(shared, events, queue, config)?;
    // Record all used blocks first, so that no used block is reported as free.
    nodes.into_iter().for_each(|node| controller.changed(&ObjectChange::Added(node)));
    Ok(Box::pin(async move { preview::sync_once(&controller, keys).await }))
}

#[async_trait]
impl Reconciler for IpamController {
    type Key = NodeName;
    type Observed = Observed;
    type Group = NodeName;

    fn name(&self) -> &'static str {
        NAME
    }

    fn groups(&self, key: &NodeName) -> BTreeSet<NodeName> {
        [key.clone()].into()
    }

    fn subject(&self, key: &NodeName) -> String {
        preview::node_subject(key)
    }

    async fn observe(&self, keys: &[NodeName]) -> Vec<Result<Observed, SyncError>> {
        keys.iter().map(|key| Ok(self.choose(key))).collect()
    }

    async fn reconcile(&self, work: Vec<(NodeName, Observed)>) -> Vec<(NodeName, Result<Outcome, SyncError>)> {
        let mut answers = Vec::with_capacity(work.len());
        for (key, observed) in work {
            let answer = match observed {
                Observed::Settled => Ok(Outcome::Done),
                Observed::Reserved(node, blocks) => self.assign(&node, &blocks).await,
                Observed::Full(node, full) => {
                    emit_status(&*self.events, &node, "CIDRNotAvailable", "");
                    Err(SyncError::RetryAfter { message: full.to_string(), after: STARVED })
                }
            };
            answers.push((key, answer));
        }
        answers
    }
}

impl IpamController {
    fn new(
        shared: Shared,
        events: Arc<dyn EventSink>,
        queue: Arc<Queue<NodeName>>,
        config: &Ranges,
    ) -> Result<Self, NotStarted> {
        let pool = Pool::new(config).map_err(|range| {
            NotStarted(format!("the pod range {} cannot be cut into blocks of /{}", range.cidr, range.node_prefix))
        })?;
        if pool.sets().is_empty() {
            return Err(NotStarted("there is no pod range to assign blocks of".into()));
        }
        let metrics = IpamMetrics::new(&shared.metrics);
        metrics.update(pool.sets());
        Ok(Self { shared, events, queue, pool: Mutex::new(pool), metrics })
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock()
    }

    /// Applies a change of a node.
    fn changed(&self, change: &ObjectChange<NodeRef>) {
        match change {
            ObjectChange::Added(node) | ObjectChange::Updated(_, node) => {
                let (seen, starved) = {
                    let mut pool = self.pool();
                    let seen = pool.see(node);
                    if seen.changed {
                        self.metrics.update(pool.sets());
                    }
                    (seen, pool.is_starved(&node.name))
                };
                // Another program manages the node: it gets no ranges and no events, and its existing ranges count as
                // used.
                let managed = self.shared.manages(node);
                for finding in &seen.findings {
                    tracing::error!(node = %node.name, "{finding}");
                    if !managed {
                        continue;
                    }
                    let subject = Subject::node(&node.name, &node.uid);
                    self.events.event(&subject, EventType::Warning, finding.reason(), &finding.to_string());
                }
                self.wake(seen.freed);
                // A node that waits for a free block is queued when one becomes free.
                if managed && needs(node) && !starved {
                    self.queue.add(node.name.clone());
                }
            }
            ObjectChange::Deleted(node) => {
                let freed = {
                    let mut pool = self.pool();
                    let freed = pool.gone(node);
                    self.metrics.update(pool.sets());
                    freed
                };
                self.wake(freed);
            }
        }
    }

    fn wake(&self, freed: u64) {
        if freed > 0 {
            let waiting = self.pool().wake(freed);
            waiting.into_iter().for_each(|name| self.queue.add(name));
        }
    }

    /// Blocks for a node that has none. Reads the node from the store under the lock of the pool: if the node exists
    /// now, its deletion is handled only after the pool has recorded its blocks.
    fn choose(&self, name: &NodeName) -> Observed {
        let mut pool = self.pool();
        let Some(node) = self.shared.managed_node(name).filter(|node| needs(node)) else { return Observed::Settled };
        match pool.reserve(&node) {
            Ok(Some(reserved)) => {
                self.metrics.tried(pool.sets(), &reserved.tries);
                self.metrics.update(pool.sets());
                Observed::Reserved(node, reserved.texts)
            }
            Ok(None) => Observed::Settled,
            Err(full) => Observed::Full(node, full),
        }
    }

    /// Writes the blocks of a node.
    async fn assign(&self, node: &NodeRef, blocks: &[Box<str>]) -> Result<Outcome, SyncError> {
        self.shared.gate.show(&plan(node, blocks));
        let pod_cidrs = blocks.iter().map(ToString::to_string).collect();
        let patch = NodePatch { pod_cidrs, ..NodePatch::default() };
        let mut attempt = 1;
        let error = loop {
            // The node may have been changed while this write waited.
            if !self.shared.managed_node(&node.name).is_some_and(|now| now.uid == node.uid && needs(&now)) {
                return Ok(Outcome::Done);
            }
            // The UID keeps the blocks from a new node of the same name, and the API server refuses to change existing
            // ranges: so the write needs no version and conflicts with no other writer.
            let limit = within_lease(self.shared.leadership.left());
            match self.shared.node_writer().write_once(node, &patch, limit).await {
                Ok(version) => {
                    self.pool().written(node, &version);
                    tracing::info!(node = %node.name, podCIDRs = blocks.join(","), "Set node PodCIDR");
                    return Ok(Outcome::Done);
                }
                Err(error) if error.is_not_found() => return Ok(Outcome::Done),
                Err(error) => {
                    if may_be_written(&error) {
                        self.pool().unsure(node);
                    }
                    if attempt >= TRIES || !may_pass(&error) {
                        break error;
                    }
                }
            }
            tokio::time::sleep(PAUSE * attempt).await;
            attempt += 1;
        };
        if error.api().is_some_and(|error| !is_paced(error)) {
            self.failed(node, &error, blocks);
        }
        Err(SyncError::gate("failed to patch node CIDR", error))
    }

    fn failed(&self, node: &Node, error: &GateError, blocks: &[Box<str>]) {
        tracing::error!(node = %node.name, podCIDRs = blocks.join(","), %error, "Failed to update node PodCIDR after multiple attempts");
        emit_status(&*self.events, node, "CIDRAssignmentFailed", "");
        if may_be_written(error) {
            return;
        }
        let freed = {
            let mut pool = self.pool();
            let freed = pool.refused(node);
            self.metrics.update(pool.sets());
            freed
        };
        self.wake(freed);
    }
}

/// Upstream's event about the state of a node; `why` is appended to its text.
fn emit_status(events: &dyn EventSink, node: &Node, reason: &str, why: &str) {
    let message = format!("Node {} status is now: {reason}{why}", node.name);
    events.event(&Subject::node(&node.name, &node.uid), EventType::Normal, reason, &message);
}

/// The maximum time of a write, at the API server too: the next leader may not see a write that takes effect after the
/// lease is lost. A quarter of the lease is left for waits before the write is sent.
fn within_lease(left: Option<Duration>) -> Duration {
    left.map_or(DEADLINE, |left| (left * 3 / 4).min(DEADLINE))
}

/// Whether a node needs blocks.
fn needs(node: &Node) -> bool {
    node.pod_cidrs.is_empty() && !node.deleting
}

/// Whether a failed write may have taken effect, or may still do so.
fn may_be_written(error: &GateError) -> bool {
    error.api().is_some_and(|error| !error.is_refused() && !is_paced(error))
}

/// Whether the API server is overloaded and did not process the write.
fn is_paced(error: &ApiError) -> bool {
    matches!(error, ApiError::Status { code: 429, .. })
}

/// Whether the same write may succeed at once: its outcome is unknown, or another client has just written the node and
/// the watch is about to show it.
fn may_pass(error: &GateError) -> bool {
    let crossed = matches!(error.api(), Some(ApiError::Status { code: 409 | 422, .. }));
    let wait = error.api().is_some_and(|error| error.retry_after().is_some());
    !wait && (crossed || may_be_written(error))
}

fn plan(node: &Node, blocks: &[Box<str>]) -> Plan {
    let change = Change { field: "spec.podCIDRs".into(), before: None, after: Some(blocks.join(", ")) };
    let step = preview::node_update(node, vec![change], "the node has no pod range");
    Plan::new(format!("node {} pod ranges", node.name)).with(step)
}
