//! The file of `--cloud-config`, "cloud.conf", read once and checked at the start.
//!
//! Upstream: `pkg/openstack/openstack.go` and `pkg/client/client.go` of cloud-provider-openstack. All that upstream
//! accepts is accepted. Values that upstream never validates and OpenStack rejects later become warnings.
//!
//! As upstream, a text is empty if its key is absent: an empty value is the same as no key.

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::gcfg::{self, Document, Reader, Secret, table::refuse};
use ccm_provider::{ErrorClass, Finding, ProviderError, Severity};
use ipnet::IpNet;
use serde::{Deserialize, Serialize};

mod check;
mod table;

#[cfg(test)]
mod tests;

/// The pool algorithm that the provider driver `ovn` requires and `amphora` rejects.
pub(crate) const SOURCE_IP_PORT: &str = "SOURCE_IP_PORT";
/// The pool algorithms of Octavia.
pub(crate) const LB_METHODS: [&str; 4] = ["ROUND_ROBIN", "LEAST_CONNECTIONS", "SOURCE_IP", SOURCE_IP_PORT];
/// The provider driver with the fewest features.
pub(crate) const OVN: &str = "ovn";

/// The reason why a provider driver rejects an algorithm.
pub(crate) fn method_problem(provider: &str, method: &str) -> Option<String> {
    match (provider, method == SOURCE_IP_PORT) {
        (OVN, false) => Some(format!("the Octavia provider ovn needs {SOURCE_IP_PORT}")),
        ("amphora" | "amphorav2" | "octavia", true) => Some(format!("the Octavia provider {provider} refuses it")),
        _ => None,
    }
}

/// The checked configuration.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// `[Global]`
    pub(crate) global: Global,
    /// `[Networking]`
    pub(crate) networking: Networking,
    /// `[LoadBalancer]`
    pub(crate) load_balancer: LoadBalancerConfig,
    /// `[LoadBalancerClass "name"]` by name, which is case-sensitive.
    pub(crate) classes: BTreeMap<String, Class>,
    /// `[Route] router-id`
    pub(crate) route_router: Option<String>,
    /// `[Metadata]`
    pub(crate) metadata: Metadata,
    /// `[BlockStorage]`
    pub(crate) block_storage: BlockStorage,
}

/// `[Global]`: the Keystone URL and the login. clouds.yaml may fill empty fields.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Global {
    pub(crate) auth_url: String,
    pub(crate) user_id: String,
    pub(crate) username: String,
    pub(crate) password: Secret,
    pub(crate) tenant_id: String,
    pub(crate) tenant_name: String,
    pub(crate) trust_id: String,
    pub(crate) trustee_id: String,
    pub(crate) trustee_password: Secret,
    pub(crate) domain_id: String,
    pub(crate) domain_name: String,
    pub(crate) tenant_domain_id: String,
    pub(crate) tenant_domain_name: String,
    pub(crate) user_domain_id: String,
    pub(crate) user_domain_name: String,
    pub(crate) region: String,
    /// `None`: public.
    pub(crate) endpoint_type: Option<EndpointType>,
    pub(crate) ca_file: String,
    /// PEM, used when `ca_file` is empty.
    pub(crate) ca_file_contents: String,
    /// `None`: clouds.yaml decides, else certificates are verified.
    pub(crate) tls_insecure: Option<bool>,
    pub(crate) cert_file: String,
    pub(crate) key_file: String,
    pub(crate) token: Secret,
    pub(crate) use_clouds: bool,
    pub(crate) clouds_file: String,
    pub(crate) cloud: String,
    pub(crate) application_credential_id: String,
    pub(crate) application_credential_name: String,
    pub(crate) application_credential_secret: Secret,
}

impl Global {
    /// Whether clouds.yaml is read. Upstream reads it at the login also when only `cloud` is set.
    pub(crate) fn reads_clouds(&self) -> bool {
        self.use_clouds || !self.cloud.is_empty()
    }
}

