//! Rules of security groups: permissions as single rules, split for comparison, joined for calls.

pub(crate) mod shared;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ipnet::IpNet;

use crate::client::Id;
use crate::client::ec2::{Peer, Permission, Source};

/// All protocols, in a permission.
const ALL: &str = "-1";

/// A permission with one source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Rule {
    pub(crate) protocol: String,
    pub(crate) from_port: Option<i32>,
    pub(crate) to_port: Option<i32>,
    pub(crate) peer: Peer,
    pub(crate) description: String,
}

/// The identity of a rule in EC2: all but its description. Upstream ignores IPv6 ranges and prefix lists in the
/// comparison, so that a rule with one of those looks like one without a source.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Tuple {
    protocol: String,
    ports: Option<(Option<i32>, Option<i32>)>,
    peer: Peer,
}

impl Tuple {
    pub(crate) fn is_icmp(&self) -> bool {
        self.protocol.starts_with("icmp")
    }
}

impl Rule {
    fn new(protocol: &str, ports: Option<(i32, i32)>, peer: Peer) -> Self {
        let (from_port, to_port) = ports.unzip();
        Self { protocol: protocol.to_owned(), from_port, to_port, peer, description: String::new() }
    }

    pub(crate) fn port(protocol: &str, port: i32, peer: Peer) -> Self {
        Self::new(protocol, Some((port, port)), peer)
    }

    /// "Fragmentation needed" (path MTU discovery): ICMP type 3 code 4, for IPv6 type 2. As upstream, type and code
    /// take the place of the port range.
    pub(crate) fn too_big(peer: Peer) -> Self {
        match peer {
            Peer::Ipv6(_) => Self::new("icmpv6", Some((2, 0)), peer),
            _ => Self::new("icmp", Some((3, 4)), peer),
        }
    }

    /// Whether it is for "fragmentation needed", or for something else of ICMP.
    pub(crate) fn is_icmp(&self) -> bool {
        self.protocol.starts_with("icmp")
    }

    pub(crate) fn all_from(group: Id) -> Self {
        Self::new(ALL, None, Peer::Group { id: group, account: None })
    }

    #[must_use]
    pub(crate) fn described(mut self, description: &str) -> Self {
        self.description = description.to_owned();
        self
    }

    /// Whether both are for the same ports, or for the same type of ICMP.
    pub(crate) fn is_of_port_of(&self, other: &Self) -> bool {
        (&self.protocol, self.from_port, self.to_port) == (&other.protocol, other.from_port, other.to_port)
    }

    pub(crate) fn is_all_traffic(&self) -> bool {
        self.protocol == ALL
    }

    pub(crate) fn is_from(&self, group: &str) -> bool {
        matches!(&self.peer, Peer::Group { id, .. } if id.known() == Some(group))
    }

    /// The identity in EC2. Accounts do not count: this program never sends one, EC2 always returns one.
    pub(crate) fn tuple(&self) -> Tuple {
        let peer = match &self.peer {
            Peer::Ipv4(cidr) => Peer::Ipv4(network(cidr)),
            Peer::Ipv6(cidr) => Peer::Ipv6(network(cidr)),
            Peer::Group { id, .. } => Peer::Group { id: id.clone(), account: None },
            Peer::PrefixList(id) => Peer::PrefixList(id.clone()),
        };
        let ports = if self.is_all_traffic() { None } else { Some((self.from_port, self.to_port)) };
        Tuple { protocol: self.protocol.to_ascii_lowercase(), ports, peer }
    }
}

/// A range of ports, whatever the protocol: health checks of UDP ports use TCP.
pub(crate) type Port = (Option<i32>, Option<i32>);

pub(crate) fn port(rule: &Rule) -> Port {
    (rule.from_port, rule.to_port)
}

/// The network in canonical form; unparsable text stays as it is.
fn network(cidr: &str) -> String {
    cidr.parse::<IpNet>().map_or_else(|_| cidr.to_owned(), |net| net.trunc().to_string())
}

pub(crate) fn peer(range: &IpNet) -> Peer {
    match range {
        IpNet::V4(net) => Peer::Ipv4(net.to_string()),
        IpNet::V6(net) => Peer::Ipv6(net.to_string()),
    }
}

/// The rules of permissions, in order.
pub(crate) fn split(permissions: &[Permission]) -> Vec<Rule> {
    let single = |permission: &Permission, source: &Source| Rule {
        protocol: permission.protocol.clone(),
        from_port: permission.from_port,
        to_port: permission.to_port,
        peer: source.from.clone(),
        description: source.description.clone(),
    };
    let sources = permissions.iter().flat_map(|all| all.sources.iter().map(move |one| (all, one)));
    sources.map(|(permission, source)| single(permission, source)).collect()
}

/// One permission per protocol and range of ports, sorted.
pub(crate) fn join(rules: Vec<Rule>) -> Vec<Permission> {
    let mut joined = BTreeMap::<_, BTreeSet<Source>>::new();
    for Rule { protocol, from_port, to_port, peer, description } in rules {
        joined.entry((protocol, from_port, to_port)).or_default().insert(Source { from: peer, description });
    }
    let permission = |((protocol, from_port, to_port), sources): ((String, _, _), BTreeSet<_>)| Permission {
        protocol,
        from_port,
        to_port,
        sources: sources.into_iter().collect(),
    };
    joined.into_iter().map(permission).collect()
}

/// The rules of `wanted` that `found` lacks, each identity once; the first description wins.
pub(crate) fn missing(wanted: &[Rule], found: &[Rule]) -> Vec<Rule> {
    let mut seen: BTreeSet<Tuple> = found.iter().map(Rule::tuple).collect();
    wanted.iter().filter(|rule| seen.insert(rule.tuple())).cloned().collect()
}

pub(crate) fn surplus(found: &[Rule], wanted: &[Rule]) -> Vec<Rule> {
    let wanted: BTreeSet<Tuple> = wanted.iter().map(Rule::tuple).collect();
    found.iter().filter(|rule| !wanted.contains(&rule.tuple())).cloned().collect()
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&*self.protocol, self.from_port, self.to_port) {
            (ALL, ..) => f.write_str("all traffic")?,
            (protocol, Some(from), Some(to)) if from == to => write!(f, "{protocol} {from}")?,
            (protocol, Some(from), Some(to)) if protocol.starts_with("icmp") => {
                write!(f, "{protocol} type {from} code {to}")?;
            }
            (protocol, Some(from), Some(to)) => write!(f, "{protocol} {from}-{to}")?,
            (protocol, ..) => f.write_str(protocol)?,
        }
        match &self.peer {
            Peer::Ipv4(text) | Peer::Ipv6(text) | Peer::PrefixList(text) => write!(f, " from {text}"),
            Peer::Group { id, .. } => write!(f, " from {id}"),
        }
    }
}
