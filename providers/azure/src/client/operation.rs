//! The operations of Azure Resource Manager: their names in metrics, permissions and API versions, and the meaning of
//! their errors.

use std::time::Duration;

use ccm_kit::call::{self, Budget, Meaning, Pace};
use http::Method;

/// A type of objects.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Resource {
    /// `Microsoft.Network/loadBalancers`
    pub(crate) kind: &'static str,
    version: &'static str,
    /// The version on Azure Stack.
    stack: &'static str,
    /// The prefix of the configuration key of its rate limit: `loadBalancer` of `loadBalancerRateLimit`.
    pub(crate) limit: &'static str,
    /// The value of the label `resource` of upstream's `arm_*` metrics.
    pub(crate) arm: &'static str,
}

/// The API version of networks. A PUT with an older one may drop what users set.
const NETWORK: &str = "2025-05-01";
const NETWORK_STACK: &str = "2018-11-01";
const COMPUTE: &str = "2025-04-01";
const COMPUTE_STACK: &str = "2019-07-01";
/// The only version of the network interfaces and public IPs of scale sets.
const SCALE_SET_NETWORK: &str = "2018-10-01";

macro_rules! resources {
    ($($id:ident $kind:literal $version:expr, $stack:expr, $limit:literal, $arm:literal;)*) => {
        $(pub(crate) const $id: Resource =
            Resource { kind: $kind, version: $version, stack: $stack, limit: $limit, arm: $arm };)*

        #[cfg(test)]
        const RESOURCES: &[Resource] = &[$($id),*];
    };
}

resources! {
    VM "Microsoft.Compute/virtualMachines" COMPUTE, "2017-12-01", "virtualMachine", "VirtualMachine";
    VMSS "Microsoft.Compute/virtualMachineScaleSets" COMPUTE, COMPUTE_STACK, "virtualMachineScaleSet", "VirtualMachineScaleSet";
    VMSS_VM "Microsoft.Compute/virtualMachineScaleSets/virtualMachines" COMPUTE, COMPUTE_STACK, "virtualMachineScaleSet", "VirtualMachineScaleSetVM";
    VMSS_NIC "Microsoft.Compute/virtualMachineScaleSets/networkInterfaces" SCALE_SET_NETWORK, SCALE_SET_NETWORK, "interface", "Interface";
    VMSS_PUBLIC_IP "Microsoft.Compute/virtualMachineScaleSets/publicIPAddresses" SCALE_SET_NETWORK, SCALE_SET_NETWORK, "publicIPAddress", "PublicIPAddress";
    VMSS_VM_NIC "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces" SCALE_SET_NETWORK, SCALE_SET_NETWORK, "interface", "Interface";
    VMSS_VM_PUBLIC_IP "Microsoft.Compute/virtualMachineScaleSets/virtualMachines/networkInterfaces/ipConfigurations/publicIPAddresses" SCALE_SET_NETWORK, SCALE_SET_NETWORK, "publicIPAddress", "PublicIPAddress";
    DISK "Microsoft.Compute/disks" "2025-01-02", "2019-03-01", "disk", "Disk";
    COMPUTE_PROVIDER "Microsoft.Compute" "2021-04-01", "2021-04-01", "virtualMachine", "Provider";
    COMPUTE_OPERATION "Microsoft.Compute/locations/operations" COMPUTE, COMPUTE_STACK, "virtualMachine", "Operation";
    LOAD_BALANCER "Microsoft.Network/loadBalancers" NETWORK, NETWORK_STACK, "loadBalancer", "LoadBalancer";
    BACKEND_POOL "Microsoft.Network/loadBalancers/backendAddressPools" NETWORK, NETWORK_STACK, "loadBalancer", "BackendAddressPool";
    PUBLIC_IP "Microsoft.Network/publicIPAddresses" NETWORK, NETWORK_STACK, "publicIPAddress", "PublicIPAddress";
    PUBLIC_IP_PREFIX "Microsoft.Network/publicIPPrefixes" NETWORK, NETWORK_STACK, "publicIPAddress", "PublicIPPrefix";
    NIC "Microsoft.Network/networkInterfaces" NETWORK, NETWORK_STACK, "interface", "Interface";
    SECURITY_GROUP "Microsoft.Network/networkSecurityGroups" NETWORK, NETWORK_STACK, "securityGroup", "SecurityGroup";
    ROUTE_TABLE "Microsoft.Network/routeTables" NETWORK, NETWORK_STACK, "routeTable", "RouteTable";
    SUBNET "Microsoft.Network/virtualNetworks/subnets" NETWORK, NETWORK_STACK, "subnets", "Subnet";
    PRIVATE_LINK "Microsoft.Network/privateLinkServices" NETWORK, "2019-03-01", "privateLinkService", "PrivateLinkService";
    PRIVATE_LINK_CONNECTION "Microsoft.Network/privateLinkServices/privateEndpointConnections" NETWORK, "2019-03-01", "privateLinkService", "PrivateEndpointConnection";
    NETWORK_OPERATION "Microsoft.Network/locations/operations" NETWORK, NETWORK_STACK, "loadBalancer", "Operation";
    PERMISSIONS "Microsoft.Authorization/permissions" "2022-04-01", "2015-07-01", "virtualMachine", "Permission";
}

