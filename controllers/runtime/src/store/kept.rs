//! Decodes API objects into the part that is kept.

use std::borrow::Cow;
use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use ccm_provider::node::{ConditionStatus, Pairs};
use ccm_provider::well_known::ANNOTATION_PROVIDED_NODE_IP;
use ccm_provider::{
    AddressType, CloudProvider, Node, NodeAddress, NodeName, PersistentVolume, Service, ServiceKey, Taint, VolumeSource,
};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::intern::Interner;
use crate::client::or_default;

/// A kind of object that can be kept in a store.
pub trait Cached: PartialEq + Send + Sync + Sized + 'static {
    /// Identity.
    type Key: Ord + Hash + Clone + fmt::Debug + fmt::Display + Send + Sync;
    /// Path of the collection.
    const PATH: &'static str;
    /// Restricts the collection: a field or label selector as a query, percent-encoded.
    const SELECTOR: Option<&'static str> = None;
    /// Plural name.
    const NAME: &'static str;
    /// Parses one object; may refuse nulls.
    fn parse(json: &str, keep: &FieldFilter) -> Result<Self, serde_json::Error>;
    /// Parses one object. As in Go, null is the same as an absent field.
    fn decode(json: &str, keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        Self::parse(json, keep).or_else(|error| {
            let mut object = serde_json::from_str(json)?;
            remove_nulls(&mut object);
            Self::parse(&object.to_string(), keep).map_err(|_| error)
        })
    }
    /// Identity.
    fn key(&self) -> Self::Key;
    /// The key from the metadata alone.
    fn key_of(namespace: &str, name: &str) -> Self::Key;
    /// Version.
    fn resource_version(&self) -> &str;
}

/// Selects what to keep: the objects, and what beyond their fixed fields.
#[derive(Debug, Default)]
pub struct FieldFilter {
    node_annotations: Vec<String>,
    /// For the query of a list or watch; may be empty.
    selector: String,
    interner: Interner,
}

impl FieldFilter {
    /// Keeps the node annotations that the core reads, and these.
    pub fn new(node_annotations: &[&str]) -> Self {
        let mut keep: Vec<String> = node_annotations.iter().map(|key| (*key).to_owned()).collect();
        keep.push(ANNOTATION_PROVIDED_NODE_IP.to_owned());
        Self { node_annotations: keep, ..Self::default() }
    }

    /// Keeps the nodes and annotations that this provider and the core need.
    pub fn of_nodes(provider: &dyn CloudProvider) -> Self {
        let labels = provider.node_selector().map(|labels| utf8_percent_encode(labels, NON_ALPHANUMERIC));
        let selector = labels.map(|labels| format!("&labelSelector={labels}")).unwrap_or_default();
        Self { selector, ..Self::new(provider.node_annotations()) }
    }

    pub(super) fn selector(&self) -> &str {
        &self.selector
    }
}

/// A text that borrows from the JSON where it has no escapes.
#[derive(Default, Clone, Deserialize)]
#[serde(transparent)]
struct Text<'a>(#[serde(borrow)] Cow<'a, str>);

/// A map of texts in the order of the JSON; null reads as empty.
#[derive(Default)]
struct Map<'a>(Vec<(Text<'a>, Text<'a>)>);

impl<'de: 'a, 'a> Deserialize<'de> for Map<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct MapVisitor;
        impl<'de> Visitor<'de> for MapVisitor {
            type Value = Map<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map of strings")
            }
            fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
                Ok(Map::default())
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut pairs = Vec::with_capacity(map.size_hint().unwrap_or(0));
                while let Some(pair) = map.next_entry()? {
                    pairs.push(pair);
                }
                Ok(Map(pairs))
            }
        }
        from.deserialize_any(MapVisitor)
    }
}

fn remove_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(remove_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(remove_nulls),
        _ => {}
    }
}

#[derive(Deserialize)]
struct NodeWire<'a> {
    #[serde(borrow)]
    metadata: MetaWire<'a>,
    #[serde(borrow, default)]
    spec: NodeSpecWire<'a>,
    #[serde(borrow, default)]
    status: NodeStatusWire<'a>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaWire<'a> {
    #[serde(borrow)]
    name: Text<'a>,
    #[serde(borrow, default)]
    uid: Text<'a>,
    #[serde(borrow, default)]
    resource_version: Text<'a>,
    #[serde(borrow, default)]
    labels: Map<'a>,
    #[serde(borrow, default)]
    annotations: Map<'a>,
    creation_timestamp: Option<jiff::Timestamp>,
    deletion_timestamp: Option<de::IgnoredAny>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase", default)]
struct NodeSpecWire<'a> {
    #[serde(rename = "providerID", borrow)]
    provider_id: Text<'a>,
    #[serde(rename = "podCIDR", borrow)]
    pod_cidr: Text<'a>,
    #[serde(rename = "podCIDRs", deserialize_with = "or_default")]
    pod_cidrs: Vec<Box<str>>,
    #[serde(borrow, deserialize_with = "or_default")]
    taints: Vec<TaintWire<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaintWire<'a> {
    #[serde(borrow, default)]
    key: Text<'a>,
    #[serde(borrow, default)]
    value: Text<'a>,
    #[serde(borrow, default)]
    effect: Text<'a>,
    #[serde(borrow)]
    time_added: Option<Text<'a>>,
}

