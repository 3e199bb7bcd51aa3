//! Classic Load Balancers: creation, listing, deletion, and their subnets and security groups.

use super::{Attributes, Balancer, HealthCheck, find, listeners, named, named_mut, not_found};
use crate::aws::balancing::{self, contradiction, invalid, listing};
use crate::aws::ec2::Tags;
use crate::aws::ec2::network::NewInterface;
use crate::aws::ec2::security_groups::{by_name, find as find_group};
use crate::aws::{ApiError, Call, World, Xml, lbnet};
use std::collections::BTreeMap;

/// The ID for us-west-2; nothing depends on the IDs of other regions.
/// <https://docs.aws.amazon.com/general/latest/gr/elb.html>
const HOSTED_ZONE: &str = "Z1H1FL5HABSF5";

pub(super) fn create(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("LoadBalancerName")?;
    balancing::check_name("LoadBalancer", name)?;
    let internal = balancing::is_internal(call)?;
    let listeners = listeners::read(world, call)?;
    let tags = balancing::tags(call)?;
    if !call.params.list("AvailabilityZones").is_empty() {
        // Only default subnets can be meant, which a current account need not have.
        return Err(contradiction("This account has no default subnets; name subnets instead of zones"));
    }
    let subnets = balancing::unique(call, "Subnets");
    let Some(vpc) = balancing::check_subnets(world, &subnets)?.first().map(|(_, subnet)| subnet.vpc.clone()) else {
        return Err(invalid("Either AvailabilityZones or SubnetIds must be specified"));
    };
    let mut groups = balancing::unique(call, "SecurityGroups");
    if groups.is_empty() {
        groups.extend(by_name(world, &vpc, "default"));
    }
    balancing::check_groups(world, &vpc, &groups)?;
    balancing::check_gateway(world, &vpc, internal)?;
    // unverified: a repetition with the same settings is also rejected.
    if world.elb.balancers.contains_key(name) {
        let text = format!("The specified load balancer name already exists for this account: {name}");
        return Err(ApiError::new("DuplicateLoadBalancerName", text));
    }
    if world.elb.balancers.len() >= world.options.limits.classic_balancers {
        return Err(ApiError::new(
            "TooManyLoadBalancers",
            "The quota for the number of load balancers has been reached",
        ));
    }
    let tags = balancing::add_tags(world, Tags::new(), tags)?;
    let first_port = listeners.values().next().map_or(80, |listener| listener.instance_port);
    let mut balancer = Balancer::new(world, name, internal, vpc, first_port);
    balancer.groups = groups;
    balancer.tags = tags;
    for (port, listener) in listeners {
        balancer.add_listener(port, listener);
    }
    balancer.plug(world, subnets)?;
    let mut xml = Xml::new();
    xml.text("DNSName", &balancer.dns_name);
    world.elb.balancers.insert(name.to_owned(), balancer);
    Ok(xml)
}

impl Balancer {
    /// A balancer without listeners, subnets and groups, whose health check uses an instance port.
    fn new(world: &mut World, name: &str, internal: bool, vpc: String, port: u16) -> Self {
        Balancer {
            name: name.to_owned(),
            dns_name: dns_name(world, name, internal),
            internal,
            vpc,
            subnets: BTreeMap::new(),
            groups: Vec::new(),
            listeners: BTreeMap::new(),
            backends: BTreeMap::new(),
            policies: BTreeMap::new(),
            instances: Vec::new(),
            health_check: HealthCheck {
                target: format!("TCP:{port}"),
                interval: 30,
                timeout: 5,
                unhealthy: 2,
                healthy: 10,
            },
            attributes: Attributes::default(),
            tags: BTreeMap::new(),
            created: world.now(),
        }
    }

    fn plug(&mut self, world: &mut World, subnets: Vec<String>) -> Result<(), ApiError> {
        let interfaces = subnets.into_iter().map(|subnet| NewInterface {
            subnet,
            description: format!("ELB {}", self.name),
            groups: self.groups.clone(),
            public: !self.internal,
            ..NewInterface::default()
        });
        let made = lbnet::plug(world, interfaces)?;
        self.subnets.extend(made);
        Ok(())
    }
}

/// `name-1234567890.region.elb.amazonaws.com`, with the prefix `internal-` for internal balancers.
fn dns_name(world: &mut World, name: &str, internal: bool) -> String {
    let number = u32::from_str_radix(&world.hex(8), 16).unwrap_or_default();
    let prefix = if internal { "internal-" } else { "" };
    let region = world.options.region.clone();
    format!("{prefix}{name}-{number}.{region}.elb.{}", balancing::dns_suffix(&region))
}