impl Resource {
    /// The API version of its calls. The only place with versions.
    pub(crate) fn version(&self, is_stack: bool) -> &'static str {
        if is_stack { self.stack } else { self.version }
    }

    /// The last segment of the kind, as it is in paths: `loadBalancers`.
    pub(crate) fn segment(&self) -> &'static str {
        self.kind.rsplit('/').next().unwrap_or_default()
    }

    /// Whether it is a kind of the network.
    pub(crate) fn is_network(&self) -> bool {
        self.kind.starts_with("Microsoft.Network/")
    }
}

/// What an operation does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Get,
    List,
    /// Creates or replaces an object.
    Put,
    Delete,
    /// A change by POST: `migrateToIpBased`.
    Post(&'static str),
}

impl Verb {
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Get | Self::List => Method::GET,
            Self::Put => Method::PUT,
            Self::Delete => Method::DELETE,
            Self::Post(_) => Method::POST,
        }
    }

    /// The value of the label `method` of upstream's `arm_*` metrics.
    pub(crate) fn arm(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Put => "create_or_update",
            Self::Delete => "delete",
            Self::Post(action) => action,
        }
    }

    fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List)
    }
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Operation {
    pub(crate) resource: &'static Resource,
    pub(crate) verb: Verb,
    /// The value of the label `request`.
    request: &'static str,
}

macro_rules! operations {
    ($($id:ident $resource:ident $verb:expr, $request:literal;)*) => {
        $(pub(crate) const $id: Operation =
            Operation { resource: &$resource, verb: $verb, request: $request };)*

        /// All operations.
        pub(crate) const ALL: &[Operation] = &[$($id),*];
    };
}

