//! The webhook `persistentvolume-label`: sets the labels and the node affinity for a volume's zone at creation.
//!
//! It replaces the admission plugin `PersistentVolumeLabel` of the API server, with the same rules and errors; the
//! controller that labels existing volumes uses the same functions. Volumes of other clouds are admitted without a
//! cloud call.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_controllers::persistent_volume::ask;
use ccm_controllers::persistent_volume::decide::{self, Mutation, Origin, When};
use ccm_provider::{PersistentVolume, Volumes};
use ccm_runtime::Metrics;
use serde::Deserialize as _;

use super::{AdmissionHandler, AdmissionRequest, AdmissionResponse, Hosting, Webhook};

/// Name in `--webhooks` and in metrics.
pub const NAME: &str = "persistentvolume-label";
/// Path on the port of the webhooks.
pub const PATH: &str = "/admit";
/// The timeout of this webhook in its MutatingWebhookConfiguration.
pub const TIMEOUT: Duration = Duration::from_secs(5);
/// The deadline of the cloud call: earlier than [`TIMEOUT`], so that the user gets the reason of a failure.
const READ_DEADLINE: Duration = Duration::from_millis(4500);

/// The entry in the table of webhooks. If the provider does not label volumes, all are admitted.
pub(crate) fn webhook() -> Webhook {
    let handler = |hosting: &Hosting| -> Arc<dyn AdmissionHandler> {
        let labeler = hosting.provider.volumes();
        if labeler.is_none() {
            let provider = hosting.provider.name();
            tracing::warn!("the webhook {NAME:?} changes nothing: the provider {provider:?} has no labels for volumes");
        }
        Arc::new(VolumeLabels { labeler, metrics: hosting.metrics.clone(), dry_run: hosting.dry_run })
    };
    Webhook { name: NAME, path: PATH, handler: Arc::new(handler) }
}

struct VolumeLabels {
    labeler: Option<Arc<dyn Volumes>>,
    metrics: Metrics,
    dry_run: bool,
}

#[async_trait]
impl AdmissionHandler for VolumeLabels {
    async fn admit(&self, request: AdmissionRequest) -> Result<Option<AdmissionResponse>, String> {
        let (kind, what) = (&request.kind, (request.operation.as_str(), request.sub_resource.as_str()));
        let made = kind.group.is_empty() && kind.kind == "PersistentVolume" && what == ("CREATE", "");
        let (true, Some(labeler)) = (made, &self.labeler) else { return Ok(Some(AdmissionResponse::allow())) };
        let volume = PersistentVolume::deserialize(&request.object)
            .map_err(|error| format!("the PersistentVolume cannot be read: {error}"))?;
        let decided = self.decide(&**labeler, &volume).await;
        Ok(Some(if self.dry_run { dry_run(&volume, decided) } else { answer(&volume, decided) }))
    }
}

impl VolumeLabels {
    /// The change of the volume, or the reason why it must not be created.
    async fn decide(&self, labeler: &dyn Volumes, volume: &PersistentVolume) -> Result<Mutation, String> {
        let labels = match decide::origin(volume, labeler.sources()) {
            Origin::Foreign => return Ok(Mutation::default()),
            Origin::Provisioner(labels) => labels,
            Origin::Cloud(source) => {
                let answers = ask(labeler, std::slice::from_ref(volume), READ_DEADLINE, &self.metrics).await;
                let answer = answers.into_iter().next().unwrap_or(Ok(None));
                answer.map_err(|error| source.failed(volume, &error))?.unwrap_or_default()
            }
        };
        decide::mutate(volume, &labels, When::Made)
    }
}

fn answer(volume: &PersistentVolume, decided: Result<Mutation, String>) -> AdmissionResponse {
    match decided {
        Ok(mutation) if mutation.is_empty() => AdmissionResponse::allow(),
        Ok(mutation) => {
            tracing::debug!(volume = %volume.metadata.name, "{}", mutation.plan(volume));
            AdmissionResponse { patch: Some(mutation.json_patch(volume)), ..AdmissionResponse::allow() }
        }
        Err(error) => {
            tracing::warn!(volume = %volume.metadata.name, error, "the volume is refused");
            AdmissionResponse::forbid(error)
        }
    }
}

/// With `--dry-run` every volume is admitted unchanged; a warning to the user names the change that would be made.
fn dry_run(volume: &PersistentVolume, decided: Result<Mutation, String>) -> AdmissionResponse {
    let change = match decided {
        Ok(mutation) if mutation.is_empty() => return AdmissionResponse::allow(),
        // In one line, as the API server requires for warnings.
        Ok(mutation) => mutation.plan(volume).steps.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "),
        Err(error) => format!("the volume would be refused: {error}"),
    };
    tracing::info!(volume = %volume.metadata.name, "Plan (dry run, nothing is written): {change}");
    let warnings = vec![format!("with --dry-run nothing is changed: {change}")];
    AdmissionResponse { warnings, ..AdmissionResponse::allow() }
}

#[cfg(test)]
mod tests;
