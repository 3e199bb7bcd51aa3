//! Names of the objects that are created for a Service. They equal upstream's, so that objects of the Go program are
//! found again. Each depends only on properties that do not change during the lifetime of the object.

use std::fmt::Write as _;

use ccm_provider::ServiceKey;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// The type of v2 balancers that this program manages.
pub(crate) const NETWORK_KIND: &str = "network";
pub(crate) const TARGET_TYPE: &str = "instance";
/// Policy of classic balancers that turns proxy protocol on.
pub(crate) const PROXY_PROTOCOL_POLICY: &str = "k8s-proxyprotocol-enabled";
pub(crate) const NETWORK_GROUP_DESCRIPTION: &str = "[k8s] Managed SecurityGroup for LoadBalancer";
/// Begins the description of the managed group of a classic balancer; its name and the Service follow.
const CLASSIC_GROUP_DESCRIPTION: &str = "Security group for Kubernetes ELB ";

/// Policy of classic balancers that refers to one of AWS's TLS policies.
pub(crate) fn ssl_policy(reference: &str) -> String {
    format!("k8s-SSLNegotiationPolicy-{reference}")
}

pub(crate) fn classic_group(balancer: &str) -> String {
    format!("k8s-elb-{balancer}")
}

pub(crate) fn classic_group_description(balancer: &str, service: &ServiceKey) -> String {
    format!("{CLASSIC_GROUP_DESCRIPTION}{balancer} ({service})")
}

pub(crate) fn is_group_description(text: &str) -> bool {
    text == NETWORK_GROUP_DESCRIPTION || text.starts_with(CLASSIC_GROUP_DESCRIPTION)
}

/// Whether an ARN is that of a network balancer with this name.
pub(crate) fn is_balancer(arn: &str, name: &str) -> bool {
    let path = arn.split_once(":loadbalancer/net/").map(|(_, path)| path);
    path.and_then(|path| path.split_once('/')).is_some_and(|(found, _)| found == name)
}

/// Managed group of a network balancer. `cluster_name` is `--cluster-name`, not the cluster's ID.
pub(crate) fn network_group(cluster_name: &str, service: &ServiceKey, uid: &str) -> String {
    let mut hash = Sha256::new();
    for part in [cluster_name, &service.name, &service.namespace, uid] {
        hash.update(part);
    }
    composed(service, &hash.finalize())
}

/// The target group of a Service port. Settings that AWS or upstream cannot change in place are part of the name, so
/// that the old and the new group can exist side by side while the listener moves.
pub(crate) fn target_group(cluster: &str, service: &ServiceKey, settings: [&str; 5]) -> String {
    let [port, node_port, traffic_protocol, check_protocol, check_interval] = settings;
    let mut hash = Sha1::new();
    hash.update(cluster);
    hash.update(&*service.namespace);
    hash.update(&*service.name);
    hash.update(port);
    hash.update(node_port);
    hash.update(traffic_protocol);
    hash.update(TARGET_TYPE);
    hash.update(check_protocol);
    hash.update(check_interval);
    composed(service, &hash.finalize())
}

/// `k8s-<namespace>-<name>-<hash>`, cut so that AWS's 32 characters are never exceeded.
fn composed(service: &ServiceKey, hash: &[u8]) -> String {
    let plain = |text: &str| text.chars().filter(char::is_ascii_alphanumeric).take(8).collect::<String>();
    let mut name = format!("k8s-{}-{}-", plain(&service.namespace), plain(&service.name));
    for byte in hash.iter().take(5) {
        // Writing to a String cannot fail.
        let _ = write!(name, "{byte:02x}");
    }
    name
}

/// Whether a target group, or the managed group of a network balancer, may belong to the Service: the name contains
/// only the first eight characters of namespace and name.
pub(crate) fn may_be_target_group_of(name: &str, service: &ServiceKey) -> bool {
    let hash = name.strip_prefix(&*composed(service, &[]));
    hash.is_some_and(|hash| hash.len() == 10 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

#[cfg(test)]
mod tests;
