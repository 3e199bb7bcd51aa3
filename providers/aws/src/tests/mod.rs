//! Shared helpers of the tests of several modules.

#[cfg(feature = "sdk")]
pub(crate) mod world;

use crate::loadbalancer::env::Env;
use crate::ownership::Ownership;

/// The settings of the cluster `c1` in the VPC `vpc-1`.
pub(crate) fn env() -> Env {
    Env {
        ownership: Ownership { cluster: "c1".to_owned(), legacy: false },
        vpc: "vpc-1".to_owned(),
        self_subnet: String::new(),
        node_groups_untouched: false,
        shared_group: None,
        managed_network_groups: false,
        shared_probe: None,
    }
}
