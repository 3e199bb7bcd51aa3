//! The kinds that are served, and what sets them apart.

/// One served resource type.
#[derive(Debug, PartialEq, Eq)]
pub struct Kind {
    /// API group; empty for the core group.
    pub group: &'static str,
    /// API version.
    pub version: &'static str,
    /// Plural name as in URLs.
    pub plural: &'static str,
    /// Singular name as kubectl accepts it.
    pub singular: &'static str,
    /// Kind name as in objects.
    pub kind: &'static str,
    /// Short names as kubectl accepts them.
    pub short: &'static [&'static str],
    /// Whether objects live in namespaces.
    pub namespaced: bool,
    /// Whether there is a `/status` subresource.
    pub status: bool,
    /// Whether a PUT on a missing name makes the object.
    pub create_on_update: bool,
    /// Whether a PUT without a resourceVersion overwrites.
    pub unconditional_update: bool,
    /// Whether DELETE answers with the object instead of a Status.
    pub returns_deleted: bool,
    pub(crate) index: usize,
}

const CORE: Kind = Kind {
    group: "",
    version: "v1",
    plural: "",
    singular: "",
    kind: "",
    short: &[],
    namespaced: true,
    status: false,
    create_on_update: false,
    unconditional_update: true,
    returns_deleted: false,
    index: 0,
};

/// Every served kind.
pub static KINDS: [Kind; 10] = [
    Kind {
        plural: "namespaces",
        singular: "namespace",
        kind: "Namespace",
        short: &["ns"],
        namespaced: false,
        status: true,
        index: 0,
        ..CORE
    },
    Kind {
        plural: "nodes",
        singular: "node",
        kind: "Node",
        short: &["no"],
        namespaced: false,
        status: true,
        index: 1,
        ..CORE
    },
    Kind {
        plural: "services",
        singular: "service",
        kind: "Service",
        short: &["svc"],
        status: true,
        create_on_update: true,
        returns_deleted: true,
        index: 2,
        ..CORE
    },
    Kind {
        plural: "events",
        singular: "event",
        kind: "Event",
        short: &["ev"],
        create_on_update: true,
        index: 3,
        ..CORE
    },
    Kind { plural: "secrets", singular: "secret", kind: "Secret", index: 4, ..CORE },
    Kind { plural: "configmaps", singular: "configmap", kind: "ConfigMap", short: &["cm"], index: 5, ..CORE },
    Kind {
        plural: "serviceaccounts",
        singular: "serviceaccount",
        kind: "ServiceAccount",
        short: &["sa"],
        returns_deleted: true,
        index: 6,
        ..CORE
    },
    Kind {
        plural: "persistentvolumes",
        singular: "persistentvolume",
        kind: "PersistentVolume",
        short: &["pv"],
        namespaced: false,
        status: true,
        returns_deleted: true,
        index: 7,
        ..CORE
    },
    Kind {
        group: "coordination.k8s.io",
        plural: "leases",
        singular: "lease",
        kind: "Lease",
        create_on_update: true,
        unconditional_update: false,
        index: 8,
        ..CORE
    },
    // Stored and served as they come, for `kubectl describe node`, which lists them.
    Kind { plural: "pods", singular: "pod", kind: "Pod", short: &["po"], status: true, index: 9, ..CORE },
];

impl Kind {
    /// The kind with this plural name (plural names are unique among the served kinds).
    #[must_use]
    pub fn by_plural(plural: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// `v1` or `group/v1`.
    #[must_use]
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }

    /// `nodes` or `leases.coordination.k8s.io`, as error messages name the resource.
    #[must_use]
    pub fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.to_owned() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `Node` or `Lease.coordination.k8s.io`, as validation errors name the kind.
    #[must_use]
    pub fn qualified_kind(&self) -> String {
        if self.group.is_empty() { self.kind.to_owned() } else { format!("{}.{}", self.kind, self.group) }
    }

    /// The opening of every stored object: the type first, so that list items can share the rest of the bytes.
    pub(crate) fn prefix(&self) -> String {
        format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\"", self.kind, self.api_version())
    }
}
