//! Facts about the patch formats that need no server.

use super::Patch;
use crate::kind::Kind;
use serde_json::{Value, json};

fn strategic(plural: &str, current: &Value, patch: Value) -> Value {
    Patch::Strategic(patch).apply(Kind::by_plural(plural).unwrap(), current).unwrap()
}

#[test]
fn addresses_with_replace_directive_replace_the_list() {
    let current = json!({"status": {"addresses": [{"type": "InternalIP", "address": "1.1.1.1"}]}});
    let patch = json!({"status": {"addresses": [{"type": "Hostname", "address": "a"}, {"$patch": "replace"}]}});
    let wanted = json!({"status": {"addresses": [{"type": "Hostname", "address": "a"}]}});
    assert_eq!(strategic("nodes", &current, patch), wanted);
}

#[test]
fn finalizers_are_added_to_and_deleted_from() {
    let current = json!({"metadata": {"finalizers": ["a", "b"]}});
    let patch = json!({"metadata": {"$setElementOrder/finalizers": ["a", "b", "c"], "finalizers": ["c"]}});
    let added = strategic("services", &current, patch);
    assert_eq!(added, json!({"metadata": {"finalizers": ["a", "b", "c"]}}));
    let patch =
        json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"], "$setElementOrder/finalizers": ["b", "c"]}});
    assert_eq!(strategic("services", &added, patch), json!({"metadata": {"finalizers": ["b", "c"]}}));
}

#[test]
fn a_condition_is_merged_by_its_type_and_the_others_stay() {
    let current = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}, {"type": "Disk", "x": 1}]}});
    let patch = json!({"status": {"conditions": [{"type": "Disk", "status": "False"}]}});
    let wanted = json!({"status": {"conditions":
        [{"type": "Ready", "status": "True"}, {"type": "Disk", "x": 1, "status": "False"}]}});
    assert_eq!(strategic("nodes", &current, patch), wanted);
}

#[test]
fn retain_keys_drops_the_other_keys() {
    let current = json!({"spec": {"a": 1, "b": 2}});
    let patch = json!({"spec": {"$retainKeys": ["b", "c"], "c": 3}});
    assert_eq!(strategic("persistentvolumes", &current, patch), json!({"spec": {"b": 2, "c": 3}}));
}

#[test]
fn json_patch_test_guards_the_rest() {
    let kind = Kind::by_plural("nodes").unwrap();
    let current = json!({"a": [1, 2]});
    let ok = json!([{"op": "test", "path": "/a/0", "value": 1}, {"op": "remove", "path": "/a/0"}]);
    assert_eq!(Patch::Json(ok).apply(kind, &current).unwrap(), json!({"a": [2]}));
    let bad = json!([{"op": "test", "path": "/a/0", "value": 9}]);
    assert_eq!(Patch::Json(bad).apply(kind, &current).unwrap_err().code, 422);
}
