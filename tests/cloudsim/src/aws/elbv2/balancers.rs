//! Network Load Balancers: creation, listing, deletion, and their subnets and security groups.

use super::{Balancer, Due, Mapping, arn_prefix, balancer};
use crate::aws::balancing::{self, contradiction, invalid};
use crate::aws::ec2::network::NewInterface;
use crate::aws::ec2::{Subnet, Tags};
use crate::aws::{ApiError, Call, Due as AnyDue, World, Xml, lbnet};
use crate::core::clock::later;
use std::collections::BTreeMap;
use std::net::Ipv4Addr;

/// The ID for us-west-2; nothing depends on the IDs of other regions.
/// <https://docs.aws.amazon.com/general/latest/gr/elb.html>
const HOSTED_ZONE: &str = "Z18D5FSROUN65G";

/// The subnets of a request, each with its addresses.
type Wanted = BTreeMap<String, Mapping>;

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("Name")?;
    balancing::check_name("Load balancer", name)?;
    if name.starts_with("internal-") {
        return Err(invalid(format!("Load balancer name '{name}' cannot begin with 'internal-'")));
    }
    match call.params.get("Type") {
        Some("network") => {}
        other => {
            let kind = other.unwrap_or("application");
            let text = format!("There are only network load balancers here, and '{kind}' was asked for");
            return Err(ApiError::new("OperationNotPermitted", text));
        }
    }
    let internal = balancing::is_internal(call)?;
    let address_type = call.params.get("IpAddressType").unwrap_or("ipv4").to_owned();
    let tags = balancing::tags(call)?;
    let wanted = wanted_subnets(world, call, internal)?;
    let subnets = balancing::check_subnets(world, wanted.keys())?;
    let vpc = subnets.first().map(|(_, subnet)| subnet.vpc.clone()).unwrap_or_default();
    check_address_type(&address_type, &subnets)?;
    let groups = balancing::unique(call, "SecurityGroups");
    balancing::check_groups(world, &vpc, &groups)?;
    balancing::check_gateway(world, &vpc, internal)?;
    let spec = Spec { internal, address_type, wanted, groups };
    if let Some(existing) = world.elbv2.balancer_named(name) {
        if spec.is(existing) {
            return Ok(answer(world, vec![existing], None));
        }
        let text = format!("A load balancer with the same name '{name}' exists, but with different settings");
        return Err(ApiError::new("DuplicateLoadBalancerName", text));
    }
    check_allocations(world, &spec.wanted)?;
    if world.elbv2.balancers.len() >= world.options.limits.network_balancers {
        return Err(ApiError::new(
            "TooManyLoadBalancers",
            "The quota for the number of load balancers has been reached",
        ));
    }
    let tags = balancing::add_tags(world, Tags::new(), tags)?;
    let made = make(world, name, &vpc, spec, tags)?;
    let xml = answer(world, vec![&made], None);
    world.after(world.options.delays.provisioning, AnyDue::Elbv2(Due::Activate(made.arn.clone())));
    world.elbv2.balancers.insert(made.arn.clone(), made);
    Ok(xml)
}

/// The properties that determine whether a repeated creation is idempotent.
/// unverified: whether tags matter too; here they do not.
struct Spec {
    internal: bool,
    address_type: String,
    wanted: Wanted,
    groups: Vec<String>,
}

impl Spec {
    fn is(&self, existing: &Balancer) -> bool {
        let sorted = |groups: &[String]| {
            let mut groups = groups.to_vec();
            groups.sort_unstable();
            groups
        };
        let addresses = |mapping: &Mapping| (mapping.allocation.clone(), mapping.private_ipv4.clone());
        self.internal == existing.internal
            && self.address_type == existing.address_type
            && sorted(&self.groups) == sorted(&existing.groups)
            && self.wanted.len() == existing.subnets.len()
            && self.wanted.iter().all(|(id, mapping)| {
                existing.subnets.get(id).is_some_and(|existing| addresses(existing) == addresses(mapping))
            })
    }
}

fn make(world: &mut World, name: &str, vpc: &str, spec: Spec, tags: Tags) -> Result<Balancer, ApiError> {
    let id = world.hex(16);
    let region = world.options.region.clone();
    let mut balancer = Balancer {
        arn: format!("{}loadbalancer/net/{name}/{id}", arn_prefix(world)),
        name: name.to_owned(),
        dns_name: format!("{name}-{id}.elb.{region}.{}", balancing::dns_suffix(&region)),
        internal: spec.internal,
        vpc: vpc.to_owned(),
        subnets: BTreeMap::new(),
        born_with_groups: !spec.groups.is_empty(),
        groups: spec.groups,
        address_type: spec.address_type,
        state: "provisioning".to_owned(),
        attributes: BTreeMap::new(),
        tags,
        created: world.now(),
    };
    balancer.plug(world, spec.wanted)?;
    Ok(balancer)
}

