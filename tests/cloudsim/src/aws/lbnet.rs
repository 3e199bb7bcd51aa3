//! The network interfaces of load balancers.

use super::balancing::contradiction;
use super::ec2::network::{NewInterface, create_balancer_interface, remove_interface};
use super::ec2::{Due, Instance, InstanceState, known_instance};
use super::{ApiError, World, world};
use std::collections::BTreeMap;

/// An instance that is visible and not terminated.
pub(super) fn alive<'a>(world: &'a World, id: &str) -> Option<&'a Instance> {
    known_instance(world, id).filter(|instance| instance.state != InstanceState::Terminated)
}

/// Creates all the interfaces or none; returns the interface in each subnet.
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
                // EC2's error codes differ from those of load balancers.
                let text = format!("No interface can be made in subnet '{subnet}': {}", error.message);
                let full = error.code == "InsufficientFreeAddressesInSubnet";
                return Err(if full { ApiError::new("InvalidSubnet", text) } else { contradiction(text) });
            }
        }
    }
    Ok(made)
}

/// Replaces the security groups of interfaces.
pub(super) fn regroup<'a>(world: &mut World, interfaces: impl IntoIterator<Item = &'a String>, groups: &[String]) {
    for interface in interfaces {
        if let Some(interface) = world.ec2.interfaces.get_mut(interface) {
            groups.clone_into(&mut interface.groups);
        }
    }
}

/// Deletes interfaces after a delay, during which they still use their security groups and subnets.
pub(super) fn unplug(world: &mut World, interfaces: impl IntoIterator<Item = String>) {
    for id in interfaces {
        world.after(world.options.delays.balancer_interfaces, world::Due::Ec2(Due::Release(id)));
    }
}
