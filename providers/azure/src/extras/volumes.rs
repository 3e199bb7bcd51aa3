//! Topology labels of managed disks.
//!
//! Behavior of the in-tree provider that upstream removed (`legacy-cloud-providers`
//! `azure/azure_managedDiskController.go`), and the same for volumes that a user declares for the CSI driver.

use std::collections::BTreeMap;

use async_trait::async_trait;
use ccm_provider::well_known::{LABEL_REGION, LABEL_ZONE, VOLUME_PLACEHOLDER};
use ccm_provider::{ErrorClass, Finding, PersistentVolume, ProviderError, Severity, VolumeSource, Volumes};
use serde_json::Value;

use crate::client::Client;
use crate::client::id::{ArmId, same};
use crate::client::operation::{DISK, DISK_GET};
use crate::client::view::{list, text};
use crate::node::zones::folded;

const WORDS: &str = VolumeSource::AZURE_DISK.words;

/// The sources of managed disks. Volumes that the CSI driver provisions get their topology from the driver.
pub const VOLUME_SOURCES: [VolumeSource; 2] =
    [VolumeSource::AZURE_DISK, VolumeSource::csi("disk.csi.azure.com", WORDS)];

type Labels = Result<Option<BTreeMap<String, String>>, ProviderError>;

/// [`Volumes`] of managed disks.
#[derive(Debug)]
pub(crate) struct ManagedDisks {
    client: Client,
    /// That of disks without one.
    location: String,
}

impl ManagedDisks {
    pub(crate) fn new(client: Client, location: String) -> Self {
        Self { client, location }
    }

    async fn of_one(&self, volume: &PersistentVolume) -> Labels {
        let Some(id) = wanted(volume)? else { return Ok(None) };
        let disk = self.client.get(DISK_GET, &id).await?;
        let disk = disk.ok_or_else(|| ProviderError::DiskNotFound.wrap(format!("there is no disk {id}")))?;
        labels(&disk, &id, &self.location).map(Some)
    }
}

#[async_trait]
impl Volumes for ManagedDisks {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Labels> {
        futures::future::join_all(volumes.iter().map(|volume| self.of_one(volume))).await
    }

    fn sources(&self) -> &[VolumeSource] {
        &VOLUME_SOURCES
    }
}

/// The disk behind a PersistentVolume: none for other kinds, for blob disks, and for one that is being provisioned.
fn wanted(volume: &PersistentVolume) -> Result<Option<ArmId>, ProviderError> {
    let Some(source) = VolumeSource::of(volume, &VOLUME_SOURCES) else { return Ok(None) };
    if matches!(source.id_of(volume), None | Some("" | VOLUME_PLACEHOLDER)) {
        return Ok(None);
    }
    let field = |name: &str| volume.spec.get(source.field).and_then(|field| field.get(name)).and_then(Value::as_str);
    let is_blob = field("kind").is_some_and(|kind| !same(kind, "Managed"));
    let key = if source.is_csi() { "volumeHandle" } else { "diskURI" };
    let uri = field(key).unwrap_or_default();
    match ArmId::parse(uri).ok().filter(|id| id.is(DISK.kind)) {
        Some(id) => Ok(Some(id)),
        // Neither labels nor an error: there is nothing to read.
        None if is_blob => Ok(None),
        None => Err(malformed(&format!("spec.{}.{key}", source.field), uri)),
    }
}

fn malformed(key: &str, uri: &str) -> ProviderError {
    let want = "names no managed disk; expected /subscriptions/<id>/resourceGroups/<group>/providers/Microsoft.Compute/disks/<name>";
    let finding = Finding { value: Some(uri.to_owned()), ..Finding::new(Severity::Error, key, want) };
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, format!("{key} {uri:?} {want}"))
}

/// The region and the zone as in the labels of nodes. `location`: that of a disk without one.
fn labels(disk: &Value, id: &ArmId, location: &str) -> Result<BTreeMap<String, String>, ProviderError> {
    let own = text(disk, "/location");
    let region = folded(if own.is_empty() { location } else { own });
    let mut labels = BTreeMap::new();
    if let Some(zone) = list(disk, "/zones").first().and_then(Value::as_str) {
        if zone.parse::<u32>().is_err() {
            return Err(ProviderError::unknown(format!("failed to parse zone {zone:?} of disk {id}")));
        }
        labels.insert(LABEL_ZONE.to_owned(), format!("{region}-{zone}"));
    }
    labels.insert(LABEL_REGION.to_owned(), region);
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const URI: &str = "/subscriptions/s/resourceGroups/G/providers/Microsoft.Compute/disks/d";

    fn of(spec: &Value) -> Result<Option<ArmId>, ProviderError> {
        wanted(&serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap())
    }

    fn in_tree(name: &str, uri: &str, kind: &str) -> Value {
        json!({"azureDisk": {"diskName": name, "diskURI": uri, "kind": kind}})
    }

    #[test]
    fn a_managed_disk_is_named_by_its_uri() {
        let id = ArmId::parse(URI).unwrap();
        assert_eq!(of(&in_tree("d", URI, "Managed")).unwrap(), Some(id.clone()));
        let csi = json!({"csi": {"driver": "disk.csi.azure.com", "volumeHandle": URI}});
        assert_eq!(of(&csi).unwrap(), Some(id));
        for spec in [
            in_tree("placeholder-for-provisioning", URI, "Managed"),
            in_tree("d", "https://a.blob.core.windows.net/vhds/d.vhd", "Dedicated"),
            json!({"csi": {"driver": "file.csi.azure.com", "volumeHandle": "x"}}),
        ] {
            assert_eq!(of(&spec).unwrap(), None, "{spec}");
        }
        let error = of(&in_tree("d", "https://a.blob.core.windows.net/vhds/d.vhd", "Managed")).unwrap_err().to_string();
        assert!(error.starts_with("spec.azureDisk.diskURI \"https://a.blob"), "{error}");
    }

    #[test]
    fn a_disk_has_the_labels_of_the_nodes_of_its_zone_and_region_however_these_are_written() {
        let id = ArmId::parse(URI).unwrap();
        let of = |disk: &Value| labels(disk, &id, "East US").map(|labels| labels.into_values().collect::<Vec<_>>());
        assert_eq!(of(&json!({"zones": ["2"]})).unwrap(), ["eastus", "eastus-2"]);
        assert_eq!(of(&json!({"zones": []})).unwrap(), ["eastus"]);
        assert_eq!(of(&json!({"location": "West US", "zones": ["2"]})).unwrap(), ["westus", "westus-2"]);
        assert!(of(&json!({"zones": ["a"]})).unwrap_err().to_string().contains("failed to parse zone"));
    }
}
