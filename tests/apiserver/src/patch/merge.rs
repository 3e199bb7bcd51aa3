//! JSON merge patch (RFC 7396).

use crate::value::object;
use serde_json::Value;

/// Merges `patch` into `target`: objects merge, null deletes, everything else replaces.
pub(super) fn apply(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    let target = object(target);
    for (key, change) in changes {
        if change.is_null() {
            target.remove(key);
        } else {
            apply(target.entry(key.as_str()).or_insert(Value::Null), change);
        }
    }
}
