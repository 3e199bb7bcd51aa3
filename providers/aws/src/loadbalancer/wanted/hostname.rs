//! Reads the kind and name of a balancer from the hostname in the status.
//!
//! Classic balancers are `<label>.<region>.elb.<suffix>`, network balancers `<label>.elb.<region>.<suffix>`, in every
//! partition; the label is `<name>-<hash>`, with the prefix `internal-` for an internal classic one. Upstream knows one
//! suffix and takes classic balancers of China, the ISO regions and the European sovereign cloud for network balancers
//! (`pkg/providers/v1/aws_validations.go`).

use ccm_provider::Service;

use crate::annotations::Kind;

/// The first hostname in the status; `None` if there is none.
pub(super) fn of(service: &Service) -> Option<&str> {
    service.status.load_balancer.ingress.first().map(|ingress| &*ingress.hostname).filter(|name| !name.is_empty())
}

/// The kind of the balancer; `None` when the name has neither form.
pub(super) fn kind(hostname: &str) -> Option<Kind> {
    let labels: Vec<&str> = hostname.split('.').collect();
    match labels.as_slice() {
        [_, region, "elb", _, _, ..] if is_region(region) => Some(Kind::Classic),
        [_, "elb", region, _, _, ..] if is_region(region) => Some(Kind::Network),
        _ => None,
    }
}

/// `us-west-2`, `us-gov-east-1`, `us-isob-east-1`
fn is_region(label: &str) -> bool {
    let mut parts = label.rsplit('-');
    let number = parts.next().is_some_and(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit()));
    let words = parts.filter(|part| !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_lowercase())).count();
    number && words >= 2
}

/// Whether the status contains the hostname of a balancer with this name.
pub(super) fn shows(service: &Service, name: &str) -> bool {
    let ours = |hostname: &str| {
        let label = hostname.split('.').next().unwrap_or_default();
        let rest = label.strip_prefix("internal-").unwrap_or(label).strip_prefix(name);
        kind(hostname).is_some() && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('-'))
    };
    service.status.load_balancer.ingress.iter().any(|ingress| ours(&ingress.hostname))
}
