//! The file of `--cloud-config`: YAML or JSON, with keys in any case.
//!
//! Upstream: `pkg/provider/config` and `pkg/azclient` of cloud-provider-azure. The environment wins over the file.

mod check;
mod table;
#[cfg(test)]
mod tests;
mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use ccm_kit::call::Retries;
use ccm_kit::document::{self, Problems, Value};
use ccm_kit::gcfg::{Secret, table::refuse};
use ccm_provider::{Finding, ProviderError, Severity};
use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::client::limit::{Rate, Rates};
use crate::start::selector::Selector;

/// Looks up an environment variable.
pub(crate) type Variable<'a> = &'a (dyn Fn(&str) -> Option<String> + Sync);

const CONTEXT: &str = "failed to read the Azure cloud config";

/// The checked configuration.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Config {
    pub(crate) identity: IdentityConfig,
    pub(crate) limits: LimitConfig,
    /// By their keys, those that are set.
    pub(crate) caches: BTreeMap<&'static str, Duration>,
    pub(crate) balancing: Balancing,
    pub(crate) user_agent: String,
    /// Lower-cased.
    pub(crate) resource_group: String,
    /// As written.
    pub(crate) location: String,
    pub(crate) extended_location_name: String,
    pub(crate) extended_location_type: String,
    pub(crate) vnet_name: String,
    pub(crate) vnet_resource_group: String,
    pub(crate) subnet_name: String,
    pub(crate) security_group_name: String,
    pub(crate) security_group_resource_group: String,
    pub(crate) route_table_name: String,
    pub(crate) route_table_resource_group: String,
    pub(crate) vm_type: VmType,
    pub(crate) disable_availability_set_nodes: bool,
    pub(crate) enable_vmss_flex_nodes: bool,
    /// A node younger than this is never gone.
    pub(crate) not_found_grace: Duration,
    pub(crate) disable_api_call_cache: bool,
    /// Scale set instances are listed without their state.
    pub(crate) without_instance_view: bool,
    pub(crate) disable_cloud_provider: bool,
    /// `tags` and `tagsMap`, merged: keys in the spelling of the file.
    pub(crate) tags: Vec<(String, String)>,
    pub(crate) system_tags: Vec<String>,
    raw: Raw,
}

/// Keys that only the check reads.
#[derive(Debug, Clone, PartialEq, Default)]
struct Raw {
    vm_type: String,
    sku: String,
    pool_type: String,
    probe_mode: String,
    tags: String,
    tags_map: BTreeMap<String, String>,
    system_tags: String,
    gateway: bool,
    data_plane_path: String,
    auxiliary: bool,
}

/// Where and as whom the program calls Azure.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct IdentityConfig {
    pub(crate) cloud: String,
    pub(crate) endpoint: String,
    pub(crate) disable_stack: bool,
    pub(crate) tenant: String,
    pub(crate) network_tenant: String,
    pub(crate) subscription: String,
    pub(crate) network_subscription: String,
    pub(crate) system: String,
    pub(crate) client: String,
    pub(crate) secret: Secret,
    pub(crate) certificate: String,
    pub(crate) certificate_password: Secret,
    pub(crate) managed: bool,
    pub(crate) user_assigned: String,
    pub(crate) federated: bool,
    pub(crate) federated_file: String,
}

/// Rates and retries.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct LimitConfig {
    pub(crate) backoff: BackoffConfig,
    pub(crate) minimum_retry_after: bool,
    /// The keys `cloudProviderRateLimit*`.
    pub(crate) all: RateConfig,
    /// `loadBalancerRateLimit` and similar keys, by their first part.
    pub(crate) single: BTreeMap<String, RateConfig>,
}

/// The keys `cloudProviderBackoff*`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct BackoffConfig {
    pub(crate) on: bool,
    pub(crate) retries: Option<u64>,
    pub(crate) seconds: Option<u64>,
    pub(crate) exponent: Option<f64>,
    pub(crate) jitter: Option<f64>,
}

