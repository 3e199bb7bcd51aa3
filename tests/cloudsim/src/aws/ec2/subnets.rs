//! Zones, VPCs, subnets, gateways.

use super::filters::{Filters, Page, listing};
use super::model::{Association, Gateway, Subnet, Tags, Vpc};
use super::{check_known, tag_set, tags_for, unknown_ids};
use crate::aws::{ApiError, Call, World, Xml};
use ipnet::{Ipv4Net, Ipv6Net};
use std::net::Ipv4Addr;

pub(super) fn describe_zones(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let wanted = call.params.list("ZoneName");
    let _all = call.params.flag("AllAvailabilityZones")?;
    let ec2 = &world.ec2;
    for name in &wanted {
        if !ec2.zones.contains_key(*name) {
            return Err(ApiError::new("InvalidParameterValue", format!("Invalid availability zone: [{name}]")));
        }
    }
    let passes = |name: &String| wanted.is_empty() || wanted.contains(&name.as_str());
    let found = Page::whole().take(ec2.zones.iter().filter(|(name, _)| passes(name)));
    Ok(listing("availabilityZoneInfo", found, |xml, name, zone| {
        xml.text("optInStatus", opt_in(&zone.kind));
        xml.raw("<messageSet/>");
        xml.text("regionName", &ec2.region);
        xml.text("zoneName", name);
        xml.text("zoneId", &zone.id);
        xml.text("groupName", &ec2.region);
        xml.text("networkBorderGroup", &ec2.region);
        xml.text("zoneType", &zone.kind);
        xml.text("zoneState", &zone.state);
    }))
}

fn opt_in(kind: &str) -> &'static str {
    if kind == "availability-zone" { "opt-in-not-required" } else { "opted-in" }
}

fn unknown_vpc(id: &str) -> ApiError {
    unknown_ids("InvalidVpcID.NotFound", "vpc", &[id])
}

pub(super) fn describe_vpcs(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let ids = call.params.list("VpcId");
    check_known(&ids, "InvalidVpcID.NotFound", "vpc", |id| world.ec2.vpcs.contains_key(id))?;
    let page = Page::parse(call, 5..=1000)?;
    let account = &world.ec2.account;
    let passes = |id: &String| ids.is_empty() || ids.contains(&id.as_str());
    let found = page.take(world.ec2.vpcs.iter().filter(|(id, _)| passes(id)));
    Ok(listing("vpcSet", found, |xml, id, vpc| vpc_item(xml, account, id, vpc)))
}

fn vpc_item(xml: &mut Xml, account: &str, id: &str, vpc: &Vpc) {
    xml.text("vpcId", id);
    xml.text("ownerId", account);
    xml.text("state", "available");
    xml.text("cidrBlock", &vpc.cidr);
    xml.list("cidrBlockAssociationSet", "item", [&vpc.cidr], |xml, cidr| {
        xml.text("cidrBlock", cidr);
        xml.raw("<cidrBlockState><state>associated</state></cidrBlockState>");
    });
    ipv6_set(xml, vpc.ipv6_cidr.as_deref());
    xml.raw("<instanceTenancy>default</instanceTenancy><isDefault>false</isDefault>");
    tag_set(xml, &vpc.tags);
}

fn ipv6_set(xml: &mut Xml, block: Option<&str>) {
    xml.list("ipv6CidrBlockAssociationSet", "item", block, |xml, block| {
        xml.text("ipv6CidrBlock", block);
        xml.raw("<ipv6CidrBlockState><state>associated</state></ipv6CidrBlockState>");
    });
}

pub(super) fn create_vpc(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let cidr = call.params.required("CidrBlock")?;
    let block: Ipv4Net = cidr.parse().map_err(|_| ApiError::bad_value("cidrBlock", cidr, "Not a CIDR block."))?;
    if !(16..=28).contains(&block.prefix_len()) {
        return Err(ApiError::new("InvalidVpc.Range", format!("The CIDR '{cidr}' is invalid.")));
    }
    let ipv6 = call.params.flag("AmazonProvidedIpv6CidrBlock")?.unwrap_or_default();
    let tags = tags_for(world, call, "vpc")?;
    let id = insert_vpc(world, block, ipv6, tags)?;
    let mut xml = Xml::new();
    if let Some(vpc) = world.ec2.vpcs.get(&id) {
        xml.elem("vpc", |xml| vpc_item(xml, &world.ec2.account, &id, vpc));
    }
    Ok(xml)
}

