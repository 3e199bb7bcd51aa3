//! service-lb-controller: load balancers for Services of type LoadBalancer.
//!
//! Source of the behavior: `kubernetes/cloud-provider` `controllers/service/controller.go`. Unlike there, a Service
//! and its host updates are never processed at the same time, Services that share cloud objects are handed to the
//! provider together, and a burst of node changes is one pass.

mod choice;
pub mod conditions;
pub mod decide;
mod drift;
mod finish;
mod guard;
mod hosts;
pub mod lint;
pub(crate) mod metrics;
pub mod related;
mod role;
mod status;
mod sync;
#[cfg(test)]
mod tests;
mod writes;

use std::any::Any;
use std::collections::{BTreeMap, BTreeSet};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_provider::{
    EventSink, GroupKey, LoadBalancer, LoadBalancerStatus, NodeRef, ObjectChange, Plan, Service, ServiceAction,
    ServiceKey, ServiceWork,
};
use ccm_runtime::panics::panic_text;
use ccm_runtime::runner::{self, Limits, Outcome, Pace, Reconciler, Rest, SyncError};
use ccm_runtime::{Client, Permission, Queue, RateLimit};
use futures::future::join_all;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Semaphore;

use self::hosts::Chosen;
use self::metrics::{Pass, ServiceMetrics};
pub use self::related::RelatedObjects;
pub use self::role::{Owners, Role};
use self::status::Contest;
use crate::drift::Drift;
use crate::preview::{self, Preview, Scope, Unplanned};
use crate::{NotStarted, Shared};

/// Canonical name.
pub const NAME: &str = "service-lb-controller";
/// Component of its events.
pub const COMPONENT: &str = "service-controller";
/// RBAC permissions of this controller, without events and the shared stores.
/// The subject of what stops the reconciliation of every Service.
pub const SERVICES: &str = "services";
pub const PERMISSIONS: &[Permission] = &[
    Permission::new("", "services/status", &["patch"], "address of the load balancer, and the finalizer"),
    Permission::new("", "services", &["get"], "check that a Service is gone before its load balancer is deleted")
        .or("list"),
];
/// Back-off of failed syncs.
const LIMIT: RateLimit = RateLimit { base: Duration::from_secs(5), max: Duration::from_secs(300), bucket: None };
/// The longest back-off of a clean-up: the Service and its namespace wait for it. Upstream's resync has the same period.
const CLEANUP_AGAIN: Duration = Duration::from_secs(30);
/// The time that a change of nodes waits for others.
const COLLECT_NODES: Duration = Duration::from_millis(500);
/// The wait for the list of EndpointSlices.
const LISTED: Duration = Duration::from_secs(5);
/// Concurrent groups by default.
const GROUPS: usize = 16;
/// The maximum number of Services of one group that are planned together. They get their addresses when all of them are
/// done; with a smaller number, the shared objects would be read more often.
const MOST_TOGETHER: usize = 200;

/// Settings of the controller.
#[derive(Debug, Clone)]
pub struct Config {
    /// The role among the service controllers.
    pub role: Role,
    /// `--concurrent-service-syncs`, and as many host updates; `None`: bounded only by the provider.
    pub concurrent_syncs: Option<usize>,
    /// `--drift-check-period`; zero: never.
    pub drift_check_period: Duration,
    /// `--drift-repair`
    pub drift_repair: bool,
    /// `--allow-emptying-load-balancers`
    pub allow_emptying: bool,
    /// The gate `ServiceLoadBalancerConditions`: the state of the load balancer is also shown in the Service's
    /// conditions.
    pub conditions: bool,
}

/// A queue key: the Service as a whole, or only the hosts of its load balancer. Each has its own back-off.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Work {
    /// Ensure or delete.
    Sync(ServiceKey),
    /// Update the hosts.
    Hosts(ServiceKey),
    /// Restore the status, if another client changed it.
    Status(ServiceKey),
}

impl Work {
    fn key(&self) -> &ServiceKey {
        match self {
            Self::Sync(key) | Self::Hosts(key) | Self::Status(key) => key,
        }
    }
}

