//! Services: what the controller would write, for `migrate-check`.

use std::sync::Arc;

use ccm_provider::{
    Check, Claims, ErrorClass, Finding, NodeRef, Planned as _, ProviderError, Service, ServiceAction, ServiceWork,
    Severity, Step, Steps,
};
use futures::future::join_all;

use super::{Inspector, unchecked};

const CHECK: &str = "load-balancers";
/// Services that are checked concurrently.
const AT_ONCE: usize = 20;

/// What is left to do, and what is doubtful.
type Plan = (Vec<Step>, Vec<Finding>);

/// The plan for a Service alone, as if all nodes were eligible.
///
/// # Errors
///
/// The Service is invalid or that of another controller, or a read failed.
async fn plan(gce: &Inspector, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Result<Plan, ProviderError> {
    let wanted = service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none();
    let action = if wanted { ServiceAction::Ensure } else { ServiceAction::Delete };
    let (balancers, work) = (&gce.balancers.0, [ServiceWork::new(service, nodes, action)]);
    let (desired, verdicts) = balancers.desired(cluster, &work);
    verdicts.into_iter().collect::<Result<Vec<()>, _>>()?;
    let observed = balancers.observe(cluster, &work, &desired).await?;
    let Steps { steps, findings, failed } = balancers.plan(&observed, &desired)?;
    failed.into_values().next().map_or(Ok(()), Err)?;
    balancers.guard(&observed, &desired, &steps)?;
    Ok((steps.iter().map(|step| balancers.describe(step)).collect(), findings))
}

fn is_elsewhere(error: &ProviderError) -> bool {
    matches!(error.root(), ProviderError::ImplementedElsewhere)
}

pub(super) async fn checks(gce: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let ours = |service: &&Arc<Service>| {
        service.needs_cleanup() || (service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none())
    };
    let services: Vec<&Arc<Service>> = claims.services.iter().filter(ours).collect();
    let mut checks = Vec::new();
    for some in services.chunks(AT_ONCE) {
        let one = |service: &&Arc<Service>| {
            let service = (*service).clone();
            async move { check(&service, plan(gce, cluster, &service, &claims.nodes).await) }
        };
        checks.extend(join_all(some.iter().map(one)).await);
    }
    checks
}

fn check(service: &Service, plan: Result<Plan, ProviderError>) -> Check {
    let subject = format!("service {}", service.key());
    let (steps, findings) = match plan {
        Err(error) if is_elsewhere(&error) => {
            return Check::good(CHECK, subject, "another controller makes its load balancer: it is left unchanged");
        }
        Err(error) if matches!(error.class(), ErrorClass::Invalid { .. }) => {
            let fix = "correct the Service before the move: until then nothing of its load balancer is updated";
            return Check::error(CHECK, subject, error.to_string(), fix);
        }
        Err(error) => return unchecked(CHECK, subject, error),
        Ok(plan) => plan,
    };
    let warnings: Vec<String> =
        findings.iter().filter(|finding| finding.severity > Severity::Info).map(ToString::to_string).collect();
    let steps: Vec<String> = steps.iter().map(ToString::to_string).collect();
    match (steps.is_empty(), warnings.is_empty()) {
        (true, true) => Check::good(CHECK, subject, "its load balancer is taken over as it is"),
        (true, false) => Check::warning(
            CHECK,
            subject,
            format!("its load balancer is taken over as it is, but: {}", warnings.join("; ")),
            "correct the annotations, or leave them if this is what you want",
        ),
        (false, _) => Check::warning(
            CHECK,
            subject,
            format!("what would be written: {}", steps.join("; ")),
            "check that these changes are wanted, or change the Service before the move",
        ),
    }
}
