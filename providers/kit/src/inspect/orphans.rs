//! Objects with the marks of the cluster that nothing in it claims, and their deletion.

use std::collections::BTreeMap;
use std::fmt::Display;

use ccm_provider::{
    Claims, Orphan, Planned, ProviderError, Risk, Service, ServiceAction, ServiceKey, ServiceWork, Step, Verb,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::current;

/// The Services of a cluster.
#[derive(Debug)]
pub struct Services<'a>(BTreeMap<String, &'a Service>);

impl<'a> Services<'a> {
    /// All of them.
    pub fn new(claims: &'a Claims) -> Self {
        Self(claims.services.iter().map(|service| (service.key().to_string(), &**service)).collect())
    }

    /// Those that have, or had, a load balancer. One with a class may have had one of this program: its finalizer is removed
    /// after that is deleted.
    pub fn claiming(&self) -> impl Iterator<Item = &'a Service> {
        self.0.values().copied().filter(|service| is_claiming(service))
    }

    /// Whether the Service `namespace/name` is one of them.
    pub fn claims(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|service| is_claiming(service))
    }

    /// Why nothing claims the objects that were made for the Service `namespace/name`.
    pub fn why(&self, key: &str) -> String {
        match self.0.get(key) {
            None => format!("there is no Service {key}"),
            Some(found) if found.is_load_balancer() => format!("Service {key} has another UID"),
            Some(found) => format!("Service {key} is of type {}, and no longer has a load balancer", found.spec.kind),
        }
    }

    /// Why an object of an earlier Service with the same name is kept.
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
    /// What it is: `LoadBalancer`.
    pub kind: &'static str,
    /// Its identity in the cloud.
    pub id: String,
    /// Its name, where that differs from the identity.
    pub name: String,
    /// What it was made for.
    pub owner: String,
    /// Why nothing claims it.
    pub why: String,
    /// What it was recognized by: `its name and description`.
    pub marks: String,
    /// Why it is kept all the same.
    pub kept: Option<String>,
    /// What users may notice of its deletion.
    pub risk: Risk,
    /// What finds it again: read by [`handle`].
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

/// What was kept of an orphan to find it again.
///
/// # Errors
///
/// It must be kept, or this program did not report it.
pub fn handle<H: DeserializeOwned>(orphan: &Orphan) -> Result<H, ProviderError> {
    if let Some(kept) = &orphan.kept {
        return Err(refused(orphan, kept));
    }
    let bug =
        |error| ProviderError::bug(format!("{} {} was not reported by this program: {error}", orphan.kind, orphan.id));
    serde_json::from_value(orphan.handle.clone()).map_err(bug)
}

/// The refusal to delete an orphan.
pub fn refused(orphan: &Orphan, why: impl Display) -> ProviderError {
    ProviderError::unknown(format!("{} {} is not deleted: {why}", orphan.kind, orphan.id))
}

/// The same for one that has lost its marks: `tags`.
pub fn changed(orphan: &Orphan, marks: &str) -> ProviderError {
    refused(orphan, format!("its {marks}, by which it was recognized, have changed"))
}

/// A Service `namespace/name` that is no longer there.
///
/// # Errors
///
/// The text names none.
pub fn former(key: &str, uid: &str) -> Result<Service, ProviderError> {
    let named = ServiceKey::parse(key).ok_or_else(|| ProviderError::bug(format!("{key:?} names no Service")))?;
    let mut service = Service::default();
    let metadata = &mut service.metadata;
    (metadata.namespace, metadata.name, metadata.uid) = (named.namespace, named.name, uid.into());
    Ok(service)
}

/// Deletes what a Service left that is no longer there, with the writes of the controllers, as far as they count. `is_there`:
/// whether the orphan is among what was observed; an error if it has lost its marks.
///
/// # Errors
///
/// A read or a write failed, or the deletion is refused.
pub async fn delete<P: Planned>(
    balancers: &P,
    cluster: &str,
    service: &Service,
    is_there: impl FnOnce(&P::Observed) -> Result<bool, ProviderError>,
    counts: impl Fn(&P::Step) -> bool,
) -> Result<(), ProviderError> {
    let work = [ServiceWork::new(service, &[], ServiceAction::Delete)];
    let desired = current::desired(balancers, cluster, &work)?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    if !is_there(&observed)? {
        return Ok(());
    }
    write(balancers, &current::steps(balancers, &observed, &desired, counts)?.steps).await
}

/// Does these writes, one after the other.
///
/// # Errors
///
/// One of them failed; those after it are not done.
pub async fn write<P: Planned>(balancers: &P, steps: &[P::Step]) -> Result<(), ProviderError> {
    let outputs = P::Outputs::default();
    for step in steps {
        balancers.apply(step, &outputs).await?;
    }
    balancers.finish(&outputs)
}
