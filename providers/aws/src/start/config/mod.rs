//! The file of `--cloud-config`, read once and checked at the start.
//!
//! Upstream: `pkg/providers/v1/config/config.go`. Some checks that upstream makes on every reconcile, or never, run
//! here. Accepted but doubtful values are returned as findings beside the configuration.

use ccm_kit::gcfg::{self, Reader};
use ccm_provider::{Finding, ProviderError, Severity};
use regex::Regex;
use serde::{Deserialize, Serialize};

use crate::ownership::Ownership;

mod overrides;
mod table;

#[cfg(test)]
mod tests;

pub(crate) use overrides::{Endpoint, ServiceOverride};

/// The port on which kube-proxy answers health checks.
const KUBE_PROXY_HEALTH_PORT: u16 = 10256;
const KUBE_PROXY_HEALTH_PATH: &str = "/healthz";

/// The checked configuration file. An empty file gives the default.
#[derive(Debug, Clone, Default)]
pub(crate) struct Config {
    /// `Zone`; determines the region if set.
    pub(crate) zone: Option<String>,
    pub(crate) region: Option<String>,
    pub(crate) vpc: Option<String>,
    pub(crate) subnet: Option<String>,
    pub(crate) route_table: Option<String>,
    /// `RoleARN`, unparsed: it is parsed where the role is used, as upstream does.
    pub(crate) role: Option<String>,
    pub(crate) source: Option<String>,
    /// `KubernetesClusterTag`; empty when not given.
    pub(crate) cluster_tag: String,
    /// `KubernetesClusterID`; empty when not given.
    pub(crate) cluster_id: String,
    /// `DisableSecurityGroupIngress`
    pub(crate) leave_node_groups_alone: bool,
    /// `ElbSecurityGroup`: the group of every classic balancer.
    pub(crate) classic_group: Option<String>,
    /// `NodeIPFamilies`, without repetition; see [`Self::families`].
    families: Vec<Family>,
    /// `ClusterServiceLoadBalancerHealthProbeMode = Shared` and its two related keys.
    pub(crate) shared_probe: Option<SharedProbe>,
    /// `SupportedTopologyInstanceTypePattern`; `None` selects the built-in pattern.
    pub(crate) topology_types: Option<Regex>,
    /// `NLBSecurityGroupMode = Managed`
    pub(crate) managed_network_groups: bool,
    /// `[ServiceOverride "…"]`, in the order of the file.
    pub(crate) overrides: Vec<ServiceOverride>,
}

struct Read {
    config: Config,
    /// Findings about sections and keys.
    findings: Vec<Finding>,
    /// Findings about the overrides together.
    of_overrides: Vec<Finding>,
}

/// An IP family of node addresses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Family {
    Ipv4,
    Ipv6,
}

impl std::fmt::Display for Family {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ipv4 => "ipv4",
            Self::Ipv6 => "ipv6",
        })
    }
}

/// The endpoint where kube-proxy reports, over HTTP and for all Services, whether a node serves Services with the
/// traffic policy `Cluster`. Without it, balancers probe each Service's own node port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SharedProbe {
    pub(crate) port: u16,
    pub(crate) path: String,
}

/// The account of a role, taken from the role's ARN.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Role {
    pub(crate) arn: String,
    pub(crate) account: String,
}

impl Config {
    /// Parses the file; `None` means no file. `Ok` contains the warnings, `Err` all errors.
    pub(crate) fn parse(text: Option<&str>) -> Result<(Self, Vec<Finding>), ProviderError> {
        const CONTEXT: &str = "unable to read AWS cloud provider config file";
        let Read { config, mut findings, of_overrides } = Self::read(text.unwrap_or_default()).map_err(|finding| {
            let message = format!("{CONTEXT}: {}", finding.message);
            ProviderError::new(ccm_provider::ErrorClass::Invalid { findings: vec![finding] }, message)
        })?;
        gcfg::table::refuse(CONTEXT, &findings)?;
        findings.extend(of_overrides);
        gcfg::table::refuse("unable to validate custom endpoint overrides", &findings)?;
        Ok((config, findings))
    }

    /// All errors in the file, including those that a start finds only later.
    pub(crate) fn lint(text: &str) -> Vec<Finding> {
        match Self::read(text) {
            Ok(Read { config, mut findings, of_overrides }) => {
                findings.extend(of_overrides);
                findings.extend(config.late());
                findings
            }
            Err(finding) => vec![finding],
        }
    }

