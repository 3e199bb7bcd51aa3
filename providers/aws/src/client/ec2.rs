//! Objects of EC2, with the fields that this program reads.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use super::{Id, Tags};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Instance {
    pub(crate) id: String,
    /// `pending`, `running`, `shutting-down`, `terminated`, `stopping`, `stopped`; `None` when EC2 left it out.
    pub(crate) state: Option<String>,
    pub(crate) instance_type: String,
    /// Availability zone of the placement.
    pub(crate) zone: String,
    pub(crate) vpc: String,
    pub(crate) subnet: String,
    /// Empty when there is none.
    pub(crate) private_dns_name: String,
    pub(crate) public_dns_name: String,
    /// As EC2 returns it, unparsed.
    pub(crate) private_ip: Option<String>,
    pub(crate) public_ip: Option<String>,
    pub(crate) interfaces: Vec<InstanceInterface>,
    /// IDs, in EC2's order.
    pub(crate) security_groups: Vec<String>,
    pub(crate) tags: Tags,
    /// Whether packets not addressed to the instance are dropped; `None` when EC2 left it out.
    pub(crate) source_dest_check: Option<bool>,
}

/// A network interface in the description of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct InstanceInterface {
    pub(crate) id: String,
    /// `in-use`, `attaching`, `detaching`, …
    pub(crate) status: String,
    /// `None` when it is not attached.
    pub(crate) device_index: Option<i32>,
    /// Private IPv4 addresses, primary first.
    pub(crate) private_ips: Vec<String>,
    pub(crate) ipv6: Vec<String>,
    /// Delegated prefixes, as CIDR.
    pub(crate) ipv6_prefixes: Vec<String>,
    pub(crate) source_dest_check: Option<bool>,
}

/// A network interface in its own description.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct NetworkInterface {
    pub(crate) id: String,
    pub(crate) zone: String,
    pub(crate) private_ip: Option<String>,
    pub(crate) private_dns_name: String,
    pub(crate) ipv6: Vec<String>,
    pub(crate) subnet: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct AvailabilityZone {
    /// `us-west-2a`
    pub(crate) name: String,
    /// `usw2-az1`
    pub(crate) id: String,
    /// `availability-zone`, `local-zone`, `wavelength-zone`
    pub(crate) kind: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Subnet {
    pub(crate) id: String,
    pub(crate) vpc: String,
    pub(crate) zone: String,
    /// IPv4 block, as CIDR; empty in an IPv6-only subnet.
    pub(crate) cidr: String,
    pub(crate) tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct RouteTable {
    pub(crate) id: String,
    pub(crate) vpc: String,
    /// Subnets that are explicitly associated.
    pub(crate) subnets: Vec<String>,
    pub(crate) main: bool,
    pub(crate) routes: Vec<Route>,
    pub(crate) tags: Tags,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Route {
    /// CIDR, IPv4 or IPv6; empty for prefix lists.
    pub(crate) destination: String,
    /// `igw-…`, `local`, `vgw-…`; empty when the target is something else.
    pub(crate) gateway: String,
    pub(crate) instance: Option<String>,
    pub(crate) interface: Option<String>,
    pub(crate) blackhole: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct SecurityGroup {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) description: String,
    pub(crate) vpc: String,
    pub(crate) ingress: Vec<Permission>,
    pub(crate) tags: Tags,
}

/// A permission as EC2 merges them: several sources for one protocol and port range.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub(crate) struct Permission {
    /// `tcp`, `udp`, `icmp`, `-1`, or a number.
    pub(crate) protocol: String,
    /// `None` with protocol `-1`. With ICMP, the type.
    pub(crate) from_port: Option<i32>,
    /// With ICMP, the code.
    pub(crate) to_port: Option<i32>,
    pub(crate) sources: Vec<Source>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) struct Source {
    pub(crate) from: Peer,
    /// Empty when there is none.
    pub(crate) description: String,
}

/// The source of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub(crate) enum Peer {
    /// CIDR as text, so that EC2's value is kept unchanged.
    Ipv4(String),
    Ipv6(String),
    /// Another group; the account only where EC2 returns it.
    Group {
        /// Always known in an observation; in a write it may be created by an earlier write.
        id: Id,
        account: Option<String>,
    },
    PrefixList(String),
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Volume {
    pub(crate) id: String,
    pub(crate) zone: String,
}

/// IPv4 as EC2 writes it; leading zeros are allowed.
pub(crate) fn ipv4(text: &str) -> Option<Ipv4Addr> {
    let mut octets = [0_u8; 4];
    let mut parts = text.split('.');
    for octet in &mut octets {
        let part = parts.next()?;
        let digits = !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_digit());
        *octet = part.parse().ok().filter(|_| digits)?;
    }
    parts.next().is_none().then(|| octets.into())
}
