//! The objects of load balancers, with the fields that are read. Missing fields have the default of the API.

use ccm_kit::models;
use serde_json::{Value, json};

use super::resource::last_part;
use super::{Named, named};

named!(ForwardingRule, Address, TargetPool, HealthCheck, BackendService, Firewall, InstanceGroup);

impl Named for GroupMember {
    fn name(&self) -> &str {
        &self.instance
    }
}

models! {
    /// A forwarding rule: the address and the ports of a load balancer.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct ForwardingRule {
        pub(crate) name: String,
        #[serde(skip_serializing)]
        pub(crate) id: String,
        pub(crate) description: String,
        #[serde(rename = "IPAddress")]
        pub(crate) ip_address: String,
        #[serde(rename = "IPProtocol")]
        pub(crate) ip_protocol: String,
        pub(crate) port_range: String,
        pub(crate) ports: Vec<String>,
        pub(crate) all_ports: bool,
        pub(crate) allow_global_access: bool,
        pub(crate) load_balancing_scheme: String,
        pub(crate) network_tier: String,
        pub(crate) target: String,
        pub(crate) backend_service: String,
        pub(crate) subnetwork: String,
        pub(crate) network: String,
        pub(crate) fingerprint: String,
    }

    /// A reserved address.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Address {
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) address: String,
        pub(crate) address_type: String,
        pub(crate) network_tier: String,
        pub(crate) purpose: String,
        pub(crate) subnetwork: String,
        /// The URLs of the objects that use it.
        pub(crate) users: Vec<String>,
    }

    /// A target pool: the instances behind an external load balancer.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct TargetPool {
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) instances: Vec<String>,
        pub(crate) session_affinity: String,
        pub(crate) health_checks: Vec<String>,
    }

    /// A health check of either collection.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct HealthCheck {
        pub(crate) name: String,
        pub(crate) description: String,
        /// In the older collection the port and the path are here.
        pub(crate) port: i64,
        pub(crate) request_path: String,
        /// In the newer collection they are here.
        pub(crate) http_health_check: Option<HttpCheck>,
        #[serde(rename = "type")]
        pub(crate) kind: String,
        pub(crate) check_interval_sec: i64,
        pub(crate) timeout_sec: i64,
        pub(crate) healthy_threshold: i64,
        pub(crate) unhealthy_threshold: i64,
    }

    /// The request of a health check of the newer collection.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct HttpCheck {
        pub(crate) port: i64,
        pub(crate) request_path: String,
    }

    /// A regional backend service: the instance groups behind an internal load balancer.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct BackendService {
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) protocol: String,
        pub(crate) health_checks: Vec<String>,
        pub(crate) session_affinity: String,
        pub(crate) load_balancing_scheme: String,
        /// Unparsed, because they are written back: users set other fields in them than the group.
        pub(crate) backends: Vec<Value>,
        pub(crate) fingerprint: String,
    }

    /// An instance group. Only the name is read.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct InstanceGroup {
        pub(crate) name: String,
    }

    /// A member of an instance group.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct GroupMember {
        /// The URL of the instance.
        pub(crate) instance: String,
    }

    /// A firewall rule.
    #[serde(rename_all = "camelCase")]
    pub(crate) struct Firewall {
        pub(crate) name: String,
        pub(crate) description: String,
        pub(crate) network: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) source_ranges: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) destination_ranges: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) target_tags: Vec<String>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) allowed: Vec<Traffic>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) denied: Vec<Traffic>,
        #[serde(skip_serializing_if = "Option::is_none")]
        pub(crate) priority: Option<i64>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        pub(crate) disabled: bool,
    }

    /// Traffic of a protocol, on all ports if none is named.
    pub(crate) struct Traffic {
        #[serde(rename = "IPProtocol")]
        pub(crate) protocol: String,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        pub(crate) ports: Vec<String>,
    }
}

impl ForwardingRule {
    /// The body that creates the same rule again.
    pub(crate) fn again(&self) -> Value {
        let mut body = serde_json::to_value(self).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.retain(|key, value| {
                let is_empty = value == "" || value == false || value.as_array().is_some_and(Vec::is_empty);
                !is_empty && key != "name" && key != "fingerprint"
            });
            if !self.ports.is_empty() {
                fields.remove("portRange");
            }
        }
        body
    }
}

impl Address {
    /// The URL of another user than the balancer with this name.
    pub(crate) fn other_user(&self, balancer: &str) -> Option<&String> {
        self.users.iter().find(|user| last_part(user) != balancer)
    }

    /// An address without a type is external.
    pub(crate) fn is_internal(&self) -> bool {
        self.address_type == "INTERNAL"
    }

    /// Whether several forwarding rules may use it.
    pub(crate) fn is_shared(&self) -> bool {
        self.purpose == "SHARED_LOADBALANCER_VIP"
    }
}

impl TargetPool {
    /// The body that creates the same pool again, without its instances.
    pub(crate) fn again(&self) -> Value {
        let affinity = if self.session_affinity.is_empty() { "NONE" } else { &self.session_affinity };
        json!({"description": self.description, "sessionAffinity": affinity, "healthChecks": self.health_checks})
    }
}

impl BackendService {
    /// The URLs of the groups.
    pub(crate) fn groups(&self) -> impl Iterator<Item = &str> {
        self.backends.iter().filter_map(group_of)
    }
}

/// The URL of the group of a backend.
pub(crate) fn group_of(backend: &Value) -> Option<&str> {
    backend.get("group")?.as_str()
}
