//! Checks the servers of the nodes, with the look-ups of the controllers.

use ccm_kit::inspect::first_few;
use ccm_kit::inspect::migration::{self, ADDRESSES, IDS};
use ccm_provider::{AddressType, Aspects, Check, Claims, InstanceMetadata, InstancesV2 as _, Node, NodeAddress};

use crate::inspect::Inspector;

pub(super) async fn checks(openstack: &Inspector, claims: &Claims) -> Vec<Check> {
    let Some(instances) = &openstack.instances else {
        let text = "the catalog of Keystone has no compute or no network service: no node is initialized or removed";
        return vec![Check::error(
            IDS,
            "",
            text,
            "correct region and os-endpoint-type in section [Global] of cloud.conf",
        )];
    };
    let answers = instances.lookup(&claims.nodes, Aspects::ALL).await;
    migration::nodes(&claims.nodes, &answers, "server", "project and region are those", addresses)
}

/// Addresses that the node would lose or gain.
fn addresses(node: &Node, metadata: &InstanceMetadata) -> Option<Check> {
    let text = |address: &NodeAddress| format!("{} {}", address.kind.as_str(), address.address);
    // Names come from the kubelet.
    let of_cloud = |list: &[NodeAddress]| -> Vec<String> {
        let is_ip = |address: &&NodeAddress| matches!(address.kind, AddressType::InternalIp | AddressType::ExternalIp);
        list.iter().filter(is_ip).map(text).collect()
    };
    let (before, after) = (of_cloud(&node.addresses), of_cloud(&metadata.node_addresses));
    if before.is_empty() || before == after {
        return None;
    }
    let shown = |list: &[String]| first_few(&list.iter().map(String::as_str).collect::<Vec<_>>());
    let text = format!("its addresses would change from {} to {}", shown(&before), shown(&after));
    let fix = "compare section [Networking] of cloud.conf with that of the running program";
    Some(Check::warning(ADDRESSES, format!("node {}", node.name), text, fix))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(addresses: &[(AddressType, &str)]) -> Vec<NodeAddress> {
        addresses.iter().map(|(kind, text)| NodeAddress::new(kind.clone(), *text)).collect()
    }

    fn changed(before: &[(AddressType, &str)], after: &[(AddressType, &str)]) -> bool {
        let node = Node { addresses: list(before).into(), ..Node::default() };
        let metadata = InstanceMetadata { node_addresses: list(after), ..InstanceMetadata::default() };
        addresses(&node, &metadata).is_some()
    }

    #[test]
    fn only_other_ips_or_another_order_are_a_change() {
        let (one, two) = ((AddressType::InternalIp, "10.0.0.1"), (AddressType::InternalIp, "10.0.0.2"));
        let name = (AddressType::Hostname, "node");
        assert!(!changed(&[one.clone(), name.clone()], std::slice::from_ref(&one)));
        assert!(!changed(&[name], std::slice::from_ref(&one)), "not initialized yet");
        assert!(changed(&[one.clone(), two.clone()], &[two, one.clone()]), "consumers take the first");
        assert!(changed(&[one], &[(AddressType::ExternalIp, "10.0.0.1")]));
    }
}
