//! The desired and the observed state of one Service, and what is left to do.

use ccm_provider::{Fact, Plan, Planned, ProviderError, Service, ServiceAction, ServiceWork, Steps};

/// What a fact about the desired state of a Service is about.
pub const DESIRED: &str = "desired state";

/// Load balancers as the commands see them: one Service at a time. The functions are pure.
pub trait Explained: Planned {
    /// What to check where the load balancer of a Service that shows an address is not found.
    const NOT_FOUND: &'static str;
    /// What becomes of the load balancer of an invalid Service until it is corrected.
    const WHILE_INVALID: &'static str = "nothing of its load balancer is updated";
    /// For what the load balancer of an invalid Service is read.
    const READ_WHILE_INVALID: ServiceAction = ServiceAction::Delete;
    /// The classes of Services (`spec.loadBalancerClass`) that the provider serves.
    const CLASSES: &'static [&'static str] = &[];

    /// The name of the load balancer of a Service.
    fn name(_cluster: &str, service: &Service) -> String {
        service.default_load_balancer_name()
    }

    /// What is said of a Service whose load balancer another controller makes.
    fn elsewhere(_service: &Service) -> Vec<Fact> {
        vec![Fact::good(DESIRED, "another controller makes the load balancer")]
    }

    /// The load balancer that a Service gets, in words; `None` if it gets none.
    fn in_words(desired: &Self::Desired) -> Option<String>;

    /// Whether the load balancer of the Service exists.
    fn is_there(desired: &Self::Desired, observed: &Self::Observed) -> bool;

    /// Forgets what would save a read.
    fn read_all(_desired: &mut Self::Desired) {}

    /// Leaves only the nodes in the desired state that are registered now, or all if none is: only the core knows which nodes are
    /// eligible, and `ccm plan` shows missing ones.
    fn keep_registered(desired: &mut Self::Desired, observed: &Self::Observed);
}

/// One Service and its load balancer.
#[derive(Debug)]
pub struct Current<D, O> {
    /// The desired state of the Service alone.
    pub desired: D,
    /// What was observed for it.
    pub observed: O,
    /// What is left to do, or why there is no plan.
    pub plan: Result<Plan, ProviderError>,
}

/// That of a provider.
pub(super) type Of<P> = Current<<P as Planned>::Desired, <P as Planned>::Observed>;

/// What the Service asks for.
pub(super) fn action(service: &Service) -> ServiceAction {
    let wanted = service.is_load_balancer() && service.metadata.deletion_timestamp.is_none();
    if wanted { ServiceAction::Ensure } else { ServiceAction::Delete }
}

/// The desired state of one Service.
///
/// # Errors
///
/// It is invalid, or that of another controller. Nothing is read before.
pub(super) fn desired<P: Planned>(
    balancers: &P,
    cluster: &str,
    work: &[ServiceWork],
) -> Result<P::Desired, ProviderError> {
    let (desired, verdicts) = balancers.desired(cluster, work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    Ok(desired)
}

/// The steps that are left, as far as they count.
///
/// # Errors
///
/// The state of the cloud makes the plan impossible, or the guard refuses it.
pub(super) fn steps<P: Planned>(
    balancers: &P,
    observed: &P::Observed,
    desired: &P::Desired,
    counts: impl Fn(&P::Step) -> bool,
) -> Result<Steps<P::Step>, ProviderError> {
    let mut steps = balancers.plan(observed, desired)?;
    std::mem::take(&mut steps.failed).into_values().next().map_or(Ok(()), Err)?;
    steps.steps.retain(counts);
    balancers.guard(observed, desired, &steps.steps)?;
    Ok(steps)
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
    mut desired: P::Desired,
) -> Result<Of<P>, ProviderError> {
    P::read_all(&mut desired);
    let observed = balancers.observe(cluster, work, &desired).await?;
    P::keep_registered(&mut desired, &observed);
    let plan = steps(balancers, &observed, &desired, |_| true).map(|Steps { steps, findings, .. }| Plan {
        steps: steps.iter().map(|step| balancers.describe(step)).collect(),
        findings,
        ..Plan::default()
    });
    Ok(Current { desired, observed, plan })
}
