//! The addresses of a machine.

use ccm_provider::{AddressType, Node, NodeAddress, ProviderError};

use super::Details;
use crate::node::machine::{IpConfig, Machine};

/// As upstream: the private address, the name, the public address. Those of IPv6 follow; upstream's per-node program
/// writes them, and a node that loses them has no pods with IPv6 any more. An error if they are not known: a node must
/// not lose the ones that it has.
pub(super) fn of_machine(node: &Node, machine: &Machine, details: &Details) -> Result<Vec<NodeAddress>, ProviderError> {
    let configs = details.configs(machine)?;
    let of_family = |is_v6: bool| {
        configs.iter().copied().find(move |config| config.address.is_some_and(|address| address.is_ipv6() == is_v6))
    };
    let hostname = NodeAddress { kind: AddressType::Hostname, address: node.name.as_str().into() };
    let mut addresses = Vec::new();
    let mut add = |config: Option<&IpConfig>, name: Option<NodeAddress>| -> Result<(), ProviderError> {
        let of = |kind, address: std::net::IpAddr| NodeAddress { kind, address: address.to_string().into() };
        addresses.extend(config.and_then(|config| config.address).map(|ip| of(AddressType::InternalIp, ip)));
        addresses.extend(name);
        let public = config.map(|config| details.public_address(node, config)).transpose()?.flatten();
        addresses.extend(public.map(|ip| of(AddressType::ExternalIp, ip)));
        Ok(())
    };
    add(of_family(false), Some(hostname))?;
    add(of_family(true), None)?;
    if addresses.iter().all(|address| address.kind == AddressType::Hostname) {
        return Err(ProviderError::unknown(format!("no private address of {} is known yet", machine.id)));
    }
    Ok(addresses)
}