/// The interface of the catalog endpoints to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum EndpointType {
    #[default]
    Public,
    Internal,
    Admin,
}

impl EndpointType {
    /// The value of `interface` in the catalog.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Public => "public",
            Self::Internal => "internal",
            Self::Admin => "admin",
        }
    }
}

impl std::str::FromStr for EndpointType {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Public, Self::Internal, Self::Admin];
        let found = all.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| "not an endpoint type; write public, internal or admin".to_owned())
    }
}

/// `[Networking]`: the selection of node addresses.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Networking {
    pub(crate) is_ipv6_disabled: bool,
    pub(crate) public_networks: Vec<String>,
    pub(crate) internal_networks: Vec<String>,
    /// `address-sort-order`: networks, the most important first.
    pub(crate) sort_order: Vec<IpNet>,
}

/// `[LoadBalancer]`: the defaults for Services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct LoadBalancerConfig {
    pub(crate) enabled: bool,
    lb_version: String,
    pub(crate) subnet_id: String,
    pub(crate) member_subnet_id: String,
    pub(crate) network_id: String,
    pub(crate) floating_network_id: String,
    pub(crate) floating_subnet_id: String,
    /// A name pattern.
    pub(crate) floating_subnet: String,
    /// A tag expression.
    pub(crate) floating_subnet_tags: String,
    pub(crate) lb_method: String,
    /// Octavia's provider driver; empty: Octavia's default.
    pub(crate) lb_provider: String,
    pub(crate) create_monitor: bool,
    pub(crate) monitor_delay: Duration,
    pub(crate) monitor_timeout: Duration,
    pub(crate) monitor_max_retries: i64,
    pub(crate) monitor_max_retries_down: i64,
    pub(crate) manage_security_groups: bool,
    pub(crate) internal_lb: bool,
    pub(crate) node_selector: String,
    pub(crate) cascade_delete: bool,
    pub(crate) flavor_id: String,
    pub(crate) availability_zone: String,
    pub(crate) enable_ingress_hostname: bool,
    pub(crate) ingress_hostname_suffix: String,
    pub(crate) default_tls_container_ref: String,
    pub(crate) container_store: String,
    pub(crate) max_shared_lb: i64,
    /// `provider-requires-serial-api-calls`
    pub(crate) serial_calls: bool,
}

impl Default for LoadBalancerConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            lb_version: String::new(),
            subnet_id: String::new(),
            member_subnet_id: String::new(),
            network_id: String::new(),
            floating_network_id: String::new(),
            floating_subnet_id: String::new(),
            floating_subnet: String::new(),
            floating_subnet_tags: String::new(),
            lb_method: "ROUND_ROBIN".to_owned(),
            lb_provider: "amphora".to_owned(),
            create_monitor: false,
            monitor_delay: Duration::from_secs(5),
            monitor_timeout: Duration::from_secs(3),
            monitor_max_retries: 1,
            monitor_max_retries_down: 3,
            manage_security_groups: false,
            internal_lb: false,
            node_selector: String::new(),
            cascade_delete: true,
            flavor_id: String::new(),
            availability_zone: String::new(),
            enable_ingress_hostname: false,
            ingress_hostname_suffix: "nip.io".to_owned(),
            default_tls_container_ref: String::new(),
            container_store: "barbican".to_owned(),
            max_shared_lb: 2,
            serial_calls: false,
        }
    }
}

/// `[LoadBalancerClass "…"]`: the networks of the load balancers of a class.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "kebab-case")]
pub(crate) struct Class {
    pub(crate) floating_network_id: String,
    pub(crate) floating_subnet_id: String,
    pub(crate) floating_subnet: String,
    pub(crate) floating_subnet_tags: String,
    pub(crate) network_id: String,
    pub(crate) subnet_id: String,
    pub(crate) member_subnet_id: String,
}

