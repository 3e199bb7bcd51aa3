//! Identifies the instance of a node by provider ID and node name.
//!
//! Upstream: `pkg/providers/v1/{instances,instances_v2,variant}.go`. All functions here are pure functions of text.

use std::fmt;
use std::net::Ipv4Addr;

use ccm_provider::Node;

#[cfg(test)]
mod tests;

pub(crate) const SCHEME: &str = "aws";
const FARGATE_PREFIX: &str = "fargate-";

/// A well-formed ID of an EC2 instance: `i-` and 8 or 17 hexadecimal digits. Other IDs are never sent: EC2 refuses the
/// whole call because of one.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct InstanceId(Box<str>);

impl InstanceId {
    /// `i-0123456789abcdef0`; `None` if it is not well-formed.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix("i-")?;
        let hexadecimal = digits.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        (hexadecimal && matches!(digits.len(), 8 | 17)).then(|| Self(text.into()))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for InstanceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::borrow::Borrow<str> for InstanceId {
    fn borrow(&self) -> &str {
        &self.0
    }
}

/// The machine of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Machine {
    Ec2(InstanceId),
    /// A Fargate micro-VM, identified by the private IPv4 address of its network interface.
    Fargate(Ipv4Addr),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ProviderId {
    pub(crate) machine: Machine,
}

/// The reason why a provider ID names no instance of this provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub(crate) enum BadProviderId {
    /// The ID of another cloud: this provider does not judge it.
    #[error("provider ID {0:?} belongs to another cloud")]
    Foreign(String),
    /// The ID has the form of this provider, but no instance can have it.
    #[error(
        "provider ID {0:?} names no EC2 instance and no Fargate node; expected aws:///<zone>/i-<8 or 17 hexadecimal digits> or aws:///<zone>/<id>/fargate-<IPv4 address>"
    )]
    Malformed(String),
}

impl ProviderId {
    /// Formats a provider ID.
    pub(crate) fn format(zone: &str, instance: &str) -> String {
        format!("{SCHEME}:///{zone}/{instance}")
    }

    /// Parses `aws:///<zone>/<id>`, `aws:////<id>`, a bare `<id>`, and the same with a host part, which is ignored.
    ///
    /// Upstream takes any text without `aws://` for an ID, even `gce://p/z/i-1`; here another scheme is another cloud.
    pub(crate) fn parse(text: &str) -> Result<Self, BadProviderId> {
        let malformed = || BadProviderId::Malformed(text.to_owned());
        let path = match text.split_once("://") {
            Some((SCHEME, rest)) => rest.split_once('/').ok_or_else(malformed)?.1,
            Some(_) => return Err(BadProviderId::Foreign(text.to_owned())),
            None => text,
        };
        let last = path.trim_matches('/').rsplit('/').next().unwrap_or_default();
        let machine = match last.strip_prefix(FARGATE_PREFIX) {
            Some(endpoint) => Machine::Fargate(fargate_address(endpoint).ok_or_else(malformed)?),
            None => Machine::Ec2(InstanceId::parse(last).ok_or_else(malformed)?),
        };
        Ok(Self { machine })
    }

    /// The EC2 instance of a provider ID; `None` for a Fargate node, another cloud, or no ID.
    pub(crate) fn instance(text: Option<&str>) -> Option<InstanceId> {
        match Self::parse(text?).ok()?.machine {
            Machine::Ec2(id) => Some(id),
            Machine::Fargate(_) => None,
        }
    }
}

/// The EC2 instance of a node, by its provider ID. A node without an ID, or with an impossible one, is logged.
pub(crate) fn instance_of(node: &Node) -> Option<InstanceId> {
    let Some(id) = node.provider_id.as_deref().filter(|id| !id.is_empty()) else {
        tracing::warn!(node = %node.name, "the node has no provider ID yet and is left out");
        return None;
    };
    if let Err(error @ BadProviderId::Malformed(_)) = ProviderId::parse(id) {
        tracing::warn!(node = %node.name, %error, "the node is left out");
    }
    ProviderId::instance(Some(id))
}

/// The address in `10.0.0.1` or `ip-10-0-0-1.us-west-2.compute.internal`.
fn fargate_address(endpoint: &str) -> Option<Ipv4Addr> {
    match endpoint.strip_prefix("ip-") {
        Some(_) => private_name_address(endpoint),
        None => endpoint.parse().ok(),
    }
}

/// The address in the first label of a private DNS name: `ip-10-0-0-1`.
fn private_name_address(name: &str) -> Option<Ipv4Addr> {
    name.split('.').next()?.strip_prefix("ip-")?.replace('-', ".").parse().ok()
}

/// Whether a node name has the form of EC2's private DNS names, whatever the DHCP options of the VPC are. Only then a
/// missing name shows that the instance is missing; a custom name shows nothing.
pub(crate) fn is_ec2_dns_name(name: &str) -> bool {
    let Some((_, domain)) = name.split_once('.') else { return false };
    private_name_address(name).is_some() && (domain == "ec2.internal" || domain.ends_with(".compute.internal"))
}

/// Whether such a name is one that EC2 gives in a region.
pub(crate) fn is_dns_name_of(region: &str, name: &str) -> bool {
    let domain = name.split_once('.').map_or("", |(_, domain)| domain);
    match region {
        "us-east-1" => domain == "ec2.internal",
        _ => domain.strip_suffix(".compute.internal") == Some(region),
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Own {
    pub(crate) instance: InstanceId,
    pub(crate) private_dns_name: String,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Wanted {
    Machine(Machine),
    Name(String),
    Never(BadProviderId),
}

/// How to find the instance of a node: by its provider ID, even an odd one; else by its name, which is this program's
/// own private DNS name, or begins with an instance ID (resource-based naming, any domain), or is a private DNS name.
///
/// Upstream takes any name that begins with `i-` for an instance ID; here only well-formed IDs.
pub(crate) fn wanted(node: &Node, own: Option<&Own>) -> Wanted {
    if let Some(id) = node.provider_id.as_deref().filter(|id| !id.is_empty()) {
        return match ProviderId::parse(id) {
            Ok(id) => Wanted::Machine(id.machine),
            Err(error) => Wanted::Never(error),
        };
    }
    let name = node.name.as_str();
    if let Some(own) = own.filter(|own| own.private_dns_name == name) {
        return Wanted::Machine(Machine::Ec2(own.instance.clone()));
    }
    match name.split('.').next().and_then(InstanceId::parse) {
        Some(id) => Wanted::Machine(Machine::Ec2(id)),
        None => Wanted::Name(name.to_owned()),
    }
}
