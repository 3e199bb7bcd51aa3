//! Findings about a Service from its manifest alone, without cluster or cloud.

use ccm_provider::{ErrorClass, Finding, ProviderError, Service, Severity};

use super::of_service::{Controller, previous_balancer, refusals};
use crate::annotations::{Annotations, LintContext, TABLE, TYPE, lint, lint_other_controller};
use crate::ownership::Ownership;

/// All findings, those that prevent a balancer first.
///
/// Findings that depend on the cloud config say so. The cluster's ownership tags are unknown here.
pub(crate) fn review(service: &Service) -> Vec<Finding> {
    let annotations = Annotations::read(&service.metadata.annotations);
    if let Some(finding) = not_managed(service, annotations) {
        return finding.into_iter().collect();
    }
    let Controller::This(kind) = Controller::of(annotations) else { return other_controller(service, annotations) };
    let stored = as_stored(service);
    let ownership = Ownership::untagged();
    let context =
        LintContext { service: &stored, kind, managed_network_groups: None, shared_probe: None, ownership: &ownership };
    let (refused, noticed) = refusals(&stored, kind);
    let mut findings: Vec<Finding> = Vec::new();
    for finding in refused.iter().flat_map(summary) {
        // Report one mistake per key.
        if !findings.iter().any(|before| before.key == finding.key) {
            findings.push(finding);
        }
    }
    // The lint reports the same mistake in other words.
    let known = |finding: &Finding| {
        finding.severity == Severity::Error && findings.iter().any(|refusal| refusal.key == finding.key)
    };
    let rest: Vec<Finding> = lint(&context).into_iter().filter(|finding| !known(finding)).chain(noticed).collect();
    findings.extend(rest);
    findings
}

/// A Service that this program does not serve: a finding if it has annotations of this provider.
fn not_managed(service: &Service, annotations: Annotations<'_>) -> Option<Option<Finding>> {
    let (key, value, whose) = match (&service.spec.load_balancer_class, service.is_load_balancer()) {
        (Some(class), true) => ("spec.loadBalancerClass", class, "a Service with a class is left to its controller"),
        (None, true) => return None,
        (_, false) => ("spec.type", &service.spec.kind, "only Services of type LoadBalancer have a load balancer"),
    };
    Some(TABLE.first(annotations).map(|row| {
        Finding::new(Severity::Info, key, format!("{whose}: {} and the like have no effect here", row.key))
            .value(value.clone())
    }))
}

/// A Service of the aws-load-balancer-controller.
fn other_controller(service: &Service, annotations: Annotations<'_>) -> Vec<Finding> {
    let left = annotations.inform(TYPE.row, "left to the aws-load-balancer-controller: this program creates nothing");
    std::iter::once(left).chain(previous_balancer(service)).chain(lint_other_controller(annotations)).collect()
}

fn summary(error: &ProviderError) -> Vec<Finding> {
    match error.class() {
        ErrorClass::Invalid { findings } if !findings.is_empty() => findings.clone(),
        _ => vec![Finding::new(Severity::Error, "service", error.to_string())],
    }
}

/// With the defaults that the API server fills in.
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
