//! The state of EC2.

use super::super::Options;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

/// The state of EC2; objects by ID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ec2State {
    /// The account that owns all objects.
    pub account: String,
    pub region: String,
    /// The zones by name.
    pub zones: BTreeMap<String, Zone>,
    pub vpcs: BTreeMap<String, Vpc>,
    pub subnets: BTreeMap<String, Subnet>,
    pub gateways: BTreeMap<String, Gateway>,
    pub route_tables: BTreeMap<String, RouteTable>,
    pub groups: BTreeMap<String, SecurityGroup>,
    /// The instances, including instances that were terminated within the last hour.
    pub instances: BTreeMap<String, Instance>,
    /// The network interfaces of instances, load balancers and others.
    pub interfaces: BTreeMap<String, Interface>,
    pub volumes: BTreeMap<String, Volume>,
    /// The Elastic IP addresses by allocation ID.
    pub addresses: BTreeMap<String, Address>,
    /// The idempotency tokens by `<action>/<token>`.
    pub tokens: BTreeMap<String, Token>,
    /// Whether topology queries are answered with `UnsupportedOperation`.
    #[serde(default)]
    pub topology_unsupported: bool,
    /// Existing instances that answers omit although the request is valid: a partial answer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_out: BTreeSet<String>,
    #[serde(skip)]
    pub(super) index: Index,
}

/// Indexes derived from the state; rebuilt after loading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) by_dns: HashMap<String, BTreeSet<String>>,
    pub(super) by_ip: HashMap<Ipv4Addr, BTreeSet<String>>,
}

/// An Availability Zone, Local Zone or Wavelength Zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// The zone ID, e.g. `usw2-az1`.
    pub id: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub kind: String,
    /// `available`, `impaired`, …
    pub state: String,
}

/// A VPC.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Vpc {
    pub cidr: String,
    pub ipv6_cidr: Option<String>,
    pub tags: Tags,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subnet {
    pub vpc: String,
    /// The name of its zone.
    pub zone: String,
    pub cidr: String,
    pub ipv6_cidr: Option<String>,
    pub tags: Tags,
    /// The offset in the block at which the search for a free address continues.
    pub next_ip: u32,
}

/// An internet gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// The VPC that it is attached to.
    pub vpc: Option<String>,
    pub tags: Tags,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    pub vpc: String,
    /// The associations by ID.
    pub associations: BTreeMap<String, Association>,
    /// The routes in the order of their creation.
    pub routes: Vec<Route>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// An association of a route table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Association {
    /// All subnets without an explicit association.
    Main,
    Subnet(String),
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// An IPv4 or IPv6 CIDR block, or a prefix list.
    pub destination: String,
    pub target: Target,
    pub created: Timestamp,
}

/// The target of a route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Local,
    /// A gateway: internet (`igw-…`), virtual private (`vgw-…`), NAT (`nat-…`).
    Gateway(String),
    /// A network interface, with the instance to which it was attached when the route was created.
    Interface {
        interface: String,
        instance: Option<String>,
    },
}

/// A security group.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// The name, unique in its VPC.
    pub name: String,
    pub description: String,
    pub vpc: String,
    /// The inbound rules in the order of their creation.
    pub ingress: Vec<Rule>,
    /// The outbound rules.
    pub egress: Vec<Rule>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// A rule with one protocol, one port range and one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub id: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, a number, or `-1` for all.
    pub protocol: String,
    /// The first port (ICMP: type); none for protocols without ports.
    pub from: Option<i64>,
    /// The last port (ICMP: code).
    pub to: Option<i64>,
    /// The source, or for outbound rules the destination.
    pub peer: Peer,
    pub description: Option<String>,
}

/// The source or destination of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    V4(String),
    V6(String),
    Group(String),
    Prefix(String),
}

/// The states of an instance.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    #[default]
    Pending,
    Running,
    ShuttingDown,
    /// Terminated; visible for an hour.
    Terminated,
    Stopping,
    Stopped,
}

impl InstanceState {
    /// The name in the API.
    pub fn name(self) -> &'static str {
        self.on_wire().1
    }

    /// The code and name in the API.
    pub(super) fn on_wire(self) -> (u16, &'static str) {
        match self {
            InstanceState::Pending => (0, "pending"),
            InstanceState::Running => (16, "running"),
            InstanceState::ShuttingDown => (32, "shutting-down"),
            InstanceState::Terminated => (48, "terminated"),
            InstanceState::Stopping => (64, "stopping"),
            InstanceState::Stopped => (80, "stopped"),
        }
    }
}

