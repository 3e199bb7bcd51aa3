//! The permissions that OpenStack must grant: for each operation the service's policy rule, and the requests as access
//! rules of an application credential, one file for each function.
//!
//! Paths and rules: API references and default policies of Nova, Neutron, Octavia, Barbican and Cinder. Access rules:
//! Keystone's API reference, and `keystonemiddleware` for their matching.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use crate::client::operation::*;

/// Functions of the program, each with a file in `manifests/openstack/access-rules`.
const NODE: &str = "node";
const LOAD_BALANCER: &str = "load-balancer";
const ROUTE: &str = "route";
const VOLUME: &str = "volume";

/// Requests of one operation.
#[derive(Debug, Clone, Copy)]
struct Grant {
    operation: Operation,
    functions: &'static [&'static str],
    /// Relative to the version of the service's API; `*` matches one path segment.
    paths: &'static [&'static str],
    /// The policy rule; empty: that of the operation.
    rule: &'static str,
}

const fn grant(operation: Operation, functions: &'static [&'static str], paths: &'static [&'static str]) -> Grant {
    Grant { operation, functions, paths, rule: "" }
}

const ALL_PORTS: &[&str] = &[NODE, LOAD_BALANCER, ROUTE];
const LB: &[&str] = &[LOAD_BALANCER];

#[rustfmt::skip]
const GRANTS: &[Grant] = &[
    grant(SERVER_LIST, &[NODE], &["servers/detail"]),
    grant(SERVER_GET, &[NODE], &["servers/*"]),
    grant(FLAVOR_LIST, &[NODE], &["flavors/detail"]),
    grant(FLAVOR_GET, &[NODE], &["flavors/*"]),
    grant(EXTENSION_LIST, &[ROUTE], &["extensions"]),
    grant(NETWORK_LIST, &[NODE, LOAD_BALANCER], &["networks"]),
    // Octavia checks on behalf of the user whether networks, subnets and ports exist in Neutron.
    grant(NETWORK_LIST, LB, &["networks/*"]),
    grant(SUBNET_LIST, LB, &["subnets"]),
    grant(SUBNET_GET, LB, &["subnets/*"]),
    grant(PORT_LIST, ALL_PORTS, &["ports"]),
    grant(PORT_GET, &[LOAD_BALANCER, ROUTE], &["ports/*"]),
    Grant { rule: "update_port:security_groups", ..grant(PORT_UPDATE, LB, &["ports/*"]) },
    Grant { rule: "update_port:allowed_address_pairs", ..grant(PORT_UPDATE, &[ROUTE], &["ports/*"]) },
    // For ports that old releases of the Go program tagged.
    grant(PORT_TAG_DELETE, LB, &["ports/*/tags/*"]),
    grant(ROUTER_LIST, LB, &["routers"]),
    grant(ROUTER_GET, &[ROUTE], &["routers/*"]),
    Grant { rule: "add_extraroutes", ..grant(ROUTER_UPDATE, &[ROUTE], &["routers/*/add_extraroutes"]) },
    Grant { rule: "remove_extraroutes", ..grant(ROUTER_UPDATE, &[ROUTE], &["routers/*/remove_extraroutes"]) },
    grant(ROUTER_UPDATE, &[ROUTE], &["routers/*"]),
    grant(FLOATING_IP_LIST, LB, &["floatingips"]),
    grant(FLOATING_IP_CREATE, LB, &["floatingips"]),
    Grant { rule: "create_floatingip:floating_ip_address", ..grant(FLOATING_IP_CREATE, LB, &["floatingips"]) },
    grant(FLOATING_IP_UPDATE, LB, &["floatingips/*"]),
    grant(FLOATING_IP_DELETE, LB, &["floatingips/*"]),
    grant(SECURITY_GROUP_LIST, LB, &["security-groups"]),
    grant(SECURITY_GROUP_CREATE, LB, &["security-groups"]),
    grant(SECURITY_GROUP_DELETE, LB, &["security-groups/*"]),
    grant(SECURITY_GROUP_RULE_CREATE, LB, &["security-group-rules"]),
    grant(SECURITY_GROUP_RULE_DELETE, LB, &["security-group-rules/*"]),
    grant(LB_LIST, LB, &["lbaas/loadbalancers"]),
    grant(LB_GET, LB, &["lbaas/loadbalancers/*"]),
    Grant { rule: "os_load-balancer_api:loadbalancer:get_status", ..grant(LB_GET, LB, &["lbaas/loadbalancers/*/status"]) },
    grant(LB_CREATE, LB, &["lbaas/loadbalancers"]),
    grant(LB_UPDATE, LB, &["lbaas/loadbalancers/*"]),
    grant(LB_DELETE, LB, &["lbaas/loadbalancers/*"]),
    grant(LISTENER_LIST, LB, &["lbaas/listeners"]),
    grant(LISTENER_CREATE, LB, &["lbaas/listeners"]),
    grant(LISTENER_UPDATE, LB, &["lbaas/listeners/*"]),
    grant(LISTENER_DELETE, LB, &["lbaas/listeners/*"]),
    grant(POOL_LIST, LB, &["lbaas/pools"]),
    grant(POOL_CREATE, LB, &["lbaas/pools"]),
    grant(POOL_UPDATE, LB, &["lbaas/pools/*"]),
    grant(POOL_DELETE, LB, &["lbaas/pools/*"]),
    grant(MEMBER_LIST, LB, &["lbaas/pools/*/members"]),
    grant(MEMBERS_UPDATE, LB, &["lbaas/pools/*/members"]),
    grant(MEMBER_CREATE, LB, &["lbaas/pools/*/members"]),
    grant(MEMBER_DELETE, LB, &["lbaas/pools/*/members/*"]),
    grant(MONITOR_LIST, LB, &["lbaas/healthmonitors"]),
    grant(MONITOR_GET, LB, &["lbaas/healthmonitors/*"]),
    grant(MONITOR_CREATE, LB, &["lbaas/healthmonitors"]),
    grant(MONITOR_UPDATE, LB, &["lbaas/healthmonitors/*"]),
    grant(MONITOR_DELETE, LB, &["lbaas/healthmonitors/*"]),
    grant(SECRET_GET, LB, &["secrets/*"]),
    grant(CONTAINER_GET, LB, &["containers/*"]),
    grant(VOLUME_GET, &[VOLUME], &["volumes/*", "*/volumes/*"]),
];

