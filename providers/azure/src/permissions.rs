//! The permissions that Azure must grant: for each function of the program the actions of a custom role.
//!
//! The actions are those of the operations, and those for objects that requests name (`join`).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ccm_kit::call;
use serde_json::{Value, json};

use crate::client::operation::*;
use crate::start::config::{Config, PoolKind};

/// A custom role.
#[derive(Debug)]
pub(crate) struct Role {
    /// The name of its file.
    name: &'static str,
    title: &'static str,
    /// The purpose of the role.
    pub(crate) purpose: &'static str,
    operations: &'static [Operation],
    /// Actions for objects that requests name.
    besides: &'static [&'static str],
}

/// All roles.
pub(crate) const ROLES: [Role; 4] = [
    Role {
        name: "node",
        title: "ccm: nodes",
        purpose: "nodes",
        operations: &[
            VM_GET,
            VM_LIST,
            VMSS_LIST,
            VMSS_VM_LIST,
            VMSS_NIC_LIST,
            VMSS_PUBLIC_IP_LIST,
            NIC_LIST,
            PUBLIC_IP_LIST,
        ],
        besides: &["Microsoft.Compute/virtualMachineScaleSets/virtualMachines/instanceView/read"],
    },
    Role {
        name: "load-balancer",
        title: "ccm: load balancers",
        purpose: "Services of type LoadBalancer",
        operations: &[
            VM_GET,
            VM_LIST,
            VMSS_GET,
            VMSS_PUT,
            VMSS_VM_GET,
            VMSS_VM_LIST,
            VMSS_VM_PUT,
            COMPUTE_OPERATION_GET,
            LB_GET,
            LB_LIST,
            LB_PUT,
            LB_DELETE,
            LB_MIGRATE,
            POOL_PUT,
            POOL_DELETE,
            PUBLIC_IP_GET,
            PUBLIC_IP_LIST,
            PUBLIC_IP_PUT,
            PUBLIC_IP_DELETE,
            PREFIX_GET,
            NIC_GET,
            NIC_LIST,
            NIC_PUT,
            NSG_GET,
            NSG_PUT,
            SUBNET_GET,
            SUBNET_PUT,
            PLS_LIST,
            PLS_PUT,
            PLS_DELETE,
            PLS_CONNECTION_DELETE,
            NETWORK_OPERATION_GET,
        ],
        besides: &[
            "Microsoft.Compute/virtualMachineScaleSets/manualUpgrade/action",
            "Microsoft.Network/applicationGateways/backendAddressPools/join/action",
            "Microsoft.Network/applicationSecurityGroups/joinIpConfiguration/action",
            "Microsoft.Network/applicationSecurityGroups/joinNetworkSecurityRule/action",
            "Microsoft.Network/loadBalancers/backendAddressPools/join/action",
            "Microsoft.Network/loadBalancers/inboundNatPools/join/action",
            "Microsoft.Network/loadBalancers/inboundNatRules/join/action",
            "Microsoft.Network/loadBalancers/probes/join/action",
            "Microsoft.Network/natGateways/join/action",
            "Microsoft.Network/networkSecurityGroups/join/action",
            "Microsoft.Network/publicIPAddresses/join/action",
            "Microsoft.Network/publicIPPrefixes/join/action",
            "Microsoft.Network/routeTables/join/action",
            "Microsoft.Network/serviceEndpointPolicies/join/action",
            "Microsoft.Network/virtualNetworks/joinLoadBalancer/action",
            "Microsoft.Network/virtualNetworks/subnets/join/action",
        ],
    },
    Role {
        name: "route",
        title: "ccm: routes to pods",
        purpose: "routes to the pods (`--configure-cloud-routes`)",
        operations: &[ROUTES_GET, ROUTES_PUT, NETWORK_OPERATION_GET],
        besides: &["Microsoft.Network/routeTables/routes/*"],
    },
    Role {
        name: "volume",
        title: "ccm: zones of volumes",
        purpose: "zones of persistent volumes that users declare (`persistentvolume-label-controller`)",
        operations: &[DISK_GET],
        besides: &[],
    },
];