    /// The configuration and its findings. Fails if the text is not a valid configuration file.
    fn read(text: &str) -> Result<Read, Finding> {
        let document =
            gcfg::parse(text).map_err(|error| Finding::new(Severity::Error, "cloud-config", error.to_string()))?;
        let mut reader = Reader::new(&document, Severity::Warning);
        let global = reader.section(&table::GLOBAL);
        let raw_overrides = reader.subsections(&table::OVERRIDE);
        let mut findings = reader.finish();
        let mut config = global.check(&mut findings);
        let mut of_overrides = Vec::new();
        config.overrides = overrides::check(raw_overrides, &mut of_overrides);
        Ok(Read { config, findings, of_overrides })
    }

    /// Errors that stop a start only when the value is used.
    fn late(&self) -> Vec<Finding> {
        let error = |key: &str, value: Option<&String>, error: String| Finding {
            severity: Severity::Error,
            key: format!("[Global] {key}"),
            value: value.cloned(),
            message: error,
        };
        let region = self.region().err().map(|e| error("Zone", self.zone.as_ref(), e.to_string()));
        let role = self.role().err().map(|e| error("RoleARN", self.role.as_ref(), e.to_string()));
        let cluster = Ownership::from_config(&self.cluster_tag, &self.cluster_id).err();
        let cluster = cluster.map(|e| error("KubernetesClusterID", Some(&self.cluster_id), e.to_string()));
        [region, role, cluster].into_iter().flatten().collect()
    }

    /// The region that the file sets: that of `Zone`, else `Region`.
    pub(crate) fn region(&self) -> Result<Option<String>, ProviderError> {
        match &self.zone {
            None => Ok(self.region.clone()),
            Some(zone) => region_of_zone(zone).map(|region| Some(region.to_owned())).ok_or_else(|| {
                ProviderError::unknown(format!(
                    "invalid AZ: {zone}; [Global] Zone must be the name of an availability zone such as us-west-2a, or be left out"
                ))
            }),
        }
    }

    /// The IP families of node addresses, in order.
    pub(crate) fn families(&self) -> &[Family] {
        if self.families.is_empty() { &[Family::Ipv4] } else { &self.families }
    }

    pub(crate) fn role(&self) -> Result<Option<Role>, ProviderError> {
        let Some(arn) = &self.role else { return Ok(None) };
        // arn:partition:service:region:account:resource
        let parts: Vec<&str> = arn.splitn(6, ':').collect();
        match parts.as_slice() {
            ["arn", _, _, _, account, _] => Ok(Some(Role { arn: arn.clone(), account: (*account).to_owned() })),
            _ => Err(ProviderError::unknown(format!(
                "unable to create sts v2 client: [Global] RoleARN = {arn:?}: not an ARN; expected arn:aws:iam::<account>:role/<name>"
            ))),
        }
    }

    /// Whether this program runs outside the cluster's instances, so that it must not look up its own instance.
    pub(crate) fn is_off_instance(&self) -> bool {
        self.vpc.is_some() && (self.subnet.is_some() || self.role.is_some()) && self.names_cluster()
    }

    pub(crate) fn names_cluster(&self) -> bool {
        !self.cluster_tag.is_empty() || !self.cluster_id.is_empty()
    }

    /// The override for a service in a region. If several match, the one with the current SDK's name wins, as upstream.
    pub(crate) fn override_for(&self, endpoint: Endpoint, region: &str) -> Option<&ServiceOverride> {
        let matching = || self.overrides.iter().filter(|entry| entry.is_for(endpoint, region));
        matching().find(|entry| entry.service == endpoint.id()).or_else(|| matching().next())
    }
}

/// The region in a zone's name: `us-west-2` for `us-west-2a` and for `us-west-2-lax-1a`.
pub(crate) fn region_of_zone(zone: &str) -> Option<&str> {
    // Words of letters, each followed by a hyphen, then digits: as many words as possible.
    let mut end = 0;
    for (index, word) in zone.split('-').enumerate() {
        let is_word = !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_alphabetic());
        let digits = word.bytes().take_while(u8::is_ascii_digit).count();
        if index > 0 && digits > 0 {
            return zone.get(..end + digits);
        }
        if !is_word {
            return None;
        }
        end += word.len() + 1;
    }
    None
}

/// The reference of the file, in Markdown.
pub(crate) fn reference() -> String {
    format!("{}\n{}", table::GLOBAL.reference(), table::OVERRIDE.reference())
}
