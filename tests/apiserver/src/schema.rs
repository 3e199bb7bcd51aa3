//! The types of the members that our controllers write: a wrong type is refused and an unknown member dropped, as
//! decoding into typed objects does. Kinds that nobody here writes are checked in their metadata only.

use crate::error::ApiError;
use crate::kind::Kind;
use serde_json::{Map, Value};

/// The type of a member.
#[derive(Debug, Clone, Copy)]
enum Type {
    Text,
    Flag,
    Number,
    TextOrNumber,
    Texts,
    TextMap,
    /// Not looked into.
    Any,
    /// An object with these members and no others.
    Object(&'static [Field]),
    /// A list of such objects.
    Objects(&'static [Field]),
}

use Type::{Any, Flag, Number, Object, Objects, Text, TextMap, TextOrNumber, Texts};

type Field = (&'static str, Type);

const METADATA: Field = (
    "metadata",
    Object(&[
        ("name", Text),
        ("generateName", Text),
        ("namespace", Text),
        ("selfLink", Text),
        ("uid", Text),
        ("resourceVersion", Text),
        ("generation", Number),
        ("creationTimestamp", Text),
        ("deletionTimestamp", Text),
        ("deletionGracePeriodSeconds", Number),
        ("labels", TextMap),
        ("annotations", TextMap),
        ("ownerReferences", Any),
        ("finalizers", Texts),
        ("managedFields", Any),
    ]),
);
const KIND: Field = ("kind", Text);
const VERSION: Field = ("apiVersion", Text);

const NODE: &[Field] = &[
    KIND,
    VERSION,
    METADATA,
    (
        "spec",
        Object(&[
            ("podCIDR", Text),
            ("podCIDRs", Texts),
            ("providerID", Text),
            ("unschedulable", Flag),
            ("taints", Objects(&[("key", Text), ("value", Text), ("effect", Text), ("timeAdded", Text)])),
            ("configSource", Any),
            ("externalID", Text),
        ]),
    ),
    (
        "status",
        Object(&[
            ("capacity", Any),
            ("allocatable", Any),
            ("phase", Text),
            (
                "conditions",
                Objects(&[
                    ("type", Text),
                    ("status", Text),
                    ("lastHeartbeatTime", Text),
                    ("lastTransitionTime", Text),
                    ("reason", Text),
                    ("message", Text),
                ]),
            ),
            ("addresses", Objects(&[("type", Text), ("address", Text)])),
            ("daemonEndpoints", Any),
            ("nodeInfo", Any),
            ("images", Any),
            ("volumesInUse", Texts),
            ("volumesAttached", Any),
            ("config", Any),
            ("runtimeHandlers", Any),
            ("features", Any),
            ("declaredFeatures", Texts),
        ]),
    ),
];

const SERVICE: &[Field] = &[
    KIND,
    VERSION,
    METADATA,
    (
        "spec",
        Object(&[
            (
                "ports",
                Objects(&[
                    ("name", Text),
                    ("protocol", Text),
                    ("appProtocol", Text),
                    ("port", Number),
                    ("targetPort", TextOrNumber),
                    ("nodePort", Number),
                ]),
            ),
            ("selector", TextMap),
            ("clusterIP", Text),
            ("clusterIPs", Texts),
            ("type", Text),
            ("externalIPs", Texts),
            ("sessionAffinity", Text),
            ("sessionAffinityConfig", Any),
            ("loadBalancerIP", Text),
            ("loadBalancerSourceRanges", Texts),
            ("loadBalancerClass", Text),
            ("allocateLoadBalancerNodePorts", Flag),
            ("externalName", Text),
            ("externalTrafficPolicy", Text),
            ("internalTrafficPolicy", Text),
            ("healthCheckNodePort", Number),
            ("publishNotReadyAddresses", Flag),
            ("ipFamilies", Texts),
            ("ipFamilyPolicy", Text),
            ("trafficDistribution", Text),
        ]),
    ),
    (
        "status",
        Object(&[
            (
                "loadBalancer",
                Object(&[("ingress", Objects(&[("ip", Text), ("hostname", Text), ("ipMode", Text), ("ports", Any)]))]),
            ),
            (
                "conditions",
                Objects(&[
                    ("type", Text),
                    ("status", Text),
                    ("observedGeneration", Number),
                    ("lastTransitionTime", Text),
                    ("reason", Text),
                    ("message", Text),
                ]),
            ),
        ]),
    ),
];

const LEASE: &[Field] = &[
    KIND,
    VERSION,
    METADATA,
    (
        "spec",
        Object(&[
            ("holderIdentity", Text),
            ("leaseDurationSeconds", Number),
            ("acquireTime", Text),
            ("renewTime", Text),
            ("leaseTransitions", Number),
            ("strategy", Text),
            ("preferredHolder", Text),
        ]),
    ),
];

const EVENT: &[Field] = &[
    KIND,
    VERSION,
    METADATA,
    (
        "involvedObject",
        Object(&[
            ("kind", Text),
            ("namespace", Text),
            ("name", Text),
            ("uid", Text),
            ("apiVersion", Text),
            ("resourceVersion", Text),
            ("fieldPath", Text),
        ]),
    ),
    ("reason", Text),
    ("message", Text),
    ("source", Object(&[("component", Text), ("host", Text)])),
    ("firstTimestamp", Text),
    ("lastTimestamp", Text),
    ("count", Number),
    ("type", Text),
    ("eventTime", Text),
    ("series", Any),
    ("action", Text),
    ("related", Any),
    ("reportingComponent", Text),
    ("reportingInstance", Text),
];

const CONFIG_MAP: &[Field] =
    &[KIND, VERSION, METADATA, ("data", TextMap), ("binaryData", TextMap), ("immutable", Flag)];

const SECRET: &[Field] =
    &[KIND, VERSION, METADATA, ("data", TextMap), ("stringData", TextMap), ("type", Text), ("immutable", Flag)];

const OTHER: &[Field] = &[KIND, VERSION, METADATA];

/// Checks types and drops what is unknown, or refuses it when `strict`.
pub(crate) fn check(kind: &Kind, object: &mut Value, strict: bool) -> Result<(), ApiError> {
    let (fields, closed) = match kind.plural {
        "nodes" => (NODE, true),
        "services" => (SERVICE, true),
        "leases" => (LEASE, true),
        "events" => (EVENT, true),
        "configmaps" => (CONFIG_MAP, true),
        "secrets" => (SECRET, true),
        _ => (OTHER, false),
    };
    let Value::Object(map) = object else { return Ok(()) };
    let mut walk = Walk { kind: kind.kind, unknown: Vec::new() };
    walk.members(map, fields, "", closed)?;
    if strict && !walk.unknown.is_empty() {
        let list: Vec<String> = walk.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect();
        return Err(ApiError::undecodable(&format!("strict decoding error: {}", list.join(", "))));
    }
    Ok(())
}

struct Walk {
    kind: &'static str,
    unknown: Vec<String>,
}

impl Walk {
    fn members(
        &mut self,
        map: &mut Map<String, Value>,
        fields: &[Field],
        path: &str,
        closed: bool,
    ) -> Result<(), ApiError> {
        let place = |name: &str| if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
        if closed {
            let known = |name: &String| fields.iter().any(|(field, _)| field == name);
            let unknown: Vec<String> = map.keys().filter(|name| !known(name)).cloned().collect();
            for name in unknown {
                map.remove(&name);
                self.unknown.push(place(&name));
            }
        }
        for (name, wanted) in fields {
            if let Some(value) = map.get_mut(*name).filter(|value| !value.is_null()) {
                self.value(value, *wanted, &place(name))?;
            }
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, wanted: Type, path: &str) -> Result<(), ApiError> {
        let fits = match (wanted, &mut *value) {
            (Any, _) | (Text | TextOrNumber, Value::String(_)) | (Flag, Value::Bool(_)) => true,
            (Number | TextOrNumber, Value::Number(number)) => number.is_i64(),
            (Texts, Value::Array(items)) => items.iter().all(Value::is_string),
            (TextMap, Value::Object(map)) => map.values().all(|one| one.is_string() || one.is_null()),
            (Object(fields), Value::Object(map)) => {
                self.members(map, fields, path, true)?;
                true
            }
            (Objects(fields), Value::Array(items)) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.value(item, Object(fields), &format!("{path}[{index}]"))?;
                }
                true
            }
            _ => false,
        };
        if fits { Ok(()) } else { Err(self.wrong(value, path)) }
    }

    fn wrong(&self, value: &Value, path: &str) -> ApiError {
        let found = match value {
            Value::Null => "null",
            Value::Bool(_) => "bool",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Array(_) => "array",
            Value::Object(_) => "object",
        };
        ApiError::undecodable(&format!("json: cannot unmarshal {found} into Go struct field {}.{path}", self.kind))
    }
}
