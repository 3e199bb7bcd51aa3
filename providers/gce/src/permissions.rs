//! The required IAM permissions: custom roles, one for each function and project.
//!
//! A method needs the permission of its operation, and those for the objects that its request names (`use`), as in the
//! reference of the Compute API.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ccm_kit::call::Operation as _;

use crate::client::operation::*;

/// A custom role.
#[derive(Debug)]
pub(crate) struct Role {
    /// The name of its file.
    name: &'static str,
    title: &'static str,
    /// The purpose of the role.
    pub(crate) purpose: &'static str,
    /// Whether it is for the project of the network.
    pub(crate) is_of_network: bool,
    operations: &'static [Operation],
    /// Permissions for objects that requests name.
    besides: &'static [&'static str],
}

const NODE: Role = Role {
    name: "node",
    title: "ccm: nodes",
    purpose: "nodes: always needed",
    is_of_network: false,
    operations: &[INSTANCE_GET, INSTANCE_LIST, INSTANCE_LIST_ALL, ZONE_LIST, PROJECT_GET],
    besides: &[],
};

const LOAD_BALANCER: Role = Role {
    name: "load-balancer",
    title: "ccm: load balancers",
    purpose: "Services of type LoadBalancer",
    is_of_network: false,
    operations: &[
        ADDRESS_GET,
        ADDRESS_LIST,
        ADDRESS_RESERVE,
        ADDRESS_DELETE,
        FORWARDING_RULE_GET,
        FORWARDING_RULE_LIST,
        FORWARDING_RULE_CREATE,
        FORWARDING_RULE_PATCH,
        FORWARDING_RULE_DELETE,
        TARGET_POOL_GET,
        TARGET_POOL_LIST,
        TARGET_POOL_CREATE,
        TARGET_POOL_DELETE,
        TARGET_POOL_ADD,
        TARGET_POOL_REMOVE,
        HTTP_HEALTH_CHECK_GET,
        HTTP_HEALTH_CHECK_LIST,
        HTTP_HEALTH_CHECK_CREATE,
        HTTP_HEALTH_CHECK_UPDATE,
        HTTP_HEALTH_CHECK_DELETE,
        HEALTH_CHECK_GET,
        HEALTH_CHECK_LIST,
        HEALTH_CHECK_CREATE,
        HEALTH_CHECK_UPDATE,
        HEALTH_CHECK_DELETE,
        BACKEND_SERVICE_GET,
        BACKEND_SERVICE_LIST,
        BACKEND_SERVICE_CREATE,
        BACKEND_SERVICE_UPDATE,
        BACKEND_SERVICE_DELETE,
        INSTANCE_GROUP_GET,
        INSTANCE_GROUP_FILTER,
        INSTANCE_GROUP_CREATE,
        INSTANCE_GROUP_DELETE,
        INSTANCE_GROUP_INSTANCES,
        INSTANCE_GROUP_ADD,
        INSTANCE_GROUP_REMOVE,
        INSTANCE_GET,
        INSTANCE_LIST,
        ZONE_LIST,
        OPERATION_WAIT,
    ],
    besides: &[
        "compute.addresses.createInternal",
        "compute.addresses.deleteInternal",
        "compute.addresses.use",
        "compute.addresses.useInternal",
        "compute.healthChecks.useReadOnly",
        "compute.httpHealthChecks.useReadOnly",
        "compute.instanceGroups.use",
        "compute.instances.use",
        "compute.regionBackendServices.use",
        "compute.regionOperations.get",
        "compute.targetPools.use",
        "compute.zoneOperations.get",
    ],
};

const LOAD_BALANCER_NETWORK: Role = Role {
    name: "load-balancer-network",
    title: "ccm: network of load balancers",
    purpose: "the firewall rules of Services, and networks that their objects name",
    is_of_network: true,
    operations: &[
        FIREWALL_GET,
        FIREWALL_LIST,
        FIREWALL_CREATE,
        FIREWALL_PATCH,
        FIREWALL_DELETE,
        NETWORK_GET,
        SUBNETWORK_LIST,
        OPERATION_WAIT,
        PROJECT_GET,
    ],
    besides: &["compute.networks.updatePolicy", "compute.networks.use", SUBNETWORK_USE],
};

const ROUTE: Role = Role {
    name: "route",
    title: "ccm: routes to pods",
    purpose: "routes to the pods (`--configure-cloud-routes`)",
    is_of_network: true,
    operations: &[ROUTE_LIST, ROUTE_CREATE, ROUTE_DELETE, OPERATION_WAIT],
    besides: &["compute.instances.use", "compute.networks.updatePolicy", "compute.routes.get"],
};

