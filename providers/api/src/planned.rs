//! Load balancers that are planned before they are written.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::time::Duration;

use async_trait::async_trait;
use futures::future::join_all;
use serde::de::DeserializeOwned;
use serde::{Deserialize as _, Serialize};
use serde_json::Value;

use crate::deadline::{READ_DEADLINE, WRITE_DEADLINE};
use crate::error::{ErrorClass, ProviderError};
use crate::load_balancer::{GroupKey, LoadBalancer, Notes, Related, ServiceAction, ServiceAnswer, ServiceWork};
use crate::node::Node;
use crate::plan::{Finding, Plan, Severity};
use crate::service::{LoadBalancerStatus, Service};

/// A provider that reads, plans without I/O, and then writes. [`PlannedLoadBalancer`] adapts it to [`LoadBalancer`],
/// including dry runs.
pub trait Planned: Send + Sync {
    /// The desired state of the group, with defaults.
    type Desired: Send + Sync;
    /// All cloud objects of the group: those that belong to this cluster and those to which they refer. Complete, or an
    /// error. Saved in snapshots, so it must contain neither secrets nor parts of the desired state.
    type Observed: Serialize + DeserializeOwned + Send + Sync;
    /// One write, printable through [`Planned::describe`].
    type Step: Send + Sync;
    /// Results of earlier writes of a plan that later writes need, such as an ID known only after creation.
    type Outputs: Default + Send + Sync;

    /// [`LoadBalancer::groups`]
    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        [GroupKey(service.key().to_string())].into()
    }

    /// [`LoadBalancer::finalizers`]
    fn finalizers(&self, _service: &Service) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    /// [`LoadBalancer::backend`]
    fn backend<'n>(&self, _service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        Some(node.provider_id_or_empty().into())
    }

    /// [`LoadBalancer::related`]
    fn related(&self) -> Related {
        Related::default()
    }

    /// [`LoadBalancer::only_nodes_with_endpoints`]
    fn only_nodes_with_endpoints(&self, _service: &Service) -> bool {
        false
    }

    /// The desired state of the group, and one result per item for invalid Services. Pure, and called before any read:
    /// if every item has an error, the cloud is not called at all.
    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Self::Desired, Vec<Result<(), ProviderError>>);

    /// Reads the cloud. No other method may read it.
    fn observe(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        desired: &Self::Desired,
    ) -> impl Future<Output = Result<Self::Observed, ProviderError>> + Send;

    /// Removes all data that no plan for `desired` uses from an observation that will be stored in a file (`ccm
    /// snapshot`): such files are shared, and users' tags and descriptions may contain anything. Pure; the plan must
    /// stay the same.
    fn strip(&self, _observed: &mut Self::Observed, _desired: &Self::Desired) {}

    /// The writes that change the observed state into the desired state. Pure; empty if they are equal. An error if the
    /// cloud's state makes all items impossible; then nothing is written.
    fn plan(&self, observed: &Self::Observed, desired: &Self::Desired) -> Result<Steps<Self::Step>, ProviderError>;

    /// The index of the item to which a step belongs: if the step fails, only the later steps of this item are skipped.
    /// `None`: it belongs to all items.
    fn item(&self, _step: &Self::Step) -> Option<usize> {
        None
    }

    /// Consecutive steps of the same stage are independent of each other and run concurrently. `None`: alone.
    fn stage(&self, _step: &Self::Step) -> Option<u32> {
        None
    }

    /// Rejects a plan that is probably a mistake: it changes a foreign object or removes all backends. Pure.
    fn guard(
        &self,
        observed: &Self::Observed,
        desired: &Self::Desired,
        steps: &[Self::Step],
    ) -> Result<(), ProviderError>;

    /// The time limit of one write, including waits. By default [`WRITE_DEADLINE`].
    fn step_deadline(&self) -> Duration {
        WRITE_DEADLINE
    }

    /// Executes one write.
    fn apply(
        &self,
        step: &Self::Step,
        outputs: &Self::Outputs,
    ) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// Called after the last write; returns errors that did not prevent later writes.
    fn finish(&self, _outputs: &Self::Outputs) -> Result<(), ProviderError> {
        Ok(())
    }

    /// Emits events about the findings of [`Planned::plan`]. Not called in dry runs, whose plans show the findings.
    fn report(&self, _work: &[ServiceWork], _findings: &[Finding]) {}

    /// A description of the step for users.
    fn describe(&self, step: &Self::Step) -> crate::plan::Step;

    /// The status of a Service as observed; `None` if no part of its load balancer exists. `None` after writes that
    /// should have created one means that the cloud does not show it yet: the state is read again.
    fn status(
        &self,
        observed: &Self::Observed,
        desired: &Self::Desired,
        service: &Service,
    ) -> Option<LoadBalancerStatus>;

    /// Notes for a Service, from the last observation and the objects created since. Called also if a write failed.
    fn notes(
        &self,
        _observed: &Self::Observed,
        _outputs: &Self::Outputs,
        _desired: &Self::Desired,
        _service: &Service,
    ) -> Notes {
        Notes::default()
    }
}