/// The cached state of a Service.
#[derive(Clone)]
struct ServiceState {
    /// The Service as last synced.
    service: Arc<Service>,
    /// The desired hosts, as of the last sync or pass over the nodes; `None` before the first one.
    hosts: Option<Arc<[NodeRef]>>,
    /// The candidates among which these were chosen; `None` if more than the candidates decided.
    among: Option<Arc<[NodeRef]>>,
    /// All hosts that its load balancer may have: those of the last successful call and of each later one, as a failed
    /// call may have taken effect in part. Checked by the guard.
    present: Arc<[NodeRef]>,
    /// Whether `present` contains all of them. False after a restart until a call succeeds: an earlier process set the
    /// hosts.
    all_present: bool,
    /// The pass that found changed hosts and waits for their update.
    pass: Option<Arc<Pass>>,
    /// The last ensured state; `None` during a change or after a failure.
    converged: Option<(Arc<Service>, Arc<[NodeRef]>)>,
    /// The last status that the provider returned; empty if another controller provides the load balancer.
    status: LoadBalancerStatus,
    contest: Contest,
    /// All groups that may hold parts of the load balancer since the last ensure.
    groups: BTreeSet<GroupKey>,
    /// The annotations that the provider last requested. When the watch shows them, that is not a change by the user.
    noted: BTreeMap<String, Option<String>>,
    /// The work that began and is not finished: the next sync for it emits no event about its start.
    at_work: Option<ServiceAction>,
    /// Whether the last ensure succeeded and is to be repeated: something was not visible yet.
    repeats: bool,
    /// Whether the guard prevents the ensure until there is a host, and the reason that the cloud showed.
    waits: bool,
    kept: Option<guard::Seen>,
    /// Whether another controller provides the load balancer of this state of the Service.
    elsewhere: Option<(Arc<Service>, bool)>,
    /// Held while the answer of the provider, or a status, is written.
    finishing: Arc<Semaphore>,
}

impl ServiceState {
    fn is_finishing(&self) -> bool {
        self.finishing.available_permits() == 0
    }

    /// Records that a call with these hosts begins.
    fn attempt(&mut self, hosts: &Arc<[NodeRef]>) {
        self.present = decide::union(&self.present, hosts);
    }

    /// Records that the call succeeded: the load balancer has these hosts and no others.
    fn reach(&mut self, hosts: &Arc<[NodeRef]>) {
        self.present = hosts.clone();
        self.all_present = true;
    }

    /// The Service with the status and the notes that were written since it was synced, for its deletion after the object
    /// is gone: the provider finds what it made by them.
    fn as_written(&self) -> Service {
        let mut service = (*self.service).clone();
        if !self.status.ingress.is_empty() {
            service.status.load_balancer.clone_from(&self.status);
        }
        for (key, value) in &self.noted {
            match value.clone() {
                Some(value) => drop(service.metadata.annotations.insert(key.clone(), value)),
                None => drop(service.metadata.annotations.remove(key)),
            }
        }
        service
    }

    /// Whether the load balancer matches the Service and the hosts.
    fn is_converged(&self) -> bool {
        let same = |(service, hosts): &(Arc<Service>, Arc<[NodeRef]>)| {
            Arc::ptr_eq(service, &self.service) && self.hosts.as_ref().is_some_and(|now| Arc::ptr_eq(now, hosts))
        };
        self.converged.as_ref().is_some_and(same)
    }
}

struct ServiceController {
    shared: Shared,
    balancer: Arc<dyn LoadBalancer>,
    related: RelatedObjects,
    events: Arc<dyn EventSink>,
    config: Config,
    metrics: ServiceMetrics,
    drift: Drift,
    // Findings of the last drift check.
    drifted: Mutex<BTreeMap<ServiceKey, Plan>>,
    known: Mutex<BTreeMap<ServiceKey, ServiceState>>,
    // The candidates, until a node changes: one list for all Services.
    candidates: Mutex<Option<Arc<[NodeRef]>>>,
    queue: Arc<Queue<Work>>,
    // Every change of nodes has the same key, so that a burst is one pass.
    node_queue: Arc<Queue<()>>,
}

