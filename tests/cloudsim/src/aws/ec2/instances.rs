//! Reads of instances.

use super::filters::{Filters, Page, Taken, listing};
use super::interfaces::{group_set, item as interface};
use super::model::{Instance, InstanceState};
use super::{Ec2State, check_known, tag_set, time, well_formed};
use crate::aws::{ApiError, Call, World, Xml};
use std::collections::BTreeSet;

const FILTERS: &[&str] = &["instance-id", "instance-state-name", "private-dns-name", "private-ip-address", "vpc-id"];

/// Checks that these instances exist. One bad ID fails the whole call.
pub(super) fn check_ids(world: &World, ids: &[&str]) -> Result<(), ApiError> {
    if let Some(bad) = ids.iter().find(|id| !well_formed(id, "i-")) {
        return Err(ApiError::new("InvalidInstanceID.Malformed", format!("Invalid id: \"{bad}\"")));
    }
    check_known(ids, "InvalidInstanceID.NotFound", "instance", |id| known(world, id).is_some())
}

/// An instance, if it is visible yet.
pub(in crate::aws) fn known<'a>(world: &'a World, id: &str) -> Option<&'a Instance> {
    world.ec2.instances.get(id).filter(|instance| world.known("instance", instance.created))
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, FILTERS)?;
    let mut ids = call.params.list("InstanceId");
    let page = Page::parse(call, 5..=1000)?;
    let ec2 = &world.ec2;
    let (found, token) = if ids.is_empty() {
        match narrowed(ec2, &filters) {
            Some(ids) => {
                let candidates = ids.iter().filter_map(|id| ec2.instances.get_key_value(id.as_str()));
                select(world, &filters, &page, candidates)
            }
            None => select(world, &filters, &page, ec2.instances.iter()),
        }
    } else {
        if Page::asked(call) {
            let text = "The parameter instancesSet cannot be used with the parameter maxResults";
            return Err(ApiError::new("InvalidParameterCombination", text));
        }
        check_ids(world, &ids)?;
        ids.sort_unstable();
        ids.dedup();
        select(world, &filters, &Page::whole(), ids.iter().filter_map(|id| ec2.instances.get_key_value(*id)))
    };
    let mut xml = Xml::with_capacity(found.len() * 4096);
    xml.open("reservationSet");
    let mut rest = found.as_slice();
    while let Some((_, first)) = rest.first() {
        let same = rest.iter().take_while(|(_, instance)| instance.reservation == first.reservation).count();
        let (reservation, others) = rest.split_at(same);
        xml.elem("item", |xml| self::reservation(xml, ec2, &first.reservation, reservation));
        rest = others;
    }
    xml.close("reservationSet");
    xml.opt("nextToken", token.as_deref());
    xml.count(found.len());
    Ok(xml)
}

/// The IDs that can match, if an index can determine them.
fn narrowed(ec2: &Ec2State, filters: &Filters) -> Option<BTreeSet<String>> {
    if let Some(ids) = filters.exact("instance-id") {
        return Some(ids.iter().cloned().collect());
    }
    if let Some(names) = filters.exact("private-dns-name") {
        return Some(names.iter().filter_map(|name| ec2.index.by_dns.get(name)).flatten().cloned().collect());
    }
    let addresses = filters.exact("private-ip-address")?;
    let interfaces = addresses.iter().filter_map(|ip| ec2.index.by_ip.get(&ip.parse().ok()?)).flatten();
    Some(interfaces.filter_map(|id| ec2.interfaces.get(id)?.attachment.as_ref()?.instance.clone()).collect())
}

fn select<'a>(
    world: &'a World,
    filters: &Filters,
    page: &Page,
    candidates: impl Iterator<Item = (&'a String, &'a Instance)>,
) -> Taken<'a, &'a Instance> {
    page.take(candidates.filter(|(id, instance)| {
        world.known("instance", instance.created)
            && !world.ec2.left_out.contains(*id)
            && filters.pass(&instance.tags, |name, is| has(&world.ec2, id, instance, name, is))
    }))
}

fn has(ec2: &Ec2State, id: &str, instance: &Instance, name: &str, is: &dyn Fn(&str) -> bool) -> bool {
    let primary = || ec2.primary_interface(instance).map(|(_, interface)| interface);
    match name {
        "instance-id" => is(id),
        "instance-state-name" => is(instance.state.name()),
        "private-dns-name" => is(&instance.private_dns),
        "private-ip-address" => {
            primary().and_then(|interface| interface.private_ips.first()).is_some_and(|ip| is(&ip.to_string()))
        }
        "vpc-id" => is(&instance.vpc),
        _ => false,
    }
}

