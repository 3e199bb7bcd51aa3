//! The names and descriptions of objects made for Services. Compute Engine has no tags on these objects: their names
//! show the ownership, with the UID of the Service or the ID of the cluster. Byte for byte as in the Go program.

use std::collections::BTreeMap;

use ccm_provider::{Service, ServiceKey};

#[cfg(test)]
mod tests;

/// The finalizer of a Service with an internal load balancer.
pub(crate) const ILB_FINALIZER: &str = "gke.networking.io/l4-ilb-v1";
/// The finalizer of another controller's internal load balancer.
pub(crate) const ILB_FINALIZER_V2: &str = "gke.networking.io/l4-ilb-v2";
/// The finalizer of a Service with an external load balancer.
pub(crate) const NETLB_FINALIZER: &str = "gke.networking.io/l4-netlb-v1";
/// The finalizers of another controller's external load balancers.
pub(crate) const RBS_FINALIZERS: [&str; 2] = ["gke.networking.io/l4-netlb-v2", "gke.networking.io/l4-netlb-v3"];

/// `spec.loadBalancerClass` of external load balancers made here.
pub(crate) const CLASS_EXTERNAL: &str = "networking.gke.io/l4-regional-external-legacy";
/// `spec.loadBalancerClass` of internal load balancers made here.
pub(crate) const CLASS_INTERNAL: &str = "networking.gke.io/l4-regional-internal-legacy";
/// The classes of this provider's own service controller.
pub(crate) const CLASSES: [&str; 2] = [CLASS_EXTERNAL, CLASS_INTERNAL];
/// `spec.loadBalancerClass` of another controller's external load balancers.
pub(crate) const CLASS_RBS: &str = "networking.gke.io/l4-regional-external";

/// The names of the objects that the Services of this cluster share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ClusterNames<'a>(pub(crate) &'a str);

impl ClusterNames<'_> {
    /// The health check of all nodes, in both collections of health checks.
    pub(crate) fn health_check(self) -> String {
        format!("k8s-{}-node", self.0)
    }

    /// The firewall rule that admits the health checks of external load balancers.
    pub(crate) fn external_check_firewall(self) -> String {
        format!("k8s-{}-node-http-hc", self.0)
    }

    /// The firewall rule that admits the health checks of internal load balancers.
    pub(crate) fn internal_check_firewall(self) -> String {
        format!("{}-hc", self.health_check())
    }

    pub(crate) fn external_check_firewall_description(self) -> String {
        format!(r#"{{"kubernetes.io/cluster-id":"{}"}}"#, self.0)
    }

    /// The instance group in each zone. The ID of old clusters is empty.
    pub(crate) fn instance_group(self) -> String {
        if self.0.is_empty() { "k8s-ig".to_owned() } else { format!("k8s-ig--{}", self.0) }
    }

    /// All backend services that Services may share.
    pub(crate) fn shared_backend_services(self) -> [String; 4] {
        [("tcp", "None"), ("tcp", "ClientIP"), ("udp", "None"), ("udp", "ClientIP")]
            .map(|(protocol, affinity)| self.shared_backend_service(protocol, affinity))
    }

    /// A backend service that Services share.
    pub(crate) fn shared_backend_service(self, protocol: &str, affinity: &str) -> String {
        let protocol = protocol.to_lowercase();
        format!("k8s-{}-internal-{protocol}-nmv1-{}", self.0, affinity_hash(affinity))
    }
}

/// The first half of the SHA-1 of a session affinity. Kubernetes has these two.
fn affinity_hash(affinity: &str) -> &'static str {
    match affinity {
        "ClientIP" => "1668fd70f588116e",
        _ => "6eef6648406c333a",
    }
}

/// The names of objects made for one Service.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Names {
    /// The forwarding rule, the address, the target pool, the backend service, and the Service's own health checks.
    pub(crate) balancer: String,
    /// `namespace/name`
    service: String,
}

impl Names {
    pub(crate) fn of(service: &Service) -> Self {
        Self { balancer: service.default_load_balancer_name(), service: service.key().to_string() }
    }

    /// The firewall rule for its traffic.
    pub(crate) fn firewall(&self) -> String {
        format!("k8s-fw-{}", self.balancer)
    }

    /// The firewall rule that denies all other traffic.
    pub(crate) fn deny_firewall(&self) -> String {
        format!("{}-deny", self.firewall())
    }

    /// The firewall rule for its own external health checks.
    pub(crate) fn external_check_firewall(&self) -> String {
        format!("k8s-{}-http-hc", self.balancer)
    }

    /// The firewall rule for its own internal health checks.
    pub(crate) fn internal_check_firewall(&self) -> String {
        format!("{}-hc", self.balancer)
    }

    /// The description of the forwarding rule, address, target pool, backend service and own internal health check.
    pub(crate) fn description(&self) -> String {
        service_name(&self.service)
    }

    /// The description of firewall rules. The space after the comma is part of it.
    pub(crate) fn firewall_description(&self, ip: &str) -> String {
        format!(r#"{{"kubernetes.io/service-name":"{}", "kubernetes.io/service-ip":"{ip}"}}"#, self.service)
    }
}

/// The description of an external health check, which contains the check's name.
pub(crate) fn http_check_description(name: &str) -> String {
    service_name(name)
}

/// The description of a Service's own health check while the check that it replaces may have to be deleted.
pub(crate) fn replacing(description: &str, replaced: &str) -> String {
    let description = description.trim_end_matches('}');
    format!(r#"{description}, "{REPLACES}":"{replaced}"}}"#)
}

const REPLACES: &str = "ccm/replaces";

/// Whether a description is that of [`replacing`].
pub(crate) fn is_replacing(description: &str) -> bool {
    let description: Option<serde_json::Value> = serde_json::from_str(description).ok();
    description.is_some_and(|description| description.get(REPLACES).is_some())
}

fn service_name(name: &str) -> String {
    format!(r#"{{"kubernetes.io/service-name":"{name}"}}"#)
}

/// What stands for a description that users wrote: it may contain anything, and is not repeated.
const ANOTHER: &str = "(another text)";

/// A description as snapshots have it: the text if it has the form of this program and of the Go program.
pub(crate) fn shown_description(description: &str) -> &str {
    const KEYS: [&str; 4] =
        ["kubernetes.io/service-name", "kubernetes.io/service-ip", "kubernetes.io/cluster-id", REPLACES];
    let fields = serde_json::from_str::<BTreeMap<String, String>>(description);
    let is_own = |(key, value): (&String, &String)| KEYS.contains(&&**key) && !value.contains(char::is_whitespace);
    if description.is_empty() || fields.is_ok_and(|fields| fields.iter().all(is_own)) { description } else { ANOTHER }
}

/// The Service that a description names.
pub(crate) fn described_service(description: &str) -> Option<ServiceKey> {
    let description: serde_json::Value = serde_json::from_str(description).ok()?;
    ServiceKey::parse(description.get("kubernetes.io/service-name")?.as_str()?)
}