/// Starts the controller; the future runs until no new work may begin. `client`: that of the process, for the related
/// objects.
pub fn start(
    shared: Shared,
    client: Client,
    balancer: Option<Arc<dyn LoadBalancer>>,
    events: Arc<dyn EventSink>,
    config: Config,
) -> Result<impl Future<Output = ()> + Send, NotStarted> {
    let Some(balancer) = balancer else {
        return Err(NotStarted("the cloud provider does not support external load balancers".into()));
    };
    let (groups, period) = (config.concurrent_syncs, config.drift_check_period);
    let related = RelatedObjects::new(balancer.related());
    let controller = Arc::new(ServiceController::new(shared.clone(), balancer, related.clone(), events, config));
    controller.clone().listen();
    let limits = Limits { batch: 1000, groups: groups.unwrap_or(GROUPS) };
    let leadership = shared.leadership.clone();
    let watch = {
        let related = related.clone();
        let seed = shared.clock.wall().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |now| now.subsec_nanos());
        let leadership = leadership.clone();
        async move { leadership.until_ended(related.watch(&client, seed.into())).await }
    };
    let work = async move {
        let synced = async {
            futures::join!(shared.nodes.synced(), shared.services.synced(), related.namespaces_synced());
            // Nearly always listed by now; if not, Services that need them fail until then.
            tokio::time::timeout(LISTED, related.slices_synced()).await.is_ok()
        };
        let Some(listed) = leadership.until_ended(synced).await else { return };
        let late = {
            let (controller, leadership) = (controller.clone(), leadership.clone());
            async move {
                if !listed && leadership.until_ended(related.slices_synced()).await.is_some() {
                    controller.queue_restricted();
                }
            }
        };
        let queue = controller.queue.clone();
        let passes = controller.clone().node_passes();
        let drift = {
            let (controller, leadership, metrics) = (controller.clone(), leadership.clone(), shared.metrics.clone());
            async move {
                if !period.is_zero() {
                    let look = move || controller.clone().look_for_drift();
                    runner::periodically("load balancer drift", period, Pace::FromEnd, leadership, metrics, look).await;
                }
            }
        };
        let syncs = runner::run(controller, queue, limits, leadership, shared.metrics);
        futures::join!(passes, drift, syncs, late);
    };
    Ok(async move {
        futures::join!(watch, work);
    })
}

/// Prepares a pass that only shows its plans. `related`: the related objects, or the reason why they cannot be listed;
/// `None`: they are listed now.
pub fn preview(
    shared: Shared,
    balancer: Option<Arc<dyn LoadBalancer>>,
    events: Arc<dyn EventSink>,
    config: Config,
    scope: &Scope,
    related: Option<Result<RelatedObjects, String>>,
) -> Result<Preview, NotStarted> {
    let Some(balancer) = balancer else {
        return Err(NotStarted("the cloud provider does not support external load balancers".into()));
    };
    let role = &config.role;
    let concerns =
        |service: &Service| scope.has_service(&service.key()) && (role.asks(service) || role.needs_cleanup(service));
    let keys = shared.services.list().iter().filter(|service| concerns(service)).map(|s| Work::Sync(s.key())).collect();
    Ok(Box::pin(async move {
        let related = match related {
            Some(related) => related,
            None => RelatedObjects::list(balancer.related(), shared.gate.client()).await,
        };
        match related {
            Ok(related) => {
                let controller = ServiceController::new(shared, balancer, related, events, config);
                preview::sync_once(&controller, keys).await
            }
            Err(error) => vec![Unplanned { subject: SERVICES.into(), error: SyncError::Retry(error) }],
        }
    }))
}

impl ServiceController {
    fn new(
        shared: Shared,
        balancer: Arc<dyn LoadBalancer>,
        related: RelatedObjects,
        events: Arc<dyn EventSink>,
        config: Config,
    ) -> Self {
        let Role { name, prefix, .. } = config.role;
        let queue = |name: &str| prefix.map_or_else(|| name.to_owned(), |prefix| format!("{prefix}_{name}"));
        Self {
            metrics: ServiceMetrics::prefixed(&shared.metrics, prefix),
            drift: Drift::new(&shared.metrics, name),
            drifted: Mutex::default(),
            queue: shared.queue(&queue("service"), LIMIT),
            node_queue: shared.queue(&queue("node"), LIMIT),
            known: Mutex::default(),
            candidates: Mutex::default(),
            shared,
            balancer,
            related,
            events,
            config,
        }
    }

