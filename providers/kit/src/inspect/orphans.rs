//! Cloud objects that belong to the cluster but that nothing in it claims, and their deletion.

use std::collections::BTreeMap;
use std::fmt::Display;

use ccm_provider::{Claims, Orphan, ProviderError, Risk, Service, ServiceAction, ServiceKey, ServiceWork, Step, Verb};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::current;
use crate::balancer::{BalancerCloud, Step as Planned, write_all};

/// The Services of a cluster.
#[derive(Debug)]
pub struct Services<'a>(BTreeMap<String, &'a Service>);

impl<'a> Services<'a> {
    /// All Services of `claims`.
    pub fn new(claims: &'a Claims) -> Self {
        Self(claims.services.iter().map(|service| (service.key().to_string(), &**service)).collect())
    }

    /// The Services that have, or had, a load balancer. A Service with a class may have had one of this program: the
    /// finalizer is removed after its load balancer is deleted.
    pub fn claiming(&self) -> impl Iterator<Item = &'a Service> {
        self.0.values().copied().filter(|service| is_claiming(service))
    }

    /// Whether the Service `namespace/name` has, or had, a load balancer.
    pub fn claims(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|service| is_claiming(service))
    }

    /// The reason why nothing claims the objects that were created for the Service `namespace/name`.
    pub fn why(&self, key: &str) -> String {
        match self.0.get(key) {
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
pub struct Unclaimed<H> {
    /// The kind of the object: `LoadBalancer`.
    pub kind: &'static str,
    /// Its ID in the cloud.
    pub id: String,
    /// Its name, if different from the ID.
    pub name: String,
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
    /// Data to find it again; read by [`handle`].
    pub handle: H,
}

impl<H: Serialize> From<Unclaimed<H>> for Orphan {
    fn from(found: Unclaimed<H>) -> Self {
        let Unclaimed { kind, id, name, owner, why, marks, kept, risk, handle } = found;
        let reason = format!("{why}; recognized by {marks}");
        let shown = if name.is_empty() { &id } else { &name };
        let (verb, changes) = (Verb::Delete, Vec::new());
        Self {
            kind: kind.to_owned(),
            step: Step { verb, kind: kind.into(), id: shown.clone(), changes, reason: why, risk },
            id,
            name,
            owner,
            reason,
            created: None,
            cost: None,
            kept,
            // Infallible: texts and lists of texts.
            handle: serde_json::to_value(handle).unwrap_or_default(),
        }
    }
}

/// The data to find an orphan again.
///
/// # Errors
///
/// The orphan must be kept, or was not reported by this program.
pub fn handle<H: DeserializeOwned>(orphan: &Orphan) -> Result<H, ProviderError> {
    if let Some(kept) = &orphan.kept {
        return Err(refused(orphan, kept));
    }
    let bug =
        |error| ProviderError::bug(format!("{} {} was not reported by this program: {error}", orphan.kind, orphan.id));
    serde_json::from_value(orphan.handle.clone()).map_err(bug)
}

/// The error for an orphan that is not deleted.
pub fn refused(orphan: &Orphan, why: impl Display) -> ProviderError {
    ProviderError::unknown(format!("{} {} is not deleted: {why}", orphan.kind, orphan.id))
}

/// The error for an orphan whose `marks` have changed: `tags`.
pub fn changed(orphan: &Orphan, marks: &str) -> ProviderError {
    refused(orphan, format!("its {marks}, by which it was recognized, have changed"))
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

/// Deletes the objects of a Service that no longer exists, with those writes of the controllers that `counts` accepts.
/// `is_there` returns whether the orphan was observed, or an error if it is no longer recognized.
///
/// # Errors
///
/// A read or a write failed, or the deletion was refused.
pub async fn delete<C: BalancerCloud>(
    balancers: &C,
    cluster: &str,
    service: &Service,
    is_there: impl FnOnce(&C::Observed) -> Result<bool, ProviderError>,
    counts: impl Fn(&Planned<C::Write>) -> bool,
) -> Result<(), ProviderError> {
    let work = [ServiceWork::new(service, &[], ServiceAction::Delete)];
    let desired = current::wanted(balancers, cluster, &work)?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    if !is_there(&observed)? {
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
