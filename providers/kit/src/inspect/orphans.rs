//! Cloud objects that belong to the cluster but that nothing in it claims, and their deletion.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt::Display;
use std::time::Duration;

use ccm_provider::{
    Change, Claims, Orphan, ProviderError, Risk, Service, ServiceAction, ServiceKey, ServiceWork, Step, Verb,
};
use futures::future::try_join_all;
use serde::{Deserialize, Serialize};

use super::{Claim, Explained, Object, current};
use crate::balancer::{BalancerCloud, Step as Planned, write_all};

/// The delay of the retry of a deletion while a user of the object is still shown.
const IN_USE: Duration = Duration::from_secs(5);

/// The Services of a cluster.
#[derive(Debug)]
pub struct Services<'a> {
    cluster: &'a str,
    all: BTreeMap<String, &'a Service>,
}

impl<'a> Services<'a> {
    /// All Services of `claims`. `cluster`: the name of the cluster in [`Claim::cluster`].
    pub fn new(cluster: &'a str, claims: &'a Claims) -> Self {
        let all = claims.services.iter().map(|service| (service.key().to_string(), &**service));
        Self { cluster, all: all.collect() }
    }

    /// An object that was made for a Service of this cluster, and the Service. Its `marks` say so in words.
    pub fn former(&self, object: Object, marks: &str) -> Option<(Unclaimed, String)> {
        let service = object.claim.as_ref().filter(|claim| claim.cluster == self.cluster)?.service.clone();
        let (owner, why, marks) = (format!("service {service}"), self.why(&service), marks.to_owned());
        Some((Unclaimed { object, owner, why, marks, kept: None, risk: Risk::None, changes: vec![] }, service))
    }

    /// The Services that have, or had, a load balancer. A Service with a class may have had one of this program: the
    /// finalizer is removed after its load balancer is deleted.
    pub fn claiming(&self) -> impl Iterator<Item = &'a Service> {
        self.all.values().copied().filter(|service| is_claiming(service))
    }

    /// Whether the Service `namespace/name` has, or had, a load balancer.
    pub fn claims(&self, key: &str) -> bool {
        self.all.get(key).is_some_and(|service| is_claiming(service))
    }

    /// The reason why nothing claims the objects that were created for the Service `namespace/name`.
    pub fn why(&self, key: &str) -> String {
        match self.all.get(key) {
            None => format!("there is no Service {key}"),
            Some(found) if found.is_load_balancer() => format!("Service {key} has another UID"),
            Some(found) => format!("Service {key} is of type {}, and no longer has a load balancer", found.spec.kind),
        }
    }

    /// The reason to keep an object of an earlier Service with this name, if a new one claims it.
    pub fn namesake(&self, key: &str) -> Option<String> {
        self.claims(key).then(|| {
            format!(
                "a Service {key} exists with another UID: it was deleted and created again, or restored from a backup; check that \
                 nothing uses this any more, and remove it by hand"
            )
        })
    }
}

fn is_claiming(service: &Service) -> bool {
    service.is_load_balancer() || service.has_finalizer()
}

/// An object that nothing claims.
#[derive(Debug)]
pub struct Unclaimed {
    /// The object.
    pub object: Object,
    /// The owner for which it was created.
    pub owner: String,
    /// The reason why nothing claims it.
    pub why: String,
    /// The properties by which it was recognized: `its name and description`.
    pub marks: String,
    /// The reason why it is kept nevertheless.
    pub kept: Option<String>,
    /// The effect of its deletion on users.
    pub risk: Risk,
    /// What its deletion changes in other objects.
    pub changes: Vec<Change>,
}

/// What finds an orphan again.
#[derive(Debug, Serialize, Deserialize)]
struct Handle {
    claim: Claim,
    users: BTreeSet<String>,
}

impl From<Unclaimed> for Orphan {
    fn from(Unclaimed { object, owner, why, marks, kept, risk, changes }: Unclaimed) -> Self {
        let Object { kind, id, name, created, claim, users, .. } = object;
        let reason = format!("{why}; recognized by {marks}");
        let shown = if name.is_empty() { &id } else { &name };
        let step = Step { verb: Verb::Delete, kind: kind.into(), id: shown.clone(), changes, reason: why, risk };
        // Infallible: texts and lists of texts.
        let handle = Handle { claim: claim.unwrap_or_default(), users: users.into_keys().collect() };
        let handle = serde_json::to_value(handle).unwrap_or_default();
        Self { kind: kind.to_owned(), step, id, name, owner, reason, created, cost: None, kept, handle }
    }
}

/// What `of` finds about each, for `at_once` at a time.
///
/// # Errors
///
/// A read failed.
pub async fn each<'a, T, A: Future<Output = Result<Option<Unclaimed>, ProviderError>>>(
    all: &'a [T],
    at_once: usize,
    of: impl Fn(&'a T) -> A,
) -> Result<Vec<Unclaimed>, ProviderError> {
    let mut found = Vec::new();
    for some in all.chunks(at_once) {
        found.extend(try_join_all(some.iter().map(&of)).await?.into_iter().flatten());
    }
    Ok(found)
}

