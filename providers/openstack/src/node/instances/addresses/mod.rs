//! The addresses of a node, from those of its server and ports. Pure.
//!
//! Upstream: `nodeAddresses` in `pkg/openstack/instances.go` and `instances_addresses.go`. The order matters: most
//! consumers use the first internal address, and so do members of load balancers and routes.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};

use ccm_provider::address::parse_ip;
use ccm_provider::{AddressType, NodeAddress};
use ipnet::IpNet;

use crate::client::compute::Server;
use crate::client::network::Port;
use crate::start::config::Networking;

#[cfg(test)]
mod tests;

/// The status of a port that carries traffic.
const ACTIVE: &str = "ACTIVE";
/// The type of a floating address in Nova.
const FLOATING: &str = "floating";
/// The key of a server's metadata that contains the host name.
const HOSTNAME: &str = "hostname";

/// A port in a trunk: the name of its network, and its addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Attached {
    pub(crate) network: String,
    pub(crate) addresses: Vec<String>,
}

/// The addresses of a server. `ports` are in Neutron's order, `attached` in that of their trunks.
pub(crate) fn of_server(
    server: &Server,
    ports: &[Port],
    attached: &[&Attached],
    options: &Networking,
) -> Vec<NodeAddress> {
    let mut list = List { server: &server.id, options, addresses: Vec::new() };
    for port in ports {
        for fixed in &port.fixed_ips {
            match port.status == ACTIVE {
                true => list.add(AddressType::InternalIp, &fixed.ip_address, "of an active port"),
                false => list.log(&fixed.ip_address, "not by its port, which is not active"),
            }
        }
    }
    list.add(AddressType::ExternalIp, &server.access_ipv4, "accessIPv4 of the server");
    list.add(AddressType::ExternalIp, &server.access_ipv6, "accessIPv6 of the server");
    if let Some(name) = server.metadata.get(HOSTNAME) {
        list.add(AddressType::Hostname, name, "metadata of the server");
    }
    // Sorted by the bytes of the network names.
    let mut networks: BTreeMap<&str, Vec<(&str, bool)>> = BTreeMap::new();
    for (network, addresses) in &server.addresses {
        let of_server = addresses.iter().map(|address| (&*address.addr, address.kind == FLOATING));
        networks.entry(network).or_default().extend(of_server);
    }
    for port in attached {
        let of_port = port.addresses.iter().map(|address| (&**address, false));
        networks.entry(&port.network).or_default().extend(of_port);
    }
    for (network, addresses) in networks {
        for (address, is_floating) in addresses {
            list.of_network(network, address, is_floating);
        }
    }
    sorted(list.addresses, &options.sort_order)
}

struct List<'a> {
    server: &'a str,
    options: &'a Networking,
    addresses: Vec<NodeAddress>,
}

impl List<'_> {
    fn of_network(&mut self, network: &str, address: &str, is_floating: bool) {
        let named = |names: &[String]| names.iter().any(|name| name == network);
        if is_floating {
            self.add(AddressType::ExternalIp, address, "a floating IP");
        } else if named(&self.options.public_networks) {
            self.remove(address);
            self.add(AddressType::ExternalIp, address, "its network is one of public-network-name");
        } else if self.options.internal_networks.is_empty() {
            self.add(AddressType::InternalIp, address, "a fixed IP");
        } else if named(&self.options.internal_networks) {
            self.add(AddressType::InternalIp, address, "its network is one of internal-network-name");
        } else {
            self.remove(address);
            self.log(address, "dropped: its network is none of internal-network-name");
        }
    }

    fn add(&mut self, kind: AddressType, address: &str, why: &str) {
        if address.is_empty() {
            return;
        }
        let is_name = kind == AddressType::Hostname;
        if self.options.is_ipv6_disabled && !is_name && parse_ip(address).is_some_and(|ip| ip.is_ipv6()) {
            return self.log(address, "dropped: ipv6-support-disabled");
        }
        let new = NodeAddress::new(kind, address);
        if !self.addresses.contains(&new) {
            tracing::debug!(server = self.server, address, kind = new.kind.as_str(), why, "address kept");
            self.addresses.push(new);
        }
    }

    fn remove(&mut self, address: &str) {
        self.addresses.retain(|present| &*present.address != address);
    }

    fn log(&self, address: &str, why: &str) {
        tracing::debug!(server = self.server, address, why, "address");
    }
}

/// Sorts by `address-sort-order`: by network, then by the bytes of the address; the rest follows in its order.
fn sorted(mut addresses: Vec<NodeAddress>, order: &[IpNet]) -> Vec<NodeAddress> {
    addresses.sort_by_key(|address| {
        let ip = address.ip();
        let rank = ip.and_then(|ip| order.iter().position(|net| net.contains(&ip)));
        let priority = rank.map_or(0, |rank| order.len() - rank);
        (Reverse(priority), ip.filter(|_| priority > 0).map(bytes))
    });
    addresses
}

fn bytes(ip: IpAddr) -> Ipv6Addr {
    match ip {
        IpAddr::V4(ip) => ip.to_ipv6_mapped(),
        IpAddr::V6(ip) => ip,
    }
}
