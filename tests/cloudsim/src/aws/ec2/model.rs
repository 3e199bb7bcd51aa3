//! What there is in EC2.

use super::super::Options;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{Ipv4Addr, Ipv6Addr};

/// Tags by key.
pub type Tags = BTreeMap<String, String>;

/// State of EC2; objects by ID.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ec2State {
    /// The account that owns everything.
    pub account: String,
    pub region: String,
    /// Zones by name.
    pub zones: BTreeMap<String, Zone>,
    pub vpcs: BTreeMap<String, Vpc>,
    pub subnets: BTreeMap<String, Subnet>,
    pub gateways: BTreeMap<String, Gateway>,
    pub route_tables: BTreeMap<String, RouteTable>,
    pub groups: BTreeMap<String, SecurityGroup>,
    /// Instances, terminated ones for an hour.
    pub instances: BTreeMap<String, Instance>,
    /// Network interfaces of instances, load balancers and others.
    pub interfaces: BTreeMap<String, Interface>,
    pub volumes: BTreeMap<String, Volume>,
    /// Elastic addresses by allocation ID.
    pub addresses: BTreeMap<String, Address>,
    /// Idempotency tokens by `<action>/<token>`.
    pub tokens: BTreeMap<String, Token>,
    /// Topology queries are answered with `UnsupportedOperation`.
    #[serde(default)]
    pub topology_unsupported: bool,
    /// Instances that answers leave out although they exist and nothing is wrong with the question: a partial answer.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub left_out: BTreeSet<String>,
    #[serde(skip)]
    pub(super) index: Index,
}

/// Derived from the state; rebuilt after loading.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Index {
    pub(super) by_dns: HashMap<String, BTreeSet<String>>,
    pub(super) by_ip: HashMap<Ipv4Addr, BTreeSet<String>>,
}

/// An availability, local or wavelength zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Zone {
    /// Zone ID, e.g. `usw2-az1`.
    pub id: String,
    /// `availability-zone`, `local-zone` or `wavelength-zone`.
    pub kind: String,
    /// `available`, `impaired`, …
    pub state: String,
}

/// A network.
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
    /// Its zone's name.
    pub zone: String,
    pub cidr: String,
    pub ipv6_cidr: Option<String>,
    pub tags: Tags,
    /// Offset in the block at which the search for a free address goes on.
    pub next_ip: u32,
}

/// An internet gateway.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gateway {
    /// The network that it is attached to.
    pub vpc: Option<String>,
    pub tags: Tags,
}

/// A route table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RouteTable {
    pub vpc: String,
    /// Associations by ID.
    pub associations: BTreeMap<String, Association>,
    /// Routes in the order of their creation.
    pub routes: Vec<Route>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// What a route table is used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Association {
    /// All subnets without a table of their own.
    Main,
    Subnet(String),
}

/// A route.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Route {
    /// IPv4 or IPv6 block, or a prefix list.
    pub destination: String,
    pub target: Target,
    pub created: Timestamp,
}

/// Where a route goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Target {
    Local,
    /// A gateway: internet (`igw-…`), virtual private (`vgw-…`), NAT (`nat-…`).
    Gateway(String),
    /// An interface, with the instance that it belonged to when the route was made.
    Interface {
        interface: String,
        instance: Option<String>,
    },
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SecurityGroup {
    /// Name, unique in its network.
    pub name: String,
    pub description: String,
    pub vpc: String,
    /// Inbound rules in the order of their creation.
    pub ingress: Vec<Rule>,
    /// Outbound rules.
    pub egress: Vec<Rule>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// One rule: one protocol and port range, one source.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rule {
    pub id: String,
    /// `tcp`, `udp`, `icmp`, `icmpv6`, a number, or `-1` for all.
    pub protocol: String,
    /// First port (ICMP: type); none for protocols without ports.
    pub from: Option<i64>,
    /// Last port (ICMP: code).
    pub to: Option<i64>,
    /// Where from (outbound: where to).
    pub peer: Peer,
    pub description: Option<String>,
}

/// The other side of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Peer {
    V4(String),
    V6(String),
    Group(String),
    Prefix(String),
}

/// States of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InstanceState {
    Pending,
    Running,
    ShuttingDown,
    /// Terminated; visible for an hour.
    Terminated,
    Stopping,
    Stopped,
}

impl InstanceState {
    /// Name on the wire.
    pub fn name(self) -> &'static str {
        self.on_wire().1
    }

    /// Code and name on the wire.
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

