//! Labels of volumes.

use std::sync::Arc;

use ccm_provider::well_known::VOLUME_PLACEHOLDER;
use ccm_provider::{PersistentVolume, VolumeSource};

use crate::bed::{Bed, failed, holds};
use crate::{Harness, Outage, Outcome, Result};

async fn known(bed: &Bed) -> Result<PersistentVolume> {
    let volume = bed.harness.add_volume("vol-1").await;
    volume.ok_or(Outcome::NotApplicable("the harness makes no volumes"))
}

fn named(name: &str) -> PersistentVolume {
    let mut volume = PersistentVolume::default();
    volume.metadata.name = name.into();
    volume
}

pub(super) async fn labels_come_in_order_and_foreign_volumes_have_none(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let volumes = bed.volumes()?;
    let ours = known(&bed).await?;
    let asked = [named(VOLUME_PLACEHOLDER), ours.clone(), named("of-another-cloud"), ours];
    let answers = bed.without_writing("asking for labels", volumes.labels(&asked)).await?;
    holds!(answers.len() == asked.len(), "{} answers for {} volumes", answers.len(), asked.len());
    for (volume, answer) in asked.iter().zip(answers) {
        let labels = answer.map_err(failed("labels"))?;
        let ours = !volume.spec.is_empty();
        let has = labels.as_ref().is_some_and(|labels| !labels.is_empty());
        holds!(has == ours, "{}: {labels:?}", volume.metadata.name);
    }
    Ok(())
}

pub(super) async fn a_volume_of_ours_has_a_source_that_is_named(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let volumes = bed.volumes()?;
    let ours = known(&bed).await?;
    let sources = volumes.sources();
    holds!(VolumeSource::of(&ours, sources).is_some(), "{:?} has none of {sources:?}", ours.spec);
    let source = VolumeSource::of(&ours, sources).and_then(|source| source.id_of(&ours));
    holds!(source.is_some_and(|id| !id.is_empty()), "{:?} has no ID in the source that is named", ours.spec);
    Ok(())
}

pub(super) async fn a_cloud_that_fails_labels_nothing(harness: Arc<dyn Harness>) -> Result {
    let bed = Bed::new(harness).await?;
    let volumes = bed.volumes()?;
    let ours = known(&bed).await?;
    bed.disrupt(Outage::Down).await?;
    let answers = volumes.labels(std::slice::from_ref(&ours)).await;
    holds!(answers.len() == 1 && answers.iter().all(std::result::Result::is_err), "the cloud is down: {answers:?}");
    Ok(())
}
