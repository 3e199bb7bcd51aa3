//! The addresses of a node, from those of its instance. Pure.
//!
//! Upstream: `pkg/providers/v1/aws.go`, `extractIPv4NodeAddresses` and `extractIPv6NodeAddresses`. Upstream sorts the
//! interfaces for IPv4 only; here the order is the same for both families.

use std::net::Ipv6Addr;

use ccm_provider::{AddressType, NodeAddress, ProviderError};

use crate::client::ec2::{self, Instance, InstanceInterface, NetworkInterface};
use crate::start::config::Family;

/// Only interfaces in this state carry traffic.
const IN_USE: &str = "in-use";

/// The addresses of an instance: for each family in turn, by device index. An interface that is on its way in or out adds
/// nothing.
pub(crate) fn of_instance(instance: &Instance, families: &[Family]) -> Result<Vec<NodeAddress>, ProviderError> {
    let mut interfaces: Vec<&InstanceInterface> = instance.interfaces.iter().collect();
    // Stable: without attachment last, in EC2's order.
    interfaces.sort_by_key(|interface| interface.device_index.unwrap_or(i32::MAX));
    interfaces.retain(|interface| interface.status == IN_USE);
    let mut addresses = Vec::new();
    for family in families {
        match family {
            Family::Ipv4 => ipv4(instance, &interfaces, &mut addresses)?,
            Family::Ipv6 => {
                for ip in interfaces.iter().filter_map(|interface| interface.ipv6.first()) {
                    addresses.push(v6(ip, &instance.id)?);
                }
            }
        }
    }
    Ok(addresses)
}

fn ipv4(
    instance: &Instance,
    interfaces: &[&InstanceInterface],
    addresses: &mut Vec<NodeAddress>,
) -> Result<(), ProviderError> {
    for ip in interfaces.iter().flat_map(|interface| &interface.private_ips) {
        addresses.push(v4(AddressType::InternalIp, ip, &instance.id)?);
    }
    if let Some(ip) = instance.public_ip.as_deref().filter(|ip| !ip.is_empty()) {
        addresses.push(v4(AddressType::ExternalIp, ip, &instance.id)?);
    }
    if !instance.private_dns_name.is_empty() {
        addresses.push(NodeAddress::new(AddressType::InternalDns, &*instance.private_dns_name));
        addresses.push(NodeAddress::new(AddressType::Hostname, &*instance.private_dns_name));
    }
    if !instance.public_dns_name.is_empty() {
        addresses.push(NodeAddress::new(AddressType::ExternalDns, &*instance.public_dns_name));
    }
    Ok(())
}

/// The addresses of a Fargate node. A family of which the interface has no address is left out.
pub(crate) fn of_interface(
    interface: &NetworkInterface,
    families: &[Family],
) -> Result<Vec<NodeAddress>, ProviderError> {
    let mut addresses = Vec::new();
    for family in families {
        let ip = match family {
            Family::Ipv4 => {
                interface.private_ip.as_deref().map(|ip| v4(AddressType::InternalIp, ip, &interface.id)).transpose()?
            }
            Family::Ipv6 => interface.ipv6.first().map(|ip| v6(ip, &interface.id)).transpose()?,
        };
        let Some(ip) = ip else { continue };
        addresses.push(ip);
        if !interface.private_dns_name.is_empty() {
            addresses.push(NodeAddress::new(AddressType::InternalDns, &*interface.private_dns_name));
        }
    }
    Ok(addresses)
}

fn v4(kind: AddressType, text: &str, of: &str) -> Result<NodeAddress, ProviderError> {
    let ip = ec2::ipv4(text).ok_or_else(|| bad(text, of))?;
    Ok(NodeAddress::new(kind, ip.to_string()))
}

fn v6(text: &str, of: &str) -> Result<NodeAddress, ProviderError> {
    let ip: Ipv6Addr = text.parse().map_err(|_| bad(text, of))?;
    Ok(NodeAddress::new(AddressType::InternalIp, ip.to_string()))
}

