//! Tags of EC2 resources.

use super::model::{Ec2State, Tags};
use super::{instances, unknown_ids};
use crate::aws::{ApiError, Call, World, Xml};

/// Checks new tags against AWS's rules; `total` is the resulting number of tags of the resource.
pub(super) fn check(world: &World, tags: &Tags, total: usize) -> Result<(), ApiError> {
    let bad = |text: String| Err(ApiError::new("InvalidParameterValue", text));
    for (key, value) in tags {
        if key.to_ascii_lowercase().starts_with("aws:") {
            return bad("Tag keys starting with 'aws:' are reserved for internal use".to_owned());
        }
        if key.is_empty() || key.chars().count() > 128 {
            return bad(format!("Tag key '{key}' is invalid: it must have 1 to 128 characters"));
        }
        if value.chars().count() > 256 {
            return bad(format!("Tag value of key '{key}' exceeds the maximum length of 256 characters"));
        }
    }
    if total > world.options.limits.tags {
        let text = "The maximum number of tags for a resource has been reached.";
        return Err(ApiError::new("TagLimitExceeded", text));
    }
    Ok(())
}

/// The resource type of an ID.
pub(in crate::aws) fn kind(id: &str) -> Option<&'static str> {
    let (prefix, _) = id.split_once('-')?;
    Some(match prefix {
        "i" => "instance",
        "sg" => "security-group",
        "subnet" => "subnet",
        "vpc" => "vpc",
        "rtb" => "route-table",
        "igw" => "internet-gateway",
        "eni" => "network-interface",
        "vol" => "volume",
        "eipalloc" => "elastic-ip",
        _ => return None,
    })
}

fn tags_mut<'a>(ec2: &'a mut Ec2State, id: &str) -> Option<&'a mut Tags> {
    Some(match kind(id)? {
        "instance" => &mut ec2.instances.get_mut(id)?.tags,
        "security-group" => &mut ec2.groups.get_mut(id)?.tags,
        "subnet" => &mut ec2.subnets.get_mut(id)?.tags,
        "vpc" => &mut ec2.vpcs.get_mut(id)?.tags,
        "route-table" => &mut ec2.route_tables.get_mut(id)?.tags,
        "internet-gateway" => &mut ec2.gateways.get_mut(id)?.tags,
        "network-interface" => &mut ec2.interfaces.get_mut(id)?.tags,
        "volume" => &mut ec2.volumes.get_mut(id)?.tags,
        _ => &mut ec2.addresses.get_mut(id)?.tags,
    })
}

/// Checks that a resource can be tagged: its type is known, and it is visible.
fn check_resource(world: &World, id: &str) -> Result<(), ApiError> {
    let ec2 = &world.ec2;
    let found = |known: bool, code: &str, what: &str| {
        if known { Ok(()) } else { Err(unknown_ids(code, what, &[id])) }
    };
    match kind(id) {
        Some("instance") => instances::check_ids(world, &[id]),
        Some("security-group") => super::security_groups::find(world, id).map(|_| ()),
        Some("subnet") => found(ec2.subnets.contains_key(id), "InvalidSubnetID.NotFound", "subnet"),
        Some("vpc") => found(ec2.vpcs.contains_key(id), "InvalidVpcID.NotFound", "vpc"),
        Some("route-table") => super::routes::check(world, &[id]),
        Some("internet-gateway") => {
            found(ec2.gateways.contains_key(id), "InvalidInternetGatewayID.NotFound", "internetGateway")
        }
        Some("network-interface") => super::interfaces::check(world, &[id]),
        Some("volume") => {
            let volume = ec2.volumes.get(id);
            let known = volume.is_some_and(|volume| world.known("volume", volume.created));
            found(known, "InvalidVolume.NotFound", "volume")
        }
        Some(_) => found(ec2.addresses.contains_key(id), "InvalidAllocationID.NotFound", "allocation"),
        None => Err(ApiError::new("InvalidID", format!("The ID '{id}' is not valid"))),
    }
}

fn resources(world: &World, call: &Call) -> Result<Vec<String>, ApiError> {
    let ids = call.params.texts("ResourceId");
    if ids.is_empty() {
        return Err(ApiError::missing("ResourceIdSet"));
    }
    for id in &ids {
        check_resource(world, id)?;
    }
    Ok(ids)
}

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let ids = resources(world, call)?;
    let tags = call.params.tags("Tag")?;
    if tags.is_empty() {
        return Err(ApiError::missing("TagSet"));
    }
    for id in &ids {
        // One resource that can't be tagged fails the whole call.
        let mut all = tags_mut(&mut world.ec2, id).cloned().unwrap_or_default();
        all.extend(tags.clone());
        check(world, &tags, all.len())?;
    }
    for id in &ids {
        if let Some(found) = tags_mut(&mut world.ec2, id) {
            found.extend(tags.clone());
        }
    }
    Ok(Xml::done())
}

pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let ids = resources(world, call)?;
    let mut gone = Vec::new();
    for tag in call.params.items("Tag") {
        gone.push((tag.required("Key")?.to_owned(), tag.get("Value").map(str::to_owned)));
    }
    for id in &ids {
        let Some(tags) = tags_mut(&mut world.ec2, id) else { continue };
        if gone.is_empty() {
            tags.clear();
        }
        for (key, value) in &gone {
            // With a value, only a tag with that value is deleted; an empty value is a value.
            if value.as_ref().is_none_or(|value| tags.get(key) == Some(value)) {
                tags.remove(key);
            }
        }
    }
    Ok(Xml::done())
}
