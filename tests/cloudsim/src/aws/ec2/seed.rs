//! Creates a VPC and thousands of instances directly from Rust, without the intermediate steps of the API.

use super::lifecycle::{Launch, go_on, place};
use super::model::{Association, Gateway, InstanceState, Route, Subnet, Tags, Target};
use super::network::NewInterface;
use super::{routes, security_groups, subnets};
use crate::aws::{ApiError, World};
use ipnet::Ipv4Net;
use jiff::{SignedDuration, Timestamp};

/// A VPC for a cluster.
#[derive(Debug, Clone)]
pub struct NetworkSeed {
    /// The IPv4 block of the VPC.
    pub cidr: String,
    /// Whether it has IPv6 blocks.
    pub ipv6: bool,
    /// The zones, by the last letter of their names; one public and one private subnet in each.
    pub zones: Vec<char>,
    /// The cluster ID: subnets, node security group and route table get its tag.
    pub cluster: Option<String>,
}

impl Default for NetworkSeed {
    fn default() -> Self {
        NetworkSeed { cidr: "10.0.0.0/16".to_owned(), ipv6: false, zones: vec!['a', 'b', 'c'], cluster: None }
    }
}

/// The parts of a seeded VPC.
#[derive(Debug, Clone, Default)]
pub struct Network {
    pub vpc: String,
    /// The public subnets in the order of the zones.
    pub public: Vec<String>,
    /// The private subnets in the order of the zones.
    pub private: Vec<String>,
    /// The main route table; it has no route out of the VPC.
    pub main_table: String,
    /// The route table of the public subnets; it has a route to the internet gateway.
    pub public_table: String,
    pub gateway: String,
    /// The default security group of the VPC.
    pub default_group: String,
    /// A security group for nodes.
    pub node_group: String,
}

/// The parameters of seeded instances.
#[derive(Debug, Clone)]
pub struct InstanceSeed {
    pub count: usize,
    /// The subnets, used in turn.
    pub subnets: Vec<String>,
    pub groups: Vec<String>,
    pub instance_type: String,
    pub state: InstanceState,
    pub tags: Tags,
    /// The number of IPv6 addresses of each instance.
    pub ipv6: usize,
    /// Whether each instance has a delegated IPv6 prefix.
    pub ipv6_prefix: bool,
}

impl Default for InstanceSeed {
    fn default() -> Self {
        InstanceSeed {
            count: 1,
            subnets: Vec::new(),
            groups: Vec::new(),
            instance_type: "m5.large".to_owned(),
            state: InstanceState::Running,
            tags: Tags::new(),
            ipv6: 0,
            ipv6_prefix: false,
        }
    }
}

/// Creates a VPC with subnets, gateway, route tables and security groups.
pub fn network(world: &mut World, seed: &NetworkSeed) -> Result<Network, ApiError> {
    let bad = |why: &str| ApiError::bad_value("cidr", &seed.cidr, why);
    let block: Ipv4Net = seed.cidr.parse().map_err(|_| bad("Not an IPv4 block."))?;
    let tag = |kind: &str| cluster_tags(seed.cluster.as_deref(), kind);
    let vpc = subnets::insert_vpc(world, block, seed.ipv6, tag("shared"))?;
    let gateway = world.new_id("igw-");
    world.ec2.gateways.insert(gateway.clone(), Gateway { vpc: Some(vpc.clone()), tags: Tags::new() });
    let main_table = world.ec2.route_tables.iter().find(|(_, table)| table.vpc == vpc).map(|(id, _)| id.clone());
    let main_table = main_table.unwrap_or_default();
    let public_table = routes::insert(world, &vpc, Tags::new())?;
    let created = world.now();
    if let Some(table) = world.ec2.route_tables.get_mut(&public_table) {
        for destination in std::iter::once("0.0.0.0/0").chain(seed.ipv6.then_some("::/0")) {
            let target = Target::Gateway(gateway.clone());
            table.routes.push(Route { destination: destination.to_owned(), target, created });
        }
    }
    if let Some(table) = world.ec2.route_tables.get_mut(&main_table) {
        table.tags = tag("owned");
    }
    let mut made = Network {
        default_group: security_groups::by_name(world, &vpc, "default").unwrap_or_default(),
        node_group: security_groups::insert(world, &vpc, "nodes", "Nodes of the cluster", tag("owned")),
        vpc,
        main_table,
        public_table,
        gateway,
        ..Network::default()
    };
    let prefix = block.prefix_len() + bits(seed.zones.len() * 2);
    let mut blocks = block.subnets(prefix).map_err(|_| bad("Too small."))?;
    for (number, zone) in (0..).zip(&seed.zones) {
        for public in [true, false] {
            let cidr = blocks.next().ok_or_else(|| bad("Too small."))?;
            let id = subnet(world, &made.vpc, &cidr.to_string(), *zone, number * 2 + u8::from(public), tag("shared"))?;
            if public {
                let association = world.new_id("rtbassoc-");
                if let Some(table) = world.ec2.route_tables.get_mut(&made.public_table) {
                    table.associations.insert(association, Association::Subnet(id.clone()));
                }
                made.public.push(id);
            } else {
                made.private.push(id);
            }
        }
    }
    Ok(made)
}

