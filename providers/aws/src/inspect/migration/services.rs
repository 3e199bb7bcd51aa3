//! Checks Services: the plan that the controller would apply.

use ccm_provider::{Check, Claims, ErrorClass, NodeRef, Service, Severity};
use futures::future::join_all;

use crate::inspect::current::{self, Current};
use crate::inspect::{Inspector, remediation};
use crate::loadbalancer::desired::Goal;

const CHECK: &str = "load-balancers";
/// Services that are checked concurrently: as many as one call for names and tags takes.
const AT_ONCE: usize = 20;

pub(super) async fn checks(aws: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let ours = |service: &&std::sync::Arc<Service>| {
        service.needs_cleanup() || (service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none())
    };
    let services: Vec<&std::sync::Arc<Service>> = claims.services.iter().filter(ours).collect();
    let mut checks = Vec::new();
    for some in services.chunks(AT_ONCE) {
        let mut looks = Vec::new();
        for service in some {
            looks.push(check(aws, cluster, service, &claims.nodes));
        }
        checks.extend(join_all(looks).await);
    }
    checks
}

async fn check(aws: &Inspector, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Check {
    let subject = format!("service {}", service.key());
    let action = current::action(service);
    match current::load(aws, cluster, service, nodes, action).await {
        Ok(Some(current)) => judge(subject, service, &current),
        Ok(None) => Check::good(CHECK, subject, "another controller makes the load balancer"),
        Err(error) if error.is_implemented_elsewhere() => {
            Check::good(CHECK, subject, "another controller makes the load balancer")
        }
        Err(error) if matches!(error.class(), ErrorClass::Invalid { .. }) => {
            let fix =
                "correct the Service before the move: until then only the nodes behind its load balancer are updated";
            Check::error(CHECK, subject, error.to_string(), fix)
        }
        Err(error) => Check::error(CHECK, subject, format!("could not be checked: {error}"), remediation(&error)),
    }
}

fn judge(subject: String, service: &Service, current: &Current) -> Check {
    let name = &current.desired.name;
    let (steps, findings) = match &current.plan {
        Err(error) => return Check::error(CHECK, subject, error.to_string(), remediation(error)),
        Ok(plan) => plan,
    };
    let warnings: Vec<String> =
        findings.iter().filter(|f| f.severity > Severity::Info).map(ToString::to_string).collect();
    let summary: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let summary = summary.join("; ");
    let deleting = matches!(current.desired.goal, Goal::Absent);
    let (text, fix) = match (steps.is_empty(), warnings.is_empty()) {
        (true, _) if deleting => {
            return Check::good(CHECK, subject, format!("nothing of load balancer {name} is left in the cloud"));
        }
        (false, _) if deleting => {
            (format!("the remains of load balancer {name} would be deleted: {summary}"), "none, if this is intended")
        }
        (true, true) => {
            return Check::good(CHECK, subject, format!("load balancer {name} is taken over as it is"));
        }
        (true, false) => (
            format!("load balancer {name} is taken over as it is, but: {}", warnings.join("; ")),
            "correct the annotations, or leave them if this is what you want",
        ),
        (false, _) if !current.is_there() && service.status.load_balancer.ingress.is_empty() => {
            (format!("load balancer {name} would be created: {summary}"), "none, if this is intended")
        }
        (false, _) if !current.is_there() => (
            format!("load balancer {name} does not exist; what would be done: {summary}"),
            "check whether it has another name or is in another account",
        ),
        (false, _) => (
            format!("what would change on load balancer {name}: {summary}"),
            "check that these changes are wanted, or change the Service before the move",
        ),
    };
    Check::warning(CHECK, subject, text, fix)
}
