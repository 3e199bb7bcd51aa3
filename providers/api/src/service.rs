//! The parts of a Kubernetes Service that the core and the providers read, with the names of the API.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::well_known::FINALIZER_LOAD_BALANCER;

/// Namespace and name of a Service; printed as `namespace/name`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Namespace.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl ServiceKey {
    /// Parses `namespace/name`.
    pub fn parse(text: &str) -> Option<Self> {
        let (namespace, name) = text.split_once('/')?;
        Some(Self { namespace: namespace.into(), name: name.into() })
    }
}

/// A Service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Service {
    /// Metadata.
    pub metadata: ObjectMeta,
    /// The desired state.
    pub spec: ServiceSpec,
    /// The observed state.
    pub status: ServiceStatus,
}

/// Metadata of a Service or PersistentVolume.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectMeta {
    /// Namespace; empty for cluster-wide objects.
    pub namespace: Arc<str>,
    /// Name.
    pub name: Arc<str>,
    /// Unique ID; a recreated object has another one.
    pub uid: Arc<str>,
    /// Version for optimistic locking.
    pub resource_version: Arc<str>,
    /// Incremented with each change of `spec`; 0 if the API server does not maintain it, as for Services.
    pub generation: i64,
    /// Labels.
    #[serde(deserialize_with = "null_default")]
    pub labels: BTreeMap<String, String>,
    /// Annotations, without kubectl's `last-applied-configuration`.
    #[serde(deserialize_with = "null_default")]
    pub annotations: BTreeMap<String, String>,
    /// Finalizers in order.
    #[serde(deserialize_with = "null_default")]
    pub finalizers: Vec<String>,
    /// When deletion was requested.
    pub deletion_timestamp: Option<Timestamp>,
    /// When the object was created.
    pub creation_timestamp: Option<Timestamp>,
}

/// `spec` of a Service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceSpec {
    /// `ClusterIP`, `NodePort`, `LoadBalancer` or `ExternalName`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Ports.
    #[serde(deserialize_with = "null_default")]
    pub ports: Vec<ServicePort>,
    /// Selector of the pods of the Service.
    pub selector: Option<BTreeMap<String, String>>,
    /// First cluster IP.
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    /// Cluster IPs, one per family.
    #[serde(rename = "clusterIPs", deserialize_with = "null_default")]
    pub cluster_ips: Vec<String>,
    /// `IPv4`, `IPv6` in order of preference.
    #[serde(deserialize_with = "null_default")]
    pub ip_families: Vec<String>,
    /// `SingleStack`, `PreferDualStack` or `RequireDualStack`.
    pub ip_family_policy: Option<String>,
    /// External IP addresses that are routed to the nodes by other means.
    #[serde(rename = "externalIPs", deserialize_with = "null_default")]
    pub external_ips: Vec<String>,
    /// `None` or `ClientIP`.
    pub session_affinity: String,
    /// Settings of the session affinity, unparsed.
    pub session_affinity_config: Option<serde_json::Value>,
    /// Deprecated request for an address.
    #[serde(rename = "loadBalancerIP")]
    pub load_balancer_ip: String,
    /// The clients that may connect; `None` and empty differ.
    pub load_balancer_source_ranges: Option<Vec<String>>,
    /// A Service with a class belongs to another controller.
    pub load_balancer_class: Option<String>,
    /// Whether node ports are allocated; absent means true.
    pub allocate_load_balancer_node_ports: Option<bool>,
    /// `Cluster` or `Local`.
    pub external_traffic_policy: String,
    /// `Cluster` or `Local`.
    pub internal_traffic_policy: Option<String>,
    /// Port of the health check with `externalTrafficPolicy: Local`; 0 if none.
    pub health_check_node_port: i32,
}

/// One port of a Service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServicePort {
    /// Name; empty when the only port is unnamed.
    pub name: String,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// Application protocol hint.
    pub app_protocol: Option<String>,
    /// Port of the load balancer.
    pub port: i32,
    /// Port of the pods: a number or a name, as given.
    pub target_port: serde_json::Value,
    /// Port of the nodes; 0 if none.
    pub node_port: i32,
}