    /// Registers the handlers that queue changes.
    fn listen(self: Arc<Self>) {
        let me = self.clone();
        self.shared.services.on_change(move |change| {
            let role = &me.config.role;
            let (key, wanted) = match &change {
                ObjectChange::Added(new) => (new.key(), role.asks(new) || role.needs_cleanup(new)),
                ObjectChange::Updated(old, new) => (new.key(), me.needs_sync(old, new) || role.needs_cleanup(new)),
                // Without a finalizer an object is deleted at once, and its load balancer would leak.
                ObjectChange::Deleted(old) => (old.key(), me.lock().contains_key(&old.key())),
            };
            if wanted {
                me.queue.add(Work::Sync(key));
            } else if let ObjectChange::Updated(_, new) = &change {
                me.check_status(&key, new);
            }
        });
        let me = self.clone();
        self.shared.nodes.on_change(move |change| {
            me.lock_candidates().take();
            let matters = match &change {
                ObjectChange::Added(_) | ObjectChange::Deleted(_) => true,
                ObjectChange::Updated(old, new) => decide::node_matters(old, new),
            };
            if matters {
                me.node_queue.add_soon((), COLLECT_NODES);
            }
        });
        let me = self.clone();
        self.related.on_endpoints(move |key| {
            if me.endpoints_matter(key) {
                me.node_queue.add_soon((), COLLECT_NODES);
            }
        });
    }

    /// Whether a change of the endpoints of a Service changes the hosts of its load balancer.
    fn endpoints_matter(&self, key: &ServiceKey) -> bool {
        let service = self.lock().get(key).map(|known| known.service.clone());
        // After a panic, the pass over the hosts finds the Service.
        service.is_some_and(|service| self.caught(|| self.is_restricted(&service)).unwrap_or(true))
    }

    /// Whether a Service changed in a way that matters, apart from the annotations that were written for the provider.
    fn needs_sync(&self, old: &Service, new: &Service) -> bool {
        let role = &self.config.role;
        if !role.needs_update(old, new) {
            return false;
        }
        role.needs_update(&self.with_notes(old, new), new)
    }

    /// The old Service with the provider's annotations of `new`, which were written since.
    fn with_notes(&self, old: &Service, new: &Service) -> Service {
        let noted = self.lock().get(&new.key()).map(|known| known.noted.clone()).unwrap_or_default();
        let mut service = old.clone();
        for (key, value) in noted {
            match value {
                now if new.metadata.annotations.get(&key) != now.as_ref() => {}
                Some(value) => drop(service.metadata.annotations.insert(key, value)),
                None => drop(service.metadata.annotations.remove(&key)),
            }
        }
        service
    }

    /// The nodes that are hosts of load balancers, whatever the Service.
    fn all_candidates(&self) -> Arc<[NodeRef]> {
        if let Some(candidates) = self.lock_candidates().clone() {
            return candidates;
        }
        // A change that is applied meanwhile comes with another call of the handler.
        let mut kept = self.lock_candidates();
        kept.insert(decide::candidates(self.shared.nodes.list()).into()).clone()
    }

