//! Instances.

use ccm_kit::models;

use super::filter::Filter;
use super::operation::{INSTANCE_GET, INSTANCE_LIST, INSTANCE_LIST_ALL, Operation};
use super::resource::{Scope, last_part};
use super::{ApiError, Client, named};

/// The fields of a list. The metadata of an instance may have 512 KB, and a page 500 instances.
pub(super) fn listed(operation: Operation) -> Option<String> {
    let instances = match operation {
        INSTANCE_LIST => "items",
        INSTANCE_LIST_ALL => "unreachables,items/*/warning,items/*/instances",
        _ => return None,
    };
    Some(format!(
        "kind,nextPageToken,warning,{instances}(name,status,zone,machineType,tags/items,networkInterfaces(name,fingerprint,\
         network,subnetwork,networkIP,accessConfigs/natIP,ipv6Address,ipv6AccessType,ipv6AccessConfigs/externalIpv6,\
         aliasIpRanges/ipCidrRange))"
    ))
}

models! {
    /// An instance.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Instance {
        pub(crate) name: String,
        /// `RUNNING`, `TERMINATED`, …
        pub(crate) status: String,
        /// A URL.
        #[serde(rename = "zone")]
        zone_url: String,
        /// A URL.
        #[serde(rename = "machineType")]
        machine_type_url: String,
        pub(crate) network_interfaces: Vec<NetworkInterface>,
        pub(crate) tags: Tags,
    }

    /// The network tags of an instance.
    pub(crate) struct Tags {
        pub(crate) items: Vec<String>,
    }

    /// A NIC.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct NetworkInterface {
        /// `nic0`
        pub(crate) name: String,
        pub(crate) fingerprint: String,
        pub(crate) network: String,
        pub(crate) subnetwork: String,
        #[serde(rename = "networkIP")]
        pub(crate) network_ip: String,
        pub(crate) access_configs: Vec<AccessConfig>,
        pub(crate) ipv6_address: String,
        /// `INTERNAL` or `EXTERNAL`
        pub(crate) ipv6_access_type: String,
        pub(crate) ipv6_access_configs: Vec<Ipv6AccessConfig>,
        pub(crate) alias_ip_ranges: Vec<AliasIpRange>,
    }

    /// The external IPv4 address of a NIC.
    pub(crate) struct AccessConfig {
        /// Empty while the instance is stopped, unless the address is reserved.
        #[serde(rename = "natIP")]
        pub(crate) nat_ip: String,
    }

    /// An external IPv6 range of a NIC.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Ipv6AccessConfig {
        pub(crate) external_ipv6: String,
    }

    /// An alias range of a NIC.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct AliasIpRange {
        pub(crate) ip_cidr_range: String,
    }
}

named!(Instance);

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

    /// The instances of a zone that have one of these names.
    pub(crate) async fn instances_named_in(&self, zone: &str, names: &[String]) -> Result<Vec<Instance>, ApiError> {
        let names = names.iter().map(|name| &**name);
        self.list(INSTANCE_LIST, &Scope::zone(zone), &Filter::one_of("name", names)).await
    }

    /// The instances of the whole project that have one of these names.
    pub(crate) async fn instances_named(&self, names: &[String]) -> Result<Vec<Instance>, ApiError> {
        let names = names.iter().map(|name| &**name);
        self.list_all(INSTANCE_LIST_ALL, &Filter::one_of("name", names)).await
    }
}
