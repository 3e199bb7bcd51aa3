//! The observed state of the cloud, which plans are made from.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ccm_provider::{ProviderError, Service};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::time::Instant;

use super::env::Env;
use super::json;
use super::names::Family;
use super::tags;
use super::wanted::{Destinations, Wanted, access, destinations};
use crate::client::id::{ArmId, same};

/// The delay before what a plan lacks is read.
const SOON: Duration = Duration::from_secs(1);

/// What is known of an object. What was not read is not absent.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Seen<T> {
    Unread(ProviderError),
    Absent,
    Present(T),
}

impl<T> Seen<T> {
    pub(crate) fn present(&self) -> Option<&T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Unread(_) | Self::Absent => None,
        }
    }

    pub(crate) fn present_mut(&mut self) -> Option<&mut T> {
        match self {
            Self::Present(value) => Some(value),
            Self::Unread(_) | Self::Absent => None,
        }
    }
}

/// What a Service keeps while the cloud refuses a change for which it has given that up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Kept {
    /// Its place on this one of several load balancers, without the end of internal ones.
    Place(String),
    /// Its public IP addresses, with their IP tags.
    Addresses,
}

/// The objects that were read.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Observed {
    /// The managed load balancers.
    pub(crate) balancers: Vec<Arc<Value>>,
    /// The public IP addresses, by resource group in lower case.
    pub(crate) public_ips: BTreeMap<String, Seen<Vec<Arc<Value>>>>,
    /// `None`: no plan for these Services needs it.
    pub(crate) security_group: Option<Seen<Arc<Value>>>,
    /// The private link services, by resource group in lower case; none if no Service mentions any.
    pub(crate) links: BTreeMap<String, Seen<Vec<Value>>>,
    /// By name.
    pub(crate) subnets: BTreeMap<String, Seen<Value>>,
    /// The zones of the region, if there are any.
    pub(crate) zones: Vec<String>,
    /// `None`: not known yet.
    pub(crate) cluster: Option<Facts>,
    /// Services whose part of a shared object the cloud refuses, by key.
    pub(crate) refused: BTreeMap<String, ProviderError>,
    /// What some of these keep.
    #[serde(default)]
    pub(crate) kept: BTreeMap<String, Kept>,
    /// The same of security rules.
    #[serde(default)]
    pub(crate) refused_rules: BTreeMap<String, ProviderError>,
    /// The machines and pools whose last write has failed, by ID in lower case: the oldest failure first.
    #[serde(default)]
    pub(crate) failed_members: Vec<String>,
    /// The number of rules of an interface that Azure has named when it refused more.
    #[serde(default)]
    pub(crate) most_rules: Option<usize>,
    /// Whether reads do not show yet what was just written.
    #[serde(default)]
    pub(crate) is_late: bool,
    /// The time before the reads.
    #[serde(skip)]
    pub(crate) began: Option<Instant>,
    /// The interfaces of nodes that may become or cease to be members.
    pub(crate) interfaces: super::machines::Interfaces,
}

/// What the cluster shows of all Services and nodes: destinations of security rules that stay.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(crate) struct Facts {
    pub(crate) services: Vec<ServiceFacts>,
    /// The internal addresses of managed nodes.
    pub(crate) nodes: BTreeSet<IpAddr>,
    /// The provider IDs of all nodes, also of those that were deleted while this process ran.
    pub(crate) machines: BTreeSet<String>,
}

/// A Service of the cluster.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct ServiceFacts {
    pub(crate) key: String,
    pub(crate) base: String,
    pub(crate) published: Vec<IpAddr>,
    pub(crate) destinations: Destinations,
    /// Destinations in place of the nodes' addresses.
    pub(crate) ranges: Vec<String>,
    /// Whether its security rules deny what they do not allow.
    pub(crate) denies: bool,
    pub(crate) is_going: bool,
}

impl ServiceFacts {
    pub(crate) fn of(service: &Service) -> Self {
        let ingress = service.status.load_balancer.ingress.iter();
        let (destinations, families) = (destinations(service), Family::of_service(service));
        let access = access::of(service).unwrap_or_default();
        let ranges = access.destinations.iter().flatten();
        let ranges =
            ranges.filter(|range| !destinations.has_floating_ip && families.contains(&Family::of(range.addr())));
        Self {
            key: service.key().to_string(),
            base: service.default_load_balancer_name(),
            published: ingress.filter_map(|ingress| ccm_provider::address::parse_ip(&ingress.ip)).collect(),
            ranges: ranges.map(ToString::to_string).collect(),
            destinations,
            denies: access.denies,
            is_going: service.metadata.deletion_timestamp.is_some() || !service.is_load_balancer(),
        }
    }
}

