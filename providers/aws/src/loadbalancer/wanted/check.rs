//! Checks before any call, in the order of upstream's `EnsureLoadBalancer`.

use std::collections::BTreeSet;

use ccm_kit::annotations::BalancerKind;
use ccm_provider::source_ranges::{SourceRanges, SourceRangesError};
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{Finding, ProviderError, Service, ServicePort, Severity};
use ipnet::IpNet;

use super::hostname;
use crate::annotations::{
    ACCESS_LOG, ACCESS_LOG_BUCKET, Annotations, EXTRA_SECURITY_GROUPS, Kind, SECURITY_GROUPS, TARGET_GROUP_ATTRIBUTES,
    TYPE, hides_client_ip, invalid,
};

/// All failing checks that precede those of the ports, in upstream's order. A sync reports only the first.
pub(super) fn before_ports(service: &Service, annotations: Annotations<'_>, kind: Kind) -> Vec<ProviderError> {
    let checks = [
        kind_is_kept(service, annotations, kind),
        no_extra_groups(annotations, kind),
        target_group_attributes(service, annotations, kind),
        no_affinity(service),
        one_protocol(service),
        source_ranges(service).map(drop),
    ];
    checks.into_iter().filter_map(Result::err).collect()
}

fn no_extra_groups(annotations: Annotations<'_>, kind: Kind) -> Result<(), ProviderError> {
    if kind == Kind::Network && annotations.has(&EXTRA_SECURITY_GROUPS) {
        let instead = SECURITY_GROUPS.row.key;
        let key = EXTRA_SECURITY_GROUPS.row.key;
        let problem = format!(
            "BYO extra security group annotation {key:?} is not supported by NLB; remove it, or name all groups in {instead}"
        );
        return Err(annotations.refuse(EXTRA_SECURITY_GROUPS.row, problem));
    }
    Ok(())
}

fn no_affinity(service: &Service) -> Result<(), ProviderError> {
    match &*service.spec.session_affinity {
        "" | "None" => Ok(()),
        affinity => {
            let problem = "unsupported load balancer affinity; write None";
            Err(about("spec.sessionAffinity", Some(affinity), problem))
        }
    }
}

/// The Service has ports, all of the same protocol.
fn one_protocol(service: &Service) -> Result<(), ProviderError> {
    let protocols: BTreeSet<&str> = service.spec.ports.iter().map(|port| &*port.protocol).collect();
    match protocols.len() {
        0 => Err(about("spec.ports", None, "requested load balancer with no ports; add one")),
        1 => Ok(()),
        _ => {
            let protocols = protocols.into_iter().collect::<Vec<_>>().join(", ");
            let problem = "mixed protocol is not supported for LoadBalancer; make a Service for each protocol";
            Err(about("spec.ports[].protocol", Some(&protocols), problem))
        }
    }
}

pub(super) fn after_ports(service: &Service) -> Result<(), ProviderError> {
    match &*service.spec.load_balancer_ip {
        "" => Ok(()),
        address => {
            let problem = "LoadBalancerIP cannot be specified for AWS ELB; remove it (network load balancers take \
                           addresses by annotation)";
            Err(about("spec.loadBalancerIP", Some(address), problem))
        }
    }
}

/// A balancer cannot change its kind without losing its hostname. A hostname that is absent or of an unknown form does
/// not block.
fn kind_is_kept(service: &Service, annotations: Annotations<'_>, kind: Kind) -> Result<(), ProviderError> {
    let Some(hostname) = hostname::of(service) else { return Ok(()) };
    match hostname::kind(hostname) {
        Some(found) if found != kind => {
            let wanted = match kind {
                Kind::Classic => "Classic Load Balancer",
                Kind::Network => "NLB",
            };
            let problem = format!(
                "cannot update Load Balancer Type annotation {:?} after creation for {wanted}: the Service has a {} \
                 ({hostname}); set the annotation back, or delete the Service and create it again",
                TYPE.row.key,
                found.as_str(),
            );
            Err(annotations.refuse(TYPE.row, problem))
        }
        _ => Ok(()),
    }
}