operations! {
    VM_GET VM Verb::Get, "vm_get";
    VM_LIST VM Verb::List, "vm_list";
    VMSS_GET VMSS Verb::Get, "vmss_get";
    VMSS_LIST VMSS Verb::List, "vmss_list";
    VMSS_PUT VMSS Verb::Put, "vmss_create_or_update";
    VMSS_VM_GET VMSS_VM Verb::Get, "vmssvm_get";
    VMSS_VM_LIST VMSS_VM Verb::List, "vmssvm_list";
    VMSS_VM_PUT VMSS_VM Verb::Put, "vmssvm_update";
    VMSS_NIC_LIST VMSS_NIC Verb::List, "interfaces_list_vmss";
    VMSS_PUBLIC_IP_LIST VMSS_PUBLIC_IP Verb::List, "public_ip_addresses_list_vmss";
    VMSS_VM_NIC_LIST VMSS_VM_NIC Verb::List, "interfaces_list_vmss_vm";
    VMSS_VM_PUBLIC_IP_GET VMSS_VM_PUBLIC_IP Verb::Get, "public_ip_addresses_get_vmss_vm";
    DISK_GET DISK Verb::Get, "disks_get";
    ZONES_GET COMPUTE_PROVIDER Verb::Get, "zones_get";
    COMPUTE_OPERATION_GET COMPUTE_OPERATION Verb::Get, "compute_operations_get";
    LB_GET LOAD_BALANCER Verb::Get, "load_balancers_get";
    LB_LIST LOAD_BALANCER Verb::List, "load_balancers_list";
    LB_PUT LOAD_BALANCER Verb::Put, "load_balancers_create_or_update";
    LB_DELETE LOAD_BALANCER Verb::Delete, "load_balancers_delete";
    LB_MIGRATE LOAD_BALANCER Verb::Post("migrateToIpBased"), "load_balancers_migrate_to_ip_based";
    POOL_PUT BACKEND_POOL Verb::Put, "load_balancers_create_or_update_backend_pool";
    POOL_DELETE BACKEND_POOL Verb::Delete, "load_balancers_delete_backend_pool";
    PUBLIC_IP_GET PUBLIC_IP Verb::Get, "public_ip_addresses_get";
    PUBLIC_IP_LIST PUBLIC_IP Verb::List, "public_ip_addresses_list";
    PUBLIC_IP_PUT PUBLIC_IP Verb::Put, "public_ip_addresses_create_or_update";
    PUBLIC_IP_DELETE PUBLIC_IP Verb::Delete, "public_ip_addresses_delete";
    PREFIX_GET PUBLIC_IP_PREFIX Verb::Get, "public_ip_prefixes_get";
    NIC_GET NIC Verb::Get, "interfaces_get";
    NIC_LIST NIC Verb::List, "interfaces_list";
    NIC_PUT NIC Verb::Put, "interfaces_create_or_update";
    NSG_GET SECURITY_GROUP Verb::Get, "security_groups_get";
    NSG_PUT SECURITY_GROUP Verb::Put, "security_groups_create_or_update";
    ROUTES_GET ROUTE_TABLE Verb::Get, "route_tables_get";
    ROUTES_PUT ROUTE_TABLE Verb::Put, "route_tables_create_or_update";
    SUBNET_GET SUBNET Verb::Get, "subnets_get";
    SUBNET_PUT SUBNET Verb::Put, "subnets_create_or_update";
    PLS_LIST PRIVATE_LINK Verb::List, "private_link_services_list";
    PLS_PUT PRIVATE_LINK Verb::Put, "private_link_services_create_or_update";
    PLS_DELETE PRIVATE_LINK Verb::Delete, "private_link_services_delete";
    PLS_CONNECTION_DELETE PRIVATE_LINK_CONNECTION Verb::Delete, "private_link_services_delete_pe_connection";
    NETWORK_OPERATION_GET NETWORK_OPERATION Verb::Get, "network_operations_get";
    PERMISSIONS_LIST PERMISSIONS Verb::List, "permissions_list";
}

/// How long a busy object is left alone if the answer does not say it.
const BUSY: Duration = Duration::from_secs(10);

/// The budgets. Resource Manager allows an identity 25 reads, 10 writes and 10 deletions a second in a subscription, with
/// bursts of 250 and 200; lists of scale set instances have a budget of their own, seen as 140 in three minutes. Other
/// programs with the identity share them.
mod budget {
    use super::{Budget, Pace};

    const fn of(name: &'static str, per_second: f64, burst: f64) -> Budget {
        Budget { name, pace: Pace { per_second, burst, at_once: 32 } }
    }

    pub(super) const NETWORK_READ: Budget = of("network-read", 14.0, 140.0);
    pub(super) const NETWORK_WRITE: Budget = of("network-write", 6.0, 120.0);
    pub(super) const NETWORK_DELETE: Budget = of("network-delete", 8.0, 150.0);
    pub(super) const COMPUTE_READ: Budget = of("compute-read", 6.0, 60.0);
    pub(super) const COMPUTE_LIST: Budget = of("compute-list", 0.7, 120.0);
    pub(super) const COMPUTE_WRITE: Budget = of("compute-write", 3.0, 60.0);
}

