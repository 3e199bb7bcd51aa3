//! Public IP addresses and prefixes.

use super::errors;
use super::ids::Id;
use super::json::{at, default, remove, same, set, text};
use super::kinds::{Ref, reference};
use super::world::World;
use crate::core::rest::Problem;
use serde_json::{Value, json};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

pub(super) fn refs(id: &Id, fields: &Value) -> Vec<Ref> {
    reference(fields, "/properties/publicIPPrefix", &id.text()).into_iter().collect()
}

pub(super) fn check(world: &mut World, id: &Id, old: Option<&Value>, fields: &mut Value) -> Result<(), Problem> {
    default(fields, "/sku/name", "Standard");
    default(fields, "/sku/tier", "Regional");
    default(fields, "/properties/publicIPAllocationMethod", "Dynamic");
    default(fields, "/properties/publicIPAddressVersion", "IPv4");
    default(fields, "/properties/idleTimeoutInMinutes", 4);
    default(fields, "/properties/ipTags", json!([]));
    let standard = text(fields, "/sku/name") != "Basic";
    let fixed = text(fields, "/properties/publicIPAllocationMethod") == "Static";
    if standard && !fixed {
        // unverified: the code.
        let text = format!("Standard sku publicIp {} must have AllocationMethod set to Static.", id.text());
        return Err(errors::bad("StandardSkuPublicIPRequiresStaticAllocation", text));
    }
    dns_label(world, id, fields)?;
    if let Some(old) = old {
        unchanged(world, id, old, fields)?;
        set(fields, "/properties/ipAddress", at(old, "/properties/ipAddress").clone());
    } else {
        remove(fields, "/properties/ipAddress");
    }
    if at(fields, "/properties/ipAddress").is_null() {
        remove(fields, "/properties/ipAddress");
        if fixed {
            let address = new_address(world, id, fields)?;
            set(fields, "/properties/ipAddress", address.to_string());
        }
    }
    Ok(())
}

/// What cannot change while the address exists, or while it is in use.
fn unchanged(world: &World, id: &Id, old: &Value, fields: &Value) -> Result<(), Problem> {
    let differs = |pointer: &str| at(old, pointer) != at(fields, pointer);
    if differs("/zones") {
        let text =
            format!("Resource {} has an existing availability zone constraint and it cannot be changed.", id.text());
        return Err(errors::bad("ResourceAvailabilityZonesCannotBeModified", text));
    }
    if differs("/properties/publicIPAddressVersion") {
        let text = format!("The IP version of public IP address {} cannot be changed.", id.text());
        return Err(errors::bad("PublicIPAddressVersionCannotBeChanged", text));
    }
    let used = world.store.users(&id.key()).next().is_some();
    if used && (differs("/sku/name") || differs("/properties/ipTags") || differs("/properties/publicIPPrefix")) {
        // unverified: the code.
        let text =
            format!("SKU, IP tags and prefix of public IP address {} cannot be changed while it is in use.", id.text());
        return Err(errors::bad("PublicIPAddressInUseCannotBeUpdated", text));
    }
    Ok(())
}

fn dns_label(world: &World, id: &Id, fields: &mut Value) -> Result<(), Problem> {
    let label = text(fields, "/properties/dnsSettings/domainNameLabel").to_owned();
    if label.is_empty() {
        remove(fields, "/properties/dnsSettings");
        return Ok(());
    }
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    let edge = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let fits = (3..=63).contains(&label.len())
        && label.chars().all(plain)
        && label.starts_with(|c: char| c.is_ascii_lowercase())
        && label.ends_with(edge);
    if !fits {
        let text = format!(
            "The domain name label {label} is invalid. It must conform to the following regular expression: ^[a-z][a-z0-9-]{{1,61}}[a-z0-9]$."
        );
        return Err(errors::bad("InvalidDomainNameLabel", text));
    }
    let location = text(fields, "/location").to_lowercase().replace(' ', "");
    let name = format!("{label}.{location}.cloudapp.azure.com");
    let other = |row: &&super::store::Row| {
        row.id.key() != id.key() && text(&row.fields, "/properties/dnsSettings/fqdn") == name
    };
    if world.store.of_kind("microsoft.network/publicipaddresses").any(|row| other(&row)) {
        let text = format!("DNS record {name} is already used by another public IP.");
        return Err(errors::bad("DnsRecordInUse", text));
    }
    set(fields, "/properties/dnsSettings/fqdn", name);
    Ok(())
}

