//! Restores the status of a Service that another client changed, without a call to the cloud.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{LoadBalancerStatus, Service, ServiceKey};
use ccm_runtime::runner::Outcome;

use super::sync::Prepared;
use super::{ServiceController, ServiceState, Work};

/// The time until a changed status is restored: two clients that disagree must not cause a storm.
const RESTORE: Duration = Duration::from_secs(4);

impl ServiceState {
    /// The status that another client changed or removed, if the load balancer needs no change.
    fn lost_status(&self, now: &Service) -> Option<&LoadBalancerStatus> {
        let is_same = self.service.metadata.uid == now.metadata.uid;
        let lost = is_same && self.is_converged() && !self.status.same_as(&now.status.load_balancer);
        lost.then_some(&self.status)
    }
}

impl ServiceController {
    /// Queues the restoration of a status that is not the one of the load balancer.
    pub(super) fn check_status(&self, key: &ServiceKey, now: &Service) {
        if self.lock().get(key).is_some_and(|known| known.lost_status(now).is_some()) {
            self.queue.add_after(Work::Status(key.clone()), RESTORE);
        }
    }

    /// The same after a call, during which a change of the status went unnoticed.
    pub(super) fn check_status_now(&self, key: &ServiceKey) {
        if let Some(now) = self.shared.services.get(key) {
            self.check_status(key, &now);
        }
    }

    /// A finalizer that is missing too needs a sync, as does any other change.
    pub(super) fn prepare_status(&self, key: &ServiceKey, service: Option<Arc<Service>>) -> Prepared {
        let Some((known, service)) = self.known(key).zip(service) else { return Prepared::Ended(Ok(Outcome::Done)) };
        let Some(status) = known.lost_status(&service) else { return Prepared::Ended(Ok(Outcome::Done)) };
        let is_same = self.config.role.wants(&service) && !self.needs_sync(&known.service, &service);
        if is_same && self.finalizers(&service).has_all() {
            return Prepared::Status(service, status.clone());
        }
        self.queue.add(Work::Sync(key.clone()));
        Prepared::Ended(Ok(Outcome::Done))
    }
}
