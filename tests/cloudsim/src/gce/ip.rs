//! IP addresses and ranges: used and free ones.

use super::errors;
use super::instances;
use super::kinds::Fields;
use super::places::{address, link, name_of, unlink};
use super::verbs::text;
use super::world::{World, inner, set};
use crate::core::rest::Problem;
use ipnet::{IpNet, Ipv4Net};
use serde_json::{Map, Value, json};
use std::net::{IpAddr, Ipv4Addr};

/// The first external address.
const PREMIUM: Ipv4Addr = Ipv4Addr::new(34, 64, 0, 0);
const STANDARD: Ipv4Addr = Ipv4Addr::new(35, 206, 0, 0);

impl World {
    /// The users of an address in a network, or of an external one if `network` is empty.
    pub(super) fn holder(&self, wanted: IpAddr, network: &str) -> Option<String> {
        let is = |text: &str| address(text) == Some(wanted);
        let has = |fields: &Fields| {
            if fields.contains_key("networkInterfaces") {
                return instances::all_addresses(fields).any(is)
                    && (network.is_empty() || instances::is_in(fields, network));
            }
            let same = network.is_empty() || self.network_of(fields).as_deref() == Some(network);
            same && (is(text(fields, "address")) || is(text(fields, "IPAddress")))
        };
        let now = self.now();
        let holders = ["addresses", "forwardingRules", "instances"];
        let mut all = holders.into_iter().flat_map(|collection| self.store.alive(collection, now));
        all.find(|(_, row)| has(&row.fields)).map(|(key, _)| key.to_owned())
    }

    /// The network of an address or a forwarding rule.
    pub(super) fn network_of(&self, fields: &Fields) -> Option<String> {
        let subnetwork = text(fields, "subnetwork");
        if subnetwork.is_empty() {
            return Some(unlink(text(fields, "network")).to_owned()).filter(|network| !network.is_empty());
        }
        self.store.get(unlink(subnetwork)).map(|row| unlink(row.text("network")).to_owned())
    }

    /// The range of a subnetwork, or of a legacy network without subnetworks.
    pub(super) fn range(&self, subnetwork: &str) -> Option<IpNet> {
        let row = self.store.get(subnetwork)?;
        let field = if row.fields.contains_key("IPv4Range") { "IPv4Range" } else { "ipCidrRange" };
        row.text(field).parse().ok()
    }

    /// A free address of a subnetwork; `None` if it is full.
    pub(super) fn free_address(&mut self, subnetwork: &str) -> Option<IpAddr> {
        let range = self.range(subnetwork)?;
        let network = match self.store.get(subnetwork)?.text("network") {
            "" => subnetwork.to_owned(),
            network => unlink(network).to_owned(),
        };
        // The first two and the last two addresses of a range are reserved.
        let size = 1_u64.checked_shl(u32::from(range.max_prefix_len() - range.prefix_len())).unwrap_or(u64::MAX);
        let usable = size.saturating_sub(4).max(1);
        for _ in 0..usable {
            let row = self.store.get_mut(subnetwork)?;
            let next = u64::try_from(row.number("_next")).unwrap_or_default();
            row.set("_next", next + 1);
            let found = plus(range.network(), 2 + next % usable);
            // An address can be in use if the counter has wrapped around, or if a call requested it explicitly.
            if (next < usable && !row.is("_chosen")) || self.holder(found, &network).is_none() {
                return Some(found);
            }
        }
        None
    }

    /// Records an explicit request for this address of a subnetwork.
    pub(super) fn choose(&mut self, subnetwork: &str, wanted: IpAddr, field: &str) -> Result<(), Problem> {
        if !self.range(subnetwork).is_some_and(|range| range.contains(&wanted)) {
            let text = "Requested internal IP address is outside the subnetwork CIDR range.";
            return Err(errors::invalid(field, &wanted.to_string(), text));
        }
        if let Some(row) = self.store.get_mut(subnetwork) {
            row.set("_chosen", true);
        }
        Ok(())
    }

    /// A new external address.
    pub(super) fn external_address(&mut self, tier: &str) -> IpAddr {
        let first = if tier == "STANDARD" { STANDARD } else { PREMIUM };
        let number = self.external.entry(tier.to_owned()).or_default();
        *number += 1;
        plus(IpAddr::V4(first), *number)
    }
}

/// The error for an internal address that is in use.
pub(super) fn taken(address: IpAddr) -> Problem {
    let text = format!("IP_IN_USE_BY_ANOTHER_RESOURCE - IP '{address}' is already being used by another resource.");
    Problem::new(409, "conflict", text)
}

/// The error for a subnetwork without a free address.
pub(super) fn exhausted(subnetwork: &str) -> Problem {
    Problem::new(403, "ipSpaceExhausted", format!("The IP space of '{subnetwork}' is exhausted."))
}

