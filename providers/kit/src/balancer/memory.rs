//! What the engine remembers between calls: refusals, operations that are not done, and what waits for its successor.
//!
//! A restart forgets all of it. A refused replacement is then tried once more, and what serves is deleted and made again:
//! no cloud shows what it has refused. The age of what came back, where there is one, does not say which change was
//! refused, nor whether the cause is gone; and a mark on the Service would be a write to it for each refusal.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{ErrorClass, GroupKey, ProviderError, Service, ServiceAction, ServiceKey, ServiceWork, Verb};
use parking_lot::Mutex;
use tokio::time::Instant;

use super::Operation;
use super::step::{Items, Kind, Part, Step};

/// A refused write is sent again after this time: what was missing may have been created.
pub(super) const REFUSED: Duration = Duration::from_secs(3600);
/// The same for a missing permission: somebody may have granted it.
pub(super) const DENIED: Duration = Duration::from_secs(600);
/// What was removed comes back after this time even if the failures of its successor may pass.
const OVERDUE: Duration = Duration::from_secs(60);
/// Annotations that the program writes, also after a refusal: such a change is no reason to try again.
const OWN: &str = "cloud-controller-manager/";
/// The bounds of the delay until an unfinished operation is read again; in between it is a quarter of its age.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

#[derive(Debug)]
pub(super) struct Memory<W> {
    /// See [`BalancerCloud::ANNOTATIONS`](super::BalancerCloud::ANNOTATIONS).
    annotations: &'static [&'static str],
    refused: Mutex<BTreeMap<Key, Refusal>>,
    /// By object.
    parked: Mutex<BTreeMap<String, Arc<Parked<W>>>>,
    /// By the object of the successor.
    removed: Mutex<BTreeMap<String, Arc<Removed<W>>>>,
}

/// The verb, object and part of a step.
type Key = (Verb, String, Part);

#[derive(Debug)]
struct Refusal {
    /// Of the step and its Services.
    fingerprint: u64,
    uids: BTreeSet<String>,
    until: Instant,
    error: ProviderError,
}

/// A request that a refusal is remembered for.
#[derive(Debug, Clone)]
pub(super) struct Request {
    key: Key,
    fingerprint: u64,
    /// Those of its Services.
    uids: BTreeSet<String>,
}

/// What comes back if its successor is refused.
#[derive(Debug)]
pub(super) struct Removed<W> {
    restore: Vec<Arc<Step<W>>>,
    /// The UIDs of its Services: others of the same name never had it.
    uids: BTreeSet<String>,
    at: Instant,
}

/// The object of a successor, and what was removed for it.
pub(super) type Room<W> = (String, Arc<Removed<W>>);

/// An operation that was not done when its call ended.
#[derive(Debug)]
pub(super) struct Parked<W> {
    pub(super) operation: Operation,
    /// The groups of the call.
    pub(super) groups: BTreeSet<GroupKey>,
    /// The Services that wait for it.
    pub(super) services: BTreeSet<ServiceKey>,
    pub(super) verb: Verb,
    pub(super) since: Instant,
    pub(super) request: Option<Request>,
    /// Whether nothing follows it: it is no restoration before another one.
    pub(super) is_last: bool,
    /// Executed if the cloud refuses it afterwards.
    pub(super) restore: Vec<Arc<Step<W>>>,
    /// The object for which it makes room, and what comes back if that is refused.
    pub(super) room: Option<Room<W>>,
}

impl<W> Memory<W> {
    /// The request of a step. Members change with the nodes and shared objects with other Services: they are not
    /// remembered.
    pub(super) fn request(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<Request> {
        let is_remembered = match step.summary.verb {
            _ if step.is_shared => false,
            Verb::Create | Verb::Update | Verb::Attach => step.part.kind != Kind::Members,
            Verb::Detach => step.part.kind == Kind::Settings,
            Verb::Delete => false,
        };
        is_remembered.then(|| self.any_request(step, work))
    }

    fn any_request(&self, step: &Step<W>, work: &[ServiceWork]) -> Request {
        Request { key: key(step), fingerprint: self.fingerprint(step, work), uids: uids(step, work) }
    }

    /// That of a deletion that makes room for the step.
    pub(super) fn room_for(&self, step: &Step<W>, work: &[ServiceWork]) -> Request {
        Request { key: (Verb::Delete, step.object(), step.part.clone()), ..self.any_request(step, work) }
    }

    fn fingerprint(&self, step: &Step<W>, work: &[ServiceWork]) -> u64 {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", step.summary).hash(&mut hasher);
        let concerned = |place: &usize| match &step.items {
            // The request itself shows what the Services need of a shared object.
            Items::All => false,
            Items::Some(places) => places.contains(place),
        };
        let is_read = |key: &str| !key.starts_with(OWN) && self.annotations.iter().any(|start| key.starts_with(start));
        for (_, item) in work.iter().enumerate().filter(|(place, _)| concerned(place)) {
            let Service { metadata, spec, .. } = &*item.service;
            let annotations: Vec<_> = metadata.annotations.iter().filter(|(key, _)| is_read(key)).collect();
            format!("{} {spec:?} {annotations:?}", metadata.uid).hash(&mut hasher);
        }
        hasher.finish()
    }
}

impl<W> Removed<W> {
    /// What a deletion removes for a later step, if it can come back: for that of the same object, else for the first.
    pub(super) fn by(deletion: &Step<W>, later: &[Step<W>], work: &[ServiceWork]) -> Option<Room<W>> {
        let successors = || deletion.successors(later).filter(|successor| !successor.restore.is_empty());
        let of_object = successors().find(|successor| successor.object() == deletion.object());
        let successor = of_object.or_else(|| successors().next())?;
        let restore = successor.restore.clone();
        let removed = Self { restore, uids: uids(successor, work), at: Instant::now() };
        Some((successor.object(), removed.into()))
    }
}

impl<W> Parked<W> {
    /// Whether it creates something for this Service alone, which an observation may not show yet.
    pub(super) fn creates_for(&self, service: &ServiceKey) -> bool {
        self.verb == Verb::Create && self.services.len() == 1 && self.services.contains(service)
    }