/// The keys of a rate limit; those that are absent or 0 are taken from the keys of all types of objects, except `on`.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub(crate) struct RateConfig {
    pub(crate) on: Option<bool>,
    pub(crate) qps: Option<f64>,
    pub(crate) bucket: Option<f64>,
    pub(crate) qps_write: Option<f64>,
    pub(crate) bucket_write: Option<f64>,
}

/// The keys for load balancers.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Balancing {
    /// Empty: the name of the cluster.
    pub(crate) name: String,
    pub(crate) resource_group: String,
    pub(crate) preconfigured: Preconfigured,
    pub(crate) exclude_masters: bool,
    pub(crate) disable_outbound_snat: bool,
    pub(crate) pools: PoolKind,
    pub(crate) several: Vec<BalancerConfig>,
    pub(crate) shared_probe: bool,
    pub(crate) shared_probe_port: u16,
    pub(crate) shared_probe_path: String,
    pub(crate) private_link_resource_group: String,
    pub(crate) mutates_ip_tags: bool,
}

/// An entry of `multipleStandardLoadBalancerConfigurations`.
#[derive(Debug, Clone, PartialEq, Default)]
pub(crate) struct BalancerConfig {
    pub(crate) name: String,
    pub(crate) primary_vm_set: String,
    pub(crate) allows_placement: bool,
    /// `None`: all.
    pub(crate) services: Option<Selector>,
    pub(crate) namespaces: Option<Selector>,
    pub(crate) nodes: Option<Selector>,
}

/// The kinds of machines.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum VmType {
    #[default]
    Vmss,
    Standard,
    VmssFlex,
}

/// The kind of members of the pools.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum PoolKind {
    /// IP configurations of the nodes' interfaces.
    #[default]
    Interfaces,
    /// Addresses of the nodes.
    Addresses,
}

/// `preConfiguredBackendPoolLoadBalancerTypes`: the load balancers whose members others manage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Preconfigured {
    pub(crate) internal: bool,
    pub(crate) external: bool,
}

impl Config {
    /// Reads the text of a configuration. Doubts are findings. An error has all problems.
    pub(crate) fn parse(text: &str, variable: Variable<'_>) -> Result<(Self, Vec<Finding>), ProviderError> {
        let (config, findings) = Self::read(text, variable);
        refuse(CONTEXT, &findings)?;
        Ok((config, findings))
    }

    /// The configuration as far as it can be read, and all findings.
    pub(crate) fn read(text: &str, variable: Variable<'_>) -> (Self, Vec<Finding>) {
        let mut config = Self::default();
        let (tree, mut findings) = match document::parse_as_go(text, table::is_strict) {
            Ok(read) => read,
            Err(error) => return (config, error.findings("cloud config")),
        };
        for secret in findings.iter_mut().filter(|finding| table::is_secret(&finding.key)) {
            secret.value = None;
        }
        let problems = Problems::default();
        match &tree {
            Json::Null => {}
            Json::Object(map) => {
                let seen = |key: &str, value: &Json, findings: &mut Vec<Finding>| {
                    let value = Value::at(value, key.to_owned(), &problems);
                    table::set(&mut config, key, &value, findings);
                };
                read_map(map, seen, &mut findings);
            }
            _ => problems.add("", "expected a map of keys and values"),
        }
        if let Err(error) = problems.into_result() {
            findings.extend(error.findings("cloud config"));
        }
        config.environment(variable);
        findings.extend(check::complete(&mut config));
        (config, findings)
    }

    fn environment(&mut self, variable: Variable<'_>) {
        let given = |name: &str| variable(name).filter(|value| !value.is_empty());
        let identity = &mut self.identity;
        if let Some(tenant) = given("AZURE_TENANT_ID") {
            identity.tenant = tenant;
        }
        if let Some(client) = given("AZURE_CLIENT_ID") {
            identity.client = client;
        }
        if let Some(file) = given("AZURE_FEDERATED_TOKEN_FILE") {
            (identity.federated_file, identity.federated) = (file, true);
        }
        if let Some(secret) = given("AZURE_CLIENT_SECRET") {
            identity.secret = Secret(secret);
        }
    }