/// Creates a VPC with its default security group and main route table.
pub(super) fn insert_vpc(world: &mut World, block: Ipv4Net, ipv6: bool, tags: Tags) -> Result<String, ApiError> {
    let id = world.new_id("vpc-");
    let number = world.ec2.vpcs.len();
    let vpc = Vpc {
        cidr: block.trunc().to_string(),
        // The documentation prefix: no test can reach another host.
        ipv6_cidr: ipv6.then(|| format!("2001:db8:{number:x}:100::/56")),
        tags,
    };
    world.ec2.vpcs.insert(id.clone(), vpc);
    super::security_groups::insert(world, &id, "default", "default VPC security group", Tags::new());
    let table = super::routes::insert(world, &id, Tags::new())?;
    let association = world.new_id("rtbassoc-");
    if let Some(table) = world.ec2.route_tables.get_mut(&table) {
        table.associations.insert(association, Association::Main);
    }
    Ok(id)
}

pub(super) fn describe(world: &World, call: &Call) -> Result<Xml, ApiError> {
    let filters = Filters::parse(world, call, &["subnet-id", "vpc-id"])?;
    let ids = call.params.list("SubnetId");
    let ec2 = &world.ec2;
    check_known(&ids, "InvalidSubnetID.NotFound", "subnet", |id| ec2.subnets.contains_key(id))?;
    let page = Page::parse(call, 5..=1000)?;
    let passes = |id: &String, subnet: &Subnet| {
        (ids.is_empty() || ids.contains(&id.as_str()))
            && filters.pass(&subnet.tags, |name, is| match name {
                "subnet-id" => is(id),
                "vpc-id" => is(&subnet.vpc),
                _ => false,
            })
    };
    let found = page.take(ec2.subnets.iter().filter(|(id, subnet)| passes(id, subnet)));
    Ok(listing("subnetSet", found, |xml, id, subnet| item(xml, world, id, subnet)))
}

fn item(xml: &mut Xml, world: &World, id: &str, subnet: &Subnet) {
    let ec2 = &world.ec2;
    xml.text("subnetId", id);
    xml.text("subnetArn", &format!("arn:aws:ec2:{}:{}:subnet/{id}", ec2.region, ec2.account));
    xml.text("state", "available");
    xml.text("ownerId", &ec2.account);
    xml.text("vpcId", &subnet.vpc);
    xml.text("cidrBlock", &subnet.cidr);
    ipv6_set(xml, subnet.ipv6_cidr.as_deref());
    xml.value("availableIpAddressCount", free_addresses(world, subnet));
    xml.text("availabilityZone", &subnet.zone);
    xml.opt("availabilityZoneId", ec2.zones.get(&subnet.zone).map(|zone| zone.id.as_str()));
    xml.raw("<defaultForAz>false</defaultForAz><mapPublicIpOnLaunch>false</mapPublicIpOnLaunch>");
    xml.raw("<assignIpv6AddressOnCreation>false</assignIpv6AddressOnCreation>");
    tag_set(xml, &subnet.tags);
}