/// A source of instance metadata.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MetadataSource {
    ConfigDrive,
    MetadataService,
}

/// `[Metadata]`
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Metadata {
    /// Never empty.
    pub(crate) search_order: Vec<MetadataSource>,
    /// Despite its section, upstream applies it to every OpenStack request after the login. Never zero.
    pub(crate) request_timeout: Duration,
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            search_order: vec![MetadataSource::ConfigDrive, MetadataSource::MetadataService],
            request_timeout: Duration::from_secs(60),
        }
    }
}

/// `[BlockStorage]`: the settings for volume labels. The section belongs to the CSI driver.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct BlockStorage {
    pub(crate) ignore_volume_az: bool,
}

/// `[Route]` as read.
#[derive(Debug, Default)]
struct Route {
    router_id: String,
}

impl Config {
    /// Parses the file; `None`: no file. The findings are warnings; all errors are in the `Err`.
    pub(crate) fn parse(text: Option<&str>) -> Result<(Self, Vec<Finding>), ProviderError> {
        const CONTEXT: &str = "failed to read OpenStack cloud config file";
        let invalid = |message: String, finding: Finding| {
            Err(ProviderError::new(ErrorClass::Invalid { findings: vec![finding] }, message))
        };
        let Some(text) = text else {
            let message = "no OpenStack cloud provider config file given";
            return invalid(message.to_owned(), Finding::new(Severity::Error, "cloud-config", message));
        };
        let (config, findings) = match Self::read(text) {
            Ok(read) => read,
            Err(finding) => return invalid(format!("{CONTEXT}: {}", finding.message), finding),
        };
        refuse(CONTEXT, &findings)?;
        Ok((config, findings))
    }

    /// All problems of the file by itself. The login may need more, from clouds.yaml.
    pub(crate) fn lint(text: &str) -> Vec<Finding> {
        Self::read(text).map_or_else(|finding| vec![finding], |(_, findings)| findings)
    }

    /// The configuration and its findings. Fails if the text is not a configuration file.
    fn read(text: &str) -> Result<(Self, Vec<Finding>), Finding> {
        let document =
            gcfg::parse(text).map_err(|error| Finding::new(Severity::Error, "cloud-config", error.to_string()))?;
        let is_storage = |name: &str| name.eq_ignore_ascii_case(table::BLOCK_STORAGE.section);
        let (storage, own) = document.sections.into_iter().partition(|section| is_storage(&section.name));
        let (storage, own) = (Document { sections: storage }, Document { sections: own });

        let mut reader = Reader::new(&own, Severity::Warning);
        let mut config = Self {
            global: reader.section(&table::GLOBAL),
            networking: reader.section(&table::NETWORKING),
            load_balancer: reader.section(&table::LOAD_BALANCER),
            classes: reader.subsections(&table::CLASS).into_iter().collect(),
            route_router: Some(reader.section(&table::ROUTE).router_id).filter(|id| !id.is_empty()),
            metadata: reader.section(&table::METADATA),
            block_storage: BlockStorage::default(),
        };
        // In a shared file, the keys of the CSI driver do not concern this program.
        let mut storage = Reader::new(&storage, Severity::Info);
        config.block_storage = storage.section(&table::BLOCK_STORAGE);
        let mut findings = reader.finish();
        findings.extend(storage.finish());
        findings.extend(check::unnamed_networks(&mut config.networking));
        findings.extend(check::doubts(&config));
        Ok((config, findings))
    }
}

/// The reference of the file, in Markdown.
pub(crate) fn reference() -> String {
    [
        table::GLOBAL.reference(),
        table::NETWORKING.reference(),
        table::LOAD_BALANCER.reference(),
        table::CLASS.reference(),
        table::ROUTE.reference(),
        table::METADATA.reference(),
        table::BLOCK_STORAGE.reference(),
    ]
    .join("\n")
}