/// An instance. Its addresses and security groups are those of its network interfaces.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The reservation that created it.
    pub reservation: String,
    /// The index among the instances of its reservation.
    pub launch_index: u32,
    pub image: String,
    /// The instance type, e.g. `m5.large`.
    pub instance_type: String,
    pub state: InstanceState,
    pub created: Timestamp,
    pub vpc: String,
    /// The subnet of the primary interface.
    pub subnet: String,
    /// The name of its zone.
    pub zone: String,
    /// The private DNS name; empty once terminated.
    pub private_dns: String,
    /// The public DNS name, or empty.
    pub public_dns: String,
    /// The network interfaces by device index.
    pub interfaces: Vec<String>,
    /// The network nodes from the top; empty for a type without topology.
    pub topology: Vec<String>,
    /// The maximum number of hops for a token answer of the metadata service.
    pub metadata_hops: u8,
    /// Whether the metadata service answers requests without a token.
    #[serde(default)]
    pub metadata_tokens_optional: bool,
    pub tags: Tags,
}

/// A network interface.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub subnet: String,
    pub vpc: String,
    /// The name of its zone.
    pub zone: String,
    /// The description; for load balancers it contains the name of the load balancer.
    pub description: String,
    /// `interface`, `network_load_balancer`, …
    pub kind: String,
    /// For requester-managed interfaces, the service that created it, e.g. `amazon-elb`.
    pub requester: Option<String>,
    /// The MAC address.
    pub mac: String,
    /// The private IPv4 addresses, the primary one first.
    pub private_ips: Vec<Ipv4Addr>,
    /// The public address of the primary private address.
    pub public_ip: Option<Ipv4Addr>,
    /// The allocation ID, if `public_ip` is an Elastic IP address.
    pub allocation: Option<String>,
    pub ipv6: Vec<Ipv6Addr>,
    /// The delegated IPv6 prefixes.
    #[serde(default)]
    pub ipv6_prefixes: Vec<String>,
    pub groups: Vec<String>,
    /// Whether traffic for other addresses is dropped.
    pub source_dest_check: bool,
    pub attachment: Option<Attachment>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// The attachment of a network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub id: String,
    /// The instance; none for interfaces of services.
    pub instance: Option<String>,
    pub device: u32,
    /// `attaching`, `attached`, `detaching`.
    pub status: String,
    pub since: Timestamp,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// The name of its zone.
    pub zone: String,
    /// The size in GiB.
    pub size: i64,
    /// `gp3`, …
    pub kind: String,
    /// `available`, `in-use`, …
    pub state: String,
    pub tags: Tags,
    pub created: Timestamp,
}

/// An Elastic IP address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub public_ip: Ipv4Addr,
    /// The network interface that has it.
    pub interface: Option<String>,
    pub tags: Tags,
}

/// The first use of an idempotency token.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The parameters of the first call.
    pub params: String,
    /// The IDs of the objects that it created.
    pub made: Vec<String>,
}

impl Ec2State {
    /// An empty account with the zones of its region.
    pub fn new(options: &Options) -> Self {
        // In real accounts, the IDs do not follow the letters either.
        let zones = [('a', 2), ('b', 1), ('c', 3), ('d', 4)].map(|(letter, id)| {
            let zone = Zone {
                id: format!("{}-az{id}", short_region(&options.region)),
                kind: "availability-zone".to_owned(),
                state: "available".to_owned(),
            };
            (format!("{}{letter}", options.region), zone)
        });
        Ec2State {
            account: options.account.clone(),
            region: options.region.clone(),
            zones: zones.into(),
            ..Ec2State::default()
        }
    }

    /// Rebuilds the indexes.
    pub fn reindex(&mut self) {
        let mut index = Index::default();
        for (id, instance) in &self.instances {
            if !instance.private_dns.is_empty() {
                index.by_dns.entry(instance.private_dns.clone()).or_default().insert(id.clone());
            }
        }
        for (id, interface) in &self.interfaces {
            for ip in &interface.private_ips {
                index.by_ip.entry(*ip).or_default().insert(id.clone());
            }
        }
        self.index = index;
    }

    /// The primary network interface of an instance.
    pub fn primary_interface<'a>(&'a self, instance: &'a Instance) -> Option<(&'a str, &'a Interface)> {
        let id = instance.interfaces.first()?;
        Some((id, self.interfaces.get(id)?))
    }
}

/// `us-west-2` → `usw2`.
fn short_region(region: &str) -> String {
    let mut parts = region.split('-');
    let area = parts.next().unwrap_or_default();
    let rest: String = parts.filter_map(|part| part.chars().next()).collect();
    format!("{area}{rest}")
}
