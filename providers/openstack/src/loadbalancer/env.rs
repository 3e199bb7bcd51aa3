//! What plans depend on besides the desired and the observed state: the configuration, and what Octavia can.

use crate::client::octavia::Version;
use crate::node::identity::Identity;
use crate::start::config::{Config, OVN};

/// The inputs of plans besides the observation.
#[derive(Debug, Clone, Default)]
pub(crate) struct Env {
    pub(crate) config: Config,
    pub(crate) identity: Identity,
}

impl Env {
    /// Octavia's driver of a balancer: its own, or the configured one for a new balancer.
    pub(crate) fn provider<'a>(&'a self, own: Option<&'a str>) -> &'a str {
        own.filter(|provider| !provider.is_empty()).unwrap_or(&self.config.load_balancer.lb_provider)
    }
}

/// The features of Octavia's version and provider driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) tags: bool,
    pub(crate) allowed_cidrs: bool,
    /// Whether listeners of several transports may have one port: older than the CIDRs, and in the same release.
    pub(crate) port_per_transport: bool,
    pub(crate) flavors: bool,
    pub(crate) timeouts: bool,
    pub(crate) zones: bool,
    pub(crate) http_monitors_on_udp: bool,
    pub(crate) http_monitors: bool,
    pub(crate) proxy_v2: bool,
}

impl Features {
    /// `ovn` has the fewest.
    pub(crate) fn of(version: Version, provider: &str) -> Self {
        let is_ovn = provider == OVN;
        let since = |minor| version >= Version(2, minor);
        Self {
            tags: since(5),
            allowed_cidrs: since(12) && !is_ovn,
            port_per_transport: since(12),
            flavors: since(6) && !is_ovn,
            timeouts: since(1) && !is_ovn,
            zones: since(14) && !is_ovn,
            http_monitors_on_udp: since(16) && !is_ovn,
            http_monitors: !is_ovn,
            proxy_v2: since(22) && !is_ovn,
        }
    }
}
