//! Addresses and network interfaces, and the helpers that load balancers use.

use super::model::{Attachment, Interface, Subnet, Tags};
use super::unknown_ids;
use crate::aws::{ApiError, World};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{Ipv4Addr, Ipv6Addr};

/// The parameters of a new network interface.
#[derive(Debug, Clone, Default)]
pub struct NewInterface {
    pub subnet: String,
    pub groups: Vec<String>,
    pub description: String,
    /// The type; `interface` if empty.
    pub kind: String,
    /// The primary address; a free one if none.
    pub private_ip: Option<Ipv4Addr>,
    /// The number of IPv6 addresses (the subnet needs an IPv6 block).
    pub ipv6: usize,
    /// Whether it gets a delegated IPv6 prefix (/80).
    pub ipv6_prefix: bool,
    /// The Elastic IP address to associate.
    pub allocation: Option<String>,
    /// Whether it gets a public address.
    pub public: bool,
}

/// Creates a network interface, unattached.
pub fn create_interface(world: &mut World, new: NewInterface) -> Result<String, ApiError> {
    let subnet = world.ec2.subnets.get(&new.subnet).cloned().ok_or_else(|| {
        ApiError::new("InvalidSubnetID.NotFound", format!("The subnet ID '{}' does not exist", new.subnet))
    })?;
    check_groups(world, &new.groups, &subnet.vpc)?;
    let primary = match new.private_ip {
        Some(ip) => claim(world, &subnet, ip)?,
        None => free_ip(world, &new.subnet)?,
    };
    let ipv6 = ipv6_addresses(subnet.ipv6_cidr.as_deref(), primary, new.ipv6)?;
    let ipv6_prefixes =
        if new.ipv6_prefix { vec![ipv6_prefix(subnet.ipv6_cidr.as_deref(), primary)?] } else { Vec::new() };
    let id = world.new_id("eni-");
    occupy(world, &id, primary);
    let public_ip = match &new.allocation {
        Some(allocation) => match associate(world, allocation, &id) {
            Ok(ip) => Some(ip),
            Err(error) => {
                vacate(world, &id, &[primary]);
                return Err(error);
            }
        },
        None => new.public.then(|| public_ip(world)),
    };
    let mac: Vec<String> = primary.octets().iter().map(|byte| format!("{byte:02x}")).collect();
    let interface = Interface {
        subnet: new.subnet,
        vpc: subnet.vpc,
        zone: subnet.zone,
        description: new.description,
        kind: if new.kind.is_empty() { "interface".to_owned() } else { new.kind },
        requester: None,
        mac: format!("02:00:{}", mac.join(":")),
        private_ips: vec![primary],
        public_ip,
        allocation: new.allocation,
        ipv6,
        ipv6_prefixes,
        groups: new.groups,
        source_dest_check: true,
        attachment: None,
        tags: Tags::new(),
        created: world.now(),
    };
    world.ec2.interfaces.insert(id.clone(), interface);
    Ok(id)
}

/// Creates the network interface of a load balancer in a subnet. The description is as in AWS: `ELB <name>` for Classic
/// Load Balancers, `ELB net/<name>/<id>` for Network Load Balancers.
pub fn create_balancer_interface(world: &mut World, new: NewInterface) -> Result<String, ApiError> {
    let id = create_interface(world, new)?;
    let attachment = Attachment {
        id: world.new_id("ela-attach-"),
        instance: None,
        device: 1,
        status: "attached".to_owned(),
        since: world.now(),
    };
    if let Some(interface) = world.ec2.interfaces.get_mut(&id) {
        interface.requester = Some("amazon-elb".to_owned());
        interface.attachment = Some(attachment);
    }
    Ok(id)
}

/// Deletes a network interface immediately.
pub fn remove_interface(world: &mut World, id: &str) {
    let Some(interface) = world.ec2.interfaces.remove(id) else { return };
    vacate(world, id, &interface.private_ips);
    if let Some(address) = interface.allocation.and_then(|id| world.ec2.addresses.get_mut(&id)) {
        address.interface = None;
    }
}

/// Checks that security groups exist, are in this VPC, and do not exceed the quota.
pub fn check_groups(world: &World, groups: &[String], vpc: &str) -> Result<(), ApiError> {
    for id in groups {
        if super::security_groups::find(world, id)?.vpc != vpc {
            let text = format!("Security group {id} and the subnet belong to different networks.");
            return Err(ApiError::new("InvalidParameter", text));
        }
    }
    if groups.len() > world.options.limits.groups_per_interface {
        let text = "The maximum number of security groups per interface has been reached.";
        return Err(ApiError::new("SecurityGroupsPerInterfaceLimitExceeded", text));
    }
    Ok(())
}

