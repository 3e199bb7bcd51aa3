//! Which cloud objects belong to this cluster, and how they are marked.

/// The cluster whose tags count.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Ownership {
    /// Empty with `--allow-untagged-cloud`: then everything is a member and nothing is owned.
    pub(crate) cluster: String,
    /// Whether the tag `KubernetesCluster` is in use.
    pub(crate) legacy: bool,
}
