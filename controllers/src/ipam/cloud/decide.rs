//! The ranges of an instance that its node gets, and the resulting writes. Pure.

use std::fmt;

use ccm_provider::node::ConditionStatus;
use ccm_provider::{Change, Node, Plan, PodInterface, address};
use ccm_runtime::writer::Network;
use ipnet::IpNet;

use crate::preview::node_update;

/// The families of the cluster's pods, in the order of a node's ranges.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Families {
    /// IPv4 only.
    V4,
    /// IPv4 first.
    V4V6,
    /// IPv6 first.
    V6V4,
    /// IPv6 only.
    V6,
}

impl Families {
    /// The families of the ranges of Services: none, one, or one of each family.
    pub(in crate::ipam) fn of(services: &[IpNet]) -> Self {
        match services {
            [one] if one.addr().is_ipv6() => Self::V6,
            [] | [_] => Self::V4,
            [first, ..] if first.addr().is_ipv6() => Self::V6V4,
            _ => Self::V4V6,
        }
    }

    /// For each range of a node, whether it is an IPv6 range.
    fn are_ipv6(self) -> &'static [bool] {
        match self {
            Self::V4 => &[false],
            Self::V4V6 => &[false, true],
            Self::V6V4 => &[true, false],
            Self::V6 => &[true],
        }
    }
}

impl fmt::Display for Families {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::V4 => "IPv4",
            Self::V4V6 => "IPv4_IPv6",
            Self::V6V4 => "IPv6_IPv4",
            Self::V6 => "IPv6",
        })
    }
}

/// Whether a change of a node requires a sync: it has no ranges, or counts as unreachable.
pub(super) fn is_due(node: &Node) -> bool {
    node.pod_cidrs.is_empty() || !is_reachable(node)
}

fn is_reachable(node: &Node) -> bool {
    node.network_unavailable.as_ref().is_some_and(|(status, _)| *status == ConditionStatus::False)
}

/// The ranges that a node gets: those of the default interface of its instance, one of each family of the cluster.
///
/// # Errors
///
/// The reason why the node gets none.
pub(super) fn ranges(node: &Node, interfaces: &[PodInterface], families: Families) -> Result<Vec<String>, String> {
    let name = &node.name;
    let Some(interface) = interfaces.iter().find(|interface| interface.primary).or(interfaces.first()) else {
        return Err(format!(
            "failed to allocate cidr: Node {name} has no ranges from which CIDRs can be allocated: its instance has no network \
             interface"
        ));
    };
    if interface.ranges.is_empty() && interfaces.len() == 1 {
        return Err(format!(
            "failed to allocate cidr: Node {name} has no ranges from which CIDRs can be allocated: give its instance a range for \
             pods, or use --cidr-allocator-type=RangeAllocator"
        ));
    }
    let read = |text: &String| Some((address::parse_cidr(text)?.addr().is_ipv6(), text.clone()));
    let Some(found) = interface.ranges.iter().map(read).collect::<Option<Vec<(bool, String)>>>() else {
        return Err(format!(
            "failed to parse strings {:?} as CIDRs: the cloud has them for Node {name}",
            interface.ranges
        ));
    };
    let first = |ipv6: &bool| found.iter().find(|(family, _)| family == ipv6).map(|(_, text)| text.clone());
    families.are_ipv6().iter().map(first).collect::<Option<_>>().ok_or_else(|| {
        format!(
            "failed to allocate cidr: Node {name} has no ranges from which CIDRs can be allocated for the cluster stack family \
             {families}: the default network interface of its instance has {:?}, and --service-cluster-ip-range says what is needed",
            interface.ranges
        )
    })
}

/// The changes to write to a node.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Changes {
    /// `spec.podCIDRs`, if it has none.
    pub(super) pod_cidrs: Vec<String>,
    /// The condition `NetworkUnavailable`, if it does not show that the node is reachable.
    pub(super) network: Option<Network>,
}

/// Compares a node with the ranges that it gets.
///
/// # Errors
///
/// The node has other ranges, which cannot be changed.
pub(super) fn changes(node: &Node, wanted: &[String]) -> Result<Changes, String> {
    let network = (!is_reachable(node)).then(|| Network::Implicit { known: node.network_unavailable.is_some() });
    if node.pod_cidrs.is_empty() {
        return Ok(Changes { pod_cidrs: wanted.to_vec(), network });
    }
    let same = |has: &str, wanted: &str| has == wanted || network_of(has) == network_of(wanted);
    let mut pairs = node.pod_cidrs.iter().zip(wanted);
    if node.pod_cidrs.len() == wanted.len() && pairs.all(|(has, wanted)| same(has, wanted)) {
        return Ok(Changes { network, ..Changes::default() });
    }
    Err(format!(
        "the node has the pod ranges {}, and the cloud has {} for it: ranges of a node cannot be changed; delete the Node object, so \
         that it registers again, or give the instance the ranges of the node",
        node.pod_cidrs.join(", "),
        wanted.join(", ")
    ))
}

fn network_of(text: &str) -> Option<IpNet> {
    address::parse_cidr(text).map(|range| range.trunc())
}

impl Changes {
    /// The writes as a plan, for the log and dry runs.
    pub(super) fn plan(&self, node: &Node) -> Plan {
        let mut changes = Vec::new();
        if !self.pod_cidrs.is_empty() {
            let after = Some(self.pod_cidrs.join(", "));
            changes.push(Change { field: "spec.podCIDRs".into(), before: None, after });
        }
        if self.network.is_some() {
            let before = node.network_unavailable.as_ref().map(|(status, _)| format!("{status:?}"));
            let after = Some("False".to_owned());
            changes.push(Change { field: "condition NetworkUnavailable".into(), before, after });
        }
        let plan = Plan::new(format!("node {} pod ranges", node.name));
        if changes.is_empty() {
            return plan;
        }
        plan.with(node_update(node, changes, "the cloud gave the instance these ranges"))
    }
}
