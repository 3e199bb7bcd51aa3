//! What is wrong with a Service, or has no effect, as far as it tells itself: for files, without cluster and cloud.

use ccm_provider::{ErrorClass, Finding, ProviderError, Service, Severity};

use super::of_service::{Controller, left_behind, refusals};
use crate::annotations::{Annotations, LintContext, TABLE, TYPE, lint, lint_elsewhere};
use crate::ownership::Ownership;
use crate::start::config::HealthProbe;

/// All findings, what keeps the Service from getting its balancer first.
///
/// What depends on the cloud config is told as such; the marks of the cluster are not known.
pub(crate) fn review(service: &Service) -> Vec<Finding> {
    let annotations = Annotations::read(&service.metadata.annotations);
    if let Some(finding) = not_ours(service, annotations) {
        return finding.into_iter().collect();
    }
    let Controller::This(kind) = Controller::of(annotations) else { return elsewhere(service, annotations) };
    let stored = as_stored(service);
    let ownership = Ownership::untagged();
    let around =
        LintContext { service: &stored, kind, managed_network_groups: None, shared_probe: None, ownership: &ownership };
    let (refused, noticed) = refusals(&stored, kind, &HealthProbe::NodePort);
    let mut findings: Vec<Finding> = Vec::new();
    for finding in refused.iter().flat_map(summary) {
        // One mistake with the ports is enough.
        if !findings.iter().any(|before| before.key == finding.key) {
            findings.push(finding);
        }
    }
    // The same mistake, in other words.
    let known = |finding: &Finding| {
        finding.severity == Severity::Error && findings.iter().any(|refusal| refusal.key == finding.key)
    };
    let rest: Vec<Finding> = lint(&around).into_iter().filter(|finding| !known(finding)).chain(noticed).collect();
    findings.extend(rest);
    findings
}

/// A Service that no provider of this program serves: a word if it has annotations of ours.
fn not_ours(service: &Service, annotations: Annotations<'_>) -> Option<Option<Finding>> {
    let (key, value, whose) = match (&service.spec.load_balancer_class, service.is_load_balancer()) {
        (Some(class), true) => ("spec.loadBalancerClass", class, "a Service with a class is left to its controller"),
        (None, true) => return None,
        (_, false) => ("spec.type", &service.spec.kind, "only Services of type LoadBalancer have a load balancer"),
    };
    Some(TABLE.first(annotations).map(|row| Finding {
        severity: Severity::Info,
        key: key.to_owned(),
        value: Some(value.clone()),
        message: format!("{whose}: {} and the like have no effect here", row.key),
    }))
}

/// A Service of the aws-load-balancer-controller.
fn elsewhere(service: &Service, annotations: Annotations<'_>) -> Vec<Finding> {
    let left = Finding {
        severity: Severity::Info,
        key: TYPE.row.key.to_owned(),
        value: annotations.text(TYPE.row).map(str::to_owned),
        message: "left to the aws-load-balancer-controller: nothing is made here".to_owned(),
    };
    std::iter::once(left).chain(left_behind(service)).chain(lint_elsewhere(annotations)).collect()
}

fn summary(error: &ProviderError) -> Vec<Finding> {
    match error.class() {
        ErrorClass::Invalid { findings } if !findings.is_empty() => findings.clone(),
        _ => vec![Finding::new(Severity::Error, "service", error.to_string())],
    }
}

/// With what the API server fills in, so that a file is judged as what becomes of it.
fn as_stored(service: &Service) -> Service {
    /// Any port of the default range.
    const ALLOCATED: i32 = 30_000;
    let mut stored = service.clone();
    let allocates = stored.spec.allocate_load_balancer_node_ports != Some(false);
    for port in &mut stored.spec.ports {
        if port.protocol.is_empty() {
            "TCP".clone_into(&mut port.protocol);
        }
        if allocates && port.node_port == 0 {
            port.node_port = ALLOCATED;
        }
    }
    if stored.needs_health_check() && stored.spec.health_check_node_port == 0 {
        stored.spec.health_check_node_port = ALLOCATED;
    }
    stored
}
