//! Topology labels of Cinder volumes.
//!
//! Behavior of the in-tree provider that upstream removed (`legacy-cloud-providers` `openstack/openstack_volumes.go`,
//! `GetLabelsForVolume`), and the same for volumes that a user declares for the CSI driver.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_provider::well_known::{LABEL_REGION, LABEL_ZONE, VOLUME_PLACEHOLDER};
use ccm_provider::{ErrorClass, Finding, PersistentVolume, ProviderError, Severity, VolumeSource, Volumes};

use crate::client::Client;
use crate::client::storage::Volume;
use crate::node::labels;

#[cfg(test)]
mod tests;

/// The sources of Cinder volumes. Volumes that the CSI driver provisions are not included: they get their topology from
/// the driver.
pub const VOLUME_SOURCES: [VolumeSource; 2] =
    [VolumeSource::CINDER, VolumeSource::csi("cinder.csi.openstack.org", VolumeSource::CINDER.words)];

/// The hint if Cinder knows no such volume.
const NOT_HERE: &str = "not in the project and region that ccm works in";

type Labels = Result<Option<BTreeMap<String, String>>, ProviderError>;

/// The settings from the configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Settings {
    /// `[Global] region`
    pub(crate) region: String,
    /// `[BlockStorage] ignore-volume-az`: no labels at all.
    pub(crate) ignore_zones: bool,
}

/// [`Volumes`] on Cinder.
#[derive(Debug)]
pub(crate) struct CinderVolumes {
    settings: Settings,
    client: Client,
}

impl CinderVolumes {
    pub(crate) fn new(settings: Settings, client: Client) -> Self {
        Self { settings, client }
    }

    async fn of_one(&self, volume: &PersistentVolume) -> Labels {
        if self.settings.ignore_zones {
            return Ok(None);
        }
        let Some(id) = wanted(volume)? else { return Ok(None) };
        let found = self.client.volume(id).await?.ok_or_else(|| ProviderError::DiskNotFound.wrap(NOT_HERE))?;
        Ok(Some(labels(&found, &self.settings.region)))
    }
}

#[async_trait]
impl Volumes for CinderVolumes {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Labels> {
        futures::future::join_all(volumes.iter().map(|volume| self.of_one(volume))).await
    }

    fn sources(&self) -> &[VolumeSource] {
        &VOLUME_SOURCES
    }
}

/// The Cinder volume behind a PersistentVolume: none for other kinds, and for one that is still being provisioned.
fn wanted(volume: &PersistentVolume) -> Result<Option<&str>, ProviderError> {
    let Some(source) = VolumeSource::of(volume, &VOLUME_SOURCES) else { return Ok(None) };
    let is_safe = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    match source.id_of(volume) {
        None | Some("" | VOLUME_PLACEHOLDER) => Ok(None),
        Some(id) if id.bytes().all(is_safe) => Ok(Some(id)),
        Some(id) => Err(malformed(id, source)),
    }
}

fn malformed(id: &str, source: &VolumeSource) -> ProviderError {
    let key = format!("spec.{}.{}", source.field, source.id);
    let message = format!("{key} {id:?} names no Cinder volume; expected its ID");
    let finding = Finding {
        value: Some(id.to_owned()),
        ..Finding::new(Severity::Error, key, "names no Cinder volume; expected its ID")
    };
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

/// The labels for zone and region, if known.
fn labels(volume: &Volume, region: &str) -> BTreeMap<String, String> {
    let both = [(LABEL_ZONE, labels::sanitized(&volume.availability_zone)), (LABEL_REGION, region.to_owned())];
    both.into_iter().filter(|(_, value)| !value.is_empty()).map(|(key, value)| (key.to_owned(), value)).collect()
}