const VOLUME: Role = Role {
    name: "volume",
    title: "ccm: zones of volumes",
    purpose: "zones of persistent volumes that users declare (`persistentvolume-label-controller`)",
    is_of_network: false,
    operations: &[DISK_GET, ZONE_LIST],
    besides: &[],
};

/// The permissions that the program can do without, and the effect. Roles for the Go program lack some of them.
pub(crate) const OPTIONAL: &[(&str, &str)] = &[
    ("compute.firewalls.list", ONE_BY_ONE),
    ("compute.forwardingRules.list", ONE_BY_ONE),
    ("compute.forwardingRules.update", "global access of an existing internal load balancer cannot be changed"),
    ("compute.globalOperations.get", UNREAD),
    ("compute.healthChecks.list", ONE_BY_ONE),
    ("compute.httpHealthChecks.list", ONE_BY_ONE),
    ("compute.networks.get", SUBNETWORK),
    ("compute.networks.use", "new internal load balancers in a network without subnetworks are refused"),
    ("compute.projects.get", "`project-id` and `network-project-id` have to be names, not numbers"),
    ("compute.regionBackendServices.list", ONE_BY_ONE),
    ("compute.regionOperations.get", UNREAD),
    ("compute.subnetworks.list", SUBNETWORK),
    ("compute.targetPools.list", ONE_BY_ONE),
    ("compute.zoneOperations.get", UNREAD),
];

const ONE_BY_ONE: &str = "objects are read one by one, which takes long with many Services";
const UNREAD: &str = "the end of a write is found by reading its object, with one Warning; a change is looked at again after 10, 20, 40 … seconds, and fails if it is not seen for two minutes";
const SUBNETWORK: &str = "new internal load balancers need `subnetwork-name`";

/// The same in the project of the network, if that is the host project of a shared VPC.
pub(crate) const OPTIONAL_IN_HOST: &[&str] = &[
    "compute.firewalls.create",
    "compute.firewalls.delete",
    "compute.firewalls.update",
    "compute.networks.updatePolicy",
];
pub(crate) const BY_ADMINISTRATORS: &str = "an event has the command for an administrator of the network";

/// What the cluster uses, by its Services and configuration.
#[derive(Debug, Default)]
pub(crate) struct Used {
    pub(crate) routes: bool,
    pub(crate) external: bool,
    pub(crate) internal: bool,
    /// Internal load balancers of another controller, unless there is one that was made here: it is looked for.
    pub(crate) looked_for: bool,
    /// Whether the instance groups are managed here.
    pub(crate) groups: bool,
    /// Whether new internal load balancers get an address of a subnetwork.
    pub(crate) subnetworks: bool,
    /// Why it is not known whether the subnetworks grant their use.
    pub(crate) doubt: Option<String>,
}

/// The permission for addresses of a subnetwork. Roles are often granted on the subnetwork alone.
pub(crate) const SUBNETWORK_USE: &str = "compute.subnetworks.use";

impl Used {
    fn needs(&self, permission: &str) -> bool {
        let is_read = permission.ends_with(".get") || permission.ends_with(".list");
        let internal = self.internal || self.looked_for && is_read;
        let mut words = permission.split('.').skip(1);
        match (words.next().unwrap_or_default(), words.next().unwrap_or_default()) {
            ("targetPools" | "httpHealthChecks", _) | ("addresses", "use") => self.external,
            ("addresses", "createInternal" | "deleteInternal" | "useInternal") => internal,
            ("instanceGroups", "list" | "use") | ("regionBackendServices" | "healthChecks", _) => internal,
            ("instanceGroups", _) => internal && self.groups,
            ("subnetworks", "use") => self.subnetworks,
            _ => self.external || internal,
        }
    }
}

/// All roles.
pub(crate) const ROLES: &[Role] = &[NODE, LOAD_BALANCER, LOAD_BALANCER_NETWORK, ROUTE, VOLUME];