    fn lock_candidates(&self) -> MutexGuard<'_, Option<Arc<[NodeRef]>>> {
        self.candidates.lock()
    }

    /// The current hosts of the load balancer of a Service.
    fn candidates(&self, service: &Service) -> Arc<[NodeRef]> {
        self.chosen(service, &self.all_candidates()).hosts
    }

    /// The hosts of the load balancer of a Service among these candidates: usually all of them, then without a copy.
    fn chosen(&self, service: &Service, candidates: &Arc<[NodeRef]>) -> Chosen {
        let is_restricted = self.is_restricted(service);
        let ready = if is_restricted { self.related.ready_nodes(&service.key()) } else { None };
        let belongs = |node: &NodeRef| {
            ready.as_ref().is_none_or(|ready| ready.contains(&node.name))
                && self.balancer.backend(service, node).is_some()
        };
        let hosts = match candidates.iter().all(belongs) {
            true => candidates.clone(),
            false => candidates.iter().filter(|node| belongs(node)).cloned().collect(),
        };
        Chosen { hosts, among: (!is_restricted).then(|| candidates.clone()) }
    }

    /// Whether the hosts of a Service depend on its endpoints.
    fn is_restricted(&self, service: &Service) -> bool {
        self.related.slices().is_some() && self.balancer.only_nodes_with_endpoints(service)
    }

    /// Whether the hosts of a Service depend on endpoints that are not listed.
    fn lacks_endpoints(&self, service: &Service) -> bool {
        self.related.slices().is_some_and(|slices| !slices.is_synced()) && self.is_restricted(service)
    }

    /// Queues the Services whose hosts depend on their endpoints.
    fn queue_restricted(&self) {
        for service in self.shared.services.list() {
            if self.config.role.asks(&service) && self.caught(|| self.is_restricted(&service)).unwrap_or(true) {
                self.queue.add(Work::Sync(service.key()));
            }
        }
    }

    /// Calls code of the provider for one Service; its panic, as a text, fails only that Service.
    fn caught<R>(&self, call: impl FnOnce() -> R) -> Result<R, String> {
        std::panic::catch_unwind(AssertUnwindSafe(call)).map_err(|panic| self.panicked(&*panic))
    }

    fn panicked(&self, panic: &(dyn Any + Send)) -> String {
        self.shared.metrics.panicked(self.config.role.name);
        let text = panic_text(panic);
        tracing::error!(controller = self.config.role.name, panic = text, "a sync panicked");
        format!("a sync panicked: {text}")
    }

    /// One work item for the provider.
    fn work(&self, service: Arc<Service>, nodes: Arc<[NodeRef]>, action: ServiceAction) -> ServiceWork {
        let namespace = self.related.labels_of(&service);
        ServiceWork { service, nodes, action, namespace }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, ServiceState>> {
        self.known.lock()
    }

    fn lock_drifted(&self) -> MutexGuard<'_, BTreeMap<ServiceKey, Plan>> {
        self.drifted.lock()
    }

    /// Forgets a Service whose load balancer is completely deleted.
    fn forget(&self, key: &ServiceKey) {
        self.lock().remove(key);
        let role = &self.config.role;
        if !role.is_alone() {
            self.shared.owners.release(key, role.name);
        }
    }

    fn known(&self, key: &ServiceKey) -> Option<ServiceState> {
        self.lock().get(key).cloned()
    }
}

#[async_trait]
impl Reconciler for ServiceController {
    type Key = Work;
    type Observed = Option<Arc<Service>>;
    type Group = GroupKey;

    fn name(&self) -> &'static str {
        self.config.role.name
    }

    /// The current groups of the Service, and those of its former load balancers. A status waits for no call to the cloud.
    fn groups(&self, work: &Work) -> BTreeSet<GroupKey> {
        let key = work.key();
        if let Work::Status(_) = work {
            return [GroupKey(self.subject(work))].into();
        }
        let mut groups = self.known(key).map(|known| known.groups).unwrap_or_default();
        groups.extend(self.shared.services.get(key).iter().flat_map(|service| self.balancer.groups(service)));
        if groups.is_empty() {
            groups.insert(GroupKey(key.to_string()));
        }
        groups
    }

    fn most_together(&self) -> usize {
        MOST_TOGETHER
    }

    /// As upstream, whose node worker takes no slot of the service workers: hosts follow the nodes beside a backlog of
    /// ensures.
    fn has_own_slots(&self, key: &Work) -> bool {
        !matches!(key, Work::Sync(_))
    }

    fn longest_delay(&self, key: &Work) -> Duration {
        let service = self.shared.services.get(key.key());
        let cleans_up = service.is_some_and(|service| self.config.role.needs_cleanup(&service));
        if cleans_up { CLEANUP_AGAIN } else { Duration::MAX }
    }

    fn subject(&self, key: &Work) -> String {
        match key {
            Work::Sync(key) => format!("service {key}"),
            Work::Hosts(key) => format!("service {key} hosts"),
            Work::Status(key) => format!("service {key} status"),
        }
    }

    fn reads_stores(&self) -> bool {
        true
    }

    async fn observe(&self, keys: &[Work]) -> Vec<Result<Self::Observed, SyncError>> {
        keys.iter().map(|work| Ok(self.shared.services.get(work.key()))).collect()
    }

    async fn reconcile(&self, work: Vec<(Work, Self::Observed)>) -> Vec<(Work, Result<Outcome, SyncError>)> {
        join_all(self.sync_group(work).await).await
    }

    async fn reconcile_groups(&self, work: Vec<(Work, Self::Observed)>) -> Vec<Rest<'_, Work>> {
        self.sync_group(work).await
    }
}