pub(super) fn describe(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut names = balancing::unique(call, "LoadBalancerNames");
    if let Some(missing) = names.iter().find(|name| find(world, name).is_none()) {
        return Err(not_found(missing));
    }
    if names.is_empty() {
        names = world.elb.balancers.keys().filter(|name| find(world, name).is_some()).cloned().collect();
    }
    let (names, next) = balancing::page(call, names)?;
    let balancers = names.iter().filter_map(|name| find(world, name)).collect();
    Ok(listing("LoadBalancerDescriptions", balancers, next.as_deref(), |xml, balancer| write(xml, world, balancer)))
}

fn write(xml: &mut Xml, world: &World, balancer: &Balancer) {
    xml.text("LoadBalancerName", &balancer.name);
    xml.text("DNSName", &balancer.dns_name);
    if !balancer.internal {
        // unverified: internal balancers do not have one.
        xml.text("CanonicalHostedZoneName", &balancer.dns_name);
    }
    xml.text("CanonicalHostedZoneNameID", HOSTED_ZONE);
    balancer.write_listeners(xml);
    balancer.write_policies(xml);
    let zones = balancer.subnets.keys().filter_map(|id| world.ec2.subnets.get(id)).map(|subnet| &subnet.zone);
    xml.texts("AvailabilityZones", "member", zones);
    xml.texts("Subnets", "member", balancer.subnets.keys());
    xml.text("VPCId", &balancer.vpc);
    xml.list("Instances", "member", balancer.alive(world), |xml, id| xml.text("InstanceId", id));
    xml.elem("HealthCheck", |xml| balancer.health_check.write(xml));
    xml.elem("SourceSecurityGroup", |xml| {
        xml.text("OwnerAlias", &world.options.account);
        let group = balancer.groups.first().and_then(|id| find_group(world, id).ok());
        xml.text("GroupName", group.map_or("default", |group| &group.name));
    });
    xml.texts("SecurityGroups", "member", &balancer.groups);
    xml.text("CreatedTime", &balancing::time(balancer.created));
    xml.text("Scheme", if balancer.internal { "internal" } else { "internet-facing" });
}

/// Deleting a missing balancer succeeds.
pub(super) fn delete(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let name = call.params.required("LoadBalancerName")?;
    if let Some(balancer) = world.elb.balancers.remove(name) {
        lbnet::unplug(world, balancer.subnets.into_values());
    }
    Ok(Xml::new())
}

pub(super) fn attach(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut balancer = named(world, call)?.clone();
    let new: Vec<String> =
        balancing::unique(call, "Subnets").into_iter().filter(|id| !balancer.subnets.contains_key(id)).collect();
    balancing::check_subnets(world, balancer.subnets.keys().chain(&new))?;
    balancer.plug(world, new)?;
    Ok(store(world, balancer))
}

/// unverified: a subnet that is not attached is ignored.
pub(super) fn detach(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let mut balancer = named(world, call)?.clone();
    let gone: Vec<String> =
        balancing::unique(call, "Subnets").iter().filter_map(|subnet| balancer.subnets.remove(subnet)).collect();
    if balancer.subnets.is_empty() {
        return Err(contradiction("A load balancer must be attached to at least one subnet"));
    }
    lbnet::unplug(world, gone);
    Ok(store(world, balancer))
}

fn store(world: &mut World, balancer: Balancer) -> Xml {
    let mut xml = Xml::new();
    xml.texts("Subnets", "member", balancer.subnets.keys());
    world.elb.balancers.insert(balancer.name.clone(), balancer);
    xml
}

pub(super) fn apply_groups(world: &mut World, call: &Call) -> Result<Xml, ApiError> {
    let groups = balancing::unique(call, "SecurityGroups");
    let vpc = named(world, call)?.vpc.clone();
    if groups.is_empty() {
        return Err(contradiction("At least one security group must be specified"));
    }
    balancing::check_groups(world, &vpc, &groups)?;
    let balancer = named_mut(world, call)?;
    balancer.groups.clone_from(&groups);
    let interfaces: Vec<String> = balancer.subnets.values().cloned().collect();
    lbnet::regroup(world, &interfaces, &groups);
    let mut xml = Xml::new();
    xml.texts("SecurityGroups", "member", &groups);
    Ok(xml)
}