/// What the cluster uses, by its Nodes, Services and configuration.
#[derive(Debug)]
pub(crate) struct Used {
    pub(crate) services: bool,
    pub(crate) routes: bool,
    /// Nodes that may be instances of uniform scale sets, and other machines.
    pub(crate) sets: bool,
    pub(crate) machines: bool,
    pub(crate) pools: PoolKind,
    pub(crate) prefixes: bool,
    pub(crate) private_links: bool,
    /// External load balancers, and internal ones.
    pub(crate) public: bool,
    pub(crate) subnets: bool,
}

/// The permissions of lists for a scale set, with those for each of its instances.
const OF_EACH: [(Operation, Operation); 2] =
    [(VMSS_NIC_LIST, VMSS_VM_NIC_LIST), (VMSS_PUBLIC_IP_LIST, VMSS_VM_PUBLIC_IP_GET)];

/// The permission that does the work of a missing one, if there is one.
pub(crate) fn in_place_of(action: &str) -> Option<String> {
    let of = |operation: &Operation| call::Operation::permission(operation);
    OF_EACH.iter().find(|(list, _)| of(list) == action).map(|(_, each)| of(each))
}

impl Used {
    fn needs(&self, action: &str) -> bool {
        let is_write = !action.ends_with("/read");
        let by_interface = self.pools == PoolKind::Interfaces;
        let Some((_, kind)) = action.split_once('/') else { return true };
        let member_by_interface = by_interface && (self.sets || self.machines);
        match kind {
            // Azure asks for these for each object that a request names, also if only something else changes.
            "publicIPAddresses/join/action" => self.public,
            "publicIPPrefixes/join/action" => self.prefixes,
            "virtualNetworks/subnets/join/action" => self.subnets || self.private_links || member_by_interface,
            "virtualNetworks/joinLoadBalancer/action" => !by_interface,
            "loadBalancers/backendAddressPools/join/action" => member_by_interface,
            // Only what users added to their machines and networks needs the others; objects show the end of operations.
            _ if kind.contains("/join") || kind.starts_with("locations/") => false,
            // No request needs them; the Go program's list has them.
            _ if kind.starts_with("routeTables/routes/") || kind.ends_with("/manualUpgrade/action") => false,
            _ if kind.starts_with("virtualMachineScaleSets/") => self.sets && (by_interface || !is_write),
            _ if kind.starts_with("virtualMachines/") => self.machines,
            _ if kind.starts_with("networkInterfaces/") => self.machines && (by_interface || !is_write),
            _ if kind.starts_with("publicIPPrefixes/") => self.prefixes,
            _ if kind.starts_with("publicIPAddresses/") => self.public || !is_write,
            "virtualNetworks/subnets/read" => self.subnets || self.private_links,
            _ if kind.starts_with("privateLinkServices/") || kind.starts_with("virtualNetworks/") => self.private_links,
            _ if kind.starts_with("loadBalancers/backendAddressPools/")
                || kind.ends_with("/migrateToIpBased/action") =>
            {
                !by_interface
            }
            _ => true,
        }
    }
}

impl Role {
    pub(crate) fn is_of_routes(&self) -> bool {
        self.name == "route"
    }

    /// Whether work of the cluster fails without an action, as far as it is seen.
    pub(crate) fn needs(&self, action: &str, used: &Used) -> bool {
        let is_of_role = match self.name {
            "node" => true,
            "load-balancer" => used.services,
            _ if self.is_of_routes() => used.routes,
            _ => false,
        };
        is_of_role && used.needs(action)
    }

    /// The actions, sorted and unique.
    pub(crate) fn actions(&self) -> BTreeSet<String> {
        let own = self.operations.iter().map(call::Operation::permission);
        own.chain(self.besides.iter().map(|action| (*action).to_owned())).collect()
    }

    /// The subscription and the resource group of the objects of an action, lower-cased.
    pub(crate) fn place(&self, config: &Config, action: &str) -> (String, String) {
        let (machines, network) = (&config.identity.subscription, &config.identity.network_subscription);
        let kind = action.strip_prefix("Microsoft.Network/").and_then(|rest| rest.split('/').next());
        let (subscription, group) = match kind.filter(|_| self.name != "node") {
            None | Some("networkInterfaces") => (machines, &config.resource_group),
            Some("routeTables") => (network, &config.route_table_resource_group),
            Some("networkSecurityGroups" | "applicationSecurityGroups") => {
                (network, &config.security_group_resource_group)
            }
            Some("virtualNetworks") => (network, &config.vnet_resource_group),
            Some("loadBalancers") => (network, &config.balancing.resource_group),
            Some("privateLinkServices") => (network, &config.balancing.private_link_resource_group),
            Some(_) => (network, &config.resource_group),
        };
        (subscription.to_ascii_lowercase(), group.to_ascii_lowercase())
    }

