//! The interfaces of load balancers in the network.

use super::balancing::contradiction;
use super::ec2::network::{NewInterface, create_balancer_interface, remove_interface};
use super::ec2::{Due, Instance, InstanceState, known_instance};
use super::{ApiError, World, world};
use std::collections::BTreeMap;

/// An instance that is known by now and not terminated.
pub(super) fn alive<'a>(world: &'a World, id: &str) -> Option<&'a Instance> {
    known_instance(world, id).filter(|instance| instance.state != InstanceState::Terminated)
}

/// Makes all the interfaces or none: interface by subnet.
pub(super) fn plug(
    world: &mut World,
    interfaces: impl IntoIterator<Item = NewInterface>,
) -> Result<BTreeMap<String, String>, ApiError> {
    let mut made = BTreeMap::new();
    for new in interfaces {
        let subnet = new.subnet.clone();
        match create_balancer_interface(world, new) {
            Ok(interface) => {
                made.insert(subnet, interface);
            }
            Err(error) => {
                for interface in made.values() {
                    remove_interface(world, interface);
                }
                // EC2's codes are not those of load balancers.
                let text = format!("No interface can be made in subnet '{subnet}': {}", error.message);
                let full = error.code == "InsufficientFreeAddressesInSubnet";
                return Err(if full { ApiError::new("InvalidSubnet", text) } else { contradiction(text) });
            }
        }
    }
    Ok(made)
}

/// Gives interfaces other security groups.
pub(super) fn regroup<'a>(world: &mut World, interfaces: impl IntoIterator<Item = &'a String>, groups: &[String]) {
    for interface in interfaces {
        if let Some(interface) = world.ec2.interfaces.get_mut(interface) {
            groups.clone_into(&mut interface.groups);
        }
    }
}

/// Lets interfaces go, which takes a while, during which they use their groups and subnets.
pub(super) fn unplug(world: &mut World, interfaces: impl IntoIterator<Item = String>) {
    for id in interfaces {
        world.after(world.options.delays.balancer_interfaces, world::Due::Ec2(Due::Release(id)));
    }
}
