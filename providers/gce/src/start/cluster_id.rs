//! The ID of the cluster, in its ConfigMap. It is part of the names of shared objects.
//!
//! Upstream: `gce_clusterid.go`. If two processes both create the ID, the API server keeps the first, and both use it.
//! Another ID gives the objects of all load balancers other names: one that is known stays until the ConfigMap shows
//! another, and is stored again if the ConfigMap is deleted.

use std::sync::Arc;
use std::time::Duration;

use ccm_kit::Cluster;
use ccm_provider::{ConfigMapData, ConfigMapSpec, ProviderError};
use parking_lot::Mutex;
use tokio::time::Instant;

/// The ConfigMap with the ID.
pub(crate) const UID: ConfigMapSpec =
    ConfigMapSpec { namespace: "kube-system", name: "ingress-uid", why: "ID of the cluster in the names of objects" };
const CLUSTER_KEY: &str = "uid";
const PROVIDER_KEY: &str = "provider-uid";
/// The ID may be changed; later changes of objects use the new one.
const KEPT: Duration = Duration::from_secs(60);

/// The ID of the cluster. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ClusterId {
    cluster: Cluster,
    known: Arc<Mutex<Option<(Instant, Ids)>>>,
}

/// Both IDs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ids {
    /// The ID in names: that of the provider, if any, else that of the cluster. May be empty in old clusters.
    pub(crate) id: String,
    /// The ID of the cluster alone.
    pub(crate) cluster: Option<String>,
}

impl Ids {
    fn read(data: &ConfigMapData) -> Option<Self> {
        let cluster = data.get(CLUSTER_KEY).cloned();
        let id = data.get(PROVIDER_KEY).cloned().or_else(|| cluster.clone())?;
        Some(Self { id, cluster })
    }

    /// 16 hexadecimal digits.
    fn new() -> Self {
        let id = format!("{:016x}", rand::random::<u64>());
        Self { cluster: Some(id.clone()), id }
    }

    fn data(&self) -> ConfigMapData {
        let cluster = self.cluster.iter().map(|id| (CLUSTER_KEY, id));
        cluster.chain([(PROVIDER_KEY, &self.id)]).map(|(key, id)| (key.to_owned(), id.clone())).collect()
    }
}

impl ClusterId {
    pub(crate) fn new(cluster: Cluster) -> Self {
        Self { cluster, known: Arc::default() }
    }

    /// The IDs, created if there are none. An error if the ConfigMap cannot be read or created, or has neither.
    pub(crate) async fn get(&self) -> Result<Ids, ProviderError> {
        let known = self.known.lock().clone();
        if let Some((_, ids)) = known.as_ref().filter(|(read, _)| read.elapsed() < KEPT) {
            return Ok(ids.clone());
        }
        let (began, known) = (Instant::now(), known.map(|(_, ids)| ids));
        let ids = match (self.stored(known.as_ref()).await, known) {
            (Err(error), Some(known)) => {
                tracing::warn!(%error, "the ID of the cluster stays as it was");
                known
            }
            (stored, _) => stored?,
        };
        *self.known.lock() = Some((began, ids.clone()));
        Ok(ids)
    }