fn target_group_attributes(service: &Service, annotations: Annotations<'_>, kind: Kind) -> Result<(), ProviderError> {
    if !annotations.has(&TARGET_GROUP_ATTRIBUTES) {
        return Ok(());
    }
    if kind == Kind::Classic {
        let problem = "target group attributes annotation is only supported for NLB; remove it";
        return Err(annotations.refuse(TARGET_GROUP_ATTRIBUTES.row, problem));
    }
    let attributes = annotations.get_or_default(&TARGET_GROUP_ATTRIBUTES)?;
    if hides_client_ip(&attributes) && service.spec.ports.iter().any(|port| port.protocol == "UDP") {
        let problem = "client IP preservation can't be disabled for UDP ports; write preserve_client_ip.enabled=true or \
                       remove the UDP ports";
        return Err(annotations.refuse(TARGET_GROUP_ATTRIBUTES.row, problem));
    }
    Ok(())
}

/// The allowed IPv4 ranges, sorted and unique, and a finding about the others: an error if there are only others.
pub(super) fn source_ranges(service: &Service) -> Result<(Vec<IpNet>, Option<Finding>), ProviderError> {
    let key = match &service.spec.load_balancer_source_ranges {
        Some(ranges) if !ranges.is_empty() => "spec.loadBalancerSourceRanges",
        _ => ANNOTATION_SOURCE_RANGES,
    };
    let ranges = SourceRanges::of(service).map_err(|error| {
        let bad = match &error {
            SourceRangesError::Spec { bad, .. } | SourceRangesError::Annotation { bad, .. } => bad,
        };
        let problem = format!("not a CIDR, in: {error}");
        about(key, Some(bad), &problem)
    })?;
    let (allowed, others): (Vec<IpNet>, Vec<IpNet>) =
        ranges.iter().copied().partition(|range| matches!(range, IpNet::V4(_)));
    let severity = if allowed.is_empty() { Severity::Error } else { Severity::Warning };
    let names: Vec<String> = others.iter().map(IpNet::to_string).collect();
    let problem = "IPv6 ranges cannot be served: load balancers of this program are IPv4; remove them";
    let finding = Finding::new(severity, key, problem).value(names.join(","));
    Ok((allowed, (!others.is_empty()).then_some(finding)))
}

/// The error of a Service whose source ranges allow no client.
pub(super) fn no_client(ignored: Option<&Finding>) -> Option<ProviderError> {
    ignored.filter(|finding| finding.severity == Severity::Error).cloned().map(invalid)
}

/// Whether access logs are on, and their bucket, which AWS requires then.
pub(super) fn access_log(annotations: Annotations<'_>) -> Result<(bool, Option<String>), ProviderError> {
    let (enabled, bucket) = (annotations.get_or_default(&ACCESS_LOG)?, annotations.get(&ACCESS_LOG_BUCKET)?);
    if enabled && bucket.is_none() {
        let problem = format!("AWS takes no logs without a bucket; set {} too", ACCESS_LOG_BUCKET.row.key);
        return Err(annotations.refuse(ACCESS_LOG.row, problem));
    }
    Ok((enabled, bucket))
}

/// Settings without effect, because clients and nodes are reached over IPv4 only.
pub(super) fn families(service: &Service) -> Vec<Finding> {
    let warn = |key: &str, value: &str, message: &str| Finding::warning(key, message).value(value);
    let ignored = source_ranges(service).ok().and_then(|(_, ignored)| ignored);
    let mut findings: Vec<Finding> = ignored.into_iter().filter(|it| it.severity == Severity::Warning).collect();
    let families = &service.spec.ip_families;
    if !families.is_empty() && families.iter().all(|family| family == "IPv6") {
        let message =
            "the load balancer is IPv4 and reaches no node port of an IPv6 Service; add IPv4 to spec.ipFamilies";
        findings.push(warn("spec.ipFamilies", &families.join(","), message));
    }
    if let Some(policy) = service.spec.ip_family_policy.as_deref().filter(|policy| *policy == "RequireDualStack") {
        let message = "the load balancer is IPv4 only; clients of the other family cannot reach it";
        findings.push(warn("spec.ipFamilyPolicy", policy, message));
    }
    findings
}

pub(crate) fn about(key: &str, value: Option<&str>, problem: &str) -> ProviderError {
    invalid(Finding { value: value.map(str::to_owned), ..Finding::new(Severity::Error, key, problem) })
}

pub(crate) fn no_usable_ports() -> ProviderError {
    let problem = "no usable ports: a load balancer reaches pods through node ports, and none is allocated; set \
                   spec.allocateLoadBalancerNodePorts to true or give each port a nodePort";
    about("spec.ports", None, problem)
}

pub(crate) fn without_node_port(port: &ServicePort) -> Finding {
    let message = format!("port {} is not served: it has no node port; give it one", port.port);
    Finding::warning("spec.ports[].nodePort", message)
}
