//! The nodes that become members, and their addresses. Pure.
//!
//! Upstream: `nodeAddressForLB` and `filterNodes` in `pkg/openstack/loadbalancer.go`.

use std::collections::BTreeMap;

use ccm_provider::node::ConditionStatus;
use ccm_provider::{AddressType, Finding, Node, NodeRef, Service};

use super::{Family, Target};
use crate::annotations as keys;
use crate::loadbalancer::selector::NodeSelector;
use crate::node::identity::Identity;
use crate::start::config::Config;

/// The address of a node behind a balancer: the first internal one of the family, else the first external one.
pub(crate) fn address(node: &Node, family: Option<Family>) -> Option<String> {
    let of = |kind: AddressType| {
        let fits = |ip| family.is_none_or(|family| family.has(ip));
        let of_kind = node.addresses.iter().filter(|address| address.kind == kind);
        of_kind.filter(|address| address.ip().is_some_and(fits)).map(|address| address.address.to_string()).next()
    };
    of(AddressType::InternalIp).or_else(|| of(AddressType::ExternalIp))
}

/// The address of a node as a backend of a Service, for comparison. `None`: the node is no backend.
pub(crate) fn backend_of(config: &Config, service: &Service, node: &Node) -> Option<String> {
    let annotation = service.metadata.annotations.get(keys::NODE_SELECTOR.row.key);
    let selector = NodeSelector::parse(annotation.unwrap_or(&config.load_balancer.node_selector));
    let family = service.spec.ip_families.first().map(|f| if f == "IPv6" { Family::V6 } else { Family::V4 });
    // A node without an address becomes a backend when it gets one.
    selector.matches(&node.labels).then(|| address(node, family).unwrap_or_default())
}

/// The members, sorted by node name for a stable order. A node without a matching address is reported and left
/// out.
pub(super) fn targets(
    nodes: &[NodeRef],
    identity: &Identity,
    selector: &NodeSelector,
    family: Option<Family>,
    findings: &mut Vec<Finding>,
) -> Vec<Target> {
    let mut by_address: BTreeMap<String, &NodeRef> = BTreeMap::new();
    let (mut without, mut twice) = (Vec::new(), Vec::new());
    for node in nodes.iter().filter(|node| selector.matches(&node.labels)) {
        let Some(address) = address(node, family) else {
            without.push(node.name.as_str());
            continue;
        };
        // Octavia refuses members with the same address: a fixed address may have gone to a new node.
        let Some(other) = by_address.get(&address) else {
            by_address.insert(address, node);
            continue;
        };
        let rank = |node: &NodeRef| (node.ready == Some(ConditionStatus::True), node.created, node.name.clone());
        let (kept, left) = if rank(node) > rank(other) { (node, *other) } else { (*other, node) };
        twice.push(format!("{} and {} have the address {address}: {} is the member", left.name, kept.name, kept.name));
        by_address.insert(address, kept);
    }
    let target = |(address, node): (String, &NodeRef)| Target {
        node: node.name.to_string(),
        address,
        server: identity.server_of(node),
        is_elsewhere: identity.is_elsewhere(node),
    };
    let mut targets: Vec<Target> = by_address.into_iter().map(target).collect();
    if !twice.is_empty() {
        twice.sort_unstable();
        let text = format!("{}; delete the Node that is not in use", twice.join("; "));
        findings.push(Finding::warning("LoadBalancerMemberConflict", text));
    }
    if !without.is_empty() {
        without.sort_unstable();
        let text = format!("no member: no address of the Service's IP family on {}", without.join(", "));
        findings.push(Finding::warning("nodes", text));
    }
    targets.sort();
    targets
}

/// All addresses of nodes.
pub(crate) fn everywhere(nodes: &[NodeRef], identity: &Identity) -> Vec<Target> {
    let targets = |node: &NodeRef| {
        let (server, is_elsewhere) = (identity.server_of(node), identity.is_elsewhere(node));
        let target = |address: &ccm_provider::NodeAddress| Target {
            node: node.name.to_string(),
            address: address.address.to_string(),
            server: server.clone(),
            is_elsewhere,
        };
        node.addresses.iter().map(target).collect::<Vec<_>>()
    };
    nodes.iter().flat_map(targets).collect()
}

#[cfg(test)]
mod tests {
    use ccm_provider::NodeAddress;

    use super::*;

    fn node(name: &str, addresses: &[(AddressType, &str)]) -> NodeRef {
        let addresses = addresses.iter().map(|(kind, text)| NodeAddress::new(kind.clone(), *text)).collect();
        Node { name: name.into(), addresses, ..Node::default() }.into()
    }

    #[test]
    fn the_internal_address_of_the_family_goes_first() {
        use AddressType::{ExternalIp, Hostname, InternalIp};
        let both = node(
            "n",
            &[
                (Hostname, "n"),
                (ExternalIp, "192.0.2.1"),
                (InternalIp, "fd00::1"),
                (InternalIp, "10.0.0.1"),
                (InternalIp, "10.0.0.2"),
            ],
        );
        for (family, expected) in [(None, "fd00::1"), (Some(Family::V4), "10.0.0.1"), (Some(Family::V6), "fd00::1")] {
            assert_eq!(address(&both, family).as_deref(), Some(expected), "{family:?}");
        }
        let external = node("n", &[(ExternalIp, "192.0.2.1")]);
        assert_eq!(address(&external, Some(Family::V4)).as_deref(), Some("192.0.2.1"));
        assert_eq!(address(&external, Some(Family::V6)), None);
    }

    #[test]
    fn a_node_without_address_of_the_family_is_skipped_and_reported() {
        let nodes =
            [node("b", &[(AddressType::InternalIp, "10.0.0.2")]), node("a", &[(AddressType::InternalIp, "fd00::1")])];
        let mut findings = Vec::new();
        let targets = targets(&nodes, &Identity::default(), &NodeSelector::parse(""), Some(Family::V4), &mut findings);
        assert_eq!(targets.iter().map(|target| &*target.node).collect::<Vec<_>>(), ["b"]);
        assert_eq!(findings.len(), 1);
        assert!(findings[0].message.ends_with("on a"), "{}", findings[0].message);
    }
}
