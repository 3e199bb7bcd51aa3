//! The types of the fields that our controllers write. As in decoding into Go's types, a wrong type is rejected and an
//! unknown field is dropped. For kinds that no controller writes, only the metadata is checked.

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
    /// Not checked.
    Any,
    /// An object with only these fields.
    Object(&'static [Field]),
    /// A list of such objects.
    Objects(&'static [Field]),
}

use Type::{Any, Flag, Number, Object, Objects, Text, TextMap, TextOrNumber, Texts};

/// The names of fields, separated by spaces, and their type.
type Field = (&'static str, Type);

const OTHER: &[Field] = &[
    ("kind apiVersion", Text),
    (
        "metadata",
        Object(&[
            ("name generateName namespace selfLink uid resourceVersion creationTimestamp deletionTimestamp", Text),
            ("generation deletionGracePeriodSeconds", Number),
            ("labels annotations", TextMap),
            ("ownerReferences managedFields", Any),
            ("finalizers", Texts),
        ]),
    ),
];

const NODE: &[Field] = &[
    (
        "spec",
        Object(&[
            ("podCIDR providerID", Text),
            ("podCIDRs", Texts),
            ("unschedulable", Flag),
            ("taints", Objects(&[("key value effect timeAdded", Text)])),
            ("configSource", Any),
        ]),
    ),
    (
        "status",
        Object(&[
            ("phase", Text),
            ("conditions", Objects(&[("type status lastHeartbeatTime lastTransitionTime reason message", Text)])),
            ("addresses", Objects(&[("type address", Text)])),
            ("volumesInUse declaredFeatures", Texts),
            (
                "capacity allocatable daemonEndpoints nodeInfo images volumesAttached config runtimeHandlers features",
                Any,
            ),
        ]),
    ),
];

const SERVICE: &[Field] = &[
    (
        "spec",
        Object(&[
            (
                "ports",
                Objects(&[
                    ("name protocol appProtocol", Text),
                    ("port nodePort", Number),
                    ("targetPort", TextOrNumber),
                ]),
            ),
            ("selector", TextMap),
            ("clusterIP type sessionAffinity loadBalancerIP loadBalancerClass externalName", Text),
            ("externalTrafficPolicy internalTrafficPolicy ipFamilyPolicy trafficDistribution", Text),
            ("clusterIPs externalIPs loadBalancerSourceRanges ipFamilies", Texts),
            ("sessionAffinityConfig", Any),
            ("allocateLoadBalancerNodePorts publishNotReadyAddresses", Flag),
            ("healthCheckNodePort", Number),
        ]),
    ),
    (
        "status",
        Object(&[
            ("loadBalancer", Object(&[("ingress", Objects(&[("ip hostname ipMode", Text), ("ports", Any)]))])),
            (
                "conditions",
                Objects(&[("type status lastTransitionTime reason message", Text), ("observedGeneration", Number)]),
            ),
        ]),
    ),
];

const LEASE: &[Field] = &[(
    "spec",
    Object(&[
        ("holderIdentity acquireTime renewTime strategy preferredHolder", Text),
        ("leaseDurationSeconds leaseTransitions", Number),
    ]),
)];

const EVENT: &[Field] = &[
    ("involvedObject", Object(&[("kind namespace name uid apiVersion resourceVersion fieldPath", Text)])),
    ("source", Object(&[("component host", Text)])),
    ("reason message type action firstTimestamp lastTimestamp eventTime reportingComponent reportingInstance", Text),
    ("count", Number),
    ("series related", Any),
];

const CONFIG_MAP: &[Field] = &[("data binaryData immutable", Any)];

/// Checks types, and drops unknown fields, or rejects them if `strict`.
pub(crate) fn check(kind: &Kind, object: &mut Value, strict: bool) -> Result<(), ApiError> {
    let own = match kind.plural {
        "nodes" => NODE,
        "services" => SERVICE,
        "leases" => LEASE,
        "events" => EVENT,
        "configmaps" => CONFIG_MAP,
        _ => &[],
    };
    let Value::Object(map) = object else { return Ok(()) };
    let mut walk = Walk { kind: kind.kind, unknown: Vec::new() };
    walk.members(map, [OTHER, own], "", !own.is_empty())?;
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
        fields: [&[Field]; 2],
        path: &str,
        closed: bool,
    ) -> Result<(), ApiError> {
        let mut dropped = Vec::new();
        for (name, value) in map.iter_mut() {
            let place = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
            let is_it = |(names, _): &&Field| names.split(' ').any(|one| one == name);
            match fields.into_iter().flatten().find(is_it) {
                Some((_, wanted)) if !value.is_null() => self.value(value, *wanted, &place)?,
                None if closed => {
                    self.unknown.push(place);
                    dropped.push(name.clone());
                }
                _ => {}
            }
        }
        for name in dropped {
            map.remove(&name);
        }
        Ok(())
    }

    fn value(&mut self, value: &mut Value, wanted: Type, path: &str) -> Result<(), ApiError> {
        let fits = match (wanted, &mut *value) {
            (Any, _) | (Text | TextOrNumber, Value::String(_)) | (Flag, Value::Bool(_)) => true,
            (Number | TextOrNumber, Value::Number(number)) => number.is_i64(),
            (Texts, Value::Array(items)) => items.iter().all(Value::is_string),
            (TextMap, Value::Object(map)) => map.values().all(|one| one.is_string() || one.is_null()),
            (Object(fields), Value::Object(map)) => return self.members(map, [fields, &[]], path, true),
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
