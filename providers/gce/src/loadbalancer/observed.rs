//! The observed state of the cloud, which plans are made from.

use std::collections::{BTreeMap, BTreeSet};

use ccm_provider::ProviderError;
use serde::{Deserialize, Serialize};

use super::facts::NetworkFacts;
use super::hosts::Host;
use crate::annotations::Scheme;
use crate::client::balancing::{Address, BackendService, Firewall, ForwardingRule, HealthCheck, TargetPool};
use crate::client::resource::Collection;
use crate::ownership::{Names, shown_description};

/// The objects that were read. A missing object does not exist, or no plan for these Services needs it, or it is unread.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    pub(crate) cluster_id: String,
    pub(crate) network: NetworkFacts,
    pub(crate) rules: BTreeMap<String, ForwardingRule>,
    /// By name.
    pub(crate) addresses: BTreeMap<String, Address>,
    /// By address; only those that were looked up.
    pub(crate) reserved: BTreeMap<String, Address>,
    /// The forwarding rules that have one of these addresses, by URL as a user of it; without those that may not be read.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) sharers: BTreeMap<String, ForwardingRule>,
    /// The range of each subnetwork, by URL, if a Service asks for an internal address that is not reserved.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) ranges: BTreeMap<String, String>,
    /// The instances that have an address which a Service asks for, by address.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) in_use: BTreeMap<String, String>,
    /// The balancers with a reservation, of which this process waits for an operation.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) reserving: BTreeSet<String>,
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
    /// The zones in which the group could not be created.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) refused_groups: BTreeSet<String>,
    /// What could not be read, by [`Observed::key`]. Of instance groups and instances the names are zones; without a
    /// name, a whole list.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) unread: BTreeMap<String, ProviderError>,
}

impl Observed {
    /// Removes the descriptions that users wrote: they may contain anything.
    pub(crate) fn strip(&mut self) {
        let rules = self.rules.values_mut().chain(self.sharers.values_mut()).map(|it| &mut it.description);
        let pools = self.pools.values_mut().map(|it| &mut it.description);
        let checks = self.checks.values_mut().chain(self.http_checks.values_mut()).map(|it| &mut it.description);
        let firewalls = self.firewalls.values_mut().map(|it| &mut it.description);
        let mut backends = Vec::new();
        for service in self.backends.values_mut() {
            backends.push(&mut service.description);
            for backend in service.backends.iter_mut().filter_map(serde_json::Value::as_object_mut) {
                backend.remove("description");
            }
        }
        let addresses = self.addresses.values_mut().chain(self.reserved.values_mut()).map(|it| &mut it.description);
        for description in rules.chain(pools).chain(addresses).chain(checks).chain(firewalls).chain(backends) {
            *description = shown_description(description).to_owned();
        }
    }

    pub(crate) fn rule(&self, names: &Names) -> Option<&ForwardingRule> {
        self.rules.get(&names.balancer)
    }

    pub(crate) fn key(kind: Collection, name: &str) -> String {
        format!("{}/{name}", kind.as_str())
    }

    /// The reason why it is not known whether an object exists.
    pub(crate) fn unread(&self, kind: Collection, name: &str) -> Option<&ProviderError> {
        if self.unread.is_empty() { None } else { self.unread.get(&Self::key(kind, name)) }
    }

    /// The reason why some objects of a kind are not known.
    pub(crate) fn unread_of(&self, kind: Collection) -> Option<&ProviderError> {
        let all = self.unread.range(Self::key(kind, "")..);
        all.take_while(|(key, _)| key.split('/').next() == Some(kind.as_str())).map(|(_, error)| error).next()
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