/// An instance. Addresses and groups are those of its interfaces.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// The reservation that it was started in.
    pub reservation: String,
    /// Position among the instances of its reservation.
    pub launch_index: u32,
    pub image: String,
    /// Type, e.g. `m5.large`.
    pub instance_type: String,
    pub state: InstanceState,
    pub created: Timestamp,
    pub vpc: String,
    /// Subnet of the primary interface.
    pub subnet: String,
    /// Zone's name.
    pub zone: String,
    /// Private DNS name; empty once terminated.
    pub private_dns: String,
    /// Public DNS name, or empty.
    pub public_dns: String,
    /// Interfaces by device index.
    pub interfaces: Vec<String>,
    /// Network nodes from the top; empty: a type without topology.
    pub topology: Vec<String>,
    /// How many hops an answer of the metadata service's token request may take.
    pub metadata_hops: u8,
    pub tags: Tags,
}

/// A network interface.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Interface {
    pub subnet: String,
    pub vpc: String,
    /// Zone's name.
    pub zone: String,
    /// Description; for load balancers it names the balancer.
    pub description: String,
    /// `interface`, `network_load_balancer`, …
    pub kind: String,
    /// The service that made it, for requester-managed ones, e.g. `amazon-elb`.
    pub requester: Option<String>,
    /// Hardware address.
    pub mac: String,
    /// Private IPv4 addresses, the primary one first.
    pub private_ips: Vec<Ipv4Addr>,
    /// Public address of the primary private one.
    pub public_ip: Option<Ipv4Addr>,
    /// Elastic address behind `public_ip`.
    pub allocation: Option<String>,
    pub ipv6: Vec<Ipv6Addr>,
    /// Delegated IPv6 prefixes.
    #[serde(default)]
    pub ipv6_prefixes: Vec<String>,
    pub groups: Vec<String>,
    /// Drops traffic that is not its own.
    pub source_dest_check: bool,
    pub attachment: Option<Attachment>,
    pub tags: Tags,
    pub created: Timestamp,
}

/// What an interface is attached to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    pub id: String,
    /// The instance; none for those of services.
    pub instance: Option<String>,
    pub device: u32,
    /// `attaching`, `attached`, `detaching`.
    pub status: String,
    pub since: Timestamp,
}

/// A volume.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Volume {
    /// Zone's name.
    pub zone: String,
    /// GiB.
    pub size: i64,
    /// `gp3`, …
    pub kind: String,
    /// `available`, `in-use`, …
    pub state: String,
    pub tags: Tags,
    pub created: Timestamp,
}

/// An elastic address.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Address {
    pub public_ip: Ipv4Addr,
    /// The interface that has it.
    pub interface: Option<String>,
    pub tags: Tags,
}

/// What an idempotency token was used for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Token {
    /// The parameters of the first call.
    pub params: String,
    /// What it made.
    pub made: Vec<String>,
}

impl Ec2State {
    /// An empty account with the zones of its region.
    pub fn new(options: &Options) -> Self {
        // IDs don't follow the letters in real accounts either.
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

    /// Rebuilds what is derived from the state.
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

    /// The primary interface of an instance.
    pub fn primary_interface<'a>(&'a self, instance: &'a Instance) -> Option<(&'a str, &'a Interface)> {
        let id = instance.interfaces.first()?;
        Some((id, self.interfaces.get(id)?))
    }

    /// Whether a subnet is public: its route table, else the network's main one, leads to an internet gateway.
    pub fn is_public(&self, subnet: &str) -> bool {
        let Some(vpc) = self.subnets.get(subnet).map(|subnet| &subnet.vpc) else { return false };
        let used = |wanted: &Association| {
            self.route_tables
                .values()
                .find(|table| table.vpc == *vpc && table.associations.values().any(|found| found == wanted))
        };
        let table = used(&Association::Subnet(subnet.to_owned())).or_else(|| used(&Association::Main));
        let internet = |route: &Route| matches!(&route.target, Target::Gateway(id) if id.starts_with("igw-"));
        table.is_some_and(|table| table.routes.iter().any(internet))
    }
}

/// `us-west-2` → `usw2`.
fn short_region(region: &str) -> String {
    let mut parts = region.split('-');
    let area = parts.next().unwrap_or_default();
    let rest: String = parts.filter_map(|part| part.chars().next()).collect();
    format!("{area}{rest}")
}