/// Associates an Elastic IP address with a network interface; returns the address.
fn associate(world: &mut World, allocation: &str, interface: &str) -> Result<Ipv4Addr, ApiError> {
    let address = (world.ec2.addresses.get_mut(allocation))
        .ok_or_else(|| unknown_ids("InvalidAllocationID.NotFound", "allocation", &[allocation]))?;
    if address.interface.as_deref().is_some_and(|user| user != interface) {
        let text = format!("resource {allocation} is already associated with associate-id");
        return Err(ApiError::new("Resource.AlreadyAssociated", text));
    }
    address.interface = Some(interface.to_owned());
    Ok(address.public_ip)
}

/// Marks an address as used by a network interface.
fn occupy(world: &mut World, interface: &str, ip: Ipv4Addr) {
    world.ec2.index.by_ip.entry(ip).or_default().insert(interface.to_owned());
}

/// Marks addresses as no longer used by a network interface.
fn vacate(world: &mut World, interface: &str, ips: &[Ipv4Addr]) {
    for ip in ips {
        if let Some(users) = world.ec2.index.by_ip.get_mut(ip) {
            users.remove(interface);
            if users.is_empty() {
                world.ec2.index.by_ip.remove(ip);
            }
        }
    }
}

/// Whether a network interface in this VPC has the address.
fn taken(world: &World, vpc: &str, ip: Ipv4Addr) -> bool {
    world.ec2.index.by_ip.get(&ip).is_some_and(|users| {
        // An ID without an interface belongs to one that is just being created.
        users.iter().any(|id| world.ec2.interfaces.get(id).is_none_or(|interface| interface.vpc == vpc))
    })
}

fn claim(world: &World, subnet: &Subnet, ip: Ipv4Addr) -> Result<Ipv4Addr, ApiError> {
    if !subnet.cidr.parse::<Ipv4Net>().is_ok_and(|block| block.contains(&ip)) {
        let text = "Address does not fall within the subnet's address range";
        return Err(ApiError::new("InvalidParameterValue", text));
    }
    if taken(world, &subnet.vpc, ip) {
        return Err(ApiError::new("InvalidIPAddress.InUse", format!("Address {ip} is in use.")));
    }
    Ok(ip)
}

fn free_ip(world: &mut World, subnet: &str) -> Result<Ipv4Addr, ApiError> {
    let full = || {
        let text = "There are not enough free addresses in the subnet to satisfy the request.";
        ApiError::new("InsufficientFreeAddressesInSubnet", text)
    };
    let Some(found) = world.ec2.subnets.get(subnet) else { return Err(ApiError::missing("SubnetId")) };
    let block: Ipv4Net = found.cidr.parse().map_err(|_| full())?;
    let (vpc, start) = (found.vpc.clone(), found.next_ip);
    // AWS reserves the first four addresses and the last one.
    let size = u32::MAX >> block.prefix_len();
    let usable = size.saturating_sub(4);
    for step in 0..usable {
        let offset = 4 + (start + step) % usable;
        let ip = Ipv4Addr::from(u32::from(block.network()).wrapping_add(offset));
        if !taken(world, &vpc, ip) {
            if let Some(found) = world.ec2.subnets.get_mut(subnet) {
                found.next_ip = (start + step + 1) % usable;
            }
            return Ok(ip);
        }
    }
    Err(full())
}

fn ipv6_addresses(block: Option<&str>, primary: Ipv4Addr, count: usize) -> Result<Vec<Ipv6Addr>, ApiError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    let block = ipv6_block(block)?;
    let low = u128::from(u32::from(primary));
    let nth = |n: usize| u128::try_from(n).unwrap_or(0) << 32;
    Ok((0..count).map(|n| Ipv6Addr::from(u128::from(block.network()) | nth(n) | low)).collect())
}

fn ipv6_block(block: Option<&str>) -> Result<Ipv6Net, ApiError> {
    let block = block.and_then(|block| block.parse().ok());
    block.ok_or_else(|| ApiError::new("InvalidParameterValue", "The subnet has no IPv6 CIDR block."))
}

/// The prefix for a primary address: its last two bytes follow the subnet's 64 bits and complete the prefix's 80 bits.
fn ipv6_prefix(block: Option<&str>, primary: Ipv4Addr) -> Result<String, ApiError> {
    let number = u128::from(u32::from(primary) & 0xffff) << 48;
    let network = Ipv6Addr::from(u128::from(ipv6_block(block)?.network()) | number);
    Ok(format!("{network}/80"))
}

/// A free public address in 100.64.0.0/10, which is not routed in the internet, so no test can reach another host.
pub(super) fn public_ip(world: &mut World) -> Ipv4Addr {
    use rand::Rng;
    loop {
        let ip = Ipv4Addr::from(u32::from(Ipv4Addr::new(100, 64, 0, 0)) | world.rng.random_range(1..0x3f_ffff_u32));
        if !world.ec2.addresses.values().any(|address| address.public_ip == ip) {
            return ip;
        }
    }
}