    /// The role as `az role definition create` takes it.
    fn definition(&self) -> Value {
        json!({
            "Name": self.title,
            "IsCustom": true,
            "Description": format!("What ccm needs for {}.", self.purpose.replace('`', "")),
            "Actions": self.actions(),
            "NotActions": [],
            "AssignableScopes": ["/subscriptions/SUBSCRIPTION"],
        })
    }
}

/// Custom roles, one file for each function: path in the manifests' folder, and JSON.
pub fn custom_roles() -> Vec<(&'static str, String)> {
    let path = |name: &str| match name {
        "node" => "azure/roles/node.json",
        "route" => "azure/roles/route.json",
        "volume" => "azure/roles/volume.json",
        _ => "azure/roles/load-balancer.json",
    };
    let text = |role: &Role| format!("{:#}\n", role.definition());
    ROLES.iter().map(|role| (path(role.name), text(role))).collect()
}

/// The actions as a table in Markdown.
pub(crate) fn reference() -> String {
    let mut rows: BTreeMap<String, Vec<&str>> = BTreeMap::new();
    for role in &ROLES {
        for action in role.actions() {
            rows.entry(action).or_default().push(role.name);
        }
    }
    let mut text = "| Action | For |\n| --- | --- |\n".to_owned();
    for (action, roles) in rows {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "| `{action}` | {} |", roles.join(", "));
    }
    text
}

/// What an identity may do at a scope: the entries of the answer for it.
pub(crate) fn is_granted(granted: &[Value], action: &str) -> bool {
    let has = |entry: &Value, key: &str| {
        let patterns = entry.get(key).and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        patterns.into_iter().any(|pattern| matches(pattern, action))
    };
    granted.iter().any(|entry| has(entry, "actions") && !has(entry, "notActions"))
}

/// Whether an action has the form of a pattern with `*`, without case.
fn matches(pattern: &str, action: &str) -> bool {
    let glob = ccm_kit::Glob::new(&pattern.to_ascii_lowercase());
    glob.matches(&action.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_operation_is_in_a_role_or_needs_nothing() {
        let granted: BTreeSet<Operation> = ROLES.iter().flat_map(|role| role.operations).copied().collect();
        // Documents of the subscription, which every identity with a role in it may read, and what is read in place of lists.
        let none = [ZONES_GET, PERMISSIONS_LIST, VMSS_VM_NIC_LIST, VMSS_VM_PUBLIC_IP_GET];
        for operation in ALL {
            assert_ne!(granted.contains(operation), none.contains(operation), "{operation:?}");
        }
    }

    #[test]
    fn nodes_and_volumes_need_no_right_to_write() {
        for (path, text) in custom_roles() {
            let role: Value = serde_json::from_str(&text).unwrap();
            let actions = role["Actions"].as_array().unwrap();
            let reads = path.contains("node") || path.contains("volume");
            assert_eq!(actions.iter().all(|action| action.as_str().unwrap().ends_with("/read")), reads, "{path}");
        }
        assert!(reference().contains("| `Microsoft.Network/routeTables/write` | route |"));
    }

    #[test]
    fn rights_are_patterns_without_what_is_excluded() {
        let granted = [
            json!({"actions": ["*/read"], "notActions": ["microsoft.compute/disks/*"]}),
            json!({"actions": ["Microsoft.Network/loadBalancers/*"], "notActions": []}),
        ];
        for (action, expected) in [
            ("Microsoft.Compute/virtualMachines/read", true),
            ("Microsoft.Compute/disks/read", false),
            ("microsoft.network/loadbalancers/write", true),
            ("Microsoft.Network/publicIPAddresses/write", false),
        ] {
            assert_eq!(is_granted(&granted, action), expected, "{action}");
        }
    }
}
