//! The cluster: the in-memory API, the lease holder, and the checks of each write.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use ccm_test_apiserver::{ApiServer, Clock, Faults, Handler, Options, Patch, Store, StreamingLists};
use jiff::Timestamp;
use parking_lot::{Mutex, MutexGuard};
use rand::rngs::StdRng;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::cloud::{Cloud, SCHEME, State, Witness};
use crate::life::{Life, epoch};
use crate::profile::Profile;
use crate::trace::{Invariant, Trace};
use crate::transport::Write;

/// The number of nodes that one pass of the lifecycle controller may delete.
pub const DELETION_BUDGET: usize = 2;
/// The minimum interval between two such passes.
pub const MONITOR_PERIOD: Duration = Duration::from_secs(5);
const LEASE: (&str, &str) = ("kube-system", "cloud-controller-manager");

/// The state of a host that the API does not show.
#[derive(Debug, Clone, Default)]
pub(crate) struct HostRecord {
    /// Whether it is excluded, and when it last was.
    excluded: bool,
    excluded_until: Option<Duration>,
}

/// The cluster and the cloud of one run.
#[derive(Debug)]
pub struct World {
    /// The trace.
    pub trace: Arc<Trace>,
    /// The objects.
    pub store: Store,
    /// The faults of the API.
    pub faults: Faults,
    pub(crate) handler: Handler,
    cloud: OnceLock<Arc<Cloud>>,
    /// The time at which the run began.
    pub began: Instant,
    rng: Mutex<StdRng>,
    gone: AtomicBool,
    slow: AtomicU64,
    elects: bool,
    sees_past: bool,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
pub(crate) struct Inner {
    /// The instance of each node, by node UID.
    pub(crate) instance_of: BTreeMap<String, String>,
    hosts: BTreeMap<String, HostRecord>,
    /// The nodes and Services that no manager may change.
    pub(crate) foreign: BTreeSet<(String, String)>,
    holder: String,
    deletions: BTreeMap<String, VecDeque<Duration>>,
    /// Requests that changed something, except leases.
    pub(crate) effects: Vec<Effect>,
}

/// A change by a manager.
#[derive(Debug, Clone)]
pub(crate) struct Effect {
    pub(crate) at: Duration,
    pub(crate) event: bool,
    pub(crate) line: String,
}

/// A write and its answer.
#[derive(Debug)]
pub(crate) struct Judged<'a> {
    pub(crate) life: &'a Life,
    pub(crate) write: &'a Write,
    /// The time at which the process sent it.
    pub(crate) sent: Duration,
    pub(crate) before: Before,
    pub(crate) status: u16,
}

/// The state before a write.
#[derive(Debug)]
pub(crate) struct Before {
    version: u64,
    node: Option<Value>,
}

#[derive(Debug)]
struct Court(Weak<World>);

impl Witness for Court {
    fn may_leave(&self, state: &State, host: &str, provider_id: &str) -> Option<String> {
        self.0.upgrade()?.may_leave(state, host, provider_id)
    }

    fn any_excluded(&self) -> bool {
        self.0.upgrade().is_some_and(|world| world.any_excluded())
    }

    fn may_write(&self, life: &Life) -> Result<(), String> {
        self.0.upgrade().map_or(Ok(()), |world| world.may_write(life))
    }
}

impl World {
    /// An empty cluster over an empty cloud.
    pub fn new(profile: &Profile) -> Arc<Self> {
        let seed = profile.seed;
        let streaming_lists = if profile.streaming_lists { StreamingLists::Served } else { StreamingLists::NoProgress };
        let began = Instant::now();
        let start = Timestamp::try_from(epoch()).unwrap();
        let clock = Clock::new(move || start + jiff::SignedDuration::try_from(began.elapsed()).unwrap());
        let options = Options { clock, seed: Some(seed), streaming_lists, ..Options::default() };
        let (store, faults, handler) = ApiServer::in_process(options);
        let mut rng = StdRng::seed_from_u64(seed ^ 0x5eed);
        let cloud_seed = rng.random();
        let world = Arc::new(Self {
            trace: Arc::default(),
            store,
            faults,
            handler,
            cloud: OnceLock::new(),
            began,
            rng: Mutex::new(rng),
            gone: AtomicBool::new(false),
            slow: AtomicU64::new(0),
            elects: profile.elects,
            sees_past: profile.luck.iter().any(|luck| luck.shows_the_past()),
            inner: Mutex::default(),
        });
        let court = Arc::new(Court(Arc::downgrade(&world)));
        let cloud = Cloud::new(profile.traits.clone(), world.trace.clone(), cloud_seed, court);
        world.cloud.set(cloud).unwrap();
        world
    }

