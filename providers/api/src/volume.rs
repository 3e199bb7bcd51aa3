//! Topology labels of volumes (upstream: `PVLabeler`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::Deserialize;

use crate::error::ProviderError;
use crate::service::ObjectMeta;

/// Knows where volumes are. The caller is persistent-volume labelling.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Labels for each volume, in order; `Ok(None)` for a volume that is not of this cloud or is still a placeholder
    /// ([`crate::well_known::VOLUME_PLACEHOLDER`]). An error blocks the webhook and is retried by the controller.
    async fn labels(
        &self,
        volumes: &[PersistentVolume],
    ) -> Vec<Result<Option<BTreeMap<String, String>>, ProviderError>>;
}

/// The parts of a PersistentVolume that are read.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as given: a volume has one source of many kinds.
    pub spec: serde_json::Map<String, serde_json::Value>,
}

impl PersistentVolume {
    /// The ID of the volume in the cloud, from an in-tree source (`volumeID`, `pdName`, `diskName`, `volumePath`) or a
    /// CSI source (`volumeHandle`).
    pub fn volume_id(&self) -> Option<&str> {
        const SOURCES: [(&str, &str); 6] = [
            ("awsElasticBlockStore", "volumeID"),
            ("gcePersistentDisk", "pdName"),
            ("azureDisk", "diskName"),
            ("cinder", "volumeID"),
            ("vsphereVolume", "volumePath"),
            ("csi", "volumeHandle"),
        ];
        SOURCES.iter().find_map(|(source, field)| self.spec.get(*source)?.get(*field)?.as_str())
    }
}
