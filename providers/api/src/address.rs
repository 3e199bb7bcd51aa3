//! Node addresses: parsing IP addresses as Kubernetes does, and the rules that produce a node's address list.
//!
//! Behavior of `k8s.io/utils/net` (`ParseIPSloppy`, `ParseCIDRSloppy`), `kubernetes/cloud-provider`
//! `node/helpers/address.go` and `controllers/node/node_controller.go`, and `kubernetes/component-helpers`
//! `node/util/ips.go`, `node/util/cloudproviders/`.
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;

use ipnet::{IpNet, Ipv4Net, Ipv6Net};
use serde::{Deserialize, Serialize};

/// Kind of a node address. Unknown words are kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(from = "Arc<str>", into = "Arc<str>")]
pub enum AddressType {
    /// `Hostname`
    Hostname,
    /// `InternalIP`
    InternalIp,
    /// `ExternalIP`
    ExternalIp,
    /// `InternalDNS`
    InternalDns,
    /// `ExternalDNS`
    ExternalDns,
    /// Any other word.
    Other(Arc<str>),
}

impl AddressType {
    /// The spelling of Kubernetes.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Hostname => "Hostname",
            Self::InternalIp => "InternalIP",
            Self::ExternalIp => "ExternalIP",
            Self::InternalDns => "InternalDNS",
            Self::ExternalDns => "ExternalDNS",
            Self::Other(word) => word,
        }
    }
}

impl From<&str> for AddressType {
    fn from(word: &str) -> Self {
        match word {
            "Hostname" => Self::Hostname,
            "InternalIP" => Self::InternalIp,
            "ExternalIP" => Self::ExternalIp,
            "InternalDNS" => Self::InternalDns,
            "ExternalDNS" => Self::ExternalDns,
            other => Self::Other(other.into()),
        }
    }
}

impl From<Arc<str>> for AddressType {
    fn from(word: Arc<str>) -> Self {
        Self::from(&*word)
    }
}

impl From<AddressType> for Arc<str> {
    fn from(kind: AddressType) -> Self {
        kind.as_str().into()
    }
}

/// One address of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeAddress {
    /// Kind.
    #[serde(rename = "type")]
    pub kind: AddressType,
    /// An IP address or a name.
    pub address: Box<str>,
}

impl NodeAddress {
    /// An address of the given kind.
    pub fn new(kind: AddressType, address: impl Into<Box<str>>) -> Self {
        Self { kind, address: address.into() }
    }

    /// The address as an IP, if it is one.
    pub fn ip(&self) -> Option<IpAddr> {
        parse_ip(&self.address)
    }
}

/// Parses an IP address as Kubernetes does: octets with leading zeros are decimal (`010.0.0.1` is `10.0.0.1`), since
/// objects of old clusters may contain them. Zone IDs (`fe80::1%eth0`) are rejected. An IPv4-mapped IPv6 address
/// (`::ffff:10.0.0.1`) is parsed as the IPv4 address.
pub fn parse_ip(text: &str) -> Option<IpAddr> {
    match parse_v4(text) {
        Some(ip) => Some(ip.into()),
        None => parse_v6(text).map(|ip| IpAddr::from(ip).to_canonical()),
    }
}

/// Parses a CIDR with the same tolerance as [`parse_ip`] and returns its network: host bits are cleared.
pub fn parse_cidr(text: &str) -> Option<IpNet> {
    let (address, prefix) = text.split_once('/')?;
    let prefix = small_decimal(prefix)?;
    let net = match parse_v4(address) {
        Some(ip) => Ipv4Net::new(ip, prefix).ok().map(IpNet::from),
        None => Ipv6Net::new(parse_v6(address)?, prefix).ok().map(IpNet::from),
    };
    net.map(|net| net.trunc())
}

fn parse_v4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = text.split('.').map(small_decimal);
    let ip = Ipv4Addr::new(octets.next()??, octets.next()??, octets.next()??, octets.next()??);
    octets.next().is_none().then_some(ip)
}