impl Role {
    /// The effect if a permission of the role is missing, if the purpose of the role is served without it.
    pub(crate) fn effect_without(&self, permission: &str, is_shared_vpc: bool) -> Option<&'static str> {
        if self.name == ROUTE.name {
            return None;
        }
        let is_left = self.is_of_network && is_shared_vpc && OPTIONAL_IN_HOST.contains(&permission);
        let effect = OPTIONAL.iter().find(|(name, _)| *name == permission).map(|(_, effect)| *effect);
        effect.or(is_left.then_some(BY_ADMINISTRATORS))
    }

    pub(crate) fn is_of_routes(&self) -> bool {
        self.name == ROUTE.name
    }

    /// Whether work of the cluster fails without a permission, as far as it is seen.
    pub(crate) fn needs(&self, permission: &str, used: &Used) -> bool {
        match self.name {
            name if name == NODE.name => true,
            _ if self.is_of_routes() => used.routes,
            // Nothing shows which volumes there are.
            name => name != VOLUME.name && used.needs(permission),
        }
    }

    /// The permissions, sorted and unique.
    pub(crate) fn permissions(&self) -> BTreeSet<String> {
        let of_operations = self.operations.iter().map(Operation::permission);
        of_operations.chain(self.besides.iter().map(|permission| (*permission).to_owned())).collect()
    }
}

/// The custom roles as files for `gcloud iam roles create --file`: path in the folder of the manifests, and YAML.
pub fn custom_roles() -> Vec<(&'static str, String)> {
    const FILES: [&str; 5] = [
        "gce/node.yaml",
        "gce/load-balancer.yaml",
        "gce/load-balancer-network.yaml",
        "gce/route.yaml",
        "gce/volume.yaml",
    ];
    let file = |(path, role): (&'static str, &Role)| {
        let mut text = format!(
            "# Generated by `cargo xtask manifests` from the methods that the code calls; edit those, not this.\n\
             title: \"{}\"\ndescription: \"For {}\"\nstage: GA\nincludedPermissions:\n",
            role.title, role.purpose
        );
        for permission in role.permissions() {
            // Infallible on a String.
            let _ = writeln!(text, "- {permission}");
        }
        (path, text)
    };
    FILES.into_iter().zip(ROLES).map(file).collect()
}

/// The permissions and their purposes, as a table in Markdown.
pub(crate) fn reference() -> String {
    let mut rows: BTreeMap<(bool, String), Vec<&str>> = BTreeMap::new();
    for role in ROLES {
        for permission in role.permissions() {
            rows.entry((role.is_of_network, permission)).or_default().push(role.name);
        }
    }
    let mut text = "| Project | Permission | Role |\n|---|---|---|\n".to_owned();
    for ((is_of_network, permission), roles) in rows {
        let project = if is_of_network { "network" } else { "cluster" };
        let roles: Vec<String> = roles.iter().map(|role| format!("`{role}.yaml`")).collect();
        // Infallible on a String.
        let _ = writeln!(text, "| {project} | `{permission}` | {} |", roles.join(", "));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The operations of `migrate-check` alone.
    const NONE: &[Operation] = &[PERMISSIONS_TEST, SUBNETWORK_TEST];

    #[test]
    fn every_operation_is_in_a_role_for_its_project() {
        for operation in ALL {
            let roles: Vec<&Role> = ROLES.iter().filter(|role| role.operations.contains(operation)).collect();
            assert_eq!(roles.is_empty(), NONE.contains(operation), "{operation:?}");
            for role in roles.iter().filter(|_| ![OPERATION_WAIT, PROJECT_GET].contains(operation)) {
                assert_eq!(role.is_of_network, operation.collection.is_of_network(), "{operation:?} in {}", role.name);
            }
        }
    }

    #[test]
    fn the_reference_lists_what_the_program_can_do_without() {
        let reference = include_str!("../docs/permissions.md").split_whitespace().collect::<Vec<_>>().join(" ");
        let all: BTreeSet<String> = ROLES.iter().flat_map(Role::permissions).collect();
        let in_host = OPTIONAL_IN_HOST.iter().map(|permission| (*permission, BY_ADMINISTRATORS));
        for (permission, effect) in OPTIONAL.iter().copied().chain(in_host) {
            assert!(all.contains(permission), "{permission}");
            assert!(reference.contains(&format!("- `{permission}`: {effect}")), "{permission}");
        }
    }

    #[test]
    fn files_are_named_after_their_roles() {
        let files = custom_roles();
        assert_eq!(files.len(), ROLES.len());
        for ((path, text), role) in files.iter().zip(ROLES) {
            assert_eq!(*path, format!("gce/{}.yaml", role.name));
            assert!(text.contains(&format!("title: \"{}\"\n", role.title)), "{text}");
        }
    }

    #[test]
    fn nodes_and_volumes_need_no_right_to_write() {
        for role in [NODE, VOLUME] {
            for permission in role.permissions() {
                assert!(permission.ends_with(".get") || permission.ends_with(".list"), "{permission}");
            }
        }
    }
}
