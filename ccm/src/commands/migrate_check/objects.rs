//! The fields that are read of objects that no controller stores: pods, leases, webhooks, namespaces.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::Deserialize;
use serde::de::IgnoredAny;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Meta {
    pub(super) name: String,
    pub(super) namespace: String,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) owner_references: Vec<Owner>,
    pub(super) deletion_timestamp: Option<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Owner {
    pub(super) kind: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Pod {
    pub(super) metadata: Meta,
    pub(super) spec: PodSpec,
    pub(super) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct PodSpec {
    pub(super) containers: Vec<Container>,
    pub(super) service_account_name: String,
    pub(super) host_network: bool,
    pub(super) tolerations: Vec<Toleration>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct PodStatus {
    pub(super) phase: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Container {
    pub(super) image: String,
    pub(super) command: Vec<String>,
    pub(super) args: Vec<String>,
    pub(super) env: Vec<Variable>,
}

/// Values that come from elsewhere, such as a Secret, stay empty.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Variable {
    pub(super) name: String,
    pub(super) value: String,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(default)]
pub(super) struct Toleration {
    pub(super) key: String,
    pub(super) operator: String,
    pub(super) value: String,
    pub(super) effect: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Lease {
    pub(super) metadata: Meta,
    pub(super) spec: LeaseSpec,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct LeaseSpec {
    pub(super) holder_identity: Option<String>,
    pub(super) lease_duration_seconds: Option<i64>,
    pub(super) renew_time: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct Namespace {
    pub(super) metadata: Meta,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct WebhookConfiguration {
    pub(super) metadata: Meta,
    pub(super) webhooks: Vec<Webhook>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Webhook {
    pub(super) name: String,
    pub(super) failure_policy: Option<String>,
    pub(super) client_config: ClientConfig,
    pub(super) rules: Vec<Rule>,
    pub(super) namespace_selector: Option<Selector>,
    pub(super) object_selector: Option<Selector>,
    pub(super) match_conditions: Vec<IgnoredAny>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ClientConfig {
    /// `None` for a URL.
    pub(super) service: Option<ServiceReference>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct ServiceReference {
    pub(super) namespace: String,
    pub(super) name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Rule {
    pub(super) api_groups: Vec<String>,
    pub(super) resources: Vec<String>,
    pub(super) operations: Vec<String>,
    pub(super) scope: Option<String>,
}

/// A label selector; an empty one selects everything.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(super) struct Selector {
    match_labels: BTreeMap<String, String>,
    match_expressions: Vec<Requirement>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Requirement {
    key: String,
    operator: String,
    values: Vec<String>,
}

impl Selector {
    /// Whether an object with these labels is selected.
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
                // A future operator: a false warning is better than a missed one.
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
