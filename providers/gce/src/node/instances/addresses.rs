//! The addresses of an instance. Pure.
//!
//! Upstream: `nodeAddressesFromInstance` in `gce_instances.go`.

use ccm_provider::{AddressType, NodeAddress};

use crate::client::instance::{Instance, NetworkInterface};

const EXTERNAL: &str = "EXTERNAL";
/// The value of `stack-type` that puts IPv6 first.
const IPV6: &str = "IPV6";

/// The addresses of an instance, in the order of its NICs; one family before the other. IPv6 addresses are internal
/// even if they are reachable from outside, as in upstream.
pub(crate) fn of_instance(instance: &Instance, stack_type: &str) -> Vec<NodeAddress> {
    let mut addresses: Vec<NodeAddress> = instance.network_interfaces.iter().flat_map(of_nic).collect();
    let is_later = |address: &NodeAddress| address.address.contains(':') != (stack_type == IPV6);
    // The sort is stable: the NICs keep their order.
    addresses.sort_by_key(is_later);
    addresses
}

fn of_nic(nic: &NetworkInterface) -> Vec<NodeAddress> {
    let internal = |address: &str| NodeAddress::new(AddressType::InternalIp, address);
    let external = nic.access_configs.iter().map(|config| NodeAddress::new(AddressType::ExternalIp, &*config.nat_ip));
    let all = [internal(&nic.network_ip)].into_iter().chain(external).chain([internal(ipv6(nic))]);
    all.filter(|address| !address.address.is_empty()).collect()
}

/// The IPv6 address of a NIC; empty if it has none.
pub(crate) fn ipv6(nic: &NetworkInterface) -> &str {
    match (nic.ipv6_address.is_empty(), &*nic.ipv6_access_type) {
        (true, EXTERNAL) => nic.ipv6_access_configs.last().map(|config| &*config.external_ipv6).unwrap_or_default(),
        _ => &nic.ipv6_address,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn check(nics: &Value, stack_type: &str, expected: &[&str]) {
        let instance: Instance = serde_json::from_value(json!({"name": "n1", "networkInterfaces": nics})).unwrap();
        let addresses = of_instance(&instance, stack_type);
        let texts: Vec<String> = addresses.iter().map(|a| format!("{} {}", a.kind.as_str(), a.address)).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn nics_come_in_order() {
        let nics = json!([
            {"networkIP": "10.0.0.2", "accessConfigs": [{"natIP": "203.0.113.2"}]},
            {"networkIP": "10.1.0.2"}]);
        check(&nics, "", &["InternalIP 10.0.0.2", "ExternalIP 203.0.113.2", "InternalIP 10.1.0.2"]);
        check(&json!([]), "", &[]);
    }

    #[test]
    fn p11_an_access_config_without_an_address_gives_none() {
        check(
            &json!([{"networkIP": "10.0.0.2", "accessConfigs": [{"name": "External NAT"}]}]),
            "",
            &["InternalIP 10.0.0.2"],
        );
    }

    #[test]
    fn p12_an_external_ipv6_address_is_internal() {
        let nics = json!([{"ipv6AccessType": "EXTERNAL", "ipv6AccessConfigs": [
            {"externalIpv6": "2600:1900::1"}, {"externalIpv6": "2600:1900::"}]}]);
        check(&nics, "IPV6", &["InternalIP 2600:1900::"]);
    }

    #[test]
    fn the_stack_type_decides_which_family_is_first() {
        let nics = json!([{"networkIP": "10.0.0.2", "ipv6Address": "fd20::2", "ipv6AccessType": "INTERNAL",
            "accessConfigs": [{"natIP": "203.0.113.2"}]}]);
        let (v4, v6) = (["InternalIP 10.0.0.2", "ExternalIP 203.0.113.2"], "InternalIP fd20::2");
        check(&nics, "IPV6", &[v6, v4[0], v4[1]]);
        for stack_type in ["", "IPV4", "IPV4_IPV6"] {
            check(&nics, stack_type, &[v4[0], v4[1], v6]);
        }
    }
}
