//! The objects beside nodes and Services on which the load balancers of some providers depend: EndpointSlices and
//! Namespaces.
//!
//! They are watched with the permissions of the process, as by the Go programs, and only if the provider requests them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::node::Pairs;
use ccm_provider::{NodeName, ObjectChange, Related, Service, ServiceKey};
use ccm_runtime::store::{Cached, EndpointSlice, FieldFilter, Namespace, Reflector};
use ccm_runtime::{Client, Permission, Store};
use parking_lot::Mutex;

/// RBAC permission of [`Related::endpoint_slices`].
const ENDPOINT_SLICES: Permission = Permission::new(
    "discovery.k8s.io",
    "endpointslices",
    &["list", "watch"],
    "load balancers whose hosts are the nodes with endpoints",
);
/// RBAC permission of [`Related::namespaces`].
const NAMESPACES: Permission =
    Permission::new("", "namespaces", &["list", "watch"], "load balancers that are chosen by labels of a namespace");

/// The RBAC permissions that the process needs for these.
pub fn permissions(related: Related) -> Vec<Permission> {
    let asked = [(related.endpoint_slices, ENDPOINT_SLICES), (related.namespaces, NAMESPACES)];
    asked.into_iter().filter_map(|(is_asked, permission)| is_asked.then_some(permission)).collect()
}

/// The pause after a refusal.
const NO_RIGHT: Duration = Duration::from_secs(30);

/// The nodes with ready endpoints, by Service and slice.
type Ready = BTreeMap<ServiceKey, BTreeMap<String, Arc<EndpointSlice>>>;

/// The related objects of the cluster. Kinds that the provider does not request are `None`.
#[derive(Debug, Clone, Default)]
pub struct RelatedObjects {
    slices: Option<Arc<Store<EndpointSlice>>>,
    namespaces: Option<Arc<Store<Namespace>>>,
    ready: Arc<Mutex<Ready>>,
}

impl RelatedObjects {
    /// Empty stores: nothing is listed yet.
    pub(super) fn new(related: Related) -> Self {
        Self::of(
            related.endpoint_slices.then(|| Store::new(FieldFilter::default())),
            related.namespaces.then(|| Store::new(FieldFilter::default())),
        )
    }

    /// Objects in stores that others fill.
    pub fn of(slices: Option<Arc<Store<EndpointSlice>>>, namespaces: Option<Arc<Store<Namespace>>>) -> Self {
        let ready: Arc<Mutex<Ready>> = Arc::default();
        if let Some(slices) = &slices {
            let ready = ready.clone();
            slices.on_change(move |change| index(&ready, change));
        }
        Self { slices, namespaces, ready }
    }

    /// All of them, as currently listed by the API server.
    ///
    /// # Errors
    ///
    /// A message for users.
    pub async fn list(related: Related, client: &Client) -> Result<Self, String> {
        let objects = Self::new(related);
        let filled =
            futures::try_join!(fill(objects.slices.as_ref(), client), fill(objects.namespaces.as_ref(), client));
        filled.map(|_| objects)
    }

    /// The EndpointSlices, if the provider requests them.
    pub fn slices(&self) -> Option<&Arc<Store<EndpointSlice>>> {
        self.slices.as_ref()
    }

    /// The Namespaces, if the provider requests them.
    pub fn namespaces(&self) -> Option<&Arc<Store<Namespace>>> {
        self.namespaces.as_ref()
    }

    /// Keeps them current until the future is dropped.
    pub(super) async fn watch(&self, client: &Client, seed: u64) {
        futures::join!(watch(self.slices.clone(), client, seed), watch(self.namespaces.clone(), client, seed));
    }

    /// Waits until the EndpointSlices are listed.
    pub(super) async fn slices_synced(&self) {
        if let Some(slices) = &self.slices {
            slices.synced().await;
        }
    }

    /// Waits until the Namespaces are listed: they may concern every Service.
    pub(super) async fn namespaces_synced(&self) {
        if let Some(namespaces) = &self.namespaces {
            namespaces.synced().await;
        }
    }

    /// Calls `changed` for each Service whose endpoints changed.
    pub(super) fn on_endpoints(&self, changed: impl Fn(&ServiceKey) + Send + Sync + 'static) {
        let Some(slices) = &self.slices else { return };
        slices.on_change(move |change| match change {
            ObjectChange::Updated(old, new) if old.ready == new.ready && old.service == new.service => {}
            ObjectChange::Updated(old, new) => {
                changed(&new.service_key());
                if old.service != new.service {
                    changed(&old.service_key());
                }
            }
            ObjectChange::Added(one) | ObjectChange::Deleted(one) => changed(&one.service_key()),
        });
    }

