//! cloud-node-controller: initializes new nodes, keeps addresses and the older labels current.
//!
//! Source of the behavior: `kubernetes/cloud-provider` `controllers/node/node_controller.go`.

mod decide;
pub(crate) mod metrics;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::well_known::TAINT_UNINITIALIZED;
use ccm_provider::{
    Aspects, EventSink, EventType, InstanceMetadata, Lookup, Node, NodeAddress, NodeName, NodeRef, ObjectChange, Plan,
    ProviderError, Subject,
};
use ccm_runtime::runner::{self, Limits, Outcome, Pace, Reconciler, SyncError};
use ccm_runtime::writer::NodePatch;
use ccm_runtime::{InstanceView, Permission, RateLimit};
use futures::StreamExt;
use futures::future::BoxFuture;
use parking_lot::Mutex;

use self::metrics::NodeMetrics;
use crate::ownership::Skips;
use crate::preview::{self, Preview, Scope, Unplanned};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "cloud-node-controller";
/// Component of its events.
pub const COMPONENT: &str = "cloud-node-controller";
/// RBAC permissions of this controller, without events and the shared stores.
pub const PERMISSIONS: &[Permission] = &[
    Permission::new("", "nodes", &["patch"], "provider ID, labels, and the taint of new nodes"),
    Permission::new("", "nodes/status", &["patch"], "addresses of nodes"),
];
const ADDRESSES_FAILED: &str = "failed to update node addresses";
/// Nodes whose addresses are compared at once in a preview.
const SURVEYED_AT_ONCE: usize = 100;

/// The time until a node without provider ID that the cloud does not know, and that may belong to another one, is looked
/// up again.
const UNKNOWN_AGAIN: Duration = Duration::from_secs(10);

/// The time until addresses that could not be written are written again; it doubles up to that of [`LIMIT`]. Nodes that
/// take pods already use up no retries of the queue, for which tainted nodes would wait.
const ADDRESSES_AGAIN: Duration = Duration::from_millis(25);

/// A tainted node is retried once a minute, not after 1,000 s as upstream, since all waiting nodes share a call.
const LIMIT: RateLimit = RateLimit { max: Duration::from_secs(60), ..RateLimit::DEFAULT };

/// Settings of the controller.
#[derive(Debug, Clone, Copy)]
pub struct Config {
    /// `--concurrent-node-syncs`; `None`: bounded only by the pace of the API server.
    pub concurrent_syncs: Option<usize>,
    /// `--concurrent-node-status-updates`; `None`: as many as syncs.
    pub concurrent_status_updates: Option<usize>,
    /// `--node-status-update-frequency`
    pub status_update_period: Duration,
    /// The gate `CloudNodeAdditionalLabelsReconciliation`: additional labels follow the cloud.
    pub reconcile_labels: bool,
}

struct NodeController {
    shared: Shared,
    view: Arc<InstanceView>,
    events: Arc<dyn EventSink>,
    metrics: NodeMetrics,
    skips: Skips,
    reconcile_labels: bool,
    /// Nodes whose initialization was sent and is not complete: the UID, and how often their addresses were to be written
    /// since the taint is known to be gone.
    begun: Mutex<BTreeMap<NodeName, (Box<str>, u32)>>,
}

