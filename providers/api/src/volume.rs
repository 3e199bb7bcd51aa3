//! Topology labels of volumes (upstream: `PVLabeler`).

use std::collections::BTreeMap;

use async_trait::async_trait;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::ProviderError;
use crate::service::ObjectMeta;
use crate::well_known::{
    ANNOTATION_PROVISIONED_BY, LABEL_REGION, LABEL_REGION_BETA, LABEL_ZONE, LABEL_ZONE_BETA, VOLUME_PLACEHOLDER,
};

/// Labels of a volume, by key.
pub type VolumeLabels = BTreeMap<String, String>;

/// The topology of volumes.
///
/// Called by the controller that labels PersistentVolumes, for all pending ones at once, and by the webhook that
/// labels them at creation. Every replica serves the webhook: it may call before
/// [`crate::CloudProvider::initialize`], and without the lease. Both only read.
#[async_trait]
pub trait Volumes: Send + Sync {
    /// Labels for each volume, in order; `Ok(None)` for a volume that is not of this cloud or is still a placeholder
    /// ([`VOLUME_PLACEHOLDER`]). Usually [`LABEL_ZONE`], where several zones are joined with
    /// [`crate::well_known::ZONE_DELIMITER`], and [`LABEL_REGION`].
    ///
    /// After an error the webhook rejects the volume, and the controller retries, after
    /// [`ProviderError::DiskNotFound`] not before five minutes have passed.
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Result<Option<VolumeLabels>, ProviderError>>;

    /// Sources of the volumes of this cloud. Volumes with other sources are ignored, so an outage of this program
    /// cannot block them.
    ///
    /// The default is every source that a cloud may have; then only [`Volumes::labels`] decides which are foreign.
    /// Providers should return their own, for example `VolumeSource::csi("disk.example.com", "Example disk")`.
    fn sources(&self) -> &[VolumeSource] {
        &VolumeSource::ALL
    }
}

/// A way to declare a volume of a cloud in the `spec` of a PersistentVolume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct VolumeSource {
    /// The field of `spec`: `awsElasticBlockStore`, `csi`.
    pub field: &'static str,
    /// The field in it that names the volume: `volumeID`, `volumeHandle`.
    pub id: &'static str,
    /// For `csi`: the name of the driver. `None` means every driver.
    pub driver: Option<&'static str>,
    /// The name of such a volume in errors: `AWS EBS volume`.
    pub words: &'static str,
}

impl VolumeSource {
    /// `spec.awsElasticBlockStore`
    pub const AWS_EBS: Self = Self::in_tree("awsElasticBlockStore", "volumeID", "AWS EBS volume");
    /// `spec.gcePersistentDisk`
    pub const GCE_PD: Self = Self::in_tree("gcePersistentDisk", "pdName", "GCE PD volume");
    /// `spec.azureDisk`
    pub const AZURE_DISK: Self = Self::in_tree("azureDisk", "diskName", "AzureDisk volume");
    /// `spec.cinder`
    pub const CINDER: Self = Self::in_tree("cinder", "volumeID", "Cinder volume");
    /// `spec.vsphereVolume`
    pub const VSPHERE: Self = Self::in_tree("vsphereVolume", "volumePath", "vSphere Volume");
    /// `spec.csi` of every driver.
    pub const ANY_CSI: Self = Self { field: "csi", id: "volumeHandle", driver: None, words: "CSI volume" };
    /// All sources above.
    pub const ALL: [Self; 6] =
        [Self::AWS_EBS, Self::GCE_PD, Self::AZURE_DISK, Self::CINDER, Self::VSPHERE, Self::ANY_CSI];

    /// A source with its own field in `spec`.
    #[must_use]
    pub const fn in_tree(field: &'static str, id: &'static str, words: &'static str) -> Self {
        Self { field, id, driver: None, words }
    }

    /// Volumes of one CSI driver that a user declared: the driver sets the topology of those that it provisions.
    #[must_use]
    pub const fn csi(driver: &'static str, words: &'static str) -> Self {
        Self { driver: Some(driver), words, ..Self::ANY_CSI }
    }

    /// Whether this is `spec.csi`.
    #[must_use]
    pub fn is_csi(&self) -> bool {
        self.field == Self::ANY_CSI.field
    }

    /// Whether the volume is declared with this source. False for a provisioned CSI volume.
    #[must_use]
    pub fn declares(&self, volume: &PersistentVolume) -> bool {
        let Some(source) = volume.source(self.field) else { return false };
        let driver = || source.get("driver").and_then(Value::as_str);
        !self.is_csi() || (self.driver.is_none_or(|name| driver() == Some(name)) && !volume.is_provisioned())
    }

