//! What load balancers see of the network, and their interfaces in it.

use super::ec2::network::{NewInterface, create_balancer_interface, release_interfaces, remove_interface};
use super::ec2::{InstanceState, model};
use super::{ApiError, World};
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// A subnet.
#[derive(Debug, Clone)]
pub(super) struct Subnet {
    pub(super) id: String,
    pub(super) vpc: String,
    pub(super) zone: String,
    pub(super) cidr: String,
    pub(super) has_ipv6: bool,
}

/// A security group.
#[derive(Debug, Clone)]
pub(super) struct Group {
    pub(super) name: String,
    pub(super) vpc: String,
}

/// An instance.
#[derive(Debug, Clone, Copy)]
pub(super) struct Instance<'a> {
    pub(super) vpc: &'a str,
    pub(super) zone: &'a str,
    pub(super) running: bool,
    pub(super) terminated: bool,
}

/// An elastic address.
#[derive(Debug, Clone)]
pub(super) struct Address {
    pub(super) public_ip: String,
    pub(super) in_use: bool,
}

pub(super) fn subnet(world: &World, id: &str) -> Option<Subnet> {
    world.ec2.subnets.get(id).map(|subnet| Subnet {
        id: id.to_owned(),
        vpc: subnet.vpc.clone(),
        zone: subnet.zone.clone(),
        cidr: subnet.cidr.clone(),
        has_ipv6: subnet.ipv6_cidr.is_some(),
    })
}

pub(super) fn vpc_exists(world: &World, id: &str) -> bool {
    world.ec2.vpcs.contains_key(id)
}

/// Whether an internet gateway is attached to a network.
pub(super) fn has_gateway(world: &World, vpc: &str) -> bool {
    world.ec2.gateways.values().any(|gateway: &model::Gateway| gateway.vpc.as_deref() == Some(vpc))
}

pub(super) fn group(world: &World, id: &str) -> Option<Group> {
    let group = world.ec2.groups.get(id).filter(|group| world.known("security-group", group.created))?;
    Some(Group { name: group.name.clone(), vpc: group.vpc.clone() })
}

/// The group that a network has from the start.
pub(super) fn default_group(world: &World, vpc: &str) -> Option<String> {
    let mut groups = world.ec2.groups.iter();
    groups.find(|(_, group)| group.vpc == vpc && group.name == "default").map(|(id, _)| id.clone())
}

pub(super) fn instance<'a>(world: &'a World, id: &str) -> Option<Instance<'a>> {
    let instance = world.ec2.instances.get(id).filter(|instance| world.known("instance", instance.created))?;
    Some(Instance {
        vpc: &instance.vpc,
        zone: &instance.zone,
        running: instance.state == InstanceState::Running,
        terminated: instance.state == InstanceState::Terminated,
    })
}

pub(super) fn address(world: &World, allocation: &str) -> Option<Address> {
    let address = world.ec2.addresses.get(allocation)?;
    Some(Address { public_ip: address.public_ip.to_string(), in_use: address.interface.is_some() })
}

/// An interface that a balancer wants.
#[derive(Debug, Clone, Default)]
pub(super) struct Plug {
    pub(super) subnet: String,
    pub(super) description: String,
    pub(super) groups: Vec<String>,
    /// Of a network balancer.
    pub(super) network: bool,
    /// With a public address.
    pub(super) public: bool,
    /// Elastic address.
    pub(super) allocation: Option<String>,
    pub(super) private_ipv4: Option<String>,
}

/// Makes all the interfaces or none: interface by subnet.
pub(super) fn plug(world: &mut World, plugs: Vec<Plug>) -> Result<BTreeMap<String, String>, ApiError> {
    let mut made = BTreeMap::new();
    for plug in plugs {
        let subnet = plug.subnet.clone();
        match plug_one(world, plug) {
            Ok(interface) => {
                made.insert(subnet, interface);
            }
            Err(error) => {
                for interface in made.values() {
                    remove_interface(world, interface);
                }
                return Err(error);
            }
        }
    }
    Ok(made)
}

fn plug_one(world: &mut World, plug: Plug) -> Result<String, ApiError> {
    let private_ip =
        match &plug.private_ipv4 {
            None => None,
            Some(text) => Some(text.parse::<Ipv4Addr>().map_err(|_| {
                super::balancing::contradiction(format!("The private IPv4 address '{text}' is not valid"))
            })?),
        };
    let new = NewInterface {
        subnet: plug.subnet.clone(),
        groups: plug.groups,
        description: plug.description,
        kind: if plug.network { "network_load_balancer".to_owned() } else { String::new() },
        private_ip,
        public: plug.public && plug.allocation.is_none(),
        allocation: plug.allocation,
        ..NewInterface::default()
    };
    // EC2's codes are not those of load balancers.
    create_balancer_interface(world, new).map_err(|error| {
        let text = format!("No interface can be made in subnet '{}': {}", plug.subnet, error.message);
        if error.code == "InsufficientFreeAddressesInSubnet" {
            ApiError::new("InvalidSubnet", text)
        } else {
            super::balancing::contradiction(text)
        }
    })
}

/// Gives an interface other security groups.
pub(super) fn regroup(world: &mut World, interface: &str, groups: &[String]) {
    if let Some(interface) = world.ec2.interfaces.get_mut(interface) {
        groups.clone_into(&mut interface.groups);
    }
}

/// Lets interfaces go, which takes a while, during which they use their groups.
pub(super) fn unplug(world: &mut World, interfaces: impl IntoIterator<Item = String>) {
    release_interfaces(world, interfaces, world.options.delays.balancer_interfaces);
}
