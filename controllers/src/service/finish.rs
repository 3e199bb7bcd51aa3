//! The end of the sync of a Service: what its preparation or the answer of the provider leaves to be written.

use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{
    ErrorClass, EventType, LoadBalancerStatus, Notes, Plan, ProviderError, Service, ServiceAnswer, ServiceKey,
    ServiceWork, Subject,
};
use ccm_runtime::runner::{Outcome, SyncError};
use ccm_runtime::writer::ServicePatch;
use futures::future::{BoxFuture, join_all};
use tokio::sync::OwnedSemaphorePermit;

use super::conditions::Progress;
use super::sync::{AGAIN, Prepared, Purpose, Reply};
use super::{ServiceController, conditions};

impl ServiceController {
    pub(super) async fn finish_prepared(
        &self,
        prepared: Prepared<'_>,
        reply: Option<Reply>,
        early: Vec<BoxFuture<'_, ()>>,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        match prepared {
            Prepared::Ended(outcome) => outcome,
            Prepared::Later(rest) => rest.await,
            Prepared::Finish(service) => {
                let _finishing = self.finishing(&service.key()).await;
                self.unless_panicked(&service, self.finish_cleanup(&service, &Notes::default())).await
            }
            Prepared::Status(key) => {
                let _finishing = self.finishing(&key).await;
                self.restore(&key).await
            }
            Prepared::Provider(work, purpose) => {
                join_all(early).await;
                let _finishing = self.finishing(&work.service.key()).await;
                match reply {
                    Some(reply) => self.finish(&work, purpose, reply, took).await,
                    None => Err(SyncError::Retry("no answer from the provider".into())),
                }
            }
        }
    }

    /// No other work on the Service begins until this is dropped: its group may be free before. Nor is another status
    /// written: the older one could be the last.
    pub(super) async fn finishing(&self, key: &ServiceKey) -> Option<OwnedSemaphorePermit> {
        let finishing = self.lock().get(key)?.finishing.clone();
        finishing.acquire_owned().await.ok()
    }

    pub(super) async fn finish(
        &self,
        work: &ServiceWork,
        purpose: Purpose,
        reply: Reply,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        let answer = match reply {
            Reply::Answer(answer) => answer,
            Reply::Outdated => return Ok(AGAIN),
            Reply::Closed(closed) => return Err(SyncError::Closed(closed)),
        };
        // Work that is not finished, or of which something is not visible yet, goes on with the next sync.
        let goes_on = answer.again.is_some() || matches!(&answer.result, Err(error) if error.is_in_progress());
        if purpose != Purpose::Hosts
            && !goes_on
            && let Some(known) = self.lock().get_mut(&work.service.key())
        {
            known.at_work = None;
            known.repeats &= answer.result.is_ok();
        }
        self.unless_panicked(&work.service, self.finish_answered(work, purpose, answer, took)).await
    }

    async fn finish_answered(
        &self,
        work: &ServiceWork,
        purpose: Purpose,
        answer: ServiceAnswer,
        took: Duration,
    ) -> Result<Outcome, SyncError> {
        let service = &work.service;
        let subject = Subject::service(service);
        let ServiceAnswer { result: answer, status, again, notes } = answer;
        let done = again.map_or(Outcome::Done, Outcome::After);
        match purpose {
            Purpose::Hosts => self.finish_hosts(work, answer, status, &notes, took).await.map(|_| done),
            Purpose::Ensure => {
                let error = match self.finish_ensure(work, answer, &notes, again.is_some()).await {
                    Ok(()) => return Ok(done),
                    Err(error) => self.failed(&subject, error),
                };
                self.note_failure(service, &error, status, &notes).await;
                self.check_status_now(&service.key());
                Err(error)
            }
            Purpose::Cleanup => match answer {
                Err(error) if !error.is_implemented_elsewhere() => {
                    Err(self.failed(&subject, SyncError::provider("failed to delete load balancer", &error)))
                }
                _ => self.finish_cleanup(service, &notes).await,
            },
            Purpose::Forget => match answer {
                Err(error) if error.is_in_progress() => Err(SyncError::provider("", &error)),
                Err(error) if !error.is_implemented_elsewhere() => {
                    let text = format!("Error deleting load balancer: {error}");
                    self.events.event(&subject, EventType::Warning, "DeleteLoadBalancerFailed", &text);
                    Err(SyncError::provider("", &error))
                }
                _ => {
                    self.events.event(&subject, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
                    self.forget(&service.key());
                    Ok(Outcome::Done)
                }
            },
        }
    }

    async fn finish_ensure(
        &self,
        work: &ServiceWork,
        answer: Result<Option<LoadBalancerStatus>, ProviderError>,
        notes: &Notes,
        again: bool,
    ) -> Result<(), SyncError> {
        let service = &work.service;
        let status = match answer {
            Ok(Some(status)) => status,
            Ok(None) => {
                let message = "service status returned by EnsureLoadBalancer is nil".to_owned();
                return Err(SyncError::Provider { message, class: ErrorClass::Bug, after: None });
            }
            Err(error) if error.is_implemented_elsewhere() => {
                tracing::debug!(service = %service.key(), "the load balancer is provided elsewhere");
                self.leave_status(&service.key());
                let conditions = self.conditions(service, Progress::ImplementedElsewhere);
                // What the provider had here before is deleted.
                let remove_finalizers = self.finalizers(service).surplus;
                let patch = ServicePatch { remove_finalizers, conditions, ..ServicePatch::default() };
                return self.write(service, patch, notes).await;
            }
            Err(error) => return Err(SyncError::provider("failed to ensure load balancer", &error)),
        };
        let subject = Subject::service(service);
        let is_repeated =
            self.lock().get_mut(&service.key()).is_some_and(|known| std::mem::replace(&mut known.repeats, again));
        if !is_repeated {
            self.events.event(&subject, EventType::Normal, "EnsuredLoadBalancer", "Ensured load balancer");
        }
        let conditions = self.conditions(service, Progress::Ensured(&status));
        let remove_finalizers = self.finalizers(service).surplus;
        let patch = ServicePatch { remove_finalizers, status: Some(status), conditions, ..ServicePatch::default() };
        self.write(service, patch, notes).await?;
        let groups = self.balancer.groups(service);
        if let Some(known) = self.lock().get_mut(&service.key()) {
            known.reach(&work.nodes);
            known.converged = Some((service.clone(), work.nodes.clone()));
            known.groups = groups;
        }
        self.check_status_now(&service.key());
        Ok(())
    }

    async fn finish_cleanup(&self, service: &Arc<Service>, notes: &Notes) -> Result<Outcome, SyncError> {
        let subject = Subject::service(service);
        if self.shared.gate.is_dry_run() {
            let plan =
                Plan { steps: self.finalizer_removals(service), ..Plan::new(format!("service {}", service.key())) };
            self.shared.gate.show(&plan);
            return Ok(Outcome::Done);
        }
        let mut conditions = self.conditions(service, Progress::Gone);
        if !self.finalizers(service).present.is_empty() {
            // If the object disappears with its finalizer, no later write finds it.
            if let Err(error) = self.remove_finalizers(service, conditions.take()).await {
                return Err(self.failed(&subject, error));
            }
        }
        self.events.event(&subject, EventType::Normal, "DeletedLoadBalancer", "Deleted load balancer");
        let patch = ServicePatch { status: Some(LoadBalancerStatus::default()), conditions, ..ServicePatch::default() };
        if let Err(error) = self.write(service, patch, notes).await {
            return Err(self.failed(&subject, error));
        }
        self.forget(&service.key());
        Ok(Outcome::Done)
    }

    /// Emits an event on the Service. Neither a closed gate nor a cloud that needs time is a failure.
    pub(super) fn failed(&self, subject: &Subject, error: SyncError) -> SyncError {
        if !matches!(error, SyncError::Closed(_)) && !error.is_in_progress() {
            let message = format!("{}{error}", conditions::FAILED);
            self.events.failure(subject, "SyncLoadBalancerFailed", &message, error.class());
        }
        error
    }
}
