//! Topology labels of persistent disks.
//!
//! Upstream: `GetLabelsForVolume` in `gce_disks.go`, and the same for volumes that a user declares for the CSI driver.

use std::collections::{BTreeMap, BTreeSet};

use async_trait::async_trait;
use ccm_provider::well_known::{LABEL_REGION, LABEL_ZONE, LABEL_ZONE_BETA, VOLUME_PLACEHOLDER, ZONE_DELIMITER};
use ccm_provider::{
    ErrorClass, Finding, PersistentVolume, ProviderError, Severity, VolumeLabels, VolumeSource, Volumes,
};

use crate::client::Client;
use crate::client::resource::{ResourceId, Scope, last_part, region_of};
use crate::client::storage::Disk;
use crate::node::zones::Zones;

#[cfg(test)]
mod tests;

/// The sources of declared persistent disks. Volumes that the CSI driver provisions are not included: they get their
/// topology from the driver.
pub const VOLUME_SOURCES: [VolumeSource; 2] =
    [VolumeSource::GCE_PD, VolumeSource::csi("pd.csi.storage.gke.io", VolumeSource::GCE_PD.words)];

/// The CSI driver's value for an unknown project or zone.
const UNSPECIFIED: &str = "UNSPECIFIED";

type Labels = Result<Option<VolumeLabels>, ProviderError>;

/// Persistent disks behind [`Volumes`].
#[derive(Debug)]
pub(crate) struct PersistentDisks {
    client: Client,
    zones: Zones,
}

/// A disk to look up, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Wanted {
    /// `None`: that of the cluster.
    project: Option<String>,
    name: String,
    place: Place,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Place {
    Zone(String),
    /// `None`: that of the cluster.
    Region(Option<String>),
    /// In the region, then in each managed zone.
    Anywhere,
}

impl PersistentDisks {
    pub(crate) fn new(client: Client, zones: Zones) -> Self {
        Self { client, zones }
    }

    async fn of_one(&self, volume: &PersistentVolume) -> Labels {
        let Some(wanted) = wanted(volume)? else { return Ok(None) };
        let client = match &wanted.project {
            Some(project) => self.client.of_project(project),
            None => self.client.clone(),
        };
        let name = &*wanted.name;
        let missing = |text: String| ProviderError::DiskNotFound.wrap(text);
        let disk = match &wanted.place {
            Place::Zone(zone) => client
                .disk(&Scope::zone(zone), name)
                .await?
                .ok_or_else(|| missing(format!("GCE persistent disk not found: diskName={name:?} zone={zone:?}")))?,
            Place::Region(region) => {
                let region = region.as_deref().unwrap_or(&self.zones.region);
                let found = client.disk(&Scope::region(region), name).await?;
                found.ok_or_else(|| missing(format!("GCE regional persistent disk not found: diskName={name:?}")))?
            }
            Place::Anywhere => self.search(&client, name).await?,
        };
        labels(&disk, name).map(Some)
    }

    /// Searches for a disk whose zone is unknown. A failed read of one place says nothing about the disk.
    async fn search(&self, client: &Client, name: &str) -> Result<Disk, ProviderError> {
        let zones: BTreeSet<String> = self.zones.managed().await?;
        if let Some(disk) = client.disk(&Scope::region(&self.zones.region), name).await? {
            return Ok(disk);
        }
        let scopes: Vec<Scope> = zones.iter().map(|zone| Scope::zone(zone)).collect();
        let found = futures::future::try_join_all(scopes.iter().map(|scope| client.disk(scope, name))).await?;
        let mut found: Vec<Disk> = found.into_iter().flatten().collect();
        match (found.pop(), found.is_empty()) {
            (Some(disk), true) => Ok(disk),
            (Some(_), false) => Err(ProviderError::unknown(format!(
                "GCE PD name was found in multiple zones: {name:?}; label the volume with its {LABEL_ZONE}"
            ))),
            (None, _) => {
                let zones: Vec<String> = zones.into_iter().collect();
                let text = format!("GCE persistent disk not found: diskName={name:?} zones={zones:?}");
                Err(ProviderError::DiskNotFound.wrap(text))
            }
        }
    }
}

