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
    /// Whether Octavia's driver is `ovn`, which has the fewest features.
    pub(crate) fn is_ovn(&self) -> bool {
        self.config.load_balancer.lb_provider == OVN
    }
}

/// The features of Octavia's version and provider driver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Features {
    pub(crate) tags: bool,
    pub(crate) allowed_cidrs: bool,
    pub(crate) flavors: bool,
    pub(crate) timeouts: bool,
    pub(crate) zones: bool,
    pub(crate) http_monitors_on_udp: bool,
    pub(crate) http_monitors: bool,
}

impl Features {
    pub(crate) fn of(version: Version, is_ovn: bool) -> Self {
        let since = |minor| version >= Version(2, minor);
        Self {
            tags: since(5),
            allowed_cidrs: since(12) && !is_ovn,
            flavors: since(6) && !is_ovn,
            timeouts: since(1) && !is_ovn,
            zones: since(14) && !is_ovn,
            http_monitors_on_udp: since(16) && !is_ovn,
            http_monitors: !is_ovn,
        }
    }
}
