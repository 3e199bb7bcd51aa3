//! The allocated addresses of a subnet.

use super::super::World;
use ipnet::IpNet;
use serde_json::{Value, json};
use std::net::IpAddr;

/// Allocates an address of a subnet: `wanted`, or the next free one of its pools. `None`: none is free.
pub(in super::super) fn take(world: &mut World, subnet: &str, wanted: Option<IpAddr>) -> Option<IpAddr> {
    let row = world.row("subnet", subnet)?;
    let range: IpNet = row.text("cidr").parse().ok()?;
    let pools: Vec<(IpAddr, IpAddr)> = row.list("allocation_pools").iter().filter_map(pool).collect();
    let taken = world.addresses.entry(subnet.to_owned()).or_default();
    let address = match wanted {
        Some(address) => Some(address).filter(|address| range.contains(address) && !taken.all.contains(address)),
        None => {
            // After the last allocated one, so that a released address is not reused immediately.
            let after = |from: u128| {
                pools.iter().find_map(|(low, high)| {
                    let mut number = bits(*low).max(from);
                    while number <= bits(*high) && taken.all.contains(&address(number, low)) {
                        number += 1;
                    }
                    (number <= bits(*high)).then(|| address(number, low))
                })
            };
            after(taken.last + 1).or_else(|| after(0))
        }
    }?;
    if wanted.is_none() {
        taken.last = bits(address);
    }
    taken.all.insert(address);
    Some(address)
}

/// Releases an address.
pub(in super::super) fn give_back(world: &mut World, subnet: &str, address: &str) {
    if let (Some(taken), Ok(address)) = (world.addresses.get_mut(subnet), address.parse::<IpAddr>()) {
        taken.all.remove(&address);
    }
}

fn pool(pool: &Value) -> Option<(IpAddr, IpAddr)> {
    let at = |name: &str| pool.get(name)?.as_str()?.parse::<IpAddr>().ok();
    Some((at("start")?, at("end")?))
}

fn bits(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(address.to_bits()),
        IpAddr::V6(address) => address.to_bits(),
    }
}

/// An address of the same family as `like`.
fn address(bits: u128, like: &IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(u32::try_from(bits).unwrap_or(u32::MAX).into()),
        IpAddr::V6(_) => IpAddr::V6(bits.into()),
    }
}

/// The default pool of a subnet: all addresses except the network address, the gateway, and the last one in IPv4.
pub(in super::super) fn default_pools(range: IpNet) -> Value {
    let (low, high) = (bits(range.network()), bits(range.broadcast()));
    // In IPv6 the gateway has the network address, in IPv4 the next one.
    let (first, last) = if range.addr().is_ipv4() { (low + 2, high - 1) } else { (low + 1, high) };
    let of = |number| address(number, &range.addr()).to_string();
    json!([{"start": of(first), "end": of(last)}])
}

/// The default gateway of a subnet.
pub(in super::super) fn gateway(range: IpNet) -> String {
    address(bits(range.network()) + u128::from(range.addr().is_ipv4()), &range.addr()).to_string()
}
