//! The RBAC permissions of the process, declared beside the code that needs them.
//!
//! The shipped RBAC is generated from these declarations (`cargo xtask manifests`), and a test compares it with the
//! audit log of a run: no request is refused, and no grant is unused. To add a call, add its permission here or to the
//! `PERMISSIONS` of the module that makes it.

/// One grant: these verbs on this resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Permission {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// Resource in the plural, with its subresource: `nodes`, `services/status`.
    pub resource: &'static str,
    /// Verbs as RBAC spells them. A wildcard is never needed.
    pub verbs: &'static [&'static str],
    /// Names of the objects; empty for all. RBAC cannot limit `create` by name, except on subresources.
    pub names: &'static [&'static str],
    /// The namespace; `None` for objects without one and for all namespaces.
    pub namespace: Option<&'static str>,
    /// Purpose, in a few words; shipped as a comment.
    pub why: &'static str,
    /// The verb that serves where these are refused; empty if nothing needs them. `None`: something fails without them.
    pub or: Option<&'static str>,
}

impl Permission {
    /// A grant on all objects.
    pub const fn new(
        group: &'static str,
        resource: &'static str,
        verbs: &'static [&'static str],
        why: &'static str,
    ) -> Self {
        Self { group, resource, verbs, names: &[], namespace: None, why, or: None }
    }

    /// The same in one namespace.
    #[must_use]
    pub const fn within(self, namespace: &'static str) -> Self {
        Self { namespace: Some(namespace), ..self }
    }

    /// The same, but another verb serves where these are refused.
    #[must_use]
    pub const fn or(self, verb: &'static str) -> Self {
        Self { or: Some(verb), ..self }
    }

    /// The same on these objects only.
    #[must_use]
    pub const fn named(self, names: &'static [&'static str]) -> Self {
        Self { names, ..self }
    }
}

/// The default namespace of Leases and service accounts.
pub const SYSTEM_NAMESPACE: &str = "kube-system";

/// Default of `--leader-elect-resource-name`.
pub const LEASE: &str = "cloud-controller-manager";

/// Lease of `--enable-leader-migration` without a file.
pub const MIGRATION_LEASE: &str = "cloud-provider-extraction-migration";

/// The election over [`LEASE`].
pub const ELECTION: &[Permission] = &[
    Permission::new("coordination.k8s.io", "leases", &["create"], "create the Lease of the leader election")
        .within(SYSTEM_NAMESPACE),
    Permission::new("coordination.k8s.io", "leases", &["get", "update"], "take, renew and release that Lease")
        .within(SYSTEM_NAMESPACE)
        .named(&[LEASE]),
    Permission::new("coordination.k8s.io", "leases", &["watch"], "learn at once that it was released")
        .within(SYSTEM_NAMESPACE)
        .named(&[LEASE])
        .or("get"),
];

/// The permissions for the election over [`MIGRATION_LEASE`], in addition to [`ELECTION`].
pub const LEADER_MIGRATION: &[Permission] = &[
    Permission::new("coordination.k8s.io", "leases", &["get", "update"], "the Lease of leader migration")
        .within(SYSTEM_NAMESPACE)
        .named(&[MIGRATION_LEASE]),
    Permission::new("coordination.k8s.io", "leases", &["watch"], "learn at once that it was released")
        .within(SYSTEM_NAMESPACE)
        .named(&[MIGRATION_LEASE])
        .or("get"),
];

/// The recorder: events go to the namespace of the object, those on nodes to `default`.
pub const EVENTS: &[Permission] =
    &[Permission::new("", "events", &["create", "patch"], "events about the objects that the controllers manage")];

/// The stores that all controllers share.
pub const STORES: &[Permission] = &[
    Permission::new("", "nodes", &["list", "watch"], "shared store of nodes"),
    Permission::new("", "services", &["list", "watch"], "shared store of Services"),
];

/// Delegated authentication and authorization of requests to this program's port. A role that every cluster has for
/// this purpose permits reading the ConfigMap `extension-apiserver-authentication`.
pub const DELEGATED: &[Permission] = &[
    Permission::new(
        "authentication.k8s.io",
        "tokenreviews",
        &["create"],
        "authenticate requests to /metrics and the other endpoints",
    ),
    Permission::new("authorization.k8s.io", "subjectaccessreviews", &["create"], "authorize these requests"),
];

/// `--use-service-account-credentials`: the creation of the controllers' service accounts. Every cluster has the
/// namespace, so no permission to create it is needed.
pub const MAKE_ACCOUNTS: [Permission; 2] = [
    Permission::new("", "namespaces", &["get"], "check that the namespace exists before a service account is created")
        .within(SYSTEM_NAMESPACE)
        .named(&[SYSTEM_NAMESPACE])
        .or(""),
    Permission::new("", "serviceaccounts", &["create"], "create the service account of a controller if it is missing")
        .within(SYSTEM_NAMESPACE),
];

/// The same with their use.
pub const ACCOUNTS: &[Permission] =
    &[MAKE_ACCOUNTS[0], MAKE_ACCOUNTS[1], account(CLIENT_NAMES)[0], account(CLIENT_NAMES)[1]];

/// The use of these service accounts, once they exist.
pub const fn account(names: &'static [&'static str]) -> [Permission; 2] {
    let find = Permission::new("", "serviceaccounts", &["get"], "find the service account of a controller");
    let why = "a short-lived token for that controller alone";
    let token = Permission::new("", "serviceaccounts/token", &["create"], why);
    [find.within(SYSTEM_NAMESPACE).named(names).or("create"), token.within(SYSTEM_NAMESPACE).named(names)]
}

/// The service accounts of the controllers.
pub const CLIENT_NAMES: &[&str] = &["node-controller", "pvl-controller", "route-controller", "service-controller"];

/// The accounts to which every cluster grants the permissions that the controllers need: by default it binds the roles
/// `system:controller:<name>` to them.
pub const BORN_WITH_ROLES: &[&str] = &["node-controller", "route-controller", "service-controller"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_declaration_has_a_wildcard_or_limits_a_plain_create_by_name() {
        for part in [ELECTION, LEADER_MIGRATION, EVENTS, STORES, DELEGATED, ACCOUNTS] {
            for grant in part {
                let words = [grant.verbs, grant.names, &[grant.group, grant.resource]].concat();
                assert!(!words.iter().any(|word| word.contains('*')), "{grant:?}");
                assert!(!grant.verbs.is_empty() && !grant.why.is_empty(), "{grant:?}");
                let plain_create = grant.verbs.contains(&"create") && !grant.resource.contains('/');
                assert!(grant.names.is_empty() || !plain_create, "{grant:?}");
            }
        }
    }
}
