//! The operations of OpenStack's services: their names in metrics, policies, budgets, and the meaning of their errors.

use std::time::Duration;

use ccm_kit::call::{self, Budget, Meaning, Pace};
use http::Method;

/// A service of the catalog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Service {
    /// Keystone
    Identity,
    /// Nova
    Compute,
    /// Neutron
    Network,
    /// Octavia
    LoadBalancer,
    /// Barbican
    KeyManager,
    /// Cinder
    BlockStorage,
}

impl Service {
    /// The type in the catalog.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Identity => "identity",
            Self::Compute => "compute",
            Self::Network => "network",
            Self::LoadBalancer => "load-balancer",
            Self::KeyManager => "key-manager",
            Self::BlockStorage => "block-storage",
        }
    }

    /// Older types that catalogs still use.
    pub(crate) fn aliases(self) -> &'static [&'static str] {
        match self {
            Self::BlockStorage => &["block-store", "volumev3", "volume", "volumev2"],
            _ => &[],
        }
    }
}

/// An operation. Its name is upstream's label `request`: `<resource>_<verb>`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Operation {
    service: Service,
    name: &'static str,
    policy: &'static str,
}

/// Defines the operations: constant, service, name, and the policy rule of the service that must allow it.
macro_rules! operations {
    ($($id:ident $service:ident $name:literal $policy:literal)*) => {
        $(pub(crate) const $id: Operation =
            Operation { service: Service::$service, name: $name, policy: $policy };)*

        /// All operations.
        #[cfg(test)]
        pub(crate) const ALL: &[Operation] = &[$($id),*];
    };
}

operations! {
    TOKEN_CREATE Identity "token_create" "-"
    IDENTITY_VERSIONS Identity "version_list" "-"
    SERVER_LIST Compute "server_list" "os_compute_api:servers:detail"
    SERVER_GET Compute "server_get" "os_compute_api:servers:show"
    FLAVOR_LIST Compute "flavor_list" "os_compute_api:flavors"
    FLAVOR_GET Compute "flavor_get" "os_compute_api:flavors"
    EXTENSION_LIST Network "network_extension_list" "get_extension"
    NETWORK_LIST Network "network_list" "get_network"
    SUBNET_LIST Network "subnet_list" "get_subnet"
    SUBNET_GET Network "subnet_get" "get_subnet"
    PORT_LIST Network "port_list" "get_port"
    PORT_GET Network "port_get" "get_port"
    PORT_UPDATE Network "port_update" "update_port"
    PORT_TAG_DELETE Network "port_tag_delete" "delete_port:tags"
    ROUTER_LIST Network "router_list" "get_router"
    ROUTER_GET Network "router_get" "get_router"
    ROUTER_UPDATE Network "router_update" "update_router"
    FLOATING_IP_LIST Network "floating_ip_list" "get_floatingip"
    FLOATING_IP_CREATE Network "floating_ip_create" "create_floatingip"
    FLOATING_IP_UPDATE Network "floating_ip_update" "update_floatingip"
    FLOATING_IP_DELETE Network "floating_ip_delete" "delete_floatingip"
    SECURITY_GROUP_LIST Network "security_group_list" "get_security_group"
    SECURITY_GROUP_CREATE Network "security_group_create" "create_security_group"
    SECURITY_GROUP_DELETE Network "security_group_delete" "delete_security_group"
    SECURITY_GROUP_RULE_CREATE Network "security_group_rule_create" "create_security_group_rule"
    SECURITY_GROUP_RULE_DELETE Network "security_group_rule_delete" "delete_security_group_rule"
    LB_VERSIONS LoadBalancer "version_list" "-"
    LB_LIST LoadBalancer "loadbalancer_list" "os_load-balancer_api:loadbalancer:get_all"
    LB_GET LoadBalancer "loadbalancer_get" "os_load-balancer_api:loadbalancer:get_one"
    LB_CREATE LoadBalancer "loadbalancer_create" "os_load-balancer_api:loadbalancer:post"
    LB_UPDATE LoadBalancer "loadbalancer_update" "os_load-balancer_api:loadbalancer:put"
    LB_DELETE LoadBalancer "loadbalancer_delete" "os_load-balancer_api:loadbalancer:delete"
    LISTENER_LIST LoadBalancer "loadbalancer_listener_list" "os_load-balancer_api:listener:get_all"
    LISTENER_CREATE LoadBalancer "loadbalancer_listener_create" "os_load-balancer_api:listener:post"
    LISTENER_UPDATE LoadBalancer "loadbalancer_listener_update" "os_load-balancer_api:listener:put"
    LISTENER_DELETE LoadBalancer "loadbalancer_listener_delete" "os_load-balancer_api:listener:delete"
    POOL_LIST LoadBalancer "loadbalancer_pool_list" "os_load-balancer_api:pool:get_all"
    POOL_CREATE LoadBalancer "loadbalancer_pool_create" "os_load-balancer_api:pool:post"
    POOL_UPDATE LoadBalancer "loadbalancer_pool_update" "os_load-balancer_api:pool:put"
    POOL_DELETE LoadBalancer "loadbalancer_pool_delete" "os_load-balancer_api:pool:delete"
    MEMBER_LIST LoadBalancer "loadbalancer_member_list" "os_load-balancer_api:member:get_all"
    MEMBERS_UPDATE LoadBalancer "loadbalancer_members_update" "os_load-balancer_api:member:put"
    MEMBER_CREATE LoadBalancer "loadbalancer_member_create" "os_load-balancer_api:member:post"
    MEMBER_DELETE LoadBalancer "loadbalancer_member_delete" "os_load-balancer_api:member:delete"
    MONITOR_LIST LoadBalancer "loadbalancer_healthmonitor_list" "os_load-balancer_api:healthmonitor:get_all"
    MONITOR_GET LoadBalancer "loadbalancer_healthmonitor_get" "os_load-balancer_api:healthmonitor:get_one"
    MONITOR_CREATE LoadBalancer "loadbalancer_healthmonitor_create" "os_load-balancer_api:healthmonitor:post"
    MONITOR_UPDATE LoadBalancer "loadbalancer_healthmonitor_update" "os_load-balancer_api:healthmonitor:put"
    MONITOR_DELETE LoadBalancer "loadbalancer_healthmonitor_delete" "os_load-balancer_api:healthmonitor:delete"
    SECRET_GET KeyManager "secret_get" "secret:get"
    CONTAINER_GET KeyManager "container_get" "container:get"
    VOLUME_GET BlockStorage "volume_get" "volume:get"
}