fn bad(text: &str, of: &str) -> ProviderError {
    ProviderError::unknown(format!("EC2 gives {text:?} as an address of {of}, which is no IP address"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use AddressType::{ExternalDns, ExternalIp, Hostname, InternalDns, InternalIp};

    fn interface(device_index: Option<i32>, ips: &[&str], ipv6: &[&str]) -> InstanceInterface {
        let texts = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect();
        InstanceInterface {
            status: "in-use".into(),
            device_index,
            private_ips: texts(ips),
            ipv6: texts(ipv6),
            ..InstanceInterface::default()
        }
    }

    fn instance(interfaces: Vec<InstanceInterface>) -> Instance {
        Instance {
            id: "i-1".into(),
            private_dns_name: "ip-10-0-0-1.ec2.internal".into(),
            public_dns_name: "ec2-1-2-3-4.example".into(),
            public_ip: Some("1.2.3.4".into()),
            interfaces,
            ..Instance::default()
        }
    }

    fn list(addresses: &[(AddressType, &str)]) -> Vec<NodeAddress> {
        addresses.iter().map(|(kind, address)| NodeAddress::new(kind.clone(), *address)).collect()
    }

    #[test]
    fn addresses_come_by_family_and_device_index_whatever_the_order_of_the_answer() {
        let instance = instance(vec![
            interface(Some(1), &["10.0.1.1"], &["fd00::1:1", "fd00::1:2"]),
            interface(Some(0), &["10.0.0.1", "10.0.0.2"], &["fd00::1"]),
            interface(None, &["10.0.9.9"], &[]),
        ]);
        let v4 = [
            (InternalIp, "10.0.0.1"),
            (InternalIp, "10.0.0.2"),
            (InternalIp, "10.0.1.1"),
            (InternalIp, "10.0.9.9"),
            (ExternalIp, "1.2.3.4"),
            (InternalDns, "ip-10-0-0-1.ec2.internal"),
            (Hostname, "ip-10-0-0-1.ec2.internal"),
            (ExternalDns, "ec2-1-2-3-4.example"),
        ];
        let v6 = [(InternalIp, "fd00::1"), (InternalIp, "fd00::1:1")];
        let both = [&v6[..], &v4[..]].concat();
        assert_eq!(of_instance(&instance, &[Family::Ipv6, Family::Ipv4]).unwrap(), list(&both));
        assert_eq!(of_instance(&instance, &[Family::Ipv6]).unwrap(), list(&v6));
        assert_eq!(of_instance(&instance, &[Family::Ipv4]).unwrap(), list(&v4));
    }

    #[test]
    fn an_interface_that_is_detaching_gives_no_address_and_the_names_remain() {
        let leaving = InstanceInterface { status: "detaching".into(), ..interface(Some(0), &["10.0.0.1"], &[]) };
        let addresses = of_instance(&Instance { public_ip: None, ..instance(vec![leaving]) }, &[Family::Ipv4]).unwrap();
        let kinds: Vec<_> = addresses.iter().map(|address| address.kind.clone()).collect();
        assert_eq!(kinds, [InternalDns, Hostname, ExternalDns]);
    }

    #[test]
    fn leading_zeros_are_tolerated_and_normalized() {
        let bare = Instance { id: "i-1".into(), ..Instance::default() };
        let old = Instance { interfaces: vec![interface(Some(0), &["010.000.0.001"], &["fd00:0::01"])], ..bare };
        let addresses = of_instance(&old, &[Family::Ipv4, Family::Ipv6]).unwrap();
        assert_eq!(addresses, list(&[(InternalIp, "10.0.0.1"), (InternalIp, "fd00::1")]));
    }

    #[test]
    fn what_is_no_address_is_an_error_that_names_it() {
        let odd = instance(vec![interface(Some(0), &["10.0.0.x"], &[])]);
        let error = of_instance(&odd, &[Family::Ipv4]).unwrap_err();
        assert_eq!(error.to_string(), "EC2 gives \"10.0.0.x\" as an address of i-1, which is no IP address");
    }

    #[test]
    fn a_fargate_node_has_its_address_and_its_name_in_each_family() {
        let both = NetworkInterface {
            private_ip: Some("10.0.0.1".into()),
            private_dns_name: "ip-10-0-0-1.ec2.internal".into(),
            ipv6: vec!["fd00::1".into(), "fd00::2".into()],
            ..NetworkInterface::default()
        };
        let dns = (InternalDns, "ip-10-0-0-1.ec2.internal");
        assert_eq!(
            of_interface(&both, &[Family::Ipv4, Family::Ipv6]).unwrap(),
            list(&[(InternalIp, "10.0.0.1"), dns.clone(), (InternalIp, "fd00::1"), dns.clone()])
        );
        let v4_only = NetworkInterface { ipv6: Vec::new(), ..both };
        assert_eq!(
            of_interface(&v4_only, &[Family::Ipv6, Family::Ipv4]).unwrap(),
            list(&[(InternalIp, "10.0.0.1"), dns])
        );
    }
}
