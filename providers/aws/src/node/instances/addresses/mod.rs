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

/// The addresses of an instance: for each family in turn, by device index. An interface that is being attached or
/// detached adds none.
pub(crate) fn of_instance(instance: &Instance, families: &[Family]) -> Result<Vec<NodeAddress>, ProviderError> {
    let mut interfaces: Vec<&InstanceInterface> = instance.interfaces.iter().collect();
    // Stable sort: interfaces without attachment last, in EC2's order.
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

/// The addresses of a Fargate node. A family without an address on the interface is left out.
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
    ProviderError::unknown(format!("EC2 gives {text:?} as an address of {of}, which is not an IP address"))
}

#[cfg(test)]
mod tests;
