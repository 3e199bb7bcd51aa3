//! Faults that can be switched on while the server runs. All are counted, none is random, so that a run can be repeated.

use crate::fair::{Receiver, Sender};
use crate::kind::{KINDS, Kind};
use crate::store::{Core, Snapshot};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Which requests a fault is about. A member that is not set matches everything.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Match {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`, `deletecollection`, or `read` (get and list) or
    /// `write` (all that change something).
    pub verb: Option<String>,
    /// Plural name of the resource.
    pub resource: Option<String>,
    /// Namespace of the object.
    pub namespace: Option<String>,
    /// Name of the object. A create matches by the name in its body.
    pub name: Option<String>,
    /// Subresource; `""` matches only requests without one.
    pub subresource: Option<String>,
    /// A part of the user agent.
    pub user_agent: Option<String>,
}

impl Match {
    /// Every request.
    #[must_use]
    pub fn any() -> Match {
        Match::default()
    }

    /// Requests of this verb on this resource.
    #[must_use]
    pub fn on(verb: &str, resource: &str) -> Match {
        Match { verb: Some(verb.to_owned()), resource: Some(resource.to_owned()), ..Match::default() }
    }

    /// The same, for one object only.
    #[must_use]
    pub fn named(self, name: &str) -> Match {
        Match { name: Some(name.to_owned()), ..self }
    }

    /// The same, for one subresource only (`""`: for none).
    #[must_use]
    pub fn subresource(self, subresource: &str) -> Match {
        Match { subresource: Some(subresource.to_owned()), ..self }
    }

    fn covers(&self, request: &RequestFacts<'_>) -> bool {
        let same = |wanted: &Option<String>, found: &str| wanted.as_ref().is_none_or(|wanted| wanted == found);
        let verb = self.verb.as_deref().is_none_or(|wanted| match wanted {
            "read" => matches!(request.verb, "get" | "list"),
            "write" => matches!(request.verb, "create" | "update" | "patch" | "delete" | "deletecollection"),
            exact => exact == request.verb,
        });
        verb && same(&self.resource, request.resource)
            && same(&self.namespace, request.namespace)
            && same(&self.name, request.name)
            && same(&self.subresource, request.subresource)
            && self.user_agent.as_ref().is_none_or(|part| request.user_agent.contains(part.as_str()))
    }
}

/// What a fault does to a request.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Effect {
    /// Answers with a `Status` of this code; nothing takes effect.
    Status {
        /// HTTP status.
        code: u16,
        /// `reason`; a usual one for the code when not set.
        #[serde(default)]
        reason: Option<String>,
        /// `message`.
        #[serde(default)]
        message: Option<String>,
        /// `Retry-After` seconds.
        #[serde(default)]
        retry_after: Option<u64>,
    },
    /// Answers with an HTML page, as a load balancer in front of the API does.
    HtmlPage {
        /// HTTP status.
        code: u16,
    },
    /// Waits before anything else happens.
    Latency {
        /// How long.
        millis: u64,
    },
    /// Closes the connection; nothing takes effect.
    LoseRequest,
    /// Carries out the request, then closes the connection without an answer.
    LoseAnswer,
    /// Carries out the request, then answers with a `Status` of this code.
    FailAfterEffect {
        /// HTTP status.
        code: u16,
    },
    /// Ends a watch after so many events.
    EndWatch {
        /// How many events are still delivered.
        after: u64,
        /// Whether the connection breaks instead of the stream ending in order.
        #[serde(default)]
        abrupt: bool,
    },
}

/// A fault: an effect, the requests it hits, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fault {
    /// What happens.
    pub effect: Effect,
    /// To which requests.
    #[serde(default, rename = "match")]
    pub matching: Match,
    /// How many matching requests pass first.
    #[serde(default)]
    pub skip: u64,
    /// How many requests are hit; all when not set.
    #[serde(default)]
    pub times: Option<u64>,
    /// Hits every n-th of the matching requests (the first of each n).
    #[serde(default = "one")]
    pub every: u64,
}

fn one() -> u64 {
    1
}

impl Fault {
    /// A fault that hits every request until it is removed.
    #[must_use]
    pub fn new(effect: Effect) -> Fault {
        Fault { effect, matching: Match::any(), skip: 0, times: None, every: 1 }
    }

    /// 429 with `Retry-After`.
    #[must_use]
    pub fn too_many_requests(retry_after: u64) -> Fault {
        let message = "Too many requests, please try again later.".to_owned();
        Fault::new(Effect::Status { code: 429, reason: None, message: Some(message), retry_after: Some(retry_after) })
    }

    /// A `Status` of this code before anything takes effect.
    #[must_use]
    pub fn status(code: u16) -> Fault {
        Fault::new(Effect::Status { code, reason: None, message: None, retry_after: None })
    }

    /// Time before the answer.
    #[must_use]
    pub fn latency(duration: Duration) -> Fault {
        Fault::new(Effect::Latency { millis: u64::try_from(duration.as_millis()).unwrap_or(u64::MAX) })
    }

    /// Limits the fault to these requests.
    #[must_use]
    pub fn on(self, matching: Match) -> Fault {
        Fault { matching, ..self }
    }

    /// Limits the fault to so many hits.
    #[must_use]
    pub fn times(self, times: u64) -> Fault {
        Fault { times: Some(times), ..self }
    }

    /// Lets so many matching requests pass first.
    #[must_use]
    pub fn skip(self, skip: u64) -> Fault {
        Fault { skip, ..self }
    }

    /// Hits only every n-th matching request.
    #[must_use]
    pub fn every(self, every: u64) -> Fault {
        Fault { every: every.max(1), ..self }
    }
}

/// Names a fault that was added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct FaultId(u64);

/// What a request looks like to the faults.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequestFacts<'a> {
    pub(crate) verb: &'a str,
    pub(crate) resource: &'a str,
    pub(crate) namespace: &'a str,
    pub(crate) name: &'a str,
    pub(crate) subresource: &'a str,
    pub(crate) user_agent: &'a str,
}

#[derive(Debug)]
struct Active {
    fault: Fault,
    seen: u64,
    fired: u64,
}

/// State that open watches and the listener follow.
#[derive(Debug, Clone, Default)]
pub(crate) struct Control {
    /// How often the watches of each kind were dropped.
    pub(crate) drops: [u64; KINDS.len()],
    /// Kinds whose watches deliver nothing.
    pub(crate) frozen: [bool; KINDS.len()],
    /// The listener is closed.
    pub(crate) gone: bool,
}

/// What reads of a kind show while they are stale.
#[derive(Debug)]
struct Stale {
    snapshot: Arc<Snapshot>,
    /// Whether reads without a version, which the storage answers, are stale too.
    all: bool,
}

/// The switches. A handle: clones act on the same server.
#[derive(Debug, Clone)]
pub struct Faults {
    core: Arc<Core>,
    active: Arc<Mutex<BTreeMap<FaultId, Active>>>,
    stale: Arc<Mutex<BTreeMap<usize, Stale>>>,
    control: Arc<Sender<Control>>,
}

impl Faults {
    pub(crate) fn new(core: Arc<Core>) -> Faults {
        let control = Arc::new(Sender::new(Control::default()));
        Faults { core, active: Arc::default(), stale: Arc::default(), control }
    }

    fn active(&self) -> MutexGuard<'_, BTreeMap<FaultId, Active>> {
        self.active.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn stale(&self) -> MutexGuard<'_, BTreeMap<usize, Stale>> {
        self.stale.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Switches a fault on. Faults are consulted in the order in which they were added.
    pub fn add(&self, fault: Fault) -> FaultId {
        let mut active = self.active();
        let id = FaultId(active.last_key_value().map_or(1, |(last, _)| last.0 + 1));
        active.insert(id, Active { fault, seen: 0, fired: 0 });
        id
    }

    /// Switches a fault off. Returns how often it hit.
    pub fn remove(&self, id: FaultId) -> u64 {
        self.active().remove(&id).map_or(0, |active| active.fired)
    }

    /// How often a fault has hit.
    #[must_use]
    pub fn fired(&self, id: FaultId) -> u64 {
        self.active().get(&id).map_or(0, |active| active.fired)
    }

    /// Switches everything off: faults, stale reads, frozen watches, a server that is gone.
    pub fn clear(&self) {
        self.active().clear();
        self.stale().clear();
        self.control.send_modify(|control| {
            control.frozen = Default::default();
            control.gone = false;
        });
    }

    /// The faults that are on, with how often each has hit.
    #[must_use]
    pub fn list(&self) -> Vec<(FaultId, Fault, u64)> {
        self.active().iter().map(|(id, active)| (*id, active.fault.clone(), active.fired)).collect()
    }

    /// Ends every open watch (of one resource) now.
    pub fn drop_watches(&self, resource: Option<&str>) {
        self.control.send_modify(|control| {
            for (kind, drops) in KINDS.iter().zip(&mut control.drops) {
                if resource.is_none_or(|resource| resource == kind.plural) {
                    *drops += 1;
                }
            }
        });
    }

    /// Hides watch events (of one resource) until [`Faults::thaw_watches`]; they are then delivered late.
    pub fn freeze_watches(&self, resource: Option<&str>) {
        self.set_frozen(resource, true);
    }

    /// Lets watch events through again.
    pub fn thaw_watches(&self, resource: Option<&str>) {
        self.set_frozen(resource, false);
    }

    fn set_frozen(&self, resource: Option<&str>, to: bool) {
        self.control.send_modify(|control| {
            for (kind, frozen) in KINDS.iter().zip(&mut control.frozen) {
                if resource.is_none_or(|resource| resource == kind.plural) {
                    *frozen = to;
                }
            }
        });
    }

    /// From now on gets and lists of this resource answer with what is stored at this moment, until
    /// [`Faults::fresh_reads`]. Writes and watches see the truth. No API server does this to reads without a version, unless
    /// its etcd does.
    pub fn stale_reads(&self, resource: &str) {
        self.set_stale(resource, true);
    }

    /// As [`Faults::stale_reads`], but only for reads that the watch cache may answer: those with a version. A version newer
    /// than the cache is refused.
    pub fn lag_cache(&self, resource: &str) {
        self.set_stale(resource, false);
    }

    fn set_stale(&self, resource: &str, all: bool) {
        if let Some(kind) = Kind::by_plural(resource) {
            let snapshot = Arc::new(self.core.snapshot(kind));
            self.stale().insert(kind.index, Stale { snapshot, all });
        }
    }

    /// Ends [`Faults::stale_reads`] and [`Faults::lag_cache`].
    pub fn fresh_reads(&self, resource: &str) {
        if let Some(kind) = Kind::by_plural(resource) {
            self.stale().remove(&kind.index);
        }
    }

    /// Closes the listener and every connection, so that clients are refused, or opens it again on the same port. In-process
    /// access keeps working.
    pub fn set_gone(&self, gone: bool) {
        self.control.send_modify(|control| control.gone = gone);
    }

    /// What a read of this version sees, if not the truth.
    pub(crate) fn view(&self, kind: &Kind, version: &str) -> Option<Arc<Snapshot>> {
        let stale = self.stale();
        let stale = stale.get(&kind.index).filter(|stale| stale.all || !version.is_empty())?;
        Some(Arc::clone(&stale.snapshot))
    }

    pub(crate) fn control(&self) -> Receiver<Control> {
        self.control.subscribe()
    }

    /// The effects that hit this request, in order. Counts it.
    pub(crate) fn consult(&self, request: &RequestFacts<'_>) -> Vec<Effect> {
        let mut effects = Vec::new();
        for active in self.active().values_mut().filter(|active| active.fault.matching.covers(request)) {
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

/// What `/faults` accepts: one of these, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultCommand {
    /// [`Faults::add`].
    Add(Box<Fault>),
    /// [`Faults::clear`].
    Clear,
    /// [`Faults::drop_watches`]; null for all.
    DropWatches(Option<String>),
    /// [`Faults::freeze_watches`]; null for all.
    FreezeWatches(Option<String>),
    /// [`Faults::thaw_watches`]; null for all.
    ThawWatches(Option<String>),
    /// [`Faults::stale_reads`].
    StaleReads(String),
    /// [`Faults::lag_cache`].
    LagCache(String),
    /// [`Faults::fresh_reads`].
    FreshReads(String),
    /// Refuse connections for so many milliseconds (nobody could ask for the end of it).
    GoneMillis(u64),
}

impl Faults {
    /// Carries out a command. Returns the id of an added fault.
    pub fn apply(&self, command: FaultCommand) -> Option<FaultId> {
        match command {
            FaultCommand::Add(fault) => return Some(self.add(*fault)),
            FaultCommand::Clear => self.clear(),
            FaultCommand::DropWatches(resource) => self.drop_watches(resource.as_deref()),
            FaultCommand::FreezeWatches(resource) => self.freeze_watches(resource.as_deref()),
            FaultCommand::ThawWatches(resource) => self.thaw_watches(resource.as_deref()),
            FaultCommand::StaleReads(resource) => self.stale_reads(&resource),
            FaultCommand::LagCache(resource) => self.lag_cache(&resource),
            FaultCommand::FreshReads(resource) => self.fresh_reads(&resource),
            FaultCommand::GoneMillis(millis) => self.go_for(Duration::from_millis(millis)),
        }
        None
    }

    fn go_for(&self, time: Duration) {
        let control = Arc::clone(&self.control);
        tokio::spawn(async move {
            // The answer to the command leaves first.
            tokio::time::sleep(Duration::from_millis(20)).await;
            control.send_modify(|control| control.gone = true);
            tokio::time::sleep(time).await;
            control.send_modify(|control| control.gone = false);
        });
    }
}