impl Balancer {
    fn plug(&mut self, world: &mut World, wanted: Wanted) -> Result<(), ApiError> {
        let short = self.arn.rsplit_once("loadbalancer/").map_or("", |(_, short)| short);
        let interfaces = wanted.iter().map(|(subnet, mapping)| NewInterface {
            subnet: subnet.clone(),
            groups: self.groups.clone(),
            description: format!("ELB {short}"),
            kind: "network_load_balancer".to_owned(),
            private_ip: mapping.private_ipv4.as_ref().and_then(|address| address.parse().ok()),
            allocation: mapping.allocation.clone(),
            public: !self.internal,
            ..NewInterface::default()
        });
        let mut made = lbnet::plug(world, interfaces)?;
        self.subnets.extend(wanted.into_iter().map(|(subnet, mapping)| {
            let interface = made.remove(&subnet).unwrap_or_default();
            (subnet, Mapping { interface, ..mapping })
        }));
        Ok(())
    }

    fn write(&self, xml: &mut Xml, world: &World) {
        xml.text("LoadBalancerArn", &self.arn);
        xml.text("DNSName", &self.dns_name);
        xml.text("CanonicalHostedZoneId", HOSTED_ZONE);
        xml.text("CreatedTime", &balancing::time(self.created));
        xml.text("LoadBalancerName", &self.name);
        xml.text("Scheme", if self.internal { "internal" } else { "internet-facing" });
        xml.text("VpcId", &self.vpc);
        xml.elem("State", |xml| xml.text("Code", &self.state));
        xml.text("Type", "network");
        xml.list("AvailabilityZones", "member", &self.subnets, |xml, (id, mapping)| {
            xml.text("ZoneName", world.ec2.subnets.get(id).map_or("", |subnet| &subnet.zone));
            xml.text("SubnetId", id);
            let address = (mapping.allocation.is_some() || mapping.private_ipv4.is_some()).then_some(mapping);
            xml.list("LoadBalancerAddresses", "member", address, |xml, mapping| {
                if let Some(id) = &mapping.allocation {
                    if let Some(address) = world.ec2.addresses.get(id) {
                        xml.value("IpAddress", address.public_ip);
                    }
                    xml.text("AllocationId", id);
                }
                xml.opt("PrivateIPv4Address", mapping.private_ipv4.as_deref());
            });
        });
        xml.texts("SecurityGroups", "member", &self.groups);
        xml.text("IpAddressType", &self.address_type);
        if self.born_with_groups {
            xml.text("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", "on");
        }
    }
}

/// Reads `Subnets` or `SubnetMappings`, which are mutually exclusive, with at least one subnet.
fn wanted_subnets(world: &World, call: &Call, internal: bool) -> Result<Wanted, ApiError> {
    let plain = balancing::unique(call, "Subnets");
    let mappings = call.params.items("SubnetMappings");
    let wanted: Wanted = match (plain.is_empty(), mappings.is_empty()) {
        (true, true) => return Err(invalid("At least one subnet must be specified")),
        (false, false) => return Err(invalid("You can specify subnets or subnet mappings but not both")),
        (false, true) => plain.into_iter().map(|id| (id, Mapping::default())).collect(),
        (true, false) => mappings
            .iter()
            .map(|item| {
                let mapping = Mapping {
                    interface: String::new(),
                    allocation: item.get("AllocationId").map(str::to_owned),
                    private_ipv4: item.get("PrivateIPv4Address").map(str::to_owned),
                };
                Ok((item.required("SubnetId")?.to_owned(), mapping))
            })
            .collect::<Result<_, ApiError>>()?,
    };
    if wanted.len() < mappings.len() {
        return Err(invalid("A subnet is given twice"));
    }
    for (id, mapping) in &wanted {
        check_mapping(world, id, mapping, internal)?;
    }
    Ok(wanted)
}

fn check_mapping(world: &World, subnet: &str, mapping: &Mapping, internal: bool) -> Result<(), ApiError> {
    if mapping.allocation.is_some() && internal {
        return Err(contradiction("An internal load balancer can't have Elastic IP addresses"));
    }
    let Some(address) = &mapping.private_ipv4 else { return Ok(()) };
    if !internal {
        return Err(contradiction("Only an internal load balancer can have private IPv4 addresses of choice"));
    }
    let inside = world.ec2.subnets.get(subnet).is_none_or(|subnet| {
        let net = subnet.cidr.parse::<ipnet::Ipv4Net>().ok();
        address.parse::<Ipv4Addr>().ok().zip(net).is_some_and(|(address, net)| net.contains(&address))
    });
    if inside {
        return Ok(());
    }
    Err(contradiction(format!("The private IPv4 address '{address}' is not within subnet '{subnet}'")))
}