/// `status` of a Service.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ServiceStatus {
    /// The load balancer's addresses.
    pub load_balancer: LoadBalancerStatus,
    /// Conditions of the Service, one entry per type, from all controllers.
    #[serde(deserialize_with = "null_default")]
    pub conditions: Vec<Condition>,
}

/// `status.loadBalancer` of a Service.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct LoadBalancerStatus {
    /// Addresses and names, in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty", deserialize_with = "null_default")]
    pub ingress: Vec<LoadBalancerIngress>,
}

/// One address or name of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct LoadBalancerIngress {
    /// IP address.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub ip: String,
    /// DNS name.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub hostname: String,
    /// `VIP` or `Proxy`; the API server sets `VIP` if it is absent and `ip` is present.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ip_mode: Option<String>,
    /// State of the ports.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ports: Vec<PortStatus>,
}

/// State of one port of a load balancer.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct PortStatus {
    /// Port number.
    pub port: i32,
    /// `TCP`, `UDP` or `SCTP`.
    pub protocol: String,
    /// The reason why the port does not work.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

impl LoadBalancerStatus {
    /// Whether the lists are equal after the API server's default is applied: an absent `ipMode` beside an `ip` is
    /// `VIP`. (Upstream compares without the default and sends a patch that changes nothing.)
    pub fn same_as(&self, other: &Self) -> bool {
        let mode = |i: &LoadBalancerIngress| match &i.ip_mode {
            None if !i.ip.is_empty() => Some("VIP".to_owned()),
            mode => mode.clone(),
        };
        self.ingress.len() == other.ingress.len()
            && self
                .ingress
                .iter()
                .zip(&other.ingress)
                .all(|(a, b)| a.ip == b.ip && a.hostname == b.hostname && mode(a) == mode(b) && a.ports == b.ports)
    }
}

/// One condition of an object: `metav1.Condition`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct Condition {
    /// Its type, the key of the list.
    #[serde(rename = "type")]
    pub kind: String,
    /// `True`, `False` or `Unknown`.
    pub status: String,
    /// The `metadata.generation` for which it was set; 0 if unknown.
    #[serde(skip_serializing_if = "is_zero")]
    pub observed_generation: i64,
    /// When `status` changed last, in the API's time format.
    pub last_transition_time: String,
    /// One word, machine-readable.
    pub reason: String,
    /// A sentence for users.
    pub message: String,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
fn is_zero(number: &i64) -> bool {
    *number == 0
}