/// The number of free addresses of a subnet; AWS reserves five of each block.
fn free_addresses(world: &World, subnet: &Subnet) -> u64 {
    let Ok(block) = subnet.cidr.parse::<Ipv4Net>() else { return 0 };
    let size = u64::from(u32::MAX >> block.prefix_len()) + 1;
    let index = &world.ec2.index.by_ip;
    let used = |ip: &Ipv4Addr| {
        let users = index.get(ip).into_iter().flatten().filter_map(|id| world.ec2.interfaces.get(id));
        users.into_iter().any(|user| user.vpc == subnet.vpc)
    };
    let taken = if index.len() < usize::try_from(size).unwrap_or(usize::MAX) {
        index.keys().filter(|ip| block.contains(*ip) && used(ip)).count()
    } else {
        block.hosts().filter(used).count()
    };
    size.saturating_sub(5).saturating_sub(u64::try_from(taken).unwrap_or(u64::MAX))
}

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let vpc_id = call.params.required("VpcId")?.to_owned();
    let cidr = call.params.required("CidrBlock")?;
    let block: Ipv4Net = cidr.parse().map_err(|_| ApiError::bad_value("cidrBlock", cidr, "Not a CIDR block."))?;
    let ipv6 = call.params.get("Ipv6CidrBlock");
    let ipv6: Option<Ipv6Net> = ipv6
        .map(|text| text.parse().map_err(|_| ApiError::bad_value("ipv6CidrBlock", text, "Not a CIDR block.")))
        .transpose()?;
    let zone = match call.params.get("AvailabilityZone") {
        Some(zone) if world.ec2.zones.contains_key(zone) => zone.to_owned(),
        Some(zone) => return Err(ApiError::bad_value("availabilityZone", zone, "No such zone.")),
        None => world.ec2.zones.keys().next().cloned().unwrap_or_default(),
    };
    let vpc = world.ec2.vpcs.get(&vpc_id).ok_or_else(|| unknown_vpc(&vpc_id))?;
    let inside = vpc.cidr.parse::<Ipv4Net>().is_ok_and(|vpc| vpc.contains(&block));
    if !inside || !(16..=28).contains(&block.prefix_len()) {
        return Err(ApiError::new("InvalidSubnet.Range", format!("The CIDR '{cidr}' is invalid.")));
    }
    let overlaps = |other: &Subnet| {
        other.vpc == vpc_id
            && other.cidr.parse::<Ipv4Net>().is_ok_and(|other| other.contains(&block) || block.contains(&other))
    };
    if world.ec2.subnets.values().any(overlaps) {
        let text = format!("The CIDR '{cidr}' conflicts with another subnet");
        return Err(ApiError::new("InvalidSubnet.Conflict", text));
    }
    let tags = tags_for(world, call, "subnet")?;
    let id = world.new_id("subnet-");
    let subnet = Subnet {
        vpc: vpc_id,
        zone,
        cidr: block.trunc().to_string(),
        ipv6_cidr: ipv6.map(|block| block.trunc().to_string()),
        tags,
        next_ip: 0,
    };
    world.ec2.subnets.insert(id.clone(), subnet);
    let mut xml = Xml::new();
    if let Some(subnet) = world.ec2.subnets.get(&id) {
        xml.elem("subnet", |xml| item(xml, world, &id, subnet));
    }
    Ok(xml)
}

pub(super) fn create_gateway(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let tags = tags_for(world, call, "internet-gateway")?;
    let id = world.new_id("igw-");
    let mut xml = Xml::new();
    xml.elem("internetGateway", |xml| {
        xml.text("internetGatewayId", &id);
        xml.raw("<attachmentSet/>");
        xml.text("ownerId", &world.ec2.account);
        tag_set(xml, &tags);
    });
    world.ec2.gateways.insert(id, Gateway { vpc: None, tags });
    Ok(xml)
}

pub(super) fn attach_gateway(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let id = call.params.required("InternetGatewayId")?;
    let vpc = call.params.required("VpcId")?;
    if !world.ec2.vpcs.contains_key(vpc) {
        return Err(unknown_vpc(vpc));
    }
    if world.ec2.gateways.values().any(|gateway| gateway.vpc.as_deref() == Some(vpc)) {
        let text = format!("Network {vpc} already has an internet gateway attached");
        return Err(ApiError::new("InvalidParameterValue", text));
    }
    let Some(gateway) = world.ec2.gateways.get_mut(id) else {
        return Err(unknown_ids("InvalidInternetGatewayID.NotFound", "internetGateway", &[id]));
    };
    if gateway.vpc.is_some() {
        return Err(ApiError::new(
            "Resource.AlreadyAssociated",
            format!("resource {id} is already attached to network"),
        ));
    }
    gateway.vpc = Some(vpc.to_owned());
    Ok(Xml::done())
}
