//! node-route-controller: one route per pod range of a node, and the condition `NetworkUnavailable`.
//!
//! Source of the behaviour: `kubernetes/cloud-provider` `controllers/route/route_controller.go`.

mod decide;
pub(crate) mod metrics;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ccm_provider::deadline::{self, READ_DEADLINE, WRITE_DEADLINE};
use ccm_provider::{
    ErrorClass, EventSink, EventType, NewRoute, NodeName, NodeRef, ObjectChange, ProviderError, Route, Routes, Subject,
    duration,
};
use ccm_runtime::gate::settled;
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{self, Pace};
use ccm_runtime::writer::{Network, NodePatch};
use ccm_runtime::{GateError, Permission, Queue, RateLimit, SyncError};
use futures::{FutureExt, StreamExt};
use ipnet::IpNet;

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
/// Attempts of a creation that meets a conflict, and the pause before the first repetition.
const CONFLICT_TRIES: u32 = 5;
const CONFLICT_PAUSE: Duration = Duration::from_millis(100);
/// Conditions written at once.
const IN_FLIGHT: usize = 32;
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
    let controller = Arc::new(RouteController::new(shared.clone(), routes, events, config.cluster_cidrs));
    let queue = shared.queue("Routes", LIMIT);
    controller.clone().listen(config.watch_based.then(|| queue.clone()));
    Ok(async move {
        shared.nodes.synced().await;
        if config.watch_based {
            controller.run_on_changes(queue).await;
        } else {
            let pass = move || {
                let controller = controller.clone();
                async move {
                    let reconciled = settled(controller.reconcile(Trigger::Periodic)).await;
                    controller.note(&reconciled, Some(config.period));
                    if let Err(error) = reconciled {
                        tracing::error!(error, "couldn't reconcile node routes");
                    }
                }
            };
            runner::periodically(NAME, config.period, Pace::FromStart, shared.leadership, shared.metrics, pass).await;
        }
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
    let controller = RouteController::new(shared, routes, events, config.cluster_cidrs);
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
    ) -> Self {
        let metrics = RouteMetrics::new(&shared.metrics);
        let drift = Drift::new(&shared.metrics, NAME);
        let (departed, settled) = (Mutex::default(), Mutex::default());
        Self { shared, routes, events, cluster_cidrs, departed, settled, drift, metrics }
    }

    fn listen(self: Arc<Self>, queue: Option<Arc<Queue<Trigger>>>) {
        let nodes = self.shared.nodes.clone();
        nodes.on_change(move |change| {
            let trigger = match &change {
                ObjectChange::Added(node) => {
                    self.departed.lock().unwrap_or_else(PoisonError::into_inner).remove(&node.name);
                    Some(Trigger::NodeChange)
                }
                ObjectChange::Deleted(node) => {
                    self.departed.lock().unwrap_or_else(PoisonError::into_inner).insert(node.name.clone());
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
                queue.add_after(trigger, Duration::from_millis(500));
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
                let reconciled = settled(self.reconcile_caught(trigger)).await;
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
    async fn reconcile_caught(&self, trigger: Trigger) -> Result<(), String> {
        AssertUnwindSafe(self.reconcile(trigger)).catch_unwind().await.unwrap_or_else(|panic| {
            self.shared.metrics.panicked(NAME);
            Err(format!("a reconcile panicked: {}", panic_text(&*panic)))
        })
    }

    /// Lists, plans, writes, and updates the condition of each node. An error means that work is left.
    async fn reconcile(&self, trigger: Trigger) -> Result<(), String> {
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

    /// `changed` becomes true with the first route that is created or deleted.
    async fn reconcile_once(&self, changed: &AtomicBool) -> Result<(), String> {
        let cluster = &self.shared.cluster;
        let list = self.routes.list(cluster);
        let began = tokio::time::Instant::now();
        let read = deadline::within("ListRoutes", READ_DEADLINE, list);
        let Some(listed) = self.shared.leadership.until_ended(read).await else { return Ok(()) };
        self.shared.metrics.provider_call("ListRoutes", listed.as_ref().err(), began.elapsed());
        let routes = listed.map_err(|error| format!("error listing routes: {error}"))?;
        self.shared.metrics.observed("routes");
        let nodes = self.shared.nodes.list();
        let changes = self.plan(&routes, &nodes);
        self.note_drift(&changes, &nodes);
        self.shared.gate.show(&changes.plan(&nodes));
        if self.shared.gate.is_dry_run() {
            return Ok(());
        }
        let mut failed = self.apply(&changes, changed).await.map_err(|closed| closed.to_string())?;
        let conditions = self.tell_nodes(&changes, &failed).await;
        failed.retain(|_, count| *count > 0);
        match (failed.len(), conditions, changes.unconfirmed.len()) {
            (0, 0, 0) => {
                *self.settled.lock().unwrap_or_else(PoisonError::into_inner) = Some(nodes);
                Ok(())
            }
            (routes, conditions, unconfirmed) => Err(format!(
                "{routes} nodes lack routes, {conditions} conditions could not be written, {unconfirmed} routes have \
                 target nodes that may be gone"
            )),
        }
    }

    /// Counts due changes of nodes that have not changed since they were in sync: drift.
    fn note_drift(&self, changes: &Changes, nodes: &[NodeRef]) {
        let same = |a: &NodeRef, b: &NodeRef| {
            Arc::ptr_eq(a, b) || (a.name == b.name && a.pod_cidrs == b.pod_cidrs && a.addresses == b.addresses)
        };
        let settled = self.settled.lock().unwrap_or_else(PoisonError::into_inner);
        let as_before = settled
            .as_ref()
            .is_some_and(|settled| settled.len() == nodes.len() && settled.iter().zip(nodes).all(|(a, b)| same(a, b)));
        let drifted = if as_before { changes.delete.len() + changes.create.len() } else { 0 };
        // This reconcile repairs them: differences that the next one finds are new.
        self.drift.saw(drifted, drifted);
    }

    fn plan(&self, routes: &[Route], nodes: &[NodeRef]) -> Changes {
        let mut departed = self.departed.lock().unwrap_or_else(PoisonError::into_inner);
        let changes = decide::plan(routes, nodes, &self.cluster_cidrs, &departed, &self.shared.schemes);
        // Forget missing nodes without routes.
        departed.retain(|name| routes.iter().any(|route| route.target_node.as_ref() == Some(name)));
        departed.extend(changes.unconfirmed.iter().cloned());
        changes
    }

    /// Deletes and creates; returns the number of routes that each node still lacks. Failed deletions count for no
    /// node.
    async fn apply(&self, changes: &Changes, changed: &AtomicBool) -> Result<BTreeMap<NodeName, usize>, GateError> {
        let cluster = &self.shared.cluster;
        let delete = async {
            if changes.delete.is_empty() {
                return Ok(0);
            }
            let (due, call) = (changes.delete.len(), self.routes.delete(cluster, &changes.delete));
            let answers = self.shared.gate.cloud_each("DeleteRoutes", WRITE_DEADLINE, due, call).await?;
            let mut failures = 0;
            for (route, answer) in changes.delete.iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        changed.store(true, Ordering::Relaxed);
                        tracing::info!(route = route.name, cidr = route.destination_cidr, "deleted route");
                    }
                    Err(error) => {
                        failures += 1;
                        tracing::error!(route = route.name, cidr = route.destination_cidr, %error, "could not delete route");
                    }
                }
            }
            Ok(failures)
        };
        let (deletions, lacking) = if changes.delete_first {
            let deletions = delete.await?;
            (deletions, self.create(&changes.create, changed).await?)
        } else {
            futures::try_join!(delete, self.create(&changes.create, changed))?
        };
        let mut lacking = lacking;
        if deletions > 0 {
            // A reconcile with a failed deletion is a failed one, although no node lacks a route.
            lacking.insert(NodeName::default(), deletions);
        }
        Ok(lacking)
    }

    /// Creates routes; those that met a conflict are tried again.
    async fn create(&self, wanted: &[NewRoute], changed: &AtomicBool) -> Result<BTreeMap<NodeName, usize>, GateError> {
        let began = tokio::time::Instant::now();
        let mut lacking: BTreeMap<NodeName, usize> = BTreeMap::new();
        let mut todo: Vec<NewRoute> = wanted.to_vec();
        for attempt in 1..=CONFLICT_TRIES {
            if todo.is_empty() {
                break;
            }
            let call = self.routes.create(&self.shared.cluster, &todo);
            let answers = self.shared.gate.cloud_each("CreateRoutes", WRITE_DEADLINE, todo.len(), call).await?;
            let mut again = Vec::new();
            for (route, answer) in todo.into_iter().zip(answers) {
                match answer {
                    Ok(()) => {
                        changed.store(true, Ordering::Relaxed);
                        let node = route.route.target_node.clone().unwrap_or_default();
                        tracing::info!(%node, cidr = route.route.destination_cidr, "created route");
                    }
                    Err(error) if error.class() == ErrorClass::Conflict && attempt < CONFLICT_TRIES => {
                        again.push(route);
                    }
                    Err(error) => {
                        let node = route.route.target_node.clone().unwrap_or_default();
                        if self.shared.nodes.get(&node).is_none() {
                            tracing::info!(%node, cidr = route.route.destination_cidr, "deleted before it got its route");
                            continue;
                        }
                        self.creation_failed(&route, &error, began.elapsed());
                        *lacking.entry(node).or_default() += 1;
                    }
                }
            }
            todo = again;
            if !todo.is_empty() {
                tokio::time::sleep(CONFLICT_PAUSE * attempt).await;
            }
        }
        Ok(lacking)
    }

    fn creation_failed(&self, route: &NewRoute, error: &ProviderError, took: Duration) {
        let node = route.route.target_node.clone().unwrap_or_default();
        if let ErrorClass::InProgress { .. } = error.class() {
            tracing::info!(%node, cidr = route.route.destination_cidr, %error, "the route waits");
            return;
        }
        let message = format!(
            "Could not create route {} {} for node {node} after {}: {error}",
            route.name_hint,
            route.route.destination_cidr,
            duration::format(took)
        );
        tracing::error!("{message}");
        let subject = Subject::node(&node, &route.name_hint);
        self.events.event(&subject, EventType::Warning, "FailedToCreateRoute", &message);
    }

    /// Writes the condition of each node that needs routes, if it differs. Returns the number of failed writes.
    async fn tell_nodes(&self, changes: &Changes, lacking: &BTreeMap<NodeName, usize>) -> usize {
        let mut due = Vec::new();
        for (name, wanted) in &changes.nodes {
            let available = *wanted > 0 && !lacking.contains_key(name);
            let node = self.shared.nodes.get(name);
            if let Some(node) = node.filter(|node| decide::condition(node, available).is_some()) {
                due.push(self.write_condition(node, available));
            }
        }
        futures::stream::iter(due).buffer_unordered(IN_FLIGHT).filter(|good| std::future::ready(!good)).count().await
    }

    async fn write_condition(&self, node: NodeRef, available: bool) -> bool {
        let now = ccm_runtime::clock::timestamp(self.shared.clock.wall());
        let network = if available { Network::Routed } else { Network::Unrouted };
        let patch = NodePatch { network: Some((network, now)), ..NodePatch::default() };
        let written = self.shared.node_writer().write(&node, |_| Some(patch.clone())).await;
        if let Err(error) = &written
            && !error.is_closed()
        {
            tracing::error!(node = %node.name, %error, "could not write the condition NetworkUnavailable");
        }
        written.is_ok()
    }
}
