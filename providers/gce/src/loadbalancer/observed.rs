//! The observed state of the cloud, which plans are made from.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::hosts::Host;
use super::surroundings::NetworkFacts;
use crate::annotations::Scheme;
use crate::client::balancing::{Address, BackendService, Firewall, ForwardingRule, HealthCheck, TargetPool};
use crate::ownership::Names;

/// The objects that were read. A missing object does not exist, or no plan for these Services needs it.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) cluster_id: String,
    pub(crate) network: NetworkFacts,
    pub(crate) rules: BTreeMap<String, ForwardingRule>,
    /// By name.
    pub(crate) addresses: BTreeMap<String, Address>,
    /// By address; only those that were looked up.
    pub(crate) reserved: BTreeMap<String, Address>,
    pub(crate) pools: BTreeMap<String, TargetPool>,
    pub(crate) backends: BTreeMap<String, BackendService>,
    pub(crate) firewalls: BTreeMap<String, Firewall>,
    /// From the older collection, for target pools.
    pub(crate) http_checks: BTreeMap<String, HealthCheck>,
    pub(crate) checks: BTreeMap<String, HealthCheck>,
    /// Members of instance groups, by zone and name.
    pub(crate) groups: BTreeMap<String, BTreeMap<String, BTreeSet<Host>>>,
    /// The kinds of which only shared objects were found, which nothing uses.
    #[serde(default)]
    pub(crate) unused: BTreeSet<Scheme>,
    /// Instances of nodes, if the instance does not exist.
    pub(crate) missing: BTreeSet<Host>,
    /// For each instance the tag that its name begins with, if no tags are configured.
    #[serde(with = "pairs")]
    pub(crate) tags: BTreeMap<Host, Option<String>>,
}

impl Observed {
    pub(crate) fn rule(&self, names: &Names) -> Option<&ForwardingRule> {
        self.rules.get(&names.balancer)
    }
}

/// JSON allows only strings as keys.
mod pairs {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{BTreeMap, Host};

    type Tags = BTreeMap<Host, Option<String>>;

    pub(super) fn serialize<S: Serializer>(tags: &Tags, to: S) -> Result<S::Ok, S::Error> {
        tags.iter().collect::<Vec<_>>().serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Tags, D::Error> {
        Ok(Vec::<(Host, Option<String>)>::deserialize(from)?.into_iter().collect())
    }
}
