//! Combinations of keys, defaults that depend on other keys, and what is not supported.

use std::collections::BTreeSet;
use std::time::Duration;

use ccm_provider::{Finding, Severity};

use super::{Balancing, Config, PoolKind, Preconfigured, Raw, VmType};
use crate::client::id::same;
use crate::start::endpoints::{STACK, endpoints};

/// The path of the shared probe, as upstream.
const PROBE_PATH: &str = "/healthz";
/// The shortest time for which a new machine counts as existing: lists show it late.
const LEAST_GRACE: Duration = Duration::from_secs(60);

impl Default for Config {
    fn default() -> Self {
        Self {
            identity: super::IdentityConfig::default(),
            limits: super::LimitConfig::default(),
            caches: Default::default(),
            balancing: Balancing::default(),
            user_agent: String::new(),
            resource_group: String::new(),
            location: String::new(),
            extended_location_name: String::new(),
            extended_location_type: String::new(),
            vnet_name: String::new(),
            vnet_resource_group: String::new(),
            subnet_name: String::new(),
            security_group_name: String::new(),
            security_group_resource_group: String::new(),
            route_table_name: String::new(),
            route_table_resource_group: String::new(),
            vm_type: VmType::Vmss,
            disable_availability_set_nodes: false,
            enable_vmss_flex_nodes: false,
            not_found_grace: LEAST_GRACE,
            disable_api_call_cache: false,
            without_instance_view: false,
            disable_cloud_provider: false,
            tags: Vec::new(),
            system_tags: Vec::new(),
            raw: Raw::default(),
        }
    }
}

impl Default for Balancing {
    fn default() -> Self {
        Self {
            name: String::new(),
            resource_group: String::new(),
            preconfigured: Preconfigured::default(),
            exclude_masters: true,
            disable_outbound_snat: false,
            pools: PoolKind::default(),
            several: Vec::new(),
            shared_probe: false,
            shared_probe_port: 10256,
            shared_probe_path: PROBE_PATH.to_owned(),
            private_link_resource_group: String::new(),
            mutates_ip_tags: false,
        }
    }
}

/// Collects findings.
#[derive(Default)]
struct Findings(Vec<Finding>);

impl Findings {
    fn add(&mut self, severity: Severity, key: &str, value: &str, message: impl Into<String>) {
        let value = Some(value.to_owned()).filter(|value| !value.is_empty());
        self.0.push(Finding { severity, key: key.to_owned(), value, message: message.into() });
    }

    fn error(&mut self, key: &str, value: &str, message: impl Into<String>) {
        self.add(Severity::Error, key, value, message);
    }

    fn warning(&mut self, key: &str, value: &str, message: impl Into<String>) {
        self.add(Severity::Warning, key, value, message);
    }
}

/// Fills what depends on other keys. Returns the problems and doubts.
pub(super) fn complete(config: &mut Config) -> Vec<Finding> {
    let mut findings = Findings::default();
    config.resource_group = config.resource_group.to_ascii_lowercase();
    config.identity.cloud = config.identity.cloud.trim().to_owned();
    groups(config);
    for (key, value) in [
        ("subscriptionId", &config.identity.subscription),
        ("resourceGroup", &config.resource_group),
        ("location", &config.location),
    ] {
        if value.is_empty() && !config.disable_cloud_provider {
            findings.error(key, "", "needed");
        }
    }
    findings.0.extend(unknown_cloud(&config.identity));
    machines(config, &mut findings);
    edge_zone(config, &mut findings);
    balancing(config, &mut findings);
    several(config, &mut findings);
    unsupported(config, &mut findings);
    tags(config, &mut findings);
    findings.0
}

fn groups(config: &mut Config) {
    let group = config.resource_group.clone();
    for field in [
        &mut config.vnet_resource_group,
        &mut config.security_group_resource_group,
        &mut config.route_table_resource_group,
        &mut config.balancing.resource_group,
        &mut config.balancing.private_link_resource_group,
    ] {
        if field.is_empty() {
            field.clone_from(&group);
        }
    }
    if config.identity.network_subscription.is_empty() {
        config.identity.network_subscription.clone_from(&config.identity.subscription);
    }
}

/// As upstream: both keys or none, and whatever the type is, it is this one.
fn edge_zone(config: &mut Config, findings: &mut Findings) {
    let (name, kind) = (&mut config.extended_location_name, &mut config.extended_location_type);
    if name.is_empty() != kind.is_empty() {
        let key = if name.is_empty() { "extendedLocationName" } else { "extendedLocationType" };
        findings.warning(key, "", "an edge zone needs name and type; the other one has no effect");
        name.clear();
        kind.clear();
    }
    if !kind.is_empty() {
        "EdgeZone".clone_into(kind);
    }
}

fn unknown_cloud(identity: &super::IdentityConfig) -> Option<Finding> {
    let name = &*identity.cloud;
    let is_known = endpoints(name).is_some() || same(STACK, name) || !identity.endpoint.is_empty();
    let message = "unknown; treated as AzurePublicCloud. Other clouds need resourceManagerEndpoint";
    (!is_known).then(|| Finding::warning("cloud", message).value(name))
}

fn machines(config: &mut Config, findings: &mut Findings) {
    let kind = config.raw.vm_type.clone();
    config.vm_type = match &*kind.to_ascii_lowercase() {
        "" | "vmss" => VmType::Vmss,
        "standard" => VmType::Standard,
        "vmssflex" => VmType::VmssFlex,
        _ => {
            let message = "unknown; treated as standard. Known are vmss, standard and vmssflex";
            findings.warning("vmType", &kind, message);
            VmType::Standard
        }
    };
    // Compared exactly, as upstream.
    if config.disable_availability_set_nodes && !["", "vmss"].contains(&&*kind) {
        let message = "only with vmType vmss; set vmType: vmss, or remove this key";
        findings.error("disableAvailabilitySetNodes", "true", message);
    }
    if config.not_found_grace < LEAST_GRACE {
        config.not_found_grace = LEAST_GRACE;
    }
}

