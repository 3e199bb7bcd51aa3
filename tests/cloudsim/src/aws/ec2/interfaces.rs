//! Network interfaces: those of instances, of load balancers, and unattached ones.

use super::filters::{Filters, Page, listing};
use super::lifecycle::{ip_name, public_name};
use super::model::Interface;
use super::network::check_groups;
use super::{Ec2State, check_known, tag_set, time, well_formed};
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

const FILTERS: &[&str] = &["attachment.status", "description", "private-ip-address", "requester-managed", "vpc-id"];

pub(super) fn check(world: &World, ids: &[&str]) -> Result<(), ApiError> {
    if let Some(bad) = ids.iter().find(|id| !well_formed(id, "eni-")) {
        return Err(ApiError::new("InvalidNetworkInterfaceId.Malformed", format!("Invalid id: \"{bad}\"")));
    }
    let known =
        |id: &str| world.ec2.interfaces.get(id).is_some_and(|interface| world.known("interface", interface.created));
    check_known(ids, "InvalidNetworkInterfaceID.NotFound", "networkInterface", known)
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, FILTERS)?;
    let ids = call.params.list("NetworkInterfaceId");
    if !ids.is_empty() && call.params.has("MaxResults") {
        let text = "The parameter networkInterfaceIds cannot be used with the parameter maxResults";
        return Err(ApiError::new("InvalidParameterCombination", text));
    }
    check(world, &ids)?;
    let page = Page::parse(call, 5..=1000)?;
    let ec2 = &world.ec2;
    let passes = |id: &String, interface: &Interface| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && world.known("interface", interface.created)
            && filters.pass(&interface.tags, |name, is| has(interface, name, is))
    };
    let found = match filters.exact("private-ip-address") {
        Some(addresses) => {
            let users = |ip: &String| ec2.index.by_ip.get(&ip.parse::<Ipv4Addr>().ok()?);
            let ids: BTreeSet<&String> = addresses.iter().filter_map(users).flatten().collect();
            let found = ids.into_iter().filter_map(|id| ec2.interfaces.get_key_value(id));
            page.take(found.filter(|(id, interface)| passes(id, interface)))
        }
        None => page.take(ec2.interfaces.iter().filter(|(id, interface)| passes(id, interface))),
    };
    Ok(listing("networkInterfaceSet", found, |xml, id, interface| item(xml, ec2, id, interface, false)))
}

fn has(found: &Interface, name: &str, is: &dyn Fn(&str) -> bool) -> bool {
    let attachment = found.attachment.as_ref();
    match name {
        "attachment.status" => attachment.is_some_and(|attachment| is(&attachment.status)),
        "description" => is(&found.description),
        "private-ip-address" => found.private_ips.first().is_some_and(|ip| is(&ip.to_string())),
        "requester-managed" => is(if found.requester.is_some() { "true" } else { "false" }),
        "vpc-id" => is(&found.vpc),
        _ => false,
    }
}

/// An interface as DescribeNetworkInterfaces shows it, or as a part of its instance.
pub(super) fn item(xml: &mut Xml, ec2: &Ec2State, id: &str, found: &Interface, in_instance: bool) {
    xml.text("networkInterfaceId", id);
    xml.text("subnetId", &found.subnet);
    xml.text("vpcId", &found.vpc);
    xml.text("description", &found.description);
    xml.text("ownerId", &ec2.account);
    xml.text("status", if found.attachment.is_some() { "in-use" } else { "available" });
    xml.text("macAddress", &found.mac);
    addresses(xml, ec2, found);
    xml.value("sourceDestCheck", found.source_dest_check);
    group_set(xml, ec2, &found.groups);
    if let Some(attachment) = &found.attachment {
        xml.elem("attachment", |xml| {
            xml.text("attachmentId", &attachment.id);
            xml.value("deviceIndex", attachment.device);
            xml.text("status", &attachment.status);
            xml.text("attachTime", &time(attachment.since));
            xml.value("deleteOnTermination", attachment.instance.is_some());
            if in_instance {
                xml.raw("<networkCardIndex>0</networkCardIndex>");
            } else {
                xml.opt("instanceId", attachment.instance.as_deref());
                xml.text("instanceOwnerId", found.requester.as_deref().unwrap_or(&ec2.account));
            }
        });
    }
    xml.text("interfaceType", &found.kind);
    if !in_instance {
        xml.text("availabilityZone", &found.zone);
        xml.opt("requesterId", found.requester.as_deref());
        xml.value("requesterManaged", found.requester.is_some());
        tag_set(xml, &found.tags);
    }
}