/// The writes of a plan.
#[derive(Debug)]
pub struct Steps<S> {
    /// In an order in which the process may be interrupted after any prefix.
    pub steps: Vec<S>,
    /// Findings for the user.
    pub findings: Vec<Finding>,
    /// Items, by index in the work, that the cloud's current state makes impossible. They must not have steps.
    pub failed: BTreeMap<usize, ProviderError>,
}

/// The adapter from [`Planned`] to [`LoadBalancer`].
///
/// Each read and each write has its own deadline ([`READ_DEADLINE`], [`WRITE_DEADLINE`]), so that a long plan is not
/// cancelled while it progresses, and a hanging call does not block its group indefinitely.
#[derive(Debug)]
pub struct PlannedLoadBalancer<P>(pub P);

impl<P: Planned> PlannedLoadBalancer<P> {
    async fn run(&self, cluster: &str, work: &[ServiceWork]) -> Result<Vec<ServiceAnswer>, ProviderError> {
        let (desired, mut verdicts) = self.0.desired(cluster, work);
        // One answer per item even if `desired()` returned fewer or more.
        verdicts.resize_with(work.len(), || Err(ProviderError::bug("desired() gave no verdict")));
        if verdicts.iter().all(Result::is_err) {
            return Ok(verdicts.into_iter().map(|verdict| verdict.map(|()| None).into()).collect());
        }
        let observed = self.look(cluster, work, &desired).await?;
        let Steps { steps, findings, failed } = self.0.plan(&observed, &desired)?;
        self.0.report(work, &findings);
        self.0.guard(&observed, &desired, &steps)?;
        for (place, error) in failed {
            fail(&mut verdicts, Some(place), &error);
        }
        let outputs = P::Outputs::default();
        self.apply_all(&steps, &outputs, &mut verdicts).await;
        if let Err(error) = self.0.finish(&outputs) {
            fail(&mut verdicts, None, &error);
        }
        // Read again only if something was written and the status is needed: the addresses may be new.
        let ensured =
            |item: &ServiceWork, verdict: &Result<(), _>| verdict.is_ok() && item.action == ServiceAction::Ensure;
        let asked = !steps.is_empty() && work.iter().zip(&verdicts).any(|(item, verdict)| ensured(item, verdict));
        let after = match if asked { self.look(cluster, work, &desired).await } else { Ok(observed) } {
            Ok(after) => after,
            Err(error) => {
                fail(&mut verdicts, None, &error);
                return Ok(verdicts.into_iter().map(|verdict| verdict.map(|()| None).into()).collect());
            }
        };
        let answers = work.iter().zip(verdicts).map(|(item, verdict)| {
            let result = verdict.and_then(|()| match item.action {
                ServiceAction::Delete | ServiceAction::UpdateHosts => Ok(None),
                ServiceAction::Ensure => match self.0.status(&after, &desired, &item.service) {
                    // The cloud still returns the state before the writes. Without another read the address would never
                    // become known.
                    None if !steps.is_empty() => Err(not_shown_yet()),
                    status => Ok(status),
                },
            });
            ServiceAnswer { result, notes: self.0.notes(&after, &outputs, &desired, &item.service) }
        });
        Ok(answers.collect())
    }

    /// Runs the steps stage by stage, except those for failed items.
    async fn apply_all(&self, steps: &[P::Step], outputs: &P::Outputs, verdicts: &mut [Result<(), ProviderError>]) {
        let together = |a: &P::Step, b: &P::Step| self.0.stage(a).is_some() && self.0.stage(a) == self.0.stage(b);
        for stage in steps.chunk_by(together) {
            let due = |step: &&P::Step| match self.0.item(step) {
                Some(place) => verdicts.get(place).is_some_and(Result::is_ok),
                None => verdicts.iter().any(Result::is_ok),
            };
            let due: Vec<&P::Step> = stage.iter().filter(due).collect();
            let results = join_all(due.iter().map(|step| self.apply(step, outputs))).await;
            for (step, result) in due.into_iter().zip(results) {
                if let Err(error) = result {
                    fail(verdicts, self.0.item(step), &error);
                }
            }
        }
    }

    async fn look(
        &self,
        cluster: &str,
        work: &[ServiceWork],
        desired: &P::Desired,
    ) -> Result<P::Observed, ProviderError> {
        tokio::time::timeout(READ_DEADLINE, self.0.observe(cluster, work, desired))
            .await
            .unwrap_or_else(|_| Err(ProviderError::deadline("observing the load balancer", READ_DEADLINE)))
    }

