//! What is left to do for each Service: the plan that the controller would carry out.

use ccm_provider::{Check, Claims, ErrorClass, NodeRef, Service, Severity};
use futures::future::join_all;

use crate::inspect::current::{self, Current};
use crate::inspect::{Inspector, way_out};
use crate::loadbalancer::desired::Goal;

const CHECK: &str = "load-balancers";
/// Services that are looked at side by side: as many as one call for names and tags takes.
const AT_ONCE: usize = 20;

pub(super) async fn checks(of: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    let ours = |service: &&std::sync::Arc<Service>| {
        service.needs_cleanup() || (service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none())
    };
    let services: Vec<&std::sync::Arc<Service>> = claims.services.iter().filter(ours).collect();
    let mut checks = Vec::new();
    for some in services.chunks(AT_ONCE) {
        let mut looks = Vec::new();
        for service in some {
            looks.push(look(of, cluster, service, &claims.nodes));
        }
        checks.extend(join_all(looks).await);
    }
    checks
}

async fn look(of: &Inspector, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Check {
    let subject = format!("service {}", service.key());
    let action = current::action(service);
    match current::look(of, cluster, service, nodes, action).await {
        Ok(Some(current)) => judge(subject, service, &current),
        Ok(None) => Check::good(CHECK, subject, "another controller makes the load balancer"),
        Err(error) if error.is_implemented_elsewhere() => {
            Check::good(CHECK, subject, "another controller makes the load balancer")
        }
        Err(error) if matches!(error.class(), ErrorClass::Invalid { .. }) => {
            let fix =
                "correct the Service before the move: only the nodes behind its load balancer are kept up until then";
            Check::error(CHECK, subject, error.to_string(), fix)
        }
        Err(error) => Check::error(CHECK, subject, format!("could not be checked: {error}"), way_out(&error)),
    }
}

fn judge(subject: String, service: &Service, current: &Current) -> Check {
    let name = &current.desired.name;
    let (steps, findings) = match &current.plan {
        Err(error) => return Check::error(CHECK, subject, error.to_string(), way_out(error)),
        Ok(plan) => plan,
    };
    let warnings: Vec<String> =
        findings.iter().filter(|f| f.severity > Severity::Info).map(ToString::to_string).collect();
    let summary: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let summary = summary.join("; ");
    let goes = matches!(current.desired.goal, Goal::Absent);
    let (text, fix) = match (steps.is_empty(), warnings.is_empty()) {
        (true, _) if goes => {
            return Check::good(CHECK, subject, format!("nothing of load balancer {name} is left in the cloud"));
        }
        (false, _) if goes => {
            (format!("what is left of load balancer {name} would be deleted: {summary}"), "nothing, if it is meant")
        }
        (true, true) => {
            return Check::good(CHECK, subject, format!("load balancer {name} is taken over as it is"));
        }
        (true, false) => (
            format!("load balancer {name} is taken over as it is, but: {}", warnings.join("; ")),
            "correct the annotations, or leave them if this is what you want",
        ),
        (false, _) if !current.is_there() && service.status.load_balancer.ingress.is_empty() => {
            (format!("load balancer {name} would be made: {summary}"), "nothing, if it is meant")
        }
        (false, _) if !current.is_there() => (
            format!("load balancer {name} is not there; what would be done: {summary}"),
            "see that it is not meant to have another name or account",
        ),
        (false, _) => (
            format!("what would change on load balancer {name}: {summary}"),
            "see that these changes are wanted, or change the Service before the move",
        ),
    };
    Check::warning(CHECK, subject, text, fix)
}
