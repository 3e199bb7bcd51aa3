//! Writes on a Service: finalizers, conditions, status, and the provider's notes.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use ccm_provider::well_known::FINALIZER_LOAD_BALANCER;
use ccm_provider::{
    Change, LoadBalancerStatus, Notes, ProviderError, Risk, Service, ServiceAction, ServiceWork, Step, Verb,
};
use ccm_runtime::GateError;
use ccm_runtime::clock::timestamp;
use ccm_runtime::runner::SyncError;
use ccm_runtime::writer::{ConditionChanges, ServicePatch};

use super::conditions::Progress;
use super::{ServiceController, conditions};
use crate::Shared;

/// The finalizers of a Service that matter here: that of the controller, and those of the provider.
#[derive(Debug, Default)]
pub(super) struct Finalizers {
    /// Needed and missing.
    pub(super) missing: Vec<&'static str>,
    /// The same, but the provider adds them.
    pub(super) later: Vec<&'static str>,
    /// Present.
    pub(super) present: Vec<&'static str>,
    /// Present, but no longer needed.
    pub(super) surplus: Vec<&'static str>,
}

impl ServiceController {
    pub(super) fn finalizers(&self, service: &Service) -> Finalizers {
        let mut all = Finalizers::default();
        let adds_later = self.balancer.adds_finalizers();
        for (name, needed) in [(FINALIZER_LOAD_BALANCER, true)].into_iter().chain(self.balancer.finalizers(service)) {
            match (service.metadata.finalizers.iter().any(|present| present == name), needed) {
                (true, true) => all.present.push(name),
                (true, false) => {
                    all.present.push(name);
                    all.surplus.push(name);
                }
                (false, true) if adds_later && name != FINALIZER_LOAD_BALANCER => all.later.push(name),
                (false, true) => all.missing.push(name),
                (false, false) => {}
            }
        }
        all
    }

    /// The Service as it is now: its status and notes may have been written since it was read.
    fn current(&self, service: &Arc<Service>) -> Arc<Service> {
        let now = self.shared.services.get(&service.key()).filter(|now| now.metadata.uid == service.metadata.uid);
        now.unwrap_or_else(|| service.clone())
    }

    /// The conditions to write with the next status patch; `None` when they are disabled or up to date.
    pub(super) fn conditions(&self, service: &Arc<Service>, progress: Progress<'_>) -> Option<ConditionChanges> {
        if !self.config.conditions {
            return None;
        }
        // The finalizer may have been written since the Service was read, and conditions with it.
        let present = &self.current(service).status.conditions;
        conditions::changes(service, present, progress, timestamp(self.shared.clock.wall()))
    }

    /// Writes conditions, and the status if it is known, for a provider call that failed or is not finished. If the
    /// write fails too, the event shows the error.
    pub(super) async fn note_failure(
        &self,
        service: &Arc<Service>,
        error: &SyncError,
        status: Option<LoadBalancerStatus>,
        notes: &Notes,
    ) {
        let Some(class) = error.class() else { return };
        let message = match error.is_in_progress() {
            true => format!("{}: {error}", conditions::ENSURING),
            false => format!("{}{error}", conditions::FAILED),
        };
        let progress = Progress::Failed { class, message: &message };
        let conditions = self.conditions(service, progress);
        let patch = ServicePatch { conditions, status, ..ServicePatch::default() };
        if let Err(error) = self.write(service, patch, notes).await {
            tracing::debug!(service = %service.key(), %error, "the conditions or the status could not be written");
        }
    }

