//! Nodes.

use crate::error::Cause;
use crate::value::{at, entry, list, set, set_default, text};
use serde_json::{Value, json};

const NOT_READY: &str = "node.kubernetes.io/not-ready";

pub(super) fn default_new(object: &mut Value) {
    // What the admission plugin TaintNodesByCondition does to every new node.
    let taint = json!({"key": NOT_READY, "effect": "NoSchedule"});
    let known = list(object, &["spec", "taints"])
        .iter()
        .any(|one| text(one, &["key"]) == NOT_READY && text(one, &["effect"]) == "NoSchedule");
    if !known {
        match entry(object, &["spec", "taints"]) {
            Value::Array(taints) => taints.push(taint),
            other => *other = json!([taint]),
        }
    }
    default_old(object);
}

pub(super) fn default_old(object: &mut Value) {
    let single = text(object, &["spec", "podCIDR"]).to_owned();
    match list(object, &["spec", "podCIDRs"]).first().and_then(Value::as_str).map(str::to_owned) {
        Some(first) if single.is_empty() => set(object, &["spec", "podCIDR"], first),
        // The old single member wins when the two disagree.
        found if !single.is_empty() && found.as_ref() != Some(&single) => {
            set(object, &["spec", "podCIDRs"], json!([single]));
        }
        _ => {}
    }
    if let Some(capacity) = at(object, &["status", "capacity"]).cloned() {
        set_default(object, &["status", "allocatable"], capacity);
    }
}

pub(super) fn validate(object: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    let taints = list(object, &["spec", "taints"]);
    for (index, taint) in taints.iter().enumerate() {
        let effect = text(taint, &["effect"]);
        if text(taint, &["key"]).is_empty() {
            causes.push(Cause::required(&format!("metadata.taints[{index}].key"), ""));
        }
        if !["NoSchedule", "PreferNoSchedule", "NoExecute"].contains(&effect) {
            let field = format!("metadata.taints[{index}].effect");
            let supported = ["NoSchedule", "PreferNoSchedule", "NoExecute"];
            causes.push(if effect.is_empty() {
                Cause::required(&field, "")
            } else {
                Cause::not_supported(&field, effect, &supported)
            });
        }
        let same =
            |other: &&Value| text(other, &["key"]) == text(taint, &["key"]) && text(other, &["effect"]) == effect;
        if taints.iter().take(index).any(|other| same(&other)) {
            let (key, value) = (text(taint, &["key"]), text(taint, &["value"]));
            let shown =
                format!("{{\"Key\":\"{key}\",\"Value\":\"{value}\",\"Effect\":\"{effect}\",\"TimeAdded\":null}}");
            let detail = "taints must be unique by key and effect pair";
            causes.push(Cause::duplicate(&format!("metadata.taints[{index}]"), &shown, detail));
        }
    }
    let cidrs = list(object, &["spec", "podCIDRs"]);
    for (index, cidr) in cidrs.iter().enumerate() {
        if !super::service::is_cidr(cidr.as_str().unwrap_or_default()) {
            let detail = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
            causes.push(Cause::invalid(&format!("spec.podCIDRs[{index}]"), cidr, detail));
        }
    }
    let v6 = |cidr: &Value| cidr.as_str().unwrap_or_default().contains(':');
    if cidrs.len() > 2 || matches!(cidrs, [one, two] if v6(one) == v6(two)) {
        let detail = "may specify no more than one CIDR for each IP family";
        causes.push(Cause::invalid("spec.podCIDRs", &json!(cidrs), detail));
    }
    let addresses = list(object, &["status", "addresses"]);
    for (index, address) in addresses.iter().enumerate() {
        if addresses.iter().take(index).any(|other| other == address) {
            let (kind, address) = (text(address, &["type"]), text(address, &["address"]));
            let shown = format!("{{\"Type\":\"{kind}\",\"Address\":\"{address}\"}}");
            causes.push(Cause::duplicate(&format!("status.addresses[{index}]"), &shown, ""));
        }
    }
    causes
}

pub(super) fn validate_change(old: &Value, new: &Value) -> Vec<Cause> {
    let mut causes = Vec::new();
    if text(old, &["spec", "externalID"]) != text(new, &["spec", "externalID"]) {
        causes.push(Cause::forbidden("spec.externalID", "may not be updated"));
    }
    let provider_id = text(old, &["spec", "providerID"]);
    if !provider_id.is_empty() && provider_id != text(new, &["spec", "providerID"]) {
        let detail = "node updates may not change providerID except from \"\" to valid";
        causes.push(Cause::forbidden("spec.providerID", detail));
    }
    let cidrs = list(old, &["spec", "podCIDRs"]);
    if !cidrs.is_empty() && cidrs != list(new, &["spec", "podCIDRs"]) {
        let detail = "node updates may not change podCIDR except from \"\" to valid";
        causes.push(Cause::forbidden("spec.podCIDRs", detail));
    }
    causes
}
