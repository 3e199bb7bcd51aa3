//! Which lists of which kind a strategic merge patch merges, and by what.

use crate::kind::Kind;

/// How a strategic merge patch treats a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ListRule {
    /// The patch replaces the list.
    Atomic,
    /// Elements are objects, identified by this field.
    Key(&'static str),
    /// Elements are plain values; the patch adds to them.
    Set,
}

/// The rule of the list at a dotted `path` below the object.
pub(super) fn rule(kind: &Kind, path: &str) -> ListRule {
    match (kind.plural, path) {
        (_, "metadata.ownerReferences") => ListRule::Key("uid"),
        (_, "metadata.finalizers") | ("nodes", "spec.podCIDRs") => ListRule::Set,
        ("nodes", "status.addresses" | "status.conditions") | ("services" | "namespaces", "status.conditions") => {
            ListRule::Key("type")
        }
        ("services", "spec.ports") => ListRule::Key("port"),
        ("serviceaccounts", "secrets") => ListRule::Key("name"),
        _ => ListRule::Atomic,
    }
}
