//! Volumes and Elastic IP addresses.

use super::filters::{Filters, Page, listing};
use super::model::{Address, Volume};
use super::network::public_ip;
use super::{check_known, made_before, remember, tag_set, tags_for, time, well_formed};
use crate::aws::{ApiError, Call, World, Xml};

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, &["volume-id"])?;
    let ids = call.params.list("VolumeId");
    if let Some(bad) = ids.iter().find(|id| !well_formed(id, "vol-")) {
        // unverified: whether AWS reports a malformed ID or an invalid parameter.
        let text = format!("Value ({bad}) for parameter volumes is invalid. Expected: 'vol-...'.");
        return Err(ApiError::new("InvalidParameterValue", text));
    }
    let known =
        |id: &str, volume: &Volume| (ids.is_empty() || ids.contains(&id)) && world.known("volume", volume.created);
    let volumes = &world.ec2.volumes;
    let found = |id: &str| volumes.get(id).is_some_and(|volume| known(id, volume));
    check_known(&ids, "InvalidVolume.NotFound", "volume", found)?;
    let page = Page::parse(call, 5..=1000)?;
    let passes = |id: &String, volume: &Volume| {
        known(id, volume) && filters.pass(&volume.tags, |name, is| name == "volume-id" && is(id))
    };
    let found = page.take(volumes.iter().filter(|(id, volume)| passes(id, volume)));
    Ok(listing("volumeSet", found, item))
}

fn item(xml: &mut Xml, id: &str, volume: &Volume) {
    xml.text("volumeId", id);
    xml.value("size", volume.size);
    xml.raw("<snapshotId/>");
    xml.text("availabilityZone", &volume.zone);
    xml.text("status", &volume.state);
    xml.text("createTime", &time(volume.created));
    xml.raw("<attachmentSet/>");
    xml.text("volumeType", &volume.kind);
    xml.raw("<encrypted>false</encrypted>");
    tag_set(xml, &volume.tags);
}

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = match made_before(world, call)?.and_then(|made| made.first().cloned()) {
        Some(id) => id,
        None => {
            let zone = call.params.required("AvailabilityZone")?;
            if !world.ec2.zones.contains_key(zone) {
                let text = format!("The zone '{zone}' does not exist.");
                return Err(ApiError::new("InvalidZone.NotFound", text));
            }
            let size = call.params.int("Size")?.unwrap_or_default();
            if !(1..=65_536).contains(&size) {
                return Err(ApiError::bad_value("size", &size.to_string(), "It must be from 1 to 65536."));
            }
            let volume = Volume {
                zone: zone.to_owned(),
                size,
                kind: call.params.get("VolumeType").unwrap_or("gp2").to_owned(),
                state: "available".to_owned(),
                tags: tags_for(world, call, "volume")?,
                created: world.now(),
            };
            let id = world.new_id("vol-");
            world.ec2.volumes.insert(id.clone(), volume);
            remember(world, call, std::slice::from_ref(&id));
            id
        }
    };
    let mut xml = Xml::new();
    if let Some(volume) = world.ec2.volumes.get(&id) {
        item(&mut xml, &id, volume);
    }
    Ok(xml)
}

pub(super) fn allocate_address(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let _domain = call.params.get("Domain");
    let tags = tags_for(world, call, "elastic-ip")?;
    if world.ec2.addresses.len() >= world.options.limits.addresses {
        return Err(ApiError::new("AddressLimitExceeded", "The maximum number of addresses has been reached."));
    }
    let (id, public_ip) = (world.new_id("eipalloc-"), public_ip(world));
    let mut xml = Xml::new();
    xml.text("domain", "vpc");
    xml.text("allocationId", &id);
    xml.value("publicIp", public_ip);
    xml.text("networkBorderGroup", &world.ec2.region);
    world.ec2.addresses.insert(id, Address { public_ip, interface: None, tags });
    Ok(xml)
}
