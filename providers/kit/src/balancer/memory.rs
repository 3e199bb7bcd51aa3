//! What the engine remembers between calls: refusals and operations that are not done.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Mutex;
use std::time::Duration;

use ccm_provider::{ErrorClass, GroupKey, ProviderError, Service, ServiceAction, ServiceKey, ServiceWork, Verb};
use tokio::time::Instant;

use super::Operation;
use super::step::{Items, Kind, Part, Step};
use crate::lock::lock;

/// A refused write is sent again after this time: what was missing may have been created.
pub(super) const REFUSED: Duration = Duration::from_secs(3600);
/// Annotations that the program writes, also after a refusal: such a change is no reason to try again.
const OWN: &str = "cloud-controller-manager/";
/// The bounds of the delay until an unfinished operation is read again; in between it is a quarter of its age.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(15));

#[derive(Debug, Default)]
pub(super) struct Memory {
    /// By verb, object and part.
    refused: Mutex<BTreeMap<(Verb, String, Part), Refusal>>,
    /// By object.
    parked: Mutex<BTreeMap<String, Parked>>,
}

#[derive(Debug)]
struct Refusal {
    /// Of the step and its Services.
    fingerprint: u64,
    until: Instant,
    error: ProviderError,
}

/// An operation that was not done when its call ended.
#[derive(Debug, Clone)]
pub(super) struct Parked {
    pub(super) operation: Operation,
    /// The groups of the call.
    pub(super) groups: BTreeSet<GroupKey>,
    /// The Services that wait for it.
    pub(super) services: BTreeSet<ServiceKey>,
    pub(super) verb: Verb,
    pub(super) since: Instant,
}

impl Parked {
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

impl Memory {
    /// The error of the same step, if the cloud has refused it for these Services.
    pub(super) fn refusal<W>(&self, step: &Step<W>, work: &[ServiceWork]) -> Option<ProviderError> {
        let mut refused = lock(&self.refused);
        if refused.is_empty() {
            return None;
        }
        refused.retain(|_, refusal| Instant::now() < refusal.until);
        let refusal = refused.get(&key(step))?;
        (refusal.fingerprint == fingerprint(step, work)).then(|| refusal.error.clone())
    }

    /// Remembers an error for this time if the cloud would refuse the same write again. Members change with the nodes,
    /// and are not remembered.
    pub(super) fn note<W>(&self, step: &Step<W>, work: &[ServiceWork], error: &ProviderError, lasts: Duration) {
        let is_request = match step.summary.verb {
            Verb::Create | Verb::Update | Verb::Attach => step.part.kind != Kind::Members,
            Verb::Detach => step.part.kind == Kind::Settings,
            Verb::Delete => false,
        };
        if is_request && is_final(error) {
            self.keep(step, work, error, lasts);
        }
    }

    /// Remembers an error for this time.
    pub(super) fn keep<W>(&self, step: &Step<W>, work: &[ServiceWork], error: &ProviderError, lasts: Duration) {
        let until = Instant::now() + lasts;
        let refusal = Refusal { fingerprint: fingerprint(step, work), until, error: error.clone() };
        lock(&self.refused).insert(key(step), refusal);
    }

    pub(super) fn park(&self, object: String, parked: Parked) {
        lock(&self.parked).insert(object, parked);
    }

    pub(super) fn unpark(&self, object: &str) {
        lock(&self.parked).remove(object);
    }

    /// The unfinished operations of these groups, by object.
    pub(super) fn parked(&self, groups: &BTreeSet<GroupKey>) -> BTreeMap<String, Parked> {
        let parked = lock(&self.parked);
        let concerned = parked.iter().filter(|(_, parked)| !parked.groups.is_disjoint(groups));
        concerned.map(|(object, parked)| (object.clone(), parked.clone())).collect()
    }
}

/// Whether the cloud refuses the same request again.
pub(super) fn is_final(error: &ProviderError) -> bool {
    matches!(error.class(), ErrorClass::Invalid { .. } | ErrorClass::Unsupported)
}

fn key<W>(step: &Step<W>) -> (Verb, String, Part) {
    (step.summary.verb, step.object(), step.part.clone())
}

fn fingerprint<W>(step: &Step<W>, work: &[ServiceWork]) -> u64 {
    let mut hasher = DefaultHasher::new();
    format!("{:?}", step.summary).hash(&mut hasher);
    let concerned = |place: &usize| match &step.items {
        // The request itself shows what the Services need of a shared object.
        Items::All => false,
        Items::Some(places) => places.contains(place),
    };
    for (_, item) in work.iter().enumerate().filter(|(place, _)| concerned(place)) {
        let Service { metadata, spec, .. } = &*item.service;
        let annotations: Vec<_> = metadata.annotations.iter().filter(|(key, _)| !key.starts_with(OWN)).collect();
        format!("{} {spec:?} {annotations:?}", metadata.uid).hash(&mut hasher);
    }
    hasher.finish()
}
