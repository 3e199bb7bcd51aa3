//! Explains a Service: which controller handles it, its desired and observed state, and the remaining steps.

use ccm_provider::{Fact, NodeRef, Plan, ProviderError, Service, ServiceWork};

use super::{DESIRED, Explained, current, refused, unreadable};

const PLAN: &str = "plan";

/// The links from a Service to the cloud, with the parts of its load balancer even if the Service is invalid.
///
/// # Errors
///
/// A read failed.
pub async fn explain<P: Explained>(
    balancers: &P,
    cluster: &str,
    service: &Service,
    nodes: &[NodeRef],
) -> Result<Vec<Fact>, ProviderError> {
    let is_foreign = |class: &&str| !P::CLASSES.contains(class) && !service.needs_cleanup();
    if let Some(class) = service.spec.load_balancer_class.as_deref().filter(is_foreign) {
        let text = format!("loadBalancerClass {class:?}: another controller makes the load balancer");
        return Ok(vec![Fact::good(DESIRED, text)]);
    }
    let work = [ServiceWork::new(service, nodes, current::action(service))];
    let invalid = match current::wanted(balancers, cluster, &work) {
        Ok(desired) => {
            let text = P::in_words(&desired).unwrap_or_else(|| "no load balancer (any more)".to_owned());
            let current = current::look(balancers, cluster, &work, desired).await?;
            let plan = plan(&current.plan);
            return Ok([Fact::good(DESIRED, text)].into_iter().chain(current.facts()).chain([plan]).collect());
        }
        Err(error) if error.is_implemented_elsewhere() => return Ok(P::elsewhere(service)),
        Err(error) => error,
    };
    let mut facts = vec![refused(DESIRED, &invalid)];
    let work = [ServiceWork::new(service, nodes, P::READ_WHILE_INVALID)];
    if let Ok(desired) = current::wanted(balancers, cluster, &work) {
        match current::look(balancers, cluster, &work, desired).await {
            Ok(current) => facts.extend(current.facts()),
            Err(error) => facts.push(unreadable("load balancer", error)),
        }
    }
    Ok(facts)
}

/// The plan as one fact; `ccm plan` prints its steps and findings.
fn plan(plan: &Result<Plan, ProviderError>) -> Fact {
    match plan {
        Ok(plan) if plan.steps.is_empty() => Fact::good(PLAN, "nothing is left to do in the cloud"),
        Ok(plan) => Fact::waiting(PLAN, format!("writes left: {}", plan.steps.len())),
        Err(error) if error.is_in_progress() => Fact::waiting(PLAN, error.to_string()),
        Err(error) if error.is_implemented_elsewhere() => {
            Fact::good(PLAN, "another controller makes the load balancer: nothing of this one is there")
        }
        Err(error) => refused(PLAN, error),
    }
}
