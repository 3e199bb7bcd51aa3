//! Restores what another client removed from a Service, without a call to the cloud: the status and the finalizer.

use std::time::{Duration, Instant};

use ccm_provider::{EventType, LoadBalancerStatus, Notes, Service, ServiceKey, Subject};
use ccm_runtime::runner::{Outcome, SyncError};
use ccm_runtime::writer::ServicePatch;

use super::writes::Finalizers;
use super::{ServiceController, ServiceState, Work};

/// The shortest and the longest time until a change is undone: two clients that disagree must not cause a storm. After
/// [`CONTESTED`] in a row it doubles with each change that follows soon.
const RESTORE: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(600));
/// A change within this time after the last restoration is one of another client that does the same.
const SOON: Duration = Duration::from_secs(60);
/// The restoration, in a row, that emits an event: one change of the status and one of the finalizer are no contest.
const CONTESTED: u32 = 3;

/// Changes of another client that were undone.
#[derive(Debug, Clone, Default)]
pub(super) struct Contest {
    restored: Option<Instant>,
    /// Since when something is lost.
    lost: Option<Instant>,
    /// Restorations of which each followed soon after the one before.
    times: u32,
}

impl Contest {
    /// Something is lost now, or still. Returns the time until it is restored.
    fn lose(&mut self, now: Instant) -> Duration {
        if self.lost.is_none() {
            self.lost = Some(now);
            let is_soon = self.restored.is_some_and(|restored| now.saturating_duration_since(restored) < SOON);
            self.times = if is_soon { self.times } else { 0 };
        }
        let contested = self.times.saturating_sub(CONTESTED - 1).min(9);
        RESTORE.0.saturating_mul(1 << contested).min(RESTORE.1)
    }

    /// It is restored. Returns how often that happened in a row.
    fn restore(&mut self, now: Instant) -> u32 {
        (self.restored, self.lost, self.times) = (Some(now), None, self.times.saturating_add(1));
        self.times
    }
}

impl ServiceState {
    /// The status that another client changed or removed, if the load balancer needs no change. While it is changed, or
    /// after that failed, it still has the address. But a change may leave it to another controller, whose status this
    /// is then.
    fn lost_status(&self, now: &Service) -> Option<&LoadBalancerStatus> {
        let is_wiped = now.status.load_balancer.ingress.is_empty();
        let has_address = !self.status.ingress.is_empty();
        let is_known = self.is_converged() || has_address && (is_wiped || self.at_work.is_none());
        let is_same = self.service.metadata.uid == now.metadata.uid;
        let lost = is_same && is_known && !self.status.same_as(&now.status.load_balancer);
        lost.then_some(&self.status)
    }
}

impl ServiceController {
    /// Queues the restoration of a status that is not the one of the load balancer, or of a finalizer.
    pub(super) fn check_status(&self, key: &ServiceKey, now: &Service) {
        let is_lost = self.known(key).is_some_and(|known| self.lost(&known, now).is_some());
        let delay = self.lock().get_mut(key).and_then(|known| {
            if !is_lost {
                known.contest.lost = None;
            }
            is_lost.then(|| known.contest.lose(self.shared.clock.now()))
        });
        if let Some(delay) = delay {
            self.queue.add_after(Work::Status(key.clone()), delay);
        }
    }

    /// Writes what another client changed. A finalizer that only the provider adds needs a sync.
    pub(super) async fn restore(&self, key: &ServiceKey) -> Result<Outcome, SyncError> {
        let service = self.shared.services.get(key).filter(|service| self.config.role.wants(service));
        let Some((known, service)) = self.known(key).zip(service) else { return Ok(Outcome::Done) };
        let Some(patch) = self.lost(&known, &service) else { return Ok(Outcome::Done) };
        let Finalizers { missing, later, .. } = self.finalizers(&service);
        let is_foreign = !service.status.load_balancer.ingress.is_empty();
        let may_be_elsewhere = is_foreign && self.needs_sync(&known.service, &service);
        if may_be_elsewhere || !later.is_empty() || missing != patch.add_finalizers {
            self.queue.add(Work::Sync(key.clone()));
            return Ok(Outcome::Done);
        }
        let subject = Subject::service(&service);
        let wanted = patch.status.clone();
        self.write(&service, patch, &Notes::default()).await.map_err(|error| self.failed(&subject, error))?;
        let now = self.shared.clock.now();
        let times = self.lock().get_mut(key).map(|known| known.contest.restore(now));
        if times == Some(CONTESTED) {
            let text = match wanted {
                Some(wanted) => format!(
                    "another client changes the addresses to {}, and this controller back to {}: stop one of them",
                    addresses(&service.status.load_balancer),
                    addresses(&wanted)
                ),
                None => "another client removes the finalizer of the load balancer, which is added again".to_owned(),
            };
            self.events.event(&subject, EventType::Warning, "LoadBalancerStatusContested", &text);
        }
        Ok(Outcome::Done)
    }

    /// From now on another controller writes the status.
    pub(super) fn leave_status(&self, key: &ServiceKey) {
        if let Some(known) = self.lock().get_mut(key) {
            (known.status, known.converged) = (LoadBalancerStatus::default(), None);
        }
    }

    /// The patch that restores what is lost. Nothing is restored of a load balancer that is deleted, although the Service
    /// asks for one again.
    fn lost(&self, known: &ServiceState, now: &Service) -> Option<ServicePatch> {
        if !self.config.role.wants(&known.service) {
            return None;
        }
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
}

fn addresses(status: &LoadBalancerStatus) -> String {
    let address = |one: &ccm_provider::LoadBalancerIngress| {
        if one.ip.is_empty() { one.hostname.clone() } else { one.ip.clone() }
    };
    format!("[{}]", status.ingress.iter().map(address).collect::<Vec<_>>().join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn from_the_fourth_on_changes_that_follow_soon_are_undone_ever_later() {
        let (mut contest, mut now) = (Contest::default(), Instant::now());
        let mut delays = Vec::new();
        for _ in 0..12 {
            let delay = contest.lose(now);
            assert_eq!(contest.lose(now + delay / 2), delay, "it is the same loss");
            now += delay;
            contest.restore(now);
            delays.push(delay.as_secs());
            now += Duration::from_secs(1);
        }
        assert_eq!(delays, [2, 2, 2, 4, 8, 16, 32, 64, 128, 256, 512, 600]);
        assert_eq!(contest.lose(now + SOON), RESTORE.0);
    }
}