/// Treats null like an absent value.
fn null_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(from: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

impl Service {
    /// `namespace/name`
    pub fn key(&self) -> ServiceKey {
        ServiceKey { namespace: self.metadata.namespace.clone(), name: self.metadata.name.clone() }
    }

    /// Whether the type is `LoadBalancer`, whatever the class.
    pub fn is_load_balancer(&self) -> bool {
        self.spec.kind == "LoadBalancer"
    }

    /// Whether the Service requests a load balancer from this controller: type LoadBalancer and no class.
    pub fn wants_load_balancer(&self) -> bool {
        self.is_load_balancer() && self.spec.load_balancer_class.is_none()
    }

    /// Whether the Service has our finalizer.
    pub fn has_finalizer(&self) -> bool {
        self.metadata.finalizers.iter().any(|f| f == FINALIZER_LOAD_BALANCER)
    }

    /// Whether our load balancer must be deleted: the Service has our finalizer, and is being deleted or is no longer
    /// of type LoadBalancer. The class does not matter.
    pub fn needs_cleanup(&self) -> bool {
        self.has_finalizer() && (self.metadata.deletion_timestamp.is_some() || !self.is_load_balancer())
    }

    /// Whether an externally reachable Service has `externalTrafficPolicy: Local`.
    pub fn requests_only_local_traffic(&self) -> bool {
        matches!(&*self.spec.kind, "LoadBalancer" | "NodePort") && self.spec.external_traffic_policy == "Local"
    }

    /// Whether a load balancer must check on each node whether it has local pods.
    pub fn needs_health_check(&self) -> bool {
        self.is_load_balancer() && self.requests_only_local_traffic()
    }

    /// Path and port of that health check; an empty path and 0 if there is none.
    pub fn health_check_path_port(&self) -> (&'static str, i32) {
        match self.spec.health_check_node_port {
            port if port != 0 && self.needs_health_check() => ("/healthz", port),
            _ => ("", 0),
        }
    }

    /// The default name of a load balancer: `a`, then the UID without dashes, 32 characters in total.
    pub fn default_load_balancer_name(&self) -> String {
        let uid = self.metadata.uid.chars().filter(|c| *c != '-');
        std::iter::once('a').chain(uid).take(32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(json: serde_json::Value) -> Service {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn default_balancer_name_is_a_and_the_uid_cut_to_32() {
        let s = service(serde_json::json!({"metadata": {"uid": "01234567-89ab-cdef-0123-456789abcdef"}}));
        assert_eq!(s.default_load_balancer_name(), "a0123456789abcdef0123456789abcde");
        assert_eq!(s.default_load_balancer_name().len(), 32);
    }

    #[test]
    fn a_class_takes_the_service_away_but_not_its_cleanup() {
        let s = service(serde_json::json!({
            "metadata": {"finalizers": [FINALIZER_LOAD_BALANCER], "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"type": "LoadBalancer", "loadBalancerClass": "example.com/x"}}));
        assert!(!s.wants_load_balancer());
        assert!(s.needs_cleanup());
    }

    #[test]
    fn health_check_needs_local_policy_type_and_port() {
        let s = |kind: &str, policy: &str, port: i32| {
            service(serde_json::json!({"spec": {"type": kind, "externalTrafficPolicy": policy,
                "healthCheckNodePort": port}}))
        };
        assert_eq!(s("LoadBalancer", "Local", 31000).health_check_path_port(), ("/healthz", 31000));
        assert_eq!(s("LoadBalancer", "Local", 0).health_check_path_port(), ("", 0));
        assert_eq!(s("LoadBalancer", "Cluster", 31000).health_check_path_port(), ("", 0));
        assert!(s("NodePort", "Local", 0).requests_only_local_traffic());
        assert!(!s("NodePort", "Local", 0).needs_health_check());
    }

    #[test]
    fn null_lists_and_maps_read_as_empty() {
        let s = service(serde_json::json!({"metadata": {"labels": null, "finalizers": null}, "spec": {"ports": null}}));
        assert!(s.metadata.finalizers.is_empty() && s.spec.ports.is_empty());
    }

    fn status(json: serde_json::Value) -> LoadBalancerStatus {
        serde_json::from_value(json).unwrap()
    }

    #[test]
    fn an_absent_ip_mode_beside_an_ip_equals_vip() {
        let bare = status(serde_json::json!({"ingress": [{"ip": "192.0.2.1"}]}));
        let vip = status(serde_json::json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "VIP"}]}));
        let proxy = status(serde_json::json!({"ingress": [{"ip": "192.0.2.1", "ipMode": "Proxy"}]}));
        assert!(bare.same_as(&vip) && vip.same_as(&bare));
        assert!(!bare.same_as(&proxy));
        let name = status(serde_json::json!({"ingress": [{"hostname": "a"}]}));
        let name_vip = status(serde_json::json!({"ingress": [{"hostname": "a", "ipMode": "VIP"}]}));
        assert!(!name.same_as(&name_vip));
    }

    #[test]
    fn ports_and_order_count_and_null_is_empty() {
        let a = status(serde_json::json!({"ingress": [{"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}));
        let b = status(serde_json::json!({"ingress": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.1"}]}));
        assert!(!a.same_as(&b));
        let ports =
            status(serde_json::json!({"ingress": [{"ip": "192.0.2.1", "ports": [{"port": 80, "protocol": "TCP"}]},
            {"ip": "192.0.2.2"}]}));
        assert!(!a.same_as(&ports));
        assert!(status(serde_json::json!({"ingress": null})).same_as(&status(serde_json::json!({}))));
    }
}
