//! Views of JSON objects.

use serde_json::Value;

use super::id::ArmId;

/// The text at a path: `/properties/provisioningState`. Empty if there is none.
pub(crate) fn text<'a>(object: &'a Value, path: &str) -> &'a str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

/// The list at a path. Empty if there is none.
pub(crate) fn list<'a>(object: &'a Value, path: &str) -> &'a [Value] {
    object.pointer(path).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default()
}

/// `true` at a path.
pub(crate) fn flag(object: &Value, path: &str) -> bool {
    object.pointer(path).and_then(Value::as_bool).unwrap_or_default()
}

/// The ID at a path: `/properties/virtualMachine/id`.
pub(crate) fn id(object: &Value, path: &str) -> Option<ArmId> {
    ArmId::parse(text(object, path)).ok()
}
