//! Labels of volumes, and clusters.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_provider::{Clusters, PersistentVolume, ProviderError, Volumes};
use futures::future::join_all;
use serde_json::json;

use crate::cloud::Cloud;
use crate::config::Config;
use crate::faults::Subject;
use crate::method::Method;

#[cfg(test)]
mod tests;

/// [`Volumes`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeVolumes(pub(crate) Arc<Cloud>);

impl FakeVolumes {
    async fn labels_of(&self, volume: &PersistentVolume) -> Result<Option<BTreeMap<String, String>>, ProviderError> {
        let name = &*volume.metadata.name;
        let id = volume.volume_id();
        // The handle of a CSI volume finds labels, but the subject of the call is the name: upstream only has in-tree
        // IDs as subject.
        let in_tree = id.filter(|_| !volume.spec.contains_key("csi"));
        let about = in_tree.unwrap_or(name);
        let subject = Subject { volume: Some(about), ..Subject::default() };
        let act = |config: &Config, _: &mut _| {
            let found = config.volumes.iter().find(|entry| Some(entry.id.as_str()) == id || entry.id == name);
            Ok(found.map(|entry| entry.labels.clone()))
        };
        self.0.call(Method::GetLabelsForVolume, subject, json!({"volume": about}), act).await
    }
}

#[async_trait]
impl Volumes for FakeVolumes {
    async fn labels(
        &self,
        volumes: &[PersistentVolume],
    ) -> Vec<Result<Option<BTreeMap<String, String>>, ProviderError>> {
        join_all(volumes.iter().map(|volume| self.labels_of(volume))).await
    }
}

/// [`Clusters`] of the fake cloud.
#[derive(Debug)]
pub(crate) struct FakeClusters(pub(crate) Arc<Cloud>);

#[async_trait]
impl Clusters for FakeClusters {
    async fn list_clusters(&self) -> Result<Vec<String>, ProviderError> {
        let act = |config: &Config, _: &mut _| Ok(config.clusters.iter().map(|cluster| cluster.name.clone()).collect());
        self.0.call(Method::ListClusters, Subject::default(), json!({}), act).await
    }

    async fn master(&self, cluster_name: &str) -> Result<String, ProviderError> {
        let act = |config: &Config, _: &mut _| {
            let found = config.clusters.iter().find(|cluster| cluster.name == cluster_name);
            found
                .map(|cluster| cluster.master.clone())
                .ok_or_else(|| ProviderError::unknown(format!("cluster {cluster_name:?} not found")))
        };
        self.0.call(Method::Master, Subject::default(), json!({"cluster": cluster_name}), act).await
    }
}
