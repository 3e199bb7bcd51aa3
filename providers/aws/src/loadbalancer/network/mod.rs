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

#[cfg(all(test, feature = "sdk"))]
mod tests;

use ccm_provider::{LoadBalancerIngress, LoadBalancerStatus};

pub(crate) use delete::delete;
pub(crate) use plan::plan;

use crate::client::elbv2::LoadBalancer;

/// The kind of balancers of the v2 API that are made here.
pub(crate) const KIND: &str = "network";

/// What a Service's status shows of its balancer: nothing until there is a name, or while AWS could not make it.
pub(crate) fn status(balancer: &LoadBalancer) -> LoadBalancerStatus {
    // `active_impaired` means that the balancer works but cannot grow: its name must stay (upstream takes it away).
    let usable = ["active", "provisioning", "active_impaired"].contains(&&*balancer.state);
    let hostname = Some(balancer.dns_name.clone()).filter(|name| usable && !name.is_empty());
    let ingress = hostname.map(|hostname| LoadBalancerIngress { hostname, ..LoadBalancerIngress::default() });
    LoadBalancerStatus { ingress: ingress.into_iter().collect() }
}
