//! Checks Services: the plan that the controller would apply.

use std::sync::Arc;

use ccm_provider::{Check, Claims, ErrorClass, NodeRef, Service, Severity};
use futures::future::join_all;

use crate::inspect::current::{self, Current};
use crate::inspect::{Inspector, remediation};

const CHECK: &str = "load-balancers";
/// Services that are checked concurrently.
const AT_ONCE: usize = 20;

pub(super) async fn checks(openstack: &Inspector, cluster: &str, claims: &Claims) -> Vec<Check> {
    if let Err(off) = openstack.balancers() {
        return vec![Check::good(CHECK, "", off.to_string())];
    }
    let ours = |service: &&Arc<Service>| {
        service.needs_cleanup() || (service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none())
    };
    let services: Vec<&Arc<Service>> = claims.services.iter().filter(ours).collect();
    let mut checks = Vec::new();
    for some in services.chunks(AT_ONCE) {
        checks.extend(join_all(some.iter().map(|service| check(openstack, cluster, service, &claims.nodes))).await);
    }
    checks
}

async fn check(openstack: &Inspector, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Check {
    let subject = format!("service {}", service.key());
    match current::load(openstack, cluster, service, nodes, current::action(service)).await {
        Ok(current) => judge(subject, service, &current),
        Err(error) if matches!(error.class(), ErrorClass::Invalid { .. }) => {
            let fix = "correct the Service before the move: until then nothing of its load balancer is updated";
            Check::error(CHECK, subject, error.to_string(), fix)
        }
        Err(error) => Check::error(CHECK, subject, format!("could not be checked: {error}"), remediation(&error)),
    }
}

fn judge(subject: String, service: &Service, current: &Current) -> Check {
    let name = &current.item.name;
    let (steps, findings) = match &current.plan {
        Err(error) => return Check::error(CHECK, subject, error.to_string(), remediation(error)),
        Ok(plan) => plan,
    };
    let warnings: Vec<String> =
        findings.iter().filter(|f| f.severity > Severity::Info).map(ToString::to_string).collect();
    let summary: Vec<String> = steps.iter().map(ToString::to_string).collect();
    let summary = summary.join("; ");
    let deleting = current.item.settings.is_none();
    let is_there = current.balancer().is_some();
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
        (false, _) if !is_there && service.status.load_balancer.ingress.is_empty() => {
            (format!("load balancer {name} would be created: {summary}"), "none, if this is intended")
        }
        (false, _) if !is_there => (
            format!("load balancer {name} does not exist; what would be done: {summary}"),
            "check whether it has another name (--cluster-name) or is in another project",
        ),
        (false, _) => (
            format!("what would change on load balancer {name}: {summary}"),
            "check that these changes are wanted, or change the Service before the move",
        ),
    };
    Check::warning(CHECK, subject, text, fix)
}