    /// The first of these sources with which the volume is declared; `None` for a foreign volume.
    #[must_use]
    pub fn of<'a>(volume: &PersistentVolume, sources: &'a [Self]) -> Option<&'a Self> {
        sources.iter().find(|source| source.declares(volume))
    }

    /// The ID of a volume that is declared with this source.
    #[must_use]
    pub fn id_of<'a>(&self, volume: &'a PersistentVolume) -> Option<&'a str> {
        volume.source(self.field)?.get(self.id)?.as_str()
    }

    /// The error text for users, as in upstream's admission plugin.
    #[must_use]
    pub fn failed(&self, volume: &PersistentVolume, error: &ProviderError) -> String {
        format!("error querying {} {}: {error}", self.words, self.id_of(volume).unwrap_or_default())
    }

    /// A CEL expression that is true for an `object` declared with one of these sources: the match condition of the
    /// webhook. It agrees with [`VolumeSource::of`]; an empty list matches nothing.
    #[must_use]
    pub fn match_condition(sources: &[Self]) -> String {
        let provisioned =
            format!("has(object.metadata.annotations) && '{ANNOTATION_PROVISIONED_BY}' in object.metadata.annotations");
        let one = |source: &Self| {
            let there = format!("has(object.spec.{})", source.field);
            match source.driver {
                _ if !source.is_csi() => there,
                None => format!("({there} && !({provisioned}))"),
                Some(driver) => format!("({there} && object.spec.csi.driver == '{driver}' && !({provisioned}))"),
            }
        };
        let all: Vec<String> = sources.iter().map(one).collect();
        if all.is_empty() { "false".to_owned() } else { all.join(" || ") }
    }
}

/// The parts of a PersistentVolume that this program reads.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct PersistentVolume {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// `spec`, as given. The controller passes only the volume source and `nodeAffinity`.
    pub spec: serde_json::Map<String, Value>,
}

impl PersistentVolume {
    /// The source in this field of `spec`, if the volume has it.
    fn source(&self, field: &str) -> Option<&serde_json::Map<String, Value>> {
        self.spec.get(field)?.as_object()
    }

    /// The ID of the volume in the cloud, from an in-tree source (`volumeID`, `pdName`, `diskName`, `volumePath`) or a
    /// CSI source (`volumeHandle`).
    pub fn volume_id(&self) -> Option<&str> {
        VolumeSource::ALL.iter().find_map(|source| source.id_of(self))
    }

    /// Whether the volume was created by a provisioner, not by a user.
    pub fn is_provisioned(&self) -> bool {
        self.metadata.annotations.contains_key(ANNOTATION_PROVISIONED_BY)
    }

    /// Whether the volume is still being provisioned, so that it does not exist in any cloud.
    pub fn is_placeholder(&self) -> bool {
        &*self.metadata.name == VOLUME_PLACEHOLDER || self.volume_id() == Some(VOLUME_PLACEHOLDER)
    }

