//! The fields of objects that no controller stores: pods, leases, webhooks, namespaces.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Parts of objects. Absent fields are empty.
macro_rules! parts {
    ($($(#[$attribute:meta])* $name:ident { $($(#[$note:meta])* $field:ident: $type:ty,)* })*) => {$(
        $(#[$attribute])*
        #[derive(Debug, Clone, Default, Deserialize)]
        #[serde(default, rename_all = "camelCase")]
        pub(super) struct $name {
            $($(#[$note])* pub(super) $field: $type,)*
        }
    )*};
}

parts! {
    Meta {
        name: String,
        namespace: String,
        labels: BTreeMap<String, String>,
        owner_references: Vec<Owner>,
        deletion_timestamp: Option<IgnoredAny>,
    }
    Owner { kind: String, }
    Namespace { metadata: Meta, }
    Pod { metadata: Meta, spec: PodSpec, status: PodStatus, }
    PodSpec {
        containers: Vec<Container>,
        service_account_name: String,
        host_network: bool,
        tolerations: Vec<Toleration>,
        node_name: String,
        volumes: Vec<Volume>,
        security_context: SecurityContext,
    }
    SecurityContext { run_as_user: Option<i64>, }
    PodStatus { phase: String, }
    Container {
        name: String,
        image: String,
        command: Vec<String>,
        args: Vec<String>,
        env: Vec<Variable>,
        volume_mounts: Vec<Mount>,
        security_context: SecurityContext,
    }
    Mount { name: String, mount_path: String, sub_path: String, }
    Volume {
        name: String,
        secret: Option<OfSecret>,
        config_map: Option<OfObject>,
        projected: Option<Projected>,
        host_path: Option<IgnoredAny>,
    }
    OfSecret { secret_name: String, items: Vec<Item>, }
    OfObject { name: String, items: Vec<Item>, }
    Projected { sources: Vec<Projection>, }
    Projection { secret: Option<OfObject>, config_map: Option<OfObject>, }
    /// A key of a Secret or ConfigMap, and the name of its file.
    Item { key: String, path: String, }
    ConfigMap {
        data: BTreeMap<String, String>,
        /// In base64.
        binary_data: BTreeMap<String, String>,
    }
    Variable { name: String, value: String, value_from: Option<ValueFrom>, }
    ValueFrom { config_map_key_ref: Option<KeyRef>, secret_key_ref: Option<KeyRef>, }
    KeyRef { name: String, key: String, }
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    Toleration { key: String, operator: String, value: String, effect: String, }
    Lease { metadata: Meta, spec: LeaseSpec, }
    LeaseSpec {
        holder_identity: Option<String>,
        lease_duration_seconds: Option<i64>,
        renew_time: Option<Timestamp>,
    }
    WebhookConfiguration { metadata: Meta, webhooks: Vec<Webhook>, }
    Webhook {
        name: String,
        failure_policy: Option<String>,
        client_config: ClientConfig,
        rules: Vec<Rule>,
        namespace_selector: Option<Selector>,
        object_selector: Option<Selector>,
        match_conditions: Vec<IgnoredAny>,
    }
    ClientConfig {
        /// `None` for a URL.
        service: Option<ServiceReference>,
    }
    ServiceReference { namespace: String, name: String, }
    Rule {
        api_groups: Vec<String>,
        resources: Vec<String>,
        operations: Vec<String>,
        scope: Option<String>,
    }
    /// An empty selector selects everything.
    Selector { match_labels: BTreeMap<String, String>, match_expressions: Vec<Requirement>, }
    Requirement { key: String, operator: String, values: Vec<String>, }
}

impl Selector {
    pub(super) fn selects<'a>(&self, label: impl Fn(&str) -> Option<&'a str>) -> bool {
        let equal = self.match_labels.iter().all(|(key, value)| label(key) == Some(value));
        let holds = |wanted: &Requirement| {
            let value = label(&wanted.key);
            let listed = value.is_some_and(|value| wanted.values.iter().any(|listed| listed == value));
            match &*wanted.operator {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // An unknown operator: a false warning is better than a missing one.
                _ => true,
            }
        };
        equal && self.match_expressions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_selector_selects_as_kubernetes_does() {
        let selects = |selector: &str, labels: &[(&str, &'static str)]| {
            let selector: Selector = serde_json::from_str(selector).unwrap();
            selector.selects(|key| labels.iter().find(|(known, _)| *known == key).map(|(_, value)| *value))
        };
        let not_system = r#"{"matchExpressions":[{"key":"kubernetes.io/metadata.name","operator":"NotIn","values":["kube-system"]}]}"#;
        assert!(!selects(not_system, &[("kubernetes.io/metadata.name", "kube-system")]));
        assert!(selects(not_system, &[("kubernetes.io/metadata.name", "default")]));
        assert!(selects(not_system, &[]), "what has no such label is not in the list");
        assert!(selects("{}", &[]));
        assert!(!selects(r#"{"matchLabels":{"a":"b"}}"#, &[("a", "c")]));
        assert!(selects(r#"{"matchLabels":{"a":"b"}}"#, &[("a", "b"), ("x", "y")]));
        assert!(selects(r#"{"matchExpressions":[{"key":"a","operator":"DoesNotExist"}]}"#, &[]));
        assert!(!selects(r#"{"matchExpressions":[{"key":"a","operator":"Exists"}]}"#, &[]));
        assert!(!selects(r#"{"matchExpressions":[{"key":"a","operator":"In","values":["b"]}]}"#, &[]));
    }
}
