//! Texts in objects and flags.

use ccm_provider::address::{filter_by_node_ips, parse_cidr, parse_ip, parse_provided_node_ips, same_addresses};
use ccm_provider::source_ranges::SourceRanges;
use ccm_provider::well_known::ANNOTATION_SOURCE_RANGES;
use ccm_provider::{AddressType, NodeAddress, Service, duration};

pub(crate) fn duration(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    if let Ok(parsed) = duration::parse(text) {
        assert!(parsed <= duration::MAX);
        let printed = duration::format(parsed);
        assert_eq!(duration::parse(&printed), Ok(parsed), "{text:?} prints as {printed}");
    }
}

/// Source ranges of a Service, in its specification and in its annotation.
pub(crate) fn ranges(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let mut annotated = Service::default();
    annotated.metadata.annotations.insert(ANNOTATION_SOURCE_RANGES.to_owned(), text.to_owned());
    let mut specified = Service::default();
    specified.spec.load_balancer_source_ranges = Some(text.split(',').map(str::to_owned).collect());
    for service in [annotated, specified] {
        let Ok(ranges) = SourceRanges::of(&service) else { continue };
        assert!(!ranges.0.is_empty(), "an empty set would let nobody in");
        let mut again = Service::default();
        again.spec.load_balancer_source_ranges = Some(ranges.iter().map(ToString::to_string).collect());
        assert_eq!(SourceRanges::of(&again), Ok(ranges));
    }
    if let Some(range) = parse_cidr(text) {
        assert_eq!(parse_cidr(&range.to_string()), Some(range));
    }
}

/// The annotation with a node's addresses, and addresses of the cloud: `provided|cloud cloud …`.
pub(crate) fn addresses(data: &[u8]) {
    let Ok(text) = std::str::from_utf8(data) else { return };
    let (provided, cloud) = text.split_once('|').unwrap_or((text, "10.0.0.1 fd00::1 x"));
    let kinds = [AddressType::InternalIp, AddressType::ExternalIp, AddressType::Hostname];
    let cloud: Vec<NodeAddress> = cloud
        .split(' ')
        .zip(kinds.iter().cycle())
        .map(|(address, kind)| NodeAddress { kind: kind.clone(), address: address.into() })
        .collect();
    if let Some(ip) = parse_ip(provided) {
        assert_eq!(parse_ip(&ip.to_string()), Some(ip));
    }
    let parsed = parse_provided_node_ips(provided);
    if let Ok(kept) = filter_by_node_ips(&cloud, provided) {
        assert!(parsed.is_ok_and(|ips| !ips.is_empty()));
        assert!(kept.iter().all(|address| cloud.contains(address)), "{kept:?} of {cloud:?}");
        let again = filter_by_node_ips(&kept, provided);
        assert!(again.as_ref().is_ok_and(|again| same_addresses(&kept, again)), "{kept:?}, then {again:?}");
    }
}