/// The code of a load balancer that is busy with an earlier change.
pub(crate) const IMMUTABLE: &str = "Immutable";
/// The code of any other refusal of Octavia, which has none itself.
pub(crate) const FAULT: &str = "Fault";
/// The code of an exhausted quota.
pub(crate) const OVER_QUOTA: &str = "OverQuota";
/// The code of a router with the maximum number of routes; since 2026.2 that is a quota.
pub(crate) const ROUTES_EXHAUSTED: &str = "RoutesExhausted";
/// Retry interval for a busy load balancer.
const BUSY: Duration = Duration::from_secs(2);

impl Operation {
    /// The service of the operation.
    pub(crate) fn of(self) -> Service {
        self.service
    }

    /// The HTTP method of its requests.
    pub(crate) fn method(self) -> Method {
        match self.name.rsplit('_').next() {
            Some("create") => Method::POST,
            Some("update") => Method::PUT,
            Some("delete") => Method::DELETE,
            _ => Method::GET,
        }
    }

    /// The policy rule of the service that must allow the operation; `-`: none.
    pub(crate) fn policy(self) -> &'static str {
        self.policy
    }
}

impl call::Operation for Operation {
    const CLOUD: &'static str = "OpenStack";

    fn service(&self) -> &'static str {
        self.service.name()
    }

    fn name(&self) -> &'static str {
        self.name
    }

    /// No limits are documented: operators choose them. These keep a large cluster from dominating the load.
    fn budget(&self) -> Budget {
        const READS: Pace = Pace { per_second: 40.0, burst: 80.0, at_once: 16 };
        const WRITES: Pace = Pace { per_second: 20.0, burst: 40.0, at_once: 8 };
        let writes = call::Operation::is_mutating(self);
        let name = match (self.service, writes) {
            (Service::Identity, _) => "identity",
            (Service::Compute, _) => "compute",
            (Service::Network, false) => "network-read",
            (Service::Network, true) => "network-write",
            (Service::LoadBalancer, false) => "load-balancer-read",
            (Service::LoadBalancer, true) => "load-balancer-write",
            (Service::KeyManager, _) => "key-manager",
            (Service::BlockStorage, _) => "block-storage",
        };
        Budget { name, pace: if writes { WRITES } else { READS } }
    }

    fn permission(&self) -> String {
        let rule = if self.policy == "-" { self.name } else { self.policy };
        format!("{} {rule}", self.service.name())
    }

    fn is_mutating(&self) -> bool {
        *self != TOKEN_CREATE && self.method() != Method::GET
    }

    /// Deletions and updates are idempotent; a repeated creation creates a second object.
    fn is_repeatable(&self) -> bool {
        !self.is_mutating() || self.method() != Method::POST
    }

    fn meaning(code: &str, status: Option<u16>) -> Meaning {
        match (code, status) {
            (IMMUTABLE, _) => Meaning::Busy(BUSY),
            (OVER_QUOTA | ROUTES_EXHAUSTED, _) => Meaning::Quota,
            (_, Some(401)) => Meaning::Credentials,
            (_, Some(403)) => Meaning::Denied,
            (_, Some(404)) => Meaning::NotFound,
            (_, Some(409 | 412)) => Meaning::Conflict,
            (_, Some(413 | 429)) => Meaning::Throttle,
            (_, Some(400..=499)) => Meaning::Invalid,
            (_, Some(501)) => Meaning::Unsupported,
            (_, Some(500..)) => Meaning::Server,
            _ => Meaning::Other,
        }
    }

    fn remediation(meaning: Meaning, _code: &str) -> Option<&'static str> {
        match meaning {
            Meaning::Credentials => {
                Some("Keystone or the service does not accept the credentials of [Global]: renew them")
            }
            Meaning::Denied => Some("grant the role member, with load-balancer_member for Octavia, in the project"),
            Meaning::Quota => Some("a quota of the project is exhausted: ask for more or remove what is not needed"),
            Meaning::Busy(_) => Some("it is busy with an earlier change"),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Operation as _;

    use super::*;

    #[test]
    fn names_are_distinct_and_writes_are_known() {
        let mut seen = std::collections::BTreeSet::new();
        for operation in ALL {
            assert!(seen.insert((operation.service, operation.name)), "{operation:?}");
            let reads = ["_get", "_list"].iter().any(|verb| operation.name().ends_with(verb));
            assert_ne!(reads || *operation == TOKEN_CREATE, operation.is_mutating(), "{operation:?}");
        }
        assert!(!LB_CREATE.is_repeatable() && MEMBERS_UPDATE.is_repeatable() && LB_GET.is_repeatable());
    }

    #[test]
    fn each_status_has_the_class_of_its_meaning() {
        use ccm_kit::call::{ErrorKind, Failure};
        use ccm_provider::{ErrorClass, ProviderError};

        for (status, code, kind, class) in [
            (400, "Client", ErrorKind::Refused, "Invalid"),
            (401, "Unauthorized", ErrorKind::Credentials, "Unknown"),
            (403, "Client", ErrorKind::Refused, "Denied"),
            (403, OVER_QUOTA, ErrorKind::Refused, "Unknown"),
            (404, "Client", ErrorKind::Refused, "Conflict"),
            (409, IMMUTABLE, ErrorKind::Refused, "InProgress"),
            (409, "Client", ErrorKind::Refused, "Conflict"),
            (412, "RevisionNumberConstraintFailed", ErrorKind::Refused, "Conflict"),
            (413, "overLimit", ErrorKind::Throttled { after: None }, "Throttled"),
            (429, "x", ErrorKind::Throttled { after: None }, "Throttled"),
            (500, "Server", ErrorKind::NoAnswer, "Transient"),
            (501, "Server", ErrorKind::Refused, "Unsupported"),
            (503, "x", ErrorKind::NoAnswer, "Transient"),
        ] {
            let failure = Failure { status: Some(status), code: code.to_owned(), ..Failure::default() };
            let error = crate::client::ApiError::new(LB_UPDATE, failure);
            assert_eq!(error.kind, kind, "{status} {code}");
            let shown = match ProviderError::from(error).class() {
                ErrorClass::InProgress { .. } => "InProgress".to_owned(),
                ErrorClass::Denied { .. } => "Denied".to_owned(),
                ErrorClass::Invalid { .. } => "Invalid".to_owned(),
                ErrorClass::Throttled { .. } => "Throttled".to_owned(),
                ErrorClass::Transient { .. } => "Transient".to_owned(),
                other => format!("{other:?}"),
            };
            assert_eq!(shown, class, "{status} {code}");
        }
    }

    #[test]
    fn only_an_unusable_answer_of_the_server_is_no_refusal() {
        assert_eq!(Operation::meaning("501", Some(501)), Meaning::Unsupported);
        assert_eq!(Operation::meaning("", Some(503)), Meaning::Server);
        assert_eq!(Operation::meaning(IMMUTABLE, Some(409)), Meaning::Busy(BUSY));
        assert_eq!(Operation::meaning("ConflictException", Some(409)), Meaning::Conflict);
        assert_eq!(Operation::meaning(OVER_QUOTA, Some(409)), Meaning::Quota);
    }
}