    async fn apply(&self, step: &P::Step, outputs: &P::Outputs) -> Result<(), ProviderError> {
        let limit = self.0.step_deadline();
        tokio::time::timeout(limit, self.0.apply(step, outputs)).await.unwrap_or_else(|_| {
            let step = self.0.describe(step);
            let call = format!("{} {} {}", step.verb.as_str(), step.kind, step.id);
            Err(ProviderError::deadline(&call, limit))
        })
    }

    /// The desired state; `None` if another controller implements it: a real run treats that as done, so the plan is
    /// empty and there is no error.
    fn desired_of(&self, cluster: &str, work: &[ServiceWork]) -> Result<Option<P::Desired>, ProviderError> {
        let (desired, verdicts) = self.0.desired(cluster, work);
        match verdicts.into_iter().collect::<Result<Vec<_>, _>>() {
            Err(error) if error.is_implemented_elsewhere() => Ok(None),
            verdicts => verdicts.map(|_| Some(desired)),
        }
    }

    /// The plan, with the rejection of a real run as an error.
    fn planned(&self, work: &ServiceWork, observed: &P::Observed, desired: &P::Desired) -> Result<Plan, ProviderError> {
        let Steps { steps, findings, failed } = self.0.plan(observed, desired)?;
        failed.into_values().next().map_or(Ok(()), Err)?;
        let described = steps.iter().map(|step| self.0.describe(step)).collect();
        let mut plan = Plan { subject: subject(work), steps: described, findings };
        // A real run would stop here, so the dry run must not look successful.
        if let Err(refusal) = self.0.guard(observed, desired, &steps) {
            plan.findings.push(Finding::new(Severity::Error, "guard", format!("the plan would be refused: {refusal}")));
        }
        Ok(plan)
    }
}

/// Fails one item, or all that have not failed yet.
fn fail(verdicts: &mut [Result<(), ProviderError>], place: Option<usize>, error: &ProviderError) {
    for (at, verdict) in verdicts.iter_mut().enumerate() {
        if verdict.is_ok() && place.is_none_or(|place| place == at) {
            *verdict = Err(error.clone());
        }
    }
}

/// The delay before the next read of a new load balancer that the cloud does not show yet.
const NOT_SHOWN: Duration = Duration::from_secs(5);

fn not_shown_yet() -> ProviderError {
    ProviderError::retry("the load balancer was created, but the cloud does not show it yet; checked again", NOT_SHOWN)
}

#[async_trait]
impl<P: Planned> LoadBalancer for PlannedLoadBalancer<P> {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        // Observed as for a deletion, which finds all owned objects and ignores annotations.
        let work = [ServiceWork::new(service, &[], ServiceAction::Delete)];
        let (desired, verdicts) = self.0.desired(cluster, &work);
        for verdict in verdicts {
            match verdict {
                Err(error) if error.is_implemented_elsewhere() => return Ok(None),
                verdict => verdict?,
            }
        }
        let observed = self.look(cluster, &work, &desired).await?;
        Ok(self.0.status(&observed, &desired, service))
    }

    fn backend<'n>(&self, service: &Service, node: &'n Node) -> Option<Cow<'n, str>> {
        self.0.backend(service, node)
    }

    fn related(&self) -> Related {
        self.0.related()
    }

    fn only_nodes_with_endpoints(&self, service: &Service) -> bool {
        self.0.only_nodes_with_endpoints(service)
    }

    fn groups(&self, service: &Service) -> BTreeSet<GroupKey> {
        self.0.groups(service)
    }

    fn finalizers(&self, service: &Service) -> Vec<(&'static str, bool)> {
        self.0.finalizers(service)
    }

    async fn reconcile(&self, cluster: &str, work: &[ServiceWork]) -> Vec<ServiceAnswer> {
        self.run(cluster, work).await.unwrap_or_else(|error| work.iter().map(|_| Err(error.clone()).into()).collect())
    }

    async fn observe(&self, cluster: &str, work: &ServiceWork) -> Result<Value, ProviderError> {
        let one = std::slice::from_ref(work);
        let Some(desired) = self.desired_of(cluster, one)? else { return Ok(Value::Null) };
        let mut observed = self.look(cluster, one, &desired).await?;
        self.0.strip(&mut observed, &desired);
        serde_json::to_value(observed)
            .map_err(|error| ProviderError::bug(format!("the observed state is not JSON: {error}")))
    }

    fn plan_observed(&self, cluster: &str, work: &ServiceWork, observed: &Value) -> Result<Plan, ProviderError> {
        let Some(desired) = self.desired_of(cluster, std::slice::from_ref(work))? else {
            return Ok(Plan::new(subject(work)));
        };
        let observed = P::Observed::deserialize(observed).map_err(|error| {
            let text = format!("the observed state for the Service {} cannot be read: {error}", work.service.key());
            ProviderError::new(ErrorClass::Invalid { findings: Vec::new() }, text)
        })?;
        self.planned(work, &observed, &desired)
    }
}

fn subject(work: &ServiceWork) -> String {
    format!("service {}", work.service.key())
}

#[cfg(test)]
mod tests;
