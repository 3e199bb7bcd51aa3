//! Network interfaces: those of instances, of load balancers, and free ones.

use super::filters::{Filters, Page};
use super::instances::{addresses, group_set};
use super::model::Interface;
use super::network::check_groups;
use super::{Ec2State, tag_set, time, unknown_ids, well_formed};
use crate::aws::{ApiError, Call, World, Xml};
use std::net::IpAddr;

const FILTERS: &[&str] = &[
    "addresses.private-ip-address",
    "attachment.status",
    "description",
    "private-ip-address",
    "requester-managed",
    "vpc-id",
];

pub(super) fn check(world: &World, ids: &[&str]) -> Result<(), ApiError> {
    if let Some(bad) = ids.iter().find(|id| !well_formed(id, "eni-")) {
        return Err(ApiError::new("InvalidNetworkInterfaceId.Malformed", format!("Invalid id: \"{bad}\"")));
    }
    let known =
        |id: &str| world.ec2.interfaces.get(id).is_some_and(|interface| world.known("interface", interface.created));
    let unknown: Vec<&str> = ids.iter().copied().filter(|id| !known(id)).collect();
    if unknown.is_empty() {
        return Ok(());
    }
    Err(unknown_ids("InvalidNetworkInterfaceID.NotFound", "networkInterface", &unknown))
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, FILTERS)?;
    let ids = call.params.list("NetworkInterfaceId");
    if !ids.is_empty() && call.params.has("MaxResults") {
        let text = "The parameter networkInterfaceIds cannot be used with the parameter maxResults";
        return Err(ApiError::new("InvalidParameterCombination", text));
    }
    check(world, &ids)?;
    let page = Page::parse(world, call, 5..=1000)?;
    let ec2 = &world.ec2;
    let passes = |id: &String, interface: &Interface| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && world.known("interface", interface.created)
            && filters.pass(&interface.tags, |name, is| has(interface, name, is))
    };
    let by_ip = filters.exact("private-ip-address").or_else(|| filters.exact("addresses.private-ip-address"));
    let (found, token) = match by_ip {
        Some(addresses) => {
            let users = |ip: &String| ec2.index.by_ip.get(&ip.parse::<IpAddr>().ok()?);
            let ids: std::collections::BTreeSet<&String> = addresses.iter().filter_map(users).flatten().collect();
            let found = ids.into_iter().filter_map(|id| ec2.interfaces.get_key_value(id));
            page.take(found.filter(|(id, interface)| passes(id, interface)))
        }
        None => page.take(ec2.interfaces.iter().filter(|(id, interface)| passes(id, interface))),
    };
    let mut xml = Xml::with_capacity(found.len() * 2048);
    xml.list("networkInterfaceSet", "item", &found, |xml, (id, interface)| item(xml, ec2, id, interface));
    xml.opt("nextToken", token.as_deref());
    xml.count(found.len());
    Ok(xml)
}

fn has(found: &Interface, name: &str, is: &dyn Fn(&str) -> bool) -> bool {
    let attachment = found.attachment.as_ref();
    match name {
        "addresses.private-ip-address" => found.private_ips.iter().any(|ip| is(&ip.to_string())),
        "attachment.status" => attachment.is_some_and(|attachment| is(&attachment.status)),
        "description" => is(&found.description),
        "private-ip-address" => found.private_ips.first().is_some_and(|ip| is(&ip.to_string())),
        "requester-managed" => is(if found.requester.is_some() { "true" } else { "false" }),
        "vpc-id" => is(&found.vpc),
        _ => false,
    }
}

fn status(found: &Interface) -> &'static str {
    if found.attachment.is_some() { "in-use" } else { "available" }
}

fn item(xml: &mut Xml, ec2: &Ec2State, id: &str, found: &Interface) {
    xml.text("networkInterfaceId", id);
    xml.text("subnetId", &found.subnet);
    xml.text("vpcId", &found.vpc);
    xml.text("availabilityZone", &found.zone);
    xml.text("description", &found.description);
    xml.text("ownerId", &ec2.account);
    xml.opt("requesterId", found.requester.as_deref());
    xml.value("requesterManaged", found.requester.is_some());
    xml.text("status", status(found));
    xml.text("macAddress", &found.mac);
    addresses(xml, ec2, found);
    xml.value("sourceDestCheck", found.source_dest_check);
    group_set(xml, ec2, &found.groups);
    if let Some(attachment) = &found.attachment {
        xml.elem("attachment", |xml| {
            xml.text("attachmentId", &attachment.id);
            xml.opt("instanceId", attachment.instance.as_deref());
            xml.text("instanceOwnerId", found.requester.as_deref().unwrap_or(&ec2.account));
            xml.value("deviceIndex", attachment.device);
            xml.text("status", &attachment.status);
            xml.text("attachTime", &time(attachment.since));
            xml.value("deleteOnTermination", attachment.delete_on_termination);
        });
    }
    tag_set(xml, &found.tags);
    xml.text("interfaceType", &found.kind);
}

pub(super) fn modify_attribute(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("NetworkInterfaceId")?;
    check(world, &[id])?;
    let groups: Vec<String> = call.params.list("SecurityGroupId").into_iter().map(str::to_owned).collect();
    let check = match call.params.sub("SourceDestCheck") {
        Some(value) => value.flag("Value")?,
        None => None,
    };
    if check.is_none() && groups.is_empty() {
        return Err(ApiError::new("InvalidParameterCombination", "No attributes specified."));
    }
    let Some(vpc) = world.ec2.interfaces.get(id).map(|interface| interface.vpc.clone()) else {
        return Ok(Xml::done());
    };
    check_groups(world, &groups, &vpc)?;
    let Some(interface) = world.ec2.interfaces.get_mut(id) else { return Ok(Xml::done()) };
    if interface.requester.is_some() {
        let text = format!("You do not have permission to access the specified resource {id}.");
        return Err(ApiError::with_status(400, "AuthFailure", text));
    }
    if let Some(check) = check {
        interface.source_dest_check = check;
    }
    if !groups.is_empty() {
        interface.groups = groups;
    }
    Ok(Xml::done())
}