#[derive(Deserialize, Default)]
#[serde(default)]
struct NodeStatusWire<'a> {
    #[serde(borrow, deserialize_with = "or_default")]
    addresses: Vec<AddressWire<'a>>,
    #[serde(borrow, deserialize_with = "or_default")]
    conditions: Vec<ConditionWire<'a>>,
}

#[derive(Deserialize)]
struct AddressWire<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    address: Text<'a>,
}

#[derive(Deserialize)]
struct ConditionWire<'a> {
    #[serde(rename = "type", borrow, default)]
    kind: Text<'a>,
    #[serde(borrow, default)]
    status: Text<'a>,
    #[serde(borrow, default)]
    reason: Text<'a>,
}

impl Cached for Node {
    type Key = NodeName;
    const PATH: &'static str = "/api/v1/nodes";
    const NAME: &'static str = "nodes";

    fn parse(json: &str, keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        let wire: NodeWire<'_> = serde_json::from_str(json)?;
        let intern = |text: &Text<'_>| keep.interner.get(&text.0);
        let name: Arc<str> = wire.metadata.name.0.as_ref().into();
        let value = |text: &Text<'_>| if text.0 == *name { name.clone() } else { intern(text) };
        let labels: Pairs = wire.metadata.labels.0.iter().map(|(k, v)| (intern(k), value(v))).collect();
        let wanted = |key: &str| keep.node_annotations.iter().any(|k| k == key);
        let annotations = wire.metadata.annotations.0.iter().filter(|(k, _)| wanted(&k.0));
        let annotations: Pairs = annotations.map(|(k, v)| (intern(k), Arc::<str>::from(&*v.0))).collect();
        let pod_cidrs = match wire.spec.pod_cidrs {
            cidrs if cidrs.is_empty() && !wire.spec.pod_cidr.0.is_empty() => vec![wire.spec.pod_cidr.0.as_ref().into()],
            cidrs => cidrs,
        };
        let condition = |kind: &str| wire.status.conditions.iter().find(|c| c.kind.0 == kind);
        Ok(Self {
            uid: wire.metadata.uid.0.as_ref().into(),
            resource_version: wire.metadata.resource_version.0.as_ref().into(),
            created: wire.metadata.creation_timestamp,
            deleting: wire.metadata.deletion_timestamp.is_some(),
            labels,
            annotations,
            provider_id: Some(wire.spec.provider_id.0).filter(|id| !id.is_empty()).map(|id| id.as_ref().into()),
            pod_cidrs: pod_cidrs.into(),
            taints: wire
                .spec
                .taints
                .iter()
                .map(|t| Taint {
                    key: intern(&t.key),
                    value: intern(&t.value),
                    effect: intern(&t.effect),
                    time_added: t.time_added.as_ref().map(|at| at.0.as_ref().into()),
                })
                .collect(),
            addresses: wire
                .status
                .addresses
                .iter()
                .map(|a| NodeAddress::new(AddressType::from(&*a.kind.0), &*a.address.0))
                .collect(),
            ready: condition("Ready").map(|c| ConditionStatus::from(&*c.status.0)),
            network_unavailable: condition("NetworkUnavailable")
                .map(|c| (ConditionStatus::from(&*c.status.0), intern(&c.reason))),
            name: NodeName::from(name),
        })
    }

    fn key(&self) -> NodeName {
        self.name.clone()
    }

    fn key_of(_namespace: &str, name: &str) -> NodeName {
        NodeName::from(name)
    }

    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

/// kubectl's copy of the applied object: long, and not used here.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Cached for Service {
    type Key = ServiceKey;
    const PATH: &'static str = "/api/v1/services";
    const NAME: &'static str = "services";

    fn parse(json: &str, _keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        let mut service: Self = serde_json::from_str(json)?;
        service.metadata.annotations.remove(LAST_APPLIED);
        Ok(service)
    }

    fn key(&self) -> ServiceKey {
        Self::key(self)
    }