/// The codes of a 429 that concerns one object.
pub(super) const BUSY_CODES: [&str; 5] = [
    "RetryableErrorDueToAnotherOperation",
    "ReferencedResourceNotProvisioned",
    "RetryableError",
    "GatewayError",
    "AnotherOperationInProgress",
];
/// The codes of a 404 that say that the object itself, or what contains it, does not exist.
pub(super) const ABSENT_CODES: [&str; 4] = ["ResourceNotFound", "NotFound", GROUP_ABSENT, "ParentResourceNotFound"];
/// The one of them that concerns the resource group.
pub(super) const GROUP_ABSENT: &str = "ResourceGroupNotFound";
/// A later operation took the place of this one.
pub(super) const SUPERSEDED: &str = "CanceledAndSupersededDueToAnotherOperation";

impl Operation {
    /// The operation with this name in metrics.
    pub(crate) fn named(request: &str) -> Option<Self> {
        ALL.iter().copied().find(|operation| operation.request == request)
    }

    /// Reading the same object.
    pub(super) fn reading(self) -> Self {
        Self { verb: Verb::Get, ..self }
    }

    /// Whether it removes an object.
    pub(crate) fn is_deletion(self) -> bool {
        self.verb == Verb::Delete
    }
}

impl call::Operation for Operation {
    const CLOUD: &'static str = "Azure";