fn parse_v6(text: &str) -> Option<Ipv6Addr> {
    if let Ok(ip) = text.parse() {
        return Some(ip);
    }
    // The standard parser is strict about an embedded IPv4 address.
    let (head, tail) = text.rsplit_once(':')?;
    format!("{head}:{}", parse_v4(tail)?).parse().ok()
}

/// A decimal number up to 255; digits only, any number of leading zeros.
fn small_decimal(text: &str) -> Option<u8> {
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    match text.trim_start_matches('0') {
        "" => Some(0),
        digits => digits.parse().ok(),
    }
}

/// Parses the value of the annotation `alpha.kubernetes.io/provided-node-ip`: one IP, or an IPv4 and an IPv6 address
/// in either order, separated by a comma without a space.
///
/// # Errors
///
/// The inner text of upstream's message; [`filter_by_node_ips`] prepends the annotation's value. An empty value is
/// an error.
pub fn parse_provided_node_ips(provided: &str) -> Result<Vec<IpAddr>, String> {
    let ips = provided
        .split(',')
        .map(|part| parse_ip(part).ok_or_else(|| format!("could not parse {part:?}")))
        .collect::<Result<Vec<_>, _>>()?;
    match ips.as_slice() {
        [_] => {}
        [first, second] if first.is_ipv4() != second.is_ipv4() => {
            if first.is_unspecified() || second.is_unspecified() {
                return Err("dual-stack node IP cannot include '0.0.0.0' or '::'".to_owned());
            }
        }
        _ => return Err("must contain either a single IP or a dual-stack pair of IPs".to_owned()),
    }
    Ok(ips)
}

/// The cloud's addresses, filtered and ordered by the kubelet's `--node-ip`: for each provided IP, in order, the
/// addresses equal to it (in the cloud's spelling); then all addresses of the types that none of those has, in the
/// cloud's order. Other addresses of a matched type are dropped.
///
/// # Errors
///
/// The annotation cannot be parsed, or one of its IPs is not among the cloud's addresses.
pub fn filter_by_node_ips(cloud: &[NodeAddress], provided: &str) -> Result<Vec<NodeAddress>, String> {
    let ips =
        parse_provided_node_ips(provided).map_err(|inner| format!("failed to parse node IP {provided:?}: {inner}"))?;
    let mut kept: Vec<NodeAddress> = Vec::new();
    let mut matched_types: Vec<&AddressType> = Vec::new();
    for ip in ips {
        let mut found = false;
        for address in cloud.iter().filter(|address| address.ip() == Some(ip)) {
            found = true;
            kept.push(address.clone());
            matched_types.push(&address.kind);
        }
        if !found {
            return Err(format!("failed to get node address from cloud provider that matches ip: {ip}"));
        }
    }
    kept.extend(cloud.iter().filter(|address| !matched_types.contains(&&address.kind)).cloned());
    Ok(kept)
}

/// Whether the new list needs no write: for each type, the same addresses in the same order. The order between types
/// does not matter.
///
/// Upstream compares with the *last* address of each type, and therefore writes each period to every dual-stack node
/// (`controllers/node/node_controller.go`, `nodeAddressesChangeDetected`). Here equal lists cause no write, and a
/// changed order within a type does.
pub fn same_addresses(old: &[NodeAddress], new: &[NodeAddress]) -> bool {
    fn of_type<'a>(list: &'a [NodeAddress], kind: &'a AddressType) -> impl Iterator<Item = &'a NodeAddress> {
        list.iter().filter(move |address| address.kind == *kind)
    }
    old.len() == new.len() && old.iter().all(|address| of_type(old, &address.kind).eq(of_type(new, &address.kind)))
}

/// Whether both lists contain the same addresses, regardless of order and repetition: the comparison of the route
/// controller.
pub fn same_set(one: &[NodeAddress], other: &[NodeAddress]) -> bool {
    one.iter().all(|address| other.contains(address)) && other.iter().all(|address| one.contains(address))
}