    /// Whether its failure is one of the work on a Service. A creation that failed leaves nothing to delete.
    pub(super) fn concerns(&self, item: &ServiceWork) -> bool {
        let is_over = item.action == ServiceAction::Delete && self.verb == Verb::Create;
        self.services.contains(&item.service.key()) && !is_over
    }

    /// The answer to Services that wait.
    pub(super) fn in_progress(&self) -> ProviderError {
        let after = (self.since.elapsed() / 4).clamp(AGAIN.0, AGAIN.1);
        ProviderError::in_progress(format!("the cloud is still {}", self.operation.text), after)
    }
}

impl<W> Memory<W> {
    pub(super) fn of(annotations: &'static [&'static str]) -> Self {
        let (refused, parked, removed) = Default::default();
        Self { annotations, refused, parked, removed }
    }

    /// The error of the same step, if the cloud has refused it for these Services.
    pub(super) fn refusal(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<ProviderError> {
        self.remembered(|| self.any_request(step, work))
    }

    /// The error because of which nothing is removed for this step.
    pub(super) fn no_room(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<ProviderError> {
        self.remembered(|| self.room_for(step, work))
    }

    fn remembered(&self, request: impl FnOnce() -> Request) -> Option<ProviderError> {
        let mut refused = self.refused.lock();
        if refused.is_empty() {
            return None;
        }
        refused.retain(|_, refusal| Instant::now() < refusal.until);
        let Request { key, fingerprint, .. } = request();
        let refusal = refused.get(&key)?;
        (refusal.fingerprint == fingerprint).then(|| refusal.error.clone())
    }

    /// Remembers an error for this time.
    pub(super) fn keep(&self, Request { key, fingerprint, uids }: Request, error: &ProviderError, lasts: Duration) {
        let refusal = Refusal { fingerprint, uids, until: Instant::now() + lasts, error: error.clone() };
        self.refused.lock().insert(key, refusal);
    }

    /// Remembers what was removed, until its successor is there.
    pub(super) fn removed(&self, (successor, removed): Room<W>) {
        let mut all = self.removed.lock();
        all.retain(|_, one| one.at.elapsed() < REFUSED);
        all.insert(successor, removed);
    }

    /// Whether a successor is missing.
    pub(super) fn replaces(&self) -> bool {
        !self.removed.lock().is_empty()
    }

    /// What was removed for this step, by an earlier one.
    pub(super) fn removed_for(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<Vec<Arc<Step<W>>>> {
        self.removal(step, work).map(|one| one.restore.clone())
    }

    /// Whether the successor of what was removed should have been there for some time.
    pub(super) fn is_overdue(&self, step: &Step<W>, work: &[ServiceWork]) -> bool {
        self.removal(step, work).is_some_and(|one| one.at.elapsed() > OVERDUE)
    }

    fn removal(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<Arc<Removed<W>>> {
        let all = self.removed.lock();
        let removed = all.get(&step.object()).filter(|one| one.at.elapsed() < REFUSED)?;
        (removed.uids == uids(step, work)).then(|| removed.clone())
    }

    /// The load balancer of this Service is deleted.
    pub(super) fn is_gone(&self, uid: &str) {
        self.removed.lock().retain(|_, one| !one.uids.contains(uid));
    }

    /// What was removed for this object cannot come back: there is nothing that a trial would interrupt, so that whatever
    /// was refused for its Services is sent again.
    pub(super) fn is_missing(&self, object: &str) {
        let Some(removed) = self.removed.lock().get(object).cloned() else { return };
        self.refused.lock().retain(|_, refusal| refusal.uids.is_disjoint(&removed.uids));
    }

    /// The object is there.
    pub(super) fn is_replaced(&self, object: &str) {
        self.removed.lock().remove(object);
    }

    pub(super) fn park(&self, object: String, parked: Parked<W>) {
        self.parked.lock().insert(object, parked.into());
    }

    pub(super) fn unpark(&self, object: &str) {
        self.parked.lock().remove(object);
    }

    /// The unfinished operations of these groups, by object.
    pub(super) fn parked(&self, groups: &BTreeSet<GroupKey>) -> BTreeMap<String, Arc<Parked<W>>> {
        let parked = self.parked.lock();
        let concerned = parked.iter().filter(|(_, parked)| !parked.groups.is_disjoint(groups));
        concerned.map(|(object, parked)| (object.clone(), parked.clone())).collect()
    }
}

/// Whether the cloud refuses the same request again.
pub(super) fn is_final(error: &ProviderError) -> bool {
    matches!(error.class(), ErrorClass::Invalid { .. } | ErrorClass::Unsupported)
}

fn key<W>(step: &Step<W>) -> Key {
    (step.summary.verb, step.object(), step.part.clone())
}

fn uids<W>(step: &Step<W>, work: &[ServiceWork]) -> BTreeSet<String> {
    let concerned = work.iter().enumerate().filter(|(place, _)| step.items.contains(*place));
    concerned.map(|(_, item)| item.service.metadata.uid.to_string()).collect()
}
