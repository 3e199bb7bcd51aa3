//! The operations of the Compute API: their names in metrics, their permissions, and the meaning of their errors.

use ccm_kit::call::{self, Budget, Meaning, Pace};
use http::Method;

use super::resource::Collection;

/// The action of an operation on a collection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Verb {
    Get,
    List,
    /// A list across all zones and regions.
    AggregatedList,
    Insert,
    /// Changes only the fields in its body.
    Patch,
    Delete,
    /// A read of an object by POST.
    PostRead(&'static str),
    /// A change of an object by POST: `addInstance`.
    PostChange(&'static str),
}

impl Verb {
    pub(crate) fn method(self) -> Method {
        match self {
            Self::Get | Self::List | Self::AggregatedList => Method::GET,
            Self::Insert | Self::PostRead(_) | Self::PostChange(_) => Method::POST,
            Self::Patch => Method::PATCH,
            Self::Delete => Method::DELETE,
        }
    }

    /// The last segment of the path, after the name of the object.
    pub(crate) fn action(self) -> Option<&'static str> {
        match self {
            Self::PostRead(action) | Self::PostChange(action) => Some(action),
            _ => None,
        }
    }

    pub(crate) fn is_mutating(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::AggregatedList | Self::PostRead(_))
    }
}

/// An operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Operation(&'static Definition);

/// The definition of an operation. Its name is the value of upstream's label `request`.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Definition {
    pub(crate) collection: Collection,
    pub(crate) verb: Verb,
    request: &'static str,
    permission: &'static str,
}

/// Defines the operations: constant, collection, verb, name, and the main permission that it needs.
macro_rules! operations {
    ($($id:ident $collection:ident $verb:expr, $request:literal $permission:literal)*) => {
        $(pub(crate) const $id: Operation = Operation(&Definition {
            collection: Collection::$collection, verb: $verb, request: $request, permission: $permission,
        });)*

        /// All operations.
        #[cfg(test)]
        pub(crate) const ALL: &[Operation] = &[$($id),*];
    };
}