    /// The cloud.
    pub fn cloud(&self) -> &Arc<Cloud> {
        self.cloud.get().unwrap()
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock()
    }

    pub(crate) fn dice<R>(&self, roll: impl FnOnce(&mut StdRng) -> R) -> R {
        roll(&mut self.rng.lock())
    }

    /// One-way latency of a request in milliseconds.
    pub(crate) fn latency(&self) -> Range<u64> {
        let slow = self.slow.load(Ordering::SeqCst);
        slow / 4..slow + 12
    }

    /// Adds approximately this latency to every request.
    pub fn set_slow(&self, millis: u64) {
        self.slow.store(millis, Ordering::SeqCst);
    }

    /// Whether the API server is down.
    pub fn is_api_gone(&self) -> bool {
        self.gone.load(Ordering::SeqCst)
    }

    /// Stops or restores the API server.
    pub fn set_api_gone(&self, gone: bool) {
        self.gone.store(gone, Ordering::SeqCst);
        if gone {
            self.faults.drop_watches(None);
        }
    }

    /// The earliest time at which the data for a decision may have been read: any time while watches fail.
    fn sees_since(&self) -> Duration {
        match self.sees_past {
            true => Duration::ZERO,
            false => self.trace.now().saturating_sub(Duration::from_secs(60)),
        }
    }

    /// Reads an object.
    pub fn get(&self, resource: &str, name: &str) -> Option<Value> {
        self.store.get(resource, Self::namespace(resource), name).ok()
    }

