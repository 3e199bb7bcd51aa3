//! Kinds with few rules: Namespace, PersistentVolume, Event, Lease.

use crate::error::Cause;
use crate::value::{at, set, set_default, text};
use serde_json::{Value, json};

pub(super) fn default_namespace(object: &mut Value) {
    let name = text(object, "/metadata/name").to_owned();
    set(object, "/metadata/labels/kubernetes.io~1metadata.name", name);
    set(object, "/spec/finalizers", json!(["kubernetes"]));
    set(object, "/status", json!({"phase": "Active"}));
}

pub(super) fn default_volume(object: &mut Value, new: bool) {
    set_default(object, "/spec/persistentVolumeReclaimPolicy", "Retain");
    set_default(object, "/spec/volumeMode", "Filesystem");
    if new {
        set(object, "/status", json!({"phase": "Pending"}));
    }
}

/// An event must be in the namespace of its object, or in `default` if the object has none.
pub(super) fn validate_event(object: &Value) -> Option<Cause> {
    let (involved, own) = (text(object, "/involvedObject/namespace"), text(object, "/metadata/namespace"));
    let fits = if involved.is_empty() { own == "default" } else { own == involved };
    (!fits).then(|| Cause::invalid("involvedObject.namespace", &involved.into(), "does not match event.namespace"))
}

pub(super) fn validate_lease(object: &Value) -> Vec<Cause> {
    let least = |path: &str, least: i64, detail: &str| {
        let found = at(object, path)?.as_i64().unwrap_or(i64::MIN);
        (found < least).then(|| Cause::invalid(&path.replacen('/', "", 1).replace('/', "."), &found.into(), detail))
    };
    let duration = least("/spec/leaseDurationSeconds", 1, "must be greater than 0");
    let transitions = least("/spec/leaseTransitions", 0, "must be greater than or equal to 0");
    duration.into_iter().chain(transitions).collect()
}