/// The orphans in an order in which they can be deleted, users before what they use. Anything that is used by what stays
/// is kept; so are objects that use each other.
pub fn in_order(found: Vec<Unclaimed>) -> Vec<Orphan> {
    let ids = |one: &Unclaimed| [one.object.id.clone(), one.object.alias.clone()];
    let mut left: BTreeSet<String> = found.iter().flat_map(ids).collect();
    let (mut found, mut going, mut orphans) = (VecDeque::from(found), BTreeSet::new(), Vec::new());
    while !found.is_empty() {
        let is_next = |one: &Unclaimed| !one.object.users.keys().any(|user| left.contains(user));
        let next = found.iter().position(is_next).unwrap_or_default();
        let Some(mut one) = found.remove(next) else { break };
        let stays = one.object.users.iter().find(|(user, _)| !going.contains(*user));
        one.kept = one.kept.or_else(|| stays.map(|(_, why)| why.clone()));
        for id in ids(&one) {
            left.remove(&id);
            if one.kept.is_none() {
                going.insert(id);
            }
        }
        orphans.push(one.into());
    }
    orphans
}

fn handle(orphan: &Orphan) -> Result<Handle, ProviderError> {
    if let Some(kept) = &orphan.kept {
        return Err(refused(orphan, kept));
    }
    let bug =
        |error| ProviderError::bug(format!("{} {} was not reported by this program: {error}", orphan.kind, orphan.id));
    Handle::deserialize(&orphan.handle).map_err(bug)
}

/// What the object of an orphan said about its owner.
///
/// # Errors
///
/// The orphan must be kept, or was not reported by this program.
pub fn claim(orphan: &Orphan) -> Result<Claim, ProviderError> {
    Ok(handle(orphan)?.claim)
}

/// Whether an orphan is among the objects that are there now.
///
/// # Errors
///
/// It must be kept, its marks have changed, or it is in use.
pub fn is_there(orphan: &Orphan, now: &[Object]) -> Result<bool, ProviderError> {
    let was = handle(orphan)?;
    let is_it = |object: &&Object| object.kind == orphan.kind && object.id == orphan.id;
    let Some(found) = now.iter().find(is_it) else { return Ok(false) };
    if found.claim.as_ref() != Some(&was.claim) {
        return Err(refused(orphan, "the marks by which it was recognized have changed"));
    }
    if let Some((_, why)) = found.users.iter().find(|(user, _)| !was.users.contains(*user)) {
        return Err(refused(orphan, why));
    }
    match found.users.values().next() {
        Some(why) => {
            let text = format!("{} {} cannot be deleted yet: {why}", orphan.kind, orphan.id);
            Err(ProviderError::retry(text, IN_USE))
        }
        None => Ok(true),
    }
}

/// The error for an orphan that is not deleted.
pub fn refused(orphan: &Orphan, why: impl Display) -> ProviderError {
    ProviderError::unknown(format!("{} {} is not deleted: {why}", orphan.kind, orphan.id))
}

/// A Service `namespace/name` that no longer exists.
///
/// # Errors
///
/// `key` is not a `namespace/name`.
pub fn former(key: &str, uid: &str) -> Result<Service, ProviderError> {
    let named = ServiceKey::parse(key).ok_or_else(|| ProviderError::bug(format!("{key:?} names no Service")))?;
    let mut service = Service::default();
    let metadata = &mut service.metadata;
    (metadata.namespace, metadata.name, metadata.uid) = (named.namespace, named.name, uid.into());
    Ok(service)
}

/// Deletes the objects of a Service that no longer exists, with those writes of the controllers that `counts` accepts,
/// if `is_there` finds the orphan among them.
///
/// # Errors
///
/// A read or a write failed, or the deletion was refused.
pub async fn delete<P: Explained>(
    balancers: &P,
    cluster: &str,
    service: &Service,
    is_there: impl FnOnce(&[Object]) -> Result<bool, ProviderError>,
    counts: impl Fn(&Planned<P::Write>) -> bool,
) -> Result<(), ProviderError> {
    let work = [ServiceWork::new(service, &[], ServiceAction::Delete)];
    let desired = current::wanted(balancers, cluster, &work)?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    if !is_there(&balancers.inventory(service, &desired, &observed))? {
        return Ok(());
    }
    write(balancers, &current::steps(balancers, &observed, &desired, counts)?.steps).await
}

/// Executes steps about one owner.
///
/// # Errors
///
/// A write failed; those that depend on it were not sent.
pub async fn write<C: BalancerCloud>(balancers: &C, steps: &[Planned<C::Write>]) -> Result<(), ProviderError> {
    let work = [ServiceWork::new(&Service::default(), &[], ServiceAction::Delete)];
    write_all(balancers, &work, steps).await
}
