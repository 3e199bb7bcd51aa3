//! Faults that can be enabled while the server runs. All are counted and none is random, so that runs are repeatable.

use crate::kind::{KINDS, Kind};
use crate::signal::Signal;
use crate::store::{Core, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;

/// The requests to which a fault applies. An unset field matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Match {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, or `read` (get and list) or
    /// `write` (all that change something).
    pub verb: Option<String>,
    /// Plural name of the resource.
    pub resource: Option<String>,
    /// Name of the object. A create matches by the name in its body.
    pub name: Option<String>,
    /// Subresource; `""` matches only requests without one.
    pub subresource: Option<String>,
}

impl Match {
    /// Requests on this resource.
    pub fn of(resource: &str) -> Match {
        Match { resource: Some(resource.to_owned()), ..Match::default() }
    }

    /// Requests with this verb on this resource.
    pub fn on(verb: &str, resource: &str) -> Match {
        Match { verb: Some(verb.to_owned()), ..Match::of(resource) }
    }

    /// The same, for one object only.
    pub fn named(self, name: &str) -> Match {
        Match { name: Some(name.to_owned()), ..self }
    }

    /// The same, for one subresource only (`""`: for none).
    pub fn subresource(self, subresource: &str) -> Match {
        Match { subresource: Some(subresource.to_owned()), ..self }
    }

    fn covers(&self, request: &RequestFacts<'_>) -> bool {
        let same = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let verb = self.verb.as_deref().is_none_or(|wanted| match wanted {
            "read" => matches!(request.verb, "get" | "list"),
            "write" => matches!(request.verb, "create" | "update" | "patch" | "delete"),
            exact => exact == request.verb,
        });
        verb && same(&self.resource, request.resource)
            && same(&self.name, request.name)
            && same(&self.subresource, request.subresource)
    }
}

/// The effect of a fault on a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Responds with a `Status` with this code, without handling the request.
    Status {
        code: u16,
        /// `reason`; if unset, a usual one for the code.
        reason: Option<String>,
        message: Option<String>,
        /// `Retry-After` seconds.
        retry_after: Option<u64>,
    },
    /// Responds with an HTML page, like a load balancer in front of the API.
    HtmlPage { code: u16 },
    /// Waits before the request is handled.
    Latency { millis: u64 },
    /// Closes the connection without handling the request.
    LoseRequest,
    /// Handles the request, then closes the connection without a response.
    LoseAnswer,
    /// Handles the request, then responds with a `Status` with this code.
    FailAfterEffect { code: u16 },
    /// Ends a watch after this many events.
    EndWatch {
        /// The number of events that are still delivered.
        after: u64,
        /// Whether the connection breaks, instead of a regular end of the stream.
        abrupt: bool,
    },
    /// Ends a watch with an ERROR event.
    FailWatch {
        /// The number of events that are still delivered.
        after: u64,
        /// The code of its `Status`.
        code: u16,
    },
}

/// A fault: its effect, the matching requests, and the number of hits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The effect.
    pub effect: Effect,
    /// The requests.
    pub matching: Match,
    /// The number of matching requests to let pass first.
    pub skip: u64,
    /// The number of requests to hit; all if unset.
    pub times: Option<u64>,
    /// Hits every n-th matching request (the first of each n).
    pub every: u64,
}

impl Fault {
    /// A fault that hits every request until it is removed.
    pub fn new(effect: Effect) -> Fault {
        Fault { effect, matching: Match::default(), skip: 0, times: None, every: 1 }
    }

    /// 429 with `Retry-After`.
    pub fn too_many_requests(retry_after: u64) -> Fault {
        let message = "Too many requests, please try again later.".to_owned();
        Fault::new(Effect::Status { code: 429, reason: None, message: Some(message), retry_after: Some(retry_after) })
    }

    /// A `Status` with this code, without handling the request.
    pub fn status(code: u16) -> Fault {
        Fault::new(Effect::Status { code, reason: None, message: None, retry_after: None })
    }

    /// A delay before the response.
    pub fn latency(duration: Duration) -> Fault {
        Fault::new(Effect::Latency { millis: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) })
    }

    /// Limits the fault to these requests.
    pub fn on(self, matching: Match) -> Fault {
        Fault { matching, ..self }
    }

    /// Limits the fault to this many hits.
    pub fn times(self, times: u64) -> Fault {
        Fault { times: Some(times), ..self }
    }

    /// Lets this many matching requests pass first.
    pub fn skip(self, skip: u64) -> Fault {
        Fault { skip, ..self }
    }

    /// Hits only every n-th matching request.
    pub fn every(self, every: u64) -> Fault {
        Fault { every: every.max(1), ..self }
    }
}

/// Identifies an added fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct FaultId(u64);

/// The attributes of a request that faults match.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
}

#[derive(Debug)]
struct Active {
    fault: Fault,
    seen: u64,
    fired: u64,
}

/// The state that open watches check.
#[derive(Debug, Default)]
struct Watches {
    /// The number of times the watches of each kind were dropped.
    drops: BTreeMap<usize, u64>,
    /// Kinds whose watches deliver nothing.
    frozen: BTreeSet<usize>,
}