#[async_trait]
impl Volumes for PersistentDisks {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Labels> {
        futures::future::join_all(volumes.iter().map(|volume| self.of_one(volume))).await
    }

    fn sources(&self) -> &[VolumeSource] {
        &VOLUME_SOURCES
    }
}

/// The disk behind a volume; none for other kinds, and while the volume is being provisioned.
fn wanted(volume: &PersistentVolume) -> Result<Option<Wanted>, ProviderError> {
    let Some(source) = VolumeSource::of(volume, &VOLUME_SOURCES) else { return Ok(None) };
    let Some(id) = source.id_of(volume).filter(|id| !id.is_empty() && *id != VOLUME_PLACEHOLDER) else {
        return Ok(None);
    };
    let key = format!("spec.{}.{}", source.field, source.id);
    if source.is_csi() {
        return handle(id).map(Some).ok_or_else(|| {
            let expected = "expected projects/<project>/zones/<zone>/disks/<disk>, or the same with regions/<region>";
            malformed(key, id, expected)
        });
    }
    if !is_name(id) {
        return Err(malformed(key, id, "expected the name of a persistent disk"));
    }
    let labels = &volume.metadata.labels;
    let mut hints = [LABEL_ZONE, LABEL_ZONE_BETA].iter().filter_map(|label| labels.get(*label));
    let hint = hints.find(|zones| !zones.is_empty());
    let place = match hint.map(|hint| hint.split(ZONE_DELIMITER).collect::<Vec<_>>()) {
        None => Place::Anywhere,
        Some(zones) if zones.iter().any(|zone| zone.is_empty()) => {
            let value = hint.map(String::as_str).unwrap_or_default();
            return Err(malformed(format!("label {LABEL_ZONE}"), value, "a zone in it is empty"));
        }
        Some(zones) => match &*zones {
            [zone] => Place::Zone((*zone).to_owned()),
            _ => Place::Region(None),
        },
    };
    Ok(Some(Wanted { project: None, name: id.to_owned(), place }))
}

/// Parses the volume handle of the CSI driver.
fn handle(text: &str) -> Option<Wanted> {
    let id = ResourceId::parse(text).filter(|id| id.collection == "disks" && is_name(&id.name))?;
    let known = |text: &str| (text != UNSPECIFIED).then(|| text.to_owned());
    let place = match &id.scope {
        Scope::Zone(zone) => known(zone).map_or(Place::Anywhere, Place::Zone),
        Scope::Region(region) => Place::Region(known(region)),
        _ => return None,
    };
    Some(Wanted { project: known(id.project.as_deref()?), name: id.name, place })
}

fn is_name(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
}

fn malformed(key: String, value: &str, problem: &str) -> ProviderError {
    let message = format!("{key} {value:?}: {problem}");
    let finding = Finding { value: Some(value.to_owned()), ..Finding::new(Severity::Error, key, problem) };
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

/// The zone and region of a disk; the zones of a regional disk are sorted.
fn labels(disk: &Disk, name: &str) -> Result<VolumeLabels, ProviderError> {
    let mut zones: Vec<&str> = disk.replica_zones.iter().map(|zone| last_part(zone)).collect();
    zones.sort_unstable();
    let (zone, region) = match zones.is_empty() {
        true => (last_part(&disk.zone).to_owned(), region_of(last_part(&disk.zone)).unwrap_or_default()),
        false => (zones.join(ZONE_DELIMITER), last_part(&disk.region)),
    };
    if zone.is_empty() || region.is_empty() {
        return Err(ProviderError::unknown(format!("GCE does not say in which zone and region disk {name:?} is")));
    }
    Ok(BTreeMap::from([(LABEL_ZONE.to_owned(), zone), (LABEL_REGION.to_owned(), region.to_owned())]))
}