operations! {
    ADDRESS_GET Addresses Verb::Get, "address_get" "compute.addresses.get"
    ADDRESS_LIST Addresses Verb::List, "address_list" "compute.addresses.list"
    ADDRESS_RESERVE Addresses Verb::Insert, "address_reserve" "compute.addresses.create"
    ADDRESS_DELETE Addresses Verb::Delete, "address_delete" "compute.addresses.delete"
    FORWARDING_RULE_GET ForwardingRules Verb::Get, "forwardingrule_get" "compute.forwardingRules.get"
    FORWARDING_RULE_LIST ForwardingRules Verb::List, "forwardingrule_list" "compute.forwardingRules.list"
    FORWARDING_RULE_CREATE ForwardingRules Verb::Insert, "forwardingrule_create" "compute.forwardingRules.create"
    FORWARDING_RULE_PATCH ForwardingRules Verb::Patch, "forwardingrule_patch" "compute.forwardingRules.update"
    FORWARDING_RULE_DELETE ForwardingRules Verb::Delete, "forwardingrule_delete" "compute.forwardingRules.delete"
    TARGET_POOL_GET TargetPools Verb::Get, "targetpool_get" "compute.targetPools.get"
    TARGET_POOL_LIST TargetPools Verb::List, "targetpool_list" "compute.targetPools.list"
    TARGET_POOL_CREATE TargetPools Verb::Insert, "targetpool_create" "compute.targetPools.create"
    TARGET_POOL_DELETE TargetPools Verb::Delete, "targetpool_delete" "compute.targetPools.delete"
    TARGET_POOL_ADD TargetPools Verb::PostChange("addInstance"), "targetpool_add_instances" "compute.targetPools.addInstance"
    TARGET_POOL_REMOVE TargetPools Verb::PostChange("removeInstance"), "targetpool_remove_instances" "compute.targetPools.removeInstance"
    HTTP_HEALTH_CHECK_GET HttpHealthChecks Verb::Get, "healthcheck_get_legacy" "compute.httpHealthChecks.get"
    HTTP_HEALTH_CHECK_LIST HttpHealthChecks Verb::List, "healthcheck_list_legacy" "compute.httpHealthChecks.list"
    HTTP_HEALTH_CHECK_CREATE HttpHealthChecks Verb::Insert, "healthcheck_create_legacy" "compute.httpHealthChecks.create"
    HTTP_HEALTH_CHECK_UPDATE HttpHealthChecks Verb::Patch, "healthcheck_update_legacy" "compute.httpHealthChecks.update"
    HTTP_HEALTH_CHECK_DELETE HttpHealthChecks Verb::Delete, "healthcheck_delete_legacy" "compute.httpHealthChecks.delete"
    HEALTH_CHECK_GET HealthChecks Verb::Get, "healthcheck_get" "compute.healthChecks.get"
    HEALTH_CHECK_LIST HealthChecks Verb::List, "healthcheck_list" "compute.healthChecks.list"
    HEALTH_CHECK_CREATE HealthChecks Verb::Insert, "healthcheck_create" "compute.healthChecks.create"
    HEALTH_CHECK_UPDATE HealthChecks Verb::Patch, "healthcheck_update" "compute.healthChecks.update"
    HEALTH_CHECK_DELETE HealthChecks Verb::Delete, "healthcheck_delete" "compute.healthChecks.delete"
    BACKEND_SERVICE_GET BackendServices Verb::Get, "backendservice_get" "compute.regionBackendServices.get"
    BACKEND_SERVICE_LIST BackendServices Verb::List, "backendservice_list" "compute.regionBackendServices.list"
    BACKEND_SERVICE_CREATE BackendServices Verb::Insert, "backendservice_create" "compute.regionBackendServices.create"
    BACKEND_SERVICE_UPDATE BackendServices Verb::Patch, "backendservice_update" "compute.regionBackendServices.update"
    BACKEND_SERVICE_DELETE BackendServices Verb::Delete, "backendservice_delete" "compute.regionBackendServices.delete"
    INSTANCE_GROUP_GET InstanceGroups Verb::Get, "instancegroup_get" "compute.instanceGroups.get"
    INSTANCE_GROUP_FILTER InstanceGroups Verb::List, "instancegroup_filter" "compute.instanceGroups.list"
    INSTANCE_GROUP_CREATE InstanceGroups Verb::Insert, "instancegroup_create" "compute.instanceGroups.create"
    INSTANCE_GROUP_DELETE InstanceGroups Verb::Delete, "instancegroup_delete" "compute.instanceGroups.delete"
    INSTANCE_GROUP_INSTANCES InstanceGroups Verb::PostRead("listInstances"), "instancegroup_list_instances" "compute.instanceGroups.list"
    INSTANCE_GROUP_ADD InstanceGroups Verb::PostChange("addInstances"), "instancegroup_add_instances" "compute.instanceGroups.update"
    INSTANCE_GROUP_REMOVE InstanceGroups Verb::PostChange("removeInstances"), "instancegroup_remove_instances" "compute.instanceGroups.update"
    FIREWALL_GET Firewalls Verb::Get, "firewall_get" "compute.firewalls.get"
    FIREWALL_LIST Firewalls Verb::List, "firewall_list" "compute.firewalls.list"
    FIREWALL_CREATE Firewalls Verb::Insert, "firewall_create" "compute.firewalls.create"
    FIREWALL_PATCH Firewalls Verb::Patch, "firewall_Patch" "compute.firewalls.update"
    FIREWALL_DELETE Firewalls Verb::Delete, "firewall_delete" "compute.firewalls.delete"
    INSTANCE_GET Instances Verb::Get, "instances_get" "compute.instances.get"
    INSTANCE_LIST Instances Verb::List, "instances_list" "compute.instances.list"
    INSTANCE_LIST_ALL Instances Verb::AggregatedList, "instances_aggregated_list" "compute.instances.list"
    ROUTE_LIST Routes Verb::List, "routes_list" "compute.routes.list"
    ROUTE_CREATE Routes Verb::Insert, "routes_create" "compute.routes.create"
    ROUTE_DELETE Routes Verb::Delete, "routes_delete" "compute.routes.delete"
    ZONE_LIST Zones Verb::List, "zones_list" "compute.zones.list"
    NETWORK_GET Networks Verb::Get, "networks_get" "compute.networks.get"
    SUBNETWORK_LIST Subnetworks Verb::List, "subnetworks_list" "compute.subnetworks.list"
    SUBNETWORK_TEST Subnetworks Verb::PostRead("testIamPermissions"), "subnetworks_test_permissions" "compute.subnetworks.list"
    DISK_GET Disks Verb::Get, "disk_get" "compute.disks.get"
    PROJECT_GET Projects Verb::Get, "projects_get" "compute.projects.get"
    PERMISSIONS_TEST Projects Verb::PostRead("testIamPermissions"), "projects_test_permissions" "resourcemanager.projects.get"
    OPERATION_WAIT Operations Verb::PostRead("wait"), "operation_wait" "compute.globalOperations.get"
}

