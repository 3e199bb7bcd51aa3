//! Instances by key: listed or looked up, whichever takes fewer calls, with evidence if an instance is gone.
//!
//! A key identifies the instance of a node: an ID, a name, an address. The cloud implements [`Source`] and defines the
//! meaning of an instance for a node ([`NodeCloud`]). The rules for lists, look-ups and missing instances are the same
//! for every cloud:
//!
//! * A list replaces look-ups if it takes fewer calls; the keys that it lacks are looked up. For some minutes after a list
//!   without an answer, all keys are looked up, if a few of them get an answer.
//! * The existence of an instance, and whether it is stopped, is read at each request ([`Directory::look_up`]).
//! * New nodes that join at the same time share a recent list ([`Directory::recent`]), which is used only for instances
//!   in a final state. No other answer is older than its request.
//! * An error is never evidence; neither is a key that several instances have, nor a name that no instance ever had.

mod nodes;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Debug;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use ccm_provider::{Evidence, EvidenceKind, Lookup, ProviderError};
use futures::FutureExt;

use crate::{Cached, Cluster, Interrupted, Stamped};

pub use nodes::{NodeCloud, Nodes};

/// The maximum age of a list for new nodes. An older list is dropped, because it is as large as the cluster.
const RECENT: Duration = Duration::from_secs(10);
/// After a list without an answer, this many keys are looked up in its place, and the others only if one of them gets an
/// answer: more calls would only burden a cloud that has difficulties.
const IN_PLACE_OF_A_LIST: usize = 16;
/// A list without an answer is not repeated for this time. Some clouds never list a large project in time.
const NOT_LISTED: Duration = Duration::from_secs(300);

/// The cloud's answer for a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Seen<V> {
    /// The instance exists, or existed recently.
    One(V),
    /// The cloud reported that the key does not exist.
    Absent,
    /// A complete answer does not contain the key. It may be outdated: a second answer must confirm it.
    Unlisted,
    /// Several instances have this key: their IDs.
    Several(Vec<String>),
    /// The answer does not show whether the instance of the node exists: why, and what to do.
    Unclear(String),
}

/// The answer for one key.
pub type Answer<S> = Result<Seen<<S as Source>::Value>, <S as Source>::Error>;

/// The instances of a cloud.
#[async_trait]
pub trait Source: Debug + Send + Sync + 'static {
    /// The key of an instance.
    type Key: Clone + Ord + Debug + Send + Sync + 'static;
    /// The data of an instance.
    type Value: Clone + Debug + Send + Sync + 'static;
    /// The error of a read.
    type Error: Clone + Debug + Into<ProviderError> + Send + Sync + 'static;

    /// All instances of the cluster, each under all its keys, and their number.
    ///
    /// # Errors
    ///
    /// Some instances could not be read.
    async fn list(&self) -> Result<(usize, BTreeMap<Self::Key, Seen<Self::Value>>), Self::Error>;

    /// Looks up these instances; one answer per key.
    async fn look_up(&self, keys: BTreeSet<Self::Key>) -> BTreeMap<Self::Key, Answer<Self>>;

    /// The same for new nodes, and for addresses: what does not change by itself may be known from an earlier read.
    async fn look_up_recent(&self, keys: BTreeSet<Self::Key>) -> BTreeMap<Self::Key, Answer<Self>> {
        self.look_up(keys).await
    }

    /// The number of calls to list `instances` instances.
    fn list_calls(instances: usize) -> usize;

    /// The number of calls to look up keys that a list could answer.
    fn look_up_calls(keys: &BTreeSet<Self::Key>) -> usize;

    /// Whether the instance will not change soon by itself: it is running and has its addresses.
    fn is_settled(value: &Self::Value) -> bool;

    /// Whether the absence of a key means that the instance does not exist; false for a name that the cloud may never
    /// have known.
    fn is_evidence(key: &Self::Key) -> bool;

    /// The error for a key that several instances have.
    fn ambiguous(&self, key: &Self::Key, ids: &[String]) -> ProviderError;

    /// The error of a list without an answer.
    fn interrupted(how: Interrupted) -> Self::Error;
}

/// Look-ups of instances.
#[derive(Debug)]
pub struct Directory<S: Source> {
    source: Arc<S>,
    cluster: Cluster,
    listed: Cached<Listed<S>, S::Error>,
    // The number of instances of the last list; 0 before the first.
    size: AtomicUsize,
}

#[derive(Debug)]
struct Listed<S: Source> {
    // The time at which the read began.
    wall: SystemTime,
    size: usize,
    by_key: BTreeMap<S::Key, Seen<S::Value>>,
}

/// The answers for some keys.
#[derive(Debug)]
pub struct Observed<S: Source> {
    /// The time at which the oldest of the reads began.
    pub began: SystemTime,
    source: Arc<S>,
    answers: BTreeMap<S::Key, Answer<S>>,
}

impl<S: Source> Directory<S> {
    /// A directory that has not read anything yet.
    pub fn new(source: S, cluster: Cluster) -> Self {
        let source = Arc::new(source);
        let (reader, clock) = (source.clone(), cluster.clone());
        let read = move || {
            let (source, clock) = (reader.clone(), clock.clone());
            async move {
                let wall = clock.wall();
                let (size, by_key) = source.list().await?;
                Ok(Listed { wall, size, by_key })
            }
            .boxed()
        };
        let interrupted = S::interrupted as fn(Interrupted) -> S::Error;
        let listed = Cached::new(read, interrupted).keeping_failures(NOT_LISTED);
        Self { source, cluster, listed, size: AtomicUsize::new(0) }
    }