/// The observed state of a key.
enum Observed {
    /// The node is not in the cache.
    Missing,
    /// The node is initialized.
    Settled(NodeRef),
    /// The node waits for initialization; the cloud's answer arrives later, for each node separately.
    Waiting(NodeRef, BoxFuture<'static, Lookup>),
}

/// Starts the controller; the future runs until no new work may begin.
pub fn start(
    shared: Shared,
    events: Arc<dyn EventSink>,
    config: Config,
) -> Result<impl Future<Output = ()> + Send, NotStarted> {
    let view = shared.instances()?;
    let queue = shared.queue("Nodes", LIMIT);
    let controller = Arc::new(NodeController::new(shared.clone(), view, events, config.reconcile_labels));
    shared.on_managed_change({
        let (queue, controller) = (queue.clone(), controller.clone());
        move |change| match change {
            ObjectChange::Added(node) | ObjectChange::Updated(_, node) => {
                // An initialized node with correct labels needs nothing: don't queue it.
                if node.has_taint(TAINT_UNINITIALIZED) || !decide::label_fixes(&node).is_empty() {
                    queue.add(node.name.clone());
                }
            }
            // A new node of this name starts without failures.
            ObjectChange::Deleted(node) => {
                controller.begun.lock().remove(&node.name);
                queue.forget(&node.name);
                controller.shared.metrics.failures().settled(NAME, &preview::node_subject(&node.name));
            }
        }
    });
    // Without the flag, the gate limits the writes: nodes that wait for their addresses must not delay the taints of
    // others.
    let limits = Limits { batch: 5000, groups: config.concurrent_syncs.unwrap_or(5000) };
    let status = controller.clone();
    let parallel = config.concurrent_status_updates.or(config.concurrent_syncs).unwrap_or(100).max(1);
    Ok(async move {
        let (leadership, metrics) = (shared.leadership.clone(), shared.metrics.clone());
        if leadership.until_ended(shared.nodes.synced()).await.is_none() {
            return;
        }
        let refresh = runner::periodically(
            "node addresses",
            config.status_update_period,
            Pace::FromEnd,
            leadership.clone(),
            metrics.clone(),
            move || status.clone().refresh_all(parallel, config.status_update_period),
        );
        futures::join!(refresh, runner::run(controller, queue, limits, leadership, metrics));
    })
}

/// Prepares one pass that only shows its plans: initialization, labels, addresses.
pub fn preview(
    shared: Shared,
    events: Arc<dyn EventSink>,
    scope: &Scope,
    reconcile_labels: bool,
) -> Result<Preview, NotStarted> {
    let view = shared.instances()?;
    let mut nodes = shared.managed_nodes();
    nodes.retain(|node| scope.has_node(&node.name));
    let controller = Arc::new(NodeController::new(shared, view, events, reconcile_labels));
    Ok(Box::pin(async move {
        let keys = nodes.iter().map(|node| node.name.clone()).collect();
        let mut failed = preview::sync_once(&*controller, keys).await;
        nodes.retain(|node| !node.has_taint(TAINT_UNINITIALIZED));
        let refreshed = controller.refresh(nodes, SURVEYED_AT_ONCE).await;
        failed.extend(
            refreshed.into_iter().map(|(name, error)| Unplanned { subject: preview::node_subject(&name), error }),
        );
        failed
    }))
}

#[async_trait]
impl Reconciler for NodeController {
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
        let known = |key| self.shared.managed_node(key).map(|node| (self.awaits(&node), node));
        let nodes: Vec<Option<(bool, NodeRef)>> = keys.iter().map(known).collect();
        let waiting = nodes.iter().flatten().filter(|(waits, _)| *waits).map(|(_, node)| node.clone());
        let mut answers = self.view.ask(&waiting.collect::<Vec<_>>(), Aspects::METADATA).into_iter();
        let observed = nodes.into_iter().map(|node| match node {
            None => Ok(Observed::Missing),
            Some((true, node)) => match answers.next() {
                Some(answer) => Ok(Observed::Waiting(node, Box::pin(answer))),
                None => Err(SyncError::Retry("the look-up ended without an answer".into())),
            },
            Some((false, node)) => Ok(Observed::Settled(node)),
        });
        observed.collect()
    }

    async fn reconcile(&self, work: Vec<(NodeName, Observed)>) -> Vec<(NodeName, Result<Outcome, SyncError>)> {
        let mut answers = Vec::with_capacity(work.len());
        for (key, observed) in work {
            let answer = match observed {
                Observed::Missing => Ok(Outcome::Done),
                Observed::Settled(node) => self.fix_labels(&node).await,
                Observed::Waiting(node, answer) => match self.shared.read(answer).await {
                    Ok(lookup) => self.initialize(node, lookup).await,
                    Err(ending) => Err(ending),
                },
            };
            answers.push((key, answer));
        }
        answers
    }
}