    fn service(&self) -> &'static str {
        if self.resource.is_network() { "network" } else { "compute" }
    }

    fn name(&self) -> &'static str {
        self.request
    }

    fn budget(&self) -> Budget {
        // The interfaces of one instance are read as cheaply as the instance.
        let is_scale_set = self.resource.kind.starts_with(VMSS.kind) && *self.resource != VMSS_VM_NIC;
        match (self.resource.is_network(), self.verb) {
            (true, Verb::Get | Verb::List) => budget::NETWORK_READ,
            (true, Verb::Delete) => budget::NETWORK_DELETE,
            (true, Verb::Put | Verb::Post(_)) => budget::NETWORK_WRITE,
            (false, Verb::List) if is_scale_set => budget::COMPUTE_LIST,
            (false, Verb::Get | Verb::List) => budget::COMPUTE_READ,
            (false, Verb::Put | Verb::Post(_) | Verb::Delete) => budget::COMPUTE_WRITE,
        }
    }

    fn permission(&self) -> String {
        let kind = self.resource.kind;
        match self.verb {
            Verb::Get | Verb::List => format!("{kind}/read"),
            Verb::Put => format!("{kind}/write"),
            Verb::Delete => format!("{kind}/delete"),
            Verb::Post(action) => format!("{kind}/{action}/action"),
        }
    }

    fn is_mutating(&self) -> bool {
        self.verb.is_mutating()
    }

    /// A PUT states the result, and an object that is deleted twice is deleted.
    fn is_repeatable(&self) -> bool {
        true
    }

    fn meaning(code: &str, status: Option<u16>) -> Meaning {
        if status == Some(429) || status.is_none() || status == Some(409) {
            if BUSY_CODES.contains(&code) {
                return Meaning::Busy(BUSY);
            }
            if status == Some(429) {
                return Meaning::Throttle;
            }
        }
        match (code, status) {
            (SUPERSEDED | "PreconditionFailed" | "PreconditionFailedEtagMismatch", _) => Meaning::Conflict,
            (code, _) if is_quota(code) => Meaning::Quota,
            ("RequestDisallowedByPolicy" | "ScopeLocked", _) => Meaning::Other,
            ("AuthorizationFailed" | "LinkedAuthorizationFailed", _) => Meaning::Denied,
            // A neighbor has failed: the same request succeeds after its repair.
            ("ReferencedResourceNotProvisioned", _) => Meaning::Passing,
            (code, _) if code.starts_with("InUse") || code.contains("CannotBeDeleted") => Meaning::Passing,
            // The machine is going, or held by an upgrade or an extension. It is also the code of quotas of cores, for which
            // no request here asks.
            ("OperationNotAllowed", Some(409) | None) => Meaning::Passing,
            ("ResourceNotFound" | "ResourceGroupNotFound" | "ParentResourceNotFound", _) => Meaning::NotFound,
            (_, Some(401)) => Meaning::Credentials,
            (_, Some(403)) => Meaning::Denied,
            (_, Some(404)) => Meaning::NotFound,
            (_, Some(409 | 412)) => Meaning::Conflict,
            (_, Some(400 | 422)) => Meaning::Invalid,
            (_, Some(501)) => Meaning::Unsupported,
            ("InternalServerError" | "InternalError", _) | (_, Some(500..)) => Meaning::Server,
            _ => Meaning::Other,
        }
    }

    /// `The client 'x' … does not have authorization to perform action 'Microsoft.Network/…/write' over scope …`
    ///
    /// Before `however` stands what the client may do.
    fn lacking(message: &str) -> Option<String> {
        let quoted = |text: &str| Some(text.split_once('\'')?.0.to_owned());
        if let Some((_, rest)) = message.split_once("is not authorized to access linked subscription '") {
            return Some(format!("access to the linked subscription {}", quoted(rest)?));
        }
        let lacks = message.split_once("however").map_or(message, |(_, rest)| rest);
        let (_, rest) = lacks.split_once("perform action '").or_else(|| lacks.split_once("perform action(s) '"))?;
        quoted(rest)
    }

    fn remediation(meaning: Meaning, code: &str) -> Option<&'static str> {
        match (meaning, code) {
            (Meaning::Other, "RequestDisallowedByPolicy") => {
                Some("a policy of the subscription forbids it: ask for an exemption, or change what is asked for")
            }
            (Meaning::Other, "ScopeLocked") => {
                Some("a lock forbids it: remove the lock of the object or of its resource group")
            }
            (Meaning::Invalid, "DnsRecordInUse") => Some(
                "choose another label in service.beta.kubernetes.io/azure-dns-label-name: it must be free in the region",
            ),
            (Meaning::Denied, "LinkedAuthorizationFailed") => Some(
                "grant it to the identity of this program (the README of the provider has a role); if the network \
                 belongs to another tenant, set networkResourceTenantID",
            ),
            (Meaning::Denied, _) => {
                Some("grant it to the identity of this program (the README of the provider has a role)")
            }
            (Meaning::Credentials, _) => {
                Some("Azure does not accept the token: check tenant, client and cloud of the configuration")
            }
            (Meaning::Quota, _) => Some("a limit is reached: ask for more, or remove what is not needed"),
            _ => None,
        }
    }
}

