//! The desired and the observed state of one Service, and the remaining steps.

use std::collections::BTreeSet;

use ccm_provider::{Fact, Plan, ProviderError, Service, ServiceAction, ServiceWork};

use super::inventory::{LOAD_BALANCER, Object};
use crate::balancer::{BalancerCloud, Plan as Planned, Step};

/// The subject of facts about the desired state of a Service.
pub const DESIRED: &str = "desired state";

/// The load balancers of a cloud, for commands that handle one Service at a time. The functions are pure.
pub trait Explained: BalancerCloud {
    /// The remediation if the load balancer of a Service with an address is not found.
    const NOT_FOUND: &'static str;
    /// The effect on the load balancer of an invalid Service until it is corrected.
    const WHILE_INVALID: &'static str = "nothing of its load balancer is updated";
    /// The action for which the load balancer of an invalid Service is read.
    const READ_WHILE_INVALID: ServiceAction = ServiceAction::Delete;
    /// The classes of Services (`spec.loadBalancerClass`) that the provider serves.
    const CLASSES: &'static [&'static str] = &[];

    /// The name of the load balancer of a Service.
    fn name(_cluster: &str, service: &Service) -> String {
        service.default_load_balancer_name()
    }

    /// The facts about a Service whose load balancer is created by another controller.
    fn elsewhere(_service: &Service) -> Vec<Fact> {
        vec![Fact::good(DESIRED, "another controller makes the load balancer")]
    }

    /// Describes the load balancer of a Service; `None` if it has none.
    fn in_words(desired: &Self::Wanted) -> Option<String>;

    /// What is there for a Service, and what is wanted and not there, in the order of the report.
    fn inventory(&self, service: &Service, desired: &Self::Wanted, observed: &Self::Observed) -> Vec<Object>;

    /// Clears data that would save a read.
    fn read_all(_desired: &mut Self::Wanted) {}

    /// Keeps only the nodes with these members in the desired state.
    fn keep_registered(desired: &mut Self::Wanted, members: &BTreeSet<&str>);
}

/// One Service and its load balancer.
pub(super) struct Current {
    pub(super) inventory: Vec<Object>,
    /// The remaining steps, or why there is no plan.
    pub(super) plan: Result<Plan, ProviderError>,
}

impl Current {
    pub(super) fn is_there(&self) -> bool {
        self.inventory.iter().any(|object| object.kind == LOAD_BALANCER)
    }

    pub(super) fn facts(self) -> impl Iterator<Item = Fact> {
        self.inventory.into_iter().flat_map(|object| object.state)
    }
}

/// The action that the Service requests.
pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.is_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
}

/// The desired state of one Service.
///
/// # Errors
///
/// The Service is invalid or belongs to another controller. Nothing is read.
pub(super) fn wanted<C: BalancerCloud>(
    balancers: &C,
    cluster: &str,
    work: &[ServiceWork],
) -> Result<C::Wanted, ProviderError> {
    let (wanted, verdicts) = balancers.wanted(cluster, work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(wanted)
}

/// The remaining steps that `counts` accepts.
///
/// # Errors
///
/// The state of the cloud prevents a plan, or the guard rejects it.
pub(super) fn steps<C: BalancerCloud>(
    balancers: &C,
    observed: &C::Observed,
    wanted: &C::Wanted,
    counts: impl Fn(&Step<C::Write>) -> bool,
) -> Result<Planned<C::Write>, ProviderError> {
    let mut planned = balancers.plan(observed, wanted)?;
    std::mem::take(&mut planned.failed).into_values().next().map_or(Ok(()), Err)?;
    planned.steps.retain(counts);
    let refused = balancers.guard(observed, wanted, &planned.steps).into_iter().next();
    refused.map_or(Ok(planned), |(_, error)| Err(error))
}

/// Observes and plans.
///
/// # Errors
///
/// A read failed.
pub(super) async fn look<P: Explained>(
    balancers: &P,
    cluster: &str,
    work: &[ServiceWork],
    mut desired: P::Wanted,
) -> Result<Current, ProviderError> {
    P::read_all(&mut desired);
    let observed = balancers.observe(cluster, work, &desired).await?;
    let inventory: Vec<Object> =
        work.iter().flat_map(|item| balancers.inventory(&item.service, &desired, &observed)).collect();
    let members: BTreeSet<&str> = inventory.iter().flat_map(|object| &object.members).map(String::as_str).collect();
    // Only the core knows which nodes are eligible, and `ccm plan` shows missing ones.
    if !members.is_empty() {
        P::keep_registered(&mut desired, &members);
    }
    let plan = steps(balancers, &observed, &desired, |_| true).map(|Planned { steps, findings, .. }| Plan {
        steps: steps.into_iter().map(Step::printed).collect(),
        findings,
        ..Plan::default()
    });
    Ok(Current { inventory, plan })
}