impl Grant {
    fn rule(&self) -> &'static str {
        if self.rule.is_empty() { self.operation.policy() } else { self.rule }
    }

    /// The requests as access rules, one per path.
    fn access_rules(&self) -> impl Iterator<Item = String> {
        let service = self.operation.of();
        let version = match service {
            Service::Compute => "v2.1",
            Service::Network | Service::LoadBalancer => "v2.0",
            Service::BlockStorage | Service::Identity => "v3",
            Service::KeyManager => "v1",
        };
        let (service, method) = (service.name(), self.operation.method());
        self.paths.iter().map(move |path| {
            format!(r#"{{"service": "{service}", "method": "{method}", "path": "/{version}/{path}"}}"#)
        })
    }
}

/// Access rules for an application credential, one file for each function: path in the manifests' folder, and JSON.
pub fn access_rules() -> Vec<(&'static str, String)> {
    let of = |function: &str| {
        let grants = GRANTS.iter().filter(|grant| grant.functions.contains(&function));
        // Each rule once, in the order of the table.
        let mut rules: Vec<String> = Vec::new();
        for rule in grants.flat_map(Grant::access_rules) {
            if !rules.contains(&rule) {
                rules.push(rule);
            }
        }
        format!("[\n  {}\n]\n", rules.join(",\n  "))
    };
    vec![
        ("openstack/access-rules/node.json", of(NODE)),
        ("openstack/access-rules/load-balancer.json", of(LOAD_BALANCER)),
        ("openstack/access-rules/route.json", of(ROUTE)),
        ("openstack/access-rules/volume.json", of(VOLUME)),
    ]
}

/// The required policy rules of the services, as a table in Markdown.
pub(crate) fn reference() -> String {
    let mut rows: BTreeMap<(Service, &str), BTreeSet<&str>> = BTreeMap::new();
    for grant in GRANTS {
        rows.entry((grant.operation.of(), grant.rule())).or_default().extend(grant.functions);
    }
    let mut text = "| Service | Rule | For |\n|---|---|---|\n".to_owned();
    for ((service, rule), functions) in rows {
        let functions: Vec<&str> = functions.into_iter().collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| {} | `{rule}` | {} |", service.name(), functions.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    /// The login and lists of versions.
    const NONE: &[Operation] = &[TOKEN_CREATE, IDENTITY_VERSIONS, LB_VERSIONS];

    #[test]
    fn every_operation_is_granted_once_or_needs_nothing() {
        let granted: BTreeSet<Operation> = GRANTS.iter().map(|grant| grant.operation).collect();
        for operation in ALL {
            assert_ne!(granted.contains(operation), NONE.contains(operation), "{operation:?}");
        }
        for grant in GRANTS {
            assert!(grant.rule() != "-" && !grant.paths.is_empty() && !grant.functions.is_empty(), "{grant:?}");
        }
    }

    #[test]
    fn access_rules_are_what_keystone_takes() {
        for (name, text) in access_rules() {
            let rules: Vec<Value> = serde_json::from_str(&text).unwrap();
            let distinct: BTreeSet<String> = rules.iter().map(ToString::to_string).collect();
            assert!(!rules.is_empty() && distinct.len() == rules.len(), "{name}");
            for rule in &rules {
                let [service, method, path] = ["service", "method", "path"].map(|key| rule[key].as_str().unwrap());
                assert!(!service.is_empty() && ["GET", "POST", "PUT", "DELETE"].contains(&method), "{rule}");
                assert!(path.starts_with('/') && path.len() <= 225 && !path.contains("**"), "{rule}");
            }
        }
    }

    #[test]
    fn nodes_and_volumes_need_no_right_to_write() {
        for (name, text) in access_rules() {
            let reads = name.contains("node") || name.contains("volume");
            assert_eq!(!["POST", "PUT", "DELETE"].iter().any(|method| text.contains(method)), reads, "{name}");
        }
    }

    #[test]
    fn the_table_names_the_rule_of_each_write() {
        let text = reference();
        for row in [
            "| network | `update_port:allowed_address_pairs` | route |",
            "| load-balancer | `os_load-balancer_api:loadbalancer:post` | load-balancer |",
            "| network | `get_port` | load-balancer, node, route |",
        ] {
            assert!(text.contains(row), "{text}");
        }
    }
}