    fn namespace(resource: &str) -> &'static str {
        if resource == "services" { "default" } else { "" }
    }

    /// Merges a change into an object, as its owner does.
    pub fn patch(&self, resource: &str, name: &str, status: bool, change: &Value) -> bool {
        let patch = Patch::Merge(change.clone());
        let namespace = Self::namespace(resource);
        let answer = match status {
            true => self.store.patch_status(resource, namespace, name, &patch),
            false => self.store.patch(resource, namespace, name, &patch),
        };
        self.trace.say(format_args!("user: {resource}/{name} {change}: {}", answer.is_ok()));
        answer.is_ok()
    }

    /// Sets the Ready condition as the kubelet does, or the node controller if the kubelet is silent. Other conditions
    /// stay.
    pub fn set_ready(&self, name: &str, status: &str) {
        let patch = Patch::Strategic(json!({"status": {"conditions": [{"type": "Ready", "status": status}]}}));
        let answer = self.store.patch_status("nodes", "", name, &patch);
        self.trace.say(format_args!("kubelet: nodes/{name} Ready={status}: {}", answer.is_ok()));
    }

    /// Creates an object.
    pub fn create(&self, resource: &str, object: Value) -> Option<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        match self.store.create(resource, Self::namespace(resource), object) {
            Ok(made) => {
                self.trace.say(format_args!("user: create {resource}/{name}"));
                Some(made)
            }
            Err(error) => {
                self.trace.say(format_args!("user: create {resource}/{name}: {error}"));
                None
            }
        }
    }

    /// Requests the deletion of an object.
    pub fn delete(&self, resource: &str, name: &str) {
        let answer = self.store.delete(resource, Self::namespace(resource), name);
        self.trace.say(format_args!("user: delete {resource}/{name}: {}", answer.is_ok()));
    }

    /// Excludes a node from all balancers by label, or removes the exclusion.
    pub fn exclude(&self, name: &str, excluded: bool) {
        let value = if excluded { json!("") } else { Value::Null };
        let label = json!({"metadata": {"labels": {"node.kubernetes.io/exclude-from-external-load-balancers": value}}});
        if self.patch("nodes", name, false, &label) {
            self.note_exclusion(name, excluded);
        }
    }

    /// Records the exclusion label; a deleted or recreated node has none.
    pub fn note_exclusion(&self, name: &str, excluded: bool) {
        let now = self.trace.now();
        let mut inner = self.lock();
        let record = inner.hosts.entry(name.to_owned()).or_default();
        if record.excluded && !excluded {
            record.excluded_until = Some(now);
        }
        record.excluded = excluded;
    }

    /// Whether the label excludes the node from balancers.
    pub fn is_excluded(&self, name: &str) -> bool {
        self.lock().hosts.get(name).is_some_and(|record| record.excluded)
    }

    fn any_excluded(&self) -> bool {
        self.lock().hosts.values().any(|record| record.excluded || record.excluded_until.is_some())
    }

    fn may_leave(&self, state: &State, host: &str, provider_id: &str) -> Option<String> {
        let inner = self.lock();
        let since = self.sees_since();
        if let Some(record) = inner.hosts.get(host)
            && (record.excluded || record.excluded_until.is_some_and(|until| until >= since))
        {
            return Some("it is excluded".into());
        }
        if !provider_id.is_empty() && !provider_id.starts_with(SCHEME) {
            return None;
        }
        state.is_gone(host, provider_id).then(|| "its instance is gone".to_owned())
    }

    /// Whether this process may write: always without leader election, otherwise while it holds the lease.
    pub fn may_write(&self, life: &Life) -> Result<(), String> {
        if !self.elects || life.is_dead() {
            return Ok(());
        }
        let holder = self.lock().holder.clone();
        if holder == life.name { Ok(()) } else { Err(format!("the lease is held by {holder:?}")) }
    }

    /// The holder of the lease.
    pub fn holder(&self) -> String {
        self.lock().holder.clone()
    }

    pub(crate) fn before(&self, write: &Write) -> Before {
        let node = match (write.method.as_str(), write.object()) {
            ("DELETE", ("nodes", name)) => self.get("nodes", name),
            _ => None,
        };
        Before { version: self.store.version(), node }
    }

    pub(crate) fn judge(&self, judged: &Judged<'_>) {
        let Judged { life, write, sent, before, status } = judged;
        if write.is_lease() {
            return self.lease_written(life);
        }
        let effective = self.store.version() != before.version;
        if write.counts() || effective {
            let note = if effective { "" } else { " (no change)" };
            self.trace.say(format_args!("{life} api: {} -> {status}{note}", write.line()));
        }
        let (kind, name) = write.object();
        if write.counts() && self.lock().foreign.contains(&(kind.to_owned(), name.to_owned())) {
            self.trace.violated(Invariant::Foreign, format_args!("{life} writes a foreign object: {}", write.line()));
        }
        if effective || write.counts() {
            let effect =
                Effect { at: self.trace.now(), event: write.is_event(), line: format!("{life} {}", write.line()) };
            self.lock().effects.push(effect);
        }
        if let Some(node) = before.node.as_ref().filter(|_| effective) {
            self.judge_deletion(life, *sent, node);
        }
    }

    fn lease_written(&self, life: &Life) {
        let lease = self.store.get("leases", LEASE.0, LEASE.1).unwrap_or_default();
        let holder = lease["spec"]["holderIdentity"].as_str().unwrap_or_default().to_owned();
        let mut inner = self.lock();
        if inner.holder != holder {
            inner.holder.clone_from(&holder);
            drop(inner);
            self.trace.say(format_args!("{life} api: the lease is held by {holder:?}"));
        }
    }

    fn judge_deletion(&self, life: &Life, sent: Duration, node: &Value) {
        let (name, uid) = (text(node, "/metadata/name"), text(node, "/metadata/uid"));
        let provider_id = text(node, "/spec/providerID");
        let mut wrong = Vec::new();
        {
            let cloud = self.cloud().lock();
            // Without a provider ID, only the node's own machine counts, not a new one of the same name.
            if !provider_id.is_empty() && !cloud.is_gone(name, provider_id) {
                wrong.push("its instance exists".to_owned());
            }
            let owner = self.lock().instance_of.get(uid).cloned().unwrap_or_default();
            if cloud.instances.get(&owner).is_some_and(|instance| !instance.is_gone()) {
                wrong.push(format!("its instance {owner} exists"));
            }
            if !cloud.reported_gone.contains_key(&(life.name.clone(), uid.to_owned())) {
                wrong.push("the last look-up did not say that it is gone".to_owned());
            }
        }
        {
            let mut inner = self.lock();
            let recent = inner.deletions.entry(life.name.clone()).or_default();
            // A pass sends all of its deletions before it ends, and the next pass begins a full period later.
            recent.retain(|at| *at + MONITOR_PERIOD > sent);
            recent.push_back(sent);
            let cluster = self.store.objects("nodes").map_or(0, |nodes| nodes.len()) + recent.len();
            let allowed = DELETION_BUDGET.max(cluster * 10 / 100);
            if recent.len() > allowed {
                wrong.push(format!("{} nodes within {MONITOR_PERIOD:?}, {allowed} are allowed", recent.len()));
            }
        }
        if !wrong.is_empty() {
            let text = format!("{life} deletes node {name} ({provider_id}): {}", wrong.join("; "));
            self.trace.violated(Invariant::NodeEvidence, text);
        }
    }
}

/// A string in an object; empty if it is missing.
pub fn text<'a>(object: &'a Value, pointer: &str) -> &'a str {
    object.pointer(pointer).and_then(Value::as_str).unwrap_or_default()
}