    pub(super) async fn add_finalizers(&self, service: Arc<Service>) -> Result<(), SyncError> {
        let conditions = self.conditions(&service, Progress::Begun);
        let add_finalizers = self.finalizers(&service).missing;
        let patch = ServicePatch { add_finalizers, conditions, ..ServicePatch::default() };
        let context = "failed to add load balancer cleanup finalizer";
        match self.shared.service_writer().write(&service, &patch).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(SyncError::Retry(format!("{context}: the Service does not exist any more"))),
            Err(error) => Err(SyncError::gate(context, error)),
        }
    }

    /// Removes all finalizers. Succeeds even if the object is gone, with its last finalizer or by another client.
    pub(super) async fn remove_finalizers(
        &self,
        service: &Arc<Service>,
        conditions: Option<ConditionChanges>,
    ) -> Result<(), SyncError> {
        let remove_finalizers = self.finalizers(service).present;
        let patch = ServicePatch { remove_finalizers, conditions, ..ServicePatch::default() };
        let written = self.shared.service_writer().write(service, &patch).await.map(drop);
        written.map_err(|error| SyncError::gate("failed to remove load balancer cleanup finalizer", error))
    }

    /// One write for all changes; none if there are no changes. The status is the known one from now on.
    pub(super) async fn write(
        &self,
        service: &Arc<Service>,
        mut patch: ServicePatch,
        notes: &Notes,
    ) -> Result<(), SyncError> {
        if let (Some(status), Some(known)) = (&patch.status, self.lock().get_mut(&service.key())) {
            known.status.clone_from(status);
        }
        let now = self.current(service);
        patch.status = patch.status.filter(|status| !now.status.load_balancer.same_as(status));
        if *notes != Notes::default() {
            if let Some(known) = self.lock().get_mut(&service.key()) {
                known.noted.clone_from(&notes.annotations);
            }
            self.add_notes(&mut patch, service, &now, notes);
        }
        let written = self.shared.service_writer().write(service, &patch).await.map(drop);
        written.map_err(|error| SyncError::gate("failed to update load balancer status", error))
    }

    /// Writes the status of a Service while the call of the provider goes on for others. Its answer writes the rest.
    pub(super) async fn write_early(&self, work: ServiceWork, status: LoadBalancerStatus) {
        let _finishing = self.finishing(&work.service.key()).await;
        if self.is_outdated(&work) {
            return;
        }
        let patch = ServicePatch { status: Some(status), ..ServicePatch::default() };
        if let Err(error) = self.write(&work.service, patch, &Notes::default()).await {
            tracing::debug!(service = %work.service.key(), %error, "the status is written at the end of the call");
        }
    }

    fn add_notes(&self, patch: &mut ServicePatch, service: &Service, now: &Service, notes: &Notes) {
        let differs = |(key, value): &(&String, &Option<String>)| now.metadata.annotations.get(*key) != value.as_ref();
        patch.annotations = notes.annotations.iter().filter(differs).map(|(k, v)| (k.clone(), v.clone())).collect();
        let at = timestamp(self.shared.clock.wall());
        let set = conditions::noted(service, &now.status.conditions, &notes.conditions, at);
        if !set.is_empty() {
            patch.conditions.get_or_insert_default().set.extend(set);
        }
    }

    /// Plan steps for adding finalizers before an ensure, if due.
    pub(super) fn finalizer_steps(&self, work: &ServiceWork) -> Vec<Step> {
        let Finalizers { missing, later, .. } = match work.action {
            ServiceAction::Ensure => self.finalizers(&work.service),
            ServiceAction::UpdateHosts | ServiceAction::Delete => Finalizers::default(),
        };
        let step = |name| step(&work.service, None, Some(name), "the load balancer must be deleted before the Service");
        missing.into_iter().chain(later).map(step).collect()
    }

    /// Plan steps for removing finalizers.
    pub(super) fn finalizer_removals(&self, service: &Service) -> Vec<Step> {
        let step = |name| step(service, Some(name), None, "no load balancer is left");
        self.finalizers(service).present.into_iter().map(step).collect()
    }
}

/// Adds finalizers for the provider.
pub(super) struct Adds(pub(super) Shared);

#[async_trait]
impl ccm_provider::Finalizers for Adds {
    async fn add(&self, service: &Service, names: &[&'static str]) -> Result<(), ProviderError> {
        let patch = ServicePatch { add_finalizers: names.to_vec(), ..ServicePatch::default() };
        let context = "failed to add load balancer cleanup finalizer";
        match self.0.service_writer().write(&Arc::new(service.clone()), &patch).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ProviderError::unknown(format!("{context}: the Service does not exist any more"))),
            Err(GateError::Api(error)) => Err(ProviderError::unknown(format!("{context}: {error}"))),
            // The next leader goes on.
            Err(closed) => Err(ProviderError::in_progress(closed.to_string(), Duration::from_secs(1))),
        }
    }
}

fn step(service: &Service, before: Option<&str>, after: Option<&str>, reason: &str) -> Step {
    let (before, after) = (before.map(str::to_owned), after.map(str::to_owned));
    Step {
        verb: Verb::Update,
        kind: "Service".into(),
        id: service.key().to_string(),
        changes: vec![Change { field: "finalizer".into(), before, after }],
        reason: reason.to_owned(),
        risk: Risk::None,
    }
}