    /// Reads these keys now.
    pub async fn look_up(&self, keys: BTreeSet<S::Key>) -> Observed<S> {
        self.read(keys, Duration::ZERO).await
    }

    /// Reads these keys for new nodes: from the last list if it is recent.
    pub async fn recent(&self, keys: BTreeSet<S::Key>) -> Observed<S> {
        self.read(keys, RECENT).await
    }

    async fn read(&self, mut keys: BTreeSet<S::Key>, max_age: Duration) -> Observed<S> {
        let (source, mut began) = (self.source.clone(), self.cluster.wall());
        let mut answers: BTreeMap<S::Key, Answer<S>> = BTreeMap::new();
        if let Some(Stamped { value: listed, .. }) = self.listed.last().filter(|last| last.began.elapsed() < max_age) {
            let is_final = |seen: &&Seen<S::Value>| matches!(seen, Seen::One(value) if S::is_settled(value));
            let of_list = |key: &S::Key| Some((key.clone(), Ok(listed.by_key.get(key).filter(is_final)?.clone())));
            answers.extend(keys.iter().filter_map(of_list));
            if !answers.is_empty() {
                began = listed.wall;
            }
            keys.retain(|key| !answers.contains_key(key));
        }
        // Also after a recent list: many new nodes must not cost a look-up each.
        if self.is_list_cheaper(&keys) {
            match self.list().await {
                Ok(Stamped { value: listed, .. }) => {
                    let of_list = |key: &S::Key| Some((key.clone(), Ok(listed.by_key.get(key)?.clone())));
                    answers.extend(keys.iter().filter_map(of_list));
                }
                Err(error) if S::look_up_calls(&keys) > IN_PLACE_OF_A_LIST => {
                    // Not the first: these may all be in one zone that has difficulties.
                    let few = keys.iter().step_by(keys.len().div_ceil(IN_PLACE_OF_A_LIST)).cloned().collect();
                    let few = self.each(few, max_age).await;
                    if few.values().all(Result::is_err) {
                        answers.extend(keys.iter().map(|key| (key.clone(), Err(error.clone()))));
                    }
                    answers.extend(few);
                }
                Err(_) => {}
            }
            keys.retain(|key| !answers.contains_key(key));
        }
        if !keys.is_empty() {
            answers.extend(self.each(keys, max_age).await);
        }
        Observed { began, source, answers }
    }

    async fn each(&self, keys: BTreeSet<S::Key>, max_age: Duration) -> BTreeMap<S::Key, Answer<S>> {
        match max_age.is_zero() {
            true => self.source.look_up(keys).await,
            false => self.source.look_up_recent(keys).await,
        }
    }

    /// Lists the instances; the list is cached for a short time.
    async fn list(&self) -> Result<Stamped<Listed<S>>, S::Error> {
        let listed = self.listed.get(Duration::ZERO, None).await?;
        self.size.store(listed.value.size, Ordering::Relaxed);
        let (cached, began) = (self.listed.clone(), listed.began);
        tokio::spawn(async move {
            tokio::time::sleep(RECENT).await;
            if cached.last().is_some_and(|last| last.began == began) {
                cached.forget();
            }
        });
        Ok(listed)
    }

    fn is_list_cheaper(&self, keys: &BTreeSet<S::Key>) -> bool {
        let instances = match self.size.load(Ordering::Relaxed) {
            0 => keys.len(),
            size => size,
        };
        S::list_calls(instances) < S::look_up_calls(keys)
    }
}

impl<S: Source> Observed<S> {
    /// The instance of a key, if there is exactly one.
    pub fn one(&self, key: &S::Key) -> Option<&S::Value> {
        match self.answers.get(key)? {
            Ok(Seen::One(value)) => Some(value),
            _ => None,
        }
    }

    /// The answer for a node with this key; `found` maps its instance to an answer. Absence is ignored for nodes
    /// younger than `grace`.
    pub fn judge(&self, key: &S::Key, grace: Duration, found: impl FnOnce(&S::Value) -> Lookup) -> Lookup {
        match self.answers.get(key) {
            Some(Ok(Seen::One(value))) => found(value),
            Some(Ok(Seen::Absent)) => self.gone(EvidenceKind::Absent, grace),
            Some(Ok(Seen::Unlisted)) if S::is_evidence(key) => self.gone(EvidenceKind::Unlisted, grace),
            Some(Ok(Seen::Unlisted)) => Lookup::Unknown(ProviderError::InstanceNotFound),
            Some(Ok(Seen::Several(ids))) => Lookup::Unknown(self.source.ambiguous(key, ids)),
            Some(Ok(Seen::Unclear(why))) => Lookup::Unknown(ProviderError::unknown(why.clone())),
            Some(Err(error)) => Lookup::Unknown(error.clone().into()),
            None => Lookup::Unknown(ProviderError::bug(format!("{key:?} was not looked up"))),
        }
    }

    /// The answer that an instance is gone, with these reads as evidence.
    pub fn gone(&self, kind: EvidenceKind, grace: Duration) -> Lookup {
        Lookup::Gone(Evidence { kind, read_began: self.began, grace })
    }
}

#[cfg(test)]
mod tests;