    /// The IDs in the ConfigMap. Without one, the known ones are stored, or new ones.
    async fn stored(&self, known: Option<&Ids>) -> Result<Ids, ProviderError> {
        let unset = || ProviderError::bug("the ID of the cluster was asked for before the start");
        let maps = &self.cluster.context().ok_or_else(unset)?.config_maps;
        let data = match maps.get(&UID).await? {
            Some(data) => data,
            None => maps.create(&UID, known.cloned().unwrap_or_else(Ids::new).data()).await?,
        };
        Ids::read(&data).ok_or_else(|| {
            ProviderError::unknown(format!(
                "Could not retrieve cluster id: the ConfigMap {}/{} has neither {PROVIDER_KEY:?} nor {CLUSTER_KEY:?}; add one, or \
                 delete it where no load balancer exists",
                UID.namespace, UID.name
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use async_trait::async_trait;
    use ccm_provider::ConfigMaps;
    use ccm_provider_contract::TestCluster;

    use super::*;

    fn of(cluster: &Arc<TestCluster>) -> ClusterId {
        let handle = Cluster::default();
        handle.set(cluster.context("kubernetes"));
        ClusterId::new(handle)
    }

    fn data(pairs: &[(&str, &str)]) -> ConfigMapData {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[tokio::test]
    async fn p16_two_processes_use_the_id_that_was_stored() {
        let cluster = Arc::new(TestCluster::default());
        let (a, b) = (of(&cluster), of(&cluster));
        let (a, b) = tokio::join!(a.get(), b.get());
        let (a, b) = (a.unwrap(), b.unwrap());
        assert_eq!(a, b);
        assert!(a.id.len() == 16 && a.id.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()));
        assert_eq!(cluster.config_map(&UID), Some(data(&[("uid", &a.id), ("provider-uid", &a.id)])));
    }

    #[tokio::test]
    async fn the_id_of_the_provider_comes_first_and_may_be_empty() {
        for (pairs, expected) in [
            (&[("uid", "a"), ("provider-uid", "b")] as &[_], Some("b")),
            (&[("uid", "a")], Some("a")),
            (&[("uid", "")], Some("")),
            (&[("uid", "a"), ("provider-uid", "")], Some("")),
            (&[], None),
        ] {
            let cluster = Arc::new(TestCluster::default());
            cluster.set_config_map(&UID, data(pairs));
            let found = of(&cluster).get().await;
            assert_eq!(found.as_ref().ok().map(|ids| &*ids.id), expected, "{pairs:?}");
            if let Err(error) = found {
                assert!(error.to_string().starts_with("Could not retrieve cluster id"), "{error}");
            }
        }
    }

    /// A ConfigMap that the API server keeps to itself.
    #[derive(Debug)]
    struct Unreadable;

    #[async_trait]
    impl ConfigMaps for Unreadable {
        async fn get(&self, _: &ConfigMapSpec) -> Result<Option<ConfigMapData>, ProviderError> {
            Err(ProviderError::unknown("no"))
        }

        async fn create(&self, _: &ConfigMapSpec, _: ConfigMapData) -> Result<ConfigMapData, ProviderError> {
            Err(ProviderError::unknown("no"))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_that_is_gone_is_stored_again() {
        for pairs in [&[("uid", "a")] as &[_], &[("provider-uid", "b")], &[("uid", "a"), ("provider-uid", "b")]] {
            let cluster = Arc::new(TestCluster::default());
            cluster.set_config_map(&UID, data(pairs));
            let id = of(&cluster);
            let known = id.get().await.unwrap();
            cluster.remove_config_map(&UID);
            tokio::time::advance(KEPT).await;
            assert_eq!(id.get().await.unwrap(), known);
            // Another process reads the same.
            assert_eq!(of(&cluster).get().await.unwrap(), known);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_id_that_is_known_needs_neither_keys_nor_an_answer() {
        let cluster = Arc::new(TestCluster::default());
        cluster.set_config_map(&UID, data(&[("uid", "a")]));
        let mut id = of(&cluster);
        assert_eq!(id.get().await.unwrap().id, "a");
        cluster.set_config_map(&UID, data(&[]));
        tokio::time::advance(KEPT).await;
        assert_eq!(id.get().await.unwrap().id, "a");
        let mut context = cluster.context("kubernetes");
        context.config_maps = Arc::new(Unreadable);
        let handle = Cluster::default();
        handle.set(context);
        id.cluster = handle;
        tokio::time::advance(KEPT).await;
        assert_eq!(id.get().await.unwrap().id, "a");
        // Without a known one, the failure counts.
        id.known = Arc::default();
        assert_eq!(id.get().await.unwrap_err().to_string(), "no");
    }

    #[tokio::test(start_paused = true)]
    async fn a_new_id_is_used_after_a_while() {
        let cluster = Arc::new(TestCluster::default());
        cluster.set_config_map(&UID, data(&[("uid", "a")]));
        let id = of(&cluster);
        assert_eq!(id.get().await.unwrap().id, "a");
        cluster.set_config_map(&UID, data(&[("uid", "b")]));
        assert_eq!(id.get().await.unwrap().id, "a");
        tokio::time::advance(KEPT).await;
        assert_eq!(id.get().await.unwrap().id, "b");
    }
}
