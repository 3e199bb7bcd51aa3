//! The served kinds.

/// One served resource type, of version `v1`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Kind {
    /// API group; empty for the core group.
    pub(crate) group: &'static str,
    pub(crate) plural: &'static str,
    pub(crate) kind: &'static str,
    /// Short name in kubectl; empty for none.
    pub(crate) short: &'static str,
    pub(crate) namespaced: bool,
    /// Whether the kind has a `/status` subresource.
    pub(crate) status: bool,
    /// Whether a PUT with an unknown name creates the object in a real cluster.
    pub(crate) create_on_update: bool,
    /// Whether DELETE returns the object instead of a Status.
    pub(crate) returns_deleted: bool,
    pub(crate) index: usize,
}

const fn core(index: usize, plural: &'static str, kind: &'static str, short: &'static str) -> Kind {
    let (namespaced, status, create_on_update, returns_deleted) = (true, false, false, false);
    Kind { group: "", plural, kind, short, namespaced, status, create_on_update, returns_deleted, index }
}

/// All served kinds.
pub(crate) static KINDS: [Kind; 9] = [
    Kind { namespaced: false, status: true, ..core(0, "namespaces", "Namespace", "ns") },
    Kind { namespaced: false, status: true, ..core(1, "nodes", "Node", "no") },
    Kind { status: true, create_on_update: true, returns_deleted: true, ..core(2, "services", "Service", "svc") },
    Kind { create_on_update: true, ..core(3, "events", "Event", "ev") },
    Kind {
        namespaced: false,
        status: true,
        returns_deleted: true,
        ..core(4, "persistentvolumes", "PersistentVolume", "pv")
    },
    Kind { group: "coordination.k8s.io", create_on_update: true, ..core(5, "leases", "Lease", "") },
    // Stored and served unchanged, for `kubectl describe node`, which lists them.
    Kind { status: true, ..core(6, "pods", "Pod", "po") },
    core(7, "configmaps", "ConfigMap", "cm"),
    Kind { group: "discovery.k8s.io", ..core(8, "endpointslices", "EndpointSlice", "") },
];

impl Kind {
    /// The kind with this plural name (plural names are unique among the served kinds).
    pub(crate) fn by_plural(plural: &str) -> Option<&'static Kind> {
        KINDS.iter().find(|kind| kind.plural == plural)
    }

    /// `v1` or `group/v1`.
    pub(crate) fn api_version(&self) -> String {
        if self.group.is_empty() { "v1".to_owned() } else { format!("{}/v1", self.group) }
    }

    fn of_group(&self, name: &str) -> String {
        if self.group.is_empty() { name.to_owned() } else { format!("{name}.{}", self.group) }
    }

    /// `nodes` or `leases.coordination.k8s.io`: the resource in error messages.
    pub(crate) fn qualified(&self) -> String {
        self.of_group(self.plural)
    }

    /// `Node` or `Lease.coordination.k8s.io`: the kind in validation errors.
    pub(crate) fn qualified_kind(&self) -> String {
        self.of_group(self.kind)
    }

    /// The first bytes of every stored object: the type, so that list items can share the remaining bytes.
    pub(crate) fn prefix(&self) -> String {
        format!("{{\"kind\":\"{}\",\"apiVersion\":\"{}\"", self.kind, self.api_version())
    }
}
