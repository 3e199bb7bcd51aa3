//! A provider's own controllers over nodes ([`ccm_provider::NodeTask`]).
//!
//! One generic controller: nodes that are due are queued and handed to the provider together; the changes that it
//! returns are written to the node through the gate. After a restart, the nodes themselves show what is left to do.

mod decide;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    Node, NodeChanges, NodeName, NodeRef, NodeTask, NodeTaskSpec, NodeWork, ObjectChange, ProviderError,
};
use ccm_runtime::client::Rate;
use ccm_runtime::permission::Permission;
use ccm_runtime::runner::{self, Limits, Outcome, Reconciler, SyncError};
use ccm_runtime::{Queue, RateLimit};

use crate::preview::{self, Preview, Scope};
use crate::{NotStarted, Shared};

/// RBAC permissions of this controller.
pub const PERMISSIONS: &[Permission] = &[Permission::new(
    "",
    "nodes",
    &["patch"],
    "labels, taints and pod ranges that the provider's own controllers answer with",
)];

/// A node and its incarnation, identified by the provider ID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
struct Key {
    name: NodeName,
    provider_id: Option<Box<str>>,
    deleted: bool,
}

impl Key {
    /// Whether the node runs on the machine of the key. After a deletion, a new node may run on the same machine, and
    /// reverting the work for the deleted one would break it.
    fn is_of(&self, node: &Node) -> bool {
        self.name == node.name && self.provider_id == node.provider_id
    }
}

struct NodeTaskController {
    shared: Shared,
    task: Arc<dyn NodeTask>,
    spec: &'static NodeTaskSpec,
    queue: Arc<Queue<Key>>,
}

/// Starts the controller; the future runs until no new work may begin.
pub fn start(
    shared: Shared,
    task: Option<Arc<dyn NodeTask>>,
    spec: &'static NodeTaskSpec,
) -> Result<impl Future<Output = ()> + Send + use<>, NotStarted> {
    let Some(task) = task else {
        return Err(NotStarted(format!("the cloud provider has no controller {:?}", spec.name)));
    };
    let limits = task.limits();
    let rate = limits.rate.map(|(qps, burst)| Rate { qps, burst }).or(RateLimit::DEFAULT.bucket);
    let rate = RateLimit { bucket: rate, ..RateLimit::DEFAULT };
    let queue = shared.queue(spec.queue, rate);
    let controller = Arc::new(NodeTaskController { shared: shared.clone(), task, spec, queue: queue.clone() });
    shared.nodes.on_change({
        let controller = controller.clone();
        move |change| controller.changed(&change)
    });
    Ok(async move {
        let limits = Limits { batch: limits.batch, groups: limits.workers };
        runner::run(controller, queue, limits, shared.leadership, shared.metrics).await;
    })
}

/// Prepares one pass over the nodes that only shows its plans. Nodes that are already deleted are not included.
pub fn preview(
    shared: Shared,
    task: Option<Arc<dyn NodeTask>>,
    spec: &'static NodeTaskSpec,
    scope: &Scope,
) -> Result<Preview, NotStarted> {
    let Some(task) = task else {
        return Err(NotStarted(format!("the cloud provider has no controller {:?}", spec.name)));
    };
    let mut nodes = shared.nodes.list();
    nodes.retain(|node| scope.has_node(&node.name) && task.is_due(node));
    let key = |node: &NodeRef| Key { name: node.name.clone(), provider_id: node.provider_id.clone(), deleted: false };
    let keys = nodes.iter().map(key).collect();
    let queue = shared.queue(spec.queue, RateLimit::DEFAULT);
    let controller = NodeTaskController { shared, task, spec, queue };
    Ok(Box::pin(async move { preview::sync_once(&controller, keys).await }))
}

#[async_trait]
impl Reconciler for NodeTaskController {
    type Key = Key;
    type Observed = NodeWork;
    /// There are as many groups as workers; all work on one node is in the same group.
    type Group = u64;