/// The state that stale reads of a kind return.
#[derive(Debug)]
struct Stale {
    snapshot: Arc<Snapshot>,
    /// Whether reads without a version, which bypass the watch cache, are stale too.
    all: bool,
}

/// The switches for faults. A handle: clones act on the same server.
#[derive(Debug, Clone)]
pub struct Faults {
    core: Arc<Core>,
    active: Arc<Mutex<BTreeMap<FaultId, Active>>>,
    stale: Arc<Mutex<BTreeMap<usize, Stale>>>,
    watches: Arc<Mutex<Watches>>,
    /// Sent when a switch for open watches has changed.
    pub(crate) switched: Signal,
}

impl Faults {
    pub(crate) fn new(core: Arc<Core>) -> Faults {
        let (active, stale, watches) = Default::default();
        Faults { core, active, stale, watches, switched: Signal::default() }
    }

    /// Enables a fault. Faults are applied in the order in which they were added.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut active = self.active.lock();
        let id = FaultId(active.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        active.insert(id, Active { fault, seen: 0, fired: 0 });
        id
    }

    /// Disables a fault. Returns the number of its hits.
    pub fn remove(&self, id: FaultId) -> u64 {
        self.active.lock().remove(&id).map_or(0, |active| active.fired)
    }

    /// The number of hits of a fault.
    pub fn fired(&self, id: FaultId) -> u64 {
        self.active.lock().get(&id).map_or(0, |active| active.fired)
    }

    /// Disables everything: faults, stale reads, frozen watches.
    pub fn clear(&self) {
        self.active.lock().clear();
        self.stale.lock().clear();
        self.thaw_watches(None);
    }

    fn switch(&self, resource: Option<&str>, mut change: impl FnMut(&mut Watches, usize)) {
        for kind in KINDS.iter().filter(|kind| resource.is_none_or(|resource| resource == kind.plural)) {
            change(&mut self.watches.lock(), kind.index);
        }
        self.switched.send();
    }

    /// Ends every open watch (of one resource) now.
    pub fn drop_watches(&self, resource: Option<&str>) {
        self.switch(resource, |watches, kind| *watches.drops.entry(kind).or_default() += 1);
    }

    /// Holds back watch events (of one resource) until [`Faults::thaw_watches`].
    pub fn freeze_watches(&self, resource: Option<&str>) {
        self.switch(resource, |watches, kind| watches.frozen.extend([kind]));
    }

    /// Lets watch events through again.
    pub fn thaw_watches(&self, resource: Option<&str>) {
        self.switch(resource, |watches, kind| watches.frozen.retain(|one| *one != kind));
    }

    /// The number of times the watches of a kind were dropped.
    pub(crate) fn drops(&self, kind: &Kind) -> u64 {
        self.watches.lock().drops.get(&kind.index).copied().unwrap_or_default()
    }

    /// Whether the watches of a kind deliver nothing.
    pub(crate) fn is_frozen(&self, kind: &Kind) -> bool {
        self.watches.lock().frozen.contains(&kind.index)
    }

    /// Freezes the state that gets and lists of this resource return, until [`Faults::fresh_reads`]. Writes and watches
    /// use the real state. An API server does this for reads without a version only if its etcd does.
    pub fn stale_reads(&self, resource: &str) {
        self.set_stale(resource, true);
    }

    /// Like [`Faults::stale_reads`], but only for reads that the watch cache may answer: those with a version. A
    /// version newer than the cache is rejected.
    pub fn lag_cache(&self, resource: &str) {
        self.set_stale(resource, false);
    }

    fn set_stale(&self, resource: &str, all: bool) {
        if let Some(kind) = Kind::by_plural(resource) {
            let snapshot = Arc::new(self.core.snapshot(kind));
            self.stale.lock().insert(kind.index, Stale { snapshot, all });
        }
    }

    /// Ends [`Faults::stale_reads`] and [`Faults::lag_cache`].
    pub fn fresh_reads(&self, resource: &str) {
        if let Some(kind) = Kind::by_plural(resource) {
            self.stale.lock().remove(&kind.index);
        }
    }

    /// The state for a read with this version, if not the real one.
    pub(crate) fn view(&self, kind: &Kind, version: &str) -> Option<Arc<Snapshot>> {
        let stale = self.stale.lock();
        let stale = stale.get(&kind.index).filter(|stale| stale.all || !version.is_empty())?;
        Some(Arc::clone(&stale.snapshot))
    }

    /// The effects on this request, in order. Counts the request.
    pub(crate) fn consult(&self, request: &RequestFacts<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for active in self.active.lock().values_mut().filter(|active| active.fault.matching.covers(request)) {
            active.seen += 1;
            let Some(turn) = active.seen.checked_sub(active.fault.skip + 1) else { continue };
            let left = active.fault.times.is_none_or(|times| active.fired < times);
            if left && turn % active.fault.every.max(1) == 0 {
                active.fired += 1;
                effects.push(active.fault.effect.clone());
            }
        }
        effects
    }
}
