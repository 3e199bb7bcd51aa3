//! Instances.

use ccm_kit::http::null;
use serde::Deserialize;

use super::filter::Filter;
use super::operation::{INSTANCE_GET, INSTANCE_LIST, INSTANCE_LIST_ALL};
use super::resource::{Scope, last_part};
use super::{ApiError, Client};

/// The fields of a list. The metadata of an instance may have 512 KB, and a page 500 instances.
pub(super) const LISTED: &str = "nextPageToken,warning,items(name,status,zone,machineType,tags/items,\
    networkInterfaces(name,fingerprint,network,subnetwork,networkIP,accessConfigs/natIP,ipv6Address,ipv6AccessType,\
    ipv6AccessConfigs/externalIpv6,aliasIpRanges/ipCidrRange))";

/// An instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Instance {
    pub(crate) name: String,
    /// `RUNNING`, `TERMINATED`, …
    #[serde(deserialize_with = "null")]
    pub(crate) status: String,
    /// A URL.
    #[serde(rename = "zone", deserialize_with = "null")]
    zone_url: String,
    /// A URL.
    #[serde(rename = "machineType", deserialize_with = "null")]
    machine_type_url: String,
    #[serde(deserialize_with = "null")]
    pub(crate) network_interfaces: Vec<NetworkInterface>,
    #[serde(deserialize_with = "null")]
    pub(crate) tags: Tags,
}

/// The network tags of an instance.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct Tags {
    #[serde(deserialize_with = "null")]
    pub(crate) items: Vec<String>,
}

/// A NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct NetworkInterface {
    /// `nic0`
    pub(crate) name: String,
    #[serde(deserialize_with = "null")]
    pub(crate) fingerprint: String,
    #[serde(deserialize_with = "null")]
    pub(crate) network: String,
    #[serde(deserialize_with = "null")]
    pub(crate) subnetwork: String,
    #[serde(rename = "networkIP", deserialize_with = "null")]
    pub(crate) network_ip: String,
    #[serde(deserialize_with = "null")]
    pub(crate) access_configs: Vec<AccessConfig>,
    #[serde(deserialize_with = "null")]
    pub(crate) ipv6_address: String,
    /// `INTERNAL` or `EXTERNAL`
    #[serde(deserialize_with = "null")]
    pub(crate) ipv6_access_type: String,
    #[serde(deserialize_with = "null")]
    pub(crate) ipv6_access_configs: Vec<Ipv6AccessConfig>,
    #[serde(deserialize_with = "null")]
    pub(crate) alias_ip_ranges: Vec<AliasIpRange>,
}

/// The external IPv4 address of a NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub(crate) struct AccessConfig {
    /// Empty while the instance is stopped, unless the address is reserved.
    #[serde(rename = "natIP", deserialize_with = "null")]
    pub(crate) nat_ip: String,
}

/// An external IPv6 range of a NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Ipv6AccessConfig {
    #[serde(deserialize_with = "null")]
    pub(crate) external_ipv6: String,
}

/// An alias range of a NIC.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct AliasIpRange {
    pub(crate) ip_cidr_range: String,
}

impl Instance {
    /// The name of its zone.
    pub(crate) fn zone(&self) -> &str {
        last_part(&self.zone_url)
    }

    /// The name of its machine type.
    pub(crate) fn machine_type(&self) -> &str {
        last_part(&self.machine_type_url)
    }
}

impl Client {
    /// An instance; `None` if the API says that it does not exist.
    pub(crate) async fn instance(&self, zone: &str, name: &str) -> Result<Option<Instance>, ApiError> {
        self.get(INSTANCE_GET, &Scope::zone(zone), name).await
    }

    /// The instances of a zone whose names begin with this prefix.
    pub(crate) async fn instances(&self, zone: &str, prefix: &str) -> Result<Vec<Instance>, ApiError> {
        let filter = match prefix {
            "" => Filter::default(),
            prefix => Filter::begins("name", prefix),
        };
        self.list(INSTANCE_LIST, &Scope::zone(zone), &filter).await
    }

    /// The instances of the whole project that have one of these names.
    pub(crate) async fn instances_named(&self, names: &[String]) -> Result<Vec<Instance>, ApiError> {
        let names = names.iter().map(|name| &**name);
        self.list_all(INSTANCE_LIST_ALL, &Filter::one_of("name", names)).await
    }
}