/// The cloud's addresses, followed by the node's own host names if the cloud returns none.
#[must_use]
pub fn with_hostname(mut cloud: Vec<NodeAddress>, existing: &[NodeAddress]) -> Vec<NodeAddress> {
    let is_hostname = |address: &&NodeAddress| address.kind == AddressType::Hostname;
    if !cloud.iter().any(|address| is_hostname(&address)) {
        cloud.extend(existing.iter().filter(is_hostname).cloned());
    }
    cloud
}

#[cfg(test)]
mod tests {
    use AddressType::{ExternalIp, Hostname, InternalIp};
    use proptest::prelude::*;

    use super::*;

    fn addresses(list: &[(AddressType, &str)]) -> Vec<NodeAddress> {
        list.iter().map(|(kind, address)| NodeAddress::new(kind.clone(), *address)).collect()
    }

    #[test]
    fn leading_zeros_are_decimal_and_nothing_else_is_tolerated() {
        for (text, ip) in [
            ("10.0.0.1", "10.0.0.1"),
            ("010.000.0.01", "10.0.0.1"),
            ("0000000010.0.0.1", "10.0.0.1"),
            ("FD00::1", "fd00::1"),
            ("fd00:0:0::0001", "fd00::1"),
            ("::ffff:10.0.0.1", "10.0.0.1"),
            ("::ffff:010.0.0.1", "10.0.0.1"),
            ("64:ff9b::10.0.0.01", "64:ff9b::a00:1"),
        ] {
            assert_eq!(parse_ip(text), Some(ip.parse().unwrap()), "{text}");
        }
        for text in [
            "",
            " 10.0.0.1",
            "10.0.0.1 ",
            "10.0.0",
            "10.0.0.1.",
            "10.0.0.256",
            "10.0.0.+1",
            "10.0.0.0x1",
            "10.0.0.1/8",
            "fe80::1%eth0",
            "[::1]",
            ":",
            ":::",
            ":10.0.0.1",
            "10.0.0.1:80",
            "host",
        ] {
            assert_eq!(parse_ip(text), None, "{text}");
        }
    }

    #[test]
    fn a_cidr_is_read_as_its_network() {
        for (text, net) in [
            ("10.0.0.0/24", "10.0.0.0/24"),
            ("10.0.0.77/24", "10.0.0.0/24"),
            ("010.0.0.0/08", "10.0.0.0/8"),
            ("192.168.0.0/0", "0.0.0.0/0"),
            ("fd00::1/64", "fd00::/64"),
            ("::/0", "::/0"),
        ] {
            assert_eq!(parse_cidr(text), Some(net.parse().unwrap()), "{text}");
        }
        for text in ["", "/", "10.0.0.0", "10.0.0.0/", "10.0.0.0/33", "::/129", "10.0.0.0/+8", "10.0.0.0/8/8", "/8"] {
            assert_eq!(parse_cidr(text), None, "{text}");
        }
    }