fn balancing(config: &mut Config, findings: &mut Findings) {
    let raw = config.raw.clone();
    let balancing = &mut config.balancing;
    if balancing.shared_probe_path.is_empty() {
        PROBE_PATH.clone_into(&mut balancing.shared_probe_path);
    }
    match &*raw.sku.to_ascii_lowercase() {
        "" | "standard" => {}
        "service" => findings.error("loadBalancerSku", &raw.sku, "the service gateway is not supported; use standard"),
        // Upstream, everything else is basic.
        _ => {
            let message = "not supported: Azure has retired basic load balancers; upgrade them with Azure's script, and use standard";
            findings.error("loadBalancerSku", &raw.sku, message);
        }
    }
    match &*raw.pool_type.to_ascii_lowercase() {
        "" | "nodeipconfiguration" => balancing.pools = PoolKind::Interfaces,
        "nodeip" => balancing.pools = PoolKind::Addresses,
        "podip" => {
            let message = "pods as members are not supported; use nodeIP or nodeIPConfiguration";
            findings.error("loadBalancerBackendPoolConfigurationType", &raw.pool_type, message);
        }
        _ => {
            let message = "expected nodeIPConfiguration or nodeIP";
            findings.error("loadBalancerBackendPoolConfigurationType", &raw.pool_type, message);
        }
    }
    match &*raw.probe_mode.to_ascii_lowercase() {
        "" | "servicenodeport" => balancing.shared_probe = false,
        "shared" => balancing.shared_probe = true,
        _ => {
            let message = "expected servicenodeport or shared";
            findings.error("clusterServiceLoadBalancerHealthProbeMode", &raw.probe_mode, message);
        }
    }
}

/// The rules of several standard load balancers.
fn several(config: &Config, findings: &mut Findings) {
    const KEY: &str = "multipleStandardLoadBalancerConfigurations";
    let balancing = &config.balancing;
    if balancing.several.is_empty() {
        return;
    }
    if balancing.pools == PoolKind::Interfaces {
        findings.error(KEY, "", "needs loadBalancerBackendPoolConfigurationType nodeIP");
    }
    let (mut names, mut sets) = (BTreeSet::new(), BTreeSet::new());
    for (place, entry) in balancing.several.iter().enumerate() {
        let key = |name: &str| format!("{KEY}[{place}].{name}");
        let (name, set) = (entry.name.to_ascii_lowercase(), entry.primary_vm_set.to_ascii_lowercase());
        if name.is_empty() {
            findings.error(&key("name"), "", "needed");
        } else if !names.insert(name) {
            findings.error(&key("name"), &entry.name, "another entry has this name");
        }
        if set.is_empty() {
            findings.error(&key("primaryVMSet"), "", "needed");
        } else if !sets.insert(set) {
            findings.error(&key("primaryVMSet"), &entry.primary_vm_set, "another entry has this set");
        }
    }
}

/// What is left out names what to do instead.
fn unsupported(config: &Config, findings: &mut Findings) {
    let (raw, identity) = (&config.raw, &config.identity);
    if raw.gateway {
        let message = "the service gateway is not supported; remove the key, and use loadBalancerSku standard with \
                       loadBalancerBackendPoolConfigurationType nodeIP";
        findings.error("serviceGatewayEnabled", "true", message);
    }
    if !raw.data_plane_path.is_empty() {
        let message = "not supported; use useManagedIdentityExtension or workload identity (aadFederatedTokenFile)";
        findings.error("aadMSIDataPlaneIdentityPath", &raw.data_plane_path, message);
    }
    if raw.auxiliary {
        let message = "not supported; use a client secret or certificate for both tenants";
        findings.error("auxiliaryTokenProvider", "", message);
    }
    if !identity.certificate_password.is_empty() {
        let message = "not supported; make a PEM file without a password: \
                       openssl pkcs12 -in cert.pfx -nodes -out cert.pem";
        findings.error("aadClientCertPassword", "", message);
    }
}

/// `tags`, `tagsMap` and `systemTags`.
fn tags(config: &mut Config, findings: &mut Findings) {
    let raw = config.raw.clone();
    let mut all: Vec<(String, String)> = Vec::new();
    for pair in raw.tags.split(',').filter(|pair| !pair.trim().is_empty()) {
        let parts: Vec<&str> = pair.split('=').collect();
        match parts.as_slice() {
            [key, value] => add_tag(&mut all, key, value),
            _ => findings.warning("tags", pair.trim(), "ignored: expected key=value; use tagsMap for values with ="),
        }
    }
    for (key, value) in &raw.tags_map {
        add_tag(&mut all, key, value);
    }
    config.tags = all;
    let system = raw.system_tags.split(',').map(str::trim).filter(|tag| !tag.is_empty());
    config.system_tags = system.map(str::to_owned).collect();
}

/// Adds a tag. A key that differs only in case is replaced. The bare word null is reserved: it keeps its blanks.
pub(crate) fn add_tag(tags: &mut Vec<(String, String)>, key: &str, value: &str) {
    let key = key.trim();
    let trimmed = value.trim();
    let value = if same(trimmed, "null") { value } else { trimmed };
    if key.is_empty() {
        return;
    }
    tags.retain(|(known, _)| !same(known, key));
    tags.push((key.to_owned(), value.to_owned()));
}
