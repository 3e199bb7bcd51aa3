//! Kinds that only some providers depend on, reduced to what the service controller reads.

use std::collections::BTreeSet;
use std::sync::Arc;

use ccm_provider::node::Pairs;
use ccm_provider::{NodeName, ServiceKey};
use serde::{Deserialize, Serialize};

use super::{Cached, FieldFilter};

/// The label of an EndpointSlice with the name of its Service.
const SERVICE_NAME: &str = "kubernetes.io/service-name";

/// A part of the endpoints of a Service: the nodes of those that are ready.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct EndpointSlice {
    /// Its name.
    pub name: Arc<str>,
    /// Namespace of the slice and of its Service.
    pub namespace: Arc<str>,
    /// Name of the Service; empty if the label is missing.
    pub service: Arc<str>,
    /// Nodes with a ready endpoint.
    pub ready: BTreeSet<NodeName>,
    /// `metadata.resourceVersion`
    #[serde(default, skip_serializing)]
    pub resource_version: Arc<str>,
}

impl EndpointSlice {
    /// The Service that it belongs to.
    pub fn service_key(&self) -> ServiceKey {
        ServiceKey { namespace: self.namespace.clone(), name: self.service.clone() }
    }
}

/// A namespace.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Namespace {
    /// Its name.
    pub name: Arc<str>,
    /// Its labels.
    pub labels: Pairs,
    /// `metadata.resourceVersion`
    #[serde(default, skip_serializing)]
    pub resource_version: Arc<str>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct Meta {
    name: Arc<str>,
    namespace: Arc<str>,
    resource_version: Arc<str>,
    labels: Option<Pairs>,
}

#[derive(Deserialize)]
struct SliceWire {
    metadata: Meta,
    #[serde(default)]
    endpoints: Option<Vec<EndpointWire>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct EndpointWire {
    node_name: Option<Arc<str>>,
    #[serde(default)]
    conditions: ConditionsWire,
}

#[derive(Deserialize, Default)]
struct ConditionsWire {
    ready: Option<bool>,
}

impl Cached for EndpointSlice {
    type Key = String;
    const PATH: &'static str = "/apis/discovery.k8s.io/v1/endpointslices";
    const SELECTOR: Option<&'static str> = Some("labelSelector=kubernetes.io%2Fservice-name");
    const NAME: &'static str = "endpointslices";

    /// An endpoint whose readiness is not known counts as ready, as the API documents.
    fn parse(json: &str, _keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        let SliceWire { metadata, endpoints } = serde_json::from_str(json)?;
        let ready = endpoints.into_iter().flatten().filter(|endpoint| endpoint.conditions.ready != Some(false));
        Ok(Self {
            service: metadata.labels.unwrap_or_default().get(SERVICE_NAME).unwrap_or_default().into(),
            ready: ready.filter_map(|endpoint| endpoint.node_name).map(NodeName::from).collect(),
            name: metadata.name,
            namespace: metadata.namespace,
            resource_version: metadata.resource_version,
        })
    }

    fn key(&self) -> String {
        Self::key_of(&self.namespace, &self.name)
    }

    fn key_of(namespace: &str, name: &str) -> String {
        format!("{namespace}/{name}")
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl Cached for Namespace {
    type Key = Arc<str>;
    const PATH: &'static str = "/api/v1/namespaces";
    const NAME: &'static str = "namespaces";

    fn parse(json: &str, _keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        #[derive(Deserialize)]
        struct Wire {
            metadata: Meta,
        }
        let Wire { metadata } = serde_json::from_str(json)?;
        let labels = metadata.labels.unwrap_or_default();
        Ok(Self { name: metadata.name, labels, resource_version: metadata.resource_version })
    }

    fn key(&self) -> Arc<str> {
        self.name.clone()
    }

    fn key_of(_namespace: &str, name: &str) -> Arc<str> {
        name.into()
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(endpoints: &str) -> EndpointSlice {
        let json = format!(
            r#"{{"metadata": {{"name": "web-x7k2p", "namespace": "shop", "resourceVersion": "7",
                "labels": {{"kubernetes.io/service-name": "web"}}}}, "addressType": "IPv4", "endpoints": {endpoints}}}"#
        );
        EndpointSlice::decode(&json, &FieldFilter::default()).unwrap()
    }

    #[test]
    fn of_a_slice_the_nodes_of_its_ready_endpoints_are_kept() {
        let slice = slice(
            r#"[{"addresses": ["10.1.0.1"], "nodeName": "a", "conditions": {"ready": true}},
                {"addresses": ["10.1.0.2"], "nodeName": "a", "conditions": {"ready": true}},
                {"addresses": ["10.1.0.3"], "nodeName": "b", "conditions": {"ready": false, "serving": true}},
                {"addresses": ["10.1.0.4"], "nodeName": "c", "conditions": {}},
                {"addresses": ["10.1.0.5"], "nodeName": "d"},
                {"addresses": ["10.1.0.6"], "conditions": {"ready": true}}]"#,
        );
        assert_eq!(slice.ready, ["a", "c", "d"].map(NodeName::from).into());
        assert_eq!(
            (slice.key(), slice.service_key().to_string()),
            ("shop/web-x7k2p".to_owned(), "shop/web".to_owned())
        );
    }

    #[test]
    fn a_slice_without_endpoints_has_no_nodes() {
        assert!(slice("null").ready.is_empty());
        assert!(slice("[]").ready.is_empty());
    }

    #[test]
    fn of_a_namespace_the_labels_are_kept() {
        let json =
            r#"{"metadata": {"name": "shop", "labels": {"tier": "gold"}}, "spec": {"finalizers": ["kubernetes"]}}"#;
        let namespace = Namespace::decode(json, &FieldFilter::default()).unwrap();
        assert_eq!((&*namespace.key(), namespace.labels.get("tier")), ("shop", Some("gold")));
    }
}