    fn name(&self) -> &'static str {
        self.spec.name
    }

    fn groups(&self, key: &Key) -> BTreeSet<u64> {
        let mut hasher = DefaultHasher::new();
        key.name.hash(&mut hasher);
        [hasher.finish() % u64::try_from(self.task.limits().workers.max(1)).unwrap_or(1)].into()
    }

    fn subject(&self, key: &Key) -> String {
        preview::node_subject(&key.name)
    }

    fn reads_stores(&self) -> bool {
        true
    }

    async fn observe(&self, keys: &[Key]) -> Vec<Result<NodeWork, SyncError>> {
        let node = |key: &Key| self.shared.nodes.get(&key.name).filter(|_| !key.deleted);
        let work =
            |key: &Key| NodeWork { name: key.name.clone(), provider_id: key.provider_id.clone(), node: node(key) };
        keys.iter().map(|key| Ok(work(key))).collect()
    }

    async fn reconcile(&self, work: Vec<(Key, NodeWork)>) -> Vec<(Key, Result<Outcome, SyncError>)> {
        // The task may have become unnecessary since it was queued.
        let (due, settled): (Vec<_>, Vec<_>) = work.into_iter().partition(|(key, work)| match &work.node {
            Some(node) => key.is_of(node) && self.task.is_due(node),
            None => key.deleted && !self.shared.nodes.get(&key.name).is_some_and(|node| key.is_of(&node)),
        });
        let mut answers: Vec<_> = settled.into_iter().map(|(key, _)| (key, Ok(Outcome::Done))).collect();
        if self.shared.gate.is_dry_run() {
            for (key, work) in due {
                let shown = self.show(&work).await;
                answers.push((key, shown));
            }
            return answers;
        }
        let (keys, work): (Vec<_>, Vec<_>) = due.into_iter().unzip();
        if work.is_empty() {
            return answers;
        }
        let run = self.shared.gate.cloud_each(self.spec.name, WRITE_DEADLINE, work.len(), self.task.run(&work));
        let done = match run.await {
            Ok(done) => done,
            Err(closed) => {
                answers.extend(keys.into_iter().map(|key| (key, Err(SyncError::Closed(closed.clone())))));
                return answers;
            }
        };
        for ((key, work), answer) in keys.into_iter().zip(&work).zip(done) {
            let outcome = match answer.and_then(|changes| decide::declared(self.spec, changes)) {
                Ok(changes) => self.write(work, &changes).await,
                Err(error) => Err(self.failure(&key, work, &error)),
            };
            answers.push((key, outcome));
        }
        answers
    }
}

impl NodeTaskController {
    /// Applies a change of a node.
    fn changed(&self, change: &ObjectChange<NodeRef>) {
        let (node, deleted) = match change {
            ObjectChange::Added(node) | ObjectChange::Updated(_, node) => (node, false),
            ObjectChange::Deleted(node) => (node, true),
        };
        if deleted {
            // One that was given up is not tried again, which would settle it.
            self.shared.metrics.failures().settled(self.spec.name, &preview::node_subject(&node.name));
        }
        let wanted = if deleted { self.task.minds_deletion() } else { self.task.is_due(node) };
        if !wanted {
            return;
        }
        let key = Key { name: node.name.clone(), provider_id: node.provider_id.clone(), deleted };
        match self.task.limits().rate {
            Some(_) => self.queue.add_limited(key),
            None => self.queue.add(key),
        }
    }

    async fn show(&self, work: &NodeWork) -> Result<Outcome, SyncError> {
        let plan = self.shared.read(deadline::within("the plan", READ_DEADLINE, self.task.plan(work))).await?;
        let plan = plan.map_err(|error| SyncError::provider("", &error))?;
        self.shared.gate.show(&plan);
        Ok(Outcome::Done)
    }

    async fn write(&self, work: &NodeWork, changes: &NodeChanges) -> Result<Outcome, SyncError> {
        let Some(node) = &work.node else { return Ok(Outcome::Done) };
        match self.shared.node_writer().write(node, |current| decide::patch(node, current, changes)).await {
            Ok(Some(_)) => {
                self.task.written(node);
                Ok(Outcome::Done)
            }
            // Nothing is left to write; or the node changed, which has queued it again if it is still due; or it is
            // deleted.
            Ok(None) => Ok(Outcome::Done),
            Err(error) => Err(SyncError::gate("failed to patch the node", error)),
        }
    }

    fn failure(&self, key: &Key, work: &NodeWork, error: &ProviderError) -> SyncError {
        let spent = self.task.limits().tries.is_some_and(|tries| self.queue.failures(key) >= tries);
        if error.is_in_progress() {
            return SyncError::provider("", error);
        }
        self.task.failed(work, error, spent);
        if !spent {
            return SyncError::provider("", error);
        }
        tracing::error!(node = %work.name, controller = self.spec.name, %error, "given up");
        // Tried again when the node changes.
        SyncError::Terminal(error.to_string())
    }
}
