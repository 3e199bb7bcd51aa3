//! Projects, zones, regions, networks and subnetworks.

use super::kinds::Fields;
use super::places::{link, region_of};
use super::world::World;
use super::{errors, lists, verbs};
use crate::core::rest::{Call, Problem, Reply};
use serde_json::{Value, json};

/// `GET projects/{project}`
pub(super) fn get_project(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = verbs::known_project(world, call.id(0))?;
    let number = world.projects.get(&project).copied().unwrap_or_default();
    let body = json!({
        "kind": "compute#project", "id": number.to_string(), "creationTimestamp": "2020-01-01T00:00:00.000-08:00",
        "name": project, "commonInstanceMetadata": {"kind": "compute#metadata", "fingerprint": "xxKYmqYcOIA="}, "quotas": [],
        "selfLink": link(&format!("projects/{project}")), "defaultNetworkTier": "PREMIUM",
        "defaultServiceAccount": super::metadata::account(number), "xpnProjectStatus": "UNSPECIFIED_XPN_PROJECT_STATUS",
        "cloudArmorTier": "CA_STANDARD", "vmDnsSetting": "ZONAL_ONLY",
    });
    Ok(Reply::json(200, &body))
}

/// `GET projects/{project}/zones`
pub(super) fn list_zones(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = verbs::known_project(world, call.id(0))?;
    let zones = world.options.regions.values().flatten().map(|zone| shown_zone(&project, zone)).collect();
    lists::of_values(world, call, "compute#zoneList", zones)
}

/// `GET projects/{project}/zones/{zone}`
pub(super) fn get_zone(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = verbs::known_project(world, call.id(0))?;
    let known = world.options.regions.values().flatten().any(|zone| zone == call.id(1));
    if !known {
        return Err(errors::not_found(&format!("projects/{project}/zones/{}", call.id(1))));
    }
    Ok(Reply::json(200, &shown_zone(&project, call.id(1))))
}

fn shown_zone(project: &str, zone: &str) -> Fields {
    fields(json!({
        "kind": "compute#zone", "id": number(zone), "creationTimestamp": "1969-12-31T16:00:00.000-08:00", "name": zone,
        "description": zone, "status": "UP", "region": link(&format!("projects/{project}/regions/{}", region_of(zone))),
        "selfLink": link(&format!("projects/{project}/zones/{zone}")), "supportsPzs": false,
    }))
}

/// `GET projects/{project}/regions`
pub(super) fn list_regions(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = verbs::known_project(world, call.id(0))?;
    let regions = world.options.regions.iter().map(|(region, zones)| shown_region(&project, region, zones)).collect();
    lists::of_values(world, call, "compute#regionList", regions)
}

/// `GET projects/{project}/regions/{region}`
pub(super) fn get_region(world: &mut World, call: &Call) -> Result<Reply, Problem> {
    let project = verbs::known_project(world, call.id(0))?;
    let region = call.id(1);
    let zones = world.options.regions.get(region);
    let zones = zones.ok_or_else(|| errors::not_found(&format!("projects/{project}/regions/{region}")))?;
    Ok(Reply::json(200, &shown_region(&project, region, zones)))
}

fn shown_region(project: &str, region: &str, zones: &[String]) -> Fields {
    let zones: Vec<String> = zones.iter().map(|zone| link(&format!("projects/{project}/zones/{zone}"))).collect();
    fields(json!({
        "kind": "compute#region", "id": number(region), "creationTimestamp": "1969-12-31T16:00:00.000-08:00", "name": region,
        "description": region, "status": "UP", "zones": zones, "quotas": [], "supportsPzs": false,
        "selfLink": link(&format!("projects/{project}/regions/{region}")),
    }))
}

/// A number derived from a name.
fn number(name: &str) -> String {
    name.bytes().fold(1_u64, |number, byte| number * 31 % 1_000_000_007 + u64::from(byte)).to_string()
}

/// The fields of a JSON object.
pub(super) fn fields(value: Value) -> Fields {
    if let Value::Object(fields) = value { fields } else { Fields::new() }
}

/// Adds the subnetworks of a network.
pub(super) fn show(world: &World, key: &str, fields: &mut Fields) {
    if fields.contains_key("IPv4Range") {
        return;
    }
    let all = world.store.all("subnetworks");
    let subnetworks: Vec<String> =
        all.filter(|(_, row)| row.text("network") == link(key)).map(|(key, _)| link(key)).collect();
    if !subnetworks.is_empty() {
        fields.insert("subnetworks".to_owned(), json!(subnetworks));
    }
}