/// The code of an error whose message names a constraint of an organization policy: the API has no code for it.
pub(crate) const ORGANIZATION_POLICY: &str = "organization policy";
/// The reason of a refused deletion of an object that another one still uses.
pub(crate) const IN_USE: &str = "resourceInUseByAnotherResource";

/// A code in a common spelling: reasons are `quotaExceeded`, codes of operations `QUOTA_EXCEEDED`.
fn folded(code: &str) -> String {
    code.chars().filter(|c| *c != '_').map(|c| c.to_ascii_lowercase()).collect()
}

impl std::ops::Deref for Operation {
    type Target = Definition;

    fn deref(&self) -> &Definition {
        self.0
    }
}

impl Operation {
    /// The read of an object of the same kind.
    pub(crate) fn read(self) -> Option<Self> {
        const READS: [Operation; 8] = [
            ADDRESS_GET,
            FORWARDING_RULE_GET,
            TARGET_POOL_GET,
            HTTP_HEALTH_CHECK_GET,
            HEALTH_CHECK_GET,
            BACKEND_SERVICE_GET,
            INSTANCE_GROUP_GET,
            FIREWALL_GET,
        ];
        READS.into_iter().find(|read| read.collection == self.collection)
    }

    /// Whether it removes instances from a pool or group.
    pub(crate) fn is_removal(self) -> bool {
        self.verb.action().is_some_and(|action| action.starts_with("remove"))
    }

    /// Whether it removes an object.
    pub(crate) fn is_deletion(self) -> bool {
        self.verb == Verb::Delete
    }
}

impl call::Operation for Operation {
    const CLOUD: &'static str = "GCE";