impl NodeController {
    fn new(shared: Shared, view: Arc<InstanceView>, events: Arc<dyn EventSink>, reconcile_labels: bool) -> Self {
        let managed = shared.unmanaged.clone();
        let awaits = move |node: &Node| node.has_taint(TAINT_UNINITIALIZED) && !managed.has(node);
        let metrics = NodeMetrics::of(&shared.metrics, &shared.nodes, awaits);
        let skips = Skips::new("node", view.clone(), &shared.metrics);
        Self { shared, view, events, metrics, skips, reconcile_labels, begun: Mutex::default() }
    }

    /// Whether the node must be initialized, or its initialization is to be completed.
    fn awaits(&self, node: &Node) -> bool {
        node.has_taint(TAINT_UNINITIALIZED) || self.has_begun(node)
    }

    fn has_begun(&self, node: &Node) -> bool {
        self.begun.lock().get(&node.name).is_some_and(|(uid, _)| *uid == node.uid)
    }

    fn end(&self, node: &Node) {
        if self.has_begun(node) {
            self.begun.lock().remove(&node.name);
        }
    }

    /// Ends the work on a node that the cloud says nothing about.
    async fn leave(&self, node: &NodeRef) -> Result<Outcome, SyncError> {
        self.end(node);
        if node.has_taint(TAINT_UNINITIALIZED) { Ok(Outcome::Done) } else { self.fix_labels(node).await }
    }

    async fn initialize(&self, node: NodeRef, lookup: Lookup) -> Result<Outcome, SyncError> {
        let context = format!("failed to get instance metadata for node {}", node.name);
        if self.skips.is_hybrid() && node.provider_id.is_none() && decide::is_unknown(&lookup) {
            tracing::debug!(node = %node.name, "the cloud does not know the node: it may belong to another one");
            self.skips.note("no_provider_id");
            return Ok(Outcome::After(UNKNOWN_AGAIN));
        }
        let mut metadata = match lookup {
            Lookup::Found(instance) => match &instance.metadata {
                Ok(Some(metadata)) => metadata.clone(),
                Ok(None) => {
                    tracing::info!(node = %node.name, "the cloud has no metadata for the node yet: left as it is");
                    return self.leave(&node).await;
                }
                Err(error) => return Err(self.failed(&node, SyncError::provider(&context, error))),
            },
            Lookup::Foreign => {
                tracing::debug!(node = %node.name, "the node belongs to another cloud: left as it is");
                self.skips.foreign(&node);
                return self.leave(&node).await;
            }
            Lookup::Gone(evidence) => {
                let text = format!("{context}: {} ({evidence})", ProviderError::InstanceNotFound);
                return Err(self.failed(&node, SyncError::Retry(text)));
            }
            Lookup::Unknown(error) => return Err(self.failed(&node, SyncError::provider(&context, &error))),
        };
        let resource_version = (&*node.resource_version).into();
        let subject = Subject { resource_version, ..Subject::node(&node.name, &node.uid) };
        let written = match self.remove_taint(&node, &metadata).await? {
            Some(written) => written,
            None => match self.shared.managed_node(&node.name).filter(|known| known.uid == node.uid) {
                // A single answer said that it does not exist.
                Some(known) if known.has_taint(TAINT_UNINITIALIZED) => {
                    return Err(SyncError::Retry("the API server does not find the node".to_owned()));
                }
                // The answer to the removal was lost, or the addresses are left.
                Some(known) if self.has_begun(&known) => known,
                _ => {
                    self.end(&node);
                    return Ok(Outcome::Done);
                }
            },
        };
        // Thousands of nodes may wait for the write of their addresses: keep nothing else for them.
        let addresses = std::mem::take(&mut metadata.node_addresses);
        drop((node, metadata, context));
        let failures = self.addresses_begin(&written);
        let is_new = failures == 0;
        if is_new {
            self.observe_age(&written, &self.metrics.taint_removal);
            tracing::info!(node = %written.name, "Successfully initialized node with cloud provider");
        }
        let updated = self.update_addresses(&written, &addresses).await;
        if is_new {
            self.events.event(&subject, EventType::Normal, "Synced", "Node synced successfully");
            self.observe_age(&written, &self.metrics.initial_sync);
        }
        updated.map_err(|error| SyncError::RetryAfter {
            message: format!("{ADDRESSES_FAILED}: {error}"),
            after: ADDRESSES_AGAIN.saturating_mul(1 << failures.min(16)).min(LIMIT.max),
        })?;
        self.begun.lock().remove(&written.name);
        Ok(Outcome::Done)
    }

