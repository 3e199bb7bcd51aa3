//! Forwarding rules: to target pools, and to regional backend services.

use super::kinds::Fields;
use super::places::{Spot, address, link, region_of};
use super::verbs::{default, refer, text, texts};
use super::world::{World, inner};
use super::{addresses, errors, instances, ip};
use crate::core::rest::Problem;
use crate::core::rows::Row;
use serde_json::{Value, json};
use std::net::IpAddr;

/// The maximum number of individual ports of a rule.
const MOST_PORTS: usize = 5;

/// The purpose of an internal address that several rules may have.
const SHARED: &str = "SHARED_LOADBALANCER_VIP";

/// The fields that a patch can change.
const CHANGEABLE: [&str; 4] = ["allowGlobalAccess", "labels", "labelFingerprint", "networkTier"];

/// Checks a new rule, and fills in its address and other defaults.
pub(super) fn make(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<(), Problem> {
    default(fields, "loadBalancingScheme", "EXTERNAL");
    default(fields, "IPProtocol", "TCP");
    let internal = text(fields, "loadBalancingScheme") == "INTERNAL";
    if internal && text(fields, "networkTier") == "STANDARD" {
        let text = "Network tier other than PREMIUM is not supported for loadBalancingScheme=INTERNAL.";
        return Err(errors::bad_request(text));
    }
    default(fields, "networkTier", "PREMIUM");
    backend(world, spot, fields, internal)?;
    ports(fields, internal)?;
    let address =
        if internal { internal_address(world, spot, fields)? } else { external_address(world, spot, fields)? };
    fields.insert("IPAddress".to_owned(), json!(address));
    if internal {
        same_network(world, fields)?;
    }
    for name in ["fingerprint", "labelFingerprint"] {
        let fingerprint = world.fingerprint();
        fields.insert(name.to_owned(), json!(fingerprint));
    }
    Ok(())
}

/// The target of the rule.
fn backend(world: &World, spot: &Spot, fields: &mut Fields, internal: bool) -> Result<(), Problem> {
    match (text(fields, "target").is_empty(), text(fields, "backendService").is_empty()) {
        (false, true) if !internal => {
            let pool = refer(world, spot, fields, "target", "targetPools")?;
            world.may("compute.targetPools.use", &pool)?;
            same_region(spot, &pool, "resource.target")
        }
        (true, false) => {
            let service = refer(world, spot, fields, "backendService", "backendServices")?;
            world.may("compute.regionBackendServices.use", &service)?;
            same_region(spot, &service, "resource.backendService")?;
            let Some(row) = world.object(&service) else { return Ok(()) };
            let (scheme, protocol) = (text(fields, "loadBalancingScheme"), text(fields, "IPProtocol"));
            if text(row, "loadBalancingScheme") != scheme {
                let text = "The load balancing scheme of the backend service differs from that of the forwarding rule.";
                return Err(errors::invalid("resource.loadBalancingScheme", scheme, text));
            }
            if !matches!(text(row, "protocol"), "UNSPECIFIED") && text(row, "protocol") != protocol {
                // unverified: the text.
                let text = format!("The protocol of the backend service is {}.", text(row, "protocol"));
                return Err(errors::invalid("resource.IPProtocol", protocol, &text));
            }
            Ok(())
        }
        (true, true) if internal => Err(errors::required("resource.backendService")),
        (true, true) => Err(errors::required("resource.target")),
        _ => Err(errors::bad_request("Exactly one of target and backendService must be specified.")),
    }
}

fn same_region(spot: &Spot, key: &str, field: &str) -> Result<(), Problem> {
    let region = Spot::parse(key).map(|other| other.region().to_owned()).unwrap_or_default();
    if region == spot.place {
        return Ok(());
    }
    Err(errors::invalid(field, &link(key), "The resource is not in the region of the forwarding rule."))
}

/// The backend groups of an internal rule must be in its network; a group without members has no network.
fn same_network(world: &World, fields: &Fields) -> Result<(), Problem> {
    let service = world.object(text(fields, "backendService")).and_then(|row| row.get("backends"));
    let backends = service.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let networks = backends.iter().filter_map(|backend| world.object(inner(backend, "group"))?.get("network"));
    match networks.filter_map(Value::as_str).find(|network| *network != text(fields, "network")) {
        None => Ok(()),
        Some(other) => {
            // unverified: the text.
            let text_ = format!("The network of the backends is '{other}'.");
            Err(errors::invalid("resource.network", text(fields, "network"), &text_))
        }
    }
}

/// Checks the ports: a range, up to five individual ports, or all ports.
fn ports(fields: &mut Fields, internal: bool) -> Result<(), Problem> {
    let all = fields.get("allPorts") == Some(&json!(true));
    let (range, single) = (text(fields, "portRange").to_owned(), texts(fields, "ports"));
    let ways = [all, !range.is_empty(), !single.is_empty()].into_iter().filter(|way| *way).count();
    if ways > 1 {
        return Err(errors::bad_request("At most one of allPorts, portRange and ports can be specified."));
    }
    if internal && !all && single.is_empty() {
        return Err(errors::required("resource.ports"));
    }
    if single.len() > MOST_PORTS {
        let text = format!("At most {MOST_PORTS} ports can be specified.");
        return Err(errors::invalid("resource.ports", &single.join(","), &text));
    }
    if let Some(wrong) = single.iter().find(|port| !port.parse::<u16>().is_ok_and(|port| port > 0)) {
        return Err(errors::invalid("resource.ports", wrong, "Must be a port."));
    }
    if !range.is_empty() {
        let (from, to) = range.split_once('-').unwrap_or((&range, &range));
        let (from, to) = (from.parse::<u16>().unwrap_or_default(), to.parse::<u16>().unwrap_or_default());
        if from == 0 || to < from {
            return Err(errors::invalid("resource.portRange", &range, "Must be a port or a range of ports."));
        }
        fields.insert("portRange".to_owned(), json!(format!("{from}-{to}")));
    }
    Ok(())
}

/// The requested address of a rule: a literal one, or the address of a reservation.
fn wanted(world: &World, spot: &Spot, fields: &Fields) -> Result<Option<IpAddr>, Problem> {
    let given = text(fields, "IPAddress");
    if given.is_empty() {
        return Ok(None);
    }
    if let Some(literal) = address(given) {
        return Ok(Some(literal));
    }
    let reference =
        if given.contains('/') { given.to_owned() } else { format!("regions/{}/addresses/{given}", spot.place) };
    let key = world.found(&reference, spot, "resource.IPAddress", "addresses")?;
    Ok(world.object(&key).and_then(|row| address(text(row, "address"))))
}

fn external_address(world: &mut World, spot: &Spot, fields: &Fields) -> Result<IpAddr, Problem> {
    let tier = text(fields, "networkTier").to_owned();
    let Some(wanted) = wanted(world, spot, fields)? else { return Ok(world.external_address(&tier)) };
    let shown = wanted.to_string();
    let here = |key: &String| key.starts_with(&format!("{}/", spot.location()));
    let Some(reserved) = addresses::reserved(world, wanted, "").filter(here) else {
        let text = format!("The specified external IP address '{shown}' was not found in region '{}'.", spot.place);
        return Err(errors::invalid("resource.IPAddress", &shown, &text));
    };
    world.may("compute.addresses.use", &reserved)?;
    let has = world.object(&reserved).map(|row| text(row, "networkTier").to_owned()).unwrap_or_default();
    if has != tier {
        // unverified: the text.
        let text = format!("The network tier of the address is {has}, not {tier}.");
        return Err(errors::invalid("resource.networkTier", &tier, &text));
    }
    if conflicts(world, wanted, fields) {
        let text = "Specified IP address is in-use and would result in a conflict.";
        return Err(errors::invalid("resource.IPAddress", &shown, text));
    }
    Ok(wanted)
}

fn internal_address(world: &mut World, spot: &Spot, fields: &mut Fields) -> Result<IpAddr, Problem> {
    if text(fields, "network").is_empty() && !text(fields, "subnetwork").is_empty() {
        let key = world.found(text(fields, "subnetwork"), spot, "resource.subnetwork", "subnetworks")?;
        let network = world.object(&key).and_then(|row| row.get("network").cloned()).unwrap_or_default();
        fields.insert("network".to_owned(), network);
    }
    default(fields, "network", "global/networks/default");
    let network = refer(world, spot, fields, "network", "networks")?;
    let legacy = world.object(&network).is_some_and(|row| row.contains_key("IPv4Range"));
    let pool = if legacy { network.clone() } else { subnetwork(world, spot, fields, &network)? };
    let Some(wanted) = wanted(world, spot, fields)? else {
        return world.free_address(&pool).ok_or_else(|| ip::exhausted(&pool));
    };
    world.choose(&pool, wanted, "resource.IPAddress")?;
    let reserved = addresses::reserved(world, wanted, &network);
    if let Some(reserved) = &reserved {
        world.may("compute.addresses.useInternal", reserved)?;
    }
    // Several rules may have such an address: gcloud compute addresses create --purpose.
    let is_shared = reserved.and_then(|key| world.object(&key)).is_some_and(|row| text(row, "purpose") == SHARED);
    let instance = |row: &Row| {
        instances::is_in(&row.fields, &network)
            && instances::all_addresses(&row.fields).any(|text| address(text) == Some(wanted))
    };
    let rule = |row: &Row| {
        address(row.text("IPAddress")) == Some(wanted)
            && world.network_of(&row.fields).as_deref() == Some(network.as_str())
            && (!is_shared || meets(row, fields))
    };
    let now = world.now();
    let held = world.store.alive("instances", now).any(|(_, row)| instance(row))
        || world.store.alive("forwardingRules", now).any(|(_, row)| rule(row));
    if held { Err(ip::taken(wanted)) } else { Ok(wanted) }
}

/// The subnetwork of an internal rule: the requested one, or in an auto-mode network that of its region.
fn subnetwork(world: &World, spot: &Spot, fields: &mut Fields, network: &str) -> Result<String, Problem> {
    if text(fields, "subnetwork").is_empty() {
        let auto = world.object(network).is_some_and(|row| row.get("autoCreateSubnetworks") == Some(&json!(true)));
        let here = |key: &str| Spot::parse(key).is_some_and(|other| other.place == spot.place);
        let mut own = world.store.all("subnetworks");
        let own = own.find(|(key, row)| row.text("network") == link(network) && here(key));
        let Some((key, _)) = own.filter(|_| auto) else {
            let text = "Network interface must specify a subnet if the network resource is in custom subnet mode.";
            return Err(errors::invalid("resource.subnetwork", "", text));
        };
        fields.insert("subnetwork".to_owned(), json!(link(key)));
        return Ok(key.to_owned());
    }
    let key = refer(world, spot, fields, "subnetwork", "subnetworks")?;
    if Spot::parse(&key).is_some_and(|other| other.place != spot.place) {
        let text = "The subnetwork is not in the region of the forwarding rule.";
        return Err(errors::invalid("resource.subnetwork", &link(&key), text));
    }
    if world.object(&key).is_some_and(|row| text(row, "network") != link(network)) {
        return Err(errors::invalid("resource.subnetwork", &link(&key), "The subnetwork is not of the network."));
    }
    world.may("compute.subnetworks.use", &key)?;
    Ok(key)
}

/// Whether another rule has an address with the same protocol and some of the same ports.
fn conflicts(world: &World, wanted: IpAddr, fields: &Fields) -> bool {
    let mut others = world.store.alive("forwardingRules", world.now());
    others.any(|(_, row)| address(row.text("IPAddress")) == Some(wanted) && meets(row, fields))
}

/// Whether a rule is for the same protocol and some of the same ports.
fn meets(row: &Row, fields: &Fields) -> bool {
    row.text("IPProtocol") == text(fields, "IPProtocol") && overlap(&row.fields, fields)
}

fn overlap(one: &Fields, other: &Fields) -> bool {
    let (one, other) = (ranges(one), ranges(other));
    one.iter().any(|(from, to)| other.iter().any(|(low, high)| from <= high && low <= to))
}

/// The ports of a rule as ranges.
fn ranges(fields: &Fields) -> Vec<(u16, u16)> {
    let number = |text: &str| text.parse::<u16>().unwrap_or_default();
    let single: Vec<(u16, u16)> = texts(fields, "ports").iter().map(|port| (number(port), number(port))).collect();
    match text(fields, "portRange").split_once('-') {
        Some((from, to)) => vec![(number(from), number(to))],
        None if single.is_empty() => vec![(0, u16::MAX)],
        None => single,
    }
}

/// Most fields of a rule are immutable.
pub(super) fn change(_: &mut World, _: &Spot, old: &Row, fields: &mut Fields) -> Result<(), Problem> {
    let changed = |name: &&String| fields.get(*name) != old.fields.get(*name);
    let names = fields.keys().chain(old.fields.keys());
    match names.filter(changed).find(|name| !CHANGEABLE.contains(&name.as_str())) {
        None => Ok(()),
        Some(name) => {
            let value = fields.get(name).map_or_else(String::new, Value::to_string);
            Err(errors::invalid(&format!("resource.{name}"), &value, "The field cannot be changed by a patch."))
        }
    }
}

/// Whether a zone is in the region of a rule or pool.
pub(super) fn zone_is_in(zone: &str, region: &str) -> bool {
    region_of(zone) == region
}