    /// The age up to which data is used: that of a key like `vmssCacheTTLInSeconds`, else `default`.
    pub(crate) fn ttl(&self, key: &str, default: Duration) -> Duration {
        if self.disable_api_call_cache {
            return Duration::ZERO;
        }
        self.caches.get(key).copied().unwrap_or(default)
    }
}

impl BackoffConfig {
    /// The retries of calls, if they are set. As upstream, 0 is not given. Pauses never get shorter.
    pub(crate) fn retries(self) -> Option<Retries> {
        let count = |value: Option<u64>, default| value.filter(|value| *value > 0).unwrap_or(default);
        let number = |value: Option<f64>, default| value.filter(|value| *value > 0.0).unwrap_or(default);
        let retries = Retries {
            attempts: u32::try_from(count(self.retries, 6)).unwrap_or(u32::MAX).saturating_add(1),
            first_pause: Duration::from_secs(count(self.seconds, 5)),
            factor: number(self.exponent, 1.5).max(1.0),
            spread: (1.0, 1.0 + number(self.jitter, 1.0)),
            within: Duration::from_secs(45),
        };
        self.on.then_some(retries)
    }
}

impl LimitConfig {
    /// The rates in force, by the first part of their keys. Upstream reads these keys, without effect.
    pub(crate) fn rates(&self) -> BTreeMap<String, Rates> {
        let read = self.all.read(Rate { per_second: 1.0, bucket: 5.0 });
        let write = self.all.write(read);
        let of = |key: &str| {
            let own = self.single.get(key).unwrap_or(&self.all);
            let rates = Rates { read: own.read(read), write: own.write(write) };
            own.on.unwrap_or_default().then(|| (key.to_owned(), rates))
        };
        table::LIMITED.iter().filter_map(|key| of(key)).collect()
    }
}

/// The rates in words: `loadBalancer 1/s (at once 5); …`.
pub(crate) fn in_words(rates: &BTreeMap<String, Rates>) -> String {
    let words = |rate: Rate| format!("{}/s (at once {})", rate.per_second, rate.bucket);
    let line = |(key, rates): (&String, &Rates)| match rates.read == rates.write {
        true => format!("{key} {}", words(rates.read)),
        false => format!("{key} {}, writes {}", words(rates.read), words(rates.write)),
    };
    rates.iter().map(line).collect::<Vec<_>>().join("; ")
}

impl RateConfig {
    /// The rate of reads. As upstream, 0 is not given: files have the zero values of Go.
    fn read(&self, default: Rate) -> Rate {
        rate(self.qps, self.bucket, default)
    }

    /// The rate of writes.
    fn write(&self, default: Rate) -> Rate {
        rate(self.qps_write, self.bucket_write, default)
    }
}

fn rate(per_second: Option<f64>, bucket: Option<f64>, default: Rate) -> Rate {
    let given = |value: Option<f64>, default| value.filter(|value| *value > 0.0).unwrap_or(default);
    Rate { per_second: given(per_second, default.per_second), bucket: given(bucket, default.bucket) }
}

/// Passes on the entries of a map that are not null. Of two spellings of one key the last counts, as upstream, which
/// sorts the keys, as this map does. It mixes the lists and maps of two spellings: they are an error.
fn read_map(
    map: &serde_json::Map<String, Json>,
    mut read: impl FnMut(&str, &Json, &mut Vec<Finding>),
    findings: &mut Vec<Finding>,
) {
    let mut seen: BTreeMap<String, &str> = BTreeMap::new();
    for (key, value) in map.iter().filter(|(_, value)| !value.is_null()) {
        if let Some(other) = seen.insert(key.to_ascii_lowercase(), key) {
            let same = format!("the same key as {other:?}, which is compared without case");
            if value.is_array() || value.is_object() {
                findings.push(Finding::new(Severity::Error, key, format!("{same}; keep one of them")));
                continue;
            }
            let finding = Finding::warning(key, format!("{same}; this value counts: keep one of them"));
            let value = document::scalar(value).filter(|_| !table::is_secret(key));
            findings.push(Finding { value, ..finding });
        }
        read(key, value, findings);
    }
}

/// The keys as a table in Markdown.
pub(crate) fn reference() -> String {
    table::reference()
}