fn check_allocations(world: &World, wanted: &Wanted) -> Result<(), ApiError> {
    for id in wanted.values().filter_map(|mapping| mapping.allocation.as_deref()) {
        let Some(address) = world.ec2.addresses.get(id) else {
            let text = format!("The allocation IDs '{id}' do not exist");
            return Err(ApiError::new("AllocationIdNotFound", text));
        };
        if address.interface.is_some() {
            return Err(ApiError::new("ResourceInUse", format!("The allocation ID '{id}' is in use")));
        }
    }
    Ok(())
}

fn check_address_type(address_type: &str, subnets: &[(&str, &Subnet)]) -> Result<(), ApiError> {
    match address_type {
        "ipv4" => Ok(()),
        "dualstack" => match subnets.iter().find(|(_, subnet)| subnet.ipv6_cidr.is_none()) {
            Some((id, _)) => {
                Err(ApiError::new("InvalidSubnet", format!("The subnet '{id}' must have an IPv6 CIDR block")))
            }
            None => Ok(()),
        },
        other => Err(invalid(format!("The IP address type '{other}' is not supported for network load balancers"))),
    }
}

fn answer(world: &World, balancers: Vec<&Balancer>, next: Option<&str>) -> Xml {
    balancing::listing("LoadBalancers", balancers, next, |xml, balancer| balancer.write(xml, world))
}

pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let (arns, names) = (balancing::unique(call, "LoadBalancerArns"), balancing::unique(call, "Names"));
    if !arns.is_empty() && !names.is_empty() {
        return Err(invalid("Load balancer names and load balancer ARNs cannot be specified at the same time"));
    }
    if arns.len().max(names.len()) > 20 {
        return Err(invalid("Up to 20 load balancers can be described in one call"));
    }
    let known = |balancer: &&Balancer| world.known("load-balancer", balancer.created);
    let mut found = Vec::new();
    for arn in &arns {
        found.push(balancer(world, arn)?.arn.clone());
    }
    for name in &names {
        let one = world.elbv2.balancer_named(name).filter(known);
        let missing = || ApiError::new("LoadBalancerNotFound", format!("Load balancers '[{name}]' not found"));
        found.push(one.ok_or_else(missing)?.arn.clone());
    }
    if arns.is_empty() && names.is_empty() {
        found = world.elbv2.balancers.values().filter(known).map(|balancer| balancer.arn.clone()).collect();
    }
    let (page, next) = balancing::page(call, found)?;
    Ok(answer(world, page.iter().filter_map(|arn| world.elbv2.balancers.get(arn)).collect(), next.as_deref()))
}

/// Deletes a balancer and its listeners. Deleting a missing balancer succeeds.
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arn = call.params.required("LoadBalancerArn")?;
    super::check_arn(arn, "loadbalancer")?;
    let Some(balancer) = world.elbv2.balancers.get(arn) else { return Ok(Xml::new()) };
    if balancer.attributes.get("deletion_protection.enabled").is_some_and(|value| value == "true") {
        let text = format!("Load balancer '{arn}' cannot be deleted because deletion protection is enabled");
        return Err(ApiError::new("OperationNotPermitted", text));
    }
    let interfaces: Vec<String> = balancer.subnets.values().map(|mapping| mapping.interface.clone()).collect();
    let until = later(world.now(), world.options.delays.balancer_arns);
    let served: Vec<String> =
        world.elbv2.listeners.values().filter(|of| of.balancer == arn).map(|of| of.group.clone()).collect();
    for group in served {
        if let Some(group) = world.elbv2.groups.get_mut(&group) {
            group.former.insert(arn.to_owned(), until);
        }
    }
    world.elbv2.balancers.remove(arn);
    world.elbv2.listeners.retain(|_, listener| listener.balancer != arn);
    lbnet::unplug(world, interfaces);
    Ok(Xml::new())
}

pub(super) fn set_groups(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let arn = call.params.required("LoadBalancerArn")?.to_owned();
    let groups = balancing::unique(call, "SecurityGroups");
    let existing = balancer(world, &arn)?;
    if !existing.born_with_groups {
        let text = "cannot be set for a network load balancer that was created without security groups";
        return Err(contradiction(format!("Security groups {text}")));
    }
    if groups.is_empty() {
        // unverified: the error code.
        return Err(contradiction("At least one security group must be specified"));
    }
    let vpc = existing.vpc.clone();
    balancing::check_groups(world, &vpc, &groups)?;
    let Some(balancer) = world.elbv2.balancers.get_mut(&arn) else { return Ok(Xml::new()) };
    balancer.groups.clone_from(&groups);
    let interfaces: Vec<String> = balancer.subnets.values().map(|mapping| mapping.interface.clone()).collect();
    lbnet::regroup(world, &interfaces, &groups);
    let mut xml = Xml::new();
    xml.texts("SecurityGroupIds", "member", &groups);
    xml.text("EnforceSecurityGroupInboundRulesOnPrivateLinkTraffic", "on");
    Ok(xml)
}