    /// Zone and region from its labels: both with the stable keys, else both with the older ones.
    pub fn topology(&self) -> Option<VolumeLabels> {
        [(LABEL_ZONE, LABEL_REGION), (LABEL_ZONE_BETA, LABEL_REGION_BETA)].into_iter().find_map(|(zone, region)| {
            let pair = |key: &str| Some((key.to_owned(), self.metadata.labels.get(key)?.clone()));
            Some(BTreeMap::from([pair(zone)?, pair(region)?]))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn volume(spec: &Value) -> PersistentVolume {
        serde_json::from_value(json!({"metadata": {"name": "pv"}, "spec": spec})).unwrap()
    }

    fn provisioned(spec: &Value) -> PersistentVolume {
        let mut volume = volume(spec);
        volume.metadata.annotations.insert(ANNOTATION_PROVISIONED_BY.into(), "somebody".into());
        volume
    }

    #[test]
    fn a_volume_is_ours_by_its_source_and_a_provisioned_csi_volume_is_ignored() {
        const OURS: [VolumeSource; 2] = [VolumeSource::AWS_EBS, VolumeSource::csi("ebs.csi.aws.com", "AWS EBS volume")];
        let field = |volume: &PersistentVolume| VolumeSource::of(volume, &OURS).map(|source| source.field);
        let in_tree = json!({"awsElasticBlockStore": {"volumeID": "vol-1"}});
        let csi = json!({"csi": {"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"}});
        assert_eq!(field(&volume(&in_tree)), Some("awsElasticBlockStore"));
        assert_eq!(field(&provisioned(&in_tree)), Some("awsElasticBlockStore"));
        assert_eq!((field(&volume(&csi)), field(&provisioned(&csi))), (Some("csi"), None));
        for foreign in [
            json!({"csi": {"driver": "pd.csi.storage.gke.io", "volumeHandle": "vol-1"}}),
            json!({"gcePersistentDisk": {"pdName": "d"}}),
            json!({"hostPath": {"path": "/x"}}),
            json!({"awsElasticBlockStore": null}),
            json!({}),
        ] {
            assert_eq!(field(&volume(&foreign)), None, "{foreign}");
        }
        let any = |volume: &PersistentVolume| VolumeSource::of(volume, &VolumeSource::ALL).is_some();
        assert!(any(&volume(&csi)) && !any(&provisioned(&csi)) && !any(&volume(&json!({"nfs": {}}))));
    }

    #[test]
    fn errors_have_upstreams_words_and_the_id_as_declared() {
        let check = |spec: &Value, words: &str| {
            let volume = volume(spec);
            let source = VolumeSource::of(&volume, &VolumeSource::ALL).unwrap();
            assert_eq!(source.failed(&volume, &ProviderError::DiskNotFound), words);
        };
        for (spec, words) in [
            (
                json!({"awsElasticBlockStore": {"volumeID": "aws://a/vol-1"}}),
                "error querying AWS EBS volume aws://a/vol-1: disk is not found",
            ),
            (json!({"gcePersistentDisk": {"pdName": "d"}}), "error querying GCE PD volume d: disk is not found"),
            (json!({"azureDisk": {"diskName": "d"}}), "error querying AzureDisk volume d: disk is not found"),
            (json!({"cinder": {"volumeID": "d"}}), "error querying Cinder volume d: disk is not found"),
            (json!({"vsphereVolume": {"volumePath": "d"}}), "error querying vSphere Volume d: disk is not found"),
            (json!({"csi": {"driver": "x", "volumeHandle": "d"}}), "error querying CSI volume d: disk is not found"),
        ] {
            check(&spec, words);
        }
    }

    #[test]
    fn the_match_condition_lists_the_sources() {
        let provisioned =
            "has(object.metadata.annotations) && 'pv.kubernetes.io/provisioned-by' in object.metadata.annotations";
        let sources = [VolumeSource::AWS_EBS, VolumeSource::csi("x.example.com", "X")];
        assert_eq!(
            VolumeSource::match_condition(&sources),
            format!(
                "has(object.spec.awsElasticBlockStore) || (has(object.spec.csi) && object.spec.csi.driver == 'x.example.com' && !({provisioned}))"
            )
        );
        assert_eq!(
            VolumeSource::match_condition(&[VolumeSource::ANY_CSI]),
            format!("(has(object.spec.csi) && !({provisioned}))")
        );
        assert_eq!(VolumeSource::match_condition(&[]), "false");
    }

    #[test]
    fn topology_is_a_whole_pair_of_one_spelling() {
        let topology = |labels: Value| {
            let json = json!({"metadata": {"name": "pv", "labels": labels}});
            let volume: PersistentVolume = serde_json::from_value(json).unwrap();
            volume.topology().map(|pair| pair.into_values().collect::<Vec<_>>())
        };
        assert_eq!(topology(json!({LABEL_ZONE: "a", LABEL_REGION: "r"})), Some(vec!["r".into(), "a".into()]));
        assert_eq!(topology(json!({LABEL_ZONE_BETA: "a", LABEL_REGION_BETA: "r"})), Some(vec!["r".into(), "a".into()]));
        // With only the stable zone, the older pair is used.
        let mixed = json!({LABEL_ZONE: "x", LABEL_ZONE_BETA: "a", LABEL_REGION_BETA: "r"});
        assert_eq!(topology(mixed), Some(vec!["r".into(), "a".into()]));
        for half in [json!({}), json!({LABEL_ZONE: "a"}), json!({LABEL_REGION: "r", LABEL_ZONE_BETA: "a"}), Value::Null]
        {
            assert_eq!(topology(half.clone()), None, "{half}");
        }
    }

    #[test]
    fn a_volume_that_is_being_made_is_known_by_its_name_or_id() {
        let named = PersistentVolume {
            metadata: ObjectMeta { name: VOLUME_PLACEHOLDER.into(), ..ObjectMeta::default() },
            ..PersistentVolume::default()
        };
        assert!(named.is_placeholder());
        assert!(volume(&json!({"cinder": {"volumeID": VOLUME_PLACEHOLDER}})).is_placeholder());
        assert!(!volume(&json!({"cinder": {"volumeID": "d"}})).is_placeholder());
    }
}