/// `PublicIPCountLimitReached`, `SecurityRuleCountLimitReached`, `QuotaExceeded`, …
fn is_quota(code: &str) -> bool {
    ["LimitReached", "QuotaExceeded", "LimitExceeded"].iter().any(|end| code.ends_with(end))
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Operation as _;

    use super::*;

    #[test]
    fn names_are_distinct_and_permissions_are_those_of_the_objects() {
        let mut seen = std::collections::BTreeSet::new();
        for operation in ALL {
            assert!(seen.insert(operation.name()), "{operation:?}");
            assert!(operation.permission().starts_with("Microsoft."), "{operation:?}");
            assert_eq!(Operation::named(operation.name()), Some(*operation));
        }
        assert_eq!(POOL_PUT.permission(), "Microsoft.Network/loadBalancers/backendAddressPools/write");
        assert_eq!(LB_MIGRATE.permission(), "Microsoft.Network/loadBalancers/migrateToIpBased/action");
    }

    #[test]
    fn each_resource_has_one_version_and_another_on_azure_stack() {
        let version = |resource: &Resource| (resource.version(false), resource.version(true));
        assert_eq!(version(&LOAD_BALANCER), ("2025-05-01", "2018-11-01"));
        assert_eq!(version(&VMSS_VM), ("2025-04-01", "2019-07-01"));
        assert_eq!(version(&VM).1, "2017-12-01");
        assert_eq!(version(&DISK), ("2025-01-02", "2019-03-01"));
        assert_eq!(version(&VMSS_NIC).0, "2018-10-01");
        for resource in RESOURCES {
            assert_eq!(resource.is_network(), resource.kind.starts_with("Microsoft.Network"), "{resource:?}");
        }
    }

    #[test]
    fn the_two_kinds_of_429_are_told_apart() {
        for code in [
            "RetryableErrorDueToAnotherOperation",
            "ReferencedResourceNotProvisioned",
            "RetryableError",
            "GatewayError",
        ] {
            assert_eq!(Operation::meaning(code, Some(429)), Meaning::Busy(BUSY), "{code}");
        }
        for code in ["TooManyRequests", "SubscriptionRequestsThrottled", "OperationNotAllowed", "429"] {
            assert_eq!(Operation::meaning(code, Some(429)), Meaning::Throttle, "{code}");
        }
    }

    #[test]
    fn codes_and_statuses_have_their_meaning() {
        for (code, status, expected) in [
            ("PreconditionFailedEtagMismatch", Some(412), Meaning::Conflict),
            (SUPERSEDED, None, Meaning::Conflict),
            ("AnotherOperationInProgress", Some(409), Meaning::Busy(BUSY)),
            ("PublicIPCountLimitReached", None, Meaning::Quota),
            ("OperationNotAllowed", Some(409), Meaning::Passing),
            ("OperationNotAllowed", None, Meaning::Passing),
            ("PublicIPAddressCannotBeDeleted", Some(400), Meaning::Passing),
            ("ReferencedResourceNotProvisioned", Some(400), Meaning::Passing),
            ("AuthorizationFailed", Some(403), Meaning::Denied),
            ("RequestDisallowedByPolicy", Some(403), Meaning::Other),
            ("ScopeLocked", Some(409), Meaning::Other),
            ("ResourceNotFound", Some(404), Meaning::NotFound),
            ("ExpiredAuthenticationToken", Some(401), Meaning::Credentials),
            ("InvalidRequestFormat", Some(400), Meaning::Invalid),
            ("InternalServerError", None, Meaning::Server),
            ("ServiceUnavailable", Some(503), Meaning::Server),
        ] {
            assert_eq!(Operation::meaning(code, status), expected, "{code}");
        }
    }

    #[test]
    fn the_missing_right_is_the_one_that_azure_names() {
        let plain = "The client 'a' with object id 'a' does not have authorization to perform action \
                     'Microsoft.Network/loadBalancers/write' over scope '/subscriptions/s' or the scope is invalid.";
        let several = "The client 'a' with object id 'a' has permission to perform action \
                       'Microsoft.Network/loadBalancers/write' on scope '/x'; however, it does not have permission to \
                       perform action(s) 'Microsoft.Network/publicIPAddresses/join/action' on the linked scope(s) '/y' \
                       (respectively) or the linked scope(s) are invalid.";
        let one = "The client 'a' with object id 'a' has permission to perform action \
                   'Microsoft.Compute/virtualMachineScaleSets/virtualMachines/write' on scope '/x'; however, it does not \
                   have permission to perform action 'Microsoft.Network/loadBalancers/backendAddressPools/join/action' \
                   on the linked scope(s) '/y' or the linked scope(s) are invalid.";
        let tenant = "The client has permission to perform action 'Microsoft.Network/virtualNetworks/subnets/join/action' \
                      on scope '/x', however the current tenant 't' is not authorized to access linked subscription 's'.";
        for (message, expected) in [
            (plain, "Microsoft.Network/loadBalancers/write"),
            (several, "Microsoft.Network/publicIPAddresses/join/action"),
            (one, "Microsoft.Network/loadBalancers/backendAddressPools/join/action"),
            (tenant, "access to the linked subscription s"),
        ] {
            assert_eq!(Operation::lacking(message).as_deref(), Some(expected), "{message}");
        }
        assert_eq!(Operation::lacking("no"), None);
    }
}
