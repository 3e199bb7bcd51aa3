//! The parts of a Kubernetes Node that the core and the providers read.

use std::borrow::Borrow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::address::NodeAddress;
use crate::well_known::{LABEL_EXCLUDE_BALANCERS, TAINT_TO_BE_DELETED};

/// Name of a Node object.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<Arc<str>>> From<T> for NodeName {
    fn from(name: T) -> Self {
        Self(name.into())
    }
}

impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl std::ops::Deref for NodeName {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.0, f)
    }
}

/// A Node in the stores. Shared by many readers without copies.
pub type NodeRef = Arc<Node>;

/// The cached fields of a Node. Images, managed fields, capacities and other annotations are not kept in memory.
///
/// Snapshots serialize it with these fields, which differ from those of the API.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Node {
    /// `metadata.name`
    pub name: NodeName,
    /// `metadata.uid`
    pub uid: Box<str>,
    /// `metadata.resourceVersion`
    pub resource_version: Box<str>,
    /// `metadata.creationTimestamp`
    #[serde(skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// `metadata.labels`
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub labels: Pairs,
    /// The parts of `metadata.annotations` that the core or the provider reads.
    #[serde(skip_serializing_if = "Pairs::is_empty")]
    pub annotations: Pairs,
    /// `spec.providerID`; `None` when empty.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<Box<str>>,
    /// `spec.podCIDRs`, or `spec.podCIDR` if only that is set.
    #[serde(skip_serializing_if = "slice_is_empty")]
    pub pod_cidrs: Box<[Box<str>]>,
    /// `spec.taints`
    #[serde(skip_serializing_if = "slice_is_empty")]
    pub taints: Box<[Taint]>,
    /// `status.addresses`
    #[serde(skip_serializing_if = "slice_is_empty")]
    pub addresses: Box<[NodeAddress]>,
    /// Status of the `Ready` condition; `None` if the condition is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ready: Option<ConditionStatus>,
    /// The `NetworkUnavailable` condition: status and reason.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network_unavailable: Option<(ConditionStatus, Arc<str>)>,
}

impl Default for NodeName {
    fn default() -> Self {
        Self(Arc::from(""))
    }
}

impl Node {
    /// Whether the node has a taint with this key, whatever its value and effect.
    pub fn has_taint(&self, key: &str) -> bool {
        self.taints.iter().any(|taint| &*taint.key == key)
    }

    /// Whether the user excluded the node from all load balancers. A value that parses as false does not exclude it.
    pub fn is_excluded_from_balancers(&self) -> bool {
        let value = self.labels.get(LABEL_EXCLUDE_BALANCERS);
        value.is_some_and(|value| !matches!(value, "0" | "f" | "F" | "false" | "FALSE" | "False"))
    }

    /// The reason why the node is not a host of load balancers; `None` if it is one. Readiness, cordons and roles do not
    /// matter: health checks cover them.
    pub fn left_out_of_balancers(&self) -> Option<String> {
        if self.deleting {
            Some("it is being deleted".to_owned())
        } else if self.is_excluded_from_balancers() {
            Some(format!("it has the label {LABEL_EXCLUDE_BALANCERS}"))
        } else if self.has_taint(TAINT_TO_BE_DELETED) {
            Some(format!("it has the taint {TAINT_TO_BE_DELETED}: the autoscaler is about to remove it"))
        } else {
            None
        }
    }

    /// The part of the provider ID before `://`.
    pub fn provider_scheme(&self) -> Option<&str> {
        self.provider_id.as_deref()?.split_once("://").map(|(scheme, _)| scheme)
    }

    /// The provider ID, or an empty text.
    pub fn provider_id_or_empty(&self) -> &str {
        self.provider_id.as_deref().unwrap_or_default()
    }
}

/// The schemes of the provider IDs of one cloud, which distinguish its nodes from those of other clouds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schemes {
    own: Arc<[Box<str>]>,
    #[serde(skip)]
    strict: bool,
}

impl Schemes {
    /// The schemes of a cloud; new provider IDs use the first. If empty, no node belongs to another cloud.
    pub fn new<'a>(schemes: impl IntoIterator<Item = &'a str>) -> Self {
        Self { own: schemes.into_iter().map(Box::from).collect(), strict: false }
    }

    /// The same, if several cloud controller managers share the cluster: a provider ID without a scheme then belongs
    /// to another cloud too.
    #[must_use]
    pub fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    /// Whether these are [`Schemes::strict`].
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Whether a provider ID belongs to another cloud. False without a provider ID.
    pub fn is_foreign(&self, provider_id: Option<&str>) -> bool {
        let Some(id) = provider_id.filter(|id| !id.is_empty() && !self.own.is_empty()) else { return false };
        let scheme = id.split_once("://").map(|(scheme, _)| scheme);
        scheme.map_or(self.strict, |scheme| self.own.iter().all(|own| **own != *scheme))
    }
}