fn cluster_tags(cluster: Option<&str>, value: &str) -> Tags {
    cluster.map(|id| (format!("kubernetes.io/cluster/{id}"), value.to_owned())).into_iter().collect()
}

/// The number of additional prefix bits for this number of parts.
fn bits(parts: usize) -> u8 {
    (0..16).find(|bits| 1_usize << bits >= parts).unwrap_or(16)
}

/// Creates a subnet in the zone with this letter; an unknown zone is created too.
fn subnet(
    world: &mut World,
    vpc: &str,
    cidr: &str,
    letter: char,
    number: u8,
    mut tags: Tags,
) -> Result<String, ApiError> {
    let zone = format!("{}{letter}", world.ec2.region);
    if !world.ec2.zones.contains_key(&zone) {
        return Err(ApiError::bad_value("zones", &letter.to_string(), "The region has no such zone."));
    }
    tags.insert("Name".to_owned(), format!("{zone}-{number}"));
    let ipv6_cidr = world.ec2.vpcs.get(vpc).and_then(|vpc| vpc.ipv6_cidr.as_deref()).map(|block| {
        // The VPC's /56 ends in 00, which is replaced by the number of the subnet.
        block.replace("00::/56", &format!("{number:02x}::/64"))
    });
    let id = world.new_id("subnet-");
    let subnet = Subnet { vpc: vpc.to_owned(), zone, cidr: cidr.to_owned(), ipv6_cidr, tags, next_ip: 0 };
    world.ec2.subnets.insert(id.clone(), subnet);
    Ok(id)
}

/// Creates instances directly in their final state; returns their IDs, in the order of creation. After an error some
/// may have been created.
pub fn instances(world: &mut World, seed: &InstanceSeed) -> Result<Vec<String>, ApiError> {
    // Seeded instances have existed for a while: no lag hides them.
    let created = world.now().checked_sub(SignedDuration::from_hours(1)).unwrap_or(Timestamp::UNIX_EPOCH);
    let mut made = Vec::with_capacity(seed.count);
    for number in 0..seed.count {
        let subnet = seed.subnets.get(number % seed.subnets.len().max(1));
        let interface = NewInterface {
            subnet: subnet.ok_or_else(|| ApiError::missing("subnets"))?.clone(),
            groups: seed.groups.clone(),
            ipv6: seed.ipv6,
            ipv6_prefix: seed.ipv6_prefix,
            ..NewInterface::default()
        };
        let launch = Launch {
            instance_type: seed.instance_type.clone(),
            image: "ami-00000000000000001".to_owned(),
            interfaces: vec![interface],
            tags: seed.tags.clone(),
        };
        let reservation = world.new_id("r-");
        let id = place(world, launch, &reservation, 0)?;
        if let Some(instance) = world.ec2.instances.get_mut(&id) {
            instance.state = seed.state;
            instance.created = created;
        }
        go_on(world, &id);
        made.push(id);
    }
    Ok(made)
}