/// One reservation with its instances, as in the answers of DescribeInstances and RunInstances, without the outer
/// element.
pub(super) fn reservation(xml: &mut Xml, ec2: &Ec2State, id: &str, instances: &[(&String, &Instance)]) {
    xml.text("reservationId", id);
    xml.text("ownerId", &ec2.account);
    xml.raw("<groupSet/>");
    xml.list("instancesSet", "item", instances, |xml, (id, found)| instance(xml, ec2, id, found));
}

pub(super) fn state(xml: &mut Xml, name: &str, state: InstanceState) {
    let (code, text) = state.on_wire();
    xml.elem(name, |xml| {
        xml.value("code", code);
        xml.text("name", text);
    });
}

fn instance(xml: &mut Xml, ec2: &Ec2State, id: &str, found: &Instance) {
    let gone = found.state == InstanceState::Terminated;
    let primary = ec2.primary_interface(found).map(|(_, interface)| interface);
    xml.text("instanceId", id);
    xml.text("imageId", &found.image);
    state(xml, "instanceState", found.state);
    xml.text("privateDnsName", &found.private_dns);
    xml.text("dnsName", &found.public_dns);
    xml.value("amiLaunchIndex", found.launch_index);
    xml.raw("<productCodes/>");
    xml.text("instanceType", &found.instance_type);
    xml.text("launchTime", &time(found.created));
    xml.elem("placement", |xml| {
        xml.text("availabilityZone", &found.zone);
        xml.opt("availabilityZoneId", ec2.zones.get(&found.zone).map(|zone| zone.id.as_str()));
        xml.raw("<groupName/><tenancy>default</tenancy>");
    });
    xml.raw("<monitoring><state>disabled</state></monitoring>");
    if !gone {
        xml.text("subnetId", &found.subnet);
        xml.text("vpcId", &found.vpc);
    }
    if let Some(primary) = primary {
        if let Some(ip) = primary.private_ips.first() {
            xml.value("privateIpAddress", ip);
        }
        if let Some(ip) = primary.public_ip {
            xml.value("ipAddress", ip);
        }
        xml.value("sourceDestCheck", primary.source_dest_check);
        group_set(xml, ec2, &primary.groups);
    } else {
        xml.raw("<groupSet/>");
    }
    xml.raw("<architecture>x86_64</architecture><rootDeviceType>ebs</rootDeviceType>");
    xml.raw("<rootDeviceName>/dev/xvda</rootDeviceName><blockDeviceMapping/>");
    xml.raw("<virtualizationType>hvm</virtualizationType><hypervisor>xen</hypervisor>");
    tag_set(xml, &found.tags);
    let interfaces = found.interfaces.iter().filter_map(|id| ec2.interfaces.get_key_value(id));
    xml.list("networkInterfaceSet", "item", interfaces, |xml, (id, found)| interface(xml, ec2, id, found, true));
    xml.raw("<ebsOptimized>false</ebsOptimized><enaSupport>true</enaSupport>");
    xml.elem("metadataOptions", |xml| {
        xml.raw("<state>applied</state>");
        xml.value("httpTokens", if found.metadata_tokens_optional { "optional" } else { "required" });
        xml.value("httpPutResponseHopLimit", found.metadata_hops);
        xml.raw("<httpEndpoint>enabled</httpEndpoint>");
    });
    if let Some(ip) = primary.and_then(|primary| primary.ipv6.first()) {
        xml.value("ipv6Address", ip);
    }
}

pub(super) fn describe_topology(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let ec2 = &world.ec2;
    if ec2.topology_unsupported {
        // unverified: the text; the Go program checks the code.
        let text = "The functionality you requested is not available in this region.";
        return Err(ApiError::new("UnsupportedOperation", text));
    }
    let ids = call.params.list("InstanceId");
    if ids.len() > 100 {
        return Err(ApiError::new("InvalidParameterValue", "At most 100 instance IDs can be specified."));
    }
    if !ids.is_empty() && call.params.has("MaxResults") {
        let text = "The parameter instanceIds cannot be used with the parameter maxResults";
        return Err(ApiError::new("InvalidParameterCombination", text));
    }
    check_ids(world, &ids)?;
    let page = Page::parse(call, 1..=100)?;
    let wanted: BTreeSet<&str> = ids.into_iter().collect();
    let passes = |id: &str, found: &Instance| {
        (wanted.is_empty() || wanted.contains(id))
            && found.state == InstanceState::Running
            && !found.topology.is_empty()
    };
    let found = page.take(ec2.instances.iter().filter(|(id, found)| passes(id, found)));
    Ok(listing("instanceSet", found, |xml, id, found| {
        xml.text("instanceId", id);
        xml.text("instanceType", &found.instance_type);
        xml.texts("networkNodeSet", "item", &found.topology);
        xml.text("availabilityZone", &found.zone);
        xml.opt("zoneId", ec2.zones.get(&found.zone).map(|zone| zone.id.as_str()));
    }))
}