/// A free address, of the prefix if there is one.
fn new_address(world: &mut World, id: &Id, fields: &Value) -> Result<IpAddr, Problem> {
    let prefix = text(fields, "/properties/publicIPPrefix/id").to_lowercase();
    if !prefix.is_empty() {
        let Some(row) = world.store.get(&prefix) else {
            return Err(errors::no_reference(text(fields, "/properties/publicIPPrefix/id"), &id.text()));
        };
        let range: Option<ipnet::IpNet> = text(&row.fields, "/properties/ipPrefix").parse().ok();
        let used: Vec<String> = world
            .store
            .users(&prefix)
            .filter_map(|(key, ..)| Some(text(&world.store.get(key)?.fields, "/properties/ipAddress").to_owned()))
            .collect();
        let last = range.map(|range| range.broadcast());
        let mut all = range.into_iter().flat_map(|range| range.subnets(range.max_prefix_len()).into_iter().flatten());
        let free = all.find(|host| !used.contains(&host.addr().to_string()) && last.is_some());
        return free.map(|host| host.addr()).ok_or_else(|| {
            // unverified: the code.
            let text =
                format!("Public IP prefix {} has no free address.", text(fields, "/properties/publicIPPrefix/id"));
            errors::bad("PublicIPPrefixExhausted", text)
        });
    }
    Ok(world.next_external(text(fields, "/properties/publicIPAddressVersion") == "IPv6"))
}

impl World {
    /// The next external address.
    pub(super) fn next_external(&mut self, six: bool) -> IpAddr {
        self.external += 1;
        match six {
            true => {
                let base = u128::from(Ipv6Addr::new(0x2603, 0x1030, 0, 0, 0, 0, 0, 0));
                Ipv6Addr::from(base + u128::from(self.external)).into()
            }
            false => Ipv4Addr::from(u32::from(Ipv4Addr::new(20, 40, 0, 0)) + self.external).into(),
        }
    }
}

/// Checks that a frontend can refer to an address.
pub(super) fn usable(world: &World, address: &str, user: &str, sku: &str, balancer: &str) -> Result<(), Problem> {
    let key = address.to_lowercase();
    let Some(row) = world.store.get(&key) else { return Err(errors::no_reference(address, user)) };
    let (state, operation) = world.state_of(&key);
    let busy = !matches!(state, "Succeeded" | "") && !world.action.is_empty();
    if busy && (state == "Failed" || world.operations.running(&key)) {
        return Err(errors::not_provisioned(address, balancer, state, operation));
    }
    let own = text(&row.fields, "/sku/name");
    if own != sku {
        let text = format!("{sku} sku load balancer {balancer} cannot reference {own} sku publicIP {address}.");
        return Err(errors::bad("PublicIPAndLBSkuDoNotMatch", text));
    }
    // unverified: also a frontend that the same write removes still has it.
    let other = world.store.users(&key).find(|(_, other, _)| !same(other, user));
    other.map_or(Ok(()), |(_, other, _)| Err(in_use(user, address, other)))
}

/// Another resource has the address.
pub(super) fn in_use(user: &str, address: &str, other: &str) -> Problem {
    let text = format!(
        "Resource {user} is referencing public IP address {address} that is already allocated to resource {other}."
    );
    errors::bad("PublicIPAddressInUse", text)
}

pub(super) fn removal(world: &mut World, id: &Id) -> Result<(), Problem> {
    let Some((_, user, _)) = world.store.users(&id.key()).next() else { return Ok(()) };
    let text = format!(
        "Public IP address {} can not be deleted since it is still allocated to resource {user}. In order to delete the public IP, disassociate/detach the Public IP address from the resource.  To learn how to do this, see aka.ms/deletepublicip.",
        id.text()
    );
    Err(errors::bad("PublicIPAddressCannotBeDeleted", text))
}

pub(super) fn show(world: &World, id: &Id, value: &mut Value) {
    if let Some((_, user, _)) = world.store.users(&id.key()).next() {
        set(value, "/properties/ipConfiguration", json!({ "id": user }));
    }
}

pub(super) fn show_prefix(world: &World, id: &Id, value: &mut Value) {
    let users: Vec<Value> = world.store.users(&id.key()).map(|(_, user, _)| json!({ "id": user })).collect();
    if !users.is_empty() {
        set(value, "/properties/publicIPAddresses", users);
    }
}
