//! Topology labels of EBS volumes.
//!
//! Behaviour of the in-tree provider that upstream removed (`legacy-cloud-providers` `aws/aws.go`, `GetLabelsForVolume`), and
//! the same for volumes that a user declares for the CSI driver. What is asked at the same time is one call.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::{Batcher, Blame, Bulk, Interrupted, Limits};
use ccm_provider::well_known::{ANNOTATION_PROVISIONED_BY, LABEL_REGION, LABEL_ZONE, VOLUME_PLACEHOLDER};
use ccm_provider::{ErrorClass, Finding, PersistentVolume, ProviderError, Severity, Volumes};

use crate::client::ec2::Volume;
use crate::client::error::ErrorKind;
use crate::client::operation::{Operation, Service};
use crate::client::{Answer, Api, ApiError, Query};
use crate::config::region_of_zone;
use crate::instances::describe::FILTER_VALUES;

#[cfg(test)]
mod tests;

const CSI_DRIVER: &str = "ebs.csi.aws.com";

type Labels = Result<Option<BTreeMap<String, String>>, ProviderError>;

/// EBS behind [`Volumes`].
#[derive(Debug)]
pub(crate) struct EbsVolumes(Batcher<Describe>);

impl EbsVolumes {
    pub(crate) fn new(api: Arc<dyn Api>) -> Self {
        Self(Batcher::new(Describe(api), Limits::of(FILTER_VALUES)))
    }
}

#[async_trait]
impl Volumes for EbsVolumes {
    async fn labels(&self, volumes: &[PersistentVolume]) -> Vec<Labels> {
        let wanted: Vec<Result<Option<VolumeId>, ProviderError>> = volumes.iter().map(wanted).collect();
        let ids: Vec<VolumeId> = wanted.iter().filter_map(|wanted| wanted.as_ref().ok()?.clone()).collect();
        let found = if ids.is_empty() { BTreeMap::new() } else { self.0.ask(&(), ids).await };
        let labels = wanted.into_iter().map(|wanted| match wanted? {
            None => Ok(None),
            Some(id) => match found.get(&id) {
                Some(Ok(Some(volume))) => labels(volume).map(Some),
                Some(Ok(None)) => Err(ProviderError::DiskNotFound.wrap(format!("EBS volume {}", id.0))),
                Some(Err(error)) => Err(error.clone().into()),
                None => Err(ProviderError::bug(format!("{} was not asked for", id.0))),
            },
        });
        labels.collect()
    }
}

/// `vol-…`, not empty behind the hyphen.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct VolumeId(String);

impl VolumeId {
    /// Reads `vol-…`, `aws://<zone>/vol-…` and `aws:///vol-…`.
    fn parse(text: &str) -> Option<Self> {
        let path = match text.split_once("://") {
            Some(("aws", rest)) => rest.split_once('/')?.1,
            Some(_) => return None,
            None => text,
        };
        let last = path.trim_matches('/').rsplit('/').next()?;
        let digits = last.strip_prefix("vol-")?;
        let readable = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_alphanumeric());
        readable.then(|| Self(last.to_owned()))
    }
}

/// The EBS volume behind a PersistentVolume: none for other kinds, for one that is still being provisioned, and for one that
/// the CSI driver provisions, because that gives it its own topology.
fn wanted(volume: &PersistentVolume) -> Result<Option<VolumeId>, ProviderError> {
    let in_tree = volume.spec.contains_key("awsElasticBlockStore");
    let driver = volume.spec.get("csi").and_then(|csi| csi.get("driver")?.as_str());
    let by_hand = !volume.metadata.annotations.contains_key(ANNOTATION_PROVISIONED_BY);
    let declared = driver == Some(CSI_DRIVER) && by_hand;
    if !in_tree && !declared {
        return Ok(None);
    }
    match volume.volume_id() {
        None | Some("" | VOLUME_PLACEHOLDER) => Ok(None),
        Some(text) => VolumeId::parse(text).map(Some).ok_or_else(|| malformed(text, in_tree)),
    }
}

fn malformed(text: &str, in_tree: bool) -> ProviderError {
    let key = if in_tree { "spec.awsElasticBlockStore.volumeID" } else { "spec.csi.volumeHandle" };
    let way_out = "expected vol-… or aws://<zone>/vol-…";
    let finding = Finding {
        severity: Severity::Error,
        key: key.to_owned(),
        value: Some(text.to_owned()),
        message: format!("names no EBS volume; {way_out}"),
    };
    let message = format!("{key} {text:?} names no EBS volume; {way_out}");
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

fn labels(volume: &Volume) -> Result<BTreeMap<String, String>, ProviderError> {
    let region = region_of_zone(&volume.zone).ok_or_else(|| {
        ProviderError::unknown(format!("EC2 gives {:?} as the zone of EBS volume {}", volume.zone, volume.id))
    })?;
    Ok(BTreeMap::from([(LABEL_ZONE.to_owned(), volume.zone.clone()), (LABEL_REGION.to_owned(), region.to_owned())]))
}

/// Asked by filter, where an unknown volume is just absent.
#[derive(Debug)]
struct Describe(Arc<dyn Api>);

#[async_trait]
impl Bulk for Describe {
    type Group = ();
    type Item = VolumeId;
    type Answer = Volume;
    type Error = ApiError;

    async fn call(&self, (): &(), ids: &[VolumeId]) -> Answer<BTreeMap<VolumeId, Volume>> {
        let found = self.0.volumes(&Query::by("volume-id", ids.iter().map(|id| &id.0))).await?;
        Ok(found.into_iter().map(|volume| (VolumeId(volume.id.clone()), volume)).collect())
    }

    fn blame(&self, _: &ApiError, _: &[VolumeId]) -> Blame<VolumeId> {
        Blame::Nobody
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        let operation = Operation::new(Service::Ec2, "DescribeVolumes");
        ApiError::of_kind(operation, ErrorKind::NoAnswer, how.to_string())
    }
}
