//! Tags that record which cloud objects belong to this cluster.
//!
//! Upstream: `pkg/providers/v1/tags.go`. Pure functions of tags.

use ccm_provider::ServiceKey;
use serde::{Deserialize, Serialize};

use crate::client::{Query, Tags};

#[cfg(test)]
mod tests;

/// `kubernetes.io/cluster/<ID>`: the object belongs to the cluster `<ID>`.
pub(crate) const CLUSTER_PREFIX: &str = "kubernetes.io/cluster/";
/// The tag used before Kubernetes 1.6; its value is the cluster's ID.
pub(crate) const LEGACY_KEY: &str = "KubernetesCluster";
/// The Service that an object was created for, as `<namespace>/<name>`.
pub(crate) const SERVICE_KEY: &str = "kubernetes.io/service-name";
/// Tag value of objects that are deleted with the cluster. Any other value means membership only.
const OWNED: &str = "owned";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Ownership {
    /// Empty with `--allow-untagged-cloud`: then every object is a member and none is owned.
    pub(crate) cluster: String,
    #[serde(default, rename = "legacyTag")]
    pub(crate) legacy: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum OwnershipError {
    #[error("clusterID tags did not match: {id:?} vs {legacy:?}; {remediation}")]
    Mismatch { id: String, legacy: String, remediation: &'static str },
    #[error(
        "Found multiple cluster tags with prefix {CLUSTER_PREFIX} ({first:?} and {second:?}); leave the tag of one cluster on the instance, or name it in the cloud config: [Global] KubernetesClusterID"
    )]
    Several { first: String, second: String },
    #[error(
        "AWS cloud failed to find ClusterID; tag the instance that this program runs on with {CLUSTER_PREFIX}<cluster ID> = owned, or set KubernetesClusterID in section [Global] of the cloud config, or run with --allow-untagged-cloud"
    )]
    Missing,
}

impl Ownership {
    /// From `KubernetesClusterTag` and `KubernetesClusterID` of the configuration; `None` when neither is set.
    pub(crate) fn from_config(tag: &str, id: &str) -> Result<Option<Self>, OwnershipError> {
        let remediation =
            "set KubernetesClusterTag and KubernetesClusterID in section [Global] to the same value, or only one";
        Self::from_ids(tag, id, remediation)
    }

    /// From the tags of the instance that this program runs on.
    pub(crate) fn from_tags(tags: &Tags) -> Result<Self, OwnershipError> {
        let mut ids = tags.keys().filter_map(|key| key.strip_prefix(CLUSTER_PREFIX)).filter(|id| !id.is_empty());
        let id = ids.next().unwrap_or_default();
        if let Some(second) = ids.next() {
            return Err(OwnershipError::Several { first: id.to_owned(), second: second.to_owned() });
        }
        let legacy = tags.get(LEGACY_KEY).map(String::as_str).unwrap_or_default();
        let remediation = "make the cluster tags of the instance that this program runs on agree";
        Self::from_ids(legacy, id, remediation)?.ok_or(OwnershipError::Missing)
    }

    pub(crate) fn untagged() -> Self {
        Self { cluster: String::new(), legacy: false }
    }

    fn from_ids(legacy: &str, id: &str, remediation: &'static str) -> Result<Option<Self>, OwnershipError> {
        match (legacy, id) {
            ("", "") => Ok(None),
            ("", id) => Ok(Some(Self { cluster: id.to_owned(), legacy: false })),
            (legacy, id) if id.is_empty() || id == legacy => {
                Ok(Some(Self { cluster: legacy.to_owned(), legacy: true }))
            }
            (legacy, id) => Err(OwnershipError::Mismatch { id: id.to_owned(), legacy: legacy.to_owned(), remediation }),
        }
    }

    /// `kubernetes.io/cluster/<ID>`; `None` without a cluster ID.
    pub(crate) fn cluster_key(&self) -> Option<String> {
        if self.cluster.is_empty() { None } else { Some(format!("{CLUSTER_PREFIX}{}", self.cluster)) }
    }