pub(super) fn group_set(xml: &mut Xml, ec2: &Ec2State, groups: &[String]) {
    xml.list("groupSet", "item", groups, |xml, id| {
        xml.text("groupId", id);
        xml.text("groupName", ec2.groups.get(id).map(|group| group.name.as_str()).unwrap_or_default());
    });
}

/// The addresses of an interface: the same elements in both answers.
fn addresses(xml: &mut Xml, ec2: &Ec2State, found: &Interface) {
    if let Some(ip) = found.private_ips.first() {
        xml.value("privateIpAddress", ip);
        xml.text("privateDnsName", &ip_name(&ec2.region, *ip));
    }
    association(xml, ec2, found);
    xml.list("privateIpAddressesSet", "item", found.private_ips.iter().enumerate(), |xml, (n, ip)| {
        xml.value("privateIpAddress", ip);
        xml.text("privateDnsName", &ip_name(&ec2.region, *ip));
        xml.value("primary", n == 0);
        if n == 0 {
            association(xml, ec2, found);
        }
    });
    if !found.ipv6.is_empty() {
        xml.list("ipv6AddressesSet", "item", &found.ipv6, |xml, ip| xml.value("ipv6Address", ip));
    }
    if !found.ipv6_prefixes.is_empty() {
        xml.list("ipv6PrefixSet", "item", &found.ipv6_prefixes, |xml, prefix| xml.text("ipv6Prefix", prefix));
    }
}

fn association(xml: &mut Xml, ec2: &Ec2State, found: &Interface) {
    let Some(ip) = found.public_ip else { return };
    xml.elem("association", |xml| {
        xml.opt("allocationId", found.allocation.as_deref());
        xml.text("ipOwnerId", if found.allocation.is_some() { &ec2.account } else { "amazon" });
        xml.text("publicDnsName", &public_name(&ec2.region, ip));
        xml.value("publicIp", ip);
    });
}

pub(super) fn modify_attribute(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("NetworkInterfaceId")?;
    check(world, &[id])?;
    let change = Change::read(call, "SecurityGroupId")?;
    let Some(vpc) = world.ec2.interfaces.get(id).map(|interface| interface.vpc.clone()) else {
        return Ok(Xml::done());
    };
    check_groups(world, &change.groups, &vpc)?;
    let Some(interface) = world.ec2.interfaces.get_mut(id) else { return Ok(Xml::done()) };
    if interface.requester.is_some() {
        let text = format!("You do not have permission to access the specified resource {id}.");
        return Err(ApiError::with_status(400, "AuthFailure", text));
    }
    change.apply(interface);
    Ok(Xml::done())
}

/// The properties of an interface that can be changed, also through its instance.
pub(super) struct Change {
    source_dest_check: Option<bool>,
    pub(super) groups: Vec<String>,
}

impl Change {
    pub(super) fn read(call: &Call, groups: &str) -> Result<Self, ApiError> {
        let check = call.params.sub("SourceDestCheck").map(|value| value.flag("Value")).transpose()?.flatten();
        let change = Change { source_dest_check: check, groups: call.params.texts(groups) };
        if change.source_dest_check.is_none() && change.groups.is_empty() {
            return Err(ApiError::new("InvalidParameterCombination", "No attributes specified."));
        }
        Ok(change)
    }

    pub(super) fn apply(self, interface: &mut Interface) {
        interface.source_dest_check = self.source_dest_check.unwrap_or(interface.source_dest_check);
        if !self.groups.is_empty() {
            interface.groups = self.groups;
        }
    }
}
