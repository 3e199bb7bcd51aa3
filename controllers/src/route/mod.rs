//! node-route-controller: one route per pod range of a node, and the condition `NetworkUnavailable`.
//!
//! Source of the behavior: `kubernetes/cloud-provider` `controllers/route/route_controller.go`.

mod apply;
mod decide;
pub(crate) mod metrics;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE};
use ccm_provider::{EventSink, NodeName, NodeRef, ObjectChange, Route, Routes};
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{self, Pace};
use ccm_runtime::{Permission, Queue, RateLimit, SyncError};
use futures::FutureExt;
use futures::channel::mpsc;
use ipnet::IpNet;
use parking_lot::Mutex;

use self::apply::{Busy, Writes, Written, carry_out, still_written};
use self::decide::Changes;
use self::metrics::RouteMetrics;
use crate::drift::Drift;
use crate::preview::{Preview, Unplanned};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "node-route-controller";
/// What its plans and failures are about.
const SUBJECT: &str = "routes";
/// RBAC permissions of this controller, without events and the shared stores.
pub const PERMISSIONS: &[Permission] =
    &[Permission::new("", "nodes/status", &["patch"], "the condition NetworkUnavailable")];
/// In the watch-based mode, the minimum time between reconciles.
const WATCH_PACE: Duration = Duration::from_secs(10);
/// Back-off of failed reconciles in the watch-based mode.
const LIMIT: RateLimit = RateLimit { base: WATCH_PACE, max: Duration::from_secs(300), bucket: None };

/// Settings of the controller.
#[derive(Debug, Clone)]
pub struct Config {
    /// `--cluster-cidr`
    pub cluster_cidrs: Vec<IpNet>,
    /// `--route-reconciliation-period`
    pub period: Duration,
    /// Reconcile when nodes change instead of periodically.
    pub watch_based: bool,
}

struct RouteController {
    shared: Shared,
    routes: Arc<dyn Routes>,
    events: Arc<dyn EventSink>,
    cluster_cidrs: Vec<IpNet>,
    /// Receives the writes of each reconcile.
    writes: mpsc::UnboundedSender<Writes>,
    busy: Mutex<Busy>,
    // Nodes whose deletion was observed, and those that were missing in the last reconcile.
    departed: Mutex<BTreeSet<NodeName>>,
    // The nodes for which the last reconcile left nothing to do.
    settled: Mutex<Option<Vec<NodeRef>>>,
    drift: Drift,
    metrics: RouteMetrics,
}

/// The reason for a reconcile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Trigger {
    NodeChange,
    /// The period, or a resync of the watch.
    Periodic,
}

/// Starts the controller; the future runs until no new work may begin.
pub fn start(
    shared: Shared,
    routes: Option<Arc<dyn Routes>>,
    events: Arc<dyn EventSink>,
    config: Config,
) -> Result<impl Future<Output = ()> + Send + use<>, NotStarted> {
    let Some(routes) = routes else { return Err(no_routes()) };
    let (controller, writes) = RouteController::new(shared.clone(), routes, events, config.cluster_cidrs);
    let queue = shared.queue("Routes", LIMIT);
    controller.clone().listen(config.watch_based.then(|| queue.clone()));
    let writes = carry_out(writes, shared.leadership.clone());
    let reconciles = async move {
        if shared.leadership.until_ended(shared.nodes.synced()).await.is_none() {
            return;
        }
        if config.watch_based {
            controller.run_on_changes(queue).await;
        } else {
            let pass = move || {
                let controller = controller.clone();
                async move {
                    let reconciled = controller.reconcile(Trigger::Periodic).await;
                    controller.note(&reconciled, Some(config.period));
                    if let Err(error) = reconciled {
                        tracing::error!(error, "couldn't reconcile node routes");
                    }
                }
            };
            runner::periodically(NAME, config.period, Pace::FromStart, shared.leadership, shared.metrics, pass).await;
        }
    };
    Ok(async move {
        futures::join!(reconciles, writes);
    })
}