/// Removes free texts from an object and its parts.
fn without_texts(value: &mut Value) {
    match value {
        Value::Array(list) => list.iter_mut().for_each(without_texts),
        Value::Object(fields) => {
            fields.retain(|key, _| !["description", "requestMessage"].contains(&&**key));
            fields.iter_mut().filter(|(key, _)| *key != "tags").for_each(|(_, field)| without_texts(field));
        }
        _ => {}
    }
}

/// The address of a frontend with this public IP address.
pub(crate) fn address(frontend: &Value, public_ip: Option<&Value>) -> Option<IpAddr> {
    let private = json::property(frontend, "privateIPAddress");
    ccm_provider::address::parse_ip(public_ip.map_or(private, |ip| json::property(ip, "ipAddress")))
}

impl Observed {
    /// Removes texts, and the tags that no plan for these Services uses: users may write anything in them. With
    /// `systemTags`, plans remove tags of others, so that only their values go.
    pub(crate) fn strip(&mut self, env: &Env, wanted: &Wanted) {
        let settings = wanted.items.values().filter_map(|item| item.settings.as_ref());
        let annotated: Vec<&String> = settings.flat_map(|settings| settings.public_ip.tags.keys()).collect();
        let own = [&tags::SERVICE[..], &tags::CLUSTER, &tags::DNS_SERVICE, &[tags::OWNER]].concat();
        let is_used = |key: &str| {
            let mut asked = env.tags.keys().chain(annotated.iter().copied());
            own.iter().any(|name| same(name, key)) || asked.any(|name| same(name, key))
        };
        let links = self.links.values_mut().filter_map(Seen::present_mut).flatten();
        let public_ips = self.public_ips.values_mut().filter_map(Seen::present_mut).flatten();
        let group = self.security_group.as_mut().and_then(Seen::present_mut);
        let shared = self.balancers.iter_mut().chain(public_ips).chain(group).map(Arc::make_mut);
        for object in shared.chain(links).chain(self.interfaces.objects_mut()) {
            without_texts(object);
            let Some(tags) = object.get_mut("tags").and_then(Value::as_object_mut) else { continue };
            match env.system_tags.is_empty() {
                true => tags.retain(|key, _| is_used(key)),
                false => tags.iter_mut().filter(|(key, _)| !is_used(key)).for_each(|(_, value)| *value = "".into()),
            }
        }
    }

    /// A managed load balancer.
    #[cfg(test)]
    pub(crate) fn balancer(&self, name: &str) -> Option<&Value> {
        json::named(&self.balancers, name)
    }

    /// A subnet of the network; `None` if it does not exist.
    pub(crate) fn subnet(&self, name: &str) -> Result<Option<&Value>, ProviderError> {
        match self.subnets.get(name) {
            Some(Seen::Present(subnet)) => Ok(Some(subnet)),
            Some(Seen::Absent) => Ok(None),
            Some(Seen::Unread(error)) => Err(error.clone().wrap(format!("the subnet {name}"))),
            // The frontend that was to be shared goes in this pass.
            None => Err(ProviderError::retry(format!("the subnet {name} is read before the next attempt"), SOON)),
        }
    }

    /// The public IP addresses of a resource group.
    pub(crate) fn public_ips_of(&self, group: &str) -> &[Arc<Value>] {
        let seen = self.public_ips.get(&group.to_lowercase());
        seen.and_then(Seen::present).map(Vec::as_slice).unwrap_or_default()
    }

    /// Why the public IP addresses of a resource group are not known.
    pub(crate) fn unread_public_ips(&self, group: &str) -> Option<&ProviderError> {
        match self.public_ips.get(&group.to_lowercase()) {
            Some(Seen::Unread(error)) => Some(error),
            _ => None,
        }
    }

    /// When the last write of a machine or pool has failed, as a place among all; `None`: it has not.
    pub(crate) fn failed_at(&self, id: &ArmId) -> Option<usize> {
        let id = id.folded();
        self.failed_members.iter().position(|failed| *failed == id)
    }

    /// All public IP addresses that were read.
    pub(crate) fn all_public_ips(&self) -> impl Iterator<Item = &Value> {
        self.public_ips.values().filter_map(Seen::present).flatten().map(Arc::as_ref)
    }

    /// The public IP address with an ID.
    pub(crate) fn public_ip(&self, id: &str) -> Option<&Value> {
        let group = ArmId::parse(id).ok()?.group().to_owned();
        self.public_ips_of(&group).iter().map(Arc::as_ref).find(|ip| same(json::text(ip, &["id"]), id))
    }

    /// The frontends of all load balancers.
    pub(crate) fn frontends(&self) -> impl Iterator<Item = &Value> {
        self.balancers.iter().flat_map(|balancer| json::items(balancer, "frontendIPConfigurations"))
    }

    /// The address of a frontend of a load balancer.
    pub(crate) fn address(&self, frontend: &Value) -> Option<IpAddr> {
        address(frontend, self.public_ip(json::reference(frontend, "publicIPAddress")))
    }
}
