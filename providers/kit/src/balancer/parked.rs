//! Operations that were not done when their call ended.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::deadline::within;
use ccm_provider::{ErrorClass, ProviderError, ServiceAction, ServiceWork};
use futures::future::join_all;

use super::memory::{Parked, is_final};
use super::run::{Accepted, PATIENCE, Results, Run, Running, Sending, is_refused};
use super::{BalancerCloud, Progress};

/// The limit of a read of an operation of an earlier call.
const POLL: Duration = Duration::from_secs(5);

impl<C: BalancerCloud> Run<'_, C> {
    /// Reads the operations of earlier calls. Returns those that are not done; failures are errors of the Services that
    /// waited.
    pub(super) async fn poll_parked(&self, results: &mut Results) -> BTreeMap<String, Arc<Parked<C::Write>>> {
        let polls = self.memory.parked(self.groups).into_iter().map(|(object, parked)| async move {
            let poll = within("the operation", POLL, self.cloud.poll(&parked.operation)).await;
            (object, parked, poll)
        });
        for (object, parked, state) in join_all(polls).await {
            match state {
                Ok(Progress::Done) => {
                    self.memory.unpark(&object);
                    if parked.is_last {
                        self.memory.is_replaced(&object);
                    }
                }
                Ok(Progress::Failed(error)) => {
                    self.memory.unpark(&object);
                    self.failed_later(&object, &parked, &error, results).await;
                    continue;
                }
                // The next observation shows what became of it.
                Err(error) if matches!(error.class(), ErrorClass::Denied { .. }) => {
                    self.memory.unpark(&object);
                    let text = format!("{} was accepted, and cannot be followed", parked.operation.text);
                    self.fail_waiting(&parked, &error.wrap(text), results);
                }
                Ok(Progress::Running) | Err(_) => continue,
            }
            parked.room.clone().into_iter().for_each(|room| self.memory.removed(room));
        }
        self.memory.parked(self.groups)
    }

    async fn failed_later(
        &self,
        object: &str,
        parked: &Parked<C::Write>,
        error: &ProviderError,
        results: &mut Results,
    ) {
        // The plan is not made yet.
        if error.class() == ErrorClass::Conflict {
            tracing::debug!(object, %error, "another writer was faster");
            return;
        }
        self.fail_waiting(parked, error, results);
        self.note(parked.request.clone(), &parked.restore, error, is_final(error));
        let is_deleted =
            |item: &ServiceWork| item.action == ServiceAction::Delete && parked.services.contains(&item.service.key());
        if is_refused(error, true) && !parked.restore.is_empty() && !self.work.iter().any(is_deleted) {
            self.bring_back_for_a_moment(object, parked).await;
        }
    }

    fn fail_waiting(&self, parked: &Parked<C::Write>, error: &ProviderError, results: &mut Results) {
        for (place, _) in self.work.iter().enumerate().filter(|(_, item)| parked.concerns(item)) {
            results.fail(place, error);
        }
    }

    /// Makes again what a write replaces that was refused after its call. What takes long is parked, too.
    async fn bring_back_for_a_moment(&self, object: &str, failed: &Parked<C::Write>) {
        let accepted = Accepted::default();
        let sending = Sending { index: 0, is_step: false, is_last: true, scope: self.scope, accepted: &accepted };
        let mut back = pin!(self.bring_back(object, &failed.restore, &sending));
        while tokio::time::timeout(PATIENCE, &mut back).await.is_err() {
            let running = accepted.lock().remove(&0);
            let Some(Running { operation, since, is_last, .. }) = running else { continue };
            let (groups, services) = (failed.groups.clone(), failed.services.clone());
            let (request, restore, room) = (None, Vec::new(), None);
            let verb = failed.verb;
            let parked = Parked { operation, groups, services, verb, since, request, is_last, restore, room };
            self.memory.park(object.to_owned(), parked);
            return;
        }
    }
}