/// Prepares one reconcile that only shows its plans.
pub fn preview(
    shared: Shared,
    routes: Option<Arc<dyn Routes>>,
    events: Arc<dyn EventSink>,
    config: Config,
) -> Result<Preview, NotStarted> {
    let Some(routes) = routes else { return Err(no_routes()) };
    // Nothing is written.
    let (controller, _) = RouteController::new(shared, routes, events, config.cluster_cidrs);
    Ok(Box::pin(async move {
        let failed = controller.reconcile(Trigger::Periodic).await.err();
        let failed = failed.map(|error| Unplanned { subject: SUBJECT.into(), error: SyncError::Retry(error) });
        failed.into_iter().collect()
    }))
}

fn no_routes() -> NotStarted {
    NotStarted("--configure-cloud-routes is set, but the cloud provider does not support routes".into())
}

impl RouteController {
    fn new(
        shared: Shared,
        routes: Arc<dyn Routes>,
        events: Arc<dyn EventSink>,
        cluster_cidrs: Vec<IpNet>,
    ) -> (Arc<Self>, mpsc::UnboundedReceiver<Writes>) {
        let (writes, receiver) = mpsc::unbounded();
        let metrics = RouteMetrics::new(&shared.metrics);
        let drift = Drift::new(&shared.metrics, NAME);
        let (busy, departed, settled) = Default::default();
        let controller =
            Self { shared, routes, events, cluster_cidrs, writes, busy, departed, settled, drift, metrics };
        (Arc::new(controller), receiver)
    }

    fn listen(self: Arc<Self>, queue: Option<Arc<Queue<Trigger>>>) {
        let nodes = self.shared.nodes.clone();
        nodes.on_change(move |change| {
            let trigger = match &change {
                ObjectChange::Added(node) => {
                    self.departed.lock().remove(&node.name);
                    Some(Trigger::NodeChange)
                }
                ObjectChange::Deleted(node) => {
                    self.departed.lock().insert(node.name.clone());
                    Some(Trigger::NodeChange)
                }
                ObjectChange::Updated(old, new) if old.pod_cidrs != new.pod_cidrs || old.addresses != new.addresses => {
                    Some(Trigger::NodeChange)
                }
                ObjectChange::Updated(old, new) => {
                    (old.resource_version == new.resource_version).then_some(Trigger::Periodic)
                }
            };
            if let (Some(trigger), Some(queue)) = (trigger, &queue) {
                // Waits briefly after the first change, so that a burst is one reconcile.
                queue.add_soon(trigger, Duration::from_millis(500));
            }
        });
    }

    /// Reconciles after changes, at most once per [`WATCH_PACE`].
    async fn run_on_changes(self: Arc<Self>, queue: Arc<Queue<Trigger>>) {
        queue.add(Trigger::NodeChange);
        let leadership = &self.shared.leadership;
        let work = async {
            while let Some(Some(keys)) = leadership.until_ended(queue.take_ready(2)).await {
                // Both are the same work.
                let trigger = keys.iter().min().copied().unwrap_or(Trigger::NodeChange);
                let reconciled = self.reconcile_caught(trigger).await;
                let next = reconciled.as_ref().err().map(|error| {
                    let after = queue.add_rate_limited(trigger);
                    tracing::error!(error, ?after, "couldn't reconcile node routes, trying again");
                    after
                });
                if next.is_none() {
                    keys.iter().for_each(|key| queue.forget(key));
                }
                self.note(&reconciled, next);
                leadership.until_ended(tokio::time::sleep(WATCH_PACE)).await;
                keys.iter().for_each(|key| queue.done(key));
            }
        };
        tokio::select! {
            biased;
            () = work => {}
            () = leadership.lost() => {}
        }
    }

    /// Records a failure or the end of one, for `/debug/state`.
    fn note(&self, reconciled: &Result<(), String>, next: Option<Duration>) {
        let failures = self.shared.metrics.failures();
        match reconciled {
            Ok(()) => failures.settled(NAME, SUBJECT),
            Err(error) => failures.failed(NAME, SUBJECT.into(), (error, None), next),
        }
    }