    /// The nodes with a ready endpoint of a Service; `None` if EndpointSlices are not watched.
    pub(super) fn ready_nodes(&self, service: &ServiceKey) -> Option<BTreeSet<NodeName>> {
        self.slices.as_ref()?;
        let ready = self.ready.lock();
        Some(ready.get(service).into_iter().flat_map(BTreeMap::values).flat_map(|slice| slice.ready.clone()).collect())
    }

    /// The labels of the namespace of a Service.
    pub(super) fn labels_of(&self, service: &Service) -> Option<Pairs> {
        let namespace = self.namespaces.as_ref()?.get(&service.metadata.namespace)?;
        Some(namespace.labels.clone())
    }
}

/// Applies a change of a slice to the index.
fn index(ready: &Mutex<Ready>, change: ObjectChange<Arc<EndpointSlice>>) {
    let (old, new) = match change {
        ObjectChange::Added(new) => (None, Some(new)),
        ObjectChange::Updated(old, new) => (Some(old), Some(new)),
        ObjectChange::Deleted(old) => (Some(old), None),
    };
    let mut ready = ready.lock();
    if let Some(old) = old {
        let key = old.service_key();
        let is_last = ready.get_mut(&key).is_some_and(|slices| {
            slices.remove(&*old.name);
            slices.is_empty()
        });
        if is_last {
            ready.remove(&key);
        }
    }
    if let Some(new) = new {
        ready.entry(new.service_key()).or_default().insert(new.name.to_string(), new);
    }
}

async fn fill<T: Cached>(store: Option<&Arc<Store<T>>>, client: &Client) -> Result<(), String> {
    let Some(store) = store else { return Ok(()) };
    let filled = Reflector::new(store.clone(), client.clone(), 0).fill().await;
    filled.map_err(|error| format!("cannot list {}: {error}", T::NAME))
}

async fn watch<T: Cached>(store: Option<Arc<Store<T>>>, client: &Client, seed: u64) {
    if let Some(store) = store {
        let hint = "grant `list` and `watch` to the account of the process, see the README of the provider";
        Reflector::new(store, client.clone(), seed).optional(NO_RIGHT, hint).run().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(name: &str, service: &str, ready: &[&str], version: &str) -> EndpointSlice {
        EndpointSlice {
            name: name.into(),
            namespace: "shop".into(),
            service: service.into(),
            ready: ready.iter().map(|node| NodeName::from(*node)).collect(),
            resource_version: version.into(),
        }
    }

    fn key(name: &str) -> ServiceKey {
        ServiceKey { namespace: "shop".into(), name: name.into() }
    }

    #[test]
    fn the_nodes_of_all_slices_of_a_service_are_ready() {
        let store = Store::new(FieldFilter::default());
        store.apply(slice("web-1", "web", &["a"], "1"));
        let objects = RelatedObjects::of(Some(store.clone()), None);
        store.apply(slice("web-2", "web", &["a", "b"], "2"));
        store.apply(slice("api-1", "api", &["c"], "3"));
        let ready = |name: &str| -> Vec<String> {
            objects.ready_nodes(&key(name)).unwrap().iter().map(ToString::to_string).collect()
        };
        assert_eq!(
            (ready("web"), ready("api"), ready("none")),
            (vec!["a".into(), "b".into()], vec!["c".into()], vec![])
        );
        store.apply(slice("web-2", "web", &[], "4"));
        assert_eq!(ready("web"), ["a"]);
        // A slice that is moved to another Service.
        store.apply(slice("web-1", "api", &["a"], "5"));
        store.remove(&"shop/api-1".to_owned(), "6");
        assert_eq!((ready("web"), ready("api")), (vec![], vec!["a".to_owned()]));
    }

    #[test]
    fn only_a_change_of_the_ready_nodes_is_reported() {
        let store = Store::new(FieldFilter::default());
        let objects = RelatedObjects::of(Some(store.clone()), None);
        let reported = Arc::new(Mutex::new(Vec::new()));
        let sink = reported.clone();
        objects.on_endpoints(move |key| sink.lock().push(key.to_string()));
        store.apply(slice("web-1", "web", &["a"], "1"));
        store.apply(slice("web-1", "web", &["a"], "2"));
        store.apply(slice("web-1", "web", &["b"], "3"));
        store.remove(&"shop/web-1".to_owned(), "4");
        assert_eq!(*reported.lock(), ["shop/web"; 3]);
    }

    #[test]
    fn what_is_not_watched_restricts_nothing() {
        let objects = RelatedObjects::new(Related::default());
        assert_eq!(objects.ready_nodes(&key("web")), None);
        assert_eq!(objects.labels_of(&Service::default()), None);
    }
}
