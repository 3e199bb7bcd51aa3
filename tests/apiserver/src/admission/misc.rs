//! The small kinds: Namespace, Secret, ConfigMap, PersistentVolume, Event, Lease.

use crate::error::Cause;
use crate::kind::Kind;
use crate::value::{at, copy, list, remove, set, set_default, text};
use serde_json::{Value, json};

/// Keeps a volume that is in use.
pub(crate) const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

pub(super) fn default_namespace(object: &mut Value) {
    let name = text(object, &["metadata", "name"]).to_owned();
    set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], name);
    set(object, &["spec", "finalizers"], json!(["kubernetes"]));
    set(object, &["status"], json!({"phase": "Active"}));
}

pub(super) fn default_secret(object: &mut Value) {
    set_default(object, &["type"], "Opaque");
    let Some(Value::Object(plain)) = remove(object, &["stringData"]) else { return };
    for (key, value) in plain {
        set(object, &["data", &key], base64(value.as_str().unwrap_or_default().as_bytes()));
    }
}

/// Standard base64 with padding.
fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::new();
    for chunk in bytes.chunks(3) {
        let byte = |index: usize| u32::from(chunk.get(index).copied().unwrap_or_default());
        let bits = (byte(0) << 16) | (byte(1) << 8) | byte(2);
        for position in 0..4 {
            let index = usize::try_from((bits >> (18 - 6 * position)) & 63).unwrap_or_default();
            let letter = ALPHABET.get(index).copied().filter(|_| usize::try_from(position).unwrap_or(0) <= chunk.len());
            text.push(char::from(letter.unwrap_or(b'=')));
        }
    }
    text
}

pub(super) fn default_volume_spec(object: &mut Value) {
    set_default(object, &["spec", "persistentVolumeReclaimPolicy"], "Retain");
    set_default(object, &["spec", "volumeMode"], "Filesystem");
    if at(object, &["spec", "hostPath"]).is_some() {
        set_default(object, &["spec", "hostPath", "type"], "");
    }
}

pub(super) fn default_volume(object: &mut Value, now: &str) {
    default_volume_spec(object);
    set(object, &["status"], json!({"phase": "Pending", "lastPhaseTransitionTime": now}));
    // What the admission plugin StorageObjectInUseProtection does to every new volume.
    let mut finalizers = list(object, &["metadata", "finalizers"]).to_vec();
    if !finalizers.iter().any(|one| one == PV_PROTECTION) {
        finalizers.push(PV_PROTECTION.into());
    }
    set(object, &["metadata", "finalizers"], finalizers);
}

/// An event lives in the namespace of its object, or in `default` when that has none.
pub(super) fn validate_event(object: &Value) -> Option<Cause> {
    let involved = text(object, &["involvedObject", "namespace"]);
    let own = text(object, &["metadata", "namespace"]);
    let fits = if involved.is_empty() { own == "default" } else { own == involved };
    (!fits).then(|| Cause::invalid("involvedObject.namespace", &involved.into(), "does not match event.namespace"))
}

pub(super) fn validate_lease(object: &Value) -> Vec<Cause> {
    let positive = |field: &str, detail: &str, least: i64| {
        let found = at(object, &["spec", field])?.as_i64().unwrap_or(i64::MIN);
        (found < least).then(|| Cause::invalid(&format!("spec.{field}"), &found.into(), detail))
    };
    let duration = positive("leaseDurationSeconds", "must be greater than 0", 1);
    let transitions = positive("leaseTransitions", "must be greater than or equal to 0", 0);
    duration.into_iter().chain(transitions).collect()
}

/// Secrets and config maps that are marked immutable keep their data; a secret keeps its type.
pub(super) fn validate_immutable(kind: &Kind, old: &Value, new: &mut Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if kind.plural == "secrets" {
        if text(new, &["type"]).is_empty() {
            copy(new, old, &["type"]);
        }
        if at(old, &["type"]) != at(new, &["type"]) {
            causes.push(Cause::invalid("type", at(new, &["type"]).unwrap_or(&Value::Null), "field is immutable"));
        }
    }
    if at(old, &["immutable"]) == Some(&Value::Bool(true)) {
        for field in ["immutable", "data", "binaryData"] {
            if at(old, &[field]) != at(new, &[field]) {
                causes.push(Cause::forbidden(field, "field is immutable when `immutable` is set"));
            }
        }
    }
    causes
}