    /// Records that the addresses of a node without the taint are to be written. Returns how often they could not be.
    fn addresses_begin(&self, node: &Node) -> u32 {
        let mut begun = self.begun.lock();
        let (_, times) = begun.entry(node.name.clone()).or_insert_with(|| (node.uid.clone(), 0));
        let before = *times;
        *times = before.saturating_add(1);
        before
    }

    /// Emits an event with the reason why the node stays tainted. No event if the cloud only needs time.
    fn failed(&self, node: &Node, error: SyncError) -> SyncError {
        if error.is_in_progress() || !node.has_taint(TAINT_UNINITIALIZED) {
            return error;
        }
        let message = format!(
            "{error}. The node keeps the taint {TAINT_UNINITIALIZED} and takes no pods until this is resolved; the \
             initialization is retried"
        );
        let subject = Subject::node(&node.name, &node.uid);
        self.events.failure(&subject, "FailedToInitializeNode", &message, error.class());
        error
    }

    /// Writes everything but the addresses; `None` if no work is left or nothing may be written.
    async fn remove_taint(&self, node: &NodeRef, metadata: &InstanceMetadata) -> Result<Option<NodeRef>, SyncError> {
        let mut refused = None;
        let decide = |node: &NodeRef| {
            if !node.has_taint(TAINT_UNINITIALIZED) {
                return None;
            }
            let init = decide::initialize(node, metadata, self.view.provider_id_required())
                .map_err(|error| refused = Some(self.failed(node, SyncError::Retry(error))))
                .ok()?;
            for text in &init.left_out {
                tracing::warn!(node = %node.name, "{text}");
            }
            let addresses = decide::addresses(node, &metadata.node_addresses).ok().flatten();
            self.shared.gate.show(&init.plan(node, addresses.as_deref()));
            if !self.shared.gate.is_dry_run() {
                self.begun.lock().insert(node.name.clone(), (node.uid.clone(), 0));
            }
            Some(init.patch)
        };
        let written = self.shared.node_writer().write(node, decide).await;
        refused.map_or(Ok(()), Err)?;
        written.map_err(|error| {
            let is_refused = error.api().is_some_and(|api| api.is_refused() && !api.is_conflict());
            let error = SyncError::gate("failed to initialize node", error);
            if is_refused { self.failed(node, error) } else { error }
        })
    }

    fn observe_age(&self, node: &Node, histogram: &ccm_runtime::metrics::Histogram) {
        if let Some(created) = node.created {
            let now = ccm_runtime::clock::timestamp(self.shared.clock.wall());
            histogram.observe(now.duration_since(created).as_secs_f64().max(0.0));
        }
    }

    async fn update_addresses(&self, node: &NodeRef, seen: &[NodeAddress]) -> Result<(), String> {
        let Some(wanted) = decide::addresses(node, seen)? else { return Ok(()) };
        let step = decide::address_step(node, &wanted);
        self.shared.gate.show(&Plan::new(format!("node {} addresses", node.name)).with(step));
        let patch = NodePatch { addresses: wanted, ..NodePatch::default() };
        match self.shared.node_writer().write(node, |_| Some(patch.clone())).await {
            Err(error) if !error.is_closed() => Err(error.to_string()),
            _ => Ok(()),
        }
    }

    /// One periodic pass over all initialized nodes. One failure does not stop the others; nothing is retried before
    /// the next pass.
    async fn refresh_all(self: Arc<Self>, parallel: usize, period: Duration) {
        let mut nodes = self.shared.managed_nodes();
        nodes.retain(|node| !node.has_taint(TAINT_UNINITIALIZED));
        let names: Vec<NodeName> = nodes.iter().map(|node| node.name.clone()).collect();
        let failed: BTreeMap<NodeName, SyncError> = self.refresh(nodes, parallel).await.into_iter().collect();
        let failures = self.shared.metrics.failures();
        for name in names {
            let subject = preview::node_subject(&name);
            match failed.get(&name) {
                // Nothing would settle the failure of a node that is gone.
                Some(_) if self.shared.managed_node(&name).is_none() => {}
                Some(error) => {
                    tracing::error!(node = %name, %error, "Failed to refresh node");
                    failures.failed(NAME, subject, (&error.to_string(), error.class().cloned()), Some(period));
                }
                None if failures.is_empty() => {}
                None => failures.settled(NAME, &subject),
            }
        }
    }

