//! The configuration of load balancers.

use serde::{Deserialize, Serialize};

use crate::client::resource::{Links, Scope};

/// The inputs of plans besides the observation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Env {
    pub(crate) links: Links,
    pub(crate) region: String,
    /// The URL of the network.
    pub(crate) network: String,
    /// `node-tags`
    pub(crate) node_tags: Vec<String>,
    /// The source ranges of health checks.
    pub(crate) check_sources: Vec<String>,
    /// `external-instance-groups-prefix`; empty: no external groups are used.
    #[serde(default)]
    pub(crate) external_groups_prefix: String,
    pub(crate) options: Options,
}

impl Env {
    pub(crate) fn region(&self) -> Scope {
        Scope::region(&self.region)
    }
}

/// Feature switches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[allow(clippy::struct_excessive_bools)] // flags of the command line
pub(crate) struct Options {
    /// `--enable-rbs-default-l4-netlb`
    pub(crate) rbs_by_default: bool,
    /// `--enable-l4-lb-annotations`
    pub(crate) writes_annotations: bool,
    /// `--enable-l4-deny-firewall`
    pub(crate) denies: bool,
    /// `--enable-l4-deny-firewall-rollback-cleanup`
    pub(crate) removes_deny_rules: bool,
    /// `--enable-discrete-port-forwarding`
    pub(crate) discrete_ports: bool,
    /// `alpha-features = ILBSubsets`
    pub(crate) subsets: bool,
    /// `alpha-features = SkipIGsManagement`
    pub(crate) skips_groups: bool,
}
