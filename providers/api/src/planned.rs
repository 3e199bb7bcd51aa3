//! Load balancers that are planned before they are written.

use std::future::Future;

use async_trait::async_trait;

use crate::error::ProviderError;
use crate::load_balancer::{GroupKey, LoadBalancer, LoadBalancerStatus, ServiceAction, ServiceWork};
use crate::node::NodeRef;
use crate::plan::Plan;
use crate::service::Service;

/// A provider that observes first, decides without I/O, and writes last. [`PlannedLoadBalancer`] makes a
/// [`LoadBalancer`] of it, dry runs included.
pub trait Planned: Send + Sync {
    /// All cloud objects of the group: those with our ownership marks and those they refer to. Complete, or an error.
    type Observed: Send + Sync;
    /// What the group shall look like, defaults filled in.
    type Desired: Send + Sync;
    /// One write, printable through [`Planned::describe`].
    type Step: Send + Sync;

    /// Services that share objects have one group.
    fn group(&self, service: &Service) -> GroupKey {
        GroupKey(service.key().to_string())
    }

    /// Reads the cloud. The only method that may.
    fn observe(
        &self,
        cluster: &str,
        work: &[ServiceWork],
    ) -> impl Future<Output = Result<Self::Observed, ProviderError>> + Send;

    /// What the Services of the group want; one answer per item for what a Service asks wrongly. Pure.
    fn desired(&self, cluster: &str, work: &[ServiceWork]) -> (Self::Desired, Vec<Result<(), ProviderError>>);

    /// The writes from observed to desired, in an order of which any prefix is safe to die after. Pure; empty when
    /// nothing differs.
    fn plan(&self, observed: &Self::Observed, desired: &Self::Desired) -> Vec<Self::Step>;

    /// Refuses a plan that looks like a mistake: a foreign object touched, a backend set emptied. Pure.
    fn guard(&self, observed: &Self::Observed, steps: &[Self::Step]) -> Result<(), ProviderError>;

    /// Does one write.
    fn apply(&self, step: &Self::Step) -> impl Future<Output = Result<(), ProviderError>> + Send;

    /// The step in words.
    fn describe(&self, step: &Self::Step) -> crate::plan::Step;

    /// The status of a Service as observed; `None` when no part of its balancer exists.
    fn status(&self, observed: &Self::Observed, service: &Service) -> Option<LoadBalancerStatus>;
}

/// The adapter from [`Planned`] to [`LoadBalancer`].
#[derive(Debug)]
pub struct PlannedLoadBalancer<P>(pub P);

impl<P: Planned> PlannedLoadBalancer<P> {
    async fn run(
        &self,
        cluster: &str,
        work: &[ServiceWork],
    ) -> Result<Vec<Result<Option<LoadBalancerStatus>, ProviderError>>, ProviderError> {
        let observed = self.0.observe(cluster, work).await?;
        let (desired, verdicts) = self.0.desired(cluster, work);
        let steps = self.0.plan(&observed, &desired);
        self.0.guard(&observed, &steps)?;
        for step in &steps {
            self.0.apply(step).await?;
        }
        // Read again only when something was written: addresses may have come with it.
        let after = if steps.is_empty() { observed } else { self.0.observe(cluster, work).await? };
        let answers = work.iter().zip(verdicts).map(|(item, verdict)| {
            verdict.map(|()| match item.action {
                ServiceAction::Delete | ServiceAction::UpdateHosts => None,
                ServiceAction::Ensure => self.0.status(&after, &item.service),
            })
        });
        Ok(answers.collect())
    }

    async fn one(&self, cluster: &str, item: ServiceWork) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let answers = self.run(cluster, std::slice::from_ref(&item)).await?;
        answers.into_iter().next().unwrap_or_else(|| Err(ProviderError::bug("desired() gave no verdict")))
    }
}

fn item(service: &Service, nodes: &[NodeRef], action: ServiceAction) -> ServiceWork {
    ServiceWork { service: service.clone().into(), nodes: nodes.into(), action }
}

#[async_trait]
impl<P: Planned> LoadBalancer for PlannedLoadBalancer<P> {
    async fn get(&self, cluster: &str, service: &Service) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        let work = [item(service, &[], ServiceAction::Ensure)];
        let observed = self.0.observe(cluster, &work).await?;
        Ok(self.0.status(&observed, service))
    }

    async fn ensure(
        &self,
        cluster: &str,
        service: &Service,
        nodes: &[NodeRef],
    ) -> Result<Option<LoadBalancerStatus>, ProviderError> {
        self.one(cluster, item(service, nodes, ServiceAction::Ensure)).await
    }

    async fn update(&self, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<(), ProviderError> {
        self.one(cluster, item(service, nodes, ServiceAction::UpdateHosts)).await.map(drop)
    }

    async fn ensure_deleted(&self, cluster: &str, service: &Service) -> Result<(), ProviderError> {
        self.one(cluster, item(service, &[], ServiceAction::Delete)).await.map(drop)
    }

    fn group(&self, service: &Service) -> GroupKey {
        self.0.group(service)
    }

    async fn reconcile(
        &self,
        cluster: &str,
        work: &[ServiceWork],
    ) -> Vec<Result<Option<LoadBalancerStatus>, ProviderError>> {
        self.run(cluster, work).await.unwrap_or_else(|error| work.iter().map(|_| Err(error.clone())).collect())
    }

    async fn plan(&self, cluster: &str, work: &ServiceWork) -> Result<Plan, ProviderError> {
        let work = std::slice::from_ref(work);
        let observed = self.0.observe(cluster, work).await?;
        let (desired, verdicts) = self.0.desired(cluster, work);
        verdicts.into_iter().collect::<Result<Vec<_>, _>>()?;
        let steps = self.0.plan(&observed, &desired);
        let subject = work.first().map(|item| format!("service {}", item.service.key())).unwrap_or_default();
        let mut plan = Plan::new(subject);
        plan.steps = steps.iter().map(|step| self.0.describe(step)).collect();
        Ok(plan)
    }
}
