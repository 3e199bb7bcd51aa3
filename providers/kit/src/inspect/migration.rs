//! Checks before the migration from another controller.

use ccm_provider::{
    Check, Claims, ErrorClass, Finding, InstanceMetadata, Lookup, Node, NodeRef, Plan, ProviderError, Service,
    ServiceAction, ServiceWork, Severity,
};
use futures::future::join_all;

use super::{Explained, current, remediation, unchecked};

/// The check of provider IDs.
pub const IDS: &str = "provider-ids";
/// The check of node names.
pub const NAMES: &str = "node-names";
/// The check of addresses.
pub const ADDRESSES: &str = "node-addresses";
const LOAD_BALANCERS: &str = "load-balancers";
/// The number of Services that are checked concurrently.
const AT_ONCE: usize = 20;

/// The findings about the configuration file at startup.
pub fn configuration(findings: &[Finding]) -> Vec<Check> {
    const CHECK: &str = "cloud-config";
    let fix = "correct the file, or leave it if this is intended";
    let check = |finding: &Finding| match finding.severity {
        Severity::Info => Check::good(CHECK, &*finding.key, &*finding.message),
        _ => Check::warning(CHECK, &*finding.key, &*finding.message, fix),
    };
    match findings {
        [] => vec![Check::good(CHECK, "", "no findings")],
        findings => findings.iter().map(check).collect(),
    }
}

/// Checks the nodes by the look-ups of the controllers. `what`: the cloud's word for an instance; `place`: what must
/// match the cluster: `project and region are those`; `more`: further checks of an instance.
pub fn nodes(
    nodes: &[NodeRef],
    answers: &[Lookup],
    what: &str,
    place: &str,
    more: impl Fn(&Node, &InstanceMetadata) -> Option<Check>,
) -> Vec<Check> {
    let check = |(node, answer): (&NodeRef, &Lookup)| {
        let subject = format!("node {}", node.name);
        let name = if node.provider_id_or_empty().is_empty() { NAMES } else { IDS };
        match answer {
            Lookup::Found(instance) => match &instance.metadata {
                Ok(metadata) => more(node, metadata.as_ref()?),
                Err(error) => Some(unchecked(ADDRESSES, subject, error.clone())),
            },
            Lookup::Foreign => {
                Some(Check::good(name, subject, "its provider ID is that of another cloud: it is left unchanged"))
            }
            Lookup::Gone(evidence) => {
                let text = format!("no {what}: {evidence}. A node that is not Ready would be deleted");
                let fix = format!("check that {place} of the cluster; delete a node whose machine no longer exists");
                Some(Check::error(name, subject, text, fix))
            }
            Lookup::Unknown(error) => {
                let fix = "do what the message says: until then the node is left unchanged";
                Some(Check::error(name, subject, error.to_string(), fix))
            }
        }
    };
    let mut checks: Vec<Check> = nodes.iter().zip(answers).filter_map(check).collect();
    checks.extend(in_order(nodes.len() - checks.len(), nodes.len()));
    checks
}

/// The number of nodes without findings, if any.
pub fn in_order(good: usize, all: usize) -> Option<Check> {
    (good > 0).then(|| Check::good(IDS, "", format!("nodes without a finding, of {all}: {good}")))
}

/// Checks the Services by the writes that the controller would make.
pub async fn services<P: Explained>(balancers: &P, cluster: &str, claims: &Claims) -> Vec<Check> {
    let ours = |service: &&Service| {
        service.needs_cleanup() || (service.wants_load_balancer() && service.metadata.deletion_timestamp.is_none())
    };
    let services: Vec<&Service> = claims.services.iter().map(|service| &**service).filter(ours).collect();
    let mut checks = Vec::new();
    for some in services.chunks(AT_ONCE) {
        let some = some.iter().map(|service| check(balancers, cluster, service, &claims.nodes));
        checks.extend(join_all(some).await);
    }
    checks
}

async fn check<P: Explained>(balancers: &P, cluster: &str, service: &Service, nodes: &[NodeRef]) -> Check {
    let subject = format!("service {}", service.key());
    let work = [ServiceWork::new(service, nodes, current::action(service))];
    let desired = match current::wanted(balancers, cluster, &work) {
        Ok(desired) => desired,
        Err(error) => return of_error::<P>(subject, &error),
    };
    match current::look(balancers, cluster, &work, desired).await {
        Err(error) => unchecked(LOAD_BALANCERS, subject, error),
        Ok(current) => match &current.plan {
            Err(error) => of_error::<P>(subject, error),
            Ok(plan) => of_plan(subject, &P::name(cluster, service), service, plan, current.is_there(), P::NOT_FOUND),
        },
    }
}

fn of_error<P: Explained>(subject: String, error: &ProviderError) -> Check {
    let fix = match error.class() {
        _ if error.is_implemented_elsewhere() => {
            return Check::good(LOAD_BALANCERS, subject, "another controller makes the load balancer");
        }
        ErrorClass::Invalid { .. } => {
            format!("correct the Service before the move: until then {}", P::WHILE_INVALID)
        }
        _ => remediation(error),
    };
    Check::error(LOAD_BALANCERS, subject, error.to_string(), fix)
}

fn of_plan(
    subject: String,
    name: &str,
    service: &Service,
    plan: &Plan,
    is_there: bool,
    not_found: &'static str,
) -> Check {
    let words = |all: Vec<String>| all.join("; ");
    let steps = words(plan.steps.iter().map(ToString::to_string).collect());
    let doubts = plan.findings.iter().filter(|finding| finding.severity > Severity::Info);
    let doubts = words(doubts.map(ToString::to_string).collect());
    let is_deletion = current::action(service) == ServiceAction::Delete;
    let (text, fix) = match (steps.is_empty(), doubts.is_empty()) {
        (true, _) if is_deletion => {
            let text = format!("nothing of load balancer {name} is left in the cloud");
            return Check::good(LOAD_BALANCERS, subject, text);
        }
        (true, true) => {
            return Check::good(LOAD_BALANCERS, subject, format!("load balancer {name} is taken over as it is"));
        }
        (true, false) => (
            format!("load balancer {name} is taken over as it is, but: {doubts}"),
            "correct the annotations, or leave them if this is intended",
        ),
        (false, _) if is_deletion => {
            (format!("the remains of load balancer {name} would be deleted: {steps}"), "none, if this is intended")
        }
        (false, _) if is_there => (
            format!("what would change on load balancer {name}: {steps}"),
            "check that these changes are wanted, or change the Service before the move",
        ),
        (false, _) if service.status.load_balancer.ingress.is_empty() => {
            (format!("load balancer {name} would be created: {steps}"), "none, if this is intended")
        }
        (false, _) => (format!("load balancer {name} does not exist; what would be done: {steps}"), not_found),
    };
    Check::warning(LOAD_BALANCERS, subject, text, fix)
}
