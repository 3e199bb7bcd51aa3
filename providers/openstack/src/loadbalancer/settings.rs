//! Which setting to correct when OpenStack refuses a write.

use ccm_kit::call::Meaning;
use ccm_provider::{ErrorClass, ProviderError};
use serde_json::Value;

use crate::annotations::PREFIX;
use crate::client::ApiError;

/// References in a creation: the field, and the key in cloud.conf, which is also that of an annotation.
pub(super) const KEYS_OF_BALANCERS: [(&str, &str); 5] = [
    ("vip_network_id", "network-id"),
    ("vip_subnet_id", "subnet-id"),
    ("vip_port_id", "port-id"),
    ("flavor_id", "flavor-id"),
    ("availability_zone", "availability-zone"),
];
pub(super) const KEYS_OF_FLOATING_IPS: [(&str, &str); 2] =
    [("floating_network_id", "floating-network-id"), ("subnet_id", "floating-subnet-id")];
/// Settings of listeners, pools and monitors: the field, and the annotation's name. Octavia's error has the value.
const KEYS_OF_PARTS: [(&str, &str); 11] = [
    ("subnet_id", "member-subnet-id"),
    ("connection_limit", "connection-limit"),
    ("timeout_client_data", "timeout-client-data"),
    ("timeout_member_connect", "timeout-member-connect"),
    ("timeout_member_data", "timeout-member-data"),
    ("timeout_tcp_inspect", "timeout-tcp-inspect"),
    ("lb_algorithm", "lb-method"),
    ("delay", "health-monitor-delay"),
    ("timeout", "health-monitor-timeout"),
    ("max_retries", "health-monitor-max-retries"),
    ("max_retries_down", "health-monitor-max-retries-down"),
];
/// Error texts for a missing object. Octavia does not name the flavor or availability zone.
const MISSING: [&str; 2] = ["not found", "not be found"];
const INVALID: [(&str, &str); 2] =
    [("flavor_id", "Invalid flavor_id"), ("availability_zone", "Invalid availability zone")];

/// Adds the key of the missing object to an error.
pub(super) fn with_key(error: ProviderError, body: &Value, keys: &[(&str, &str)]) -> ProviderError {
    let text = error.to_string();
    let is_missing = MISSING.iter().any(|words| text.contains(words));
    let fields = body.get("loadbalancer").unwrap_or(body);
    let value = |field: &str| fields.get(field).and_then(Value::as_str);
    let fix = |key: &str| format!("correct {key}, in the annotation {PREFIX}{key} or in cloud.conf");
    for (field, key) in keys {
        let Some(value) = value(field) else { continue };
        // Octavia, Neutron.
        let is_odd = [format!("field/attribute {field}."), format!("Invalid input for {field}.")];
        if is_missing && text.contains(value) || is_odd.iter().any(|words| text.contains(words)) {
            return error.wrap(fix(key));
        }
        if INVALID.iter().any(|(of, words)| of == field && text.contains(words)) {
            return error.wrap(format!("there is no {value:?}")).wrap(fix(key));
        }
    }
    match value("provider") {
        Some(provider) if text.contains(&format!("Provider '{provider}' is not enabled")) => {
            error.wrap("correct lb-provider in [LoadBalancer] of cloud.conf")
        }
        _ => error,
    }
}

/// The error of a floating IP with a chosen address: Neutron allows that only to administrators.
pub(super) fn chosen_address(error: ApiError, body: &Value) -> ProviderError {
    match body.get("floating_ip_address").and_then(Value::as_str) {
        Some(address) if error.meaning() == Meaning::Denied => ProviderError::new(
            ErrorClass::Invalid { findings: Vec::new() },
            format!(
                "no floating IP of the project has the address {address}, and only administrators may choose one: reserve the \
                 floating IP first, or correct spec.loadBalancerIP; Neutron says {}",
                error.message
            ),
        ),
        _ => error.into(),
    }
}

/// Adds the annotation to an error about a field of a listener, pool or monitor.
pub(super) fn with_annotation(error: ProviderError) -> ProviderError {
    let text = error.to_string();
    let key = if text.contains("Could not retrieve certificate") {
        Some("default-tls-container-ref")
    } else {
        let is_named = |(field, _): &&(&str, &str)| text.contains(&format!("field/attribute {field}."));
        KEYS_OF_PARTS.iter().find(is_named).map(|(_, key)| *key)
    };
    match key {
        Some(key) => error.wrap(format!("correct the annotation {PREFIX}{key}, or its default in cloud.conf")),
        None => error,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_value_of_the_wrong_form_is_named_with_its_key() {
        let says = "Invalid input for field/attribute flavor_id. Value: 'small'. Value should be UUID format";
        let body = json!({"loadbalancer": {"name": "lb", "flavor_id": "small", "vip_subnet_id": "s-1"}});
        let error = with_key(ProviderError::unknown(says), &body, &KEYS_OF_BALANCERS).to_string();
        let fix = "correct flavor-id, in the annotation loadbalancer.openstack.org/flavor-id or in cloud.conf: ";
        assert_eq!(error, format!("{fix}{says}"));
        let other = with_key(ProviderError::unknown("no"), &body, &KEYS_OF_BALANCERS).to_string();
        assert_eq!(other, "no");
    }
}
