//! The settings of the process that plans depend on.

use serde::{Deserialize, Serialize};

use crate::ownership::Ownership;
use crate::start::config::SharedProbe;

/// Input of every plan besides desired state and observation; fixed at start.
///
/// Kept in snapshots: a new field needs a default.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Env {
    #[serde(flatten)]
    pub(crate) ownership: Ownership,
    pub(crate) vpc: String,
    /// Subnet of last resort; empty when there is none.
    #[serde(default, rename = "subnet")]
    pub(crate) self_subnet: String,
    /// `DisableSecurityGroupIngress`
    #[serde(default)]
    pub(crate) node_groups_untouched: bool,
    /// `ElbSecurityGroup`
    #[serde(default)]
    pub(crate) shared_group: Option<String>,
    /// `NLBSecurityGroupMode = Managed`
    #[serde(default)]
    pub(crate) managed_network_groups: bool,
    /// `ClusterServiceLoadBalancerHealthProbeMode = Shared`; `None` is `ServiceNodePort`.
    #[serde(default)]
    pub(crate) shared_probe: Option<SharedProbe>,
}
