//! Topology labels of EBS volumes.
//!
//! Behavior of the in-tree provider that upstream removed (`legacy-cloud-providers` `aws/aws.go`,
//! `GetLabelsForVolume`), and the same for volumes declared for the CSI driver. Concurrent reads share a call.

use std::collections::BTreeMap;
use std::sync::Arc;

use async_trait::async_trait;
use ccm_kit::{Batcher, Bulk, Interrupted, Limits};
use ccm_provider::well_known::{LABEL_REGION, LABEL_ZONE, VOLUME_PLACEHOLDER};
use ccm_provider::{ErrorClass, Finding, PersistentVolume, ProviderError, Severity, VolumeSource, Volumes};

use crate::client::ec2::Volume;
use crate::client::operation::{Operation, Service};
use crate::client::{Answer, Api, ApiError, FILTER_VALUES, Query};
use crate::start::config::region_of_zone;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

/// The volume sources of EBS. Volumes that the CSI driver provisions are excluded: the driver sets their
/// topology.
pub const VOLUME_SOURCES: [VolumeSource; 2] =
    [VolumeSource::AWS_EBS, VolumeSource::csi("ebs.csi.aws.com", VolumeSource::AWS_EBS.words)];

/// A remediation if EC2 does not know the volume.
const NOT_HERE: &str = "not in the account and region that ccm works in";

type Labels = Result<Option<BTreeMap<String, String>>, ProviderError>;

/// Implements [`Volumes`] for EBS.
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
        let found = if ids.is_empty() { BTreeMap::new() } else { self.0.ask(ids).await };
        let labels = wanted.into_iter().map(|wanted| match wanted? {
            None => Ok(None),
            Some(id) => match found.get(&id) {
                Some(Ok(Some(volume))) => labels(volume).map(Some),
                Some(Ok(None)) => Err(ProviderError::DiskNotFound.wrap(NOT_HERE)),
                Some(Err(error)) => Err(error.clone().into()),
                None => Err(ProviderError::bug(format!("{} was not asked for", id.0))),
            },
        });
        labels.collect()
    }

    fn sources(&self) -> &[VolumeSource] {
        &VOLUME_SOURCES
    }
}

/// `vol-…`, with at least one character after the hyphen.
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

/// The EBS volume of a PersistentVolume: none for other kinds, or while it is still being provisioned.
fn wanted(volume: &PersistentVolume) -> Result<Option<VolumeId>, ProviderError> {
    let Some(source) = VolumeSource::of(volume, &VOLUME_SOURCES) else { return Ok(None) };
    match source.id_of(volume) {
        None | Some("" | VOLUME_PLACEHOLDER) => Ok(None),
        Some(text) => VolumeId::parse(text).map(Some).ok_or_else(|| malformed(text, source)),
    }
}

fn malformed(text: &str, source: &VolumeSource) -> ProviderError {
    let key = format!("spec.{}.{}", source.field, source.id);
    let remediation = "expected vol-… or aws://<zone>/vol-…";
    let message = format!("{key} {text:?} names no EBS volume; {remediation}");
    let finding = Finding::new(Severity::Error, key, format!("names no EBS volume; {remediation}")).value(text);
    ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message)
}

fn labels(volume: &Volume) -> Result<BTreeMap<String, String>, ProviderError> {
    let region = region_of_zone(&volume.zone).ok_or_else(|| {
        ProviderError::unknown(format!("EC2 gives {:?} as the zone of EBS volume {}", volume.zone, volume.id))
    })?;
    Ok(BTreeMap::from([(LABEL_ZONE.to_owned(), volume.zone.clone()), (LABEL_REGION.to_owned(), region.to_owned())]))
}

/// Reads by filter, so that an unknown volume is simply absent.
#[derive(Debug)]
struct Describe(Arc<dyn Api>);

#[async_trait]
impl Bulk for Describe {
    type Item = VolumeId;
    type Answer = Volume;
    type Error = ApiError;

    async fn call(&self, ids: &[VolumeId]) -> Answer<BTreeMap<VolumeId, Volume>> {
        let found = self.0.volumes(&Query::by("volume-id", ids.iter().map(|id| &id.0))).await?;
        Ok(found.into_iter().map(|volume| (VolumeId(volume.id.clone()), volume)).collect())
    }

    fn interrupted(&self, how: Interrupted) -> ApiError {
        ApiError::interrupted(Operation::new(Service::Ec2, "DescribeVolumes"), how)
    }
}
