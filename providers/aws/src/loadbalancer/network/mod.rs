//! Network balancers.
//!
//! Each Service port has a listener, and each listener a target group of its own. Upstream: `ensureLoadBalancerv2` and what it
//! calls in `pkg/providers/v1/aws_loadbalancer.go`.

mod delete;
pub(crate) mod desired;
mod group;
mod plan;
mod port;
mod security;
mod warn;

#[cfg(test)]
#[cfg(feature = "sdk")]
mod tests;

use ccm_provider::LoadBalancerStatus;

pub(crate) use delete::delete;
pub(crate) use plan::plan;

use crate::client::elbv2::LoadBalancer;

/// The type of v2 balancers that this program manages.
pub(crate) const KIND: &str = "network";

/// The status of the Service: empty until the balancer has a DNS name, or if AWS could not create it.
pub(crate) fn status(balancer: &LoadBalancer) -> LoadBalancerStatus {
    // An `active_impaired` balancer works but cannot grow, so its hostname stays (upstream removes it).
    let usable = ["active", "provisioning", "active_impaired"].contains(&&*balancer.state);
    super::status(if usable { &balancer.dns_name } else { "" })
}
