//! Pod ranges of instances: alias ranges, and a part of the IPv6 addresses. Pure.
//!
//! Upstream: `pkg/controller/nodeipam/ipam/cloud_cidr_allocator.go`.

use std::net::Ipv6Addr;

use ccm_provider::PodInterface;
use ipnet::Ipv6Net;

use super::addresses::ipv6;
use crate::client::instance::{Instance, NetworkInterface};

/// The name of the primary NIC.
const FIRST: &str = "nic0";
/// The prefix length of the pod range at the beginning of a NIC's IPv6 range.
const IPV6_LENGTH: u8 = 112;

/// The NICs of an instance, each with its pod ranges.
pub(super) fn of_instance(instance: &Instance) -> Vec<PodInterface> {
    instance.network_interfaces.iter().map(of_nic).collect()
}

fn of_nic(nic: &NetworkInterface) -> PodInterface {
    let aliases = nic.alias_ip_ranges.iter().map(|range| range.ip_cidr_range.clone());
    let ranges = aliases.chain(ipv6(nic).parse().ok().and_then(range)).collect();
    PodInterface { primary: nic.name == FIRST, ranges }
}

fn range(address: Ipv6Addr) -> Option<String> {
    Some(Ipv6Net::new(address, IPV6_LENGTH).ok()?.trunc().to_string())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn p53_nic0_is_the_first_whatever_the_order() {
        let instance: Instance = serde_json::from_value(json!({"name": "n1", "networkInterfaces": [
            {"name": "nic1", "aliasIpRanges": [{"ipCidrRange": "10.9.0.0/24"}]},
            {"name": "nic0", "ipv6Address": "2001:2d00:0:1::5", "ipv6AccessType": "INTERNAL",
                "aliasIpRanges": [{"ipCidrRange": "10.64.1.0/24", "subnetworkRangeName": "pods"}, {"ipCidrRange": "10.70.0.0/28"}]},
            {"name": "nic2"}]}))
        .unwrap();
        let interface = |primary, ranges: &[&str]| PodInterface {
            primary,
            ranges: ranges.iter().map(|range| (*range).to_owned()).collect(),
        };
        let expected = [
            interface(false, &["10.9.0.0/24"]),
            interface(true, &["10.64.1.0/24", "10.70.0.0/28", "2001:2d00:0:1::/112"]),
            interface(false, &[]),
        ];
        assert_eq!(of_instance(&instance), expected);
    }
}
