//! Reserved addresses, regional and global.

use super::kinds::Fields;
use super::places::{Scope, Spot, address, link, unlink};
use super::store::collection;
use super::verbs::{default, refer, text};
use super::world::World;
use super::{errors, instances, ip};
use crate::core::rest::Problem;
use crate::core::rows::Row;
use serde_json::json;
use std::net::IpAddr;

/// Checks a new reservation, and selects an address if the caller does not request one.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    default(fields, "addressType", "EXTERNAL");
    let tier = text(fields, "networkTier").to_owned();
    default(fields, "networkTier", "PREMIUM");
    let wanted = text(fields, "address").to_owned();
    let wanted = match wanted.as_str() {
        "" => None,
        text => Some(address(text).ok_or_else(|| errors::invalid("resource.address", text, "Must be an IP address."))?),
    };
    let reserved = if text(fields, "addressType") == "INTERNAL" {
        if tier == "STANDARD" {
            return Err(errors::bad_request(
                "Network tier other than PREMIUM is not supported for internal addresses.",
            ));
        }
        internal(world, spot, fields, wanted)?
    } else {
        external(world, spot, fields, wanted)?
    };
    fields.insert("address".to_owned(), json!(reserved));
    let fingerprint = world.fingerprint();
    fields.insert("labelFingerprint".to_owned(), json!(fingerprint));
    Ok(())
}

fn internal(world: &mut World, spot: &Spot, fields: &mut Fields, wanted: Option<IpAddr>) -> Result<IpAddr, Problem> {
    world.may("compute.addresses.createInternal", &spot.key())?;
    if text(fields, "subnetwork").is_empty() {
        return Err(errors::required("resource.subnetwork"));
    }
    let subnetwork = refer(world, spot, fields, "subnetwork", "subnetworks")?;
    world.may("compute.subnetworks.use", &subnetwork)?;
    default(fields, "purpose", "GCE_ENDPOINT");
    let Some(wanted) = wanted else {
        return world.free_address(&subnetwork).ok_or_else(|| ip::exhausted(&subnetwork));
    };
    world.choose(&subnetwork, wanted, "resource.address")?;
    let network = world.object(&subnetwork).map(|row| unlink(text(row, "network")).to_owned()).unwrap_or_default();
    // An address in use can be promoted to a reservation; a reserved address is not available.
    match reserved(world, wanted, &network) {
        Some(_) => Err(ip::taken(wanted)),
        None => Ok(wanted),
    }
}

fn external(world: &mut World, spot: &Spot, fields: &mut Fields, wanted: Option<IpAddr>) -> Result<IpAddr, Problem> {
    if !text(fields, "subnetwork").is_empty() {
        return Err(errors::invalid(
            "resource.subnetwork",
            text(fields, "subnetwork"),
            "Only internal addresses have one.",
        ));
    }
    let tier = text(fields, "networkTier").to_owned();
    let Some(wanted) = wanted else { return Ok(world.external_address(&tier)) };
    let shown = wanted.to_string();
    if reserved(world, wanted, "").is_some() {
        let text = "Specified IP address is already reserved.";
        return Err(errors::invalid("resource.address", &shown, text));
    }
    let here = |key: &str| {
        Spot::parse(key).is_some_and(|other| other.region() == spot.region() && other.project == spot.project)
    };
    let holder = world.holder(wanted, "").filter(|key| here(key));
    let Some(holder) = holder else {
        let text = format!("The specified external IP address '{shown}' was not found in region '{}'.", spot.region());
        return Err(errors::invalid("resource.address", &shown, &text));
    };
    let has = world.object(&holder).map(|row| text(row, "networkTier").to_owned()).unwrap_or_default();
    if !has.is_empty() && has != tier {
        // unverified: the text.
        let text = format!("The network tier of the address is {has}, not {tier}.");
        return Err(errors::invalid("resource.networkTier", &tier, &text));
    }
    Ok(wanted)
}

/// The reservation of an address in this network, or of an external one if `network` is empty.
pub(super) fn reserved(world: &World, wanted: IpAddr, network: &str) -> Option<String> {
    let kind = if network.is_empty() { "EXTERNAL" } else { "INTERNAL" };
    let same = |row: &Row| {
        address(row.text("address")) == Some(wanted)
            && row.text("addressType") == kind
            && (network.is_empty() || world.network_of(&row.fields).as_deref() == Some(network))
    };
    let mut all = world.store.alive("addresses", world.now());
    all.find(|(_, row)| same(row)).map(|(key, _)| key.to_owned())
}

/// The users of a reserved address.
fn users(world: &World, fields: &Fields) -> Vec<String> {
    let own = text(fields, "address");
    let network = if text(fields, "addressType") == "INTERNAL" { world.network_of(fields) } else { None };
    let rule =
        |row: &Row| row.text("IPAddress") == own && (network.is_none() || world.network_of(&row.fields) == network);
    let instance = |key: &String| {
        let row = world.store.get(key);
        row.is_some_and(|row| network.as_deref().is_none_or(|network| instances::is_in(&row.fields, network)))
    };
    let rules = world.store.all("forwardingRules").filter(|(_, row)| rule(row)).map(|(key, _)| key.to_owned());
    rules.chain(instances::with_address(world, own).into_iter().filter(instance)).collect()
}

/// Adds the users of the address.
pub(super) fn show(world: &World, _: &str, fields: &mut Fields) {
    let users: Vec<String> = users(world, fields).iter().map(|key| link(key)).collect();
    fields.insert("status".to_owned(), json!(if users.is_empty() { "RESERVED" } else { "IN_USE" }));
    if !users.is_empty() {
        fields.insert("users".to_owned(), json!(users));
    }
}

/// The reservation of an address can be deleted while a forwarding rule uses it: the rule keeps the address until it is
/// deleted.
pub(super) fn free(world: &World, spot: &Spot) -> Result<(), Problem> {
    let key = spot.key();
    let Some(row) = world.store.get(&key) else { return Ok(()) };
    if row.text("addressType") == "INTERNAL" && spot.scope == Scope::Region {
        world.may("compute.addresses.deleteInternal", &key)?;
    }
    let users = users(world, &row.fields);
    match users.iter().find(|user| collection(user) == "instances") {
        Some(user) => Err(errors::in_use("address", &key, user)),
        None => Ok(()),
    }
}