    fn key_of(namespace: &str, name: &str) -> ServiceKey {
        ServiceKey { namespace: namespace.into(), name: name.into() }
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

impl Cached for PersistentVolume {
    type Key = Arc<str>;
    const PATH: &'static str = "/api/v1/persistentvolumes";
    const NAME: &'static str = "persistentvolumes";

    /// A volume that needs no labels, because it has its topology or no cloud source, keeps only its topology labels.
    fn parse(json: &str, _keep: &FieldFilter) -> Result<Self, serde_json::Error> {
        let mut volume: Self = serde_json::from_str(json)?;
        let settled = volume.topology().is_some() || VolumeSource::of(&volume, &VolumeSource::ALL).is_none();
        if settled {
            volume.spec.clear();
            volume.metadata.annotations.clear();
            volume.metadata.labels = volume.topology().unwrap_or_default();
        } else {
            let read = |field: &str| field == "nodeAffinity" || VolumeSource::ALL.iter().any(|s| s.field == field);
            volume.spec.retain(|field, _| read(field));
            volume.metadata.annotations.remove(LAST_APPLIED);
        }
        volume.metadata.finalizers = Vec::new();
        Ok(volume)
    }

    fn key(&self) -> Arc<str> {
        self.metadata.name.clone()
    }

    fn key_of(_namespace: &str, name: &str) -> Arc<str> {
        name.into()
    }

    fn resource_version(&self) -> &str {
        &self.metadata.resource_version
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::{EndpointSlice, Namespace};
    use super::*;

    #[test]
    fn a_volume_that_waits_for_labels_keeps_its_source_and_one_that_is_settled_next_to_nothing() {
        let decode = |json: &str| PersistentVolume::decode(json, &FieldFilter::default()).unwrap();
        let source = r#""spec": {"capacity": {"storage": "1Gi"}, "claimRef": {"name": "c"},
            "nodeAffinity": {"required": {}}, "awsElasticBlockStore": {"volumeID": "vol-1"}}"#;
        let waiting = decode(&format!(
            r#"{{"metadata": {{"name": "a", "uid": "u", "resourceVersion": "7", "labels": {{"x": "y"}},
                "annotations": {{"kubectl.kubernetes.io/last-applied-configuration": "{{}}", "k": "v"}},
                "finalizers": ["kubernetes.io/pv-protection"]}}, {source}}}"#
        ));
        assert_eq!(waiting.spec.keys().collect::<Vec<_>>(), ["awsElasticBlockStore", "nodeAffinity"]);
        assert_eq!((waiting.metadata.labels.len(), waiting.metadata.annotations.len()), (1, 1));
        assert_eq!((&*Cached::key(&waiting), waiting.resource_version()), ("a", "7"));
        let labeled = decode(&format!(
            r#"{{"metadata": {{"name": "a", "annotations": {{"k": "v"}}, "labels": {{"x": "y",
                "topology.kubernetes.io/zone": "z", "topology.kubernetes.io/region": "r"}}}}, {source}}}"#
        ));
        assert!(labeled.spec.is_empty() && labeled.metadata.annotations.is_empty());
        assert_eq!((labeled.topology().unwrap().len(), labeled.metadata.labels.len()), (2, 2));
        let local = decode(r#"{"metadata": {"name": "a", "labels": {"x": "y"}}, "spec": {"hostPath": {"path": "/"}}}"#);
        assert!(local.spec.is_empty() && local.metadata.labels.is_empty());
    }

    #[test]
    fn a_node_keeps_only_the_fields_that_are_read() {
        let json = r#"{"metadata": {"name": "n1", "uid": "u", "resourceVersion": "7",
            "creationTimestamp": "2026-01-01T00:00:00Z", "managedFields": [{"x": {}}],
            "labels": {"kubernetes.io/hostname": "n1", "a": "\"b\""},
            "annotations": {"big": "xxxx", "alpha.kubernetes.io/provided-node-ip": "10.0.0.1"}},
            "spec": {"providerID": "fake://n1", "podCIDR": "10.1.0.0/24", "podCIDRs": ["10.1.0.0/24", "fd00::/64"],
              "taints": [{"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}]},
            "status": {"images": [{"names": ["x"], "sizeBytes": 1}], "capacity": {"cpu": "4"},
              "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}, {"type": "Odd", "address": "y"}],
              "conditions": [{"type": "Ready", "status": "False"},
                {"type": "NetworkUnavailable", "status": "True", "reason": "NoRouteCreated"}]}}"#;
        let node = Node::decode(json, &FieldFilter::new(&[])).unwrap();
        assert_eq!(&*node.name, "n1");
        assert_eq!(node.labels.get("a"), Some("\"b\""));
        assert_eq!(node.annotations.iter().collect::<Vec<_>>(), [("alpha.kubernetes.io/provided-node-ip", "10.0.0.1")]);
        assert_eq!(node.provider_id.as_deref(), Some("fake://n1"));
        assert_eq!(node.pod_cidrs.len(), 2);
        assert_eq!(node.taints[0].time_added.as_deref(), Some("2026-01-01T00:00:00Z"));
        assert_eq!(node.addresses[1].kind.as_str(), "Odd");
        assert_eq!(node.ready, Some(ConditionStatus::False));
        assert_eq!(node.network_unavailable.as_ref().unwrap().0, ConditionStatus::True);
        assert!(!node.deleting);
    }

    /// Copies of a value, each with another field null.
    fn with_a_null(value: &Value) -> Vec<Value> {
        match value {
            Value::Array(items) => items.iter().flat_map(with_a_null).map(|item| vec![item].into()).collect(),
            Value::Object(fields) => {
                let with = |(key, field): (&String, &Value)| {
                    let others = with_a_null(field).into_iter().chain([Value::Null]);
                    others.map(|new| [fields.clone(), [(key.clone(), new)].into_iter().collect()]).collect::<Vec<_>>()
                };
                fields.iter().flat_map(with).map(|parts| parts.into_iter().flatten().collect()).collect()
            }
            _ => Vec::new(),
        }
    }

    #[test]
    fn each_field_may_be_null() {
        fn reads<T: Cached>(object: &Value) {
            for copy in with_a_null(object).iter().filter(|copy| copy["metadata"]["name"].is_string()) {
                T::decode(&copy.to_string(), &FieldFilter::default()).unwrap_or_else(|error| panic!("{error}: {copy}"));
            }
        }
        let metadata = json!({"name": "n", "namespace": "a", "uid": "u", "resourceVersion": "7", "generation": 1,
            "labels": {"a": "b"}, "annotations": {"a": "b"}, "finalizers": ["x"]});
        reads::<Node>(&json!({
            "metadata": metadata,
            "spec": {"providerID": "fake://n", "podCIDR": "10.0.0.0/24", "podCIDRs": ["10.0.0.0/24"],
                "taints": [{"key": "k", "value": "v", "effect": "e", "timeAdded": "t"}]},
            "status": {"addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
                "conditions": [{"type": "Ready", "status": "True", "reason": "r"}]},
        }));
        let mut service = Service::default();
        service.spec.ports.push(Default::default());
        let ports = json!([{"port": 80, "protocol": "TCP", "error": "e"}]);
        let conditions = json!([{"type": "t", "status": "True", "observedGeneration": 1,
            "lastTransitionTime": "2026-01-01T00:00:00Z", "reason": "r", "message": "m"}]);
        let ingress = json!([{"ip": "192.0.2.1", "hostname": "h", "ipMode": "VIP", "ports": ports}]);
        reads::<Service>(&json!({
            "metadata": metadata,
            "spec": service.spec,
            "status": {"loadBalancer": {"ingress": ingress}, "conditions": conditions},
        }));
        reads::<PersistentVolume>(&json!({"metadata": metadata, "spec": {"csi": {"driver": "d"}}}));
        let endpoints = json!([{"nodeName": "n", "conditions": {"ready": true}}]);
        reads::<EndpointSlice>(&json!({"metadata": metadata, "endpoints": endpoints}));
        reads::<Namespace>(&json!({"metadata": metadata}));
    }

    #[test]
    fn a_bare_node_and_null_fields_are_read() {
        let json = r#"{"metadata": {"name": "n", "labels": null, "annotations": null, "deletionTimestamp": null},
            "spec": {"taints": null, "podCIDR": "10.1.0.0/24"}, "status": {"addresses": null}}"#;
        let node = Node::decode(json, &FieldFilter::new(&[])).unwrap();
        assert!(node.labels.is_empty() && node.provider_id.is_none() && node.ready.is_none() && !node.deleting);
        assert_eq!(&*node.pod_cidrs[0], "10.1.0.0/24");
    }

    #[test]
    fn repeated_texts_of_two_nodes_are_shared() {
        let keep = FieldFilter::new(&[]);
        let node = |name: &str| {
            let json = format!(r#"{{"metadata": {{"name": "{name}", "labels": {{"zone": "a"}}}}}}"#);
            Node::decode(&json, &keep).unwrap()
        };
        let (a, b) = (node("a1"), node("b1"));
        let pointer = |n: &Node| n.labels.get("zone").unwrap().as_ptr();
        assert_eq!(pointer(&a), pointer(&b));
    }

    #[test]
    fn a_service_loses_only_the_copy_that_kubectl_keeps() {
        let json = r#"{"metadata": {"name": "s", "namespace": "d", "annotations":
            {"kubectl.kubernetes.io/last-applied-configuration": "{}", "x": "y"}}, "spec": {"type": "LoadBalancer",
            "ports": [{"port": 80, "targetPort": "http", "protocol": "TCP"}]}}"#;
        let service = Service::decode(json, &FieldFilter::default()).unwrap();
        assert_eq!(service.metadata.annotations.len(), 1);
        assert!(service.wants_load_balancer());
        assert_eq!(Cached::key(&service).to_string(), "d/s");
    }
}