    fn service(&self) -> &'static str {
        "compute"
    }

    fn name(&self) -> &'static str {
        self.request
    }

    /// The quotas are 1,500 calls a minute for a project and region, and the same for reads of operations: these limits
    /// leave some for other programs. A wait call occupies its place for up to two minutes.
    fn budget(&self) -> Budget {
        const CALLS: Pace = Pace { per_second: 18.0, burst: 240.0, at_once: 24 };
        const WAITS: Pace = Pace { per_second: 18.0, burst: 240.0, at_once: 512 };
        match (*self == OPERATION_WAIT, self.verb.is_mutating()) {
            (true, _) => Budget { name: "wait", pace: WAITS },
            (false, true) => Budget { name: "write", pace: CALLS },
            (false, false) => Budget { name: "read", pace: CALLS },
        }
    }

    fn permission(&self) -> String {
        self.permission.to_owned()
    }

    fn is_mutating(&self) -> bool {
        self.verb.is_mutating()
    }

    /// Writes carry a request ID: the API answers a repeated one with the operation of the first.
    fn is_repeatable(&self) -> bool {
        true
    }

    fn meaning(code: &str, status: Option<u16>) -> Meaning {
        if code == ORGANIZATION_POLICY {
            // No role overrides the policy.
            return Meaning::Invalid;
        }
        match (&*folded(code), status) {
            ("ratelimitexceeded" | "userratelimitexceeded" | "concurrentoperationquotaexceeded", _) => {
                Meaning::Throttle
            }
            ("resourceoperationrateexceeded", _) => Meaning::Throttle,
            ("quotaexceeded" | "limitexceeded" | "dailylimitexceeded", _) => Meaning::Quota,
            ("ipspaceexhausted" | "ipspaceexhaustedwithdetails", _) => Meaning::Quota,
            ("resourceinusebyanotherresource" | "resourcenotready", _) => Meaning::Passing,
            ("resourcealreadyexists" | "alreadyexists", _) => Meaning::Conflict,
            ("permissionserror", _) => Meaning::Denied,
            ("resourcenotfound", _) => Meaning::NotFound,
            ("conditionnotmet", _) => Meaning::Conflict,
            (_, Some(401)) => Meaning::Credentials,
            (_, Some(403)) => Meaning::Denied,
            (_, Some(404)) => Meaning::NotFound,
            (_, Some(409 | 412)) => Meaning::Conflict,
            (_, Some(429)) => Meaning::Throttle,
            (_, Some(400..=499)) => Meaning::Invalid,
            (_, Some(501)) => Meaning::Unsupported,
            ("internalerror", _) | (_, Some(500..)) => Meaning::Server,
            _ => Meaning::Other,
        }
    }

    /// `Required 'compute.subnetworks.use' permission for 'projects/…'`
    fn lacking(message: &str) -> Option<String> {
        let (named, _) = message.split_once("Required '")?.1.split_once("' permission")?;
        Some(named.to_owned())
    }

    fn remediation(meaning: Meaning, code: &str) -> Option<&'static str> {
        match (meaning, code) {
            (Meaning::Invalid, ORGANIZATION_POLICY) => {
                Some("a policy of the organization forbids it: ask for an exception, or change what is asked for")
            }
            (Meaning::Denied, "accessNotConfigured" | "SERVICE_DISABLED") => {
                Some("enable the Compute Engine API in the project")
            }
            (Meaning::Denied, _) => Some(
                "grant it to the service account of this program (the README of the provider has a role), and check the \
                 scopes of the instance that it runs on",
            ),
            (Meaning::Credentials, _) => {
                Some("Google does not accept the credentials: check the service account or file")
            }
            (Meaning::Quota, code) if folded(code).starts_with("ipspace") => {
                Some("no address of the subnetwork is free: free addresses or use a larger subnetwork")
            }
            (Meaning::Quota, _) => {
                Some("a quota of the project is exhausted: ask for more or remove what is not needed")
            }
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ccm_kit::call::Operation as _;

    use super::*;

    #[test]
    fn names_are_distinct_and_permissions_are_those_of_compute() {
        let mut seen = std::collections::BTreeSet::new();
        for operation in ALL {
            assert!(seen.insert(operation.name()), "{operation:?}");
            let of = if *operation == PERMISSIONS_TEST { "resourcemanager." } else { "compute." };
            assert!(operation.permission().starts_with(of), "{operation:?}");
        }
        assert!(
            ADDRESS_RESERVE.is_mutating() && !INSTANCE_GROUP_INSTANCES.is_mutating() && !OPERATION_WAIT.is_mutating()
        );
    }

    #[test]
    fn the_permission_to_grant_is_that_of_the_message_or_of_the_call() {
        for (message, expected) in [
            (
                "Required 'compute.subnetworks.use' permission for 'projects/p/regions/r/subnetworks/s'",
                "compute.subnetworks.use",
            ),
            ("Required 'compute.forwardingRules.create' permission for 'x'", "compute.forwardingRules.create"),
            ("Required field 'resource' not specified", "compute.forwardingRules.create"),
            ("The caller does not have permission", "compute.forwardingRules.create"),
            ("", "compute.forwardingRules.create"),
        ] {
            let (status, code) = (Some(403), "forbidden".to_owned());
            let failure = call::Failure { status, code, message: message.to_owned(), ..call::Failure::default() };
            let error = ccm_provider::ProviderError::from(call::CallError::new(FORWARDING_RULE_CREATE, failure));
            let class = ccm_provider::ErrorClass::Denied { action: expected.to_owned() };
            assert_eq!(error.class(), class, "{message}");
            let next = format!("ccm lacks {expected}: grant it to the service account of this program");
            assert!(error.to_string().starts_with(&next), "{error}");
        }
    }

    #[test]
    fn reasons_and_codes_of_operations_mean_the_same() {
        for (code, status, expected) in [
            ("quotaExceeded", Some(403), Meaning::Quota),
            ("QUOTA_EXCEEDED", Some(403), Meaning::Quota),
            ("ipSpaceExhausted", Some(403), Meaning::Quota),
            ("IP_SPACE_EXHAUSTED_WITH_DETAILS", None, Meaning::Quota),
            ("rateLimitExceeded", Some(403), Meaning::Throttle),
            (IN_USE, Some(400), Meaning::Passing),
            ("RESOURCE_IN_USE_BY_ANOTHER_RESOURCE", None, Meaning::Passing),
            ("forbidden", Some(403), Meaning::Denied),
            ("notFound", Some(404), Meaning::NotFound),
            ("RESOURCE_NOT_FOUND", None, Meaning::NotFound),
            ("conditionNotMet", Some(412), Meaning::Conflict),
            (ORGANIZATION_POLICY, Some(412), Meaning::Invalid),
            ("invalid", Some(400), Meaning::Invalid),
            ("backendError", Some(503), Meaning::Server),
            ("INTERNAL_ERROR", None, Meaning::Server),
        ] {
            assert_eq!(Operation::meaning(code, status), expected, "{code}");
        }
    }
}