/// The address at an offset.
fn plus(address: IpAddr, by: u64) -> IpAddr {
    match address {
        IpAddr::V4(four) => {
            let number = u64::from(u32::from(four)) + by;
            IpAddr::V4(Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)))
        }
        IpAddr::V6(six) => IpAddr::V6((u128::from(six) + u128::from(by)).into()),
    }
}

/// The alias ranges of an interface: `/24` means any free range of that size.
pub(super) fn alias_ranges(
    world: &mut World,
    instance: &str,
    interface: &Map<String, Value>,
    wanted: &Value,
) -> Result<Value, Problem> {
    let subnetwork = unlink(text(interface, "subnetwork")).to_owned();
    let mut given: Vec<Value> = Vec::new();
    for (number, range) in wanted.as_array().into_iter().flatten().enumerate() {
        let (text, name) = (inner(range, "ipCidrRange"), inner(range, "subnetworkRangeName"));
        let field = format!("resource.aliasIpRanges[{number}].ipCidrRange");
        let pool = secondary(world, &subnetwork, name).ok_or_else(|| {
            let why = format!("The secondary range '{name}' is not in the subnetwork '{}'.", name_of(&subnetwork));
            errors::invalid(&format!("resource.aliasIpRanges[{number}].subnetworkRangeName"), name, &why)
        })?;
        let free = |world: &World, range: &Ipv4Net| {
            let taken = taken_ranges(world, instance, &subnetwork, &given);
            !taken.iter().any(|taken| taken.contains(range) || range.contains(taken))
        };
        let found = match text.strip_prefix('/').and_then(|length| length.parse::<u8>().ok()) {
            Some(length) => match next_range(world, &subnetwork, name, pool, length) {
                Some(range) => Some(range),
                None => pool.subnets(length).ok().and_then(|mut ranges| ranges.find(|range| free(world, range))),
            },
            None => {
                let one = text.parse::<Ipv4Net>().or_else(|_| format!("{text}/32").parse());
                let inside = one.ok().filter(|range| pool.contains(range));
                let inside =
                    inside.ok_or_else(|| errors::invalid(&field, text, "The range is not in its subnetwork range."))?;
                if let Some(row) = world.store.get_mut(&subnetwork) {
                    row.set("_chosen", true);
                }
                Some(inside).filter(|range| free(world, range))
            }
        };
        let Some(found) = found else {
            let text = format!("IP '{text}' is already being used by another resource.");
            return Err(Problem::new(409, "conflict", format!("IP_IN_USE_BY_ANOTHER_RESOURCE - {text}")));
        };
        let mut entry = json!({ "ipCidrRange": found.to_string() });
        if !name.is_empty() {
            set(&mut entry, "subnetworkRangeName", name);
        }
        given.push(entry);
    }
    Ok(Value::Array(given))
}

/// The range of this size after the last assigned one. Until the counter wraps around or a range is requested
/// explicitly, it is free without a comparison with all others.
fn next_range(world: &mut World, subnetwork: &str, name: &str, pool: Ipv4Net, length: u8) -> Option<Ipv4Net> {
    let field = format!("_ranges_{name}");
    let row = world.store.get_mut(subnetwork).filter(|row| !row.is("_chosen"))?;
    let size = 1_u64.checked_shl(32_u32.checked_sub(u32::from(length))?)?;
    let next = u64::try_from(row.number(&field)).unwrap_or_default().next_multiple_of(size);
    let IpAddr::V4(first) = plus(IpAddr::V4(pool.network()), next) else { return None };
    let range = Ipv4Net::new(first, length).ok().filter(|range| pool.contains(range))?;
    row.set(&field, next + size);
    Some(range)
}

/// A secondary range of a subnetwork by its name, or its primary range if there is no name.
fn secondary(world: &World, subnetwork: &str, name: &str) -> Option<Ipv4Net> {
    let row = world.store.get(subnetwork)?;
    if name.is_empty() {
        return row.text("ipCidrRange").parse().ok();
    }
    let range = row.list("secondaryIpRanges").iter().find(|range| inner(range, "rangeName") == name)?;
    inner(range, "ipCidrRange").parse().ok()
}

/// The alias ranges in a subnetwork that other instances have, and those just assigned.
fn taken_ranges(world: &World, instance: &str, subnetwork: &str, given: &[Value]) -> Vec<Ipv4Net> {
    let others = world.store.all("instances").filter(|(key, _)| *key != instance);
    let interfaces = others.flat_map(|(_, row)| instances::interfaces(&row.fields));
    let own = interfaces.filter(|interface| inner(interface, "subnetwork") == link(subnetwork));
    let ranges =
        own.flat_map(|interface| interface.get("aliasIpRanges").and_then(Value::as_array).into_iter().flatten());
    ranges.chain(given).filter_map(|range| inner(range, "ipCidrRange").parse().ok()).collect()
}