    /// Queries for objects with the tag of the cluster, and for those with the legacy tag; `None` without a cluster ID.
    pub(crate) fn marked(&self, query: &Query) -> Option<(Query, Query)> {
        let marked = query.clone().and("tag-key", [self.cluster_key()?]);
        Some((marked, query.clone().and(&format!("tag:{LEGACY_KEY}"), [&self.cluster])))
    }

    /// Whether an object belongs to the cluster, perhaps among others.
    pub(crate) fn is_member(&self, tags: &Tags) -> bool {
        let Some(key) = self.cluster_key() else { return true };
        tags.contains_key(&key) || self.has_legacy_tag(tags)
    }

    /// Whether an object may be deleted. Never without a cluster ID.
    pub(crate) fn is_owned(&self, tags: &Tags) -> bool {
        let Some(key) = self.cluster_key() else { return false };
        self.has_legacy_tag(tags) || tags.get(&key).is_some_and(|value| value == OWNED)
    }

    /// The legacy tag counts as ownership even if new objects do not get it.
    fn has_legacy_tag(&self, tags: &Tags) -> bool {
        tags.get(LEGACY_KEY).is_some_and(|value| *value == self.cluster)
    }

    /// The cluster's tags of a new object. Empty without a cluster ID.
    pub(crate) fn cluster_tags(&self) -> Tags {
        let mut tags = Tags::new();
        if let Some(key) = self.cluster_key() {
            tags.insert(key, OWNED.to_owned());
            if self.legacy {
                tags.insert(LEGACY_KEY.to_owned(), self.cluster.clone());
            }
        }
        tags
    }

    /// All tags of a new object: the user's without reserved keys, then the ownership tags.
    pub(crate) fn tags(&self, user: &Tags, service: Option<&ServiceKey>) -> Tags {
        let mut tags = self.user_tags(user);
        tags.extend(service.map(service_tag));
        tags.extend(self.cluster_tags());
        tags
    }

    pub(crate) fn user_tags(&self, user: &Tags) -> Tags {
        user.iter().filter(|(key, _)| !self.is_reserved(key)).map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// Whether a key is an ownership tag. A user's value would change the owner.
    pub(crate) fn is_reserved(&self, key: &str) -> bool {
        key == SERVICE_KEY
            || key == LEGACY_KEY
            || (!self.cluster.is_empty() && key.strip_prefix(CLUSTER_PREFIX) == Some(&self.cluster))
    }

    /// The cluster's tags that an object lacks because it was created before tags could be part of the creation. An
    /// empty value counts as missing; a different value belongs to another cluster, which the error reports.
    pub(crate) fn repair(&self, resource: &str, found: &Tags) -> Result<Tags, String> {
        let mut missing = Tags::new();
        for (key, expected) in self.cluster_tags() {
            match found.get(&key).map(String::as_str) {
                Some(value) if value == expected => {}
                None | Some("") => {
                    missing.insert(key, expected);
                }
                Some(value) => {
                    return Err(format!(
                        "resource {resource:?} has tag belonging to another cluster: {key:?}={value:?} (expected {expected:?}); \
                         remove the tag if the resource is ours, or rename or delete the resource"
                    ));
                }
            }
        }
        Ok(missing)
    }
}

/// Whether an object has no cluster's tag. The legacy tag does not count here.
pub(crate) fn is_untagged(tags: &Tags) -> bool {
    !tags.keys().any(|key| key.starts_with(CLUSTER_PREFIX))
}

/// Whether any cluster has tagged the object.
pub(crate) fn names_a_cluster(tags: &Tags) -> bool {
    tags.keys().any(|key| is_of_cluster(key))
}

/// Whether a tag names a cluster.
pub(crate) fn is_of_cluster(key: &str) -> bool {
    key.starts_with(CLUSTER_PREFIX) || key == LEGACY_KEY
}

/// The Service in the tags of an object.
pub(crate) fn service_of(tags: &Tags) -> Option<&str> {
    tags.get(SERVICE_KEY).map(String::as_str)
}

pub(crate) fn service_tag(service: &ServiceKey) -> (String, String) {
    (SERVICE_KEY.to_owned(), service.to_string())
}

pub(crate) fn is_of_service(tags: &Tags, service: &ServiceKey) -> bool {
    tags.get(SERVICE_KEY).is_some_and(|value| *value == service.to_string())
}