    #[test]
    fn the_annotation_holds_one_ip_or_a_dual_stack_pair() {
        let ips = |list: &[&str]| Ok(list.iter().map(|ip| ip.parse().unwrap()).collect::<Vec<IpAddr>>());
        assert_eq!(parse_provided_node_ips("10.0.0.1"), ips(&["10.0.0.1"]));
        assert_eq!(parse_provided_node_ips("fd00::1,010.0.0.1"), ips(&["fd00::1", "10.0.0.1"]));
        assert_eq!(parse_provided_node_ips("0.0.0.0"), ips(&["0.0.0.0"]));
        let pair = "must contain either a single IP or a dual-stack pair of IPs";
        for (value, message) in [
            ("", r#"could not parse """#),
            ("x", r#"could not parse "x""#),
            ("10.0.0.1, fd00::1", r#"could not parse " fd00::1""#),
            ("10.0.0.1,", r#"could not parse """#),
            ("10.0.0.1,10.0.0.2", pair),
            ("fd00::1,fd00::2", pair),
            ("10.0.0.1,fd00::1,fd00::2", pair),
            ("0.0.0.0,fd00::1", "dual-stack node IP cannot include '0.0.0.0' or '::'"),
            ("10.0.0.1,::", "dual-stack node IP cannot include '0.0.0.0' or '::'"),
        ] {
            assert_eq!(parse_provided_node_ips(value).unwrap_err(), message, "{value}");
        }
    }

    #[test]
    fn a_provided_ip_that_the_cloud_does_not_know_is_an_error() {
        let cloud = addresses(&[(InternalIp, "10.0.0.1")]);
        assert_eq!(
            filter_by_node_ips(&cloud, "10.0.0.2").unwrap_err(),
            "failed to get node address from cloud provider that matches ip: 10.0.0.2"
        );
        assert_eq!(
            filter_by_node_ips(&cloud, "10.0.0.1,fd00::1").unwrap_err(),
            "failed to get node address from cloud provider that matches ip: fd00::1"
        );
    }

    #[test]
    fn an_empty_provided_ip_is_an_error() {
        assert_eq!(
            filter_by_node_ips(&addresses(&[(InternalIp, "10.0.0.1")]), "").unwrap_err(),
            r#"failed to parse node IP "": could not parse """#
        );
    }

    #[test]
    fn other_addresses_of_the_matched_type_go_and_the_own_hostname_stays_last() {
        let cloud = addresses(&[(InternalIp, "10.0.0.1"), (InternalIp, "10.0.0.9"), (ExternalIp, "1.2.3.4")]);
        let existing = addresses(&[(Hostname, "h")]);
        let filtered = filter_by_node_ips(&with_hostname(cloud, &existing), "10.0.0.1").unwrap();
        assert_eq!(filtered, addresses(&[(InternalIp, "10.0.0.1"), (ExternalIp, "1.2.3.4"), (Hostname, "h")]));
    }

    #[test]
    fn a_provided_external_address_comes_first_and_all_internal_ones_stay() {
        let cloud = addresses(&[
            (InternalIp, "10.0.0.1"),
            (InternalIp, "10.0.0.9"),
            (ExternalIp, "1.2.3.4"),
            (ExternalIp, "1.2.3.5"),
        ]);
        let filtered = filter_by_node_ips(&cloud, "1.2.3.4").unwrap();
        assert_eq!(filtered, addresses(&[(ExternalIp, "1.2.3.4"), (InternalIp, "10.0.0.1"), (InternalIp, "10.0.0.9")]));
    }

    #[test]
    fn a_provided_pair_keeps_both_in_its_own_order() {
        let cloud = addresses(&[
            (InternalIp, "10.0.0.1"),
            (InternalIp, "fd00::9"),
            (InternalIp, "fd00::1"),
            (ExternalIp, "1.2.3.4"),
        ]);
        let filtered = filter_by_node_ips(&cloud, "fd00::1,10.0.0.1").unwrap();
        assert_eq!(filtered, addresses(&[(InternalIp, "fd00::1"), (InternalIp, "10.0.0.1"), (ExternalIp, "1.2.3.4")]));
    }

    #[test]
    fn another_spelling_matches_and_that_of_the_cloud_is_written() {
        let cloud = addresses(&[(InternalIp, "FD00:0:0::0001"), (Hostname, "node")]);
        assert_eq!(filter_by_node_ips(&cloud, "fd00::1").unwrap(), cloud);
    }

    #[test]
    fn an_address_of_two_types_is_kept_twice() {
        let cloud = addresses(&[(ExternalIp, "10.0.0.1"), (InternalIp, "10.0.0.1"), (InternalIp, "10.0.0.2")]);
        assert_eq!(
            filter_by_node_ips(&cloud, "10.0.0.1").unwrap(),
            addresses(&[(ExternalIp, "10.0.0.1"), (InternalIp, "10.0.0.1")])
        );
    }

    #[test]
    fn both_own_hostnames_stay_where_the_cloud_gives_none() {
        let existing = addresses(&[(Hostname, "a"), (InternalIp, "10.0.0.5"), (Hostname, "b")]);
        assert_eq!(
            with_hostname(addresses(&[(InternalIp, "10.0.0.1")]), &existing),
            addresses(&[(InternalIp, "10.0.0.1"), (Hostname, "a"), (Hostname, "b")])
        );
        let cloud = addresses(&[(Hostname, "cloud"), (InternalIp, "10.0.0.1")]);
        assert_eq!(with_hostname(cloud.clone(), &existing), cloud);
    }

    #[test]
    fn an_unchanged_dual_stack_node_is_no_change() {
        let old = addresses(&[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1"), (Hostname, "h")]);
        assert!(same_addresses(&old, &old.clone()));
        let types_swapped = addresses(&[(Hostname, "h"), (InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")]);
        assert!(same_addresses(&old, &types_swapped));
        let swapped_within = addresses(&[(InternalIp, "fd00::1"), (InternalIp, "10.0.0.1"), (Hostname, "h")]);
        assert!(!same_addresses(&old, &swapped_within));
    }

    #[test]
    fn a_lost_gained_or_retyped_address_is_a_change() {
        let two = addresses(&[(InternalIp, "10.0.0.1"), (InternalIp, "10.0.0.2")]);
        let one = addresses(&[(InternalIp, "10.0.0.1")]);
        assert!(!same_addresses(&two, &one) && !same_addresses(&one, &two));
        assert!(!same_addresses(&one, &addresses(&[(ExternalIp, "10.0.0.1")])));
        assert!(!same_addresses(&two, &addresses(&[(InternalIp, "10.0.0.1"), (ExternalIp, "10.0.0.2")])));
        assert!(same_addresses(&[], &[]));
    }

    #[test]
    fn routes_compare_addresses_as_sets() {
        let one = addresses(&[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")]);
        assert!(same_set(&one, &addresses(&[(InternalIp, "fd00::1"), (InternalIp, "10.0.0.1")])));
        assert!(!same_set(&one, &addresses(&[(InternalIp, "10.0.0.1")])));
        assert!(!same_set(&one, &addresses(&[(InternalIp, "10.0.0.1"), (ExternalIp, "fd00::1")])));
    }

    proptest! {
        #[test]
        fn parsers_never_panic(text in "\\PC*", near in "[0-9a-f.:/%]{0,40}") {
            for text in [&text, &near] {
                let _ = (parse_ip(text), parse_cidr(text), parse_provided_node_ips(text));
            }
        }

        #[test]
        fn printed_addresses_parse(v4 in any::<u32>(), v6 in any::<u128>(), prefix in 0_u8..=32) {
            let v4 = Ipv4Addr::from(v4);
            prop_assert_eq!(parse_ip(&v4.to_string()), Some(v4.into()));
            let v6 = IpAddr::from(Ipv6Addr::from(v6));
            prop_assert_eq!(parse_ip(&v6.to_string()), Some(v6.to_canonical()));
            let net = IpNet::from(Ipv4Net::new(v4, prefix).unwrap()).trunc();
            prop_assert_eq!(parse_cidr(&format!("{v4}/{prefix}")), Some(net));
        }

        #[test]
        fn same_addresses_is_symmetric_and_finer_than_same_set(
            one in proptest::collection::vec((0_usize..3, 0_u8..3), 0..5),
            other in proptest::collection::vec((0_usize..3, 0_u8..3), 0..5),
        ) {
            let list = |of: &[(usize, u8)]| of.iter().map(|(kind, octet)| {
                NodeAddress::new([Hostname, InternalIp, ExternalIp][*kind].clone(), format!("10.0.0.{octet}"))
            }).collect::<Vec<_>>();
            let (one, other) = (list(&one), list(&other));
            prop_assert_eq!(same_addresses(&one, &other), same_addresses(&other, &one));
            prop_assert!(!same_addresses(&one, &other) || same_set(&one, &other));
        }
    }
}
