//! The names and descriptions of what is made for Services. Compute Engine has no tags on these objects: a name is the mark of
//! ownership, and it holds the UID of the Service or the ID of the cluster. To the byte as the Go program has them.

use ccm_provider::{Service, ServiceKey};

#[cfg(test)]
mod tests;

/// The finalizer of a Service with an internal load balancer.
pub(crate) const ILB_FINALIZER: &str = "gke.networking.io/l4-ilb-v1";
/// That of another controller's internal load balancer.
pub(crate) const ILB_FINALIZER_V2: &str = "gke.networking.io/l4-ilb-v2";
/// The finalizer of a Service with an external load balancer.
pub(crate) const NETLB_FINALIZER: &str = "gke.networking.io/l4-netlb-v1";
/// Those of another controller's external load balancers.
pub(crate) const RBS_FINALIZERS: [&str; 2] = ["gke.networking.io/l4-netlb-v2", "gke.networking.io/l4-netlb-v3"];

/// `spec.loadBalancerClass` of external load balancers made here.
pub(crate) const CLASS_EXTERNAL: &str = "networking.gke.io/l4-regional-external-legacy";
/// That of internal ones.
pub(crate) const CLASS_INTERNAL: &str = "networking.gke.io/l4-regional-internal-legacy";
/// Both: what this provider's own service controller makes.
pub(crate) const CLASSES: [&str; 2] = [CLASS_EXTERNAL, CLASS_INTERNAL];
/// That of another controller's external load balancers.
pub(crate) const CLASS_RBS: &str = "networking.gke.io/l4-regional-external";

/// How the health check with the nodes' own port is named, and the groups of all nodes, in this cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterNames<'a>(pub(crate) &'a str);

impl ClusterNames<'_> {
    /// Of the health check of all nodes, in both collections of health checks.
    pub(crate) fn health_check(self) -> String {
        format!("k8s-{}-node", self.0)
    }

    /// Of the firewall that lets the health checks of external load balancers in.
    pub(crate) fn external_check_firewall(self) -> String {
        format!("k8s-{}-node-http-hc", self.0)
    }

    /// Of the firewall that lets the health checks of internal load balancers in.
    pub(crate) fn internal_check_firewall(self) -> String {
        format!("{}-hc", self.health_check())
    }

    pub(crate) fn external_check_firewall_description(self) -> String {
        format!(r#"{{"kubernetes.io/cluster-id":"{}"}}"#, self.0)
    }

    /// Of the instance group in each zone. The ID of old clusters is empty.
    pub(crate) fn instance_group(self) -> String {
        if self.0.is_empty() { "k8s-ig".to_owned() } else { format!("k8s-ig--{}", self.0) }
    }

    /// Of all backend services that Services may share.
    pub(crate) fn shared_backend_services(self) -> [String; 4] {
        [("tcp", "None"), ("tcp", "ClientIP"), ("udp", "None"), ("udp", "ClientIP")]
            .map(|(protocol, affinity)| self.shared_backend_service(protocol, affinity))
    }

    /// Of a backend service that Services share.
    pub(crate) fn shared_backend_service(self, protocol: &str, affinity: &str) -> String {
        let protocol = protocol.to_lowercase();
        format!("k8s-{}-internal-{protocol}-nmv1-{}", self.0, affinity_hash(affinity))
    }
}

/// The first half of the SHA-1 of a session affinity of Kubernetes, which has these two.
fn affinity_hash(affinity: &str) -> &'static str {
    match affinity {
        "ClientIP" => "1668fd70f588116e",
        _ => "6eef6648406c333a",
    }
}

/// The names of what is made for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names {
    /// Of the forwarding rule, the address, the target pool, the backend service, and the health checks of its own.
    pub(crate) balancer: String,
    /// `namespace/name`
    service: String,
}

impl Names {
    pub(crate) fn of(service: &Service) -> Self {
        Self { balancer: service.default_load_balancer_name(), service: service.key().to_string() }
    }

    /// Of the firewall for its traffic.
    pub(crate) fn firewall(&self) -> String {
        format!("k8s-fw-{}", self.balancer)
    }

    /// Of the firewall that keeps all other traffic out.
    pub(crate) fn deny_firewall(&self) -> String {
        format!("{}-deny", self.firewall())
    }

    /// Of the firewall for health checks of its own, external.
    pub(crate) fn external_check_firewall(&self) -> String {
        format!("k8s-{}-http-hc", self.balancer)
    }

    /// Of the firewall for health checks of its own, internal.
    pub(crate) fn internal_check_firewall(&self) -> String {
        format!("{}-hc", self.balancer)
    }

    /// Of the forwarding rule, the address, the target pool, the backend service, and an internal health check of its own.
    pub(crate) fn description(&self) -> String {
        service_name(&self.service)
    }

    /// Of firewalls. The blank behind the comma is part of it.
    pub(crate) fn firewall_description(&self, ip: &str) -> String {
        format!(r#"{{"kubernetes.io/service-name":"{}", "kubernetes.io/service-ip":"{ip}"}}"#, self.service)
    }
}

/// The description of an external health check: with its own name.
pub(crate) fn http_check_description(name: &str) -> String {
    service_name(name)
}

/// The description of a health check of one Service as long as the one that it replaces may have to go.
pub(crate) fn replacing(description: &str, replaced: &str) -> String {
    let description = description.trim_end_matches('}');
    format!(r#"{description}, "{REPLACES}":"{replaced}"}}"#)
}

const REPLACES: &str = "ccm/replaces";

/// Whether a description is one of these.
pub(crate) fn is_replacing(description: &str) -> bool {
    let description: Option<serde_json::Value> = serde_json::from_str(description).ok();
    description.is_some_and(|description| description.get(REPLACES).is_some())
}

fn service_name(name: &str) -> String {
    format!(r#"{{"kubernetes.io/service-name":"{name}"}}"#)
}

/// The Service that a description names.
pub(crate) fn described_service(description: &str) -> Option<ServiceKey> {
    let description: serde_json::Value = serde_json::from_str(description).ok()?;
    ServiceKey::parse(description.get("kubernetes.io/service-name")?.as_str()?)
}