impl fmt::Display for Schemes {
    /// `aws://`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all: Vec<String> = self.own.iter().map(|scheme| format!("{scheme}://")).collect();
        f.write_str(&all.join(" or "))
    }
}

/// Status of a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum ConditionStatus {
    /// `True`
    True,
    /// `False`
    False,
    /// `Unknown`, or any other word.
    Unknown,
}

impl From<&str> for ConditionStatus {
    fn from(word: &str) -> Self {
        match word {
            "True" => Self::True,
            "False" => Self::False,
            _ => Self::Unknown,
        }
    }
}

/// A small sorted map of texts; keys and values are shared between objects with the same texts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Pairs(Box<[(Arc<str>, Arc<str>)]>);

impl Pairs {
    /// The value of a key.
    pub fn get(&self, key: &str) -> Option<&str> {
        let at = self.0.binary_search_by(|(k, _)| (**k).cmp(key)).ok()?;
        self.0.get(at).map(|(_, value)| &**value)
    }

    /// Whether the map has the key.
    pub fn contains_key(&self, key: &str) -> bool {
        self.get(key).is_some()
    }

    /// All pairs in key order.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }

    /// Whether the map is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for Pairs {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_map(self.iter())
    }
}

impl<'de> Deserialize<'de> for Pairs {
    fn deserialize<D: serde::Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        Ok(BTreeMap::<Arc<str>, Arc<str>>::deserialize(from)?.into_iter().collect())
    }
}

impl<K: Into<Arc<str>>, V: Into<Arc<str>>> FromIterator<(K, V)> for Pairs {
    fn from_iter<I: IntoIterator<Item = (K, V)>>(pairs: I) -> Self {
        let mut pairs: Vec<(Arc<str>, Arc<str>)> = pairs.into_iter().map(|(k, v)| (k.into(), v.into())).collect();
        pairs.sort_by(|a, b| a.0.cmp(&b.0));
        pairs.dedup_by(|later, earlier| {
            let same = later.0 == earlier.0;
            if same {
                std::mem::swap(&mut later.1, &mut earlier.1);
            }
            same
        });
        Self(pairs.into())
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Taint {
    /// Key.
    pub key: Arc<str>,
    /// Value; empty means none.
    #[serde(default, skip_serializing_if = "str_is_empty")]
    pub value: Arc<str>,
    /// `NoSchedule`, `PreferNoSchedule` or `NoExecute`.
    #[serde(default)]
    pub effect: Arc<str>,
    /// The time when the taint was added, in the API server's spelling.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_added: Option<Arc<str>>,
}

fn str_is_empty(text: &Arc<str>) -> bool {
    text.is_empty()
}

fn slice_is_empty<T>(slice: &[T]) -> bool {
    slice.is_empty()
}

impl Taint {
    /// Whether key and effect are the same; the value does not matter.
    pub fn same_identity(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// The identity of a taint: key and effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TaintId {
    /// Key.
    pub key: &'static str,
    /// Effect.
    pub effect: TaintEffect,
}

/// The effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TaintEffect {
    /// New pods are not scheduled.
    NoSchedule,
    /// New pods are scheduled elsewhere if possible.
    PreferNoSchedule,
    /// Running pods are evicted.
    NoExecute,
}

impl TaintId {
    /// Whether the taint has this identity, whatever its value.
    pub fn is(self, taint: &Taint) -> bool {
        *taint.key == *self.key && *taint.effect == *self.effect.as_str()
    }

    /// Whether the node has this taint, whatever its value.
    pub fn is_on(self, node: &Node) -> bool {
        node.taints.iter().any(|taint| self.is(taint))
    }
}

impl TaintEffect {
    /// The API server's spelling.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }
}

impl fmt::Display for TaintId {
    /// `key:NoExecute`
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.key, self.effect.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_of_other_clouds_have_other_schemes() {
        let two = Schemes::new(["openstack", "nova"]);
        for (id, foreign) in [
            (Some("openstack:///a"), false),
            (Some("nova://r/a"), false),
            (Some("aws:///a"), true),
            (Some("openstackx:///a"), true),
            (Some("/a"), false),
            (Some(""), false),
            (None, false),
        ] {
            assert_eq!(two.is_foreign(id), foreign, "{id:?}");
            assert!(!Schemes::new([]).is_foreign(id), "{id:?}");
        }
        assert_eq!(two.to_string(), "openstack:// or nova://");
        let strict = two.strict();
        for (id, foreign) in [(Some("nova://r/a"), false), (Some("aws:///a"), true), (Some("/a"), true), (None, false)]
        {
            assert_eq!(strict.is_foreign(id), foreign, "{id:?}");
            assert!(!Schemes::new([]).strict().is_foreign(id), "{id:?}");
        }
    }
}