    /// Updates the addresses of these nodes, and their additional labels with the gate; returns the failures.
    async fn refresh(&self, nodes: Vec<NodeRef>, parallel: usize) -> Vec<(NodeName, SyncError)> {
        let aspects = if self.reconcile_labels { Aspects::METADATA } else { Aspects::ADDRESSES };
        let answers = self.view.get(&nodes, aspects);
        let Some(answers) = self.shared.leadership.until_ended(answers).await else { return Vec::new() };
        let refresh = nodes.into_iter().zip(answers).map(|(node, answer)| async move {
            let error = match answer {
                Lookup::Found(instance) => match &instance.metadata {
                    Ok(Some(metadata)) => {
                        // Read the cache again: the lookup may have taken long, and the node may be another one by now.
                        match self.shared.managed_node(&node.name).filter(|current| current.uid == node.uid) {
                            Some(current) => self.refresh_one(&current, metadata).await.err(),
                            None => None,
                        }
                    }
                    Ok(None) => None,
                    Err(error) => Some(SyncError::provider(ADDRESSES_FAILED, error)),
                },
                // The lifecycle controller handles such a node.
                Lookup::Unknown(error) if error.is_instance_not_found() => None,
                Lookup::Gone(_) => None,
                Lookup::Foreign => {
                    self.skips.foreign(&node);
                    None
                }
                Lookup::Unknown(error) => Some(SyncError::provider(ADDRESSES_FAILED, &error)),
            };
            error.map(|error| (node.name.clone(), error))
        });
        let failed = futures::stream::iter(refresh).buffer_unordered(parallel.max(1));
        failed.filter_map(std::future::ready).collect().await
    }

    async fn refresh_one(&self, node: &NodeRef, metadata: &InstanceMetadata) -> Result<(), SyncError> {
        let addresses = self.update_addresses(node, &metadata.node_addresses).await;
        let labels = match self.reconcile_labels {
            true => self.update_labels(node, metadata).await,
            false => Ok(()),
        };
        addresses.map_err(|error| SyncError::Retry(format!("{ADDRESSES_FAILED}: {error}"))).and(labels)
    }

    async fn update_labels(&self, node: &NodeRef, metadata: &InstanceMetadata) -> Result<(), SyncError> {
        let decide = |node: &NodeRef| {
            let labels = decide::changed_additional_labels(node, metadata);
            if labels.is_empty() {
                return None;
            }
            let changes = decide::label_changes(node, &labels);
            let step = preview::node_update(node, changes, "the cloud shows other labels");
            self.shared.gate.show(&Plan::new(format!("node {} labels", node.name)).with(step));
            Some(NodePatch { labels, ..NodePatch::default() })
        };
        match self.shared.node_writer().write(node, decide).await {
            Err(error) if !error.is_closed() => Err(SyncError::gate("failed to update additional labels", error)),
            _ => Ok(()),
        }
    }

    async fn fix_labels(&self, node: &NodeRef) -> Result<Outcome, SyncError> {
        let fixes = decide::label_fixes(node);
        if fixes.is_empty() || self.view.is_foreign(node.provider_id.as_deref()) {
            return Ok(Outcome::Done);
        }
        let labels: BTreeMap<_, _> = fixes.into_iter().map(|(key, value)| (key.to_owned(), value)).collect();
        let changes = decide::label_changes(node, &labels);
        let step = preview::node_update(node, changes, "the stable labels follow the beta labels");
        self.shared.gate.show(&Plan::new(format!("node {} labels", node.name)).with(step));
        let patch = NodePatch { labels, ..NodePatch::default() };
        let written = self.shared.node_writer().write(node, |_| Some(patch.clone())).await;
        written.map(|_| Outcome::Done).map_err(|error| SyncError::gate("failed to reconcile labels", error))
    }
}