    /// Reconciles; a panic is a failed reconcile, and does not end the controller.
    async fn reconcile_caught(self: &Arc<Self>, trigger: Trigger) -> Result<(), String> {
        AssertUnwindSafe(self.reconcile(trigger)).catch_unwind().await.unwrap_or_else(|panic| {
            self.shared.metrics.panicked(NAME);
            Err(format!("a reconcile panicked: {}", panic_text(&*panic)))
        })
    }

    /// Lists, plans, writes, and updates the condition of each node. An error means that work is left.
    async fn reconcile(self: &Arc<Self>, trigger: Trigger) -> Result<(), String> {
        let changed = AtomicBool::new(false);
        let reconciled = self.reconcile_once(&changed).await;
        let outcome = match (&reconciled, changed.into_inner()) {
            (Err(_), _) => "error",
            (Ok(()), true) => "changed",
            (Ok(()), false) => "noop",
        };
        let trigger = match trigger {
            Trigger::NodeChange => "node_change",
            Trigger::Periodic => "periodic",
        };
        self.metrics.syncs.with_label_values(&[outcome, trigger]).inc();
        reconciled
    }

    /// `changed` becomes true if a route was created or deleted.
    async fn reconcile_once(self: &Arc<Self>, changed: &AtomicBool) -> Result<(), String> {
        let cluster = &self.shared.cluster;
        let before = self.busy().clone();
        let list = self.routes.list(cluster);
        let began = tokio::time::Instant::now();
        let read = deadline::within("ListRoutes", READ_DEADLINE, list);
        let Some(listed) = self.shared.leadership.until_ended(read).await else { return Ok(()) };
        self.shared.metrics.provider_call("ListRoutes", listed.as_ref().err(), began.elapsed());
        let routes = listed.map_err(|error| format!("error listing routes: {error}"))?;
        self.shared.metrics.observed("routes");
        let nodes = self.shared.nodes.list();
        let mut changes = self.plan(&routes, &nodes);
        let busy = self.leave_busy(&mut changes, before);
        self.note_drift(&changes, &nodes);
        self.shared.gate.show(&changes.plan(&nodes));
        if self.shared.gate.is_dry_run() {
            return Ok(());
        }
        let unconfirmed = changes.unconfirmed.len();
        let written = self.write(changes).await?;
        changed.store(written.changed, Ordering::Relaxed);
        match written {
            _ if busy > 0 => Err(still_written(busy)),
            Written { lacking: 0, conditions: 0, .. } if unconfirmed == 0 => {
                *self.settled.lock() = Some(nodes);
                Ok(())
            }
            Written { lacking, conditions, .. } => Err(format!(
                "nodes without all their routes: {lacking}; conditions that could not be written: {conditions}; routes to \
                 nodes that may be gone: {unconfirmed}"
            )),
        }
    }

    /// Counts due changes of nodes that have not changed since they were in sync: drift.
    fn note_drift(&self, changes: &Changes, nodes: &[NodeRef]) {
        let same = |a: &NodeRef, b: &NodeRef| {
            Arc::ptr_eq(a, b) || (a.name == b.name && a.pod_cidrs == b.pod_cidrs && a.addresses == b.addresses)
        };
        let settled = self.settled.lock();
        let as_before = settled
            .as_ref()
            .is_some_and(|settled| settled.len() == nodes.len() && settled.iter().zip(nodes).all(|(a, b)| same(a, b)));
        let drifted = if as_before { changes.delete.len() + changes.create.len() } else { 0 };
        // This reconcile repairs them: differences that the next one finds are new.
        self.drift.saw(drifted, drifted);
    }

    fn plan(&self, routes: &[Route], nodes: &[NodeRef]) -> Changes {
        let mut departed = self.departed.lock();
        let changes = decide::plan(routes, nodes, &self.cluster_cidrs, &departed, &self.shared.schemes);
        // Forget missing nodes without routes.
        departed.retain(|name| routes.iter().any(|route| route.target_node.as_ref() == Some(name)));
        departed.extend(changes.unconfirmed.iter().cloned());
        changes
    }
}
