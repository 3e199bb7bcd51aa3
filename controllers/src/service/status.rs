//! Restores what another client removed from a Service, without a call to the cloud: the status and the finalizer.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{LoadBalancerStatus, Service, ServiceKey};
use ccm_runtime::runner::Outcome;

use ccm_runtime::writer::ServicePatch;

use super::sync::Prepared;
use super::{ServiceController, ServiceState, Work};

/// The time until a change is undone: two clients that disagree must not cause a storm.
const RESTORE: Duration = Duration::from_secs(4);

impl ServiceState {
    /// The status that another client changed or removed, if the load balancer needs no change, or if its change failed:
    /// then it still has the address.
    fn lost_status(&self, now: &Service) -> Option<&LoadBalancerStatus> {
        let is_known = self.is_converged() || (self.converged.is_none() && !self.status.ingress.is_empty());
        let is_same = self.service.metadata.uid == now.metadata.uid;
        let lost = is_same && is_known && !self.status.same_as(&now.status.load_balancer);
        lost.then_some(&self.status)
    }
}

impl ServiceController {
    /// Queues the restoration of a status that is not the one of the load balancer, or of a finalizer.
    pub(super) fn check_status(&self, key: &ServiceKey, now: &Service) {
        if self.known(key).is_some_and(|known| self.lost(&known, now).is_some()) {
            self.queue.add_after(Work::Status(key.clone()), RESTORE);
        }
    }

    /// From now on another controller writes the status.
    pub(super) fn leave_status(&self, key: &ServiceKey) {
        if let Some(known) = self.lock().get_mut(key) {
            (known.status, known.converged) = (LoadBalancerStatus::default(), None);
        }
    }

    /// The patch that restores what is lost.
    fn lost(&self, known: &ServiceState, now: &Service) -> Option<ServicePatch> {
        let status = known.lost_status(now).cloned();
        let is_converged = known.is_converged() && known.service.metadata.uid == now.metadata.uid;
        let finalizers = if is_converged { self.finalizers(now).missing } else { Vec::new() };
        let is_lost = status.is_some() || !finalizers.is_empty();
        is_lost.then(|| ServicePatch { add_finalizers: finalizers, status, ..ServicePatch::default() })
    }

    /// The same after a call, during which a change of the status went unnoticed.
    pub(super) fn check_status_now(&self, key: &ServiceKey) {
        if let Some(now) = self.shared.services.get(key) {
            self.check_status(key, &now);
        }
    }

    /// A finalizer that only the provider adds needs a sync, as does any other change.
    pub(super) fn prepare_status(&self, key: &ServiceKey, service: Option<Arc<Service>>) -> Prepared {
        let Some((known, service)) = self.known(key).zip(service) else { return Prepared::Ended(Ok(Outcome::Done)) };
        let Some(patch) = self.lost(&known, &service) else { return Prepared::Ended(Ok(Outcome::Done)) };
        let is_same = self.config.role.wants(&service) && !self.needs_sync(&known.service, &service);
        let finalizers = self.finalizers(&service);
        if is_same && finalizers.later.is_empty() && finalizers.missing == patch.add_finalizers {
            return Prepared::Status(service, patch);
        }
        self.queue.add(Work::Sync(key.clone()));
        Prepared::Ended(Ok(Outcome::Done))
    }
}
